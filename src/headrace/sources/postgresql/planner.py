"""Where the next batch ends: snapshots, windows of the log, ad-hoc reads, and tables that come and go.

Runs in the driver. The end offset of a batch decides its rows: it has the commit up to which the log is read, the
schemas as the catalog had them, and the chunks of snapshots.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from headrace.errors import CaptureError, DataLossError, PositionMismatch
from headrace.sources.base import Limit
from headrace.sources.offset import Offset, TableProgress
from headrace.sources.postgresql import lsn, slots
from headrace.sources.postgresql.captured_table import PostgresTable, tables_of
from headrace.sources.postgresql.connection import Connection, connect
from headrace.sources.postgresql.guards import require_same_log
from headrace.sources.postgresql.incremental import AdHocPlanner
from headrace.sources.postgresql.look import Look, Seen
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.snapshot_point import PointWaits, SnapshotPoint
from headrace.sources.postgresql.snapshot_read import more_chunks
from headrace.sources.postgresql.stream_state import StreamState
from headrace.sources.postgresql.table_set import TableSet
from headrace.sources.signals import Signal, say_once
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.chunks import snapshot_finished
from headrace.sources.tables.lost import WITHOUT_ROWS

_LOG = logging.getLogger("headrace.sources")
_IDLE_BYTES = 64 * 1024 * 1024
_IDLE_SECONDS = 300
"""How far, and how long, the log may run ahead of an idle pipeline before an empty batch lets the slot follow."""
_FLUSH_SECONDS = 1.0
_FLUSH_POLL_SECONDS = 0.02
_HEAD = "SELECT pg_current_wal_insert_lsn()::text, pg_current_wal_flush_lsn()::text, clock_timestamp()"


class Planner:
    """Plans the batches of one process. It keeps connections between them, which an error closes.

    Args:
        settings: the source's options.
        identity: `Offset.source`.
    """

    def __init__(self, settings: PostgresSettings, identity: str) -> None:
        self._settings = settings
        self._identity = identity
        self._tables = TableSet(settings)
        self._ad_hoc = AdHocPlanner(settings)
        self._connection: Connection | None = None
        self._look: Look | None = None
        self._point: SnapshotPoint | None = None
        self._restarted = True
        self._guarded = False
        self._again = settings.snapshot_mode == "always"

    def close(self) -> None:
        """Close all connections; the next batch opens others."""
        if self._point is not None:
            self._point.close()
        self._point = None
        self._forget_look()
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._guarded = False

    def advance(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        """The end of the batch that begins at `start`; `start` itself when nothing is new."""
        try:
            end = self._advance(start, limit, now)
        except BaseException:
            self.close()
            raise
        self._restarted = False
        return end

    def preview(self, start: Offset, *, restarted: bool) -> Offset:
        """What the next batch would begin with: the first one with a chunk, a later one with the tables that are new or
        that are read again.

        Neither a slot nor a publication is made, and the log is not looked at.
        """
        try:
            return self._preview(start, restarted=restarted)
        finally:
            self.close()

    def exported(self, path: str, progress: TableProgress) -> str | None:
        """The snapshot in which a chunk of a table is read; null where its session is gone.

        Then a table that has no key is left out of the batch, and the next plan reads it from its beginning.
        """
        if self._is_served(path, progress) and self._point is not None:
            return self._point.exported
        return None

    def _is_served(self, path: str, progress: TableProgress) -> bool:
        """Whether the session is there that keeps the moment at which a table is read."""
        try:
            return self._point is not None and self._point.serves(path, progress.commit)
        except CaptureError:
            # The table has no key: the next plan reads it again at a new point.
            self.close()
            return False

    def acknowledge(self, commit: str) -> None:
        """Let the slot go on to a commit that all sinks have."""
        if self._settings.snapshot_mode == "initial_only":
            return
        try:
            slots.advance(self._sql, self._settings.slot, lsn.boundary(commit))
        except CaptureError as error:
            # The next acknowledgement does the same; what is wrong with the slot the next plan says.
            _LOG.warning("The slot '%s' can't be advanced: %s", self._settings.slot, error)

    @property
    def _sql(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self._settings)
        return self._connection

    def _advance(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        if start.initial:
            # The snapshot of mode `always` at this start is under way.
            self._again = False
        if start.is_nothing:
            end = self._first(limit)
        else:
            known, start = start, self._taken_up(start)
            if start.gaps and start.gaps != known.gaps:
                # A batch of its own says what is lost; what is read again follows.
                end = start
            elif any(not progress.done for progress in start.tables.values()):
                end = self._snapshot(start, limit)
            elif self._settings.snapshot_mode == "initial_only":
                end = self._settled(start)
                if end is start:
                    return known
            else:
                self._release_point()
                try:
                    end = self._stream(start, limit, now)
                except DataLossError as error:
                    self.close()
                    end = self._behind_what_is_lost(start, error)
            if end is start and not (start.gaps and start.gaps != known.gaps):
                # What the batch before delivered is not delivered again.
                end = known if start is known else StreamState.of(start).settled().in_offset(start)
            if end == known and not self._beats(known, now):
                return known
            start = known
        end = replace(end, initial=end.initial and not snapshot_finished(end)).counting_reads(start)
        return replace(end, capture_time=now, heartbeat=now if self._beats(start, now) else end.heartbeat)

    def _beats(self, start: Offset, now: dt.datetime) -> bool:
        every = self._settings.heartbeat_interval_ms
        if not every:
            return False
        return start.heartbeat is None or now - start.heartbeat >= dt.timedelta(milliseconds=every)

    def _taken_up(self, start: Offset) -> Offset:
        """The place where the last batch ended, as a new process or a new connection takes it up.

        Raises:
            PositionMismatch: the server is another one, or is not where this pipeline was.
            DataLossError: changes behind `start` are gone, and the options do not say to go on.
        """
        if start.source != self._identity:
            raise PositionMismatch(
                f"The checkpoint belongs to '{start.source}', not to '{self._identity}'.",
                remedy="Use another checkpoint for another database.",
            )
        if self._guarded:
            return start
        if self._settings.snapshot_mode != "initial_only":
            try:
                start = self._in_same_log(start)
            except DataLossError as error:
                return self._behind_what_is_lost(start, error)
            if self._restarted:
                self.acknowledge(start.commit)
        if self._restarted:
            start = self._tables.looked_up(self._sql, start, restarted=True)
        start = self._keyless_again(start)
        self._guarded = True
        return start

    def _in_same_log(self, start: Offset) -> Offset:
        """The place where the last batch ended, in the log of a server that still has all that follows it."""
        state = StreamState.of(start)
        log = require_same_log(self._sql, self._settings, state.log, start.commit)
        return start if log == state.log else replace(state, log=log).in_offset(start)

    # Snapshots.

    def _first(self, limit: Limit) -> Offset:
        end, tables = self._beginning()
        if self._settings.snapshot_mode in WITHOUT_ROWS:
            return end
        begun = {path: TableProgress(commit=end.commit) for path in tables}
        return replace(end, tables=self._chunks(begun, tables, limit))

    def _beginning(self) -> tuple[Offset, Mapping[str, PostgresTable]]:
        """A new slot, from which a snapshot or a stream begins, and the tables there."""
        settings = self._settings
        tables = self._tables.captured(self._sql, strict=True)
        temporary = settings.snapshot_mode == "initial_only"
        if not temporary:
            self._tables.publish(self._sql, tables)
        keeps = settings.snapshot_mode not in WITHOUT_ROWS
        self._point = SnapshotPoint.made(settings, tables if keeps else {}, permanent=not temporary)
        # Again, now that nobody can alter them.
        tables = self._tables.captured(self._sql, strict=True)
        state = self._tables.state(self._sql, tables, streams=not temporary)
        end = Offset(
            source=self._identity,
            commit=lsn.commit_before(self._point.boundary),
            known=tuple(tables),
            schemas={path: table.to_json() for path, table in tables.items()},
            log=state.to_json(),
        )
        if not keeps:
            self._release_point()
        return end, tables

    def _release_point(self) -> None:
        if self._point is not None:
            self._point.close()
            self._point = None

    def _snapshot(self, start: Offset, limit: Limit) -> Offset:
        behind = {path: p if p.done and not p.bounds else p.behind() for path, p in start.tables.items()}
        advanced = self._chunks(behind, tables_of(start.schemas), limit)
        return StreamState.of(start).settled().in_offset(replace(start, tables=advanced, gaps={}))

    def _chunks(
        self, lagging: Mapping[str, TableProgress], tables: Mapping[str, PostgresTable], limit: Limit
    ) -> dict[str, TableProgress]:
        budget = limit.chunks or self._settings.snapshot_chunks_per_batch
        advanced = {}
        for path, progress in lagging.items():
            if not progress.done:
                point = self._point
                session = point.session if point is not None and point.serves(path, progress.commit) else self._sql
                progress = more_chunks(session, tables[path], progress, self._settings, budget)
                # The chunks of a table without a key may be more.
                budget = max(0, budget - len(progress.bounds))
            advanced[path] = progress
        return advanced

    def _keyless_again(self, start: Offset) -> Offset:
        """Tables without a key whose read was under way are read again at a new point: what they held at the old one
        went with its session.
        """
        tables = tables_of(start.schemas)
        lost = [
            path
            for path, progress in start.tables.items()
            if not (progress.done and not progress.bounds)
            and path in tables
            and not tables[path].chunk_key
            and not self._is_served(path, progress)
        ]
        if not lost:
            return start
        self._release_point()
        self._point = SnapshotPoint.made(self._settings, {path: tables[path] for path in lost}, permanent=False)
        commit = lsn.commit_before(self._point.boundary)
        again = {path: TableProgress(commit=commit, read=start.reads + 1) for path in lost}
        return replace(start, tables={**start.tables, **again})

    # The stream.

    def _stream(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        begin = lsn.boundary(start.commit)
        head, clock = self._head()
        bound = min(head, lsn.boundary(limit.upto)) if limit.upto else head
        commits = limit.commits or self._settings.max_commits_per_trigger
        seen = self._seen(start, bound, commits) if bound > begin else Seen(begin)
        boundary = self._boundary(begin, bound, seen, commits)
        end = self._tables.looked_up(self._sql, start, restarted=False)
        settled = AdHoc.from_json(start.ad_hoc).behind()
        reads = AdHoc.from_json(end.ad_hoc).behind()
        signals = [signal for commit, signal in seen.signals if commit < boundary]
        end = replace(end, commit=lsn.commit_before(boundary), gaps={}, tables=_catching_up(end, boundary))
        reads, end = self._with_reads(start, end, reads, signals, limit)
        idle = not seen.rows and reads == settled and not end.tables and not start.tables and end.known == start.known
        if idle and end.schemas == start.schemas and not self._follows(start, boundary - begin, limit, now):
            return start
        self._look_from(boundary)
        full = boundary == head or not seen.rows
        end = replace(end, commit_time=clock if full else seen.commit_time, ad_hoc=reads.to_json())
        state = replace(StreamState.of(end), reads=seen.rows, cuts=self._cuts(begin, boundary) if seen.rows else ())
        return state.in_offset(end)

    def _follows(self, start: Offset, ahead: int, limit: Limit, now: dt.datetime) -> bool:
        """Whether a batch without rows is worth it, so that the slot can follow the log."""
        if not ahead:
            return False
        late = start.capture_time is None or (now - start.capture_time).total_seconds() >= _IDLE_SECONDS
        # A run that should end waits for the place where the log was at its beginning.
        return bool(limit.upto) or late or ahead >= _IDLE_BYTES or self._beats(start, now)

    def _head(self) -> tuple[int, dt.datetime]:
        """The boundary up to which the log is complete and on disk, and the server's clock.

        The place up to which it is on disk may be in the middle of a record, so that is never the boundary itself.
        """
        inserted, flushed, clock = self._sql.rows(_HEAD)[0]
        head, deadline = lsn.written_up_to(lsn.of_server(inserted)), time.monotonic() + _FLUSH_SECONDS
        while lsn.of_server(flushed) < head and time.monotonic() < deadline:
            time.sleep(_FLUSH_POLL_SECONDS)
            flushed = self._sql.rows(_HEAD)[0][1]
        return min(head, lsn.of_server(flushed)), clock

    def _seen(self, start: Offset, bound: int, commits: int) -> Seen:
        begin = lsn.boundary(start.commit)
        if self._look is None or self._look.start != begin:
            self._forget_look()
            self._look = Look(self._settings, begin, self._tables.wanted(start), self._tables.signal_table(start))
        return self._look.upto(bound, commits)

    def _look_from(self, boundary: int) -> None:
        """Keep the look where it read through; where it stopped at a row, it begins again behind the batch."""
        if self._look is None:
            return
        if self._look.reads_through:
            self._look.forget_before(boundary)
        else:
            self._forget_look()

    def _forget_look(self) -> None:
        if self._look is not None:
            self._look.close()
        self._look = None

    def _boundary(self, begin: int, bound: int, seen: Seen, commits: int) -> int:
        """The boundary at which the batch ends."""
        through = self._look is not None and (bool(commits) or self._look.reads_through)
        end = min(seen.until, bound) if not seen.rows or through else bound
        if seen.rows and not self._settings.messages:
            # A message outside of transactions has no other place than between two records, which is not known here.
            end = min(end, begin + self._settings.max_wal_per_batch)
        return max(end, begin)

    def _cuts(self, begin: int, end: int) -> tuple[int, ...]:
        """Where a window is cut so that several tasks read it."""
        if self._settings.messages:
            return ()
        parts = min(self._settings.max_readers, (end - begin) // self._settings.min_wal_per_reader)
        return tuple(begin + (end - begin) * part // parts for part in range(1, parts))

    def _with_reads(
        self, start: Offset, end: Offset, reads: AdHoc, signals: Sequence[Signal], limit: Limit
    ) -> tuple[AdHoc, Offset]:
        """The state of ad-hoc snapshots, and the end of a batch with the snapshots that begin there."""
        takes_rows = self._settings.snapshot_mode not in WITHOUT_ROWS
        reads = self._ad_hoc.requested(reads, end, signals)
        at_goal = not limit.upto or end.commit >= limit.upto
        again = self._again and at_goal and not end.tables
        if again:
            reads = replace(reads, blocking=tuple(end.known))
        blocking = [path for path in reads.blocking if path in end.schemas]
        if blocking and takes_rows and not end.tables:
            tables = tables_of(end.schemas)
            try:
                self._point = SnapshotPoint.made(
                    self._settings, {path: tables[path] for path in blocking}, permanent=False, waits=True
                )
            except PointWaits as waits:
                say_once(f"The snapshot of table '{blocking[0]}' waits: {waits}")
            else:
                commit = lsn.commit_before(self._point.boundary)
                begun = {path: TableProgress(commit=commit, read=start.reads + 1) for path in blocking}
                self._again = self._again and not again
                reads = replace(reads, blocking=())
                state = StreamState.of(end)
                waiting = tuple(path for path in state.waiting if path not in begun)
                end = replace(state, waiting=waiting).in_offset(replace(end, tables=begun, initial=again))
        elif not takes_rows:
            reads = replace(reads, blocking=())
        return self._ad_hoc.more(self._sql, reads, end, limit.chunks or self._settings.snapshot_chunks_per_batch), end

    # What was lost.

    def _behind_what_is_lost(self, start: Offset, error: DataLossError) -> Offset:
        """Where it goes on with a new slot when changes behind `start` are gone.

        Raises:
            DataLossError: the options do not say to go on.
        """
        again = self._settings.snapshot_mode == "when_needed"
        if not again and self._settings.fail_on_data_loss:
            raise error
        _LOG.warning("%s%s", error, " All tables are read again." if again else "")
        if not again:
            later = self._later_in_slot(start)
            if later is not None:
                return later
        slots.drop_if_there(self._sql, self._settings.slot)
        end, tables = self._beginning()
        begun = {path: TableProgress(commit=end.commit, read=start.reads + 1) for path in end.known} if again else {}
        if not again:
            self._release_point()
        return replace(
            end,
            tables=begun,
            initial=False,
            gaps=dict.fromkeys((path for path in start.known if path in tables), (start.commit, end.commit)),
            heartbeat=start.heartbeat,
            reads=start.reads,
            versions=start.versions,
            ad_hoc=_with_unread(start, () if again else end.known).to_json(),
        )

    def _later_in_slot(self, start: Offset) -> Offset | None:
        """Where the slot goes on that begins later than the offset; null where it can't be read at all."""
        state = slots.SlotState.of(self._sql, self._settings.slot)
        if state is None or state.is_lost or state.confirmed is None or state.confirmed <= lsn.boundary(start.commit):
            return None
        commit = lsn.commit_before(state.confirmed)
        gaps = dict.fromkeys(start.known, (start.commit, commit))
        ad_hoc = _with_unread(start, start.known).to_json()
        end = replace(start, commit=commit, tables={}, initial=False, gaps=gaps, ad_hoc=ad_hoc)
        return StreamState.of(start).settled().in_offset(end)

    def _settled(self, start: Offset) -> Offset:
        """The offset behind the batch that ended the read of a table without a key; `start` itself without such.

        Another process can't know whether that batch was done, so it reads the table again. A run that should end goes
        one batch further, which says so.
        """
        tables = tables_of(start.schemas)
        ended = [path for path, progress in start.tables.items() if progress.bounds and not tables[path].chunk_key]
        return replace(start, tables=_catching_up(start, lsn.boundary(start.commit))) if ended else start

    def _preview(self, start: Offset, *, restarted: bool) -> Offset:
        if start.is_nothing:
            tables = self._tables.captured(self._sql, strict=True)
            head, _ = self._head()
            commit = lsn.commit_before(head)
            end = Offset(
                source=self._identity,
                commit=commit,
                known=tuple(tables),
                schemas={path: table.to_json() for path, table in tables.items()},
                log=self._tables.state(self._sql, tables, streams=False).to_json(),
            )
            if self._settings.snapshot_mode in WITHOUT_ROWS:
                return end
            begun = {path: TableProgress(commit=commit) for path in tables}
            return replace(end, tables=self._chunks(begun, tables, Limit(chunks=1)))
        if not restarted:
            return self._settled(start)
        end = self._tables.looked_up(self._sql, self._in_same_log(start), restarted=True, publishes=False)
        if self._again and not start.initial:
            begun = {path: TableProgress(commit=end.commit, read=start.reads + 1) for path in end.known}
            return replace(end, tables=begun, initial=True)
        return end


def _with_unread(start: Offset, known: Collection[str]) -> AdHoc:
    """The ad-hoc snapshots of an offset, and the tables among the known ones whose snapshot was not read to its end."""
    unread = [path for path, progress in start.tables.items() if not progress.done and path in known]
    state = AdHoc.from_json(start.ad_hoc).behind()
    return replace(state, blocking=tuple(dict.fromkeys((*state.blocking, *unread))))


def _catching_up(start: Offset, boundary: int) -> dict[str, TableProgress]:
    """The tables whose snapshot is newer than the stream at the end of a batch."""
    return {
        path: progress.behind()
        for path, progress in start.tables.items()
        if path in start.schemas and progress.done and lsn.boundary(progress.commit) > boundary
    }
