"""Slices: what one task reads, how it is described to it, and how it is read.

A description holds JSON values only and everything that the task needs, so that no executor asks the catalog how a
table looks.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headrace import faultpoints
from headrace.changes import Position, TableSchema
from headrace.changes.position import SNAPSHOT_ORDER
from headrace.options import Options
from headrace.sources.base import Slice
from headrace.sources.change_tables.captured_table import ARROW_ROWS, CapturedTable
from headrace.sources.change_tables.connection import Connection, MissingObject
from headrace.sources.change_tables.dialect import Dialect
from headrace.sources.change_tables.incremental import read_incremental
from headrace.sources.change_tables.notices import lost, notice_batch, switched_off
from headrace.sources.change_tables.schema_history import Window
from headrace.sources.change_tables.snapshot_read import read_chunk, read_session
from headrace.sources.change_tables.transactions import read_transactions
from headrace.sources.change_tables.windows import commit_times
from headrace.sources.offset import Offset, time_of, time_text
from headrace.sources.rows import schema_batch
from headrace.sources.snapshots.ad_hoc import INCREMENTAL, IncrementalChunk
from headrace.sources.snapshots.chunks import Chunk

NOTICES, SNAPSHOT, SESSION, STREAM, TRANSACTIONS = "notices", "snapshot", "session", "stream", "transactions"
SAME_ROWS = frozenset((NOTICES, STREAM, TRANSACTIONS))
"""The kinds whose every reading gives the same rows in the same order; the others read live tables."""
_SCHEMA_ORDER = "s"
"""Order of a stream's schema row: after everything of the commit before the window."""
Connect = Callable[[], Connection]


def notices_slice(notices: Sequence[dict[str, Any]], end: Offset) -> Slice:
    """The task that says what has no rows of its own."""
    rows = sorted(notices, key=lambda row: str(row["position"]))
    tables = tuple(dict.fromkeys(path for row in rows if (path := table_of_notice(row)) is not None))
    return Slice(NOTICES, {"rows": rows, "capture_time": time_text(end.capture_time)}, 0.0, tables)


def table_of_notice(row: Mapping[str, Any]) -> str | None:
    """The table (`schema.name`) that a notice is about; null where it is about none."""
    return None if row["table"] is None else ".".join(row["table"][1:])


def begins(slice: Slice) -> str:
    """A position before all data of a slice, and behind all of the commit before."""
    details = slice.details
    if slice.kind == STREAM:
        return Position(details["after"], "t").text
    if slice.kind == TRANSACTIONS:
        return Position(min(window["after"] for window in details["windows"]), "t").text
    if slice.kind == SESSION:
        return Position(min(piece["chunk"]["commit"] for piece in details["tables"]), SNAPSHOT_ORDER).text
    commit = details["chunk"]["commit"] if slice.kind == SNAPSHOT else details["commit"]
    return Position(commit, SNAPSHOT_ORDER).text


def snapshot_slice(table: CapturedTable, chunk: Chunk, end: Offset) -> Slice:
    """The task that reads one chunk."""
    details = {**table.to_json(), "chunk": chunk.to_json(), "capture_time": time_text(end.capture_time)}
    return Slice(SNAPSHOT, details, tables=(chunk.table,))


def session_slice(pieces: Sequence[tuple[CapturedTable, Chunk]], end: Offset) -> Slice:
    """The task that reads all tables in one session."""
    tables = [{**table.to_json(), "chunk": chunk.to_json()} for table, chunk in pieces]
    details = {"tables": tables, "capture_time": time_text(end.capture_time)}
    return Slice(SESSION, details, tables=tuple(chunk.table for _, chunk in pieces))


def incremental_slice(table: CapturedTable, chunk: IncrementalChunk, end: Offset) -> Slice:
    """The task that reads one chunk of an ad-hoc snapshot."""
    return Slice(
        INCREMENTAL,
        {
            **table.to_json(),
            "chunk": chunk.to_json(),
            "commit": end.commit,
            "capture_time": time_text(end.capture_time),
        },
        tables=(chunk.table,),
    )


