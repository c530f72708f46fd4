"""Rule: rows of a batch are shown while it is read: those of tasks that are done, as Spark or the plan says."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.watch import rows_read
from headrace.sources.offset import TableProgress
from headrace.testing.waiting import until


@pytest.mark.parametrize(
    ("progress", "chunk_rows", "rows"),
    [
        (TableProgress("01", bounds=(("9",), ("19",)), rows=1_000), 10, 20),
        (TableProgress("01", chunk=2, bounds=(("29",), None), rows=25), 10, 5),
        (TableProgress("01", chunk=3, bounds=(None,), rows=25), 10, 0),
        (TableProgress("01", bounds=(None,), rows=-1), 10, 10),
        (TableProgress("01", bounds=(None,), rows=25), 0, 25),
        (TableProgress("01", rows=25), 10, 0),
    ],
)
def test_the_chunks_of_a_batch_have_about_as_many_rows(progress: TableProgress, chunk_rows: int, rows: int) -> None:
    assert progress.rows_of_batch(chunk_rows) == rows


def test_rows_of_tasks_that_are_done_count_while_others_run(spark: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def held(batches):  # type: ignore[no-untyped-def]
        for batch in batches:
            if batch.column(0)[0].as_py():
                # Until somebody opens it to write.
                gate.open("rb").close()
            yield batch

    context = spark.sparkContext

    def count() -> None:
        context.setJobGroup("run", "reads")
        spark.range(0, 40, 1, 2).mapInArrow(held, "id bigint").count()

    counting = threading.Thread(target=count)
    counting.start()
    try:
        until(lambda: rows_read(spark, "run") == 20, "the first task has read its rows")
        # Rows that workers write themselves, by the tasks that are done.
        assert rows_read(spark, "run", planned=1_000) == 500
        assert rows_read(spark, "another run") == 0
    finally:
        opened = os.open(gate, os.O_RDWR)
        counting.join()
        os.close(opened)
    # A job leaves Spark's list of active jobs a moment after its last row.
    until(lambda: rows_read(spark, "run") == 0, "the job is over and none of its rows count")
