"""How snapshot rows are read: chunk by chunk in sessions of their own, or all tables in one session.

What each isolation mode gives: `exclusive` and `snapshot` hold one session's view of all
tables, so one task reads everything; the others read chunks in parallel, each consistent in itself, and the stream from
the snapshot's commit on brings every chunk up to date.

A table without a key is read at once, and then taken back to the snapshot's commit. Rows of a keyed table may be read
later than the commit they are stamped with, because the stream brings the changes in between again and the key absorbs
them. Without a key a repeated insert would be a second row. So the table is read under a shared lock, the reader waits
(bounded) until the capture job has passed the read, and undoes the changes in
between: what is left is the table as it was at the commit, byte for byte again on a replay.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pyarrow as pa

from headrace import faultpoints
from headrace.errors import CaptureError
from headrace.sources.change_tables.capture_wait import ROUNDING, CaptureMoment, CaptureWait
from headrace.sources.change_tables.captured_table import CapturedTable, column_texts
from headrace.sources.change_tables.chunks import columns_there, isolation
from headrace.sources.change_tables.connection import Connection, MissingObject, StatementError
from headrace.sources.change_tables.options import ChangeTableSettings
from headrace.sources.change_tables.schema_history import Window
from headrace.sources.change_tables.windows import change_images, snapshot_sources
from headrace.sources.rows import Spool
from headrace.sources.snapshots.chunks import Chunk
from headrace.sources.snapshots.select_overrides import SelectOverrides, failed
from headrace.sources.snapshots.snapshot_rows import Row, SnapshotRows, rewound
from headrace.sources.tables.masks import Masks


def settled_rows(
    connection: Connection,
    table: CapturedTable,
    commit: str,
    settings: ChangeTableSettings,
    *,
    present: Collection[str],
) -> Iterator[list[pa.Array]]:
    """The rows of a table without a key as they were at a commit, as columns of canonical text.

    Args:
        connection: to the database.
        table: the table.
        commit: the commit.
        settings: the source's options.
        present: the columns that the table still has.

    Raises:
        CaptureError: the capture job did not pass the read in time, or a change in between does not carry whole images.
    """
    wait = CaptureWait(connection, settings)
    batches, read = _read_locked(connection, table, present, wait)
    upto = max(commit, wait.until_passed(table, read))
    undo = _changes_between(connection, Window(table, commit, upto)) if upto > commit else None
    if undo is None or not (undo[0] or undo[1]):
        yield from batches
        return
    yield from rewound(batches, *undo)


def _read_locked(
    connection: Connection, table: CapturedTable, present: Collection[str], wait: CaptureWait
) -> tuple[Spool, CaptureMoment]:
    """All rows, and a moment at which no one could write to the table."""
    sql, _ = connection.statements.rows_in_range(table, (), None, None, present=present, locked=True)
    connection.begin()
    try:
        batches = Spool()
        for batch in connection.batches(sql, rows=table.batch_rows, patient=True):
            batches.add(column_texts(table.schema, table.natives, batch))
        read = wait.moment()
        # Nobody commits to the table in this pause, so that rounded commit times are clearly on one side of its middle.
        time.sleep(2 * ROUNDING.total_seconds())
        return batches, read
    finally:
        connection.end()


def _changes_between(connection: Connection, window: Window) -> tuple[Counter[Row], Counter[Row]]:
    """The images that came (to be taken out) and went (to be put back) after a commit."""
    came: Counter[Row] = Counter()
    gone: Counter[Row] = Counter()
    table = window.table
    names = [column.name for column in table.schema.columns]
    for op, before, image in change_images(connection, window):
        if op == "u" and before is None:
            raise CaptureError(
                f"Table '{table.id.path}' has no key, and was updated while it was read by an update that does not say "
                "the row before.",
                remedy="Capture it with images before updates, or take the snapshot while nobody writes to it.",
            )
        for values, counter in ((before, gone), (image, came)):
            if values is None:
                continue
            if len(values) != len(names):
                raise CaptureError(
                    f"Table '{table.id.path}' has no key, and was changed while it was read by a change without whole "
                    "images.",
                    remedy="Take the snapshot while nobody writes to the table, or give it a key.",
                )
            counter[tuple(values[name] for name in names)] += 1
    return came, gone


_LOG = logging.getLogger("headrace.sources")


def read_chunk(
    connection: Connection,
    table: CapturedTable,
    chunk: Chunk,
    settings: ChangeTableSettings,
    capture_time: dt.datetime | None,
) -> Iterator[pa.RecordBatch]:
    """The rows of one chunk, with the table's schema first. A table that went away has none, which is logged."""
    if _by_itself(table, settings):
        yield from _rows(connection, table, chunk, settings, capture_time)
        return
    with _transaction(connection, settings, [table]):
        yield from _rows(connection, table, chunk, settings, capture_time)


