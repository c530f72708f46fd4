"""`RunningPipeline`: a run of a pipeline on a Spark session."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from headrace.observe.checkpoint import LAST_RUN, PARKED, STRUCTURES
from headrace.observe.history import FILE as FIGURES
from headrace.observe.open_lineage import LineageEvents, lineage_client
from headrace.observe.progress import PipelineProgress, ProgressBoard
from headrace.observe.troubles import Troubles
from headrace.pipeline.announced_structures import AnnouncedStructures
from headrace.pipeline.batch import BatchWriter, wait_for
from headrace.pipeline.batch_inputs import Delivery
from headrace.pipeline.checkpoint import Checkpoint
from headrace.pipeline.checkpoint import held as held_checkpoint
from headrace.pipeline.checkpoint import to_text as last_run_text
from headrace.pipeline.ending import Ending
from headrace.pipeline.first_loads import FirstLoads
from headrace.pipeline.fusing import Fusing
from headrace.pipeline.model import Model
from headrace.pipeline.parking import Parking
from headrace.pipeline.recover import Attempts, full_text, recover
from headrace.pipeline.run_source import run_source
from headrace.pipeline.watch import FigureKeeper, Watch, rows_read
from headrace.pipeline.written_tables import flow_of
from headrace.sources.databases import Offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOG = logging.getLogger("headrace.pipeline")

STOP_SECONDS = 60.0
"""How long `stop` waits for the batch that is being written."""

_DRAIN_TRIGGER = "200 milliseconds"
_HEAD_SECONDS = 1.0
_HEALTH_SECONDS = 2.0
_POLL_SECONDS = 0.1
_LAST_WORDS_SECONDS = 10.0
_KEEP_SECONDS = 2.0
_KEEP_ELSEWHERE_SECONDS = 30.0
"""An object store takes money for each file that is written."""


class RunningPipeline:
    """A pipeline at work. Its methods may be called from any thread of the driver."""

    def __init__(self, model: Model, spark: SparkSession, *, once: bool, breaks_lease: bool = False) -> None:
        self._model = model
        self._spark = spark
        self._once = once
        self._attempts = Attempts("The start")
        self._last_at_start: int | None = None
        self._checkpoint = Checkpoint(spark, model.checkpoint)
        self._source = run_source(model, spark, self._checkpoint)
        self._board = ProgressBoard(chunk_rows=self._source.chunk_rows)
        self._stopping = threading.Lock()
        self._started = False
        self._reported = ""
        self._troubles = Troubles()
        self._ending: Ending | None = None
        self._parking = Parking(
            parks=model.parks,
            kept=self._checkpoint.text(PARKED),
            keep=self._keep_parked,
            offsets=lambda batch: Offsets.from_text(self._checkpoint.offset(batch)),
            command=("headrace", "repair", "reread", str(model.file)),
            below=None if self._source.cascades is None else self._source.cascades.below,
        )
        self._loads = FirstLoads(model, self._checkpoint.offset)
        self._fusing = Fusing.of(model, parked=bool(self._parking.tables))
        if any(target.format is not None for target in model.targets):
            _LOG.info("Messages are encoded %s.", self._fusing.text)
        delivery = Delivery(
            model.targets,
            self._board,
            connector=model.source_type,
            holds=lambda: self._confirm(),
            keep=self._checkpoint.keep_message_counts,
            structures=AnnouncedStructures(
                self._checkpoint.text(STRUCTURES), partial(self._checkpoint.keep, STRUCTURES)
            ),
        )
        self._writer = BatchWriter(
            model.name,
            self._source.batch_input(self._parking, self._loads, self._fusing),
            delivery,
            offsets=self._checkpoint.offsets_hash,
        )
        flow = flow_of(model)
        often = _KEEP_SECONDS if self._checkpoint.local_folder is not None else _KEEP_ELSEWHERE_SECONDS
        keeper = FigureKeeper(partial(self._checkpoint.keep, FIGURES), often, flow, model.hide)
        self.watch = Watch(model.name, self.progress, model.hide, flow, [keeper])
        """What is served of this run."""
        with ExitStack() as held:
            self._confirm = held.enter_context(
                held_checkpoint(self._checkpoint, model.name, model.lease_seconds, breaks=breaks_lease)
            )
            self._troubles.open()
            held.callback(self._troubles.close)
            self._parking.say_parked()
            held.callback(self._close_watch)
            if model.observe.prometheus is not None:
                self.watch.serve_metrics(model.observe.prometheus)
            if model.observe.opentelemetry is not None:
                self.watch.send_metrics(model.observe.opentelemetry)
            if model.observe.openlineage is not None:
                job = (model.observe.openlineage, model.name)
                events = LineageEvents(
                    *job,
                    lambda: self._source.lineage(self._board.table_ids),
                    lineage_client(),
                    once=once,
                    hide=model.hide,
                )
                self.watch.follow(events)
            self._source.confirm()
            if once:
                self.finish_at_head()
            self._query = self._attempts.run(self._start)
            self._started = True
            self._checkpoint.keep(LAST_RUN, last_run_text(model))
            self._held = held.pop_all()
        self._writer.begin(str(self._query.id))
        self.watch.begin()

    def _keep_parked(self, text: str | None) -> None:
        # Another driver may have taken the checkpoint over.
        self._confirm()
        if text is None:
            self._checkpoint.remove(PARKED)
        else:
            self._checkpoint.keep(PARKED, text)

    @property
    def active(self) -> bool:
        """Whether it still runs."""
        return bool(self._query.isActive)

    @property
    def error(self) -> BaseException | None:
        """Why it ended by itself: a `HeadraceError` wherever one is the reason, else what Spark says, or None."""
        if self._writer.failure is not None:
            return recover(self._writer.failure) or self._writer.failure
        failure = self._query.exception()
        if failure is None:
            return None
        return recover(failure) or self._source.failure(full_text(failure)) or failure

    def progress(self) -> PipelineProgress:
        """What rests in all sinks since the start, and how far behind the source that is."""
        self._time_planning()
        if self._board.is_reading:
            self._board.read(rows_read(self._spark, str(self._query.runId), self._loads.rows))
        return self._source.progress(self._board, self._query, self._parking, self._troubles)

    def finish_at_head(self) -> None:
        """End when everything that the source offers now is in the sinks and nothing else is left to do; `wait` then
        stops the run there.

        Raises:
            HeadraceError: the source can't be asked, or has less than was read of it already.
        """
        self._ending = self._source.ending()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended: by `stop`, by an error, or at the head when that is the goal.

        Args:
            timeout: seconds; None for as long as it takes.

        Returns:
            Whether it has ended.

        Raises:
            HeadraceError: a sink, the source or a format failed; whatever else ended it is raised as Spark says it.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.active or self._starts_again():
            if self._at_end():
                self.stop()
                break
            left = _POLL_SECONDS if deadline is None else min(_POLL_SECONDS, deadline - time.monotonic())
            if left <= 0:
                return False
            # Short sleeps in Python, not one wait in the JVM: a signal must get through.
            time.sleep(left)
        self._release()
        error = self.error
        if error is not None:
            raise error
        return True

    def _at_end(self) -> bool:
        if self._ending is None:
            return False
        try:
            return self._ending.is_reached(self._checkpoint.committed())
        except HeadraceError:
            self.stop()
            raise

    def stop(self, timeout: float = STOP_SECONDS) -> bool:
        """Stop between two batches: the one that is being written is finished and committed, the next is not begun.

        Args:
            timeout: seconds to wait for that; then it is stopped anyway, and its batch comes again at the next start.

        Returns:
            Whether the last batch was finished.
        """
        with self._stopping:
            deadline = time.monotonic() + timeout
            finished = self._writer.close(timeout)
            if finished and self.active:
                left = max(0.0, deadline - time.monotonic())
                finished = wait_for(self._between_batches, left)
            # Spark's stop waits for the thread of the batch, which a sink may hold up.
            stopper = threading.Thread(target=self._query.stop, name="headrace-stop", daemon=True)
            stopper.start()
            stopper.join(_LAST_WORDS_SECONDS)
            self._release()
            return finished

    def _start(self) -> StreamingQuery:
        stream = self._source.read_stream(self._loads, self._fusing, once=self._once)
        trigger = _DRAIN_TRIGGER if self._once else self._model.trigger
        writer = stream.writeStream.foreachBatch(self._writer).queryName(self._model.name)
        return writer.option("checkpointLocation", self._model.checkpoint).trigger(processingTime=trigger).start()

    def _starts_again(self) -> bool:
        """Start the query again where it ended because its planner, a Python worker too, did not connect in time."""
        with self._stopping:
            if self._writer.failure is not None or self._writer.closed:
                return False
            if self._writer.last != self._last_at_start:
                self._attempts, self._last_at_start = Attempts("The start"), self._writer.last
            if not self._attempts.may_follow(self._query.exception()):
                return False
            try:
                self._query = self._attempts.run(self._start)
            except Exception as failure:
                self._release()
                raise recover(failure) or failure from None
            return True

    def _between_batches(self) -> bool:
        """Whether the last batch that the sinks took is committed too."""
        last = self._writer.last
        if last is None or self._writer.held or not self.active:
            return True
        committed = self._checkpoint.committed()
        return committed is not None and committed >= last

    def _time_planning(self) -> None:
        """Say of the batches that ended since the last time how long the source and Spark took around them."""
        reports: Any = self._query._jsq.recentProgress()
        newest = self._reported
        for index in range(len(reports) - 1, -1, -1):
            report = reports[index]
            at = str(report.timestamp())
            # An idle query reports again and again. ISO times sort as text.
            if at <= self._reported:
                break
            newest = max(newest, at)
            spent = report.durationMs()
            if (written := spent.get("addBatch")) is not None:
                self._board.planned(int(report.batchId()), max(0, spent.get("triggerExecution") - written) / 1000)
        self._reported = newest

    def _close_watch(self) -> None:
        error = self.error if self._started else None
        if error is not None:
            self._troubles.add(error, fatal=True)
        self.watch.close(self._troubles.recent())

    def _release(self) -> None:
        if not self.active:
            self._held.close()
