"""One batch: computed once, counted, given to each sink in turn; and the gate that stops a run between two."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from headrace.faultpoints import reach
from headrace.observe.progress import BatchCount, ProgressBoard
from headrace.pipeline.model import Target
from headrace.sinks.base import BatchId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HOLD_MILLISECONDS = 24 * 3600 * 1000
_START_SECONDS = 60.0


class BatchWriter:
    """What Spark calls with every batch, in the driver, one at a time. A replay gets the same number and the same rows.

    Args:
        pipeline: the pipeline's name.
        targets: the sinks in order.
        board: where batches that are in all sinks are counted.
        decode: from what the stream gives to change rows; None when it gives change rows.
    """

    def __init__(
        self,
        pipeline: str,
        targets: Sequence[Target],
        board: ProgressBoard,
        decode: Callable[[DataFrame], DataFrame] | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._targets = targets
        self._board = board
        self._decode = decode
        self._uses = Counter(target.format_key for target in targets if target.format is not None)
        self._checkpoint: str | None = None
        self._state = threading.Condition()
        self._closed = False
        self._held = False
        self._inside = False
        self.last: int | None = None
        """The last batch that went through all sinks; Spark commits it a moment later."""
        self.failure: BaseException | None = None
        """Why a batch failed, as it was raised."""

    def begin(self, checkpoint: str) -> None:
        """Say the checkpoint's id, which Spark tells only after the query has started; batches wait for it."""
        with self._state:
            self._checkpoint = checkpoint
            self._state.notify_all()

    def close(self, timeout: float) -> bool:
        """Let no further batch in, and wait until the one inside is through; whether it was in time."""
        with self._state:
            self._closed = True
            return self._state.wait_for(lambda: not self._inside, timeout)

    @property
    def held(self) -> bool:
        """Whether a batch waits at the closed gate, which means that the one before it is committed."""
        with self._state:
            return self._held

    def __call__(self, rows: DataFrame, number: int) -> None:
        """Spark's `foreachBatch` function."""
        with self._state:
            self._state.wait_for(lambda: self._checkpoint is not None, _START_SECONDS)
            if self._checkpoint is None:
                raise RuntimeError("the query did not start")
            batch = BatchId(self._pipeline, self._checkpoint, number)
            self._held = self._closed
            self._inside = not self._closed
        if self._held:
            _hold(rows)
        try:
            self._write(rows, batch)
            self.last = number
        except BaseException as error:
            self.failure = error
            raise
        finally:
            with self._state:
                self._inside = False
                self._state.notify_all()

    def _write(self, rows: DataFrame, batch: BatchId) -> None:
        from pyspark import StorageLevel

        changes = rows if self._decode is None else self._decode(rows)
        with ExitStack() as cleanup:
            changes = changes.persist(StorageLevel.MEMORY_AND_DISK)
            cleanup.callback(changes.unpersist)
            reach("pipeline.batch.entered")
            counts = count_rows(changes)
            if counts:
                encoded: dict[str, DataFrame] = {}
                for number, target in enumerate(self._targets, 1):
                    given = changes
                    if target.format is not None:
                        if target.format_key not in encoded:
                            messages = target.format.encode(changes)
                            if self._uses[target.format_key] > 1:
                                messages = messages.persist(StorageLevel.MEMORY_AND_DISK)
                                cleanup.callback(messages.unpersist)
                            encoded[target.format_key] = messages
                        given = encoded[target.format_key]
                    target.sink.write(given, batch)
                    reach(f"pipeline.sink.{number}.written")
            reach("pipeline.batch.done")
        self._board.add(counts)


def count_rows(changes: DataFrame) -> list[BatchCount]:
    """Rows by table and operation: one small aggregation, which also computes the persisted batch."""
    grouped = changes.selectExpr(
        "concat_ws('.', nullif(table.schema, ''), table.name) as table_path", "op", "event_time"
    ).groupBy("table_path", "op")
    # Seconds since the epoch, because a timestamp would come back in this machine's time zone.
    rows = grouped.agg({"*": "count", "event_time": "max"}).selectExpr(
        "table_path", "op", "`count(1)` as n", "cast(`max(event_time)` as double) as newest"
    )
    found = []
    for row in sorted(rows.collect(), key=lambda row: (row["table_path"] or "", row["op"] or "")):
        newest = None if row["newest"] is None else dt.datetime.fromtimestamp(row["newest"], dt.UTC)
        found.append(BatchCount(row["table_path"] or "", row["op"], row["n"], newest))
    return found


def _hold(rows: DataFrame) -> None:
    """Keep this batch out until the query is stopped.

    The wait is in the JVM's own streaming thread, which `query.stop()` interrupts: Spark takes that for an orderly
    end, and the batch, of which nothing was written, comes again at the next start. A wait in Python could not be
    interrupted.
    """
    jvm = rows.sparkSession.sparkContext._jvm
    assert jvm is not None
    jvm.java.lang.Thread.sleep(_HOLD_MILLISECONDS)
    raise RuntimeError("a stopped run was not ended for a day")


def wait_for(condition: Callable[[], bool], timeout: float, pause: float = 0.05) -> bool:
    """Ask again and again until something is so; whether it was in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True
