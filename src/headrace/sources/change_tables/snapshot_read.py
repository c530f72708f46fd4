"""How snapshot rows are read: chunk by chunk in sessions of their own, or all tables in one session.

What each isolation mode gives: `exclusive` and `snapshot` hold one session's view of all
tables, so one task reads everything; the others read chunks in parallel, each consistent in itself, and the stream from
the snapshot's commit on brings every chunk up to date.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from headrace import faultpoints
from headrace.changes import Operation, Position
from headrace.changes.key_text import key_texts
from headrace.options import Options
from headrace.sources.change_tables.captured_table import CapturedTable, column_texts
from headrace.sources.change_tables.chunks import columns_there, isolation
from headrace.sources.change_tables.connection import Connection, MissingObject, StatementError
from headrace.sources.change_tables.events import snapshot_sources
from headrace.sources.change_tables.rewind import settled_rows
from headrace.sources.images import Images
from headrace.sources.rows import change_batch, instants, repeat, schema_batch, table_column
from headrace.sources.snapshots.chunks import Chunk, end_position, marks, untold_end
from headrace.sources.snapshots.select_overrides import SelectOverrides, failed
from headrace.sources.tables.masks import Masks

_SCHEMA_ORDER = "q"
"""Order of a snapshot's schema row: before the rows read at its commit."""
_LOG = logging.getLogger("headrace.sources")


def read_chunk(
    connection: Connection, table: CapturedTable, chunk: Chunk, settings: Options, capture_time: dt.datetime | None
) -> Iterator[pa.RecordBatch]:
    """The rows of one chunk, with the table's schema first. A table that went away has none, which is said."""
    if _by_itself(table, settings):
        yield from _rows(connection, table, chunk, settings, capture_time)
        return
    with _transaction(connection, settings, [table]):
        yield from _rows(connection, table, chunk, settings, capture_time)


def read_session(
    connect: Callable[[], Connection],
    pieces: Sequence[tuple[CapturedTable, Chunk]],
    settings: Options,
    capture_time: dt.datetime | None,
) -> Iterator[pa.RecordBatch]:
    """The rows of all tables, in one transaction that sees one state of them.

    A table without a key is read beside it, in a session of its own: it is taken back to the snapshot's commit, for
    which the reader has to see what is captured meanwhile.
    """
    seen = [table for table, _ in pieces if not _by_itself(table, settings)]
    with connect() as session, _transaction(session, settings, seen):
        for table, chunk in pieces:
            if _by_itself(table, settings):
                with connect() as own:
                    yield from _rows(own, table, chunk, settings, capture_time)
            else:
                yield from _rows(session, table, chunk, settings, capture_time, patient=True)


def _by_itself(table: CapturedTable, settings: Options) -> bool:
    """Whether a table is read under a lock of its own, whatever the isolation mode."""
    return not table.chunk_key and SelectOverrides.of(settings).select(table.id) is None


@contextmanager
def schema_lock(connection: Connection, settings: Options, tables: Sequence[CapturedTable]) -> Iterator[bool]:
    """Keep tables from being altered while their schema and the snapshot's commit are read; only where asked.

    Gives whether they are locked.
    """
    if isolation(settings) != "repeatable_read" or settings["snapshot_locking_mode"] == "none":
        yield False
        return
    with _locked(connection, settings, tables):
        yield True


@contextmanager
def _transaction(connection: Connection, settings: Options, tables: Sequence[CapturedTable]) -> Iterator[None]:
    mode = isolation(settings)
    if mode == "read_committed":
        # The server's own way: every statement sees what is committed, nothing has to be held.
        yield
        return
    connection.run(connection.statements.ISOLATION[mode])
    locked = mode == "exclusive" and settings["snapshot_locking_mode"] != "none"
    try:
        with _locked(connection, settings, tables) if locked else _begun(connection):
            yield
    finally:
        # The driver keeps sessions in a pool, and the next who gets this one expects the usual level.
        connection.run(connection.statements.ISOLATION["read_committed"])


@contextmanager
def _begun(connection: Connection) -> Iterator[None]:
    connection.begin()
    try:
        yield
    finally:
        connection.end()


@contextmanager
def _locked(connection: Connection, settings: Options, tables: Sequence[CapturedTable]) -> Iterator[None]:
    connection.run(connection.statements.lock_timeout(settings["snapshot_lock_timeout_ms"]))
    try:
        with _begun(connection):
            for table in tables:
                connection.run(connection.statements.lock(table))
            yield
    finally:
        connection.run(connection.statements.lock_timeout(-1))


def _rows(
    connection: Connection,
    table: CapturedTable,
    chunk: Chunk,
    settings: Options,
    capture_time: dt.datetime | None,
    *,
    patient: bool = False,
) -> Iterator[pa.RecordBatch]:
    if chunk.number == 0 or chunk.lower is not None:
        yield schema_batch(
            table.schema, Position(chunk.commit, _SCHEMA_ORDER), capture_time, connection.dialect.connector
        )
    try:
        yield from _data(connection, table, chunk, settings, capture_time, patient=patient)
    except MissingObject:
        _LOG.warning("Table '%s' went away while its snapshot was read; the run goes on without it.", table.id.path)
    faultpoints.reach("source.snapshot.chunk")


