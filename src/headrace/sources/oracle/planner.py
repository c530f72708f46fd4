"""Where the next batch ends: snapshots, mined ranges, whole transactions, and schemas.

Runs in the driver. The end offset of a batch decides its rows: it has the commits up to which the batch goes, the
schemas, and the ranges that hold its rows (`MiningState`).
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.errors import DataLossError
from headrace.sources.base import Limit
from headrace.sources.batch_planner import BatchPlanner
from headrace.sources.offset import Offset, TableProgress
from headrace.sources.oracle import logs, scn, statements
from headrace.sources.oracle.captured_table import OracleTable, owners_and_names, tables_of
from headrace.sources.oracle.catalog import OracleTableRules, Selection, captured_tables
from headrace.sources.oracle.change_rows import instant
from headrace.sources.oracle.connection import Connection
from headrace.sources.oracle.definitions import Definition
from headrace.sources.oracle.delivery import Delivery, DeliveryPlanner
from headrace.sources.oracle.incremental import AdHocPlanner, require_signal_table, signals_of
from headrace.sources.oracle.ledger import Ledger, Transaction, excluded_users, of_ranges
from headrace.sources.oracle.mining import logs_of, mine, require_logs, whole_since
from headrace.sources.oracle.mining_state import Mined, MinedRanges, MiningState
from headrace.sources.oracle.options import OracleSettings
from headrace.sources.oracle.range_index import RangeIndex
from headrace.sources.oracle.scn import ScnRange
from headrace.sources.oracle.snapshot_read import (
    MomentGone,
    keep_dictionary_new,
    more_chunks,
    place,
    readable,
    require_not_restored,
    require_set_up,
    scn_after_new_dictionary,
)
from headrace.sources.oracle.staging import Staging
from headrace.sources.signals import Signal
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.chunks import read_first, reads_all
from headrace.sources.snapshots.ends_equal import say_read_once_more
from headrace.sources.tables.lost import say_made_again, say_returned, say_uncaptured
from headrace.sources.tables.rewrites import follow_rewrites
from headrace.sources.tables.unmatched import require_matched_tables

_REMEDY = "Make it again, or let it log all its columns (ALTER TABLE ... ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS)"
_LOG = logging.getLogger("headrace.sources")
_PARTIAL = "It does not log all its columns, so what an update leaves out is missing from its changes"


@dataclass(frozen=True)
class _LogReach:
    """How far the log is known.

    Args:
        ranges: the mined ranges whose transactions are not all delivered, oldest first.
        reached: up to which SCN they go.
        upper: the SCN up to which the log is complete.
        mining: the ranges that tasks of the batch mine.
    """

    ranges: list[ScnRange]
    reached: int
    upper: int
    mining: list[ScnRange]


class OraclePlanner(BatchPlanner[OracleSettings]):
    """Plans one batch.

    Args:
        connect: opens connections; with the pluggable database's name when that is to be its container.
        settings: the source's options.
        identity: `Offset.source`.
        mine: the index of a range, which is mined where that is not known.
        upper: the SCN up to which the log is complete.
        staging: where mined ranges of tables of these schemas are.
        ahead: ranges that this process mined beyond the last offset, in order; it is added to.
        restarted: whether this is the first batch that this process plans.
        again: whether all tables are to be read again when the stream has caught up.
    """

    def __init__(
        self,
        connect: Callable[[str], Connection],
        settings: OracleSettings,
        identity: str,
        *,
        mine: Callable[[ScnRange, Mapping[str, Any]], RangeIndex],
        upper: Callable[[], int],
        staging: Callable[[Mapping[str, Any]], Staging],
        ahead: list[ScnRange],
        restarted: bool,
        again: bool = False,
    ) -> None:
        super().__init__(settings, identity, restarted=restarted)
        self._connect = connect
        self._mine = mine
        self._upper = upper
        self._staging = staging
        self._ranges = MinedRanges(settings, mine=mine, staging=staging, ahead=ahead, restarted=restarted)
        self._again = again
        self._in_redo = settings.log_mining_strategy == logs.IN_REDO
        self._rules = OracleTableRules(settings)
        self._ad_hoc = AdHocPlanner(lambda: connect(settings.pdb), settings, self.database)
        self._deliveries = DeliveryPlanner(lambda: connect(settings.pdb), settings, self.database)

    def advance(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        """The end of the batch that begins at `start`; `start` itself when nothing is new."""
        if start.is_nothing:
            end = self._first(limit)
        else:
            self._require_same_database(start)
            if self._restarted:
                start, known = self._with_fresh(start), start
            else:
                known = start
            unfinished = any(not progress.done for progress in start.tables.values())
            if unfinished or (start.initial and start.tables):
                end = self._snapshot(start, limit)
            elif self._settings.snapshot_mode == "initial_only":
                return known
            else:
                try:
                    end = self._stream(start, limit, now)
                except DataLossError as error:
                    end = self._skip_what_is_lost(start, error)
            if end is start:
                # What the batch before delivered is not delivered again.
                end = known if start is known else MiningState.of(start).settled().in_offset(start)
            if end == known:
                return known
        return self._planned(start, end, now)

    def preview(self, start: Offset) -> Offset:
        """What the next batch would begin with: the first one with a chunk, a later one with the tables that are new or
        that are read again.

        Nothing is mined, so changes that wait are not looked for.
        """
        if start.is_nothing:
            return self._first(Limit(chunks=1))
        self._require_same_database(start)
        if not self._restarted:
            return start
        end = self._with_fresh(start)
        if self._again and not start.initial:
            begun = {path: TableProgress(commit=end.commit, read=start.reads + 1) for path in self._read_first(end)}
            return replace(end, tables=begun, initial=True) if begun else end
        return end

    # Snapshots.

    def _read_first(self, end: Offset) -> list[str]:
        """The tables of an offset whose rows are read before their changes."""
        tables = tables_of(end.schemas)
        return read_first(self._settings, (tables[path].id for path in end.known if path in tables))

    def _first(self, limit: Limit) -> Offset:
        end, tables = self._beginning()
        begun = {path: TableProgress(commit=end.commit) for path in self._read_first(end)}
        try:
            return replace(end, tables=self._chunks(begun, tables, limit))
        except MomentGone as gone:
            # It was altered just now: the next attempt begins later.
            raise gone.error from gone

    def _beginning(self) -> tuple[Offset, Mapping[str, OracleTable]]:
        """Where the log is now, from which a snapshot or a stream begins, and the tables there."""
        with self._connect("") as root:
            resetlogs = require_set_up(root)
            with self._connect(self._settings.pdb) as connection:
                tables = captured_tables(connection, self.database, self._settings, strict=True)
                if self._settings.signal_data_collection:
                    require_signal_table(self._settings.signal_data_collection, self.database, tables)
            if self._in_redo:
                logs.write(root)
            begin, at = place(root, self._settings)
        commit = scn.to_text(at)
        state = MiningState(begin, begin, resetlogs, self._rules.digest)
        end = Offset(
            source=self._identity,
            commit=commit,
            known=tuple(tables),
            schemas={path: table.to_json() for path, table in tables.items()},
            log=state.to_json(),
        )
        return end, tables

    @property
    def database(self) -> str:
        return str(self._settings.pdb or self._settings.database).upper()

    def _snapshot(self, start: Offset, limit: Limit) -> Offset:
        advanced = {path: p if p.done and not p.bounds else p.advanced() for path, p in start.tables.items()}
        tables = tables_of(start.schemas)
        try:
            advanced = self._chunks(advanced, tables, limit)
        except MomentGone as gone:
            unfinished = [path for path, progress in advanced.items() if not progress.done]
            if not gone.is_mended_in(self._settings.snapshot_mode) or not all(
                tables[path].chunk_key for path in unfinished
            ):
                # Of a table without a key the changes meanwhile would come twice.
                raise gone.error from gone
            return self._read_later(start, unfinished, gone)
        return MiningState.of(start).settled().in_offset(replace(start, tables=advanced, gaps={}))

    def _read_later(self, start: Offset, unfinished: list[str], gone: MomentGone) -> Offset:
        """The stream goes on first; then these tables are read from their beginning, as of where it is."""
        _LOG.warning("%s The snapshot of %s begins again.", gone.error.message, ", ".join(unfinished))
        state = AdHoc.from_json(start.ad_hoc).advanced()
        waiting = (*state.blocking, *(path for path in unfinished if path not in state.blocking))
        state = replace(state, blocking=waiting)
        end = replace(start, tables={}, initial=False, gaps={}, ad_hoc=state.to_json())
        return MiningState.of(start).settled().in_offset(end)

    def _chunks(
        self, lagging: Mapping[str, TableProgress], tables: Mapping[str, OracleTable], limit: Limit
    ) -> dict[str, TableProgress]:
        with self._connect(self._settings.pdb) as connection:

            def more(path: str, progress: TableProgress, budget: int) -> TableProgress:
                return more_chunks(connection, tables[path], progress, self._settings, budget)

            return self._with_chunks(lagging, limit, more)

    def _with_fresh(self, start: Offset) -> Offset:
        """With the tables that the options mean since the last run; their snapshot is as of where the stream is."""
        with self._connect(self._settings.pdb) as connection:
            captured = captured_tables(connection, self.database, self._settings, strict=False)
            selection = Selection(self._settings)
            gone = [path for path in start.known if not selection.means(*path.split(".", 1))]
            fresh = {
                path: table
                for path, table in captured.items()
                if path not in start.known and readable(connection, table, start.commit)
            }
        uncaptured = {
            path: commit
            for path, commit in start.uncaptured.items()
            if path not in fresh and selection.means_path(path)
        }
        self._say_uncaptured(uncaptured, start.known, ())
        require_matched_tables(self._settings, tables_of(start.schemas), captured, fresh)
        kept = tuple(path for path in start.known if path not in gone)
        schemas = {path: data for path, data in start.schemas.items() if path not in gone}
        state = MiningState.of(start)
        if (state.rules or "") != self._rules.digest:
            known = tables_of(start.schemas)
            schemas |= {
                path: self._rules.reshaped(known[path], captured[path]).to_json()
                for path in schemas
                if path in captured
            }
        elif self._settings.snapshot_mode == "recovery":
            schemas |= {path: captured[path].to_json() for path in schemas if path in captured}
        elif not fresh and not gone and uncaptured == start.uncaptured:
            return start
        begun = {
            path: TableProgress(commit=start.commit, read=start.next_read(path))
            for path in read_first(self._settings, (table.id for table in fresh.values()))
        }
        if fresh:
            # An open transaction may have changed a table that was not captured.
            state = state.mined_again(self._settings.mining_range_scns)
        return replace(
            start,
            known=(*kept, *fresh),
            log=replace(state, rules=self._rules.digest).to_json(),
            uncaptured=uncaptured,
            schemas={**schemas, **{path: table.to_json() for path, table in fresh.items()}},
            tables={
                **{path: p for path, p in start.tables.items() if path not in gone},
                **begun,
            },
        )

    def _all_readable(self, end: Offset) -> bool:
        """Whether no table was altered after the batch's end; else the stream goes there first."""
        with self._connect(self._settings.pdb) as connection:
            return all(readable(connection, table, end.commit, waits=True) for table in tables_of(end.schemas).values())

    # What was lost.

    def _skip_what_is_lost(self, start: Offset, error: DataLossError) -> Offset:
        """Where it goes on when redo logs with changes after `start` are gone.

        Raises:
            DataLossError: the options do not say to go on, or going on would not help.
        """
        mended = reads_all(self._settings, (table.id for table in tables_of(start.schemas).values()))
        if not mended and self._settings.fail_on_data_loss:
            raise error
        if self._settings.snapshot_mode == "when_needed":
            return self._restart(start, error)
        with self._connect("") as root:
            whole = whole_since(root, self._upper(), self._settings)
            if self._in_redo:
                whole = max(whole, scn_after_new_dictionary(root, self._settings))
        after = scn.number(start.commit)
        low = max(whole, after)
        state = MiningState.of(start)
        if low == after and not state.unfinished:
            raise error
        _LOG.warning("%s", error)
        with self._connect(self._settings.pdb) as connection:
            captured = captured_tables(connection, self.database, self._settings, strict=False)
        # Transactions that began before lack what they did there.
        since = start.commit if low > after else scn.to_text(min(after, state.needed_after))
        state = replace(state.settled(), needed_after=low, mined=low, ranges=(), mining=(), open={})
        return replace(
            start,
            commit=scn.to_text(low),
            log=state.to_json(),
            schemas={path: captured[path].to_json() for path in start.known if path in captured},
            known=tuple(path for path in start.known if path in captured),
            tables={},
            gaps=dict.fromkeys(start.known, (since, scn.to_text(low))),
            ad_hoc=AdHoc.from_json(start.ad_hoc).advanced().restart().to_json(),
        )

    def _restart(self, start: Offset, error: DataLossError) -> Offset:
        """All tables are read again: the log is one for all, so what each lost is not known."""
        end, _ = self._beginning()
        begin, at = MiningState.of(end).mined, scn.number(end.commit)
        with self._connect("") as root:
            try:
                # An open transaction may have begun in what is gone; then a snapshot mends nothing.
                high = min(at, self._upper())
                if high > begin:
                    logs_of(root, ScnRange(begin, high), self._settings)
            except DataLossError as gone:
                raise gone from error
        all_read = reads_all(self._settings, (table.id for table in tables_of(end.schemas).values()))
        what = "All tables" if all_read else "Those of 'snapshot_include_collection_list'"
        _LOG.warning("%s %s are read again.", error, what)
        return replace(
            end,
            tables={path: TableProgress(commit=end.commit, read=start.reads + 1) for path in self._read_first(end)},
            gaps=dict.fromkeys(start.known, (start.commit, end.commit)),
            heartbeat=start.heartbeat,
            ad_hoc=AdHoc.from_json(start.ad_hoc).advanced().restart().to_json(),
        )

    # The stream.

    def _stream(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        state = MiningState.of(start)
        if limit.upto:
            # A table that was read ends after what was in the log then.
            limit = replace(limit, upto=max(limit.upto, AdHoc.from_json(start.ad_hoc).waits_for))
        log = self._mine_on(start, state, limit)
        indexes, ledger = self._mined(log, state, start.schemas)
        delivery = self._deliveries.plan(start, ledger, indexes, log.reached, limit)
        after, commit = scn.number(start.commit), scn.number(delivery.end.commit)
        rows = ledger.delivered_by(after, commit)
        before = AdHoc.from_json(start.ad_hoc)
        settled, signals = before.advanced(), self._signals(delivery.end, indexes, rows)
        nothing = not rows and not delivery.definitions
        end, reads = self._with_reads(start, delivery, before, signals, log, limit, now, quiet=nothing)
        quiet = nothing and not log.mining and not start.tables
        idle = quiet and reads == settled and not end.tables and not delivery.is_cut
        # A run that should end waits for the SCN of its beginning, so a new process follows the log once.
        follows = bool(limit.upto or self._restarted or state.mining) or self._heartbeat_is_due(start, now)
        follows = follows or settled.waits_for > start.commit
        if idle and (commit == after or not follows):
            # Its SCN moves on without end. What was mined stays in staging, also for the next process.
            self._ranges.join(start.schemas)
            return start
        if end.schemas is not start.schemas:
            # What is mined of a range depends on the tables: it is mined again with those that are new.
            indexes, ledger = self._mined(log, state, end.schemas)
        state = self._state_at(end, state, log, indexes, ledger, delivery.definitions)
        # Of all commits, also those without captured changes: one to the flush table shows how far an idle database was
        # read.
        times = [instant(t.time, t.zone) for t in ledger.committed if t.commit is not None and t.commit <= commit]
        time = max((t for t in times if t is not None), default=start.commit_time)
        self._ranges.forget_up_to(state.mined)
        return state.in_offset(replace(end, commit_time=time, ad_hoc=reads.to_json()))

    def _mine_on(self, start: Offset, state: MiningState, limit: Limit) -> _LogReach:
        """Mine the next range, or choose those that tasks mine."""
        after = scn.number(start.commit)
        ranges = [*state.unfinished, *self._ranges.known_ahead(state.mined, start.schemas)]
        reached = max([state.mined, *(scns.high for scns in ranges[-1:])])
        if self._in_redo:
            with self._connect("") as root:
                keep_dictionary_new(root, self._settings)
        upper = self._upper()
        wanted = self._ranges.wanted(reached, upper, limit, after)
        if len(wanted) > 1:
            # Before tasks are given what they could not do.
            require_logs(lambda: self._connect(""), ScnRange(wanted[0].low, wanted[-1].high), self._settings)
            return _LogReach(ranges, reached, upper, wanted)
        if wanted:
            ranges.append(wanted[0])
            self._ranges.mined(wanted[0])
            reached = wanted[0].high
        return _LogReach(ranges, reached, upper, [])

    def _mined(self, log: _LogReach, state: MiningState, schemas: Mapping[str, Any]) -> tuple[Mined, Ledger]:
        """What the ranges hold of these tables."""
        indexes = {scns: self._mine(scns, schemas) for scns in log.ranges}
        return indexes, of_ranges(state.open, indexes.items(), excluded_users(self._settings))

    def _with_reads(
        self,
        start: Offset,
        delivery: Delivery,
        before: AdHoc,
        signals: Sequence[Signal],
        log: _LogReach,
        limit: Limit,
        now: dt.datetime,
        *,
        quiet: bool,
    ) -> tuple[Offset, AdHoc]:
        """The end of a batch with the snapshots that begin there, and the state of ad-hoc snapshots."""
        end = delivery.end
        first = self._read_first(end)
        settled, tables = before.advanced(), tables_of(end.schemas)
        # Else chunks are read on in the columns that they have.
        altered = {definition.table for definition in delivery.definitions if not definition.only_adds}
        for request in settled.begun:
            if request.table in altered:
                say_read_once_more(request.table)
        reads = settled.restart(lambda request: request.table in altered)
        reads = self._ad_hoc.requested(reads, end, signals)
        rewrites, estimates = delivery.rewrites, self._estimates
        reads = follow_rewrites(rewrites, reads, tables, self._settings, read=first, rows=estimates)
        reads = reads.cut_again(tables)
        if not self._restarted:
            reads = reads.paced(before, start.capture_time, now, self._settings.snapshot_chunk_rows)
        # Nothing is known of the rows that they had before, or those are of another table.
        unknown = [path for path in (*delivery.fresh, *delivery.recreated) if path in first]
        reads = replace(reads, blocking=tuple(dict.fromkeys((*reads.blocking, *unknown))))
        reads, blocking = self._ad_hoc.blocking(reads, end)
        self._say_uncaptured(end.uncaptured, end.known, start.uncaptured)
        for path in delivery.recreated:
            say_made_again(path, read_again=path in first)
        bound = min(log.upper, scn.number(limit.upto)) if limit.upto else log.upper
        again = self._again and bool(first) and scn.number(end.commit) >= bound and self._all_readable(end)
        blocking = list(dict.fromkeys((*first, *blocking))) if again else blocking
        begun = {path: TableProgress(commit=end.commit, read=start.reads + 1) for path in blocking}
        end = replace(end, tables=begun, initial=again, gaps=self._gaps_of_returned(start, delivery))
        budget = limit.chunks or self._settings.snapshot_chunks_per_batch
        return end, self._ad_hoc.more(reads, start, end, budget, quiet=quiet)

    def _estimates(self, tables: Sequence[OracleTable]) -> dict[str, int]:
        """About how many rows tables have, by path, without those of which the server has no statistics."""
        with self._connect(self._settings.pdb) as connection:
            estimates = {(str(a), str(b)): int(rows) for a, b, rows in connection.rows(statements.ROW_ESTIMATES)}
        known = {table.id.path: estimates.get((table.id.schema, table.id.name)) for table in tables}
        return {path: rows for path, rows in known.items() if rows is not None}

    def _state_at(
        self,
        end: Offset,
        before: MiningState,
        log: _LogReach,
        indexes: Mined,
        ledger: Ledger,
        definitions: tuple[Definition, ...],
    ) -> MiningState:
        commit = scn.number(end.commit)
        pending = ledger.pending(commit)
        needed = {scns for transaction in pending for scns in transaction.ranges}
        needed |= {scns for scns in log.ranges if scns.high > commit}
        begins = [t.begin for t in pending if t.begin is not None and t.rows]
        ranges = self._ranges.fewer([scns for scns in log.ranges if scns in needed], pending, indexes, end)
        return MiningState(
            needed_after=min([commit, *(begin - 1 for begin in begins)]),
            mined=log.mining[-1].high if log.mining else log.reached,
            resetlogs=before.resetlogs,
            rules=before.rules or "",
            ranges=tuple(ranges),
            mining=tuple(log.mining),
            open=ledger.open_at(commit),
            newest_commits=ledger.newest_commits(commit, before.newest_commits),
            window=tuple(scns for scns in log.ranges if scns.low < commit),
            definitions=definitions,
        )

    def _say_uncaptured(self, tables: Collection[str], known: Collection[str], before: Collection[str]) -> None:
        gone = [path for path in tables if path not in known]
        say_uncaptured(gone, before, self._settings, _REMEDY)
        partial = [path for path in tables if path in known]
        say_uncaptured(partial, before, self._settings, _REMEDY, _PARTIAL)

    def _gaps_of_returned(self, start: Offset, delivery: Delivery) -> dict[str, tuple[str, str]]:
        """For tables that are whole again, the time when they were not: the log does not have its changes.

        A table that was created again has no gap: what it holds came after that.
        """
        gaps = {}
        for path in delivery.fresh:
            if path not in start.uncaptured:
                continue
            after = start.uncaptured[path]
            read_again = path in self._read_first(delivery.end)
            say_returned(path, f"SCN {scn.number(after)}", self._settings, read_again=read_again)
            gaps[path] = (after, delivery.end.commit)
        return gaps

    def _signals(self, end: Offset, indexes: Mined, delivered: Sequence[Transaction]) -> list[Signal]:
        """The rows of the signal table in a batch."""
        table = self._ad_hoc.table(end)
        if table is None or table.id.path not in end.known:
            return []
        name = (table.id.schema, table.id.name)
        having = {scns for scns, index in indexes.items() if name in index.tables}
        parts = [replace(t, ranges=[scns for scns in t.ranges if scns in having]) for t in delivered]
        parts = [part for part in parts if part.ranges]
        staging = self._staging(end.schemas)
        paths = owners_and_names(sorted(end.schemas))
        for scns in sorted({scns for part in parts for scns in part.ranges}):
            if staging.index(scns) is None:
                mine(lambda: self._connect(""), scns, paths, self._settings, staging)
        return signals_of(parts, table, staging, self._settings)

    def _require_same_database(self, start: Offset) -> None:
        self._require_own(start)
        if not self._restarted:
            return
        with self._connect("") as connection:
            require_not_restored(connection, start, self.database)
