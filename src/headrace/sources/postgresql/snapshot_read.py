"""Snapshots: chunks by key or by position, read by COPY.

While the keeper's session lives, all chunks are read in its snapshot, so the table has one state. Later a table with a
key is read as it is, chunk by chunk: what changed since the snapshot's position comes again with the stream. That does
not do for a table without a key, where a change would come twice.

One thing reads without the snapshot can't give: where a row's key moved from a chunk that is read later to one that was
read before, and the change leaves unchanged large values out, these values are missing. Tables with REPLICA IDENTITY
FULL have them in the change.

COPY gives rows as CSV, which become columns of text.
"""

from __future__ import annotations

import codecs
import datetime as dt
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
from pyarrow import csv

from headrace import faultpoints
from headrace.changes.table_files import TableFile
from headrace.errors import CaptureError
from headrace.sources.images import constant_map
from headrace.sources.offset import Key, TableProgress
from headrace.sources.postgresql import lsn, statements
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.connection import Connection, connect
from headrace.sources.postgresql.keeper import LOCK_NOT_AVAILABLE, PointPassed, lock_table, not_locked, snapshot_ended
from headrace.sources.postgresql.markers import CONNECTOR
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.refusals import PostgresError
from headrace.sources.postgresql.statements import KeyColumn
from headrace.sources.postgresql.types import TypeCatalog
from headrace.sources.signals import say_once
from headrace.sources.snapshots.chunks import Chunk, with_further_chunks
from headrace.sources.snapshots.select_overrides import SelectOverrides, failed
from headrace.sources.snapshots.snapshot_rows import SnapshotRows
from headrace.sources.tables.masks import Masks

_MARK = codecs.BOM_UTF8


def csv_columns(blocks: Iterable[bytes], count: int) -> Iterator[list[pa.Array]]:
    """The columns of rows, block by block.

    NULL is an empty field without quotes, and empty text is one with quotes. A value may have line ends, quotes and
    commas, and may be as large as the server can send.

    Args:
        blocks: whole rows, as many as there are.
        count: how many columns a row has.
    """
    names = [str(number) for number in range(count)]
    # A row of one column that is NULL is an empty line.
    parsing = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
    conversion = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    for block in blocks:
        if block.startswith(_MARK):
            # Arrow leaves out the first one, which is part of a value here.
            block = _MARK + block
        # Arrow cuts what it reads into pieces, and fails where a row is in more than two.
        reading = csv.ReadOptions(column_names=names, block_size=len(block) + 1, use_threads=False)
        table = csv.read_csv(
            pa.BufferReader(block), read_options=reading, parse_options=parsing, convert_options=conversion
        )
        yield [column.combine_chunks() for column in table.columns]


_ROWS_PER_BLOCK = 50
"""Where the server has not counted yet."""
_SNAPSHOT_GONE = frozenset(("22023", "42704", "55000"))
"""The answers to a snapshot's name when the session that exported it has ended."""
_ALTERED = frozenset(("42703", "42P01", "3F000"))


class MomentGone(Exception):
    """What a table held at the position of its snapshot can't be read any more.

    Args:
        error: the error for the user where nothing else helps.
    """

    def __init__(self, error: CaptureError) -> None:
        super().__init__(str(error))
        self.error = error


# Planning, in the driver.


def more_chunks(
    connection: Connection, table: PostgresTable, progress: TableProgress, settings: PostgresSettings, budget: int
) -> TableProgress:
    """A table's snapshot with up to `budget` further chunks; one that the user's own SELECT reads has one.

    Chunks end at keys as the server prints them. Of a table without a key they end where blocks begin, which is right
    in the keeper's snapshot only.

    Args:
        connection: the keeper's, while it lives.
        table: it.
        progress: as no batch has read a further chunk yet.
        settings: the source's options.
        budget: how many chunks a batch may hold.

    Raises:
        CaptureError: the user's statement fails, or the table may not be read.
    """
    with _aside(connection):
        return _more_chunks(connection, table, progress, settings, budget)


@contextmanager
def _aside(connection: Connection) -> Iterator[None]:
    """In the keeper's transaction, let go at the end of the locks that queries take on indexes, and survive a refusal.

    Who builds an index again waits for its lock, and all who write to the table wait behind.
    """
    if not connection.in_transaction:
        yield
        return
    connection.run(statements.ASIDE)
    try:
        yield
    except CaptureError:
        connection.run(statements.BACK)
        raise
    connection.run(statements.BACK)


