"""Where the next batch of a database's log ends: snapshots, windows, ad-hoc reads, and tables that come and go.

Runs in the driver. The end offset of a batch decides its rows: it has the commit up to which the log is read, the
schemas as the catalog had them, and the chunks of snapshots. Places of the log are texts that sort as the log goes on;
what they mean, and how the log is asked, the planner of a source says.
"""

from __future__ import annotations

import datetime as dt
import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from headrace.errors import DataLossError, OptionError
from headrace.sources.base import Limit
from headrace.sources.batch_planner import AnySettings, BatchPlanner
from headrace.sources.log.ad_hoc_reads import AdHocReads, KeyRanges
from headrace.sources.log.window import Window, WindowState, checked_skip
from headrace.sources.offset import Offset, TableProgress
from headrace.sources.signals import Signal, say, say_once
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.chunks import read_first, reads_all, with_further_chunks
from headrace.sources.tables.table_rules import KeptTables, SourceTable

_LOG = logging.getLogger("headrace.sources")
_IDLE_BYTES = 64 * 1024 * 1024
_IDLE_SECONDS = 300
"""How far, and how long, the log may run ahead of an idle pipeline before an empty batch lets its offset follow."""


class PointWaits(Exception):
    """A moment at which tables can be read can't be had now; the message says why."""


Table = TypeVar("Table", bound=SourceTable[Any])


class Closable(Protocol):
    """A connection to a server."""

    def close(self) -> None:
        """End it."""


Session = TypeVar("Session", bound=Closable)


