"""Slices: what one task reads, with everything that it needs, so that no executor asks the catalog about a table.

Each kind is a class, whose objects reach the executor pickled.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import pyarrow as pa

from headrace import faultpoints
from headrace.changes import Position, TableSchema
from headrace.changes.position import SNAPSHOT_ORDER
from headrace.sources.base import Slice
from headrace.sources.change_tables.captured_table import ARROW_ROWS, CapturedTable
from headrace.sources.change_tables.connection import Connection, MissingObject
from headrace.sources.change_tables.dialect import Dialect
from headrace.sources.change_tables.incremental import read_incremental
from headrace.sources.change_tables.markers import lost, switched_off
from headrace.sources.change_tables.options import ChangeTableSettings
from headrace.sources.change_tables.schema_history import Window
from headrace.sources.change_tables.snapshot_read import read_chunk, read_session
from headrace.sources.change_tables.transactions import read_transactions
from headrace.sources.change_tables.windows import commit_times
from headrace.sources.rows import Marker, marker_batch, schema_batch
from headrace.sources.snapshots.chunks import Chunk
from headrace.sources.snapshots.requests import INCREMENTAL, IncrementalChunk

_STREAM_ORDER = "t"
"""Order of a stream's first change: after all of the commit before the window."""
_SCHEMA_ORDER = "s"
"""Order of a stream's schema row: after everything of the commit before the window."""
Connect = Callable[[], Connection]


class ChangeTableSlice(ABC):
    """What one task reads."""

    kind: ClassVar[str]
    same_rows: ClassVar[bool]
    """Whether every reading gives the same rows in the same order; if not, they are of live tables."""
    weight: float = 1.0
    """As `Slice.weight`."""

    @property
    @abstractmethod
    def tables(self) -> tuple[str, ...]:
        """As `Slice.tables`."""

    @property
    @abstractmethod
    def begin(self) -> str:
        """A position before all its data, and after all of the commit before."""

    @property
    @abstractmethod
    def schemas(self) -> Sequence[TableSchema]:
        """The schemas that its rows follow."""

    @abstractmethod
    def rows(self, connect: Connect, settings: ChangeTableSettings, dialect: Dialect) -> Iterator[pa.RecordBatch]:
        """Its change rows, in position order.

        Args:
            connect: opens connections.
            settings: the source's options.
            dialect: the server's own part.
        """

    def without(self, table: str) -> Self | None:
        return None if self.tables == (table,) else self

    def planned(self) -> Slice:
        """The slice as the reader of the stream hands it to a task."""
        return Slice(self.kind, {"slice": self}, self.weight, self.tables)


def slice_of(planned: Slice) -> ChangeTableSlice:
    """Unpack the slice that a task got."""
    slice: ChangeTableSlice = planned.details["slice"]
    return slice


@dataclass(frozen=True)
class MarkerSlice(ChangeTableSlice):
    """Announces what has no rows of its own.

    Args:
        markers: the marker rows, in order of their positions.
        capture_time: when the batch was planned.
    """

    kind: ClassVar[str] = "markers"
    same_rows: ClassVar[bool] = True
    markers: tuple[Marker, ...]
    capture_time: dt.datetime | None
    weight: float = 0.0

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(marker.table.path for marker in self.markers if marker.table is not None))

    @property
    def begin(self) -> str:
        return self.markers[0].position.text

    @property
    def schemas(self) -> Sequence[TableSchema]:
        return [marker.schema for marker in self.markers if marker.schema is not None]

    def rows(self, connect: Connect, settings: ChangeTableSettings, dialect: Dialect) -> Iterator[pa.RecordBatch]:
        yield marker_batch(self.markers, self.capture_time)


@dataclass(frozen=True)
class SnapshotSlice(ChangeTableSlice):
    """Reads one chunk of a snapshot.

    Args:
        table: the chunk's table.
        chunk: which rows of it.
        capture_time: when the batch was planned.
    """

    kind: ClassVar[str] = "snapshot"
    same_rows: ClassVar[bool] = False
    table: CapturedTable
    chunk: Chunk
    capture_time: dt.datetime | None

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.chunk.table,)

    @property
    def begin(self) -> str:
        return Position(self.chunk.commit, SNAPSHOT_ORDER).text

    @property
    def schemas(self) -> Sequence[TableSchema]:
        return [self.table.schema]

    def rows(self, connect: Connect, settings: ChangeTableSettings, dialect: Dialect) -> Iterator[pa.RecordBatch]:
        with connect() as connection:
            yield from read_chunk(connection, self.table, self.chunk, settings, self.capture_time)