def read_session(
    connect: Callable[[], Connection],
    pieces: Sequence[tuple[CapturedTable, Chunk]],
    settings: ChangeTableSettings,
    capture_time: dt.datetime | None,
) -> Iterator[pa.RecordBatch]:
    """The rows of all tables, in one transaction that sees one state of them.

    A table without a key is read beside it, in a session of its own: it is taken back to the snapshot's commit, for
    which the reader has to see what is captured meanwhile.
    """
    together = [table for table, _ in pieces if not _by_itself(table, settings)]
    with connect() as session, _transaction(session, settings, together):
        for table, chunk in pieces:
            if _by_itself(table, settings):
                with connect() as own_session:
                    yield from _rows(own_session, table, chunk, settings, capture_time)
            else:
                yield from _rows(session, table, chunk, settings, capture_time, patient=True)


def _by_itself(table: CapturedTable, settings: ChangeTableSettings) -> bool:
    """Whether a table is read under a lock of its own, whatever the isolation mode."""
    return not table.chunk_key and SelectOverrides.of(settings).select(table.id) is None


@contextmanager
def schema_lock(
    connection: Connection, settings: ChangeTableSettings, tables: Sequence[CapturedTable]
) -> Iterator[bool]:
    """Keep tables from being altered while their schema and the snapshot's commit are read; only where asked.

    Gives whether they are locked.
    """
    if isolation(settings) != "repeatable_read" or settings.snapshot_locking_mode == "none":
        yield False
        return
    with _locked(connection, settings, tables):
        yield True


@contextmanager
def _transaction(
    connection: Connection, settings: ChangeTableSettings, tables: Sequence[CapturedTable]
) -> Iterator[None]:
    mode = isolation(settings)
    if mode == "read_committed":
        # The server's own way: every statement sees what is committed, nothing has to be held.
        yield
        return
    connection.run(connection.statements.ISOLATION[mode])
    locked = mode == "exclusive" and settings.snapshot_locking_mode != "none"
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
def _locked(connection: Connection, settings: ChangeTableSettings, tables: Sequence[CapturedTable]) -> Iterator[None]:
    connection.run(connection.statements.lock_timeout(settings.snapshot_lock_timeout_ms))
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
    settings: ChangeTableSettings,
    capture_time: dt.datetime | None,
    *,
    patient: bool = False,
) -> Iterator[pa.RecordBatch]:
    rows = snapshot_rows(connection.dialect.connector, table, settings, capture_time)
    if chunk.number == 0 or chunk.lower is not None:
        yield rows.schema_of(chunk)
    try:
        texts = _texts(connection, table, chunk, settings, patient=patient)
        # A keyed chunk is read from the live table.
        yield from rows.of_chunk(chunk, texts, numbered=not table.chunk_key)
    except MissingObject:
        _LOG.warning("Table '%s' went away while its snapshot was read; the run goes on without it.", table.id.path)
    faultpoints.reach("source.snapshot.chunk")


def snapshot_rows(
    connector: str, table: CapturedTable, settings: ChangeTableSettings, capture_time: dt.datetime | None
) -> SnapshotRows:
    """What makes change rows of a table's rows.

    Args:
        connector: the connector's name in events.
        table: the table.
        settings: the source's options.
        capture_time: when the batch was planned.
    """
    masks = Masks.of(settings).of_table(table.schema, table.natives)
    return SnapshotRows(connector, table.schema, masks, partial(snapshot_sources, connector), capture_time)


def _texts(
    connection: Connection, table: CapturedTable, chunk: Chunk, settings: ChangeTableSettings, *, patient: bool
) -> Iterator[list[pa.Array]]:
    there = columns_there(connection, table)
    select = SelectOverrides.of(settings).select(table.id)
    # What is not cut into pieces takes as long as the table is large.
    patient = patient or not settings.snapshot_chunk_rows
    if select is not None and there:
        yield from _overridden(connection, table, select)
    elif table.chunk_key:
        sql, parameters = connection.statements.rows_in_range(
            table, table.chunk_key, chunk.lower, chunk.upper, present=there
        )
        for batch in connection.batches(sql, parameters, rows=table.batch_rows, patient=patient):
            yield column_texts(table.schema, table.natives, batch)
    else:
        yield from settled_rows(connection, table, chunk.commit, settings, present=there)


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
