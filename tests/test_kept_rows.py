"""Rule: rows that a batch keeps are computed once, Spark's cache does not know them, and they are freed at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.spark.local_rows import kept_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("eager", [False, True])
def test_kept_rows_are_computed_once_and_are_no_plan_that_a_commit_plans_anew(spark: SparkSession, eager: bool) -> None:
    cached, before = (
        spark._jsparkSession.sharedState().cacheManager(),
        spark.sparkContext._jsc.getPersistentRDDs().size(),
    )
    was_empty = cached.isEmpty()
    with kept_rows(spark.range(20).selectExpr("id", "uuid() as made"), eager=eager) as kept:
        first = sorted(kept.collect())
        assert sorted(kept.collect()) == first
        assert cached.isEmpty() == was_empty
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == before
