"""The signal table of a source that reads its rows in the database's log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from headrace.errors import CaptureError
from headrace.sources.signals import require_signal_columns, signal_table
from headrace.sources.tables.table_rules import SourceTable

Table = TypeVar("Table", bound=SourceTable[Any])


def require_signal_table(
    name: str, database: str, tables: Mapping[str, Table], *, capture: str, definition: str
) -> Table:
    """The signal table.

    Args:
        name: as the option names it.
        database: where it has to be.
        tables: the captured tables by path.
        capture: how it becomes one of them, as a sentence.
        definition: its columns in the words of the server.

    Raises:
        CaptureError: it is not among the captured tables, or lacks the columns.
    """
    path = signal_table(name, database, tables)
    if path is None:
        raise CaptureError(
            f"The signal table '{name}' is not among the captured tables of database '{database}'.", remedy=capture
        )
    require_signal_columns(path, tables[path].schema.columns, definition)
    return tables[path]
