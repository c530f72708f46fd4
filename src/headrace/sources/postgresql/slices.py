"""Slices: what one task reads, with everything that it needs.

Each kind is a class, whose objects reach the executor pickled.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import pyarrow as pa

from headrace.changes import TableSchema
from headrace.changes.one_table import work_on
from headrace.changes.table_files import TableFiles
from headrace.sources.log.slices import LogSlice
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.incremental import read_incremental
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.snapshot_read import read_chunk
from headrace.sources.postgresql.stream_read import Window, read_window
from headrace.sources.postgresql.types import TypeCatalog
from headrace.sources.snapshots.chunks import Chunk
from headrace.sources.snapshots.requests import INCREMENTAL, IncrementalChunk

PostgresSlice = LogSlice[PostgresSettings]
"""What one task reads."""


@dataclass(frozen=True)
class SnapshotSlice(LogSlice[PostgresSettings]):
    """Reads one chunk of a snapshot.

    Args:
        table: the chunk's table.
        chunk: which rows of it.
        snapshot: the exported snapshot in which it is read; None to read the table as it is.
        capture_time: when the batch was planned.
    """

    kind: ClassVar[str] = "snapshot"
    same_rows: ClassVar[bool] = False
    table: PostgresTable
    chunk: Chunk
    snapshot: str | None
    capture_time: dt.datetime | None

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.chunk.table,)

    @property
    def schemas(self) -> Sequence[TableSchema]:
        return [self.table.schema]

    def rows(self, settings: PostgresSettings) -> Iterator[pa.RecordBatch]:
        with work_on(self.table.schema.id):
            yield from read_chunk(self.table, self.chunk, settings, self.capture_time, snapshot=self.snapshot)

    def rows_to_files(self, settings: PostgresSettings, files: TableFiles) -> Iterator[pa.RecordBatch]:
        given = (self.table, self.chunk, settings, self.capture_time)
        with work_on(self.table.schema.id):
            yield from read_chunk(*given, snapshot=self.snapshot, file=files.file(self.table.schema))


@dataclass(frozen=True)
class IncrementalSlice(LogSlice[PostgresSettings]):
    """Reads one chunk of an incremental snapshot.

    Args:
        table: the chunk's table.
        chunk: which rows of it.
        commit: where the batch ends.
        capture_time: when it was planned.
    """

    kind: ClassVar[str] = INCREMENTAL
    same_rows: ClassVar[bool] = False
    table: PostgresTable
    chunk: IncrementalChunk
    commit: str
    capture_time: dt.datetime | None

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.chunk.table,)

    @property
    def schemas(self) -> Sequence[TableSchema]:
        return [self.table.schema]

    def rows(self, settings: PostgresSettings) -> Iterator[pa.RecordBatch]:
        with work_on(self.table.schema.id):
            yield from read_incremental(self.table, self.chunk, self.commit, settings, self.capture_time)


@dataclass(frozen=True)
class StreamSlice(LogSlice[PostgresSettings]):
    """Reads a window of the log.

    Args:
        window: which, and of which tables.
        types: the types that users made.
        capture_time: when the batch was planned.
    """

    kind: ClassVar[str] = "stream"
    window: Window
    types: TypeCatalog = field(repr=False)
    capture_time: dt.datetime | None

    @property
    def schemas(self) -> Sequence[TableSchema]:
        return [table.schema for table in self.window.tables.values()]

    def without(self, table: str) -> Self:
        return replace(self, window=self.window.without(table))

    def rows(self, settings: PostgresSettings) -> Iterator[pa.RecordBatch]:
        yield from read_window(self.window, self.types, settings, self.capture_time)
