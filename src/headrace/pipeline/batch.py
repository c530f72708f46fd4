"""What Spark calls with each batch: its second reading where rows are lost, and the gate that stops a run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError
from headrace.faultpoints import reach
from headrace.pipeline.batch_inputs import BatchInput, Delivery
from headrace.pipeline.recover import Attempts, one_line
from headrace.pipeline.stages import Batch, StageTimes
from headrace.sinks.base import BatchId, FilesUnusable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger("headrace.pipeline")
_HOLD_MILLISECONDS = 24 * 3600 * 1000
_START_SECONDS = 60.0
_READINGS = 3
"""How often a batch is read whose kept rows are lost."""
_LOST = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
_INTERRUPTIONS = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
)
_MOST_LETTERS = 500


class BatchWriter:
    """What Spark calls with every batch, in the driver, one at a time. A replay gets the same number and the same rows.

    Args:
        pipeline: the pipeline's name.
        input: what the stream gives.
        delivery: where batches go.
        offsets: a hash of a batch's offsets, by its number (`BatchId.offsets`).
    """

    def __init__(
        self,
        pipeline: str,
        input: BatchInput,
        delivery: Delivery,
        *,
        offsets: Callable[[int], str] = lambda batch: "",
    ) -> None:
        self._pipeline = pipeline
        self._input = input
        self._board = delivery.board
        self._stages = input.stages(delivery)
        self._offsets = offsets
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
    def closed(self) -> bool:
        with self._state:
            return self._closed

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
        try:
            if self._held:
                _hold(rows)
            batch = replace(batch, offsets=self._offsets(number))
            Attempts(f"Batch {number}").run(lambda: self._write_of_one_reading(rows, batch))
            self.last = number
        except BaseException as error:
            if not self._held:
                self.failure = error
            raise _for_spark(error) from None
        finally:
            self._board.leave()
            with self._state:
                self._inside = False
                self._state.notify_all()

    def _write_of_one_reading(self, rows: DataFrame, id: BatchId) -> None:
        """Write a batch, and once more from its beginning when rows are lost that were kept of a live table, or when a
        table is parked.

        What was found out about the first reading does not hold for the rows of a second one.
        """
        is_live, losses = self._input.is_live(id.number), 0
        parking, files = self._input.parking, self._input.files
        parking.begin(id.number)
        while True:
            try:
                self._write(rows, id, is_live=is_live)
                return
            except Exception as error:
                if files is not None and isinstance(error, FilesUnusable):
                    _LOG.warning("%s They are read once more.", error.message)
                    files.leave_out(error.table)
                    continue
                if parking.take(error, id.number):
                    continue
                losses += 1
                if losses == _READINGS or not _lost_rows(error):
                    raise

    def _write(self, rows: DataFrame, id: BatchId, *, is_live: bool) -> None:
        times = StageTimes(partial(self._board.enter, id.number))
        times.begin(self._input.first_stage)
        with ExitStack() as cleanup:
            batch = Batch(id, rows, is_live, times, cleanup)
            for stage in self._stages:
                if batch.wanted is not None or not stage.needs_rows:
                    stage.run(batch)
            reach("pipeline.batch.done")
            times.end()
        self._board.add(batch.counts, batch.message_counts, number=id.number, seconds=times.seconds, stages=times.ended)


def _lost_rows(error: BaseException | None) -> bool:
    """Whether kept rows were gone, as with the executor that kept them."""
    while error is not None:
        if _LOST in f"{error}{getattr(error, '_stackTrace', '')}":
            return True
        error = error.__cause__ or error.__context__
    return False


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


def _for_spark(error: BaseException) -> Exception:
    """What Spark gets of an error, which itself stays in `BatchWriter.failure`: its sentence, or its first line.

    Of an interruption it gets the words by which it knows one. It looks for them with a regular expression that takes a
    stack frame for each character, so the stack traces of both languages would end its thread by a StackOverflowError.
    """
    if isinstance(error, HeadraceError):
        return copy(error)
    text = str(error)
    interruption = next((name for name in _INTERRUPTIONS if name in text), None)
    if interruption is None:
        return RuntimeError(f"{type(error).__name__}: {one_line(error)}"[:_MOST_LETTERS])
    return RuntimeError(f"py4j.protocol.Py4JJavaError: An error occurred while calling the batch: {interruption}")


def wait_for(condition: Callable[[], bool], timeout: float, pause: float = 0.05) -> bool:
    """Ask again and again until something is so; whether it was in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True
