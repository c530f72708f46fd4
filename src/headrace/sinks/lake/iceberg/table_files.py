"""Files of Iceberg tables that workers write from the rows of a first snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from headrace.sinks.lake.data_files import DataFile
from headrace.sinks.lake.iceberg.facts import partition_text
from headrace.sinks.lake.table_files import LakeFiles, PreparedTable


@dataclass(frozen=True)
class PreparedIceberg(PreparedTable):
    """An Iceberg table.

    Args:
        required: the columns that are never null.
        spec: how it is partitioned, as Iceberg writes it as JSON.
    """

    required: Sequence[str]
    spec: str

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([field.with_nullable(field.name not in self.required) for field in super().schema])

    def action(self, file: DataFile) -> dict[str, Any]:
        """Where it is, and its partition; the rest Iceberg reads from its footer when it is committed."""
        partition = partition_text(self.partitioning, self.spec, self.columns, file.partition)
        return {"path": file.path, "size": file.size, "partition": partition}


class IcebergFiles(LakeFiles):
    sink: ClassVar[str] = "iceberg"
    table: ClassVar[type[PreparedTable]] = PreparedIceberg
