"""What differs between servers that put changes into tables: their statements, types, rows and words.

One object per connection brings it together. Everything else in this package is the same for all of them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from headrace.changes import TableId
from headrace.errors import CaptureError
from headrace.sources.change_tables.captured_table import CapturedTable, NativeTypes
from headrace.sources.change_tables.commit_times import CommitTimes
from headrace.sources.change_tables.history_mark import ChangeTable, Transaction
from headrace.sources.change_tables.options import ChangeTableSettings
from headrace.sources.change_tables.schema_history import Window
from headrace.sources.change_tables.statements import Queries, Statements
from headrace.sources.tables.restricted import RestrictedRead
from headrace.sources.tables.rewrites import Rewrite, Unlogged


class ChangeReader(Protocol):
    """Turns the raw rows of one change table's window into change rows."""

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Change rows in the server's order."""


@dataclass(frozen=True)
class Advice:
    """Advice to the user, in the server's own words.

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


@dataclass(frozen=True)
class Alteration:
    """A statement that altered a captured table.

    Args:
        change_table: the number of the change table that it concerns.
        lsn: where it stands in the log.
        statement: as its user wrote it.
    """

    change_table: int
    lsn: str
    statement: str


class Dialect(NativeTypes, Protocol):
    """One server's own part."""

    connector: str
    """The connector's name in events."""
    zero: str
    """The LSN before all others."""
    advice: Advice
    keeps_idle_commits: bool
    """Whether the position to which an idle server's log was read can still be looked up when it was read further."""

    @property
    def statements(self) -> Statements:
        """The statements that the server is sent."""

    def is_quiet(self, server: Queries, after: str, upto: str, oldest: Any) -> bool:
        """Whether it is certain that no transaction was captured in (after, upto].

        Args:
            server: answers statements about the database.
            after: the commit that was reached.
            upto: a later one.
            oldest: what `Statements.OLDEST_MAPPED` gave.
        """

    def last_transaction(self, server: Queries, upto: str) -> Transaction | None:
        """The last captured transaction up to an LSN; None where none is listed.

        Only asked where idle commits are not kept.
        """

    def newest_changes(self, server: Queries) -> dict[ChangeTable, str | None]:
        """The newest commit that was ever put into each change table.

        Only asked where idle commits are not kept.
        """

    def no_capture(self, server: Queries, database: str) -> CaptureError | None:
        """Why no table of the database can be captured, with what to do; None where the database is set up.

        The one diagnosis that every command gives.
        """

    def restricted(self, server: Queries, tables: Sequence[CapturedTable]) -> Sequence[RestrictedRead]:
        """The tables of which a login may read something else than the log has."""

    def unlogged(self, server: Queries) -> Sequence[Unlogged]:
        """The ways that the catalog shows by which rows of tables may change without a change in a change table."""

    def has_passed(self, server: Queries, commit: str, altered: str) -> bool:
        """Whether a commit is after an alteration in the log.

        Args:
            server: answers statements about the database.
            commit: up to which changes are read.
            altered: `CapturedTable.altered` after the alteration.
        """

    def alterations(self, server: Queries, after: str, upto: str) -> Sequence[Alteration]:
        """What altered tables in (after, upto], in the order of the log; none where the server keeps no such history.

        Args:
            server: answers statements about the database.
            after: the commit before.
            upto: the last commit.
        """

    def rewrite(
        self, server: Queries, before: CapturedTable, after: CapturedTable, statements: Sequence[str]
    ) -> tuple[tuple[str, ...], Rewrite | None]:
        """The names that columns had and none has now, and what alterations may have done to rows that were there.

        Args:
            server: answers statements about the database.
            before: the table as it was read.
            after: as it is read from now on.
            statements: what altered it in between, as far as `alterations` has it.
        """

    def grant_table(self, table: TableId, user: str) -> str:
        """What to run so that a user may read a table, as a sentence."""

    def grant_changes(self, instance: str, user: str) -> str:
        """What to run so that a user may read the changes of a capture instance, as a sentence."""

    def zone(self, server: Queries, local: dt.datetime, minutes: int) -> str | None:
        """The time zone that the server reports; None when it can't, or when its clock is not in it."""

    def changes(
        self, server: Queries, window: Window, settings: ChangeTableSettings | None, *, rows: int
    ) -> Iterator[pa.RecordBatch]:
        """The raw rows of a window of a change table, in the server's order; without options all of them."""

    def change_reader(
        self,
        table: CapturedTable,
        times: CommitTimes,
        capture_time: dt.datetime | None,
        settings: ChangeTableSettings | None,
        *,
        weighted: bool = False,
    ) -> ChangeReader:
        """The converter for one table's raw rows; without options, rows as they are."""
