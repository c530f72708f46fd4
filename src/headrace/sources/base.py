"""The contract of a source: a planner on the driver, readers in the executors.

The reader (`headrace.sources.reader`) is the only caller and the only position that knows Spark's data source API. A
new source is a subclass with a name and declared options; everything about batches, restarts and replays follows from
the promises written here.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from headrace.changes import TableId, TableSchema
from headrace.changes.dataset import Dataset
from headrace.changes.foreign_key import Cascade, ForeignKey
from headrace.changes.table_files import TableFiles
from headrace.errors import OptionError
from headrace.permissions import MissingPermission
from headrace.settings import Component
from headrace.sources.health import Health
from headrace.sources.offset import Offset
from headrace.sources.printed_tables import PrintedTable
from headrace.sources.signals import Signal
from headrace.sources.snapshots.ends_equal import is_told
from headrace.sources.table_versions import Kind, MovePlan, TableMove
from headrace.sources.tables.keys import MisfitKey
from headrace.sources.tables.restricted import RestrictedRead
from headrace.sources.tables.rewrites import Unlogged
from headrace.sources.tables.unmatched import Unmatched


@dataclass(frozen=True)
class Slice:
    """One task's share of a batch; small, picklable, and enough to read the same rows again.

    Args:
        kind: what `Source.read` has to do (a source's own word, such as `snapshot` or `stream`).
        details: what `Source.read` needs, by names of its own; picklable.
        weight: which share of a task's work it is expected to be; those of light slices are read by one task.
        tables: the tables (`schema.name`) that its rows are of; None where that is not known. The slices of a batch
            that hold rows of one table are planned in the order of these rows.
    """

    kind: str
    details: dict[str, Any]
    weight: float = 1.0
    tables: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Limit:
    """How much a batch may hold at the most; zero means no bound.

    Args:
        commits: source commits in the streaming part of a batch.
        chunks: snapshot chunks planned per batch.
        upto: the last commit that a batch may hold; empty for no bound.
        follows: an empty batch is wanted where the log goes on without changes of captured tables.
    """

    commits: int = 0
    chunks: int = 0
    upto: str = ""
    follows: bool = False


ONE_CHUNK = Limit(chunks=1)
"""The batch of a preview."""


@dataclass(frozen=True)
class SnapshotOptions:
    """What a source's options say of snapshots.

    Args:
        reads_tables: whether a table is read before its changes follow.
        at_every_start: whether each process reads all tables again.
        ends_stream: whether no changes follow.
        chunk_rows: how many rows a chunk holds; 0 where a table is read in one piece, or where that is not known.
    """

    reads_tables: bool = True
    at_every_start: bool = False
    ends_stream: bool = False
    chunk_rows: int = 0


class Source(Component, ABC):
    """A database from which changes are taken. Instances are made from options alone, in the driver and in executors
    alike.

    Subclasses keep no connection in attributes that are pickled: a copy goes to every executor.
    """

    role: ClassVar[Literal["source"]] = "source"
    example_schema: ClassVar[str] = "dbo"
    """A schema that is usual in such databases, for the comments that `headrace init` writes."""
    knows_schemas: ClassVar[bool] = False
    """Whether the schemas of a slice's rows are known before it is read (`schemas_in`), or said by `schema` rows of the
    slice before the rows that follow them."""
    jars: ClassVar[tuple[str, ...]] = ()
    """Maven coordinates of what Spark needs for it."""
    moves: ClassVar[frozenset[Kind]] = frozenset()
    """Which ways the changes of one table can be taken (`move`)."""
    address: ClassVar[tuple[str, str]] = ("", "")
    """How OpenLineage calls such servers, and their usual port; empty where it has no name for them."""
    whole_tables: ClassVar[Mapping[str, Any]] = {}
    """Options with which a run of its own reads each table whole and in one piece, for `headrace verify`. A source that
    takes no snapshots has none: its log is read from the beginning."""

    @property
    def formats(self) -> tuple[()]:
        """The formats of what it reads; a database has none."""
        return ()

    @property
    def snapshots(self) -> SnapshotOptions:
        """What the options say of snapshots; by default those that have the names of Debezium's.

        Asked by who plans, counts and ends a run. Makes no request.
        """
        mode = self.settings.get("snapshot_mode")
        return SnapshotOptions(
            reads_tables=mode not in ("no_data", "recovery"),
            at_every_start=mode == "always",
            ends_stream=mode == "initial_only",
            chunk_rows=int(self.settings.get("snapshot_chunk_rows") or 0),
        )

    @property
    def counted_operations(self) -> frozenset[str] | None:
        """The operations (`c`, `u`, `d`) that the end of a transaction counts; None where no transactions are given."""
        if not self.settings.get("provide_transaction_metadata"):
            return None
        return frozenset("cud") - frozenset(self.settings.get("skipped_operations") or ())

    @property
    def ends_equal(self) -> bool:
        """Whether a whole table that is read beside the stream takes the rows away that it no longer has.

        Not where the stream leaves changes out: then rows that a chunk did not find may be there.
        """
        return is_told(self.settings.get("skipped_operations") or ())

    @property
    def reads_again(self) -> bool:
        """Whether a signal can have a table read again (`signal`)."""
        return type(self).signal is not Source.signal and not self.snapshots.ends_stream

    def databases(self) -> Mapping[str, Source]:
        """One source for each database that the options name, by the database's name; this one where it is just one.

        Each of them is planned with an offset of its own.
        """
        return {str(self.settings.get("database") or ""): self}

    def dataset(self, table: TableId) -> Dataset | None:
        """What a table is called in lineage; None where the options do not say its server. Makes no request."""
        scheme, usual = self.address
        host, port = self.settings.get("hostname"), self.settings.get("port")
        if not scheme or not host or (self.settings.get("instance") and not port):
            return None
        return Dataset(f"{scheme}://{host}:{port or usual}", table.full_path)

    @abstractmethod
    def tables(self, known: Collection[str] = ()) -> Sequence[TableSchema]:
        """What is captured now, and how it looks; in include-list order. Runs in the driver.

        Args:
            known: tables (`schema.name`) that a checkpoint knows. One of them may be captured no longer, if the options
                allow that.

        Raises:
            CaptureError: an included table does not exist or is not set up for capture.
            ConnectError: the server can't be reached or refuses the login.
        """

    def schemas(self, offset: Offset) -> Sequence[TableSchema]:
        """The schemas that rows before `offset` had, as far as it knows them; those of a table oldest first. Runs in
        the driver; makes no request.
        """
        return ()

    def unmatched(self, offset: Offset) -> Sequence[Unmatched]:
        """The names and patterns of the options that stand for none of the tables that `tables`, `preview` or `advance`
        met last. Runs in the driver.

        Args:
            offset: where the run is, which knows tables that are gone; nothing before the first batch.
        """
        return ()

    def connect(self) -> None:
        """Log in and out again: whether the server is there and takes the login. Runs in the driver.

        Raises:
            ConnectError: the server can't be reached or refuses the login.
        """
        self.head()

    def missing_permissions(self) -> Sequence[MissingPermission] | None:
        """What the login may not do that this source needs or would use; None for a source that can't tell.

        Asked by `headrace check`: it only reads, and little. Runs in the driver.

        Raises:
            CaptureError: the server is not set up for capture.
            ConnectError: the server can't be reached or refuses the login.
        """
        return None

    def cascades(self, start: Offset | None = None, end: Offset | None = None) -> Sequence[Cascade]:
        """The foreign keys whose actions change rows of captured tables without a change in the log. Runs in the
        driver.

        Args:
            start, end: the offsets of a batch; without them, what the catalog has now.

        Raises:
            ConnectError: the catalog is asked, and the server can't be reached or refuses the login.
        """
        return ()

    def left_out(self) -> Sequence[Unlogged]:
        """Columns of captured tables that neither the options nor the user left out, but the log lacks. Named by
        `headrace init`, `check` and `plan`. Runs in the driver.

        Raises:
            ConnectError: the server can't be reached or refuses the login.
        """
        return ()

    def still_there(self, key: ForeignKey, rows: Sequence[Mapping[str, str | None]], offset: Offset) -> Sequence[bool]:
        """Whether rows of `key.child` are there now as they were, although `key` may have deleted or changed them.

        Asked where a foreign key came or went within a batch. Runs in the driver.

        Args:
            key: one of `cascades`.
            rows: the rows as they were, in canonical texts.
            offset: the end of the batch.

        Raises:
            ConnectError: the server can't be reached or refuses the login.
            TypeError: `cascades` of this source are always empty, so there is nothing to ask.
        """
        raise TypeError(f"Source '{self.name}' has no foreign keys whose cascades the log lacks.")

    def unlogged(self) -> Sequence[Unlogged]:
        """The ways by which rows of captured tables may change without a change in the log, as far as the catalog shows
        them. Asked by `headrace check`. Runs in the driver.

        Raises:
            ConnectError: the server can't be reached or refuses the login.
        """
        return ()

    def restricted_reads(self) -> Sequence[RestrictedRead]:
        """The tables of which the login may read something else than the log has: policies of rows, and masks. Asked by
        `headrace check`. Runs in the driver.

        Raises:
            ConnectError: the server can't be reached or refuses the login.
        """
        return ()

    def misfit_keys(self) -> Sequence[MisfitKey]:
        """Key columns of captured tables with values that no type of Spark has, where that is cheap to find out. Asked
        by `headrace check`. Runs in the driver.

        Raises:
            ConnectError: the server can't be reached or refuses the login.
        """
        return ()

    def preview(
        self, start: Offset, now: dt.datetime, limit: Limit = ONE_CHUNK, *, restarted: bool = True
    ) -> Offset | None:
        """What the next batch would begin with, as the end of a batch of one chunk; None for a source that can't say.

        As `advance`, but nothing is locked, mined or noted, so that a later `advance` does what it would have done. A
        run that should end asks it whether anything is left (`Offset.brings_more_than`).

        Args:
            start: the end of the previous batch.
            now: becomes the batch's capture time.
            limit: how far the batch may go.
            restarted: whether it would be the first batch that its process plans.

        Raises:
            HeadraceError: as `advance`.
        """
        return None

    @abstractmethod
    def head(self) -> str:
        """The newest complete commit that the log offers, in the form of `Offset.commit`. Runs in the driver.

        A run that should end (`--once`) ends when its offset has reached what this gave at its start, and nothing else
        is left to do.
        """

    def head_after(self, offset: Offset) -> str:
        """The same in a form that compares with the commit of an offset, where commits say more than the log does."""
        return self.head()

    @abstractmethod
    def advance(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        """Where the next batch ends, given where the last one ended. Runs in the driver.

        Returns `start` itself when nothing is new, so that an idle source makes no batches. The end is always a whole
        number of commits. Snapshot chunk boundaries are fixed here, compared and ordered by the server, and stand in
        the returned offset.

        Args:
            start: the end of the previous batch; `Offset.nothing()` before the first.
            limit: how far a batch may go.
            now: becomes the batch's capture time.

        Raises:
            DataLossError: changes after `start` are no longer in the source's log.
        """

    @abstractmethod
    def plan(self, start: Offset, end: Offset) -> list[Slice]:
        """Cut the batch (start, end] into slices; `(start, end)` alone decides its rows, order and bytes. Runs in the
        driver.

        Raises:
            DataLossError: changes of the window were cleaned since `advance`.
        """

    @abstractmethod
    def read(self, slice: Slice) -> Iterator[pa.RecordBatch]:
        """The change rows of one slice as Arrow batches of `arrow_schema()`, ordered by position. Runs in executors.

        May be called again for the same slice (task retry, speculation) and gives the same rows: byte for byte for
        streamed changes; snapshot rows are read from a live table and converge instead.

        Raises:
            DataLossError: changes of the slice were cleaned while it was read; no partial result may be kept.
        """

    def read_to_files(self, slice: Slice, files: TableFiles) -> Iterator[pa.RecordBatch]:
        """As `read`, where rows of a table's first snapshot may be written into files, and are then not given. By
        default all are given. Runs in executors.

        Args:
            slice: one of a batch that has no other rows of its tables.
            files: where they go.

        Raises:
            SinkError: a file can't be written.
        """
        return self.read(slice)

    def without(self, slice: Slice, table: str) -> Slice | None:
        """A slice without the rows of one table, whose other rows are the same; None where there are none. The slice
        itself where its other rows can't be read alone. Runs in executors; makes no request.

        Args:
            slice: a slice.
            table: the table (`schema.name`).
        """
        return None if slice.tables == (table,) else slice

    def schemas_in(self, slice: Slice) -> Sequence[TableSchema]:
        """The schemas that the rows of a slice follow; makes no request. Runs in executors.

        Raises:
            TypeError: this source learns schemas while it reads, as `knows_schemas` says.
        """
        raise TypeError(f"Source '{self.name}' learns schemas while it reads.")

    def printed_tables(self) -> Iterator[PrintedTable] | None:
        """The captured tables as the server prints and counts them, for `headrace verify`; None for a source that can't
        say, whose tables are read by a snapshot of their own instead.

        One consistent snapshot of all tables, in a session whose limits it sets itself, by statements and conversions
        that snapshots and the stream do not use: a defect of these shows as a difference. Runs in the driver, row by
        row in Python.

        Raises:
            CaptureError: a table can't be read whole.
            ConnectError: the server can't be reached or refuses the login.
        """
        return None

    def health(self, offset: Offset | None = None) -> Health:
        """Whether the source still captures, up to when, and how long what it captured is kept. Runs in the driver.

        Asked every few seconds beside the batches, so it is cheap and holds nothing that a batch may wait for. Raises
        no `HeadraceError`: a source that can't be asked is in the state `unknown`, with the reason.

        Args:
            offset: what is in all sinks; without it nothing is known of what waits.
        """
        return Health()

    def check_signal(self, signal: Signal) -> None:
        """Whether what a signal asks for is there: its tables are captured, and the server takes its filters.

        Runs where `headrace signal` does, before `signal`. It only reads. A source that can't say raises nothing.

        Raises:
            OptionError: the signal can't be followed.
            ConnectError: the server can't be asked.
        """
        return None

    def move(self, wanted: TableMove, offset: Offset) -> MovePlan:
        """What it takes to go on elsewhere with the changes of one table. Only looks; runs where the command does.

        Args:
            wanted: what the user wants, in the user's words.
            offset: what is in all sinks.

        Raises:
            OptionError: the source can't do that at all, or not to this position.
            CaptureError: the table is not captured.
            ConnectError: the server can't be asked.
        """
        raise OptionError(
            f"Source '{self.name}' can't {wanted.kind} a single table.",
            remedy="Read the table again: headrace repair reread.",
        )

    def signal(self, signal: Signal) -> Sequence[str]:
        """Ask the stream that reads this source for something; gives the positions where the signal was left.

        Runs where `headrace signal` does. The stream reports what can't be followed any more.

        Raises:
            OptionError: the source takes no signals, or none is set up.
            CaptureError: the signal can't be left there.
        """
        raise OptionError(f"Source '{self.name}' takes no signals.", remedy="Read again with a new checkpoint.")

    def execute(self, statement: str) -> None:
        """Run a statement of the user's in the database and commit it, in a session of its own. Runs in the driver.

        Raises:
            OptionError: the source runs none.
            HeadraceError: the server can't be reached, or refuses it.
        """
        raise OptionError(
            f"Source '{self.name}' runs no statements of yours.", remedy="Leave out 'heartbeat_action_query'."
        )

    def has_signals(self, offset: Offset) -> bool:
        """Whether there are signals that the batch that ended at `offset` did not see and that make no commit.

        A run that should end takes them first.
        """
        return False

    def acknowledge(self, offset: Offset) -> None:
        """Everything up to `offset` rests in all sinks; a source that holds log for us may release it. Runs in the
        driver.

        Called late (one batch behind) and not at all when idle or on stop, so nothing may depend on it for correctness.
        """
        return None
