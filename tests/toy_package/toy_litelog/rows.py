"""What tasks read: chunks of tables, and windows of the log. Runs in executors, with connections of its own.

A row at a time in Python: SQLite's driver gives rows, and this source is an example.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from headrace.changes import Position, TableSchema, arrow_schema
from headrace.changes.texts import key_text
from headrace.sources.images import constant_map
from headrace.sources.log.window import ChunkSlice, LogSlice
from headrace.sources.offset import Key
from headrace.sources.snapshots.chunks import Chunk, KeyLimit, between
from headrace.sources.snapshots.requests import INCREMENTAL, IncrementalChunk
from headrace.sources.snapshots.snapshot_rows import SnapshotRows
from headrace.sources.tables.masks import Masks, TableMasks
from toy_litelog import log
from toy_litelog.catalog import LiteTable, quoted
from toy_litelog.options import LitelogSettings

CONNECTOR = "litelog"
_ROWS = 5_000


def in_range(table: LiteTable, lower: Key | None, upper: Key | None) -> tuple[list[str], list[Any]]:
    """The conditions that a row is in a range of keys, and what is bound in them."""

    def bound(key: Key | None) -> list[KeyLimit] | None:
        if key is None:
            return None
        natives = [table.native(name) for name in table.chunk_key]
        pairs = zip(table.chunk_key, natives, key, strict=True)
        return [KeyLimit(quoted(name), False, "?", native.bound(str(text))) for name, native, text in pairs]

    condition, values = between(bound(lower), bound(upper), nulls_first=True)
    return ([condition] if condition else []), values


def _chunk_texts(
    connection: sqlite3.Connection, table: LiteTable, conditions: Sequence[str], values: Sequence[Any]
) -> Iterator[list[pa.Array]]:
    columns = ", ".join(
        native.sql(quoted(column.name)) for column, native in zip(table.schema.columns, table.natives, strict=True)
    )
    where = f" WHERE {' AND '.join(f'({one})' for one in conditions)}" if conditions else ""
    cursor = connection.execute(f"SELECT {columns} FROM {quoted(table.id.name)}{where}", values)
    while lines := cursor.fetchmany(_ROWS):
        cells = zip(table.natives, zip(*lines, strict=True), strict=True)
        yield [pa.array([native.canonical(cell) for cell in column], pa.string()) for native, column in cells]


def _snapshot_rows(table: LiteTable, settings: LitelogSettings, capture_time: dt.datetime | None) -> SnapshotRows:
    masks = Masks.of(settings).of_table(table.schema, table.natives)
    return SnapshotRows(CONNECTOR, table.schema, masks, _facts, capture_time)


def _facts(commit: str, count: int) -> pa.Array:
    return constant_map({"connector": CONNECTOR, "entry": str(int(commit))}, count)


@dataclass(frozen=True)
class SnapshotSlice(ChunkSlice[LitelogSettings]):
    """One chunk of a snapshot, as the table is at the earliest at its commit."""

    kind: ClassVar[str] = "snapshot"
    table: LiteTable
    chunk: Chunk
    capture_time: dt.datetime | None

    def rows(self, settings: LitelogSettings) -> Iterator[pa.RecordBatch]:
        rows = _snapshot_rows(self.table, settings, self.capture_time)
        yield rows.schema_of(self.chunk)
        with log.connected(settings.path) as connection:
            conditions, values = in_range(self.table, self.chunk.lower, self.chunk.upper)
            yield from rows.of_chunk(
                self.chunk, _chunk_texts(connection, self.table, conditions, values), numbered=False
            )


@dataclass(frozen=True)
class IncrementalSlice(ChunkSlice[LitelogSettings]):
    """One chunk that is read beside the stream; what is newer in it than the batch's end comes again with the log."""

    kind: ClassVar[str] = INCREMENTAL
    table: LiteTable
    chunk: IncrementalChunk
    commit: str
    capture_time: dt.datetime | None

    def rows(self, settings: LitelogSettings) -> Iterator[pa.RecordBatch]:
        table = self.table.cut_by(self.chunk.key)
        conditions, values = in_range(table, self.chunk.lower, self.chunk.upper)
        conditions += [self.chunk.filter] if self.chunk.filter else []
        with log.connected(settings.path) as connection:
            texts = _chunk_texts(connection, table, conditions, values)
            yield from _snapshot_rows(table, settings, self.capture_time).of_increment(self.chunk, self.commit, texts)


@dataclass(frozen=True)
class StreamSlice(LogSlice[LitelogSettings]):
    """A window of the log.

    Args:
        after, upto: it has the entries in (after, upto].
        streamed: its tables by path.
        left_out: the tables whose rows were read at a later commit, and that commit.
        capture_time: when it was planned.
    """

    kind: ClassVar[str] = "stream"
    after: str
    upto: str
    streamed: Mapping[str, LiteTable]
    left_out: Mapping[str, str]
    capture_time: dt.datetime | None

    @property
    def schemas(self) -> Sequence[TableSchema]:
        return [table.schema for table in self.streamed.values()]

    def without(self, table: str) -> StreamSlice:
        left = {path: one for path, one in self.streamed.items() if path != table}
        return StreamSlice(self.after, self.upto, left, self.left_out, self.capture_time)

    def rows(self, settings: LitelogSettings) -> Iterator[pa.RecordBatch]:
        tables = {table.id.name: (path, table) for path, table in self.streamed.items()}
        masks = {name: Masks.of(settings).of_table(table.schema, table.natives) for name, (_, table) in tables.items()}
        rows = []
        with log.connected(settings.path) as connection:
            for entry in log.entries(connection, int(self.after), int(self.upto)):
                path, table = tables.get(entry.table, ("", None))
                if table is not None and log.text(entry.number) > self.left_out.get(path, ""):
                    rows.append(self._row(table, masks[entry.table], entry))
        yield pa.RecordBatch.from_pylist(rows, arrow_schema())

    def _row(self, table: LiteTable, masks: TableMasks, entry: log.Entry) -> dict[str, Any]:
        before, after = (table.texts(image, masks) for image in (entry.before, entry.after))
        image = dict(after or before or ())
        key = [(name, image[name]) for name in table.schema.key]
        return {
            "op": entry.op,
            "table": {"database": table.id.database, "schema": table.id.schema, "name": table.id.name},
            "key": key,
            "key_text": key_text([text for _, text in key]),
            "before": before,
            "after": after,
            "position": Position(log.text(entry.number)).text,
            "event_time": log.instant(entry.time),
            "capture_time": self.capture_time,
            "source": [("connector", CONNECTOR), ("entry", str(entry.number))],
            "schema_id": table.schema.fingerprint,
        }
