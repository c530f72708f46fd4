"""Where the next batch of the binary log ends: its head, its windows, and the moments at which tables are read.

Runs in the driver. Commits are positions of the log, as `headrace.sources.mysql.binlog_position` has them.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from headrace.errors import DataLossError, PositionMismatch
from headrace.sources.base import Limit
from headrace.sources.connection import LostConnection
from headrace.sources.log.ad_hoc_reads import AdHocReads
from headrace.sources.log.planner import LogPlanner
from headrace.sources.log.window import Window
from headrace.sources.mysql import snapshot_statements as statements
from headrace.sources.mysql.altered_tables import AlteredTables, altered_tables, is_altered, under_options
from headrace.sources.mysql.binlog_position import (
    FIRST,
    BinlogPosition,
    boundary,
    commit_before,
    file_name,
    in_epoch_of,
)
from headrace.sources.mysql.captured_table import MysqlTable, tables_of
from headrace.sources.mysql.catalog import TableSet, estimated_rows
from headrace.sources.mysql.connection import MARIADB, Connection, connect
from headrace.sources.mysql.described_table import described_table
from headrace.sources.mysql.failover import is_another, taken_over
from headrace.sources.mysql.guards import (
    NEW_CHECKPOINT,
    ServerState,
    gtid_set,
    require_same_file,
    require_there,
)
from headrace.sources.mysql.incremental import KeysNow
from headrace.sources.mysql.log_read import mark_of, scan_window
from headrace.sources.mysql.log_scan import ScanResult
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.signal_table import signals_in
from headrace.sources.mysql.slices import changes_of
from headrace.sources.mysql.snapshot_read import TableAltered, more_chunks, require_as_known
from headrace.sources.mysql.stream_state import LogState, StreamState
from headrace.sources.mysql.table_map import read_table_map, table_named
from headrace.sources.mysql.table_states import TableStatement
from headrace.sources.mysql.transactions import Prepared
from headrace.sources.mysql.visibility import Snapshots
from headrace.sources.offset import Offset, TableProgress
from headrace.sources.signals import Signal, say
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.tables.lost import WITHOUT_ROWS

_CLOCK = "SELECT UTC_TIMESTAMP(6)"
_END = "ROLLBACK"
_NO_CUT = 2**62
_CATALOG_TRIES, _CATALOG_SECONDS = 5, 0.1


@dataclass(frozen=True)
class BinlogWindow(Window):
    """A window, and what the offset keeps at its end.

    Args:
        gtids: the transactions that the offset has then.
        prepared: the distributed transactions that are not decided then.
        tables: the captured tables at its end; None where they are as the offset has them.
    """

    gtids: str = ""
    prepared: tuple[Prepared, ...] = ()
    tables: AlteredTables | None = None


@dataclass(frozen=True)
class _Quiet:
    """A stretch of the log after an offset that has nothing for the captured tables, so it is not looked at again.

    Args:
        commit, tables: the offset's commit, and the tables that were looked for.
        scan: what was found, its end above all.
        gtids: see `BinlogWindow`.
    """

    commit: str
    tables: frozenset[tuple[str, str]]
    scan: ScanResult
    gtids: str


class Planner(LogPlanner[MysqlSettings, MysqlTable, Connection]):
    """Plans the batches of one process. It keeps a connection between them, which an error closes.

    Args:
        settings: the source's options.
        identity: `Offset.source`.
    """

    kept_tables = tables_of
    kept_state = StreamState

    def __init__(self, settings: MysqlSettings, identity: str) -> None:
        super().__init__(settings, identity, AdHocReads(settings, "", tables_of, ("skip",)))
        self._tables = TableSet(settings)
        self._quiet: _Quiet | None = None
        self._scan_again = False
        self._readable: dict[bytes, MysqlTable] = {}
        self._epoch = 0
        self._changed: set[str] = set()
        self._left_out: set[str] = set()

    def can_be_read(self, path: str, table: MysqlTable) -> bool:
        """Whether a chunk can be read of a table, because it is as the offset knows it.

        One that was altered is read from its beginning by the next plan.
        """
        try:
            require_as_known(self._sql, table)
        except TableAltered:
            self._left_out.add(path)
            say(f"A chunk of table '{path}' is left out, because the table was altered; it is read again.")
            return False
        except LostConnection:
            self.close()
            raise
        return True

    def _connect(self) -> Connection:
        return connect(self._settings)

    @property
    def _snapshots(self) -> Snapshots:
        return Snapshots(self._sql.server, self._epoch)

    def _disconnect(self) -> None:
        self._quiet = None
        super()._disconnect()

    def _resume(self, start: Offset) -> Offset:
        self._epoch = StreamState.of(start).log.epoch
        return super()._resume(start)

    def _in_same_log(self, start: Offset) -> Offset:
        now, state, begin = ServerState.of(self._sql), StreamState.of(start), boundary(start.commit)
        self._epoch = state.log.epoch
        if is_another(now, state.log):
            return self._taken_over(start, now)
        require_there(now, state, begin)
        file = file_name(state.log.base, begin.file)
        require_same_file(mark_of(self._settings, file), state.log.mark, file, str(self._sql.endpoint))
        return start

    def _taken_over(self, start: Offset, now: ServerState) -> Offset:
        """The position of an offset in the log of a server that took over."""
        state, tables = StreamState.of(start), tables_of(start.schemas)
        self._epoch += 1
        begin, log = taken_over(self._sql, self._settings, now, state)
        keyless = {path for path in start.tables if path in tables and not tables[path].chunk_key}
        done = [path for path in keyless if start.tables[path].done and start.tables[path].commit > start.commit]
        if done:
            raise PositionMismatch(
                f"Table '{min(done)}' has no key and was read on another server than '{now.address}', behind the place "
                "where its changes begin.",
                remedy=NEW_CHECKPOINT,
            )
        # What they held is known of the other server's log only.
        self._changed |= keyless
        say(f"The server '{now.address}' took over: its log is read on from {begin.position} of file {begin.file}.")
        commit = commit_before(begin)
        # What a snapshot read on the other server may be anywhere behind.
        unsettled = commit_before(self._snapshots.head(self._sql)) if state.unsettled else ""
        # What was prepared on the other server is looked for in this one's log when it is committed.
        taken = StreamState(log, waiting=state.waiting, unsettled=unsettled, cascades=state.cascades)
        return taken.in_offset(replace(start, commit=commit))

    # Snapshots. Every position of the log serves: what a table without a key held there, the log says.

    def _is_served(self, path: str, progress: TableProgress) -> bool:
        return path not in self._changed

    def _altered(self, start: Offset) -> Collection[str]:
        tables = tables_of(start.schemas)
        under_way = {path: p for path, p in start.tables.items() if path in tables and not (p.done and not p.bounds)}
        self._changed = {path for path in under_way if path in self._left_out or self._is_altered(tables[path])}
        # Since the offset was written, another table may have got this name. The read starts after that statement, so
        # the stream never reports it, and the read has to use the columns that the table has now.
        begins = [path for path, p in under_way.items() if p.read and not p.chunk and not p.bounds]
        shown = self._tables.captured(self._sql, strict=False) if begins else {}
        self._changed |= {path for path in begins if path in shown and is_altered(tables[path], shown[path])}
        self._left_out.clear()
        return self._changed

    def _is_altered(self, table: MysqlTable) -> bool:
        try:
            require_as_known(self._sql, table)
        except TableAltered:
            return True
        return False

    def _point(self, tables: Mapping[str, MysqlTable], *, waits: bool) -> str:
        self._changed.clear()
        return super()._point(tables, waits=waits)

    def _beginning(self) -> Offset:
        begun = self._snapshots.head(self._sql)
        self._snapshots.wait_executed(self._sql)
        now = ServerState.of(self._sql)
        folds = self._sql.server.folds_names
        log = LogState(now.kind, now.server, now.base, "", self._epoch, now.gtids, folds)
        # The transactions have all that was before the first position, and nothing from after the second.
        log, head = self._with_transactions(log, begun, self._snapshots.head(self._sql))
        log = replace(log, mark=mark_of(self._settings, file_name(now.base, head.file)))
        tables = self._tables.captured(self._sql, strict=True)
        return self._tables.with_cascades(self._sql, self._begun_at(commit_before(head), tables, StreamState(log)))

    def _with_transactions(
        self, log: LogState, begin: BinlogPosition, end: BinlogPosition
    ) -> tuple[LogState, BinlogPosition]:
        """What is kept of a log, with the transactions between two boundaries, and up to where it has them."""
        if begin == end or not log.gtids:
            return log, end
        scan = scan_window(self._settings, log, begin, end, (), commits=0, cut_bytes=_NO_CUT, prepared=())
        return replace(log, gtids=gtid_set(log.kind, log.gtids).add(scan.gtids).text), scan.until

    def _estimates(self, tables: Sequence[MysqlTable]) -> Mapping[str, int]:
        return estimated_rows(self._sql, [table.id for table in tables])

    def _more_chunks(self, path: str, table: MysqlTable, progress: TableProgress, budget: int) -> TableProgress:
        # A row that can't be seen yet may be after the last key that is found.
        self._see(progress.commit, [table])
        rows = self._settings.snapshot_chunk_rows
        return more_chunks(self._sql, table, progress, self._settings, rows, budget)

    def _ranges(self) -> AbstractContextManager[KeysNow]:
        return nullcontext(KeysNow(self._sql))

    def _more_reads(self, reads: AdHoc, end: Offset, budget: int) -> AdHoc:
        tables = tables_of(end.schemas)
        asked = [tables[one.table] for one in reads.at_hand(budget) if one.table in tables]
        if asked and not reads.paused and not end.tables:
            self._see(end.commit, asked)
        return self._ad_hoc.further(reads, end, budget, self._ranges)

    def _see(self, commit: str, tables: Collection[MysqlTable]) -> None:
        """Wait until everything up to a commit can be seen by whoever reads these tables."""
        quoted = tuple(statements.quoted(table.id) for table in tables)
        self._snapshots.opened(self._sql, boundary(commit), tables=quoted, another=lambda: connect(self._settings))
        self._sql.run(_END)

    # The stream.

    def _head(self) -> tuple[str, dt.datetime]:
        clock = self._sql.value(_CLOCK).replace(tzinfo=dt.UTC)
        return commit_before(self._snapshots.head(self._sql)), clock

    def _stream(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        head = commit_before(self._snapshots.head(self._sql))
        if limit.upto:
            # Who asked for the head did not know how many servers were followed.
            limit = replace(limit, upto=in_epoch_of(limit.upto, start.commit))
        if head < start.commit:
            # The log was reset, or lost its end; what is behind the offset is not ours.
            self._in_same_log(start)
        if start.tables:
            # All of their rows were read before now.
            start = replace(StreamState.of(start), unsettled=head).in_offset(start)
        return super()._stream(start, limit, now)

    def _window(self, start: Offset, upto: str, commits: int) -> Window:
        begin, bound, state = boundary(start.commit), boundary(upto), StreamState.of(start)
        now = ServerState.of(self._sql)
        require_there(now, state, begin)
        quiet = self._scan_log(start, state, now, bound, commits)
        tables = self._altered_tables(start, state, quiet.scan)
        cut = None if tables is None else tables.cut
        if cut is not None:
            # One batch can't have both what is in front of the statement and what is behind it.
            quiet = self._scan_log(start, state, now, BinlogPosition.of(cut), commits)
            tables = self._altered_tables(start, state, quiet.scan)
        scan = quiet.scan
        self._require_readable(start, state, scan, tables)
        if not scan.rows and not scan.altered:
            self._quiet = quiet
        # A table that is made is not looked for, and may have rows at once that no snapshot reads.
        only_streams = self._settings.snapshot_mode in WITHOUT_ROWS or self._settings.snapshot_include_collection_list
        comes = (scan.altered or self._scan_again) and bool(only_streams)
        return BinlogWindow(
            end=commit_before(scan.until),
            rows=scan.rows or comes,
            commit_time=scan.time,
            signals=self._signals(start, state.log, scan),
            cuts=tuple(map(commit_before, scan.cuts)),
            size=now.bytes_between(begin, scan.until),
            altered=scan.altered,
            cut=cut is not None,
            gtids=quiet.gtids,
            prepared=scan.prepared,
            tables=tables,
        )

    def _altered_tables(self, start: Offset, state: StreamState, scan: ScanResult) -> AlteredTables | None:
        """The captured tables at the end of a window; None where the log says that they are as before."""
        if not scan.altered and not self._scan_again:
            return None
        known, begin = tables_of(start.schemas), boundary(start.commit).text
        read_at = {path: progress.commit for path, progress in start.tables.items()}
        for tries_left in range(_CATALOG_TRIES, -1, -1):
            shown = self._tables.captured(self._sql, strict=False)
            later = self._later_statements(state, scan, known)
            altered = altered_tables(known, state.unsure, shown, scan.statements, later, begin, state.dropped, read_at)
            missing = [path for path in known if path not in shown and path not in altered.replaced]
            if not (missing or altered.lagging) or not tries_left:
                break
            # A statement may be in the log a moment before the catalog shows what it did, and a table that is being
            # altered may be in no catalog for a moment.
            time.sleep(_CATALOG_SECONDS)
        return altered

    def _require_readable(
        self, start: Offset, state: StreamState, scan: ScanResult, altered: AlteredTables | None
    ) -> None:
        """Stop here, where a repair can still leave changes out, and not in the batch that would have them.

        Raises:
            CaptureError: it is not known how a table was when changes were made, and the log does not say it.
        """
        known = tables_of(start.schemas)
        paths = {(table.id.database, table.id.name): path for path, table in known.items()}
        mariadb = state.log.kind == MARIADB
        for (described, number), last in scan.rows_of.items():
            path = paths[table_named(described)]
            after = start.tables.get(path)
            is_gone = altered is not None and path not in altered.found
            if path in state.waiting or is_gone or (after is not None and last <= after.commit):
                continue
            states = altered.states.get(path) if altered is not None else None
            table: MysqlTable | None = None if path in state.unsure else known[path]
            if states is not None:
                position = scan.statements[number - 1].position if number else ""
                table = [at for begin, at in states if begin <= position][-1]
            if self._readable.get(described) is not (table or known[path]):
                described_table(
                    read_table_map(described, mariadb=mariadb),
                    table or known[path],
                    self._settings,
                    altered=table is None,
                )
                if table is not None:
                    self._readable[described] = table

    def _later_statements(
        self, state: StreamState, scan: ScanResult, known: Mapping[str, MysqlTable]
    ) -> tuple[TableStatement, ...] | None:
        """The statements after a window that the catalog may show already; None where that is too much to read."""
        head = self._snapshots.head(self._sql)
        if head <= scan.until:
            return ()
        tables = [(table.id.database, table.id.name) for table in known.values()]
        later = scan_window(
            self._settings,
            replace(state.log, folds_names=self._sql.server.folds_names),
            scan.until,
            head,
            tables,
            commits=0,
            cut_bytes=_NO_CUT,
            prepared=scan.prepared,
        )
        return later.statements if later.until >= head else None

    def _scan_log(
        self, start: Offset, state: StreamState, now: ServerState, bound: BinlogPosition, commits: int
    ) -> _Quiet:
        """What is behind an offset; what was quiet when it was looked at before is not read again."""
        tables = frozenset((table.id.database, table.id.name) for table in tables_of(start.schemas).values())
        known = self._quiet
        if known is None or (known.commit, known.tables) != (start.commit, tables) or known.scan.until > bound:
            scan = ScanResult(boundary(start.commit), prepared=state.prepared)
            known = _Quiet(start.commit, tables, scan, state.log.gtids)
        begin = known.scan.until
        if begin >= bound:
            return known
        settings = self._settings
        share = min(now.bytes_between(begin, bound), settings.max_log_per_batch) // settings.max_readers
        scan = scan_window(
            settings,
            replace(state.log, folds_names=self._sql.server.folds_names),
            begin,
            bound,
            tables,
            commits=commits,
            cut_bytes=max(settings.min_log_per_reader, share),
            prepared=known.scan.prepared,
            mark=state.log.mark if begin.file == _file(start.commit) else "",
        )
        gtids = gtid_set(now.kind, known.gtids).add(scan.gtids).text
        return replace(known, scan=replace(scan, gtids=()), gtids=gtids)

    def _signals(self, start: Offset, log: LogState, scan: ScanResult) -> tuple[Signal, ...]:
        table = self._ad_hoc.table(start) if scan.rows else None
        if table is None or (table.id.database, table.id.name) not in scan.tables:
            return ()
        read = changes_of(self._settings, log, StreamState.of(start).prepared)
        rows = read(table, boundary(start.commit), scan.until)
        return tuple(signals_in(table, rows))

    def _took(self, window: Window) -> None:
        self._quiet = None

    def _follows(self, start: Offset, window: Window, limit: Limit, now: dt.datetime) -> bool:
        """Also when the log goes on in another file, so that a quiet pipeline does not need one that may be purged."""
        return super()._follows(start, window, limit, now) or _file(window.end) != _file(start.commit)

    def _follow_tables(self, start: Offset, window: Window | None, *, read_only: bool = False) -> Offset:
        end = start
        if window is None:
            end = self._tables.follow(start, self._tables_at(start), restarted=True)
        elif isinstance(window, BinlogWindow) and window.tables is not None:
            tables = window.tables
            end = self._tables.follow(
                start,
                tables.found,
                restarted=False,
                rewrites=tables.rewrites,
                replaced=tables.replaced,
                rows=self._estimates,
            )
        if window is None or (isinstance(window, BinlogWindow) and window.tables is not None):
            end = self._tables.with_cascades(self._sql, end)
        if window is not None:
            # A statement may be in the log a moment before the catalog shows what it did.
            self._scan_again = window.altered
        after = self._at_end_of_window(end, window) if isinstance(window, BinlogWindow) else end
        return after if set(end.known) <= set(start.known) else _with_all_held(after)

    def _tables_at(self, start: Offset) -> dict[str, MysqlTable]:
        """The captured tables as a new process begins with them.

        Those that were altered are as they were until the log comes to the statements.
        """
        tables = self._tables.captured(self._sql, strict=False)
        for path, table in tables_of(start.schemas).items():
            if path in tables and path not in self._changed and is_altered(table, tables[path]):
                tables[path] = under_options(table, self._settings)
                self._scan_again = True
        return tables

    def _at_end_of_window(self, end: Offset, window: BinlogWindow) -> Offset:
        state, file = StreamState.of(end), _file(window.end)
        log = replace(state.log, gtids=window.gtids, folds_names=self._sql.server.folds_names)
        if file != _file(end.commit):
            log = replace(log, mark=mark_of(self._settings, file_name(log.base, file)))
        unsettled = state.unsettled if state.unsettled > end.commit else ""
        tables = window.tables
        return replace(
            state,
            log=log,
            prepared=window.prepared,
            unsettled=unsettled,
            states={} if tables is None else tables.states,
            unsure=state.unsure if tables is None else tables.unsure,
            dropped=state.dropped if tables is None else tables.dropped,
        ).in_offset(end)

    # What was lost.

    def _skip_what_is_lost(self, start: Offset, error: DataLossError) -> Offset:
        end = super()._skip_what_is_lost(start, error)
        state, begin = StreamState.of(end), boundary(end.commit)
        log = replace(state.log, mark=mark_of(self._settings, file_name(state.log.base, begin.file)))
        # The rows of those that were prepared before are lost with the rest.
        held = tuple(one if one.start >= begin else one._replace(captured=False) for one in state.prepared)
        return replace(state, log=log, prepared=held).in_offset(end)

    def _later(self, start: Offset) -> str | None:
        """The beginning of the oldest file, where it is later than the offset."""
        now, begin = ServerState.of(self._sql), boundary(start.commit)
        oldest = BinlogPosition(begin.epoch, now.files[0].number, FIRST)
        return commit_before(oldest) if oldest > begin else None


def _with_all_held(end: Offset) -> Offset:
    """What is prepared may have rows of the tables that come in, which no snapshot sees."""
    state = StreamState.of(end)
    return replace(state, prepared=tuple(one._replace(captured=True) for one in state.prepared)).in_offset(end)


def _file(commit: str) -> int:
    return boundary(commit).file
