"""One batch: computed once, counted, given to each sink in turn; and the gate that stops a run between two."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from headrace.changes.operation import Operation
from headrace.errors import FormatError, HeadraceError
from headrace.faultpoints import reach
from headrace.formats.base import Structure
from headrace.formats.encoding import EncodedBatch
from headrace.observe.messages import OTHER_REASONS, MessageCounts
from headrace.observe.progress import COUNTED, BatchCount, ProgressBoard
from headrace.pipeline.announced_structures import AnnouncedStructures, announced_once, structures_in
from headrace.pipeline.batch_summary import (
    BatchSummary,
    count_nulled,
    count_out_of_range,
    count_reasons,
    count_rows,
    summary_of_messages,
)
from headrace.pipeline.cascades import Cascades
from headrace.pipeline.dead_letter import DeadLetters
from headrace.pipeline.first_loads import FirstLoads
from headrace.pipeline.parking import Parking
from headrace.pipeline.recover import Attempts, one_line
from headrace.pipeline.shaping.large_values import fitting
from headrace.pipeline.shaping.shape import FoundSchemas, Shaping, explained, tables_in
from headrace.pipeline.shared_places import identities, may_meet, may_meet_dead_letters, refuse_shared_places
from headrace.pipeline.target import Target
from headrace.pipeline.topic_files import TopicFiles
from headrace.pipeline.unmatched import FeedPatterns
from headrace.sinks.base import BatchId, FilesUnusable
from headrace.spark.local_rows import kept_rows

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


class Stages:
    """Where the time of a batch goes.

    Args:
        tell: called with the name of each stage when it begins.
    """

    def __init__(self, tell: Callable[[str], None] = lambda name: None) -> None:
        self._tell = tell
        self._begun = self._last = time.monotonic()
        self._name = ""
        self.ended: dict[str, float] = {}
        """Seconds by stage, in order."""

    @property
    def seconds(self) -> float:
        """How long the batch has taken until now."""
        return time.monotonic() - self._begun

    def begin(self, name: str) -> None:
        """The stage before ends now, and this one begins."""
        self.end()
        self._name = name
        self._tell(name)

    def end(self) -> None:
        """The last stage ends."""
        now = time.monotonic()
        if self._name:
            self.ended[self._name] = self.ended.get(self._name, 0.0) + now - self._last
        self._name, self._last = "", now


class BatchWriter:
    """What Spark calls with every batch, in the driver, one at a time. A replay gets the same number and the same rows.

    Args:
        pipeline: the pipeline's name.
        targets: the sinks in order.
        board: where batches that are in all sinks are counted.
        decode: from what the stream gives to change rows, `error` rows and rows without an operation for messages that
            are no event; None when the stream gives change rows.
        on_error: what to do with `error` rows: `row`, `drop`, `dead_letter` or `fail`.
        dead_letters: where they go with `dead_letter`.
        epochs: gives the ids of topics; called once a batch, after it is read, and stops where a topic was made again.
        keep: called with a batch's number and counts when some messages gave no change, after all sinks have the batch.
        offsets: a hash of a batch's offsets, by its number (`BatchId.offsets`).
        connector: the kind of source.
        patterns: what transforms, routes and sinks name, where only the batches say which tables there are.
        live: whether rows of a batch, by its number, are read from tables that change meanwhile, so that a second
            reading may give others.
        fused: whether the stream gives the messages of all targets, counted (`sources.messages`).
        sent: whether the workers that make these messages send them, so that the stream gives only those that are left.
        share: gives what of a batch's rows a sink gets; null for nothing. By default each gets all.
        holds: called before a batch is given to the sinks; raises where another driver took the checkpoint over.
        several: whether the stream has several databases, so that the names of tables begin with theirs.
        cascades: adds the rows that foreign keys delete or change without a change in the log.
        parking: which tables go on without their changes; by default none, and each error stops the run.
        structures: which structures sinks have, for formats that say each once; by default none.
        loads: lets workers write rows of first snapshots into files of a sink's tables; by default none.
        topic_files: lets the tasks that decode messages write rows into such files; by default none. It has `decode`.
    """

    def __init__(
        self,
        pipeline: str,
        targets: Sequence[Target],
        board: ProgressBoard,
        decode: Callable[[DataFrame], DataFrame] | None = None,
        *,
        on_error: str = "row",
        dead_letters: DeadLetters | None = None,
        epochs: Callable[[], Mapping[str, str]] = dict,
        keep: Callable[[int, MessageCounts], None] = lambda batch, counts: None,
        offsets: Callable[[int], str] = lambda batch: "",
        connector: str = "",
        patterns: FeedPatterns | None = None,
        live: Callable[[int], bool] = lambda batch: False,
        fused: bool = False,
        sent: bool = False,
        share: Callable[[Target, DataFrame], DataFrame | None] = lambda target, rows: rows,
        holds: Callable[[], None] = lambda: None,
        several: bool = False,
        cascades: Cascades | None = None,
        parking: Parking | None = None,
        structures: AnnouncedStructures | None = None,
        loads: FirstLoads | None = None,
        topic_files: TopicFiles | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._targets = targets
        self._board = board
        self._decode = decode
        self._on_error = on_error
        self._dead_letters = dead_letters
        self._epochs = epochs
        self._keep = keep
        self._offsets = offsets
        self._connector = connector
        self._patterns = patterns
        self._live = live
        self._fused = fused
        self._sent = sent
        self._share = share
        self._holds = holds
        self._several = several
        self._cascades = cascades
        self._parking = parking or Parking()
        self._structures = structures or AnnouncedStructures()
        self._loads = loads
        self._topic_files = topic_files
        self._told = ""
        self._sinks = identities(targets)
        self._may_meet = may_meet(targets)
        self._may_meet_dead_letters = may_meet_dead_letters(targets, dead_letters)
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
    def closed(self) -> bool:
        """Whether no further batch is let in."""
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

    def _write_of_one_reading(self, rows: DataFrame, batch: BatchId) -> None:
        """Write a batch, and once more from its beginning when rows are lost that were kept of a live table, or when a
        table is parked.

        What was found out about the first reading does not hold for the rows of a second one.
        """
        live, losses = self._live(batch.number), 0
        self._parking.begin(batch.number)
        while True:
            try:
                self._write(rows, batch, live)
                return
            except Exception as error:
                files = self._loads or self._topic_files
                if files is not None and isinstance(error, FilesUnusable):
                    _LOG.warning("%s They are read once more.", error.message)
                    files.leave_out(error.table)
                    continue
                if self._parking.take(error, batch.number):
                    continue
                losses += 1
                if losses == _READINGS or not _lost_rows(error):
                    raise

    def _write(self, rows: DataFrame, batch: BatchId, live: bool) -> None:
        from pyspark import StorageLevel

        stages = Stages(partial(self._board.enter, batch.number))
        stages.begin("read and send" if self._sent else "read and encode" if self._fused else "read")
        # Before anything is computed: where workers send messages themselves, that is when the first one is sent.
        self._holds()
        changes = rows if self._decode is None else self._decode(rows)
        with ExitStack() as cleanup:
            if live or (self._topic_files is not None and self._topic_files.writes_files):
                # Rows that are lost are not read again in silence: Spark no longer knows where they came from.
                changes = cleanup.enter_context(kept_rows(changes))
            else:
                changes = changes.persist(StorageLevel.MEMORY_AND_DISK)
                cleanup.callback(changes.unpersist)
            reach("pipeline.batch.entered")
            if self._sent:
                reach(f"sink.{self._targets[0].type}.before_write")
            if self._fused:
                summary = summary_of_messages(changes, several=self._several)
            else:
                # Files are for rows of live tables alone, which no later job reads again.
                files = (
                    nullcontext()
                    if self._loads is None or not live
                    else self._loads.of_batch(changes.sparkSession, batch, self._parking.out(batch.number))
                )
                with files:
                    summary = BatchSummary(count_rows(changes, several=self._several))
            counts = summary.counts
            self._board.read(sum(count.rows for count in counts if count.op in COUNTED), whole=True)
            self._parking.refuse_unreadable(changes, counts, batch.number)
            if self._cascades is not None:
                # With the changes of parked tables, from which changes of others follow.
                out = self._parking.out(batch.number)
                changes, counts = self._cascades.followed(changes, counts, batch.number, out)
            changes, counts = self._parking.going_on(changes, counts, batch.number)
            epochs = self._epochs()
            if self._topic_files is not None:
                self._topic_files.check_topic_ids(epochs)
            without = self._without_change(changes, counts)
            rows = changes if self._decode is None else changes.where(self._wanted)
            if self._holds_wanted(counts):
                encoded: dict[str, DataFrame] = {}
                if self._fused:
                    rows = changes.where("counted is null").drop("counted")
                    encoded[self._targets[0].format_key] = rows
                batches: list[tuple[Target, EncodedBatch]] = []
                announced: list[tuple[Target, list[Structure]]] = []
                written: list[Target] = []
                shortened = 0
                if any(target.shaping.key for target in self._targets):
                    stages.begin("shape")
                shaped = self._shaped(rows, cleanup)
                reach("pipeline.batch.shaped")
                if not self._sent:
                    # Reading may have taken long.
                    self._holds()
                if self._may_meet or self._may_meet_dead_letters:
                    # Before the first sink has a row: of topics, and of tables that appeared later, nobody knew.
                    dead_letters = self._dead_letter_targets(changes, without)
                    refuse_shared_places(self._targets, tables_in(rows), self._connector, dead_letters)
                for number, target in enumerate(self._targets, 1):
                    frame = shaped[target.shaping.key]
                    frame = None if frame is None else self._share(target, frame)
                    if frame is None:
                        continue
                    stages.begin(target.label)
                    given = frame
                    if target.format is not None:
                        format, key = target.format, target.format_key
                        if format.announces_structures and not self._fused:
                            announced.append((target, structures_in(frame)))
                            known = self._structures.before(target, batch.number)
                            format, key = format.having_announced(known), f"{key} {sorted(known)}"
                            frame = announced_once(frame)
                        if key not in encoded:
                            of_batch = format.encode_batch(frame)
                            batches.append((target, of_batch))
                            messages = of_batch.messages
                            # A sink that weighs its messages looks at them twice.
                            if target.sink.largest_value is not None or self._uses[target.format_key] > 1:
                                messages = messages.persist(StorageLevel.MEMORY_AND_DISK)
                                cleanup.callback(messages.unpersist)
                            encoded[key] = messages
                        given = encoded[key]
                        given, lacking = fitting(frame, given, format, target.sink)
                        shortened += len(lacking)
                    if self._fused and target.sink.orders_batch and summary.suits_one_task:
                        given = given.coalesce(1)
                    if self._decode is not None:
                        given = target.sink.sequenced(given, epochs)
                    if not self._was_delivered(summary):
                        with self._parking.writing(target):
                            target.sink.write(given, replace(batch, sink=self._sinks[number - 1]))
                        written.append(target)
                    reach(f"pipeline.sink.{number}.written")
                self._structures.add(batch.number, announced)
                nulled = count_nulled(written, batch, several=self._several)
                parts = [
                    (self._targets[0], summary.out_of_range),
                    *((target, encoded.out_of_range()) for target, encoded in batches),
                ]
                beyond = count_out_of_range(parts, batch, several=self._several)
                without = replace(without, shortened=shortened, out_of_range=beyond, nulled=nulled)
            if self._dead_letters is not None and without.unreadable:
                stages.begin("dead letters")
                self._dead_letters.write(changes.where("op = 'error'"), batch)
                reach("pipeline.dead_letters.written")
            if without:
                self._keep(batch.number, without)
            reach("pipeline.batch.done")
            stages.end()
        self._board.add(counts, without, number=batch.number, seconds=stages.seconds, stages=stages.ended)

    def _was_delivered(self, summary: BatchSummary) -> bool:
        """Whether the workers that made the messages have sent all; says why not, where that is news."""
        if not self._sent:
            return False
        if summary.left and summary.left != self._told:
            _LOG.info("Spark sends messages to %s, because %s.", self._targets[0].label, summary.left)
        self._told = summary.left
        if not summary.left:
            reach(f"sink.{self._targets[0].type}.after_write")
        return not summary.left

    def _dead_letter_targets(self, changes: DataFrame, without: MessageCounts) -> frozenset[str]:
        """Where dead letters go, as far as sinks could go there too."""
        dead_letters = self._dead_letters
        if dead_letters is None or not self._may_meet_dead_letters:
            return frozenset()
        if not dead_letters.go_by_topic or not without.unreadable:
            return dead_letters.places()
        topics = changes.where("op = 'error'").selectExpr("message.topic as topic").distinct().collect()
        return dead_letters.places(row["topic"] for row in topics)

    def _shaped(self, rows: DataFrame, cleanup: ExitStack) -> dict[str, DataFrame | None]:
        """The rows as sinks get them, by `Shaping.key`; null where a sink gets none.

        All are computed before the first sink gets its own, so that one that can't be stops the batch before.
        """
        ways = {target.shaping.key: target.shaping for target in self._targets}
        looks = self._patterns is not None and self._patterns.due
        schemas = tables_in(rows) if any(ways) or looks else None
        if self._patterns is not None and schemas is not None:
            self._patterns.hold(
                [line.schema for lines in schemas.values() for line in lines if line.schema is not None]
            )
        return {key: shape(rows, way, cleanup, schemas) if key else rows for key, way in ways.items()}

    @property
    def _wanted(self) -> str:
        """Spark SQL: whether sinks get a row."""
        return "op is not null" if self._on_error == "row" else "op <> 'error'"

    def _holds_wanted(self, counts: Sequence[BatchCount]) -> bool:
        return any(count.op and (count.op != Operation.ERROR or self._on_error == "row") for count in counts)

    def _without_change(self, changes: DataFrame, counts: Sequence[BatchCount]) -> MessageCounts:
        """Count the messages that gave no change, errors by reason.

        Raises:
            FormatError: there is one that can't be read, and `on_error` is `fail`.
        """
        no_event = sum(count.rows for count in counts if not count.op)
        unreadable = sum(count.rows for count in counts if count.op == Operation.ERROR)
        if not unreadable:
            return MessageCounts(no_event=no_event)
        if self._fused:
            # Workers count rows by operation, and keep no reason.
            return MessageCounts({OTHER_REASONS: unreadable}, left_out=unreadable)
        errors = changes.where("op = 'error'")
        if self._on_error == "fail":
            raise _first_error(errors)
        reasons = count_reasons(errors)
        left = unreadable - sum(reasons.values())
        if left:
            reasons[OTHER_REASONS] = reasons.get(OTHER_REASONS, 0) + left
        dead_letters = unreadable if self._dead_letters is not None else 0
        kept = self._on_error == "row" and any(target.sink.takes_errors for target in self._targets)
        return MessageCounts(reasons, no_event, dead_letters, 0 if kept else unreadable - dead_letters)


def shape(
    rows: DataFrame, shaping: Shaping, cleanup: ExitStack, schemas: FoundSchemas | None = None
) -> DataFrame | None:
    """The rows as a sink gets them, computed once; None where it gets none.

    Raises:
        HeadraceError: a transform or a route can't be applied.
    """
    from pyspark import StorageLevel
    from pyspark.errors import PySparkException

    frame = shaping.rows(rows, schemas).persist(StorageLevel.MEMORY_AND_DISK)
    cleanup.callback(frame.unpersist)
    try:
        # Here and not in the sink, which would take the failure of an expression for its own.
        return frame if frame.count() else None
    except PySparkException as error:
        raise explained(error) from error


def _lost_rows(error: BaseException | None) -> bool:
    """Whether kept rows were gone, as with the executor that kept them."""
    while error is not None:
        if _LOST in f"{error}{getattr(error, '_stackTrace', '')}":
            return True
        error = error.__cause__ or error.__context__
    return False


def _first_error(errors: DataFrame) -> FormatError:
    """The error that stops a run: why, and which message."""
    from pyspark.sql import functions as sf

    first = errors.select(
        sf.min(sf.struct("position", "message.topic", "message.partition", "message.offset", "error"))
    )
    reason = first.collect()[0][0]
    return FormatError(
        f"A message can't be read (topic {reason['topic']}, partition {reason['partition']}, "
        f"offset {reason['offset']}): {reason['error']}",
        remedy="Nothing of its batch is in a sink. Set on_error of the source's format to dead_letter to keep such "
        "messages, or to drop to go on without them.",
    )


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
