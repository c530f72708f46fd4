"""The stages of a batch: each does one thing in the driver, and finds in the batch what those before it left there."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from headrace.changes.row import Operation
from headrace.errors import FormatError
from headrace.faultpoints import reach
from headrace.formats.base import Structure
from headrace.formats.encoding import OutOfRange
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
from headrace.pipeline.shaping.large_values import fitting
from headrace.pipeline.shaping.shape import FoundSchemas, Shaping, explained, tables_in
from headrace.pipeline.shared_places import identities, refuse_shared_places
from headrace.pipeline.target import Target
from headrace.pipeline.topic_files import TopicFiles
from headrace.pipeline.unmatched import FeedPatterns
from headrace.sinks.base import BatchId
from headrace.spark.local_rows import kept_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger("headrace.pipeline")


class StageTimes:
    """Where the time of a batch goes.

    Args:
        report: called with the name of each stage when it begins.
    """

    def __init__(self, report: Callable[[str], None] = lambda name: None) -> None:
        self._report = report
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
        self._report(name)

    def end(self) -> None:
        now = time.monotonic()
        if self._name:
            self.ended[self._name] = self.ended.get(self._name, 0.0) + now - self._last
        self._name, self._last = "", now


@dataclass
class Batch:
    """A batch on its way to the sinks.

    Attributes:
        id: which batch.
        stream_rows: the rows as the stream gives them.
        is_live: whether they are read from tables that change meanwhile, so that a second reading may give others.
        times: where its time goes.
        cleanup: undoes what stages hold until the batch is through.
        changes: change rows, `error` rows and rows without an operation; or messages, where workers encoded.
        counts: rows by table and operation.
        summary: what the workers that encoded say of their messages.
        topic_ids: the ids of the topics that the batch was read from.
        message_counts: messages that gave no change.
        wanted: the rows that go to sinks; None where there are none.
        shaped: the wanted rows as sinks get them, by `Shaping.key`; None where a sink gets none.
        out_of_range: values that formats did not hold, by sink.
        written: the sinks that were given rows.
        shortened: how many changes were sent without their large values.
    """

    id: BatchId
    stream_rows: DataFrame
    is_live: bool
    times: StageTimes
    cleanup: ExitStack
    changes: DataFrame = field(init=False)
    counts: Sequence[BatchCount] = ()
    summary: BatchSummary = field(default_factory=lambda: BatchSummary(()))
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    message_counts: MessageCounts = field(default_factory=MessageCounts)
    wanted: DataFrame | None = None
    shaped: Mapping[str, DataFrame | None] = field(default_factory=dict)
    out_of_range: list[tuple[Target, OutOfRange]] = field(default_factory=list)
    written: list[Target] = field(default_factory=list)
    shortened: int = 0

    def keep(self, rows: DataFrame, *, can_be_read_again: bool) -> DataFrame:
        """The rows, computed once.

        Args:
            rows: them.
            can_be_read_again: whether a second reading gives the same, so that Spark may read what it loses.
        """
        from pyspark import StorageLevel

        if not can_be_read_again:
            # Spark no longer knows where they came from, so rows that are lost are not read again in silence.
            return self.cleanup.enter_context(kept_rows(rows))
        kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
        self.cleanup.callback(kept.unpersist)
        return kept


class Stage(ABC):
    """What is done with every batch. One object for all batches of a run; it raises what stops the batch."""

    needs_rows: ClassVar[bool] = False
    """Whether a batch without wanted rows skips it."""

    @abstractmethod
    def run(self, batch: Batch) -> None:
        """Do this stage's part of a batch."""


@dataclass(frozen=True)
class ConfirmCheckpoint(Stage):
    """Make sure that no other driver took the checkpoint over.

    Args:
        holds: raises where one did.
    """

    holds: Callable[[], None]

    def run(self, batch: Batch) -> None:
        self.holds()


class ConfirmCheckpointAgain(ConfirmCheckpoint):
    """The same before the first sink has a row, because reading may have taken long."""

    needs_rows = True


@dataclass(frozen=True)
class ReadRows(Stage):
    """Read change rows, and count them.

    Args:
        parking: knows the tables whose rows nobody asks for.
        loads: lets workers write rows of first snapshots into files of a sink's tables; None for not.
        several: whether names of tables begin with their database.
    """

    parking: Parking
    loads: FirstLoads | None
    several: bool

    def run(self, batch: Batch) -> None:
        changes = batch.changes = batch.keep(batch.stream_rows, can_be_read_again=not batch.is_live)
        reach("pipeline.batch.entered")
        # Files are for rows of live tables alone, which no later job reads again.
        files = (
            nullcontext()
            if self.loads is None or not batch.is_live
            else self.loads.of_batch(changes.sparkSession, batch.id, self.parking.out(batch.id.number))
        )
        with files:
            batch.counts = count_rows(changes, several=self.several)


