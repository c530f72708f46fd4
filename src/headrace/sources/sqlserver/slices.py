"""Slices: what one task reads, how it is described to it, and how it is read.

A description holds JSON values only and everything that the task needs, so that no executor asks the catalog.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from headrace import faultpoints
from headrace.changes import Operation, Position, TableSchema
from headrace.changes.key_text import key_texts
from headrace.options import Options
from headrace.sources.base import Slice
from headrace.sources.images import Images
from headrace.sources.offset import Offset
from headrace.sources.rows import change_batch, instants, repeat, schema_batch, table_column
from headrace.sources.snapshot import BETWEEN, Chunk, mark
from headrace.sources.sqlserver import statements
from headrace.sources.sqlserver.catalog import CapturedTable, CaptureInstance
from headrace.sources.sqlserver.change_rows import CONNECTOR, snapshot_sources
from headrace.sources.sqlserver.connection import Connection
from headrace.sources.sqlserver.retention import require_retained
from headrace.sources.sqlserver.rewind import settled_rows
from headrace.sources.sqlserver.types import NativeType
from headrace.sources.sqlserver.windows import change_reader, changes, commit_times

SNAPSHOT, STREAM = "snapshot", "stream"
_SCHEMA_ORDER = "s"
"""Order of a stream's schema row: after everything of the commit before the window."""
_SNAPSHOT_SCHEMA_ORDER = "q"
"""Order of a snapshot's schema row: before the rows read at its commit."""


def snapshot_slice(table: CapturedTable, chunk: Chunk, end: Offset) -> Slice:
    """The task that reads one chunk."""
    return Slice(
        SNAPSHOT,
        {
            **_table_details(table),
            "chunk": asdict(chunk),
            "capture_time": _time_text(end.capture_time),
        },
    )


def stream_slice(table: CapturedTable, after: str, upto: str, end: Offset, *, first: bool) -> Slice:
    """The task that reads one table's commits in (after, upto].

    The first one of a window says the table's structure.
    """
    return Slice(
        STREAM,
        {
            **_table_details(table),
            "after": after,
            "upto": upto,
            "capture_time": _time_text(end.capture_time),
            "zone": end.clock,
            "first": first,
        },
    )


def read_slice(connection: Connection, slice: Slice, settings: Options) -> Iterator[pa.RecordBatch]:
    """The change rows of a slice, in position order."""
    table = table_of(slice.details)
    if slice.kind == SNAPSHOT:
        yield from _read_chunk(connection, table, slice.details, settings)
    else:
        yield from _read_window(connection, table, slice.details)


def _read_window(connection: Connection, table: CapturedTable, details: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    after, upto = details["after"], details["upto"]
    capture_time = _time(details["capture_time"])
    if details["first"]:
        yield schema_batch(table.schema, Position(after, _SCHEMA_ORDER), capture_time, CONNECTOR)
    times = commit_times(connection, after, upto, details["zone"])
    batches = changes(connection, table, after, upto)
    for batch in change_reader(table, times, capture_time).read(batches):
        yield batch
        faultpoints.reach("source.stream.batch")
    require_retained(connection, table.id, table.instance.name, after)


def _read_chunk(
    connection: Connection, table: CapturedTable, details: dict[str, Any], settings: Options
) -> Iterator[pa.RecordBatch]:
    chunk = chunk_of(details["chunk"])
    capture_time = _time(details["capture_time"])
    if chunk.number == 0 or chunk.lower is not None:
        yield schema_batch(table.schema, Position(chunk.commit, _SNAPSHOT_SCHEMA_ORDER), capture_time, CONNECTOR)
    columns: Iterator[list[pa.Array]]
    if table.chunk_key:
        sql, parameters = statements.rows_in_range(table, table.chunk_key, chunk.lower, chunk.upper)
        columns = (
            [native.texts(batch.column(i)) for i, native in enumerate(table.natives)]
            for batch in connection.batches(sql, parameters)
        )
    else:
        columns = settled_rows(connection, table, chunk.commit, settings["capture_timeout_seconds"])
    row = 0
    pending: list[pa.Array] | None = None
    for texts in columns:
        # The last row of a chunk can carry a mark, so one batch is always held back.
        if pending is not None:
            yield _snapshot_batch(table, chunk, pending, row, capture_time, last=False)
            row += len(pending[0])
        pending = texts
        faultpoints.reach("source.snapshot.batch")
    if pending is not None:
        yield _snapshot_batch(table, chunk, pending, row, capture_time, last=True)
    faultpoints.reach("source.snapshot.chunk")


def _snapshot_batch(
    table: CapturedTable, chunk: Chunk, texts: list[pa.Array], row: int, capture_time: dt.datetime | None, *, last: bool
) -> pa.RecordBatch:
    count = len(texts[0])
    rows = np.arange(count)
    marks = [BETWEEN] * count
    if row == 0:
        marks[0] = mark(chunk, first=True, last=last and count == 1)
    if last and not (row == 0 and count == 1):
        marks[-1] = mark(chunk, first=False, last=True)
    names = [column.name for column in table.schema.columns]
    columns = {
        "op": repeat(Operation.READ.value, pa.string(), count),
        "table": table_column(table.id, count),
        "after": Images(names, texts).maps(rows, count, rows),
        "position": _positions(table, chunk, row, count),
        "event_time": instants(capture_time, count),
        "capture_time": instants(capture_time, count),
        "snapshot": pa.array(marks, pa.string()),
        "source": snapshot_sources(chunk.commit, count),
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


def _table_details(table: CapturedTable) -> dict[str, Any]:
    instance = table.instance
    return {
        "schema": table.schema.to_json(),
        "natives": [[n.name, n.max_length, n.precision, n.scale] for n in table.natives],
        "instance": [instance.name, instance.start_lsn, [list(c) for c in instance.columns], instance.has_command_id],
    }


def table_of(details: dict[str, Any]) -> CapturedTable:
    """The table that a slice's description names, as the planner saw it."""
    name, start, columns, has_command_id = details["instance"]
    return CapturedTable(
        TableSchema.from_json(details["schema"]),
        tuple(NativeType(*native) for native in details["natives"]),
        (CaptureInstance(name, start, tuple((n, o) for n, o in columns), has_command_id),),
    )


def chunk_of(details: dict[str, Any]) -> Chunk:
    """The chunk that a slice's description holds."""
    lower, upper = details["lower"], details["upper"]
    return Chunk(
        **{
            **details,
            "lower": None if lower is None else tuple(lower),
            "upper": None if upper is None else tuple(upper),
        }
    )


def _time_text(time: dt.datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _time(text: str | None) -> dt.datetime | None:
    return None if text is None else dt.datetime.fromisoformat(text)
