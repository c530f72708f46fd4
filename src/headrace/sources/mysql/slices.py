"""Slices: what one task reads, with everything that it needs.

Each kind is a class, whose objects reach the executor pickled.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

import pyarrow as pa

from headrace.changes import TableSchema
from headrace.changes.one_table import work_on
from headrace.changes.table_files import TableFiles
from headrace.sources.log.slices import LogSlice
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.connection import connect
from headrace.sources.mysql.incremental import read_incremental
from headrace.sources.mysql.log_read import require_server
from headrace.sources.mysql.markers import connector
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.snapshot_read import SnapshotReader
from headrace.sources.mysql.stream_read import changes_of, read_window
from headrace.sources.mysql.stream_state import LogState
from headrace.sources.mysql.visibility import Snapshots
from headrace.sources.mysql.window import Window
from headrace.sources.snapshots.chunks import Chunk
from headrace.sources.snapshots.requests import INCREMENTAL, IncrementalChunk

MysqlSlice = LogSlice[MysqlSettings]
"""What one task reads."""


@dataclass(frozen=True)
class SnapshotSlice(LogSlice[MysqlSettings]):
    """Reads one chunk of a snapshot.

    Args:
        table: the chunk's table.
        chunk: which rows of it.
        log: the server and its log.
        capture_time: when the batch was planned.
    """

    kind: ClassVar[str] = "snapshot"
    same_rows: ClassVar[bool] = False
    table: MysqlTable
    chunk: Chunk
    log: LogState
    capture_time: dt.datetime | None

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.chunk.table,)

    @property
    def schemas(self) -> Sequence[TableSchema]:
        return [self.table.schema]

    def rows(self, settings: MysqlSettings) -> Iterator[pa.RecordBatch]:
        reader = _reader(settings, self.log)
        with work_on(self.table.schema.id):
            yield from reader.chunk(self.table, self.chunk, self.capture_time)

    def rows_to_files(self, settings: MysqlSettings, files: TableFiles) -> Iterator[pa.RecordBatch]:
        reader = _reader(settings, self.log)
        with work_on(self.table.schema.id):
            yield from reader.chunk(self.table, self.chunk, self.capture_time, files.file(self.table.schema))


@dataclass(frozen=True)
class IncrementalSlice(LogSlice[MysqlSettings]):
    """Reads one chunk of an incremental snapshot.

    Args:
        table: the chunk's table.
        chunk: which rows of it.
        commit: where the batch ends.
        log: the server and its log.
        capture_time: when it was planned.
    """

    kind: ClassVar[str] = INCREMENTAL
    same_rows: ClassVar[bool] = False
    table: MysqlTable
    chunk: IncrementalChunk
    commit: str
    log: LogState
    capture_time: dt.datetime | None

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.chunk.table,)

    @property
    def schemas(self) -> Sequence[TableSchema]:
        return [self.table.schema]

    def rows(self, settings: MysqlSettings) -> Iterator[pa.RecordBatch]:
        reader = _reader(settings, self.log)
        with work_on(self.table.schema.id):
            yield from read_incremental(reader, self.table, self.chunk, self.commit, self.capture_time)


@dataclass(frozen=True)
class StreamSlice(LogSlice[MysqlSettings]):
    """Reads a window of the log.

    Args:
        window: which, and of which tables.
        capture_time: when the batch was planned.
    """

    kind: ClassVar[str] = "stream"
    window: Window
    capture_time: dt.datetime | None

    @property
    def schemas(self) -> Sequence[TableSchema]:
        return [table.schema for table in self.window.tables.values()]

    def without(self, table: str) -> Self:
        return replace(self, window=self.window.without(table))

    def rows(self, settings: MysqlSettings) -> Iterator[pa.RecordBatch]:
        yield from read_window(self.window, settings, self.capture_time)


def _reader(settings: MysqlSettings, log: LogState) -> SnapshotReader:
    """What reads tables of the server that a log is of.

    Raises:
        PositionMismatch: another server answers.
    """
    with connect(settings) as session:
        require_server(session, log.server)
        server = session.server
    name = connector(log.kind)
    read = changes_of(settings, log)
    return SnapshotReader(partial(connect, settings), Snapshots(server, log.epoch), name, log.base, settings, read)