@dataclass(frozen=True)
class DecodeMessages(Stage):
    """Read messages, make change rows of them, and count these.

    Args:
        decode: from messages to change rows, `error` rows and rows without an operation for messages that are no event.
        files: lets the tasks that decode write rows into files of a sink's tables; None for not. It has `decode`.
    """

    decode: Callable[[DataFrame], DataFrame]
    files: TopicFiles | None

    def run(self, batch: Batch) -> None:
        changes = self.decode(batch.stream_rows)
        writes_files = self.files is not None and self.files.writes_files
        batch.changes = batch.keep(changes, can_be_read_again=not writes_files)
        reach("pipeline.batch.entered")
        batch.counts = count_rows(batch.changes)


@dataclass(frozen=True)
class ReadMessages(Stage):
    """Read the messages that workers of the source encoded, and what they counted.

    Args:
        target: the first sink.
        sent: whether these workers send the messages, so that the stream gives only those that are left.
        several: whether names of tables begin with their database.
    """

    target: Target
    sent: bool
    several: bool

    def run(self, batch: Batch) -> None:
        batch.changes = batch.keep(batch.stream_rows, can_be_read_again=not batch.is_live)
        reach("pipeline.batch.entered")
        if self.sent:
            reach(f"sink.{self.target.type}.before_write")
        batch.summary = summary_of_messages(batch.changes, several=self.several)
        batch.counts = batch.summary.counts


@dataclass(frozen=True)
class FollowTables(Stage):
    """Leave out the changes of parked tables, and add those that foreign keys make without a change in the log.

    Args:
        board: counts the rows that were read.
        parking: which tables go on without their changes.
        cascades: adds the rows that foreign keys delete or change; None for none.
    """

    board: ProgressBoard
    parking: Parking
    cascades: Cascades | None = None

    def run(self, batch: Batch) -> None:
        number, changes, counts = batch.id.number, batch.changes, batch.counts
        self.board.read(sum(count.rows for count in counts if count.op in COUNTED), whole=True)
        self.parking.refuse_unreadable(changes, counts, number)
        if self.cascades is not None:
            # With the changes of parked tables, from which changes of others follow.
            changes, counts = self.cascades.followed(changes, counts, number, self.parking.out(number))
        batch.changes, batch.counts = self.parking.going_on(changes, counts, number)


@dataclass(frozen=True)
class CheckTopics(Stage):
    """Find out whether the topics are still those that the batch was read from.

    Args:
        topic_ids: gives the ids of topics; stops where a topic was made again.
        files: has what its tasks took for these ids; None where they write no files.
    """

    topic_ids: Callable[[], Mapping[str, str]]
    files: TopicFiles | None

    def run(self, batch: Batch) -> None:
        batch.topic_ids = self.topic_ids()
        if self.files is not None:
            self.files.check_topic_ids(batch.topic_ids)


@dataclass(frozen=True)
class ChooseRows(Stage):
    """Count the messages that gave no change, errors by reason, and choose the rows that go to sinks.

    Args:
        targets: the sinks.
        on_error: what to do with `error` rows: `row`, `drop`, `dead_letter` or `fail`.
        dead_letters: where they go with `dead_letter`.
        filters: whether there are rows that go to no sink, other than `error` rows.

    Raises:
        FormatError: there is a message that can't be read, and `on_error` is `fail`.
    """

    targets: Sequence[Target]
    on_error: str = "row"
    dead_letters: DeadLetters | None = None
    filters: bool = True

    def run(self, batch: Batch) -> None:
        batch.message_counts = self._without_change(batch)
        goes_on = {count.op for count in batch.counts if count.op}
        if self.on_error != "row":
            goes_on.discard(Operation.ERROR)
        if goes_on:
            wanted = "op is not null" if self.on_error == "row" else "op <> 'error'"
            batch.wanted = batch.changes.where(wanted) if self.filters else batch.changes

    def _without_change(self, batch: Batch) -> MessageCounts:
        no_event = sum(count.rows for count in batch.counts if not count.op)
        unreadable = sum(count.rows for count in batch.counts if count.op == Operation.ERROR)
        if not unreadable:
            return MessageCounts(no_event=no_event)
        errors = batch.changes.where("op = 'error'")
        if self.on_error == "fail":
            raise _first_error(errors)
        reasons = count_reasons(errors)
        left = unreadable - sum(reasons.values())
        if left:
            reasons[OTHER_REASONS] = reasons.get(OTHER_REASONS, 0) + left
        dead_letters = unreadable if self.dead_letters is not None else 0
        kept = self.on_error == "row" and any(target.sink.takes_errors for target in self.targets)
        return MessageCounts(reasons, no_event, dead_letters, 0 if kept else unreadable - dead_letters)


