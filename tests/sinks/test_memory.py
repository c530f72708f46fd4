"""Rule: what the memory sink keeps is what a table would need; it keeps changes and refuses nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from tests.support.memory_target import MemoryTarget

from headrace.sinks.memory import MemorySink
from headrace.testing.table_sinks import TableSinkContract


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
        "test_days_before_christ_are_days_of_their_own_or_stop": "it keeps texts",
        "test_values_that_no_column_has_a_place_for_stop_or_are_null_or_texts": "it keeps texts",
        "test_after_one_table_failed_a_retry_gives_every_table_the_batch_once": "it commits nothing",
        "test_rows_from_before_get_the_value_of_a_column_that_was_added": "it has no rows to look for",
        "test_structures_are_followed_as_far_as_is_said": "it has no structure",
        "test_a_renamed_column_keeps_its_values": "it has no structure",
        "test_the_user_can_say_what_was_renamed": "it has no structure",
        "test_the_user_can_say_what_was_dropped": "it has no structure",
        "test_of_two_writers_of_one_batch_one_lands": "it commits nothing",
        "test_a_changed_key_keeps_the_values_that_its_change_does_not_carry": "it has no rows to look for",
        "test_changes_of_one_row_from_two_partitions_stop_unless_their_order_is_given": "it folds nothing",
    }
