"""The memory sink as a target of the table contract."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from headrace.changes import TableSchema
from headrace.sinks.base import BatchId
from headrace.sinks.memory import MemorySink
from headrace.testing.change_history import Batch, Model
from headrace.testing.table_target import TableTarget


class MemoryTarget(TableTarget):
    """The kept changes, made a table by the model."""

    keeps_tables = False

    def __init__(self, spark: Any) -> None:
        self.spark = spark
        self.name = uuid4().hex

    def sink(self, **options: Any) -> MemorySink:
        return MemorySink.of({"name": self.name})

    def write(self, batch: Batch, number: int = 0, owner: str = "p", **options: Any) -> None:
        self.sink().write(batch.rows(self.spark), BatchId(owner, "checkpoint", number))

    def content(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        kept = [row for rows in MemorySink.batches(self.name).values() for row in rows]
        model = Model(schema)
        model.apply(
            {name: row[name] for name in ("op", "position", "before", "after", "snapshot", "source", "message")}
            for row in kept
            if row["table"]["name"] == schema.id.name
        )
        kinds = [column.logical for column in schema.columns]
        typed = (
            tuple(None if text is None else kind.from_text(text) for kind, text in zip(kinds, row, strict=True))
            for row in model.content()
        )
        return sorted(typed, key=repr)