def _more_chunks(
    connection: Connection, table: PostgresTable, progress: TableProgress, settings: PostgresSettings, budget: int
) -> TableProgress:
    select = SelectOverrides.of(settings).select(table.id)
    if select is not None:
        return _whole(connection, table, progress, select, budget)
    if progress.chunk == 0 and not connection.rows(statements.any_row(table, [])):
        return replace(progress, done=True, empty=True)
    if budget == 0:
        return progress
    rows = settings.snapshot_chunk_rows
    if not rows:
        return replace(progress, bounds=(None,), done=True)
    if not table.chunk_key:
        return _all_blocks(connection, table, progress, rows)
    key = key_columns(connection, table)
    return with_further_chunks(
        progress,
        budget,
        lambda: greatest_key(connection, table, key, []),
        lambda last: key_bounds(connection, table, key, progress.lower, last, rows, budget, []),
    )


def _whole(
    connection: Connection, table: PostgresTable, progress: TableProgress, select: str, budget: int
) -> TableProgress:
    try:
        empty = not connection.rows(statements.any_row_of_select(select))
    except PostgresError as error:
        raise failed(table.id, error) from error
    if empty:
        return replace(progress, done=True, empty=True)
    return replace(progress, bounds=(None,), done=True) if budget else progress


def _all_blocks(connection: Connection, table: PostgresTable, progress: TableProgress, rows: int) -> TableProgress:
    """All chunks of a table without a key, in one batch whatever they are.

    The end of a read takes from mirrors what an earlier read left, and rows without a key don't tell of which read they
    are unless all of this one come together.
    """
    longest, all_blocks, counted, pages = connection.rows(statements.BLOCKS, (list(table.leaves),))[0]
    each = counted / pages if counted and pages else _ROWS_PER_BLOCK
    chunks = max(1, math.ceil(each * all_blocks / rows))
    step = max(1, math.ceil(longest / chunks))
    ends = [statements.block(end) for end in range(step, int(longest), step)]
    return replace(progress, bounds=(*ends, None), done=True)


def key_columns(connection: Connection, table: PostgresTable) -> list[KeyColumn]:
    """The chunk key, as SQL compares it."""
    oids = [table.native(name).oid for name in table.chunk_key]
    types = {oid: (str(name), str(schema)) for oid, name, schema in connection.rows(statements.KEY_TYPES, (oids,))}
    return [KeyColumn(name, *types[oid]) for name, oid in zip(table.chunk_key, oids, strict=True)]


def greatest_key(
    connection: Connection, table: PostgresTable, key: Sequence[KeyColumn], conditions: Sequence[str]
) -> Key | None:
    """The last key of the rows that meet conditions; None where there is none."""
    lines = connection.rows(statements.greatest_key(table, key, conditions))
    return tuple(lines[0]) if lines else None


def key_bounds(
    connection: Connection,
    table: PostgresTable,
    key: Sequence[KeyColumn],
    lower: Key | None,
    last: Key,
    rows: int,
    chunks: int,
    conditions: Sequence[str],
) -> list[Key]:
    """The keys at which the next chunks end.

    Args:
        connection: to the database.
        table: it.
        key: its chunk key.
        lower: keys after this; None from the beginning.
        last: keys up to and with this.
        rows: how many rows a chunk has.
        chunks: how many keys at the most.
        conditions: predicates that rows must meet.
    """
    bounds: list[Key] = []
    while len(bounds) < chunks:
        lines = connection.rows(statements.chunk_bound(table, key, lower, last, rows, conditions))
        if not lines:
            break
        lower = tuple(lines[0])
        bounds.append(lower)
    return bounds


# Reading, in executors.


