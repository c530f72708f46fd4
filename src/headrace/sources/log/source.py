"""What a source of a database's own log is to Headrace, but for the log itself and the statements of its server."""

from __future__ import annotations

import datetime as dt
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, ClassVar, Generic, TypeVar

import pyarrow as pa

from headrace.changes import TableSchema
from headrace.changes.table_files import TableFiles
from headrace.errors import HeadraceError, OptionError
from headrace.settings import Settings
from headrace.sources.base import ONE_CHUNK, Limit, Slice
from headrace.sources.database_source import DatabaseSource
from headrace.sources.health import Health
from headrace.sources.log.markers import LogMarkers
from headrace.sources.log.planner import LogPlanner
from headrace.sources.log.window import LogSlice, MarkerSlice, WindowState, checked_skip, refuse_rewind, slice_of
from headrace.sources.offset import Offset
from headrace.sources.retries import Retries
from headrace.sources.rows import Marker
from headrace.sources.signals import Signal
from headrace.sources.snapshots.ad_hoc import AdHoc, requested_tables
from headrace.sources.snapshots.chunks import Chunk, found_empty, plan_chunks
from headrace.sources.snapshots.ends_equal import added_column_markers, end_markers
from headrace.sources.snapshots.requests import IncrementalChunk
from headrace.sources.stream_options import WHOLE_TABLES
from headrace.sources.table_versions import MovePlan, TableMove
from headrace.sources.tables.lost import forgiven
from headrace.sources.tables.table_rules import KeptTables, SourceTable

Table = TypeVar("Table", bound=SourceTable[Any])
Planner = TypeVar("Planner", bound=LogPlanner[Any, Any, Any])


