"""Iceberg as a target of the table contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.changes import TableSchema
from headrace.sinks.lake.iceberg.sink import IcebergSink
from headrace.sinks.lake.iceberg.table import IcebergTable
from headrace.testing.table_target import T, TableTarget


class IcebergTarget(TableTarget):
    """A sink on a warehouse, and what its tables hold."""

    def __init__(self, spark: Any, warehouse: Path | str, **given: str) -> None:
        self.spark = spark
        self.given = {"warehouse": str(warehouse), **given}

    def sink(self, **options: Any) -> IcebergSink:
        return IcebergSink.of({**self.given, **options})

    def table(self, schema: TableSchema = T) -> IcebergTable:
        own = type(self.spark)(self.spark.sparkContext, self.spark._jsparkSession.cloneSession())
        return self.sink().target(own, schema.id)

    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        found = self.table(schema)
        rows: list[dict[str, Any]] = found.read().toArrow().to_pylist(maps_as_pydicts="strict") if found.exists else []
        return rows

    def content(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        rows = self.rows(schema)
        return sorted((tuple(v for n, v in row.items() if n != "_headrace_position") for row in rows), key=repr)

    def shown_properties(self) -> dict[str, str]:
        """The table's properties as SQL shows them, with what it says of the table beside."""
        found = self.table()
        rows = found.session.sql(f"show tblproperties {found.sql_name}").collect()
        return {row["key"]: row["value"] for row in rows}

    def snapshots(self) -> list[dict[str, str]]:
        found = self.table()
        rows = found.session.table(f"{found.sql_name}.snapshots").orderBy("committed_at").collect()
        # The first one, which is empty, is where the first batch began.
        return [dict(row["summary"]) for row in rows if "headrace.batch" in row["summary"]]
