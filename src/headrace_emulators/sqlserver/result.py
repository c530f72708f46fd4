"""What a statement of T-SQL returns."""

from __future__ import annotations

from headrace_emulators.engine import result
from headrace_emulators.sqlserver.types import SqlType

Result = result.Result[SqlType | None]
