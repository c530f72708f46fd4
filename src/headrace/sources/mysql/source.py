"""`MysqlSource`: tables of a MySQL or MariaDB server, snapshotted at positions of its binary log and then followed by
it.

Offsets name positions of the log, which is one for all databases of a server. Nothing is kept on the server: readers
read the same files again, as long as these are there, so a window gives the same rows to several tasks, byte for byte.

Source: MySQL's and MariaDB's documentation of replication; Debezium's documentation of its connectors for both.
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

from headrace.changes import TableSchema
from headrace.changes.foreign_key import Cascade, ForeignKey
from headrace.changes.table_files import TableFiles
from headrace.errors import HeadraceError, OptionError
from headrace.permissions import MissingPermission
from headrace.sources.base import ONE_CHUNK, Limit, Slice, Source
from headrace.sources.health import Health
from headrace.sources.log.window import MarkerSlice, checked_skip, refuse_rewind, slice_of
from headrace.sources.mysql import binlog_position
from headrace.sources.mysql.captured_table import tables_of
from headrace.sources.mysql.catalog import Catalog, means
from headrace.sources.mysql.checks import HealthProbe, missing_permissions, zero_dates
from headrace.sources.mysql.connection import connect
from headrace.sources.mysql.foreign_keys import cascades, require_followed, still_there, unlogged_keys
from headrace.sources.mysql.incremental import check_filter
from headrace.sources.mysql.markers import connector, created, dropped, empty_table, gap, heartbeat, table_id
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.planner import Planner
from headrace.sources.mysql.printed import printed_tables
from headrace.sources.mysql.refusals import PassingError
from headrace.sources.mysql.signal_table import insert_signal, require_signal_table
from headrace.sources.mysql.slices import (
    IncrementalSlice,
    MysqlSlice,
    SnapshotSlice,
    StreamSlice,
)
from headrace.sources.mysql.stream_state import StreamState
from headrace.sources.mysql.visibility import Snapshots
from headrace.sources.mysql.window import Window
from headrace.sources.offset import Offset
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
from headrace.sources.tables.keys import MisfitKey
from headrace.sources.tables.lost import forgiven, uncaptured_tables
from headrace.sources.tables.table_rules import TableRules
from headrace.sources.tables.unmatched import TableColumns, Unmatched, columns_of, has_names, unmatched


class MysqlSource(Source):
    """Changes of a MySQL or MariaDB server from its binary log."""

    name = "mysql"
    address = ("mysql", "3306")
    settings: MysqlSettings
    examples: ClassVar[Mapping[str, str]] = {"hostname": "db.example.com", "databases": "shop", "user": "cdc"}
    example_schema = "shop"
    offered = ("port", "snapshot_mode", "sslmode")
    knows_schemas = True
    whole_tables = WHOLE_TABLES
    moves = frozenset(("skip",))

    def __init__(self, settings: MysqlSettings) -> None:
        super().__init__(settings)
        # Only to find errors at once.
        TableRules.of(settings)
        SelectOverrides.of(settings, for_mysql=True)
        self._planner_made: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Executors read slices, which carry what they need.
        return {**self.__dict__, "_planner_made": None}

    def tables(self, known: Collection[str] = ()) -> Sequence[TableSchema]:
        """What is captured now, in include-list order."""
        known = forgiven(known, self.settings)
        with connect(self.settings) as connection:
            captured = Catalog(connection, self.settings).captured(strict=True, known=known)
        return [table.schema for table in captured.values()]

    def schemas(self, offset: Offset) -> Sequence[TableSchema]:
        return [table.schema for table in tables_of(offset.schemas).values()]

    def unmatched(self, offset: Offset) -> Sequence[Unmatched]:
        """Names that match no table that is captured now or was captured before."""
        if not has_names(self.settings):
            return ()
        with connect(self.settings) as connection:
            catalog = Catalog(connection, self.settings)
            captured = catalog.captured(strict=False)
        gone = [TableColumns(table_id(path), gone=True) for path in offset.tables_seen if path not in captured]
        tables = [table.id for table in catalog.tables.values()]
        return unmatched(self.settings, [*map(columns_of, captured.values()), *gone], tables, selects=False)

    def head(self) -> str:
        """How far the log is written. It moves on even where no captured table is changed."""
        if self.settings.snapshot_mode == "initial_only":
            return binlog_position.ZERO
        with connect(self.settings) as connection:
            return binlog_position.commit_before(Snapshots(connection.server).head(connection))

    def head_after(self, offset: Offset) -> str:
        """The same for an offset that was reached with several servers, one after another."""
        return self.head() if offset.is_nothing else binlog_position.in_epoch_of(self.head(), offset.commit)

    def connect(self) -> None:
        connect(self.settings).close()

    def missing_permissions(self) -> Sequence[MissingPermission]:
        with connect(self.settings) as connection:
            captured = Catalog(connection, self.settings).captured(strict=False)
        return missing_permissions(self.settings, [table.id for table in captured.values()])

    def printed_tables(self) -> Iterator[PrintedTable]:
        return printed_tables(self.settings)

    def misfit_keys(self) -> Sequence[MisfitKey]:
        with connect(self.settings) as connection:
            captured = Catalog(connection, self.settings).captured(strict=False)
            return list(zero_dates(connection, captured.values()))

    def cascades(self, start: Offset | None = None, end: Offset | None = None) -> Sequence[Cascade]:
        """The foreign keys that either offset knows; without offsets those that the catalog has now."""
        if end is None:
            with connect(self.settings) as connection:
                captured = Catalog(connection, self.settings).captured(strict=False)
                keys = unlogged_keys(connection, captured)
            require_followed(keys, self.settings)
            return cascades(keys, captured, self.settings)
        if start is None or start.is_nothing or end.is_nothing:
            return ()
        known, now = StreamState.of(start).cascades, StreamState.of(end).cascades
        tables = {**tables_of(start.schemas), **tables_of(end.schemas)}
        both = tuple(dict.fromkeys((*known, *now)))
        return cascades(both, tables, self.settings, uncertain=set(known) ^ set(now))

    def still_there(self, key: ForeignKey, rows: Sequence[Mapping[str, str | None]], offset: Offset) -> Sequence[bool]:
        """Rows of the primary key, and where the foreign key would change them, with its values."""
        table = tables_of(offset.schemas)[key.child.path]
        with connect(self.settings) as connection:
            return still_there(connection, key, table, rows)

    def preview(self, start: Offset, now: dt.datetime, limit: Limit = ONE_CHUNK, *, restarted: bool = True) -> Offset:
        """What the next batch would begin with; the log is not looked at for it."""
        return Planner(self.settings, self.name).preview(start, restarted=restarted)

    def advance(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        """Where the next batch ends: more snapshot chunks, or a window of the log."""
        return self._retries.call(lambda: self._planner.advance(start, limit, now))

    def plan(self, start: Offset, end: Offset) -> list[Slice]:
        """Snapshot chunks, windows of the log, chunks that are read beside it, and announcements."""
        if start == end:
            return []
        log = StreamState.of(end).log
        slices = [*self._snapshot_slices(start, end), *_stream_slices(start, end)]
        if end.ad_hoc != start.ad_hoc:
            tables = tables_of(end.schemas)
            chunks = AdHoc.from_json(end.ad_hoc).chunks(end.reads)
            slices += [
                IncrementalSlice(tables[chunk.table], chunk, end.commit, log, end.capture_time) for chunk in chunks
            ]
        ends = end_markers(start, end, connector(log.kind), tables_of(end.schemas))
        values = added_column_markers(start, end, connector(log.kind), tables_of(end.schemas))
        markers = (*_come_and_gone(start, end), *ends, *values)
        if markers:
            slices.append(MarkerSlice(markers, end.capture_time))
        if end.heartbeat != start.heartbeat:
            slices.append(MarkerSlice((heartbeat(log, end.commit, end.commit_time),), end.heartbeat))
        return [slice.planned() for slice in slices]

    def _snapshot_slices(self, start: Offset, end: Offset) -> Iterator[MysqlSlice]:
        tables, log = tables_of(end.schemas), StreamState.of(end).log
        for path, chunks in groupby(plan_chunks(start, end), key=lambda chunk: chunk.table):
            if self._retries.call(partial(self._planner.can_be_read, path, tables[path])):
                yield from (SnapshotSlice(tables[path], chunk, log, end.capture_time) for chunk in chunks)
        for path, position in found_empty(start, end):
            yield MarkerSlice((empty_table(log, tables[path].schema, position),), end.capture_time)
        if end.gaps and end.gaps != start.gaps:
            asked = {path for path, lost in end.gaps.items() if end.skipped.get(path) == lost}
            gaps = [
                gap(log, path, after, upto, skipped=path in asked) for path, (after, upto) in sorted(end.gaps.items())
            ]
            yield MarkerSlice(tuple(gaps), end.capture_time)

    def read(self, slice: Slice) -> Iterator[pa.RecordBatch]:
        """The change rows of one slice; opens connections of its own and closes them at the end."""
        share = slice_of(slice)
        yield from self._retries.rows(lambda: share.rows(self.settings), same=share.same_rows)

    def read_to_files(self, slice: Slice, files: TableFiles) -> Iterator[pa.RecordBatch]:
        share = slice_of(slice)
        yield from self._retries.rows(partial(share.rows_to_files, self.settings, files), same=share.same_rows)

    def without(self, slice: Slice, table: str) -> Slice | None:
        left = slice_of(slice).without(table)
        return None if left is None else left.planned()

    def schemas_in(self, slice: Slice) -> Sequence[TableSchema]:
        """The schemas that are known before a slice is read; its rows bring `schema` rows of others."""
        return slice_of(slice).schemas

    def health(self, offset: Offset | None = None) -> Health:
        """Whether the server logs rows, how much waits, and how long until it may be purged."""
        health = HealthProbe(self.settings, partial(means, self.settings)).ask(offset)
        return health if offset is None else replace(health, uncaptured=self._uncaptured(offset))

    def _uncaptured(self, offset: Offset) -> tuple[str, ...]:
        """The known tables that are not captured now; those that a run has found where the server can't be reached."""
        try:
            with connect(self.settings) as connection:
                captured = Catalog(connection, self.settings).captured(strict=False)
        except HeadraceError:
            return tuple(offset.uncaptured)
        return tuple(uncaptured_tables(offset, captured, partial(means, self.settings)))

    def check_signal(self, signal: Signal) -> None:
        """Whether the tables that it names are captured, and the server takes its filters."""
        if self.settings.snapshot_mode == "initial_only":
            raise OptionError(
                "A pipeline with snapshot.mode=initial_only ends with its snapshot and follows no signal.",
                remedy="Use another snapshot.mode.",
            )
        with connect(self.settings) as connection:
            tables = Catalog(connection, self.settings).captured(strict=False)
            by_id = {table.id: table for table in tables.values()}
            for id, filter in requested_tables(signal, by_id.values()):
                check_filter(connection, by_id[id], filter)

    def move(self, wanted: TableMove, offset: Offset) -> MovePlan:
        """What it takes to leave out changes of one table. A position is a file and a byte of the log, or `now`."""
        refuse_rewind(wanted)
        head = self.head_after(offset)
        return checked_skip(replace(wanted, to=_position(wanted.to, head)), offset, head)

    def signal(self, signal: Signal) -> Sequence[str]:
        """Insert a row into the signal table; write a file where there is none."""
        if not self.settings.signal_data_collection:
            return [f"file {signal_file(self.settings.signal_path, signal)}"]
        with connect(self.settings) as connection:
            tables = Catalog(connection, self.settings).captured(strict=False)
            table = require_signal_table(self.settings.signal_data_collection, tables)
            insert_signal(connection, table, signal)
        return [f"table {table.path}"]

    def execute(self, statement: str) -> None:
        with connect(self.settings) as connection:
            connection.run(statement)

    def has_signals(self, offset: Offset) -> bool:
        """Whether the signal folder has files that were not taken yet; rows of a signal table are commits."""
        return has_files(self.settings.signal_path, AdHoc.from_json(offset.ad_hoc).files)

    @property
    def _retries(self) -> Retries:
        return Retries.of(self.settings, PassingError)

    @property
    def _planner(self) -> Planner:
        if self._planner_made is None:
            # What server it is its log says, whatever its address.
            self._planner_made = Planner(self.settings, self.name)
        return self._planner_made