class LogPlanner(BatchPlanner[AnySettings], ABC, Generic[AnySettings, Table, Session]):
    """Plans the batches of one process. It keeps connections between them, which an error closes.

    Args:
        settings: the source's options.
        identity: `Offset.source`.
        ad_hoc: what signals ask for.
    """

    kept_tables: ClassVar[KeptTables[Any]]
    """Reads the tables of an offset."""
    kept_state: ClassVar[type[WindowState]]
    """What an offset keeps of the log."""

    def __init__(
        self,
        settings: AnySettings,
        identity: str,
        ad_hoc: AdHocReads[Table],
    ) -> None:
        super().__init__(settings, identity, restarted=True)
        self._ad_hoc = ad_hoc
        self._guarded = False
        self._again = settings.snapshot_mode == "always"
        self._session: Session | None = None

    def close(self) -> None:
        """Close all connections; the next batch opens others."""
        self._release_point()
        self._disconnect()
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

        Nothing is made on the server, and the log is not looked at.
        """
        try:
            return self._preview(start, restarted=restarted)
        finally:
            self.close()

    def acknowledge(self, commit: str) -> None:
        """Let the server forget the log up to a commit that all sinks have, where it keeps it for this pipeline."""
        return None

    # What the log is.

    @abstractmethod
    def _connect(self) -> Session:
        """A connection to the server."""

    @property
    def _sql(self) -> Session:
        """The connection that is kept."""
        if self._session is None:
            self._session = self._connect()
        return self._session

    def _disconnect(self) -> None:
        """Close all connections but those of the moment at which tables are read."""
        if self._session is not None:
            self._session.close()
        self._session = None

    @abstractmethod
    def _in_same_log(self, start: Offset) -> Offset:
        """The position where the last batch ended, in the log of a server that still has all that follows it.

        Where that is the log of another server, the position has another commit there, and the state of a batch without
        a window.

        Raises:
            PositionMismatch: the server is another one, or is not where this pipeline was.
            DataLossError: changes after `start` are gone.
        """

    @abstractmethod
    def _head(self) -> tuple[str, dt.datetime]:
        """The commit up to which the log is complete and can be read, and the server's clock."""

    @abstractmethod
    def _window(self, start: Offset, upto: str, commits: int) -> Window:
        """What the log has after an offset.

        Args:
            start: where the last batch ended.
            upto: the window ends here at the latest; after `start`.
            commits: how many commits with rows it has at the most; 0 for no bound.

        Raises:
            DataLossError: changes after `start` are gone.
        """

    def _took(self, window: Window) -> None:
        """A batch ends with this window; the next one begins after it."""
        return None

    @abstractmethod
    def _follow_tables(self, start: Offset, window: Window | None, *, read_only: bool = False) -> Offset:
        """The offset with the tables as they are now; `start` itself where nothing has changed.

        Args:
            start: where the last batch ended.
            window: what follows in the log; None for a new process, whose options may be others.
            read_only: whether nothing may be altered on the server.
        """

    def _reports_after(self, start: Offset) -> str:
        """A commit after which sinks hear of a change of structure, also where no row comes; empty for none."""
        return ""

    def _cut(self, start: Offset, end: Offset, window: Window) -> str | None:
        """The commit at which a window with rows has to end, because one batch can't have all structures of a table.

        Null where it may stay as it is. A source may as well see to it when it makes the window.

        Args:
            start: where the batch begins.
            end: the tables as they are now, with `start`'s position.
            window: as far as the batch would go.
        """
        return None

    @abstractmethod
    def _beginning(self) -> Offset:
        """The log's present end, from which a snapshot or a stream begins, and the tables there.

        A moment is kept at which they are read (`_point`), unless the mode reads none.
        """

    def _preview_beginning(self) -> Offset:
        """As `_beginning`, but nothing is made, locked or kept."""
        return self._beginning()

    def _begun_at(self, commit: str, tables: Mapping[str, Table], state: WindowState) -> Offset:
        """The first offset of a pipeline that begins at a commit, with the tables there by path."""
        schemas = {path: table.to_json() for path, table in tables.items()}
        return state.in_offset(Offset(source=self._identity, commit=commit, known=tuple(tables), schemas=schemas))

    @abstractmethod
    def _later(self, start: Offset) -> str | None:
        """The commit after which the log still is, where that is later than an offset; None when it can't be read on.

        Asked when changes after `start` are gone.
        """

    def _forget_log(self) -> None:
        """What the server keeps for this pipeline is of no use any more; `_beginning` makes it again."""
        return None

    def _point(self, tables: Mapping[str, Table], *, waits: bool) -> str:
        """Keep a moment after all that is committed now, and give its commit.

        Where none can be kept, rows are read later than it, and their changes since come again with the log.

        Args:
            tables: those that are read at it, by path.
            waits: whether the caller tries again later.

        Raises:
            PointWaits: it can't be had soon, and the caller tries again later.
        """
        return self._head()[0]

    def _is_served(self, path: str, progress: TableProgress) -> bool:
        """Whether a table that has no key can still be read as it was at its snapshot's moment."""
        return False

    def _altered(self, start: Offset) -> Collection[str]:
        """The tables with a key whose read is under way and that can't be read on as the offset knows them."""
        return ()

    def _release_point(self) -> None:
        """Let the moment go at which tables are read."""
        return None

    def _estimates(self, tables: Sequence[Table]) -> Mapping[str, int]:
        """About how many rows tables have, by path, for displays; those are left out of which the server can't say."""
        return {}

    def _more_chunks(self, path: str, table: Table, progress: TableProgress, budget: int) -> TableProgress:
        """A table's snapshot with up to `budget` further chunks.

        An empty table ends at once even without budget, so that the last row of the last table that has rows is known
        to be the last. A source whose `_ranges` may wait says here what becomes of the batch then.
        """
        rows, last = self._settings.snapshot_chunk_rows, progress.last
        with self._ranges() as keys:
            if table.chunk_key and last is None:
                last = next(iter(keys.greatest(table, None)), None)
                if last is None:
                    return replace(progress, done=True, empty=True)
            if budget == 0:
                return progress
            if not rows or not table.chunk_key:
                return replace(progress, bounds=(None,), done=True)
            return with_further_chunks(
                progress,
                budget,
                lambda: last,
                lambda end: keys.bounds(table, progress.lower, end, rows, budget, None),
            )

    def _written(self) -> str:
        """The commit up to which the log has all that can be seen now, even where it can't be read that far yet."""
        return self._head()[0]

    @abstractmethod
    def _ranges(self) -> AbstractContextManager[KeyRanges[Table]]:
        """Asks for keys of tables as they are."""

    def _more_reads(self, reads: AdHoc, end: Offset, budget: int) -> AdHoc:
        """Ad-hoc snapshots with up to `budget` further chunks, for a batch that ends at `end`."""
        return self._ad_hoc.further(reads, end, budget, self._ranges)

    # The next batch.

    def _advance(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        if start.initial:
            # The snapshot of mode `always` at this start is under way.
            self._again = False
        if start.is_nothing:
            end = self._first(limit)
        else:
            known, start = start, self._resume(start)
            # A batch of its own says what is lost, or that another server took over; what is read again follows.
            moved = start.commit != known.commit or bool(start.gaps and start.gaps != known.gaps)
            if moved:
                # Rows that were left out of chunks may have changed in what is lost, or on another server.
                end = replace(start, ad_hoc=AdHoc.from_json(start.ad_hoc).advanced().restart().to_json())
            elif any(not progress.done for progress in start.tables.values()):
                end = self._snapshot(start, limit)
            elif self._settings.snapshot_mode == "initial_only":
                end = self._settled(start)
                if end is start:
                    return known
            else:
                self._release_point()
                try:
                    end = self._without_skipped(start) or self._stream(start, limit, now)
                except DataLossError as error:
                    self.close()
                    end = self._skip_what_is_lost(start, error)
            if end is start and not moved:
                # What the batch before delivered is not delivered again.
                end = known if start is known else self.kept_state.of(start).settled().in_offset(start)
            if end == known and not self._heartbeat_is_due(known, now):
                return known
            start = known
        return self._planned(start, end, now)

    def _resume(self, start: Offset) -> Offset:
        """The position where the last batch ended, as a new process or a new connection takes it up.

        Raises:
            PositionMismatch: the server is another one, or is not where this pipeline was.
            DataLossError: changes after `start` are gone, and the options do not say to go on.
        """
        self._require_own(start)
        altered = self._altered(start)
        if self._guarded and not altered:
            return start
        if self._settings.snapshot_mode != "initial_only":
            try:
                start = self._in_same_log(start)
            except DataLossError as error:
                return self._skip_what_is_lost(start, error)
            if self._restarted:
                self.acknowledge(start.commit)
        if self._restarted or altered:
            start = self._follow_tables(start, None)
        start = self._read_again(start, altered)
        self._guarded = True
        return start

    # Snapshots.

    def _first(self, limit: Limit) -> Offset:
        return self._with_first_chunks(self._beginning(), limit)

    def _read_first(self, end: Offset) -> list[str]:
        """The tables of an offset whose rows are read before their changes."""
        tables = self.kept_tables(end.schemas)
        return read_first(self._settings, (tables[path].id for path in end.known if path in tables))

    def _with_first_chunks(self, end: Offset, limit: Limit) -> Offset:
        begun = self._begun(end, self._read_first(end), 0)
        return replace(end, tables=self._chunks(begun, self.kept_tables(end.schemas), limit))

    def _begun(self, end: Offset, paths: Collection[str], read: int) -> dict[str, TableProgress]:
        """Snapshots of tables that begin at the commit of an offset."""
        tables = self.kept_tables(end.schemas)
        rows = self._estimates([tables[path] for path in paths if path in tables]) if paths else {}
        return {path: TableProgress(commit=end.commit, rows=rows.get(path, -1), read=read) for path in paths}

    def _snapshot(self, start: Offset, limit: Limit) -> Offset:
        advanced = {path: p if p.done and not p.bounds else p.advanced() for path, p in start.tables.items()}
        advanced = self._chunks(advanced, self.kept_tables(start.schemas), limit)
        return self.kept_state.of(start).settled().in_offset(replace(start, tables=advanced, gaps={}))

    def _chunks(
        self, lagging: Mapping[str, TableProgress], tables: Mapping[str, Table], limit: Limit
    ) -> dict[str, TableProgress]:
        def more(path: str, progress: TableProgress, budget: int) -> TableProgress:
            return self._more_chunks(path, tables[path], progress, budget)

        return self._with_chunks(lagging, limit, more)

    def _read_again(self, start: Offset, altered: Collection[str]) -> Offset:
        """Tables whose read was under way are read again at a new moment where what they held at the old one is not
        known any more: those without a key, and those that were altered.
        """
        tables = self.kept_tables(start.schemas)
        lost = [
            path
            for path, progress in start.tables.items()
            if not (progress.done and not progress.bounds)
            and path in tables
            and (path in altered or not tables[path].chunk_key)
            and not self._is_served(path, progress)
        ]
        if not lost:
            return start
        self._release_point()
        commit = self._point({path: tables[path] for path in lost}, waits=False)
        again = {path: TableProgress(commit=commit, read=start.reads + 1) for path in lost}
        return replace(start, tables={**start.tables, **again})

    # The stream.

    def _stream(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        head, clock = self._head()
        waits_for = max(AdHoc.from_json(start.ad_hoc).waits_for, self._reports_after(start))
        # A table that was read ends after what was in the log then.
        upto = min(head, max(limit.upto, waits_for)) if limit.upto else head
        commits = limit.commits or self._settings.max_commits_per_trigger
        window = self._window(start, upto, commits) if upto > start.commit else Window(start.commit)
        end = self._follow_tables(start, window)
        cut = self._cut(start, end, window) if window.rows else None
        if cut is not None:
            window = self._window(start, cut, commits)
        before = AdHoc.from_json(start.ad_hoc)
        settled = before.advanced().after_added(start.commit)
        reads = AdHoc.from_json(end.ad_hoc).advanced().after_added(start.commit)
        reads = reads.cut_again(self.kept_tables(end.schemas))
        if not self._restarted:
            reads = reads.paced(before, start.capture_time, now, self._settings.snapshot_chunk_rows)
        end = replace(end, commit=window.end, gaps={}, tables=_catching_up(end, window.end))
        reads = self._ad_hoc.ends(reads, start, end, self._written, self._ranges, quiet=not window.rows)
        reads, end = self._with_reads(start, end, reads, window.signals, limit)
        idle = not window.rows and reads == settled and not end.tables and not start.tables and end.known == start.known
        follows = bool(window.size) and waits_for > start.commit
        follows = follows or self._follows(start, window, limit, now)
        if idle and end.schemas == start.schemas and not follows:
            return start
        self._took(window)
        full = window.end == head or not window.rows
        end = replace(end, commit_time=clock if full else window.commit_time, ad_hoc=reads.to_json())
        return replace(self.kept_state.of(end), reads=window.rows, cuts=window.cuts).in_offset(end)

    def _follows(self, start: Offset, window: Window, limit: Limit, now: dt.datetime) -> bool:
        """Whether a batch without rows is worth it, so that the offset can follow the log."""
        if not window.size:
            return False
        late = start.capture_time is None or (now - start.capture_time).total_seconds() >= _IDLE_SECONDS
        # A run that should end waits for the position where the log was at its beginning.
        asked = limit.follows or bool(limit.upto) or window.cut
        return asked or late or window.size >= _IDLE_BYTES or self._heartbeat_is_due(start, now)

    def _with_reads(
        self, start: Offset, end: Offset, reads: AdHoc, signals: Sequence[Signal], limit: Limit
    ) -> tuple[AdHoc, Offset]:
        """The state of ad-hoc snapshots, and the end of a batch with the snapshots that begin there."""
        reads, end = self._skipping(self._ad_hoc.requested(reads, end, signals), end)
        at_goal = not limit.upto or end.commit >= limit.upto
        first = self._read_first(end) if self._again and at_goal and not end.tables else []
        again = bool(first)
        if again:
            reads = replace(reads, blocking=tuple(dict.fromkeys((*first, *reads.blocking))))
        blocking, left = reads.begin_blocking(end.schemas)
        if blocking and not end.tables:
            tables = self.kept_tables(end.schemas)
            try:
                commit = self._point({path: tables[path] for path in blocking}, waits=True)
            except PointWaits as waits:
                say_once(f"The snapshot of table '{blocking[0]}' waits: {waits}")
            else:
                begun = self._begun(replace(end, commit=commit), blocking, start.reads + 1)
                self._again = self._again and not again
                reads = replace(reads, blocking=left)
                state = self.kept_state.of(end).with_begun(begun)
                end = state.in_offset(replace(end, tables=begun, initial=again))
        return self._more_reads(reads, end, limit.chunks or self._settings.snapshot_chunks_per_batch), end

    def _without_skipped(self, start: Offset) -> Offset | None:
        """A batch of its own, without a window, that leaves out what signal files ask to skip: the changes in the
        window that follows are not delivered then. Null where none asks for that."""
        before = AdHoc.from_json(start.ad_hoc).advanced()
        if not self._ad_hoc.skips_by_file(before):
            return None
        reads, end = self._skipping(self._ad_hoc.requested(before, start, ()), replace(start, gaps={}))
        return self.kept_state.of(start).settled().in_offset(replace(end, ad_hoc=reads.to_json()))

    def _skipping(self, reads: AdHoc, end: Offset) -> tuple[AdHoc, Offset]:
        """The end of a batch after which changes of tables are left out as signals ask; only those that come later
        than the batch."""
        left_out: dict[str, tuple[str, str]] = {}
        for move in reads.moves:
            try:
                plan = checked_skip(move, end)
            except OptionError as error:
                say(f"The skip of table '{move.table}' is not followed: {error}")
            else:
                left_out[move.table] = (plan.at, move.to)
        progress = {path: TableProgress(commit=upto, done=True) for path, (_, upto) in left_out.items()}
        reads = reads.restart(lambda request: request.table in left_out)
        return replace(reads, moves=()), replace(
            end,
            tables={**end.tables, **progress},
            gaps={**end.gaps, **left_out},
            skipped={**end.skipped, **left_out},
        )

    # What was lost.

    def _skip_what_is_lost(self, start: Offset, error: DataLossError) -> Offset:
        """Where it goes on when changes after `start` are gone.

        Raises:
            DataLossError: the options do not say to go on.
        """
        again = self._settings.snapshot_mode == "when_needed"
        tables = self.kept_tables(start.schemas)
        mended = reads_all(self._settings, (table.id for table in tables.values()))
        if not mended and self._settings.fail_on_data_loss:
            raise error
        what = "All tables" if mended else "Those of 'snapshot_include_collection_list'"
        _LOG.warning("%s%s", error, f" {what} are read again." if again else "")
        later = None if again else self._later(start)
        if later is not None:
            gaps = dict.fromkeys(start.known, (start.commit, later))
            ad_hoc = _with_unread(start, start.known).to_json()
            end = replace(start, commit=later, tables={}, initial=False, gaps=gaps, ad_hoc=ad_hoc)
            return self.kept_state.of(start).settled().in_offset(end)
        self._forget_log()
        end = self._beginning()
        begun = self._begun(end, self._read_first(end), start.reads + 1) if again else {}
        if not again:
            self._release_point()
        return replace(
            end,
            tables=begun,
            initial=False,
            gaps=dict.fromkeys((path for path in start.known if path in end.schemas), (start.commit, end.commit)),
            heartbeat=start.heartbeat,
            reads=start.reads,
            versions=start.versions,
            ad_hoc=_with_unread(start, [path for path in end.known if path not in begun]).to_json(),
        )

    def _settled(self, start: Offset) -> Offset:
        """The offset after the batch that ended the read of a table without a key; `start` itself without such.

        Another process can't know whether that batch was done, so it reads the table again. A run that should end goes
        one batch further, which says so.
        """
        tables = self.kept_tables(start.schemas)
        ended = [path for path, progress in start.tables.items() if progress.bounds and not tables[path].chunk_key]
        return replace(start, tables=_catching_up(start, start.commit)) if ended else start

    def _preview(self, start: Offset, *, restarted: bool) -> Offset:
        if start.is_nothing:
            return self._with_first_chunks(self._preview_beginning(), Limit(chunks=1))
        if not restarted:
            return self._settled(start)
        end = self._follow_tables(self._in_same_log(start), None, read_only=True)
        if self._again and not start.initial:
            begun = self._begun(end, self._read_first(end), start.reads + 1)
            return replace(end, tables=begun, initial=True) if begun else end
        return end


def _with_unread(start: Offset, known: Collection[str]) -> AdHoc:
    """The ad-hoc snapshots of an offset, and the tables among the known ones whose snapshot was not read to its end."""
    unread = [path for path, progress in start.tables.items() if not progress.done and path in known]
    state = AdHoc.from_json(start.ad_hoc).advanced().restart()
    return replace(state, blocking=tuple(dict.fromkeys((*state.blocking, *unread))))


def _catching_up(start: Offset, commit: str) -> dict[str, TableProgress]:
    """The tables whose snapshot is newer than the stream at the end of a batch."""
    return {
        path: progress.advanced()
        for path, progress in start.tables.items()
        if path in start.schemas and progress.done and progress.commit > commit
    }
