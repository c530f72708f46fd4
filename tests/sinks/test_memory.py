"""Rule: what the memory sink keeps is what a table would need; it keeps changes and refuses nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from uuid import uuid4

import pytest

from headrace.changes import TableSchema
from headrace.sinks.base import BatchId
from headrace.sinks.memory import MemorySink
from headrace.testing.change_history import Batch, Model
from headrace.testing.table_sinks import TableSinkContract, TableTarget


class MemoryTarget(TableTarget):
    """The kept changes, made a table by the model."""

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
            {name: row[name] for name in ("op", "position", "before", "after", "snapshot", "message")}
            for row in kept
            if row["table"]["name"] == schema.id.name
        )
        kinds = [column.logical for column in schema.columns]
        typed = (
            tuple(None if text is None else kind.from_text(text) for kind, text in zip(kinds, row, strict=True))
            for row in model.content()
        )
        return sorted(typed, key=repr)


@pytest.fixture
def target(spark: Any) -> Any:
    made = MemoryTarget(spark)
    yield made
    MemorySink.forget(made.name)


class TestMemory(TableSinkContract):
    gaps: ClassVar[Mapping[str, str]] = {
        "test_a_structure_that_does_not_fit_is_refused_before_anything": "it has no structure",
        "test_a_preview_says_what_a_write_then_does": "it has no target per table",
        "test_a_target_of_another_owner_is_refused_unless_taken_over": "it lives in one process",
        "test_a_partial_update_without_its_row_stops_and_leaves_the_table": "it has no rows to look for",
        "test_a_value_that_does_not_fit_stops_without_being_shown": "it keeps texts",
        "test_after_one_table_failed_a_retry_gives_every_table_the_batch_once": "it commits nothing",
        "test_structures_are_followed_as_far_as_is_said": "it has no structure",
        "test_a_renamed_column_keeps_its_values": "it has no structure",
        "test_the_user_can_say_what_was_renamed": "it has no structure",
        "test_of_two_writers_of_one_batch_one_lands": "it commits nothing",
        "test_a_changed_key_keeps_the_values_that_its_change_does_not_carry": "it has no rows to look for",
        "test_changes_of_one_row_from_two_partitions_stop_unless_their_order_is_given": "it folds nothing",
    }
