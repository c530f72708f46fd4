"""What a stream gives a pipeline, and which stages a batch of it goes through."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.observe.messages import MessageCounts
from headrace.observe.progress import ProgressBoard
from headrace.pipeline.announced_structures import AnnouncedStructures
from headrace.pipeline.cascades import Cascades
from headrace.pipeline.dead_letter import DeadLetters
from headrace.pipeline.first_loads import FirstLoads
from headrace.pipeline.parking import Parking
from headrace.pipeline.shared_places import may_meet, may_meet_dead_letters
from headrace.pipeline.stages import (
    CheckTopics,
    ChooseMessages,
    ChooseRows,
    ConfirmCheckpoint,
    ConfirmCheckpointAgain,
    CountValues,
    DecodeMessages,
    FollowTables,
    KeepCounts,
    ReadMessages,
    ReadRows,
    RefuseSharedPlaces,
    ShapeRows,
    Stage,
    WriteDeadLetters,
    WriteMessages,
    WriteRows,
)
from headrace.pipeline.target import Target
from headrace.pipeline.topic_files import TopicFiles
from headrace.pipeline.unmatched import FeedPatterns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Delivery:
    """Where batches go, whatever they consist of.

    Args:
        targets: the sinks in order.
        board: where batches that are in all sinks are counted.
        connector: the kind of source.
        holds: called before a batch is read, and before the first sink gets it; raises where another driver took the
            checkpoint over.
        keep: called with a batch's number and counts when some messages gave no change, after all sinks have the batch.
        structures: which structures sinks have, for formats that say each once; by default none.
        share: gives what of a batch's rows a sink gets; None for nothing. By default each gets all.
    """

    targets: Sequence[Target]
    board: ProgressBoard
    connector: str = ""
    holds: Callable[[], None] = lambda: None
    keep: Callable[[int, MessageCounts], None] = lambda batch, counts: None
    structures: AnnouncedStructures = field(default_factory=AnnouncedStructures)
    share: Callable[[Target, DataFrame], DataFrame | None] = lambda target, rows: rows


@dataclass(frozen=True, kw_only=True)
class BatchInput(ABC):
    """What the stream gives.

    Args:
        parking: which tables go on without their changes; by default none, and each error stops the run.
    """

    parking: Parking = field(default_factory=Parking)

    @property
    def first_stage(self) -> str:
        """What reading a batch is called in figures."""
        return "read"

    @abstractmethod
    def stages(self, delivery: Delivery) -> list[Stage]:
        """What is done with a batch, in order."""

    @property
    def files(self) -> FirstLoads | TopicFiles | None:
        """Lets workers or tasks write files that a sink may find unusable; None for no files."""
        return None

    def is_live(self, number: int) -> bool:
        """Whether rows of a batch, by its number, are read from tables that change meanwhile, so that a second reading
        may give others."""
        return False


@dataclass(frozen=True, kw_only=True)
class DatabaseInput(BatchInput):
    """What comes from databases.

    Args:
        live: see `is_live`.
        cascades: adds the rows that foreign keys delete or change without a change in the log.
        several: whether there are several databases, so that the names of tables begin with theirs.
    """

    live: Callable[[int], bool] = lambda number: False
    cascades: Cascades | None = None
    several: bool = False

    def is_live(self, number: int) -> bool:
        return self.live(number)


@dataclass(frozen=True, kw_only=True)
class RowInput(DatabaseInput):
    """Change rows of databases.

    Args:
        loads: lets workers write rows of first snapshots into files of a sink's tables; by default none.
    """

    loads: FirstLoads | None = None

    @property
    def files(self) -> FirstLoads | None:
        return self.loads

    def stages(self, delivery: Delivery) -> list[Stage]:
        return [
            ConfirmCheckpoint(delivery.holds),
            ReadRows(self.parking, self.loads, self.several),
            FollowTables(delivery.board, self.parking, self.cascades),
            ChooseRows(delivery.targets, filters=False),
            *_write_rows(delivery, self.parking),
            CountValues(self.several),
            KeepCounts(delivery.keep),
        ]


@dataclass(frozen=True, kw_only=True)
class EncodedInput(DatabaseInput):
    """Messages that the workers of a source encoded, for all targets (`sources.messages`).

    Args:
        sent: whether these workers send them, so that the stream gives only those that are left.
    """

    sent: bool = False

    @property
    def first_stage(self) -> str:
        return "read and send" if self.sent else "read and encode"

    def stages(self, delivery: Delivery) -> list[Stage]:
        return [
            # Where workers send messages, they send the first one while the batch is read.
            ConfirmCheckpoint(delivery.holds),
            ReadMessages(delivery.targets[0], self.sent, self.several),
            FollowTables(delivery.board, self.parking, self.cascades),
            ChooseMessages(),
            *([] if self.sent else [ConfirmCheckpointAgain(delivery.holds)]),
            WriteMessages(delivery.targets, self.parking, sent=self.sent),
            CountValues(self.several),
            KeepCounts(delivery.keep),
        ]


@dataclass(frozen=True, kw_only=True)
class MessageInput(BatchInput):
    """Messages of topics.

    Args:
        decode: from what the stream gives to change rows, `error` rows and rows without an operation for messages that
            are no event.
        on_error: what to do with `error` rows: `row`, `drop`, `dead_letter` or `fail`.
        dead_letters: where they go with `dead_letter`.
        topic_ids: gives the ids of topics; called once a batch, after it is read, and stops where a topic was made
            again.
        patterns: what transforms, routes and sinks name, where only the batches say which tables there are.
        topic_files: lets the tasks that decode messages write rows into files of a sink's tables; by default none. It
            has `decode`.
    """

    decode: Callable[[DataFrame], DataFrame]
    on_error: str = "row"
    dead_letters: DeadLetters | None = None
    topic_ids: Callable[[], Mapping[str, str]] = dict
    patterns: FeedPatterns | None = None
    topic_files: TopicFiles | None = None

    @property
    def files(self) -> TopicFiles | None:
        return self.topic_files

    def stages(self, delivery: Delivery) -> list[Stage]:
        writing = _write_rows(
            delivery, self.parking, patterns=self.patterns, dead_letters=self.dead_letters, by_topic=True
        )
        return [
            ConfirmCheckpoint(delivery.holds),
            DecodeMessages(self.decode, self.topic_files),
            FollowTables(delivery.board, self.parking),
            CheckTopics(self.topic_ids, self.topic_files),
            ChooseRows(delivery.targets, self.on_error, self.dead_letters),
            *writing,
            CountValues(),
            *([] if self.dead_letters is None else [WriteDeadLetters(self.dead_letters)]),
            KeepCounts(delivery.keep),
        ]


def _write_rows(
    delivery: Delivery,
    parking: Parking,
    *,
    patterns: FeedPatterns | None = None,
    dead_letters: DeadLetters | None = None,
    by_topic: bool = False,
) -> list[Stage]:
    targets = delivery.targets
    meeting = dead_letters if may_meet_dead_letters(targets, dead_letters) else None
    refusing = (
        [RefuseSharedPlaces(targets, delivery.connector, meeting)] if may_meet(targets) or meeting is not None else []
    )
    return [
        ShapeRows(targets, patterns),
        ConfirmCheckpointAgain(delivery.holds),
        *refusing,
        WriteRows(targets, parking, structures=delivery.structures, share=delivery.share, by_topic=by_topic),
    ]
