"""The statements that every server with change tables is sent, each in its own SQL."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from headrace.sources.change_tables.captured_table import CapturedTable

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
    FIRST_SINCE: str
    """The first commit whose time is not before what the clock shows."""
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

    def count_changes(self, instance: str, /) -> str:
        """How many changes of a window of commits a change table has; an update counts once."""

    def last_change(self, instance: str, has_command_id: bool, /) -> str:
        """Command, sequence value and operation of the last row that a commit left in a change table."""

    def rows_of_change(self, instance: str, /) -> str:
        """How many rows of a change table share a commit and a sequence value."""


class Queries(Protocol):
    """A server that answers statements: what is needed of a connection by those whom a connection needs."""

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows of a small result."""

    def row(self, sql: str, parameters: Sequence[object] = ()) -> tuple[Any, ...] | None:
        """The first row of a small result; None when there is none."""

    def value(self, sql: str, parameters: Sequence[object] = ()) -> Any:
        """The one value of a result of one row and column; null when there is no row."""

    def batches(self, sql: str, parameters: Sequence[object] = (), *, rows: int) -> Iterator[pa.RecordBatch]:
        """A large result as Arrow batches, with at most so many rows per fetch."""
