"""Slices: what one task reads of tables and of the log, with everything that it needs.

Nothing is acknowledged on the permanent slot, so the same window can be read again, byte for byte, by a retry or a
second copy of the task. The copy goes with its session.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pyarrow as pa

from headrace.changes.one_table import work_on
from headrace.changes.table_files import TableFiles
from headrace.sources.log.window import ChunkSlice, LogSlice, WindowSlice
from headrace.sources.postgresql import lsn
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.decode import Before, WindowDecoder
from headrace.sources.postgresql.earlier_structures import statement
from headrace.sources.postgresql.incremental import read_incremental
from headrace.sources.postgresql.markers import PostgresMarkers
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.slots import copy_reader
from headrace.sources.postgresql.snapshot_read import read_chunk
from headrace.sources.postgresql.types import TypeCatalog
from headrace.sources.rows import Marker, marker_batch
from headrace.sources.snapshots.chunks import Chunk
from headrace.sources.snapshots.requests import INCREMENTAL, IncrementalChunk

_WAIT_SECONDS = 1.0


@dataclass(frozen=True)
class Window:
    """A part of the log that one task reads.

    Args:
        start: the boundary at which it begins.
        end: the boundary before which its transactions commit.
        database: where the tables are.
        tables: those whose rows are taken, by path.
        after: for tables whose snapshot is newer than the stream, the commit up to which their changes are in it.
        kept: the oids of the tables that have one name at both ends, whatever they are called in between.
        earlier: tables, by path, as they were before changes of structure in front of `changed`.
        earlier_types: the types that were others then.
        changed: the LSN after these changes; 0 where there were none.
        is_last: whether the batch ends with it.
    """

    start: int
    end: int
    database: str
    tables: Mapping[str, PostgresTable]
    after: Mapping[str, str]
    kept: tuple[int, ...] = ()
    earlier: Mapping[str, PostgresTable] = field(default_factory=dict)
    earlier_types: TypeCatalog = field(default_factory=TypeCatalog)
    changed: int = 0
    is_last: bool = False

    def without(self, table: str) -> Window:
        """The same part of the log without the changes of one table."""
        tables, earlier = (
            {path: one for path, one in known.items() if path != table} for known in (self.tables, self.earlier)
        )
        after = {path: upto for path, upto in self.after.items() if path != table}
        return replace(self, tables=tables, after=after, earlier=earlier)


def read_window(
    window: Window, types: TypeCatalog, settings: PostgresSettings, capture_time: dt.datetime | None
) -> Iterator[pa.RecordBatch]:
    """The change rows of a window, in position order.

    Raises:
        DataLossError: the slot no longer reaches back to the window's start.
        LostConnection: the server went away; nothing is lost, and the window can be read again.
    """
    decoder = WindowDecoder(
        window.start,
        window.end,
        {table.oid: table for table in window.tables.values()},
        types,
        settings,
        window.database,
        capture_time,
        {window.tables[path].oid: lsn.number(commit) for path, commit in window.after.items()},
        frozenset(window.kept),
        Before({table.oid: table for table in window.earlier.values()}, window.earlier_types.types, window.changed),
    )
    with copy_reader(settings, window.start) as reader:
        while not decoder.finished:
            yield from decoder.feed(reader.receive(_WAIT_SECONDS))
        yield from decoder.finish()
    markers = tuple(_unshown(window, decoder.shown))
    if markers:
        yield marker_batch(markers, capture_time)


def _unshown(window: Window, shown: Mapping[int, PostgresTable]) -> Iterator[Marker]:
    """What was done to names of columns and no row of the batch shows, where the batch passes it."""
    if not window.is_last or window.end < window.changed:
        return
    for path in window.earlier:
        now = window.tables[path]
        text = statement(shown[now.oid], now)
        if text:
            yield PostgresMarkers(window.database).altered(now.schema, lsn.commit_before(window.end), text)


PostgresSlice = LogSlice[PostgresSettings]
"""What one task reads."""


@dataclass(frozen=True)
class SnapshotSlice(ChunkSlice[PostgresSettings, PostgresTable, Chunk]):
    """Reads one chunk of a snapshot.

    Args:
        snapshot: the exported snapshot in which it is read; None to read the table as it is.
    """

    kind: ClassVar[str] = "snapshot"
    snapshot: str | None

    def rows(self, settings: PostgresSettings) -> Iterator[pa.RecordBatch]:
        with work_on(self.table.schema.id):
            yield from read_chunk(self.table, self.chunk, settings, self.capture_time, snapshot=self.snapshot)

    def rows_to_files(self, settings: PostgresSettings, files: TableFiles) -> Iterator[pa.RecordBatch]:
        given = (self.table, self.chunk, settings, self.capture_time)
        with work_on(self.table.schema.id):
            yield from read_chunk(*given, snapshot=self.snapshot, file=files.file(self.table.schema))


@dataclass(frozen=True)
class IncrementalSlice(ChunkSlice[PostgresSettings, PostgresTable, IncrementalChunk]):
    """Reads one chunk of an incremental snapshot.

    Args:
        commit: where the batch ends.
    """

    kind: ClassVar[str] = INCREMENTAL
    commit: str

    def rows(self, settings: PostgresSettings) -> Iterator[pa.RecordBatch]:
        with work_on(self.table.schema.id):
            yield from read_incremental(self.table, self.chunk, self.commit, settings, self.capture_time)


@dataclass(frozen=True)
class StreamSlice(WindowSlice[PostgresSettings, Window]):
    """Reads a window of the log.

    Args:
        types: the types that users made.
    """

    types: TypeCatalog = field(repr=False)

    def rows(self, settings: PostgresSettings) -> Iterator[pa.RecordBatch]:
        yield from read_window(self.window, self.types, settings, self.capture_time)
