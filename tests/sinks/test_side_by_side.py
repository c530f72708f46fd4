"""Rule: tables that are written side by side know nothing of each other's jobs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace.sinks.table_sink import side_by_side
from headrace.testing.waiting import PATIENCE


def test_each_work_has_the_callers_local_properties_as_a_copy_of_its_own(spark: Any) -> None:
    context = spark.sparkContext
    context.setLocalProperty("test.given", "by the caller")
    both = threading.Barrier(2, timeout=PATIENCE)

    def work(number: int) -> tuple[str | None, str | None]:
        context.setLocalProperty("test.own", str(number))
        both.wait()
        return context.getLocalProperty("test.given"), context.getLocalProperty("test.own")

    found = side_by_side(spark, [1, 2], work, workers=2)
    assert found == [("by the caller", "1"), ("by the caller", "2")]
    assert context.getLocalProperty("test.own") is None
    context.setLocalProperty("test.given", None)


def test_all_works_are_tried_before_the_first_failure_is_raised(spark: Any) -> None:
    done = []

    def work(number: int) -> None:
        if number < 3:
            raise ValueError(number)
        done.append(number)

    with pytest.raises(ValueError, match="1"):
        side_by_side(spark, [1, 2, 3, 4], work, workers=2)
    assert sorted(done) == [3, 4]