def _stream_slices(start: Offset, end: Offset) -> Iterator[MysqlSlice]:
    if start.is_nothing or not StreamState.of(end).reads:
        return
    state = StreamState.of(end)
    # A table that the batch took in, or that is gone now, has its rows where either offset knows it.
    waiting = set(state.waiting)
    tables = {**tables_of(start.schemas), **tables_of(end.schemas)}
    read = {path: table for path, table in tables.items() if path not in waiting}
    after = {path: progress.commit for path, progress in start.tables.items() if path in read}
    log, before = state.log, StreamState.of(start)
    # Of the files between the two nothing is known but their names.
    marks = {
        binlog_position.boundary(offset.commit).file: of.log.mark for offset, of in ((end, state), (start, before))
    }
    for begin, upto in pairwise(map(binlog_position.boundary, (start.commit, *state.cuts, end.commit))):
        mark = marks.get(begin.file, "")
        window = Window(
            begin,
            upto,
            log.base,
            connector(log.kind),
            read,
            after,
            before.prepared,
            server=log.server,
            mark=mark,
            folds_names=log.folds_names,
            unsettled=state.unsettled,
            states={path: history for path, history in state.states.items() if path in read},
            unsure=before.unsure,
            gone=tuple(path for path in read if path not in end.schemas),
        )
        yield StreamSlice(window, end.capture_time)


