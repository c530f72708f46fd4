"""The statements that every server with change tables is sent.

Each server has its own SQL; what they write alike, over the rows and keys of a user's table, is here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from headrace.sources.change_tables.captured_table import CapturedTable, NativeType
from headrace.sources.snapshots.chunks import KeyLimit, Predicate, between

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


@dataclass(frozen=True)
class KeyRanges:
    """Writes parts of statements, and statements, about tables; every identifier is quoted and every value bound.

    Args:
        quote: writes an identifier.
        nulls_first: whether the server's ORDER BY puts NULL before all values or after them.
        absent: writes the NULL that is read in place of a column that the table no longer has.
    """

    quote: Callable[[str], str]
    nulls_first: bool
    absent: Callable[[NativeType], str]

    def table(self, table: CapturedTable) -> str:
        return f"{self.quote(table.schema.id.schema)}.{self.quote(table.schema.id.name)}"

    def fields(self, table: CapturedTable, present: Collection[str] | None = None) -> str:
        """The captured columns of `t`, as they are fetched; present ones, where not all are."""
        return ", ".join(
            f"{self._field(column.name, native, present)} AS {self.quote(column.name)}"
            for column, native in zip(table.schema.columns, table.natives, strict=True)
        )

    def key(self, table: CapturedTable, key: Sequence[str], alias: str) -> str:
        names = ((table.native(name), self.quote(name)) for name in key)
        return ", ".join(f"{native.projection(f'{alias}.{name}')} AS {name}" for native, name in names)

    def order(self, key: Sequence[str], direction: str = "") -> str:
        """The key of `t` as ORDER BY takes it."""
        return ", ".join(f"t.{self.quote(name)}{direction}" for name in key)

    def where(
        self,
        table: CapturedTable,
        key: Sequence[str],
        lower: Bound | None,
        upper: Bound | None,
        condition: str | None = None,
    ) -> Predicate:
        """The WHERE of rows of `t` whose key is in (lower, upper], as the server itself compares and collates.

        Args:
            table: the table.
            key: its chunk key; empty for the whole table.
            lower: rows after this key; None from the beginning.
            upper: rows up to and with this key; None to the end.
            condition: a predicate that the user wrote; it goes to the server as it is.
        """

        def limit(name: str, text: str | None) -> KeyLimit:
            column, nullable, native = f"t.{self.quote(name)}", table.schema.column(name).nullable, table.native(name)
            return (
                KeyLimit(column, nullable)
                if text is None
                else KeyLimit(column, nullable, native.marker, native.bound(text))
            )

        bounds = (None if bound is None else list(map(limit, key, bound)) for bound in (lower, upper))
        inside, parameters = between(*bounds, nulls_first=self.nulls_first)
        # A comment at the end of the user's predicate must not swallow what follows.
        conditions = [*([inside] if inside else []), *([] if condition is None else [f"({condition}\n)"])]
        return f" WHERE {' AND '.join(conditions)}" if conditions else "", parameters

    def rows(
        self,
        table: CapturedTable,
        key: Sequence[str],
        lower: Bound | None,
        upper: Bound | None,
        *,
        present: Collection[str] | None,
        condition: str | None,
        ordered: bool,
        hint: str = "",
        tail: str = "",
    ) -> Query:
        """The rows of a key range (lower, upper]; both ends open when null.

        Args:
            table: the table.
            key: its chunk key; empty for the whole table.
            lower: rows after this key.
            upper: rows up to and with this key.
            present: the columns that the table still has; NULL stands for the others. Null means all of them.
            condition: a predicate that the user wrote.
            ordered: in key order; if not, in whatever order the server finds them.
            hint: follows the table.
            tail: ends the statement.
        """
        where, parameters = self.where(table, key, lower, upper, condition)
        order = f" ORDER BY {self.order(key)}" if ordered else ""
        fields = self.fields(table, present)
        return f"SELECT {fields} FROM {self.table(table)} AS t{hint}{where}{order}{tail}", parameters

    def rows_of_select(self, table: CapturedTable, select: str) -> str:
        """The captured columns of what a user's statement gives in place of the table."""
        # The parenthesis is on a line of its own, because the statement may end with a comment.
        return f"SELECT {self.fields(table)} FROM ({select}\n) AS t"

    def insert(self, table: CapturedTable, columns: Sequence[str]) -> str:
        """One row into a user's table: the only statement that writes, sent by `headrace signal` alone."""
        names = ", ".join(self.quote(name) for name in columns)
        return f"INSERT INTO {self.table(table)} ({names}) VALUES ({', '.join('?' * len(columns))})"

    def _field(self, name: str, native: NativeType, present: Collection[str] | None) -> str:
        gone = present is not None and name not in present
        return self.absent(native) if gone else native.projection(f"t.{self.quote(name)}")
