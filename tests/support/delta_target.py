"""Delta as a target of the table contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

from headrace.changes import TableSchema
from headrace.sinks.lake.catalog import escaped
from headrace.sinks.lake.delta.sink import DeltaSink
from headrace.testing.table_target import TableTarget


class DeltaTarget(TableTarget):
    """A sink on a folder, and what its tables hold."""

    def __init__(self, spark: Any, folder: Path | str, **options: Any) -> None:
        self.spark = spark
        self.folder = folder
        self.options = options

    def sink(self, **options: Any) -> DeltaSink:
        given = {"path": str(self.folder), **self.options, **options}
        return DeltaSink.of(given)

    def path(self, name: str) -> str:
        return f"{self.folder}/dbo/{name}"

    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        """By a reader that shares no code with Spark and needs milliseconds, where it can read the table."""
        path = self.path(escaped(schema.id.name))
        if not Path(path).exists():
            return []
        found = deltalake.DeltaTable(path)
        # Columns with other names, and such as became wider, need more.
        needs = {*(found.protocol().reader_features or ()), *(["mapping"] * (found.protocol().min_reader_version == 2))}
        if not needs:
            made = found.to_pyarrow_table()
        elif needs <= {"deletionVectors", "timestampNtz"}:
            made = pa.table(deltalake.QueryBuilder().register("t", found).execute("select * from t").read_all())
        else:
            made = self.spark.read.format("delta").load(path).toArrow()
        rows: list[dict[str, Any]] = made.to_pylist(maps_as_pydicts="strict")
        return rows

    def content(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        rows = self.rows(schema)
        return sorted((tuple(v for n, v in row.items() if n != "_headrace_position") for row in rows), key=repr)

    def version_of(self, schema: TableSchema) -> int | None:
        return self.version(schema.id.name) if Path(self.path(schema.id.name)).exists() else None

    def version(self, name: str = "t") -> int:
        return int(deltalake.DeltaTable(self.path(name)).version())

    def operations(self, name: str = "t") -> list[str]:
        history = deltalake.DeltaTable(self.path(name)).history()
        return [entry["operation"] for entry in reversed(history)]