class LogSource(DatabaseSource, Generic[Table, Planner]):
    """A source whose batches a `LogPlanner` plans and whose tasks read `LogSlice`s.

    A subclass says which tables are captured, what a task reads, and how its server is asked. Its options have those of
    `RetrySettings`, `SignalSettings` and `LostTableSettings`.
    """

    knows_schemas = True
    whole_tables = WHOLE_TABLES
    moves = frozenset(("skip",))
    kept_tables: ClassVar[KeptTables[Any]]
    """Reads the tables of an offset."""
    kept_state: ClassVar[type[WindowState]]
    """What an offset keeps of the log."""
    passing: ClassVar[tuple[type[HeadraceError], ...]] = ()
    """Errors after which an attempt is worth repeating, beside a lost connection."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._planner_made: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Executors read slices, which carry what they need.
        return {**self.__dict__, "_planner_made": None}

    # What the database is.

    @abstractmethod
    def _new_planner(self) -> Planner:
        """Plans the batches of one process; makes no request yet."""

    @abstractmethod
    def _captured(self, *, strict: bool, known: Collection[str] = ()) -> Mapping[str, Table]:
        """The captured tables as they are now, by path.

        Args:
            strict: whether a table that can't be captured stops the run, or is left out.
            known: tables that may be missing all the same.
        """

    @abstractmethod
    def _markers(self, end: Offset) -> LogMarkers:
        """The announcements of a batch that ends at an offset."""

    @abstractmethod
    def _chunks(self, table: Table, chunks: Sequence[Chunk], end: Offset) -> Iterator[LogSlice[Any]]:
        """What reads chunks of a table's snapshot; nothing where it can't be read any more as the offset knows it."""

    @abstractmethod
    def _increment(self, table: Table, chunk: IncrementalChunk, end: Offset) -> LogSlice[Any]:
        """What reads a chunk beside the stream."""

    @abstractmethod
    def _windows(
        self, start: Offset, end: Offset, tables: Mapping[str, Table], after: Mapping[str, str]
    ) -> Iterator[LogSlice[Any]]:
        """What reads the log of a batch.

        Args:
            start, end: the offsets of the batch.
            tables: those whose rows are wanted, by path; a table that the batch took in, or that is gone now, has its
                rows where either offset knows it.
            after: for tables that were read later than `start`, the commit up to which their changes are left out.
        """

    def _altered(self, start: Offset, end: Offset) -> Sequence[Marker]:
        """Announcements of what was done to structures, where no row shows it."""
        return ()

    @abstractmethod
    def _health(self, offset: Offset | None) -> Health:
        """As `health`, without the tables that are not captured any more."""

    @abstractmethod
    def _check_filter(self, table: Table, filter: str) -> None:
        """Whether the server takes a filter of a signal.

        Raises:
            OptionError: it does not.
        """

    @abstractmethod
    def _position(self, text: str, head: str) -> str:
        """A position that a user wrote, in the form of `Offset.commit`; `now` is the head.

        Raises:
            OptionError: it is none.
        """

    # The contract of a source.

    def _captured_now(self, offset: Offset) -> Collection[str]:
        return self._captured(strict=False)

    def tables(self, known: Collection[str] = ()) -> Sequence[TableSchema]:
        """What is captured now, in include-list order."""
        return [table.schema for table in self._captured(strict=True, known=forgiven(known, self.settings)).values()]

    def schemas(self, offset: Offset) -> Sequence[TableSchema]:
        """Those that the offset keeps."""
        return [table.schema for table in self.kept_tables(offset.schemas).values()]

    def preview(self, start: Offset, now: dt.datetime, limit: Limit = ONE_CHUNK, *, restarted: bool = True) -> Offset:
        """What the next batch would begin with; nothing is made on the server, and no log is read for it."""
        return self._new_planner().preview(start, restarted=restarted)

    def advance(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        """Where the next batch ends: more snapshot chunks, or a window of the log."""
        return self._retries.call(lambda: self._planner.advance(start, limit, now))

    def acknowledge(self, offset: Offset) -> None:
        """The server may let go of the log before this position."""
        if not offset.is_nothing:
            self._planner.acknowledge(offset.commit)

    def plan(self, start: Offset, end: Offset) -> list[Slice]:
        """Snapshot chunks, windows of the log, chunks that are read beside it, and announcements."""
        if start == end:
            return []
        announced, tables = self._markers(end), self.kept_tables(end.schemas)
        slices = [*self._snapshot(start, end, announced), *self._stream(start, end)]
        if end.ad_hoc != start.ad_hoc:
            chunks = AdHoc.from_json(end.ad_hoc).chunks(end.reads)
            slices += [self._increment(tables[chunk.table], chunk, end) for chunk in chunks]
        ends = end_markers(start, end, announced.connector, tables)
        values = added_column_markers(start, end, announced.connector, tables)
        markers = (*self._come_and_gone(start, end, announced), *self._altered(start, end), *ends, *values)
        if markers:
            slices.append(MarkerSlice(markers, end.capture_time))
        if end.heartbeat != start.heartbeat:
            slices.append(MarkerSlice((announced.heartbeat(end.commit, end.commit_time),), end.heartbeat))
        return [slice.planned() for slice in slices]

    def _snapshot(self, start: Offset, end: Offset, announced: LogMarkers) -> Iterator[LogSlice[Any]]:
        tables = self.kept_tables(end.schemas)
        for path, chunks in groupby(plan_chunks(start, end), key=lambda chunk: chunk.table):
            yield from self._chunks(tables[path], list(chunks), end)
        for path, position in found_empty(start, end):
            yield MarkerSlice((announced.empty_table(tables[path].schema, position),), end.capture_time)
        if end.gaps and end.gaps != start.gaps:
            asked = {path for path, lost in end.gaps.items() if end.skipped.get(path) == lost}
            gaps = (
                announced.gap(path, after, upto, skipped=path in asked)
                for path, (after, upto) in sorted(end.gaps.items())
            )
            yield MarkerSlice(tuple(gaps), end.capture_time)

    def _stream(self, start: Offset, end: Offset) -> Iterator[LogSlice[Any]]:
        state = self.kept_state.of(end)
        if start.is_nothing or not state.reads:
            return
        tables = {**self.kept_tables(start.schemas), **self.kept_tables(end.schemas)}
        read = {path: table for path, table in tables.items() if path not in state.waiting}
        after = {path: progress.commit for path, progress in start.tables.items() if path in read}
        yield from self._windows(start, end, read, after)

    def _come_and_gone(self, start: Offset, end: Offset, announced: LogMarkers) -> Iterator[Marker]:
        """The tables that a batch of the stream takes in or loses."""
        if start.is_nothing:
            return
        before, after = self.kept_tables(start.schemas), self.kept_tables(end.schemas)
        yield from (announced.dropped(before[path].id, end.commit) for path in end.uncaptured if path in start.known)
        yield from (announced.created(after[path].schema, end.commit) for path in end.known if path not in start.known)

    def read(self, slice: Slice) -> Iterator[pa.RecordBatch]:
        """The change rows of one slice; opens connections of its own and closes them at the end."""
        share = slice_of(slice)
        yield from self._retries.rows(partial(share.rows, self.settings), same=share.same_rows)

    def read_to_files(self, slice: Slice, files: TableFiles) -> Iterator[pa.RecordBatch]:
        """The same, without the rows of chunks that go into files."""
        share = slice_of(slice)
        yield from self._retries.rows(partial(share.rows_to_files, self.settings, files), same=share.same_rows)

    def without(self, slice: Slice, table: str) -> Slice | None:
        """A slice without the rows of one table."""
        left = slice_of(slice).without(table)
        return None if left is None else left.planned()

    def schemas_in(self, slice: Slice) -> Sequence[TableSchema]:
        """The schemas that are known before a slice is read; its rows bring `schema` rows of others."""
        return slice_of(slice).schemas

    def health(self, offset: Offset | None = None) -> Health:
        """Whether the log is written and kept, how much waits, and which tables are not captured any more."""
        health = self._health(offset)
        return health if offset is None else replace(health, uncaptured=self._uncaptured(offset))

    def check_signal(self, signal: Signal) -> None:
        """Whether the tables that it names are captured, and the server takes its filters."""
        if self.settings.get("snapshot_mode") == "initial_only":
            raise OptionError(
                "A pipeline with snapshot.mode=initial_only ends with its snapshot and follows no signal.",
                remedy="Use another snapshot.mode.",
            )
        by_id = {table.id: table for table in self._captured(strict=False).values()}
        for id, filter in requested_tables(signal, by_id.values()):
            self._check_filter(by_id[id], filter)

    def move(self, wanted: TableMove, offset: Offset) -> MovePlan:
        """What it takes to leave out changes of one table."""
        refuse_rewind(wanted)
        head = self.head_after(offset)
        return checked_skip(replace(wanted, to=self._position(wanted.to, head)), offset, head)

    @property
    def _retries(self) -> Retries:
        return Retries.of(self.settings, *self.passing)

    @property
    def _planner(self) -> Planner:
        if self._planner_made is None:
            self._planner_made = self._new_planner()
        return self._planner_made
