"""`PostgresSource`: tables of a PostgreSQL database, snapshotted at one point of the log and then followed by it.

Offsets name positions in the log. The permanent slot keeps the log for the pipeline and is never streamed: readers
stream temporary copies of it, so the same window can be read again, by several tasks, byte for byte. The slot goes on
only when all sinks have a batch.

Source: PostgreSQL's documentation of logical decoding; Debezium's documentation of its PostgreSQL connector.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, pairwise
from typing import Any, ClassVar

import pyarrow as pa

from headrace.changes import TableId, TableSchema
from headrace.changes.table_files import TableFiles
from headrace.errors import HeadraceError, OptionError
from headrace.permissions import MissingPermission
from headrace.sources.base import ONE_CHUNK, Limit, Slice, Source
from headrace.sources.health import Health
from headrace.sources.log.window import MarkerSlice, checked_skip, refuse_rewind, slice_of
from headrace.sources.offset import Offset
from headrace.sources.postgresql import catalog_statements, lsn
from headrace.sources.postgresql.captured_table import tables_of
from headrace.sources.postgresql.catalog import captured_tables, left_out, means
from headrace.sources.postgresql.checks import HealthProbe, missing_permissions
from headrace.sources.postgresql.connection import connect
from headrace.sources.postgresql.earlier_structures import statement
from headrace.sources.postgresql.incremental import check_filter
from headrace.sources.postgresql.markers import CONNECTOR, altered, created, dropped, empty_table, gap, heartbeat
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.planner import Planner
from headrace.sources.postgresql.printed import printed_tables
from headrace.sources.postgresql.signal_table import insert_signal, require_signal_table
from headrace.sources.postgresql.slices import (
    IncrementalSlice,
    PostgresSlice,
    SnapshotSlice,
    StreamSlice,
    Window,
)
from headrace.sources.postgresql.stream_state import StreamState, written_commit
from headrace.sources.postgresql.types import TypeCatalog
from headrace.sources.printed_tables import PrintedTable
from headrace.sources.retries import Retries
from headrace.sources.rows import Marker
from headrace.sources.signal_files import has_files, signal_file
from headrace.sources.signals import Signal
from headrace.sources.snapshots.ad_hoc import AdHoc, requested_tables
from headrace.sources.snapshots.chunks import found_empty, plan_chunks
from headrace.sources.snapshots.ends_equal import added_column_markers, end_markers
from headrace.sources.snapshots.select_overrides import SelectOverrides
from headrace.sources.stream_options import WHOLE_TABLES
from headrace.sources.table_versions import NOW, MovePlan, TableMove
from headrace.sources.tables.lost import forgiven, uncaptured_tables
from headrace.sources.tables.rewrites import Unlogged
from headrace.sources.tables.table_rules import TableRules
from headrace.sources.tables.unmatched import Unmatched, columns_of, gone_table, has_names, unmatched


class PostgresSource(Source):
    """Changes of a PostgreSQL database from its write-ahead log, by pgoutput."""

    name = "postgresql"
    address = ("postgres", "5432")
    settings: PostgresSettings
    examples: ClassVar[Mapping[str, str]] = {"hostname": "db.example.com", "database": "shop", "user": "cdc"}
    example_schema = "public"
    offered = ("port", "slot", "snapshot_mode", "sslmode")
    knows_schemas = True
    whole_tables = WHOLE_TABLES
    moves = frozenset(("skip",))

    def __init__(self, settings: PostgresSettings) -> None:
        super().__init__(settings)
        # Only to find errors at once.
        TableRules.of(settings)
        SelectOverrides.of(settings)
        self._planner_made: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Executors read slices, which carry what they need.
        return {**self.__dict__, "_planner_made": None}

    def tables(self, known: Collection[str] = ()) -> Sequence[TableSchema]:
        """What is captured now, in include-list order."""
        known = forgiven(known, self.settings)
        with connect(self.settings) as connection:
            captured = captured_tables(connection, self.settings.database, self.settings, strict=True, known=known)
        return [table.schema for table in captured.values()]

    def left_out(self) -> Sequence[Unlogged]:
        """Tables with columns that the server computes and does not send."""
        with connect(self.settings) as connection:
            captured = captured_tables(connection, self.settings.database, self.settings, strict=False)
            return list(left_out(captured.values(), self.settings.publication_name, connection.version))

    def schemas(self, offset: Offset) -> Sequence[TableSchema]:
        return [table.schema for table in tables_of(offset.schemas).values()]

    def unmatched(self, offset: Offset) -> Sequence[Unmatched]:
        """Names that match no table that is captured now or was captured before."""
        if not has_names(self.settings):
            return ()
        with connect(self.settings) as connection:
            captured = captured_tables(connection, self.settings.database, self.settings, strict=False)
            rows = connection.rows(catalog_statements.TABLES)
        tables = [TableId(self.settings.database, str(schema), str(name)) for _, schema, name, *_ in rows]
        gone = [gone_table(path, self.settings.database) for path in offset.tables_seen if path not in captured]
        return unmatched(self.settings, [*map(columns_of, captured.values()), *gone], tables, selects=False)

    def head(self) -> str:
        """How far the log is written. It moves on even where nothing is changed."""
        if self.settings.snapshot_mode == "initial_only":
            return lsn.ZERO
        with connect(self.settings) as connection:
            return written_commit(connection)

    def connect(self) -> None:
        connect(self.settings).close()

    def missing_permissions(self) -> Sequence[MissingPermission]:
        return missing_permissions(self.settings)

    def printed_tables(self) -> Iterator[PrintedTable]:
        return printed_tables(self.settings)

    def preview(self, start: Offset, now: dt.datetime, limit: Limit = ONE_CHUNK, *, restarted: bool = True) -> Offset:
        """What the next batch would begin with; no slot is made and no log is read for it."""
        return Planner(self.settings, self._identity).preview(start, restarted=restarted)

    def advance(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        """Where the next batch ends: more snapshot chunks, or a window of the log."""
        return Retries.of(self.settings).call(lambda: self._planner.advance(start, limit, now))

    def plan(self, start: Offset, end: Offset) -> list[Slice]:
        """Snapshot chunks, the window of the log, chunks that are read beside it, and announcements."""
        if start == end:
            return []
        slices = [*self._snapshot_slices(start, end), *self._stream_slices(start, end)]
        if end.ad_hoc != start.ad_hoc:
            tables = tables_of(end.schemas)
            chunks = AdHoc.from_json(end.ad_hoc).chunks(end.reads)
            slices += [IncrementalSlice(tables[chunk.table], chunk, end.commit, end.capture_time) for chunk in chunks]
        captured = tables_of(end.schemas)
        ends = end_markers(start, end, CONNECTOR, captured)
        values = added_column_markers(start, end, CONNECTOR, captured)
        markers = (*_come_and_gone(start, end), *_altered(start, end), *ends, *values)
        if markers:
            slices.append(MarkerSlice(markers, end.capture_time))
        if end.heartbeat != start.heartbeat:
            slices.append(MarkerSlice((heartbeat(end.commit, end.commit_time),), end.heartbeat))
        return [slice.planned() for slice in slices]

    def _snapshot_slices(self, start: Offset, end: Offset) -> Iterator[PostgresSlice]:
        tables = tables_of(end.schemas)
        planner, retries = self._planner, Retries.of(self.settings)
        for path, chunks in groupby(plan_chunks(start, end), key=lambda chunk: chunk.table):
            exported = planner.exported(path, end.tables[path])
            if exported is not None or retries.call(partial(planner.can_be_read, path, tables[path])):
                yield from (SnapshotSlice(tables[path], chunk, exported, end.capture_time) for chunk in chunks)
        for path, position in found_empty(start, end):
            yield MarkerSlice((empty_table(tables[path].schema, position),), end.capture_time)
        if end.gaps and end.gaps != start.gaps:
            asked = {path for path, lost in end.gaps.items() if end.skipped.get(path) == lost}
            gaps = [
                gap(self.settings.database, path, after, upto, skipped=path in asked)
                for path, (after, upto) in sorted(end.gaps.items())
            ]
            yield MarkerSlice(tuple(gaps), end.capture_time)

    def _stream_slices(self, start: Offset, end: Offset) -> Iterator[PostgresSlice]:
        state = StreamState.of(end)
        if start.is_nothing or not state.reads:
            return
        # A table that the batch took in, or that is gone now, has its rows where either offset knows it.
        waiting = set(state.waiting)
        tables = {**tables_of(start.schemas), **tables_of(end.schemas)}
        read = {path: table for path, table in tables.items() if path not in waiting}
        after = {path: progress.commit for path, progress in start.tables.items() if path in read}
        # One that had another name in between is the same table all along.
        before = {path: table.oid for path, table in tables_of(start.schemas).items()}
        kept = tuple(t.oid for path, t in tables_of(end.schemas).items() if before.get(path) == t.oid)
        edges = [start.commit, *state.cuts, end.commit]
        earlier = state.earlier
        earlier_tables = {p: table for p, table in earlier.before(tables_of(end.schemas)).items() if p in read}
        changed = lsn.boundary(earlier.until) if earlier else 0
        for begin, upto in pairwise(map(lsn.boundary, edges)):
            window = Window(
                begin,
                upto,
                self.settings.database,
                read,
                after,
                kept,
                earlier_tables,
                TypeCatalog(earlier.types),
                changed,
                is_last=upto == lsn.boundary(end.commit),
            )
            yield StreamSlice(window, state.types, end.capture_time)

    def read(self, slice: Slice) -> Iterator[pa.RecordBatch]:
        """The change rows of one slice; opens connections of its own and closes them at the end."""
        share = slice_of(slice)
        yield from Retries.of(self.settings).rows(lambda: share.rows(self.settings), same=share.same_rows)

    def read_to_files(self, slice: Slice, files: TableFiles) -> Iterator[pa.RecordBatch]:
        share = slice_of(slice)
        read = partial(share.rows_to_files, self.settings, files)
        yield from Retries.of(self.settings).rows(read, same=share.same_rows)

    def without(self, slice: Slice, table: str) -> Slice | None:
        left = slice_of(slice).without(table)
        return None if left is None else left.planned()

    def schemas_in(self, slice: Slice) -> Sequence[TableSchema]:
        """The schemas that are known before a slice is read; its rows bring `schema` rows of others."""
        return slice_of(slice).schemas

    def health(self, offset: Offset | None = None) -> Health:
        """Whether the slot keeps what is needed, how much that is, and how far the stream is behind."""
        health = HealthProbe(self.settings).ask(offset)
        return health if offset is None else replace(health, uncaptured=self._uncaptured(offset))

    def _uncaptured(self, offset: Offset) -> tuple[str, ...]:
        """The known tables that are not captured now; those that a run has found where the server can't be reached."""
        try:
            with connect(self.settings) as connection:
                captured = captured_tables(connection, self.settings.database, self.settings, strict=False)
        except HeadraceError:
            return tuple(offset.uncaptured)
        return tuple(uncaptured_tables(offset, captured, lambda path: means(self.settings, path)))

    def check_signal(self, signal: Signal) -> None:
        """Whether the tables that it names are captured, and the server takes its filters."""
        if self.settings.snapshot_mode == "initial_only":
            raise OptionError(
                "A pipeline with snapshot.mode=initial_only ends with its snapshot and follows no signal.",
                remedy="Use another snapshot.mode.",
            )
        with connect(self.settings) as connection:
            tables = captured_tables(connection, self.settings.database, self.settings, strict=False)
            by_id = {table.id: table for table in tables.values()}
            for id, filter in requested_tables(signal, by_id.values()):
                check_filter(connection, by_id[id], filter)

    def move(self, wanted: TableMove, offset: Offset) -> MovePlan:
        """What it takes to leave out changes of one table. A position is an LSN as the server writes it, or `now`."""
        refuse_rewind(wanted)
        head = self.head_after(offset)
        return checked_skip(replace(wanted, to=_place(wanted.to, head)), offset, head)

    def signal(self, signal: Signal) -> Sequence[str]:
        """Insert a row into the signal table; write a file where there is none."""
        if self.settings.signal_data_collection:
            return [self._insert(signal)]
        return [f"file {signal_file(self.settings.signal_path, signal)}"]

    def execute(self, statement: str) -> None:
        with connect(self.settings) as connection:
            connection.run(statement)

    def has_signals(self, offset: Offset) -> bool:
        """Whether the signal folder has files that were not taken yet; rows of a signal table are commits."""
        return has_files(self.settings.signal_path, AdHoc.from_json(offset.ad_hoc).files)

    def _insert(self, signal: Signal) -> str:
        with connect(self.settings) as connection:
            tables = captured_tables(connection, self.settings.database, self.settings, strict=False)
            table = require_signal_table(self.settings.signal_data_collection, self.settings.database, tables)
            insert_signal(connection, table, signal)
        return f"table {table.id.path} of database {self.settings.database}"

    def acknowledge(self, offset: Offset) -> None:
        """The slot may let go of the log before this position."""
        if not offset.is_nothing:
            self._planner.acknowledge(offset.commit)

    @property
    def _identity(self) -> str:
        return f"{self.name}:{self.settings.database}"

    @property
    def _planner(self) -> Planner:
        if self._planner_made is None:
            self._planner_made = Planner(self.settings, self._identity)
        return self._planner_made


