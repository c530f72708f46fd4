"""Databases as a target of the table contract."""

from __future__ import annotations

from typing import Any

from tests.sinks.databases import Running

from headrace.changes import TableSchema
from headrace.sinks.jdbc.sink import JdbcSink
from headrace.testing.table_target import TableTarget


class JdbcTarget(TableTarget):
    """Tables of a database that no other test uses."""

    def __init__(self, spark: Any, running: Running) -> None:
        self.spark = spark
        self.running = running
        self.has_years_before_christ = running.kind == "postgresql"

    def sink(self, **options: Any) -> JdbcSink:
        return self.running.sink(**options)

    def content(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        name = schema.id.name
        return self.running.content(name) if self.running.columns(name) else []
