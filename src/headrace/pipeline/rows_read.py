"""How many rows of the batch under way were read, by what Spark says of its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows_read(spark: SparkSession, group: str, planned: int = 0) -> int:
    """How many rows the running jobs of a query have read in the tasks that are done; Spark says it when a task ends.

    Runs in the driver and starts no job.

    Args:
        spark: the session that the query runs in.
        group: the query's run, which is the group of its jobs.
        planned: about how many rows workers write into files, of which Spark sees none; these count by tasks.
    """
    from py4j.protocol import Py4JError

    tracker = spark.sparkContext.statusTracker()
    store: Any = spark.sparkContext._jsc.sc().statusStore()
    rows = 0
    for job in tracker.getActiveJobsIds():
        try:
            if store.job(job).jobGroup().toString() != f"Some({group})":
                continue
            info = tracker.getJobInfo(job)
            # The first stage reads; what follows counts or writes.
            stage = tracker.getStageInfo(min(info.stageIds)) if info is not None and info.stageIds else None
            if stage is None:
                continue
            in_files = planned * stage.numCompletedTasks // max(1, stage.numTasks)
            rows += max(int(store.lastStageAttempt(stage.stageId).inputRecords()), in_files)
        except Py4JError:
            # It ended meanwhile, and Spark no longer knows it.
            continue
    return rows
