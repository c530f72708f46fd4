"""Ad-hoc snapshots beside the stream, without a write to the source.

A chunk is read as the table is, in a transaction of its own, when everything that the log has up to the batch's end can
be seen, and its rows stand after all of that. So nothing is compared with the log: what is newer than the batch's end
comes again as a change, and a row that was deleted since is deleted again. A replay may find other rows, and both are
right.

Where a row's key moves from a chunk that is read later to one that was read before, and the change leaves unchanged
large values out, these values are missing in a target that did not have the row. Tables with REPLICA IDENTITY FULL have
them in the change.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import pyarrow as pa

from headrace import faultpoints
from headrace.sources.log.ad_hoc_reads import AdHocReads
from headrace.sources.offset import Key, Offset
from headrace.sources.postgresql import statements
from headrace.sources.postgresql.captured_table import PostgresTable, tables_of
from headrace.sources.postgresql.connection import Connection, connect
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.refusals import PostgresError
from headrace.sources.postgresql.snapshot_read import (
    MomentGone,
    begin_as_it_is,
    greatest_key,
    is_altered,
    is_as_known,
    key_bounds,
    key_columns,
    snapshot_rows,
    texts_of,
)
from headrace.sources.postgresql.visibility import Visibility
from headrace.sources.rows import Spool
from headrace.sources.signals import say, say_once
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.requests import NO_ROW, IncrementalChunk, RequestWaits, refused_filter

_PASSING = ("40", "53", "55P03", "57014")
"""Refusals that say nothing about the statement: it is sent again with the next batch."""
# The catalog's rows of all columns that there ever were, and of the name: each change of one is another transaction's.
_DEFINITION = """
SELECT coalesce(%s::int, c.relnatts) || ':' || left(md5(concat_ws(' ', c.oid, min(t.xmin::text), string_agg(
  a.attnum || ':' || a.xmin::text, ',' ORDER BY a.attnum))), 16)
FROM pg_class c JOIN pg_type t ON t.oid = c.reltype
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum BETWEEN 1 AND coalesce(%s::int, c.relnatts)
WHERE c.oid = %s GROUP BY c.oid, c.relnatts
"""


class AdHocPlanner(AdHocReads[PostgresTable]):
    """What signals ask for, and the chunks that answer it, for one batch. Runs in the driver.

    Args:
        settings: the source's options.
    """

    def __init__(self, settings: PostgresSettings) -> None:
        super().__init__(settings, settings.database, tables_of, ("skip",))
        self._visibility = Visibility()

    def more(self, connection: Connection, state: AdHoc, end: Offset, budget: int) -> AdHoc:
        """The state with up to `budget` further chunks, tables one after another.

        Chunks are planned only when all that the log has up to the batch's end can be seen; so every later reader sees
        it, too. While a transaction is in the way, requests wait, which is said once for each.

        Args:
            connection: outside of a transaction; it commits each statement.
            state: as no batch has read a further chunk yet.
            end: the batch's end, which stands.
            budget: how many chunks a batch may hold.
        """
        if not any(not request.done for request in state.requests) or state.paused or end.tables:
            return state
        in_the_way = self._visibility.wait_for(connection)
        if in_the_way is not None:
            say_once(f"Ad-hoc snapshots wait. {in_the_way}")
            return state
        return self.further(state, end, budget, lambda: nullcontext(KeysNow(connection)))


@dataclass(frozen=True)
class KeysNow:
    """Keys of tables as they are.

    Args:
        connection: outside of a transaction; it commits each statement.
    """

    connection: Connection

    def greatest(self, table: PostgresTable, condition: str | None) -> list[Key]:
        try:
            self._require_known(table)
            key = key_columns(self.connection, table)
            greatest_of = greatest_key(self.connection, table, key, _all_of(condition))
        except PostgresError as error:
            raise _waiting(table, error) from error
        return [] if greatest_of is None else [greatest_of]

    def bounds(
        self, table: PostgresTable, lower: Key | None, last: Key, rows: int, chunks: int, condition: str | None
    ) -> list[Key]:
        try:
            self._require_known(table)
            key, conditions = key_columns(self.connection, table), _all_of(condition)
            return key_bounds(self.connection, table, key, lower, last, rows, chunks, conditions)
        except PostgresError as error:
            raise _waiting(table, error) from error

    def definition(self, table: PostgresTable, before: str = "") -> str:
        """As `KeyRanges.definition`: how many columns there were, and a hash."""
        most = int(before.partition(":")[0]) if before else None
        lines = self.connection.rows(_DEFINITION, (most, most, table.oid))
        return str(lines[0][0]) if lines else "none"

    def _require_known(self, table: PostgresTable) -> None:
        if not is_as_known(self.connection, table):
            say_once(f"The ad-hoc snapshot of table '{table.id.path}' waits until the stream has its new definition.")
            raise RequestWaits


def _all_of(condition: str | None) -> list[str]:
    return [] if condition is None else [condition]


def _waiting(table: PostgresTable, error: PostgresError) -> Exception:
    if error.sqlstate.startswith(_PASSING):
        say_once(f"The ad-hoc snapshot of table '{table.id.path}' waits: {error.message}")
        return RequestWaits()
    return error


def check_filter(connection: Connection, table: PostgresTable, filter: str) -> None:
    """Whether the server takes a filter of a signal.

    Raises:
        OptionError: it does not.
    """
    try:
        connection.rows(statements.any_row(table, [NO_ROW.format(filter=filter)]))
    except PostgresError as error:
        raise refused_filter(table.id, error.message) from error


def read_incremental(
    table: PostgresTable,
    chunk: IncrementalChunk,
    commit: str,
    settings: PostgresSettings,
    capture_time: dt.datetime | None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a chunk as they are, with the table's schema before the first ones. Runs in executors.

    A chunk is held, on disk where it is large, so that a refusal in the middle leaves no part of it.

    Args:
        table: as the offset knows it.
        chunk: which rows of it.
        commit: where the batch ends.
        settings: the source's options.
        capture_time: when it was planned.

    Raises:
        CaptureError: the table may not be read, or can't be locked in time.
    """
    kept, table = Spool(), table.cut_by(chunk.key)
    try:
        with connect(settings) as connection:
            begin_as_it_is(connection, table, settings)
            conditions = _all_of(chunk.filter)
            conditions += statements.in_range(table, key_columns(connection, table), chunk.lower, chunk.upper)
            for texts in texts_of(connection, table, statements.copy_rows(table, conditions)):
                kept.add(texts)
    except (MomentGone, PostgresError) as error:
        if not is_altered(error):
            raise
        say(f"Table '{table.id.path}' was altered or went away while its ad-hoc snapshot was read: one chunk of it is "
            "left out. Ask for it again when the stream has the definition.")  # fmt: skip
        return
    faultpoints.reach("source.incremental.read")
    yield from snapshot_rows(table, settings, capture_time).of_increment(chunk, commit, kept)
    faultpoints.reach("source.incremental.chunk")
