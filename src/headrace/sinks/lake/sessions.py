"""Sessions for the work on one table, with settings that suit the size of its batch and of the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

SMALL = 20_000
"""Up to how many changes a batch is small: Spark's work on its rows is nothing beside what each query costs."""
SMALL_TARGET = 16 << 20
"""Up to how many bytes a target is read as a whole by a few quick tasks."""
_STATE_PARTITIONS = "spark.databricks.delta.snapshotPartitions"
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_ALWAYS = {
    # Spark's default, INT96, holds nanoseconds: readers can't read the years 0001 and 9999 out of it.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # The target is far larger than the batch, so it must not be sorted to be joined with it.
    "spark.sql.join.preferSortMergeJoin": "false",
    # Up to this size in each task; beyond it Spark sorts, which needs less memory.
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "64m",
}
_FEW_ROWS = {
    # It makes a job of each stage, and plans the rest again after it.
    "spark.sql.adaptive.enabled": "false",
}


def can_clone(spark: SparkSession) -> bool:
    """Whether commits can have sessions of their own, and so run side by side."""
    return hasattr(spark, "_jsparkSession")


def session_for(spark: SparkSession, size: int) -> SparkSession:
    """A session for the work on one table: the same cached data, but settings of its own.

    Where there is nothing to clone (Spark Connect) it is the session itself; the caller then writes one table after
    another. What the user has set stays.
    """
    if not can_clone(spark):
        return spark
    clone = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
    cores = spark.sparkContext.defaultParallelism
    # The log of a small table would be spread over 50 tasks otherwise, which takes longer than a small batch itself.
    # VACUUM lists folders in as many tasks as this says, by default 10,000, which take a minute on two cores.
    listing = {_LISTING: str(max(8, min(10_000, 8 * cores)))}
    _set(clone, {_STATE_PARTITIONS: str(max(2, min(50, cores)))} | listing | _ALWAYS)
    if size <= SMALL:
        _set(clone, _FEW_ROWS)
        if cores < int(clone.conf.get(_SHUFFLE_PARTITIONS) or 200):
            clone.conf.set(_SHUFFLE_PARTITIONS, str(cores))
    return clone


def expect_many_rows(session: SparkSession, spark: SparkSession) -> None:
    """Plan as for a large target from now on.

    Args:
        session: what `session_for` gave.
        spark: the session from which it was made.
    """
    for name in _FEW_ROWS:
        if can_clone(spark) and spark.conf.get(name, None) is None:
            session.conf.unset(name)


def _set(session: SparkSession, settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        if session.conf.get(name, None) is None:
            session.conf.set(name, value)