@dataclass(frozen=True)
class SessionSlice(ChangeTableSlice):
    """Reads the snapshots of all tables in one session.

    Args:
        pieces: each table, and its only chunk.
        capture_time: when the batch was planned.
    """

    kind: ClassVar[str] = "session"
    same_rows: ClassVar[bool] = False
    pieces: tuple[tuple[CapturedTable, Chunk], ...]
    capture_time: dt.datetime | None

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(chunk.table for _, chunk in self.pieces)

    @property
    def begin(self) -> str:
        return Position(min(chunk.commit for _, chunk in self.pieces), SNAPSHOT_ORDER).text

    @property
    def schemas(self) -> Sequence[TableSchema]:
        return [table.schema for table, _ in self.pieces]

    def rows(self, connect: Connect, settings: ChangeTableSettings, dialect: Dialect) -> Iterator[pa.RecordBatch]:
        yield from read_session(connect, self.pieces, settings, self.capture_time)


@dataclass(frozen=True)
class IncrementalSlice(ChangeTableSlice):
    """Reads one chunk of an incremental snapshot.

    Args:
        table: the chunk's table.
        chunk: which rows of it.
        commit: where the batch ends.
        capture_time: when it was planned.
    """

    kind: ClassVar[str] = INCREMENTAL
    same_rows: ClassVar[bool] = False
    table: CapturedTable
    chunk: IncrementalChunk
    commit: str
    capture_time: dt.datetime | None

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.chunk.table,)

    @property
    def begin(self) -> str:
        return Position(self.commit, SNAPSHOT_ORDER).text

    @property
    def schemas(self) -> Sequence[TableSchema]:
        return [self.table.schema]

    def rows(self, connect: Connect, settings: ChangeTableSettings, dialect: Dialect) -> Iterator[pa.RecordBatch]:
        with connect() as connection:
            yield from read_incremental(connection, self.table, self.chunk, self.commit, settings, self.capture_time)


@dataclass(frozen=True)
class StreamSlice(ChangeTableSlice):
    """Reads a window of one table's changes.

    Args:
        window: which.
        capture_time: when the batch was planned.
        zone: the zone of the server's clock, or its offset.
        first: whether it is the first one of the window, which announces the table's schema.
        weight: its share of the changes of its commits.
    """

    kind: ClassVar[str] = "stream"
    same_rows: ClassVar[bool] = True
    window: Window
    capture_time: dt.datetime | None
    zone: str
    first: bool
    weight: float = 1.0

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.window.table.id.path,)

    @property
    def begin(self) -> str:
        return Position(self.window.after, _STREAM_ORDER).text

    @property
    def schemas(self) -> Sequence[TableSchema]:
        return [self.window.table.schema]

    def rows(self, connect: Connect, settings: ChangeTableSettings, dialect: Dialect) -> Iterator[pa.RecordBatch]:
        window = self.window
        with connect() as connection:
            if self.first:
                yield _schema_row(window, self.capture_time, dialect)
            times = commit_times(connection, window.after, window.upto, self.zone, settings)
            reader = dialect.change_reader(window.table, times, self.capture_time, settings)
            try:
                for batch in reader.read(dialect.changes(connection, window, settings, rows=ARROW_ROWS)):
                    yield batch
                    faultpoints.reach("source.stream.batch")
                yield from lost(connection, window, settings, self.capture_time)
            except MissingObject:
                yield switched_off(dialect.connector, window, settings, self.capture_time)


@dataclass(frozen=True)
class TransactionsSlice(ChangeTableSlice):
    """Reads several tables' changes of a range of commits, in commit order.

    Args:
        windows: one for each table.
        capture_time: when the batch was planned.
        zone: the zone of the server's clock, or its offset.
    """

    kind: ClassVar[str] = "transactions"
    same_rows: ClassVar[bool] = True
    windows: tuple[Window, ...]
    capture_time: dt.datetime | None
    zone: str

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(window.table.id.path for window in self.windows)

    def without(self, table: str) -> TransactionsSlice | None:
        left = tuple(window for window in self.windows if window.table.id.path != table)
        return replace(self, windows=left) if left else None

    @property
    def begin(self) -> str:
        """Behind the commit before the first window."""
        return Position(min(window.after for window in self.windows), _STREAM_ORDER).text

    @property
    def schemas(self) -> Sequence[TableSchema]:
        return [window.table.schema for window in self.windows]

    def rows(self, connect: Connect, settings: ChangeTableSettings, dialect: Dialect) -> Iterator[pa.RecordBatch]:
        for window in self.windows:
            yield _schema_row(window, self.capture_time, dialect)
        yield from read_transactions(connect, self.windows, settings, self.zone, self.capture_time)


def _schema_row(window: Window, capture_time: dt.datetime | None, dialect: Dialect) -> pa.RecordBatch:
    return schema_batch(window.table.schema, Position(window.after, _SCHEMA_ORDER), capture_time, dialect.connector)