def stream_slice(window: Window, end: Offset, *, first: bool, weight: float) -> Slice:
    """The task that reads one table's window, which has this share of the changes of its commits.

    The first one of a window says the table's schema.
    """
    return Slice(
        STREAM,
        {**_window(window), "capture_time": time_text(end.capture_time), "zone": end.clock, "first": first},
        weight,
        (window.table.id.path,),
    )


def transactions_slice(windows: Sequence[Window], end: Offset) -> Slice:
    """The task that reads several tables' changes of a range of commits, in commit order."""
    return Slice(
        TRANSACTIONS,
        {
            "windows": [_window(window) for window in windows],
            "capture_time": time_text(end.capture_time),
            "zone": end.clock,
        },
        tables=tuple(window.table.id.path for window in windows),
    )


def read_slice(connect: Connect, slice: Slice, settings: Options, dialect: Dialect) -> Iterator[pa.RecordBatch]:
    """The change rows of a slice, in position order."""
    capture_time = time_of(slice.details["capture_time"])
    if slice.kind == NOTICES:
        yield notice_batch(slice.details["rows"], capture_time)
    elif slice.kind == SNAPSHOT:
        with connect() as connection:
            yield from read_chunk(
                connection,
                table_of(slice.details, dialect),
                Chunk.from_json(slice.details["chunk"]),
                settings,
                capture_time,
            )
    elif slice.kind == SESSION:
        pieces = [(table_of(piece, dialect), Chunk.from_json(piece["chunk"])) for piece in slice.details["tables"]]
        yield from read_session(connect, pieces, settings, capture_time)
    elif slice.kind == INCREMENTAL:
        asked = IncrementalChunk.from_json(slice.details["chunk"])
        with connect() as connection:
            yield from read_incremental(
                connection, table_of(slice.details, dialect), asked, slice.details["commit"], settings, capture_time
            )
    elif slice.kind == STREAM:
        with connect() as connection:
            yield from _read_window(connection, slice.details, settings, capture_time)
    else:
        windows = [window_of(details, dialect) for details in slice.details["windows"]]
        for window in windows:
            yield _schema_row(window, capture_time, dialect)
        yield from read_transactions(connect, windows, settings, slice.details["zone"], capture_time)


def schemas_in(slice: Slice, dialect: Dialect) -> list[TableSchema]:
    """The schemas that the rows of a slice follow."""
    if slice.kind == NOTICES:
        texts = [row["table_schema"] for row in slice.details["rows"]]
        return [TableSchema.from_text(text) for text in texts if text is not None]
    several = {SESSION: "tables", TRANSACTIONS: "windows"}.get(slice.kind)
    tables = [slice.details] if several is None else slice.details[several]
    return [table_of(details, dialect).schema for details in tables]


def _read_window(
    connection: Connection, details: dict[str, Any], settings: Options, capture_time: dt.datetime | None
) -> Iterator[pa.RecordBatch]:
    dialect = connection.dialect
    window = window_of(details, dialect)
    if details["first"]:
        yield _schema_row(window, capture_time, dialect)
    times = commit_times(connection, window.after, window.upto, details["zone"], settings)
    reader = dialect.change_reader(window.table, times, capture_time, settings)
    try:
        for batch in reader.read(dialect.changes(connection, window, settings, rows=ARROW_ROWS)):
            yield batch
            faultpoints.reach("source.stream.batch")
        yield from lost(connection, window, settings, capture_time)
    except MissingObject:
        yield switched_off(dialect.connector, window, settings, capture_time)


def _schema_row(window: Window, capture_time: dt.datetime | None, dialect: Dialect) -> pa.RecordBatch:
    return schema_batch(window.table.schema, Position(window.after, _SCHEMA_ORDER), capture_time, dialect.connector)


def _window(window: Window) -> dict[str, Any]:
    return {**window.table.to_json(), "after": window.after, "upto": window.upto, "newest": window.newest}


def window_of(details: dict[str, Any], dialect: Dialect) -> Window:
    """The window that a slice's description holds."""
    return Window(table_of(details, dialect), details["after"], details["upto"], details["newest"])


def table_of(details: dict[str, Any], dialect: Dialect) -> CapturedTable:
    """The table that a slice's description names, as the planner saw it."""
    return CapturedTable.from_json(details, dialect)