class ChooseMessages(Stage):
    """Take the messages from among the counts of the workers that encoded. These keep no reason of an error."""

    def run(self, batch: Batch) -> None:
        no_event = sum(count.rows for count in batch.counts if not count.op)
        unreadable = sum(count.rows for count in batch.counts if count.op == Operation.ERROR)
        reasons = {OTHER_REASONS: unreadable} if unreadable else {}
        batch.message_counts = MessageCounts(reasons, 0 if unreadable else no_event, left_out=unreadable)
        if any(count.op for count in batch.counts):
            batch.wanted = batch.changes.where("counted is null").drop("counted")
            reach("pipeline.batch.shaped")


@dataclass(frozen=True)
class ShapeRows(Stage):
    """Make of the rows what each sink gets, by its routes and transforms.

    All are computed before the first sink gets its own, so that one that can't be stops the batch before.

    Args:
        targets: the sinks.
        patterns: what transforms, routes and sinks name, where only the batches say which tables there are.
    """

    targets: Sequence[Target]
    patterns: FeedPatterns | None = None
    needs_rows = True

    def run(self, batch: Batch) -> None:
        assert batch.wanted is not None
        rows = batch.wanted
        shapings = {target.shaping.key: target.shaping for target in self.targets}
        if any(shapings):
            batch.times.begin("shape")
        looks = self.patterns is not None and self.patterns.due
        schemas = tables_in(rows) if any(shapings) or looks else None
        if self.patterns is not None and schemas is not None:
            self.patterns.hold([line.schema for lines in schemas.values() for line in lines if line.schema is not None])
        batch.shaped = {
            key: shape(rows, shaping, batch.cleanup, schemas) if key else rows for key, shaping in shapings.items()
        }
        reach("pipeline.batch.shaped")


@dataclass(frozen=True)
class RefuseSharedPlaces(Stage):
    """Stop before two sinks write to one place: of topics, and of tables that appeared later, the start knew nothing.

    Args:
        targets: the sinks.
        connector: the kind of source.
        dead_letters: where messages go that can't be read, if a sink could go there too.
    """

    targets: Sequence[Target]
    connector: str = ""
    dead_letters: DeadLetters | None = None
    needs_rows = True

    def run(self, batch: Batch) -> None:
        assert batch.wanted is not None
        refuse_shared_places(self.targets, tables_in(batch.wanted), self.connector, self._dead_letter_places(batch))

    def _dead_letter_places(self, batch: Batch) -> frozenset[str]:
        if self.dead_letters is None:
            return frozenset()
        if not self.dead_letters.go_by_topic or not batch.message_counts.unreadable:
            return self.dead_letters.places()
        topics = batch.changes.where("op = 'error'").selectExpr("message.topic as topic").distinct().collect()
        return self.dead_letters.places(row["topic"] for row in topics)