def _come_and_gone(start: Offset, end: Offset) -> tuple[Marker, ...]:
    """The tables that a batch of the stream takes in or loses."""
    if start.is_nothing:
        return ()
    before, after = tables_of(start.schemas), tables_of(end.schemas)
    gone = [dropped(before[path].id, end.commit) for path in end.uncaptured if path in start.known]
    return (*gone, *(created(after[path].schema, end.commit) for path in end.known if path not in start.known))


def _altered(start: Offset, end: Offset) -> tuple[Marker, ...]:
    """What was done to names of columns where the batch passes it; where rows are read, their reader says it."""
    state = StreamState.of(end)
    if state.reads or not start.commit < state.earlier.until <= end.commit:
        return ()
    now = tables_of(end.schemas)
    statements = ((now[path], statement(table, now[path])) for path, table in state.earlier.before(now).items())
    return tuple(altered(table.schema, end.commit, text) for table, text in statements if text)


def _place(text: str, head: str) -> str:
    """The commit up to which changes that begin before a position are delivered.

    Raises:
        OptionError: it is not a position.
    """
    if text.strip().lower() == NOW:
        return head
    try:
        return lsn.commit_before(lsn.of_server(text.strip()))
    except ValueError:
        if re.fullmatch(r"[0-9a-f]{16}", text.strip()):
            return text.strip()
        raise OptionError(
            f"'{text}' is no place in the log of PostgreSQL.",
            remedy="Write an LSN such as 16/B374D848, or now. The log is not searched by time.",
        ) from None
