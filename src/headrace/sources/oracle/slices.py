"""Slices: what one task does, with everything that it needs.

Each kind is a class, whose objects reach the executor pickled.
"""

from __future__ import annotations

import datetime as dt
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from headrace.changes import Position
from headrace.errors import DataLossError
from headrace.sources.base import Slice
from headrace.sources.oracle.captured_table import OracleTable, owners_and_names
from headrace.sources.oracle.change_rows import CONNECTOR, committed_rows
from headrace.sources.oracle.connection import Connection
from headrace.sources.oracle.definitions import Definition
from headrace.sources.oracle.incremental import read_incremental
from headrace.sources.oracle.ledger import Transaction
from headrace.sources.oracle.markers import definition_marker, gap, heartbeat
from headrace.sources.oracle.mining import mine
from headrace.sources.oracle.options import OracleSettings
from headrace.sources.oracle.scn import ScnRange
from headrace.sources.oracle.snapshot_read import read_chunk
from headrace.sources.oracle.staging import Staging
from headrace.sources.rows import Marker, marker_batch, schema_batch
from headrace.sources.snapshots.chunks import LAST_OF_TABLE, Chunk
from headrace.sources.snapshots.requests import IncrementalChunk

_SCHEMA_ORDER = "s"
"""Order of a stream's schema row: after everything of the commit before the window."""
Connect = Callable[[str], Connection]
_LOG = logging.getLogger("headrace.sources")


class OracleSlice(ABC):
    kind: ClassVar[str]

    @property
    def tables(self) -> tuple[str, ...] | None:
        return None

    @abstractmethod
    def rows(self, connect: Connect, settings: OracleSettings) -> Iterator[pa.RecordBatch]:
        """Its change rows, in position order.

        Args:
            connect: opens connections.
            settings: the source's options.
        """

    def planned(self) -> Slice:
        """The slice as the reader of the stream hands it to a task."""
        return Slice(self.kind, {"slice": self}, tables=self.tables)


def read_slice(connect: Connect, slice: Slice, settings: OracleSettings) -> Iterator[pa.RecordBatch]:
    """The change rows of a slice, in position order."""
    planned: OracleSlice = slice.details["slice"]
    yield from planned.rows(connect, settings)


@dataclass(frozen=True)
class MiningSlice(OracleSlice):
    """Mines a range; it has no rows.

    Args:
        scns: the range.
        table_paths: the tables whose changes are mined.
        mark: what is mined, see `Staging`.
    """

    kind: ClassVar[str] = "mine"
    scns: ScnRange
    table_paths: tuple[str, ...]
    mark: tuple[str, ...]

    @property
    def tables(self) -> tuple[str, ...]:
        """None: it has no rows."""
        return ()

    def rows(self, connect: Connect, settings: OracleSettings) -> Iterator[pa.RecordBatch]:
        staging = Staging(settings.staging_location, self.mark)
        if staging.index(self.scns) is None:
            try:
                mine(lambda: connect(""), self.scns, owners_and_names(self.table_paths), settings, staging)
            except DataLossError as error:
                # It has no rows. The planner of the next batch misses the range, and follows the options.
                _LOG.warning("%s", error)
        yield from ()


@dataclass(frozen=True)
class SnapshotSlice(OracleSlice):
    """Reads one chunk of a snapshot.

    Args:
        table: the chunk's table.
        chunk: which rows of it.
        capture_time: when the batch was planned.
    """

    kind: ClassVar[str] = "snapshot"
    table: OracleTable
    chunk: Chunk
    capture_time: dt.datetime | None

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.chunk.table,)

    def rows(self, connect: Connect, settings: OracleSettings) -> Iterator[pa.RecordBatch]:
        with connect(settings.pdb) as connection:
            yield from read_chunk(connection, self.table, self.chunk, settings, self.capture_time)


@dataclass(frozen=True)
class EmptyTableSlice(OracleSlice):
    """Ends the snapshot of a table without rows.

    Args:
        table: it.
        position: where its snapshot ends.
        capture_time: when the batch was planned.
    """

    kind: ClassVar[str] = "empty"
    table: OracleTable
    position: Position
    capture_time: dt.datetime | None

    def rows(self, connect: Connect, settings: OracleSettings) -> Iterator[pa.RecordBatch]:
        yield schema_batch(self.table.schema, self.position, self.capture_time, CONNECTOR, snapshot=LAST_OF_TABLE)