class WriteRows(Stage):
    """Give each sink its rows, or the messages that its format makes of them.

    Args:
        targets: the sinks in order.
        parking: names the tables of a sink's errors as the source does.
        structures: which structures sinks have, for formats that say each once.
        share: gives what of a batch's rows a sink gets; None for nothing.
        by_topic: whether the rows come from topics, in whose messages sinks find the order of changes.
    """

    needs_rows = True

    def __init__(
        self,
        targets: Sequence[Target],
        parking: Parking,
        *,
        structures: AnnouncedStructures | None = None,
        share: Callable[[Target, DataFrame], DataFrame | None] = lambda target, rows: rows,
        by_topic: bool = False,
    ) -> None:
        self._targets = targets
        self._parking = parking
        self._structures = structures or AnnouncedStructures()
        self._share = share
        self._by_topic = by_topic
        self._sinks = identities(targets)
        self._uses = Counter(target.format_key for target in targets if target.format is not None)

    def run(self, batch: Batch) -> None:
        messages_by_format: dict[str, DataFrame] = {}
        announced: list[tuple[Target, list[Structure]]] = []
        counted = []
        for number, (target, sink) in enumerate(zip(self._targets, self._sinks, strict=True), 1):
            shaped = batch.shaped[target.shaping.key]
            rows = None if shaped is None else self._share(target, shaped)
            if rows is None:
                continue
            batch.times.begin(target.label)
            written = rows
            if target.format is not None:
                format, key = target.format, target.format_key
                if format.announces_structures:
                    announced.append((target, structures_in(rows)))
                    known = self._structures.before(target, batch.id.number)
                    format, key = format.having_announced(known), f"{key} {sorted(known)}"
                    rows = announced_once(rows)
                if key not in messages_by_format:
                    encoded = format.encode_batch(rows)
                    counted.append((target, encoded))
                    messages_by_format[key] = self._kept(encoded.messages, target, batch)
                written, lacking = fitting(rows, messages_by_format[key], format, target.sink)
                batch.shortened += len(lacking)
            if self._by_topic:
                written = target.sink.sequenced(written, batch.topic_ids)
            with self._parking.writing(target):
                target.sink.write(written, replace(batch.id, sink=sink))
            batch.written.append(target)
            reach(f"pipeline.sink.{number}.written")
        self._structures.add(batch.id.number, announced)
        # Only now are the messages of all tasks made.
        batch.out_of_range += [(target, encoded.out_of_range()) for target, encoded in counted]

    def _kept(self, messages: DataFrame, target: Target, batch: Batch) -> DataFrame:
        """The messages, computed once where several sinks take them, or one looks at their sizes first."""
        if target.sink.largest_value is None and self._uses[target.format_key] < 2:
            return messages
        return batch.keep(messages, can_be_read_again=True)


class WriteMessages(Stage):
    """Give each sink the messages that workers of the source encoded, as far as these did not send them.

    Args:
        targets: the sinks in order, which all take the same messages.
        parking: names the tables of a sink's errors as the source does.
        sent: whether these workers send messages.
    """

    needs_rows = True

    def __init__(self, targets: Sequence[Target], parking: Parking, *, sent: bool) -> None:
        self._targets = targets
        self._parking = parking
        self._sent = sent
        self._sinks = identities(targets)
        self._told = ""

    def run(self, batch: Batch) -> None:
        assert batch.wanted is not None
        messages = batch.wanted
        batch.out_of_range.append((self._targets[0], batch.summary.out_of_range))
        for number, (target, sink) in enumerate(zip(self._targets, self._sinks, strict=True), 1):
            batch.times.begin(target.label)
            if not self._were_sent(batch):
                in_order = target.sink.orders_batch and batch.summary.suits_one_task
                with self._parking.writing(target):
                    target.sink.write(messages.coalesce(1) if in_order else messages, replace(batch.id, sink=sink))
                batch.written.append(target)
            reach(f"pipeline.sink.{number}.written")

    def _were_sent(self, batch: Batch) -> bool:
        """Whether the workers have sent all messages; says why not, where that is news."""
        if not self._sent:
            return False
        left = batch.summary.left
        if left and left != self._told:
            _LOG.info("Spark sends messages to %s, because %s.", self._targets[0].label, left)
        self._told = left
        if not left:
            reach(f"sink.{self._targets[0].type}.after_write")
        return not left


@dataclass(frozen=True)
class CountValues(Stage):
    """Count the values that formats did not hold, or that sinks wrote as NULL.

    Args:
        several: whether names of tables begin with their database.
    """

    several: bool = False
    needs_rows = True

    def run(self, batch: Batch) -> None:
        batch.message_counts = replace(
            batch.message_counts,
            nulled=count_nulled(batch.written, batch.id, several=self.several),
            out_of_range=count_out_of_range(batch.out_of_range, batch.id, several=self.several),
            shortened=batch.shortened,
        )


@dataclass(frozen=True)
class WriteDeadLetters(Stage):
    """Give the messages that can't be read to the sink of dead letters.

    Args:
        dead_letters: that sink.
    """

    dead_letters: DeadLetters

    def run(self, batch: Batch) -> None:
        if batch.message_counts.unreadable:
            batch.times.begin("dead letters")
            self.dead_letters.write(batch.changes.where("op = 'error'"), batch.id)
            reach("pipeline.dead_letters.written")


@dataclass(frozen=True)
class KeepCounts(Stage):
    """Keep the counts of messages that gave no change.

    Args:
        keep: called with a batch's number and counts, after all sinks have the batch.
    """

    keep: Callable[[int, MessageCounts], None]

    def run(self, batch: Batch) -> None:
        if batch.message_counts:
            self.keep(batch.id.number, batch.message_counts)


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
