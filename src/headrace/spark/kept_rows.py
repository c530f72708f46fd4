"""Rows that a batch reads several times, computed once and known to no cache.

Of persisted rows Spark remembers the plan: after each commit into a table that the plan reads it plans them again,
which takes seconds where plans are large. Rows of a local checkpoint have no plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def kept_rows(frame: DataFrame, *, eager: bool = False) -> Iterator[DataFrame]:
    """The rows of a DataFrame, which are computed once at most, and freed at the end.

    If an executor takes some of them along, what reads them fails, and the batch can be repeated; they are never read
    again in silence. Over Spark Connect they are persisted.

    Args:
        frame: gives the rows.
        eager: whether they are computed at once, and not by the first action.
    """
    from pyspark import StorageLevel

    if not hasattr(frame, "_jdf"):
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            yield kept
        finally:
            kept.unpersist()
        return
    kept = frame.localCheckpoint(eager=eager, storageLevel=StorageLevel.MEMORY_AND_DISK)
    try:
        yield kept
    finally:
        # Spark itself frees them when Java collects its garbage.
        kept._jdf.queryExecution().analyzed().rdd().unpersist(False)
