"""The contract of a sink: a batch written twice is a batch written once, or is said to repeat."""

from __future__ import annotations

import datetime as dt
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from headrace.changes.dataset import Dataset
from headrace.changes.direct_producer import DirectProducer
from headrace.changes.table import TableId, TableSchema
from headrace.changes.table_files import DecodedRowWriter, TableFiles
from headrace.errors import SinkError
from headrace.permissions import Permissions
from headrace.settings import Component

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.apply import TableProfile


@dataclass(frozen=True)
class BatchId:
    """Which batch of which run of which pipeline; the same for a replay of the same batch.

    Args:
        pipeline: the pipeline's name.
        checkpoint: the id that Spark keeps in the checkpoint; a new checkpoint has a new one and starts at number 0
            again.
        number: Spark's batch number.
        offsets: a hash of where the batch ends in its sources, in 16 hex digits, so that another batch under the same
            number is told apart; empty where it is not known.
        sink: tells sinks of one pipeline apart that share a place; empty for one that shares none.
    """

    pipeline: str
    checkpoint: str
    number: int
    offsets: str = ""
    sink: str = ""

    @property
    def owner(self) -> str:
        """Who may write to a target: this pipeline from this checkpoint."""
        return f"{self.pipeline}/{self.checkpoint}"


def offsets_hash(text: str) -> str:
    """What tells a batch from another one under the same number: a hash of where it ends, in 16 hex digits.

    Args:
        text: the batch's file in Spark's offset log. The time and the settings in its first two lines do not count.
    """
    return hashlib.sha256("\n".join(text.rstrip("\n").split("\n")[2:]).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class LastBatch:
    """What a target says of the last batch of an owner that it has.

    Args:
        number: the batch's number.
        offsets: as in `BatchId`; empty in what an earlier release wrote.
    """

    number: int
    offsets: str = ""

    def covers(self, batch: BatchId, place: str) -> bool:
        """Whether the target has a batch of that owner.

        Without offsets, here or there, the number decides.

        Raises:
            SinkError: under that number, or under a later one, it has another batch: the checkpoint was set back.
        """
        if self.number < batch.number:
            return False
        if not self.offsets or not batch.offsets or (self.number, self.offsets) == (batch.number, batch.offsets):
            return True
        raise SinkError(
            f"Batch {batch.number} of pipeline '{batch.pipeline}' differs from the one in {place}: its last batch is "
            f"{self.number}, with other offsets. The checkpoint was set back or changed.",
            remedy="Restore the newest copy of the checkpoint, or start with a new checkpoint and the sink's option "
            "'takeover', so that the run reads the tables again.",
        )


@dataclass(frozen=True)
class TargetPreview:
    """What a sink would do with a table's target before the first row.

    Args:
        place: the target as messages name it.
        exists: whether it is there; None where nobody looked.
        changes: what would be done to its structure, each as a short sentence; empty where nothing.
        way: how small batches would go into it, as the end of a sentence; empty where there is one way only.
    """

    place: str
    exists: bool | None = None
    changes: tuple[str, ...] = ()
    way: str = ""


@dataclass(frozen=True)
class OrphanFile:
    """A file of a sink that no version of a table names.

    Args:
        path: in its storage.
        size: in bytes.
        modified: when it was written.
    """

    path: str
    size: int
    modified: dt.datetime


class FilesUnusable(SinkError):
    """Files that workers wrote of a table's rows can't become its rows: something happened to its target after it was
    prepared. Nothing of the batch is in the target, and its rows must be read again and come as change rows.
    """

    @classmethod
    def because(cls, table: TableId, reason: str) -> FilesUnusable:
        """With the reason as the end of a sentence."""
        error = cls(f"Files with rows of table {table} can't be used: {reason}.", remedy="Start again.")
        error.table = table
        return error


class Sink(Component, ABC):
    """Where changes rest. Message sinks take encoded messages (`MESSAGE_DDL`), table sinks take change rows.

    Attributes:
        guarantee: what a replayed batch does. `exactly-once`: nothing. `at-least-once`: the same messages again, byte
            for byte.
        takes: `messages` or `changes`.
        looks_with_spark: whether `preview` needs a session to look at a target.
        takes_errors: whether `error` rows rest in it like others, so that messages which can't be read are not lost.
        takes_lines: whether it takes a message as one line of text too, in a column `line` beside `position`.
        is_one_place: whether all tables go to one place.
        orders_batch: whether it brings all messages of a batch into one order, so that one task should give it those
            of a small batch.
        reads_back: whether `now` and `expected` say what its tables hold and should hold, for `headrace verify`.
            `snapshot`: what `now` gives does not change any more. `live`: each look at it reads the target again.
        jars: Maven coordinates of what Spark needs for it.
        direct_producers: what `direct_producer` gives, where it gives one.
        files: what `table_files` gives, where it gives one.
    """

    role: ClassVar[Literal["sink"]] = "sink"
    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]]
    takes: ClassVar[Literal["messages", "changes"]]
    looks_with_spark: ClassVar[bool] = False
    takes_errors: ClassVar[bool] = False
    takes_lines: ClassVar[bool] = False
    is_one_place: ClassVar[bool] = False
    orders_batch: ClassVar[bool] = False
    reads_back: ClassVar[Literal["no", "snapshot", "live"]] = "no"
    jars: ClassVar[tuple[str, ...]] = ()
    direct_producers: ClassVar[type[DirectProducer] | None] = None
    files: ClassVar[type[TableFiles] | None] = None

    def places(self, table: TableId | None = None, topic: str | None = None) -> frozenset[str]:
        """Where this sink writes, so that two sinks which write the same place have a text in common; makes no request.

        Args:
            table: one that it gets, by its name in the sink; without one, what all its places lie under (followed by
                `/` and more).
            topic: for a sink that takes messages, where those of the table go; empty where that is not known.

        Returns:
            Several texts where a place has several names; none where nothing is known.
        """
        return frozenset()

    def dataset(self, table: TableId, topic: str | None = None) -> Dataset | None:
        """What a table of this sink is called in lineage; makes no request.

        Args:
            table: by its name in the sink.
            topic: for a sink that takes messages, where those of the table go.

        Returns:
            Null where the options do not say it.
        """
        return None

    @property
    def session_settings(self) -> Mapping[str, str]:
        """Spark settings that a session needs from its start, where Headrace starts it (`headrace run`)."""
        return {}

    @property
    def keeps_tables(self) -> bool:
        """Whether it keeps tables equal to a source, so that changes which it never gets are missing there."""
        return False

    def nulled(self) -> Mapping[TableId, Mapping[str, int]]:
        """How many values the last `write` made NULL because columns have no place for them, by table and column."""
        return {}

    @property
    def takes_old_values(self) -> bool:
        """Whether the tables that it keeps take the one value of a column that was added for all rows from before
        (`headrace.changes.position.ADDED_COLUMNS`), so that the source need not read them again.
        """
        return False

    @property
    def keeps_versions(self) -> bool:
        """Whether it keeps what rows were before, which no read of a table brings back."""
        return False

    @property
    def largest_value(self) -> int | None:
        """The bytes of the largest value in a change whose message is too large: larger ones are left out of it, as
        columns that were not sent. Null where no message is made smaller, so that `too_large` is not asked.
        """
        return None

    def direct_producer(self) -> DirectProducer | str:
        """Where workers that make messages can send them by themselves, as `write` would; else why they can't, as the
        end of a sentence, empty where they never can. Makes no request.
        """
        return ""

    def table_files(
        self, spark: SparkSession, tables: Sequence[TableSchema], batch: BatchId
    ) -> tuple[TableFiles | None, Mapping[str, str]]:
        """Where workers may write the rows of tables that a batch reads for the first time. Rows that they write don't
        go to Spark. Runs in the driver before the batch is read, and prepares targets for it.

        Args:
            spark: a classic session.
            tables: their structures.
            batch: the batch. `write` gets it afterwards, with `schema` rows that name the files.

        Returns:
            None for nowhere; and why not, by table (`schema.name`), as the end of a sentence.
        """
        return None, {}

    def decoded_row_writer(self, topic_ids: Mapping[str, str]) -> Callable[[], DecodedRowWriter] | None:
        """What makes a writer for each attempt of a task that decodes messages of the next batch, so that its rows
        don't pass through Spark; None where all should. Runs in the driver before the batch is read.

        Args:
            topic_ids: the id of each topic, where the broker reports it.
        """
        return None

    def leave_out(self, table: TableId) -> None:
        """The files of such tasks could not be used (`FilesUnusable`); rows of the table come as change rows now."""
        return None

    def orphan_files(self, spark: SparkSession, id: TableId, before: dt.datetime) -> Sequence[OrphanFile]:
        """The files of this sink in the folder of a table that no version of it names, such as those of killed tasks.

        Args:
            spark: a classic session.
            id: the table, as the sink's rows name it.
            before: files that were written later are not looked at.

        Raises:
            SinkError: the files can't be listed.
        """
        return ()

    def delete_orphans(self, spark: SparkSession, id: TableId, files: Sequence[OrphanFile]) -> None:
        """Delete files that `orphan_files` has just found.

        Raises:
            SinkError: one can't be deleted.
        """
        raise TypeError(f"Sink '{self.name}' has no files that no table names.")

    def storage_login(self, spark: SparkSession) -> str:
        """The login by which workers reach the folders of `table_files`; empty for none. It may hold secrets.

        Runs in the driver once, before the source is read.
        """
        return ""

    def no_files(self, schema: TableSchema | None = None) -> str:
        """Why workers can't write rows of a table into files of its target, as the end of a sentence; empty where they
        can, as far as options and the table's structure say. Makes no request.

        Args:
            schema: the table's structure; None for what all tables have in common.
        """
        return f"sink '{self.name}' takes all rows from Spark"

    def too_large(self, messages: DataFrame) -> list[str]:
        """The positions of messages that the target would refuse for their size. Runs in the driver, which may start
        Spark jobs.
        """
        return []

    def sequenced(self, rows: DataFrame, epochs: Mapping[str, str] | None = None) -> DataFrame:
        """Change rows of messages, with positions that say their order where an option of the sink does. Lazy.

        Args:
            rows: change rows that a format read.
            epochs: the ids of their topics.
        """
        return rows

    def now(self, spark: SparkSession, schema: TableSchema) -> DataFrame | None:
        """The rows of a source table's target, in the source's columns as far as it has them; None where there is no
        target. Lazy. Headrace calls it only if `reads_back` allows that.

        Args:
            spark: a classic session.
            schema: the table, with the columns to read.
        """
        raise TypeError(f"Sink '{self.name}' can't be read back.")

    def expected(self, rows: DataFrame, table: TableProfile) -> DataFrame:
        """The rows that the target of a table should have, in the columns that the sink writes, those of the key among
        them, with values as `now` gives them. Lazy. Headrace calls it only if `reads_back` allows that.

        Args:
            rows: change rows of that table from its beginning, as `sequenced` gave them.
            table: what they are like.
        """
        raise TypeError(f"Sink '{self.name}' can't be read back.")

    def messages(self, spark: SparkSession, topics: str) -> DataFrame | None:
        """The messages that rest in a sink that takes messages, with `topic`, `key`, `value` and `headers` as they were
        written, in no order; a message that was written twice comes twice. Null where there is no place yet. Lazy.

        Args:
            spark: a classic session.
            topics: a regular expression that the whole name of a topic matches.

        Raises:
            SinkError: it can't be read back.
        """
        raise SinkError(
            f"The messages in sink '{self.name}' can't be read back.",
            remedy="Read them with a program of its own kind, or let messages go to the sink 'kafka' or 'files'.",
        )

    @abstractmethod
    def check(self) -> None:
        """Whether the target can be written, before anything is. Runs in the driver, at the start of a run.

        Raises:
            SinkError: it can't; one sentence with a remedy. Nothing was created.
        """

    def reach(self) -> str:
        """What `check` looks at, and more where that takes a client that a run has anyway. For `headrace check`.

        Runs in a process without Spark; writes nothing.

        Returns:
            What was found, as one sentence.

        Raises:
            HeadraceError: as `check`.
        """
        self.check()
        return "Can be used."

    def permissions(self, tables: Sequence[TableId], topics: Sequence[str]) -> Permissions | None:
        """Whether the login may do what the pipeline would do; None for a sink that has nobody to ask.

        Runs in a process without Spark, after `reach`; leaves nothing behind.

        Args:
            tables: those that would be written, by the names that they have in the sink; none where the source can't
                say them beforehand.
            topics: for a sink that takes messages, where they would go.

        Raises:
            HeadraceError: the target can't be asked.
        """
        return Permissions("Headrace does not check its login's permissions; the first write shows them.", known=False)

    def preview(self, schema: TableSchema, batch: BatchId, spark: SparkSession | None) -> TargetPreview | None:
        """What would be done to the target of a table; None for a sink that has no target per table.

        Runs in the driver; changes nothing.

        Args:
            schema: the table as the source has it now.
            batch: the batch that would be written next.
            spark: a session, for sinks that look with one; without it they only say the place.

        Raises:
            SinkError: the target belongs to another pipeline or checkpoint, or can't be looked at.
            SchemaError: the target can't carry the structure.
        """
        return None

    @abstractmethod
    def write(self, rows: DataFrame, batch: BatchId) -> None:
        """Write one batch, the whole of it or (as far as the target can) nothing. Runs in the driver, which starts
        Spark jobs.

        `rows` is persisted by the caller and may be read several times. Messages of one key are written in position
        order.

        Raises:
            SinkError: the target belongs to another pipeline or checkpoint, or can't be written.
            SchemaError: the target can't carry the rows; raised before the first row that doesn't fit is written. Of a
                sink that keeps tables, it has its table (`headrace.changes.one_table`), so that a pipeline can go on
                without it; what can't be another table's alone has none.
        """
