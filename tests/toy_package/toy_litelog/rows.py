"""What tasks read: chunks of tables, and windows of the log. Runs in executors, with connections of its own.

A row at a time in Python: SQLite's driver gives rows, and this source is an example.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from headrace.changes import Operation, Position
from headrace.sources.images import constant_map
from headrace.sources.log.window import ChunkSlice, WindowSlice
from headrace.sources.offset import Key
from headrace.sources.rows import ChangeRow, change_rows
from headrace.sources.snapshots.chunks import Chunk, KeyLimit, between
from headrace.sources.snapshots.requests import INCREMENTAL, IncrementalChunk
from headrace.sources.snapshots.snapshot_rows import SnapshotRows
from headrace.sources.tables.masks import Masks
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
    return SnapshotRows(
        CONNECTOR, table.schema, masks, lambda commit, count: constant_map(facts_of(commit), count), capture_time
    )


def facts_of(commit: str) -> dict[str, str]:
    """What `source` says of a commit."""
    return {"connector": CONNECTOR, "entry": str(int(commit))}


@dataclass(frozen=True)
class SnapshotSlice(ChunkSlice[LitelogSettings, LiteTable, Chunk]):
    """One chunk of a snapshot, as the table is at the earliest at its commit."""

    kind: ClassVar[str] = "snapshot"

    def rows(self, settings: LitelogSettings) -> Iterator[pa.RecordBatch]:
        rows = _snapshot_rows(self.table, settings, self.capture_time)
        yield rows.schema_of(self.chunk)
        with closing(log.connect(settings.path)) as connection:
            conditions, values = in_range(self.table, self.chunk.lower, self.chunk.upper)
            yield from rows.of_chunk(
                self.chunk, _chunk_texts(connection, self.table, conditions, values), numbered=False
            )


@dataclass(frozen=True)
class IncrementalSlice(ChunkSlice[LitelogSettings, LiteTable, IncrementalChunk]):
    """One chunk that is read beside the stream; what is newer in it than the batch's end comes again with the log."""

    kind: ClassVar[str] = INCREMENTAL
    commit: str

    def rows(self, settings: LitelogSettings) -> Iterator[pa.RecordBatch]:
        table = self.table.cut_by(self.chunk.key)
        conditions, values = in_range(table, self.chunk.lower, self.chunk.upper)
        conditions += [self.chunk.filter] if self.chunk.filter else []
        with closing(log.connect(settings.path)) as connection:
            texts = _chunk_texts(connection, table, conditions, values)
            yield from _snapshot_rows(table, settings, self.capture_time).of_increment(self.chunk, self.commit, texts)


@dataclass(frozen=True)
class Window:
    """A part of the log that one task reads.

    Args:
        after, upto: it has the entries in (after, upto].
        tables: those whose changes are wanted, by path.
        left_out: the tables whose rows were read at a later commit, and that commit.
    """

    after: str
    upto: str
    tables: Mapping[str, LiteTable]
    left_out: Mapping[str, str]

    def without(self, table: str) -> Window:
        return replace(self, tables={path: one for path, one in self.tables.items() if path != table})


@dataclass(frozen=True)
class StreamSlice(WindowSlice[LitelogSettings, Window]):
    """Reads a part of the log."""

    def rows(self, settings: LitelogSettings) -> Iterator[pa.RecordBatch]:
        window, rows = self.window, []
        tables = {table.id.name: (path, table) for path, table in window.tables.items()}
        masks = {name: Masks.of(settings).of_table(table.schema, table.natives) for name, (_, table) in tables.items()}
        with closing(log.connect(settings.path)) as connection:
            for entry in log.entries(connection, int(window.after), int(window.upto)):
                path, table = tables.get(entry.table, ("", None))
                if table is not None and log.text(entry.number) > window.left_out.get(path, ""):
                    before, after = (table.image(image, masks[entry.table]) for image in (entry.before, entry.after))
                    commit, op = log.text(entry.number), Operation(entry.op)
                    position, facts = Position(commit), facts_of(commit)
                    rows.append(ChangeRow(op, table.schema, position, before, after, entry.time, facts))
        yield change_rows(rows, self.capture_time)
