"""Where the next batch of PostgreSQL's log ends: its slot, its head, and the moments at which tables are read.

Runs in the driver. Commits are LSNs, as `headrace.sources.postgresql.lsn` has them.

A window may have to end because one batch can't have a table's rows from before and after an ALTER: a column that was
text and is bytes now has canonical texts of both kinds, and a sink gives a batch one type. The log is read through for
that, but only where the catalog showed such a change.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from headrace.changes import LogicalType
from headrace.errors import CaptureError
from headrace.sources.connection import LostConnection
from headrace.sources.log.planner import LogPlanner
from headrace.sources.log.window import Window
from headrace.sources.offset import Offset, TableProgress
from headrace.sources.postgresql import lsn, pgoutput, slots
from headrace.sources.postgresql.captured_table import PostgresTable, tables_of
from headrace.sources.postgresql.catalog import estimated_rows
from headrace.sources.postgresql.connection import Connection, connect
from headrace.sources.postgresql.earlier_structures import statement
from headrace.sources.postgresql.guards import require_same_log
from headrace.sources.postgresql.incremental import AdHocPlanner, KeysNow
from headrace.sources.postgresql.keeper import SnapshotPoint
from headrace.sources.postgresql.log_scan import LogScan, ScanResult
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.relation import Relation
from headrace.sources.postgresql.slots import copy_reader
from headrace.sources.postgresql.snapshot_read import is_as_known, more_chunks
from headrace.sources.postgresql.stream_state import StreamState
from headrace.sources.postgresql.table_set import TableSet
from headrace.sources.postgresql.types import TypeCatalog
from headrace.sources.postgresql.unsent_changes import visible_now
from headrace.sources.signals import say
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.chunks import is_read_first
from headrace.sources.tables.rewrites import can_share

_WAIT_SECONDS = 1.0


def altered_tables(state: StreamState, now: Mapping[str, PostgresTable]) -> frozenset[int]:
    """The oids of tables whose structures on both sides of a change can't share a batch.

    Args:
        state: what the offset at the batch's end keeps of the log.
        now: its tables.
    """
    before = state.earlier.before(now)
    return frozenset(
        table.oid for path, table in before.items() if not can_share(_logicals(table), _logicals(now[path]))
    )


def shared_end(
    settings: PostgresSettings, start: int, end: int, oids: Collection[int], types: TypeCatalog
) -> str | None:
    """The commit at which a window has to end; None where its transactions can share a batch.

    One transaction that has rows from both sides of an ALTER of its own is never cut.

    Args:
        settings: the source's options.
        start: the boundary at which the window begins.
        end: the boundary at which it ends.
        oids: the tables whose rows count.
        types: what is known of types.
    """
    shapes: dict[int, dict[str, LogicalType]] = {}
    opened: dict[int, dict[str, LogicalType]] = {}
    commit, inside = 0, False
    with copy_reader(settings, start) as reader:
        while True:
            for payload in reader.receive(_WAIT_SECONDS):
                message = pgoutput.read(payload)
                if isinstance(message, pgoutput.Keepalive):
                    if not inside and message.lsn >= end:
                        return None
                    continue
                content = message.content
                if isinstance(content, pgoutput.Begin):
                    if content.commit >= end:
                        return None
                    commit, inside = content.commit, True
                elif isinstance(content, pgoutput.Commit):
                    shapes, opened, inside = {**shapes, **opened}, {}, False
                    if content.end >= end:
                        return None
                elif isinstance(content, pgoutput.TypeMessage):
                    types = types.with_logged(content.oid, content.schema, content.name)
                elif isinstance(content, Relation) and content.oid in oids and commit >= start:
                    shape = {c.name: types.resolve(c.oid, c.typmod).logical for c in content.columns}
                    if content.oid in shapes and not can_share(shapes[content.oid], shape):
                        return lsn.commit_before(commit)
                    opened[content.oid] = shape


def _logicals(table: PostgresTable) -> dict[str, LogicalType]:
    return {column.name: column.logical for column in table.schema.columns}


_LOG = logging.getLogger("headrace.sources")
_FLUSH_SECONDS = 1.0
_FLUSH_POLL_SECONDS = 0.02
_HEAD = "SELECT pg_current_wal_insert_lsn()::text, pg_current_wal_flush_lsn()::text, clock_timestamp()"


class Planner(LogPlanner[PostgresSettings, PostgresTable, Connection]):
    """Plans the batches of one process. It keeps connections between them, which an error closes.

    Args:
        settings: the source's options.
        identity: `Offset.source`.
    """

    kept_tables = tables_of
    kept_state = StreamState

    def __init__(self, settings: PostgresSettings, identity: str) -> None:
        self._reads = AdHocPlanner(settings)
        super().__init__(settings, identity, self._reads)
        self._tables = TableSet(settings)
        self._scan: LogScan | None = None
        self._moment: SnapshotPoint | None = None
        self._left_out: set[str] = set()

    def can_be_read(self, path: str, table: PostgresTable) -> bool:
        """Whether a chunk can be read of a table as it is now, because its snapshot is over.

        A table that has no key can't, nor one that was altered. The next plan reads it from its beginning.
        """
        try:
            if table.chunk_key and is_as_known(self._sql, table):
                return True
        except LostConnection:
            self.close()
            raise
        self._left_out.add(path)
        say(f"A chunk of table '{path}' is left out, because its snapshot is over; the table is read again.")
        return False

    def exported(self, path: str, progress: TableProgress) -> str | None:
        """The snapshot in which a chunk of a table is read; None where its session is gone."""
        if self._is_served(path, progress) and self._moment is not None:
            return self._moment.exported
        return None

    def acknowledge(self, commit: str) -> None:
        if self._settings.snapshot_mode == "initial_only":
            return
        try:
            slots.advance(self._sql, self._settings.slot, lsn.boundary(commit))
        except CaptureError as error:
            # The next acknowledgement does the same; what is wrong with the slot the next plan says.
            _LOG.warning("The slot '%s' can't be advanced: %s", self._settings.slot, error)

    def _connect(self) -> Connection:
        return connect(self._settings)

    def _disconnect(self) -> None:
        self._close_scan()
        super()._disconnect()

    def _in_same_log(self, start: Offset) -> Offset:
        state = StreamState.of(start)
        log = require_same_log(self._sql, self._settings, state.log, start.commit)
        return start if log == state.log else replace(state, log=log).in_offset(start)

    # Snapshots.

    def _is_served(self, path: str, progress: TableProgress) -> bool:
        try:
            return self._moment is not None and self._moment.serves(path, progress.commit)
        except CaptureError:
            # The table has no key: the next plan reads it again at a new point.
            self.close()
            return False

    def _altered(self, start: Offset) -> Collection[str]:
        tables = tables_of(start.schemas)
        under_way = [path for path, p in start.tables.items() if path in tables and not (p.done and not p.bounds)]
        altered = [
            path
            for path in under_way
            if tables[path].chunk_key
            and not self._is_served(path, start.tables[path])
            and (path in self._left_out or not is_as_known(self._sql, tables[path]))
        ]
        self._left_out.clear()
        return altered

    def _point(self, tables: Mapping[str, PostgresTable], *, waits: bool) -> str:
        self._moment = SnapshotPoint.created(self._settings, tables, permanent=False, waits=waits)
        return lsn.commit_before(self._moment.boundary)

    def _release_point(self) -> None:
        if self._moment is not None:
            self._moment.close()
        self._moment = None

    def _beginning(self) -> Offset:
        """A new slot, from which a snapshot or a stream begins, and the tables there."""
        settings = self._settings
        tables = self._tables.captured(self._sql, strict=True)
        temporary = settings.snapshot_mode == "initial_only"
        if not temporary:
            self._tables.publish(self._sql, tables)
        read = {path: table for path, table in tables.items() if is_read_first(settings, table.id)}
        self._moment = SnapshotPoint.created(settings, read, permanent=not temporary)
        commit = lsn.commit_before(self._moment.boundary)
        # Again, now that nobody can alter them.
        end = self._offset_at(commit, streams=not temporary)
        if not read:
            self._release_point()
        return end

    def _preview_beginning(self) -> Offset:
        return self._offset_at(self._head()[0], streams=False)

    def _offset_at(self, commit: str, *, streams: bool) -> Offset:
        visible = visible_now(self._sql)
        tables = self._tables.captured(self._sql, strict=True)
        return self._begun_at(commit, tables, self._tables.state(self._sql, tables, visible, streams=streams))

    def _estimates(self, tables: Sequence[PostgresTable]) -> Mapping[str, int]:
        return estimated_rows(self._sql, tables)

    def _more_chunks(self, path: str, table: PostgresTable, progress: TableProgress, budget: int) -> TableProgress:
        moment = self._moment
        session = moment.session if moment is not None and moment.serves(path, progress.commit) else self._sql
        return more_chunks(session, table, progress, self._settings, budget)

    def _written(self) -> str:
        return lsn.commit_before(lsn.written_up_to(self._sql.rows(_HEAD)[0][0]))

    def _ranges(self) -> AbstractContextManager[KeysNow]:
        return nullcontext(KeysNow(self._sql))

    def _more_reads(self, reads: AdHoc, end: Offset, budget: int) -> AdHoc:
        return self._reads.more(self._sql, reads, end, budget)

    # The stream.

    def _follow_tables(self, start: Offset, window: Window | None, *, read_only: bool = False) -> Offset:
        return self._tables.follow(self._sql, start, restarted=window is None, publishes=not read_only)

    def _reports_after(self, start: Offset) -> str:
        earlier = StreamState.of(start).earlier
        now = tables_of(start.schemas)
        is_renamed = any(statement(table, now[path]) for path, table in earlier.before(now).items())
        return earlier.until if is_renamed else ""

    def _cut(self, start: Offset, end: Offset, window: Window) -> str | None:
        state = StreamState.of(end)
        oids = altered_tables(state, tables_of(end.schemas))
        if not oids:
            return None
        # Its copy of the slot would be one more.
        self._close_scan()
        types = state.types.with_gone(state.earlier.types)
        return shared_end(self._settings, lsn.boundary(start.commit), lsn.boundary(window.end), oids, types)

    def _head(self) -> tuple[str, dt.datetime]:
        """The commit up to which the log is complete and on disk, and the server's clock.

        The position up to which it is on disk may be in the middle of a record, so that is never the boundary itself.
        """
        inserted, flushed, clock = self._sql.rows(_HEAD)[0]
        head, deadline = lsn.written_up_to(inserted), time.monotonic() + _FLUSH_SECONDS
        while lsn.of_server(flushed) < head and time.monotonic() < deadline:
            time.sleep(_FLUSH_POLL_SECONDS)
            flushed = self._sql.rows(_HEAD)[0][1]
        return lsn.commit_before(min(head, lsn.of_server(flushed))), clock

    def _window(self, start: Offset, upto: str, commits: int) -> Window:
        begin, bound = lsn.boundary(start.commit), lsn.boundary(upto)
        scan = self._seen(start, bound, commits)
        boundary = self._boundary(begin, bound, scan, commits)
        return Window(
            end=lsn.commit_before(boundary),
            rows=scan.rows,
            commit_time=scan.commit_time,
            signals=tuple(signal for commit, signal in scan.signals if commit < boundary),
            cuts=self._cuts(begin, boundary) if scan.rows else (),
            size=boundary - begin,
        )

    def _seen(self, start: Offset, bound: int, commits: int) -> ScanResult:
        begin = lsn.boundary(start.commit)
        oids = self._tables.oids(start)
        if self._scan is None or self._scan.start != begin or self._scan.oids != oids:
            self._close_scan()
            self._scan = LogScan(self._settings, begin, oids, self._tables.signal_table(start))
        return self._scan.upto(bound, commits)

    def _took(self, window: Window) -> None:
        """Keep the look where it read through; where it stopped at a row, it begins again after the batch."""
        if self._scan is None:
            return
        if self._scan.reads_through:
            self._scan.forget_before(lsn.boundary(window.end))
        else:
            self._close_scan()

    def _close_scan(self) -> None:
        if self._scan is not None:
            self._scan.close()
        self._scan = None

    def _boundary(self, begin: int, bound: int, scan: ScanResult, commits: int) -> int:
        through = self._scan is not None and (bool(commits) or self._scan.reads_through)
        end = min(scan.until, bound) if not scan.rows or through else bound
        if scan.rows and not self._settings.messages:
            # A message outside of transactions has no other position than between two records, which is not known here.
            end = min(end, begin + self._settings.max_wal_per_batch)
        return max(end, begin)

    def _cuts(self, begin: int, end: int) -> tuple[str, ...]:
        """Where a window is cut so that several tasks read it."""
        if self._settings.messages:
            return ()
        parts = min(self._settings.max_readers, (end - begin) // self._settings.min_wal_per_reader)
        return tuple(lsn.commit_before(begin + (end - begin) * part // parts) for part in range(1, parts))

    # What was lost.

    def _later(self, start: Offset) -> str | None:
        """Where the slot goes on that begins later than the offset; None where it can't be read at all."""
        state = slots.SlotState.of(self._sql, self._settings.slot)
        if state is None or state.is_lost or state.confirmed is None or state.confirmed <= lsn.boundary(start.commit):
            return None
        return lsn.commit_before(state.confirmed)

    def _forget_log(self) -> None:
        slots.drop_if_there(self._sql, self._settings.slot)