def _come_and_gone(start: Offset, end: Offset) -> tuple[Marker, ...]:
    """The tables that a batch of the stream takes in or loses."""
    if start.is_nothing:
        return ()
    log = StreamState.of(end).log
    before, after = tables_of(start.schemas), tables_of(end.schemas)
    gone = [dropped(log, before[path].id, end.commit) for path in end.uncaptured if path in start.known]
    return (*gone, *(created(log, after[path].schema, end.commit) for path in end.known if path not in start.known))


def _position(text: str, head: str) -> str:
    """The commit up to which changes that begin before a position are delivered.

    Raises:
        OptionError: it is not a position.
    """
    given = text.strip()
    if given.lower() == NOW:
        return head
    name, separator, position = given.rpartition(":")
    try:
        if not separator or not position.isdecimal():
            raise ValueError
        if re.fullmatch(r"\d{4}:\d{10}", name):
            return binlog_position.BinlogPosition.of(given).text
        _, file = binlog_position.file_of(name)
        return binlog_position.commit_before(
            binlog_position.BinlogPosition(binlog_position.BinlogPosition.of(head).epoch, file, int(position))
        )
    except ValueError:
        raise OptionError(
            f"'{text}' is no place in the binary log.",
            remedy="Write file and byte, such as binlog.000042:1234, or now. The log is not searched by time.",
        ) from None