def read_chunk(
    table: PostgresTable,
    chunk: Chunk,
    settings: PostgresSettings,
    capture_time: dt.datetime | None,
    *,
    snapshot: str | None,
    file: TableFile | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of one chunk, with the table's schema first.

    Args:
        table: the chunk's table.
        chunk: which rows of it.
        settings: the source's options.
        capture_time: when the batch was planned.
        snapshot: the keeper's snapshot; None to read a table with a key as it is.
        file: takes rows, which are then not given; None where all are given.

    Raises:
        CaptureError: the table was altered, may not be read or can't be locked; or its snapshot went while it was
            read, and it has no key.
    """
    rows = snapshot_rows(table, settings, capture_time)
    yield rows.schema_of(chunk)
    select = SelectOverrides.of(settings).select(table.id)
    with connect(settings) as connection:
        texts = _chunk_texts(connection, table, chunk, settings, select, snapshot)
        yield from rows.of_chunk(chunk, texts, numbered=not table.chunk_key, file=file)
    faultpoints.reach("source.snapshot.chunk")


def _chunk_texts(
    connection: Connection,
    table: PostgresTable,
    chunk: Chunk,
    settings: PostgresSettings,
    select: str | None,
    snapshot: str | None,
) -> Iterator[list[pa.Array]]:
    with _reporting(connection, table, settings):
        _begin(connection, table, settings, snapshot, live=bool(table.chunk_key))
        if select is not None:
            try:
                yield from texts_of(connection, table, statements.copy_rows_of_select(table, select))
            except PostgresError as error:
                raise failed(table.id, error) from error
            return
        if table.chunk_key:
            key = key_columns(connection, table) if (chunk.lower or chunk.upper) else ()
            conditions = statements.in_range(table, key, chunk.lower, chunk.upper)
        else:
            conditions = statements.in_blocks(chunk.lower, chunk.upper)
        yield from texts_of(connection, table, statements.copy_rows(table, conditions))


def _begin(
    connection: Connection, table: PostgresTable, settings: PostgresSettings, snapshot: str | None, *, live: bool
) -> None:
    """Begin the transaction in which a chunk is read.

    Args:
        connection: to the database.
        table: the chunk's table.
        settings: the source's options.
        snapshot: the keeper's; None to read the table as it is.
        live: whether it may be read as it is where the snapshot has ended.
    """
    if snapshot is not None:
        connection.run(statements.BEGIN)
        try:
            connection.run(statements.import_snapshot(snapshot))
        except PostgresError as error:
            if error.sqlstate not in _SNAPSHOT_GONE:
                raise
            connection.run(statements.END)
            if not live:
                raise snapshot_ended(table.id.path) from error
            say_once(f"The snapshot of table '{table.id.path}' has ended; the rest of it is read as it is now.")
        else:
            connection.run(statements.lock_timeout(settings.snapshot_lock_timeout_ms))
            connection.run(statements.IN_ORDER)
            return
    elif not live:
        raise snapshot_ended(table.id.path)
    begin_as_it_is(connection, table, settings)


def begin_as_it_is(connection: Connection, table: PostgresTable, settings: PostgresSettings) -> None:
    """Begin a transaction that sees a table as it is now, and keeps it so.

    Raises:
        MomentGone: it is not there any more, or was altered since the offset knows it.
        CaptureError: it can't be locked in time.
    """
    connection.run(statements.BEGIN)
    connection.run(statements.lock_timeout(settings.snapshot_lock_timeout_ms))
    connection.run(statements.IN_ORDER)
    try:
        lock_table(connection, table, settings)
    except PointPassed as passed:
        raise MomentGone(altered(table)) from passed
    if not is_as_known(connection, table):
        raise MomentGone(altered(table))


def is_as_known(connection: Connection, table: PostgresTable) -> bool:
    """Whether a table is there, under its name and with its columns as the offset knows them."""
    columns = {
        str(name): (int(oid), int(typmod))
        for name, oid, typmod in connection.rows(statements.STRUCTURE, (table.oid, table.id.schema, table.id.name))
    }
    known = {
        column.name: (native.oid, native.typmod)
        for column, native in zip(table.schema.columns, table.natives, strict=True)
    }
    if not columns.keys() >= known.keys():
        return False
    others = [name for name, declared in known.items() if columns[name] != declared]
    if not others:
        return True
    # A domain is not declared as what it is made of.
    types = TypeCatalog.of(connection)
    resolved = {name: types.resolve(*columns[name]) for name in others}
    return all((native.oid, native.typmod) == known[name] for name, native in resolved.items())


def is_altered(error: Exception) -> bool:
    """Whether an error says that a table is not there any more as the offset knows it."""
    return isinstance(error, MomentGone) or (isinstance(error, PostgresError) and error.sqlstate in _ALTERED)


def altered(table: PostgresTable) -> CaptureError:
    return CaptureError(
        f"Table '{table.id.path}' was altered, renamed or dropped before its snapshot was read.",
        remedy="Start again: the table is read once more, from its beginning.",
    )


@contextmanager
def _reporting(connection: Connection, table: PostgresTable, settings: PostgresSettings) -> Iterator[None]:
    try:
        yield
    except MomentGone as gone:
        raise gone.error from gone
    except PostgresError as error:
        if error.sqlstate == LOCK_NOT_AVAILABLE:
            connection.run(statements.END)
            raise not_locked(connection, table, settings) from error
        if is_altered(error):
            raise altered(table) from error
        raise


def texts_of(connection: Connection, table: PostgresTable, sql: str) -> Iterator[list[pa.Array]]:
    """What a COPY gives of a table's columns, as canonical texts, in batches of about a megabyte."""
    for columns in csv_columns(connection.copy(sql), len(table.natives)):
        yield [native.texts(column) for native, column in zip(table.natives, columns, strict=True)]


def snapshot_rows(table: PostgresTable, settings: PostgresSettings, capture_time: dt.datetime | None) -> SnapshotRows:
    masks = Masks.of(settings).of_table(table.schema, table.natives)

    def sources(commit: str, count: int) -> pa.Array:
        place = lsn.boundary(commit)
        facts = {"connector": CONNECTOR, "lsn": str(place), "sequence": f'[null,"{place}"]'}
        return constant_map(facts, count)

    return SnapshotRows(CONNECTOR, table.schema, masks, sources, capture_time)