@dataclass(frozen=True)
class MarkerSlice(OracleSlice):
    """Announces what has no rows of its own.

    Args:
        markers: the marker rows, in order of their positions.
        capture_time: when the batch was planned.
    """

    kind: ClassVar[str] = "markers"
    markers: tuple[Marker, ...]
    capture_time: dt.datetime | None

    def rows(self, connect: Connect, settings: OracleSettings) -> Iterator[pa.RecordBatch]:
        yield marker_batch(self.markers, self.capture_time)


@dataclass(frozen=True)
class IncrementalSlice(OracleSlice):
    """Reads one chunk of an incremental snapshot.

    Args:
        table: the chunk's table.
        chunk: which rows of it.
        commit: where the batch ends.
        capture_time: when it was planned.
    """

    kind: ClassVar[str] = "asked"
    table: OracleTable
    chunk: IncrementalChunk
    commit: str
    capture_time: dt.datetime | None

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.chunk.table,)

    def rows(self, connect: Connect, settings: OracleSettings) -> Iterator[pa.RecordBatch]:
        with connect(settings.pdb) as connection:
            yield from read_incremental(connection, self.table, self.chunk, self.commit, settings, self.capture_time)


@dataclass(frozen=True)
class GapsSlice(OracleSlice):
    """Reports which changes are lost.

    Args:
        database: whose.
        gaps: for each table the commits after which and up to which.
        capture_time: when the batch was planned.
    """

    kind: ClassVar[str] = "gaps"
    database: str
    gaps: Mapping[str, tuple[str, str]]
    capture_time: dt.datetime | None

    def rows(self, connect: Connect, settings: OracleSettings) -> Iterator[pa.RecordBatch]:
        for path, (after, upto) in sorted(self.gaps.items()):
            yield marker_batch([gap(self.database, path, after, upto)], self.capture_time)


@dataclass(frozen=True)
class HeartbeatSlice(OracleSlice):
    """Reports how far the source was read.

    Args:
        commit: up to which commit.
        commit_time: when that was made; None when unknown.
        capture_time: when the heartbeat was planned.
    """

    kind: ClassVar[str] = "heartbeat"
    commit: str
    commit_time: dt.datetime | None
    capture_time: dt.datetime | None

    def rows(self, connect: Connect, settings: OracleSettings) -> Iterator[pa.RecordBatch]:
        yield marker_batch([heartbeat(self.commit, self.commit_time)], self.capture_time)


@dataclass(frozen=True)
class AppliedDefinition:
    """A definition, and its table after it.

    Args:
        definition: it.
        database: where its table is.
        table: the table as the stream reads it from then on; None where it is gone.
    """

    definition: Definition
    database: str
    table: OracleTable | None


@dataclass(frozen=True)
class SchemasSlice(OracleSlice):
    """Announces schemas and definitions.

    Args:
        changed: the tables that have changes in the batch.
        after: the commit before the batch.
        definitions: those that take effect in the batch.
        capture_time: when it was planned.
    """

    kind: ClassVar[str] = "structures"
    changed: tuple[OracleTable, ...]
    after: str
    definitions: tuple[AppliedDefinition, ...]
    capture_time: dt.datetime | None

    def rows(self, connect: Connect, settings: OracleSettings) -> Iterator[pa.RecordBatch]:
        for table in self.changed:
            yield schema_batch(table.schema, Position(self.after, _SCHEMA_ORDER), self.capture_time, CONNECTOR)
        for applied in self.definitions:
            marker = definition_marker(applied.definition, applied.database, applied.table)
            yield marker_batch([marker], self.capture_time)


@dataclass(frozen=True)
class TransactionsSlice(OracleSlice):
    """Reads the changes of some transactions.

    Args:
        transactions: in the order of their commits.
        changed: the tables that the batch changes, by path.
        mark: what was mined, see `Staging`.
        capture_time: when the batch was planned.
    """

    kind: ClassVar[str] = "transactions"
    transactions: tuple[Transaction, ...]
    changed: Mapping[str, OracleTable] = field(repr=False)
    mark: tuple[str, ...]
    capture_time: dt.datetime | None

    def rows(self, connect: Connect, settings: OracleSettings) -> Iterator[pa.RecordBatch]:
        yield from committed_rows(connect, self.transactions, self.changed, self.mark, settings, self.capture_time)
