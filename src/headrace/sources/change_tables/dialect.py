"""What differs between servers that put changes into tables: their statements, types, rows and words.

One object per connection brings it together. Everything else in this package is the same for all of them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from headrace.changes import TableId
from headrace.errors import CaptureError
from headrace.options import Options
from headrace.sources.change_tables.native import NativeType
from headrace.sources.tables.unlogged import Unlogged

if TYPE_CHECKING:
    from headrace.sources.change_tables.connection import Connection
    from headrace.sources.change_tables.structure import CapturedTable, Window
    from headrace.sources.change_tables.windows import CommitTimes

Query = tuple[str, list[object]]
"""A statement and its parameters."""
Bound = Sequence[str | None]
"""A key as canonical texts."""


class Statements(Protocol):
    """The statements that go to a server; LSNs are bound as bytes and come back as bytes or hexadecimal digits."""

    MAX_LSN: str
    OLDEST_MAPPED: str
    NTH_COMMIT_AFTER: str
    TRANSACTIONS_STRICTLY_BETWEEN: str
    EVERY_NTH_COMMIT: str
    TRANSACTIONS_BEFORE: str
    COMMIT_TIME: str
    COMMIT_TIMES: dict[str, str]
    FIRST_REPEATED: str
    FIRST_SETTLED: str
    TIME_AND_CLOCK: str
    NEWEST_MARK: str
    """How far the log was read, by LSN and what the clock showed."""
    NEWEST_EMPTY_SCAN: str
    """What differs after every scan of the log that finds nothing; empty where `NEWEST_MARK` moves then too."""
    INSTANCES: str
    INSTANCE_START: str
    """The oldest LSN that a capture instance of a name holds, and its number: a later one of that name has another."""
    COLUMN_NAMES: str
    LAST_DDL: str
    """Empty where a server keeps no history of alterations."""
    ROW_ESTIMATES: str
    TABLES: str
    """Schema and name of every table, in front."""
    ISOLATION: dict[str, str]

    def lock_timeout(self, milliseconds: int, /) -> str:
        """How long the session waits for a lock; -1 for ever."""

    def lock(self, table: CapturedTable, /) -> str:
        """Lock a table against everybody until the transaction ends."""

    def table_name(self, table: CapturedTable, /) -> str:
        """The source table, quoted."""

    def any_row(self, table: CapturedTable, select: str | None = None, /) -> str:
        """One row when the table has any, or the statement that is read in its place."""

    def rows_of_select(self, table: CapturedTable, select: str, /) -> str:
        """The captured columns of what a user's statement gives in place of the table."""

    def rows_in_range(
        self,
        table: CapturedTable,
        key: Sequence[str],
        lower: Bound | None,
        upper: Bound | None,
        *,
        present: Collection[str] | None = None,
        condition: str | None = None,
        ordered: bool = False,
        locked: bool = False,
    ) -> Query:
        """The rows of a key range (lower, upper]; both ends open when null."""

    def greatest_key(self, table: CapturedTable, key: Sequence[str], *, condition: str | None = None) -> Query:
        """The last key in the server's own order."""

    def chunk_bounds(
        self,
        table: CapturedTable,
        key: Sequence[str],
        lower: Bound | None,
        last: Bound,
        chunk_rows: int,
        chunks: int,
        *,
        condition: str | None = None,
    ) -> Query:
        """Every `chunk_rows`-th key after `lower` and before `last`, at most `chunks`."""

    def changed_instances(self, instances: Sequence[str], /) -> str:
        """Which of these instances have a change in their window (two parameters each)."""

    def changed_keys(self, table: CapturedTable, key: Sequence[str], *, updates: bool) -> str:
        """The keys of all changes in a window of commits; with updates or without them."""

    def inserted(self, table: CapturedTable, columns: Sequence[str], /) -> str:
        """The rows that were inserted in a window of commits, in order."""

    def insert(self, table: CapturedTable, columns: Sequence[str], /) -> str:
        """One row into a table of the user's."""

    def last_change(self, instance: str, has_command_id: bool, /) -> str:
        """Command, sequence value and operation of the last row that a commit left in a change table."""

    def rows_of_change(self, instance: str, /) -> str:
        """How many rows of a change table share a commit and a sequence value."""


class ChangeReader(Protocol):
    """Turns the raw rows of one change table's window into change rows."""

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Change rows in the server's order."""


@dataclass(frozen=True)
class Advice:
    """What a user is told to do, in the server's own words.

    Args:
        capture: how a table is set up for capture.
        enable: the same of one table, as the beginning of a sentence.
        keep: how changes are kept for longer.
        watch: what to look at when nothing is captured any more.
        see: the permission by which a login sees that an idle server is captured; empty where it needs none.
    """

    capture: str
    enable: str
    keep: str
    watch: str
    see: str = ""


class Dialect(Protocol):
    """One server's own part."""

    connector: str
    """The connector's name in events."""
    zero: str
    """The LSN before all others."""
    advice: Advice
    keeps_idle_commits: bool
    """Whether the place to which an idle server's log was read can still be looked up when it was read further."""

    @property
    def statements(self) -> Statements:
        """The statements that the server is sent."""

    def is_quiet(self, connection: Connection, after: str, upto: str, oldest: Any) -> bool:
        """Whether it is certain that no transaction was captured in (after, upto].

        Args:
            connection: to the database.
            after: the commit that was reached.
            upto: a later one.
            oldest: what `Statements.OLDEST_MAPPED` gave.
        """

    def last_transaction(self, connection: Connection, upto: str) -> tuple[str, str] | None:
        """LSN and time of the last captured transaction up to an LSN; null where none is listed.

        Only asked where idle commits are not kept.
        """

    def newest_changes(self, connection: Connection) -> dict[tuple[str, int], str | None]:
        """The newest commit that was ever put into each change table, by its name and number.

        Only asked where idle commits are not kept.
        """

    def native(self, *parts: Any) -> NativeType:
        """A type out of its JSON form."""

    def no_capture(self, connection: Connection, database: str) -> CaptureError | None:
        """Why no table of the database can be captured, with what to do; null where the database is set up.

        The one diagnosis that every command gives.
        """

    def unlogged(self, connection: Connection) -> Sequence[Unlogged]:
        """The ways that the catalog shows by which rows of tables may change without a change in a change table."""

    def grant_table(self, table: TableId, user: str) -> str:
        """What to run so that a user may read a table, as a sentence."""

    def grant_changes(self, instance: str, user: str) -> str:
        """What to run so that a user may read the changes of a capture instance, as a sentence."""

    def zone(self, connection: Connection, local: dt.datetime, minutes: int) -> str | None:
        """The time zone that the server says; null when it can't, or when its clock is not in it."""

    def changes(
        self, connection: Connection, window: Window, settings: Options | None, *, rows: int
    ) -> Iterator[pa.RecordBatch]:
        """The raw rows of a window of a change table, in the server's order; without options all of them."""

    def change_reader(
        self,
        table: CapturedTable,
        times: CommitTimes,
        capture_time: dt.datetime | None,
        settings: Options | None,
        *,
        weighted: bool = False,
    ) -> ChangeReader:
        """The converter for one table's raw rows; without options, rows as they are."""
