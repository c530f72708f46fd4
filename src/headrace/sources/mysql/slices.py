"""Slices: what one task reads of tables and of the binary log, with everything that it needs.

Nothing is kept on the server, so the same window can be read again, byte for byte, by a retry or a second copy of the
task.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import pyarrow as pa

from headrace.changes.one_table import work_on
from headrace.changes.table_files import TableFiles
from headrace.sources.log.window import ChunkSlice, LogSlice, WindowSlice
from headrace.sources.mysql.binlog_position import BinlogPosition
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.connection import connect
from headrace.sources.mysql.decode import WindowDecoder
from headrace.sources.mysql.incremental import read_incremental
from headrace.sources.mysql.log_read import PreparedBefore, log_from, log_up_to, require_server
from headrace.sources.mysql.markers import connector
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.snapshot_read import Changes, SnapshotReader
from headrace.sources.mysql.stream_state import LogState
from headrace.sources.mysql.transactions import Prepared
from headrace.sources.mysql.visibility import Snapshots
from headrace.sources.mysql.window import Window
from headrace.sources.snapshots.chunks import Chunk
from headrace.sources.snapshots.requests import INCREMENTAL, IncrementalChunk


def read_window(window: Window, settings: MysqlSettings, capture_time: dt.datetime | None) -> Iterator[pa.RecordBatch]:
    """The change rows of a window, in position order.

    Raises:
        PositionMismatch: another server answers than the window is of, or its log was reset.
        DataLossError: a file of the window is not there any more.
        LostConnection: the server went away; nothing is lost, and the window can be read again.
        CaptureError: the log has what can't be read.
    """
    server, mark = window.server, window.mark
    decoder = WindowDecoder(
        window,
        settings,
        capture_time,
        again=partial(log_from, settings, window.log, server=server),
        earlier=PreparedBefore(settings, window.log, window.start, server=server),
    )
    blocks = log_up_to(settings, window.log, window.start, lambda: decoder.boundary, server=server, mark=mark)
    with closing(blocks) as log:
        while not decoder.finished:
            data = next(log, b"")
            if not data:
                break
            yield from decoder.feed(data)
    yield from decoder.finish()


def changes_of(settings: MysqlSettings, log: LogState, prepared: Iterable[Prepared] = ()) -> Changes:
    """What reads the changes of one table between two boundaries, for snapshots: all of them, with values as they are.

    Args:
        settings: the source's options.
        log: the server and its log.
        prepared: the distributed transactions that were prepared before, and may be decided in between.
    """
    whole = settings.replaced(
        column_mask_with=None,
        column_mask_hash=None,
        column_truncate_to=None,
        skipped_operations=(),
        skip_messages_without_change=False,
        provide_transaction_metadata=False,
        include_query=False,
    )
    held = tuple(prepared)

    def changes(table: MysqlTable, low: BinlogPosition, high: BinlogPosition) -> Iterable[pa.RecordBatch]:
        name = connector(log.kind)
        window = Window(
            low,
            high,
            log.base,
            name,
            {table.path: table},
            prepared=held,
            server=log.server,
            folds_names=log.folds_names,
        )
        return read_window(window, whole, None)

    return changes


MysqlSlice = LogSlice[MysqlSettings]
"""What one task reads."""


@dataclass(frozen=True)
class SnapshotSlice(ChunkSlice[MysqlSettings, MysqlTable, Chunk]):
    """Reads one chunk of a snapshot.

    Args:
        log: the server and its log.
    """

    kind: ClassVar[str] = "snapshot"
    log: LogState

    def rows(self, settings: MysqlSettings) -> Iterator[pa.RecordBatch]:
        reader = _reader(settings, self.log)
        with work_on(self.table.schema.id):
            yield from reader.chunk(self.table, self.chunk, self.capture_time)

    def rows_to_files(self, settings: MysqlSettings, files: TableFiles) -> Iterator[pa.RecordBatch]:
        reader = _reader(settings, self.log)
        with work_on(self.table.schema.id):
            yield from reader.chunk(self.table, self.chunk, self.capture_time, files.file(self.table.schema))


@dataclass(frozen=True)
class IncrementalSlice(ChunkSlice[MysqlSettings, MysqlTable, IncrementalChunk]):
    """Reads one chunk of an incremental snapshot.

    Args:
        commit: where the batch ends.
        log: the server and its log.
    """

    kind: ClassVar[str] = INCREMENTAL
    commit: str
    log: LogState

    def rows(self, settings: MysqlSettings) -> Iterator[pa.RecordBatch]:
        reader = _reader(settings, self.log)
        with work_on(self.table.schema.id):
            yield from read_incremental(reader, self.table, self.chunk, self.commit, self.capture_time)


@dataclass(frozen=True)
class StreamSlice(WindowSlice[MysqlSettings, Window]):
    """Reads a window of the log."""

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