def _data(
    connection: Connection,
    table: CapturedTable,
    chunk: Chunk,
    settings: Options,
    capture_time: dt.datetime | None,
    *,
    patient: bool = False,
) -> Iterator[pa.RecordBatch]:
    there = columns_there(connection, table)
    masks = Masks.of(settings).of_table(table.schema, table.natives)
    select = SelectOverrides.of(settings).select(table.id)
    # What is not cut into pieces takes as long as the table is large.
    patient = patient or not settings["snapshot_chunk_rows"]
    columns: Iterator[list[pa.Array]]
    if select is not None and there:
        columns = _overridden(connection, table, select)
    elif table.chunk_key:
        sql, parameters = connection.statements.rows_in_range(
            table, table.chunk_key, chunk.lower, chunk.upper, present=there
        )
        columns = (
            column_texts(table.schema, table.natives, batch)
            for batch in connection.batches(sql, parameters, rows=table.batch_rows, patient=patient)
        )
    else:
        columns = settled_rows(connection, table, chunk.commit, settings, present=there)
    connector = connection.dialect.connector
    row = 0
    pending: list[pa.Array] | None = None
    for texts in columns:
        if not len(texts[0]):
            continue
        # The last row of a chunk can carry a mark, so one batch is always held back.
        if pending is not None:
            yield snapshot_batch(connector, table, chunk, masks.apply(pending), row, capture_time, last=False)
            row += len(pending[0])
        pending = texts
        faultpoints.reach("source.snapshot.batch")
    if pending is not None:
        yield snapshot_batch(connector, table, chunk, masks.apply(pending), row, capture_time, last=True)
        row += len(pending[0])
    end = untold_end(chunk, row)
    if end is not None:
        position = end_position(chunk.commit, chunk.ordinal, chunk.read)
        yield schema_batch(table.schema, position, capture_time, connector, snapshot=end)


def _overridden(connection: Connection, table: CapturedTable, select: str) -> Iterator[list[pa.Array]]:
    """The rows that a statement of the user's gives.

    Raises:
        CaptureError: it does not give a captured column, or names an object that is not there.
    """
    try:
        sql = connection.statements.rows_of_select(table, select)
        for batch in connection.batches(sql, rows=table.batch_rows, patient=True):
            yield column_texts(table.schema, table.natives, batch)
    except (StatementError, MissingObject) as error:
        raise failed(table.id, error) from error


def snapshot_batch(
    connector: str,
    table: CapturedTable,
    chunk: Chunk,
    texts: list[pa.Array],
    row: int,
    capture_time: dt.datetime | None,
    *,
    last: bool,
) -> pa.RecordBatch:
    """Rows that were read as change rows.

    Args:
        connector: the connector's name in events.
        table: the table.
        chunk: the chunk that they are of.
        texts: a column of canonical text per column of the table, as it may be given out.
        row: how many rows of the chunk came before.
        capture_time: when the batch was planned.
        last: whether no more rows of the chunk follow.
    """
    count = len(texts[0])
    positions = _positions(table, chunk, row, count)
    return read_batch(
        connector,
        table,
        texts,
        chunk.commit,
        pa.array(marks(chunk, row, count, last=last), pa.string()),
        positions,
        capture_time,
    )


def read_batch(
    connector: str,
    table: CapturedTable,
    texts: list[pa.Array],
    commit: str,
    marks: pa.Array,
    positions: pa.Array,
    capture_time: dt.datetime | None,
) -> pa.RecordBatch:
    """Rows of a live table as change rows.

    Args:
        connector: the connector's name in events.
        table: the table.
        texts: a column of canonical text per column of the table, as it may be given out (`TableMasks.apply`).
        commit: the commit that they are stamped with.
        marks: the snapshot mark of each row.
        positions: the position of each row.
        capture_time: when the batch was planned.
    """
    count = len(texts[0])
    rows = np.arange(count)
    names = [column.name for column in table.schema.columns]
    columns = {
        "op": repeat(Operation.READ.value, pa.string(), count),
        "table": table_column(table.id, count),
        "after": Images(names, texts).maps(rows, count, rows),
        "position": positions,
        "event_time": instants(capture_time, count),
        "capture_time": instants(capture_time, count),
        "snapshot": marks,
        "source": snapshot_sources(connector, commit, count),
        "schema_id": repeat(table.schema.fingerprint, pa.string(), count),
    }
    if table.schema.key:
        keys = [texts[names.index(name)] for name in table.schema.key]
        columns["key"] = Images(table.schema.key, keys).maps(rows, count, rows)
        columns["key_text"] = key_texts(keys)
    return change_batch(count, columns)


def _positions(table: CapturedTable, chunk: Chunk, row: int, count: int) -> pa.Array:
    """The positions of rows that were read.

    A keyed chunk is read from the live table, so a replay may find a row at another place in it: all its rows share one
    position, and no key goes back when the chunk comes again. Rows without a key are told apart by their number.
    """
    if table.chunk_key:
        return repeat(chunk.position(0).text, pa.string(), count)
    return pa.array([chunk.position(number).text for number in range(row, row + count)], pa.string())
