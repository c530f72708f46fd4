"""Files of Delta tables that workers write from the rows of a first snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.sinks.lake.data_files import DataFile
from headrace.sinks.lake.delta.actions import added, statistics
from headrace.sinks.lake.table_files import LakeFiles, PreparedTable


@dataclass(frozen=True)
class PreparedDelta(PreparedTable):
    """A Delta table.

    Args:
        indexed: the columns that have statistics.
    """

    indexed: Sequence[str]

    @property
    def inside(self) -> list[str]:
        return [name for name in self.schema.names if name not in self.partitioning.columns]

    def action(self, file: DataFile) -> dict[str, Any]:
        shown = statistics(file, self.schema, self.indexed, self.names)
        return added(file, shown, self.partitioning, self.columns, self.names)


class DeltaFiles(LakeFiles):
    sink: ClassVar[str] = "delta"
    table: ClassVar[type[PreparedTable]] = PreparedDelta
