"""Where the next batch ends: snapshots, mined ranges, whole transactions, and structures.

Runs in the driver. What decides the rows of a batch stands in its end offset: the commits up to which it goes, the
structures, and the ranges that hold its rows. `Offset.log` has

| key | what |
|---|---|
| `scn` | everything after this has to be in the log if all staging were lost |
| `mined` | ranges are mined up to here |
| `ranges` | mined ranges that hold rows of transactions that are not delivered |
| `mining` | ranges that tasks of the batch that ends here mine |
| `open` | open transactions: start SCN, time, user |
| `commit_scn` | the newest delivered commit of each redo thread: `scn:thread:xid` |
| `resetlogs` | the database's incarnation |
| `window` | the ranges that say what is in the batch that ends here |
| `definitions` | definitions of captured tables that take effect in the batch |
| `rules` | the options by which tables were shaped |
"""

from __future__ import annotations

import datetime as dt
import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.errors import DataLossError, PositionMismatch
from headrace.options import Options
from headrace.sources.base import Limit
from headrace.sources.offset import Offset, TableProgress
from headrace.sources.oracle import dictionary, scn, statements
from headrace.sources.oracle.beginning import (
    behind_new_dictionary,
    keep_dictionary_new,
    place,
    require_set_up,
)
from headrace.sources.oracle.catalog import Selection, captured_tables, choose
from headrace.sources.oracle.change_rows import instant
from headrace.sources.oracle.connection import Connection
from headrace.sources.oracle.database_state import DatabaseState
from headrace.sources.oracle.definitions import Definition, TablesAfter, definitions_of, only_defines
from headrace.sources.oracle.incremental import AdHocPlanner, require_signal_table, signals_of
from headrace.sources.oracle.ledger import Ledger, Transaction, of_ranges
from headrace.sources.oracle.mined_ranges import Mined, MinedRanges, pairs
from headrace.sources.oracle.mining import logs_of, mine, require_logs, whole_since
from headrace.sources.oracle.range_index import RangeIndex
from headrace.sources.oracle.scn import ScnRange
from headrace.sources.oracle.snapshot_read import MomentGone, more_chunks, readable
from headrace.sources.oracle.staging import Staging
from headrace.sources.oracle.structure import OracleTable, columns_of, owners_and_names, tables_of
from headrace.sources.oracle.table_rules import TableRules
from headrace.sources.signals import Signal
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.chunks import snapshot_finished
from headrace.sources.tables.lost import say_made_again, say_returned, say_uncaptured, uncaptured_tables
from headrace.sources.tables.unmatched import require_matched_by, require_still_matched

_NO_ROWS = ("no_data", "recovery")
"""The modes in which only changes are taken."""
_REMEDY = "Make it again, or let it log all its columns (ALTER TABLE ... ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS)"
_LOG = logging.getLogger("headrace.sources")
_PARTIAL = "It does not log all its columns, so what an update leaves out is missing from its changes"


class Planner:
    """Plans one batch.

    Args:
        connect: opens connections; with the pluggable database's name when that is to be its container.
        settings: the source's options.
        identity: what stands in `Offset.source`.
        mine: mines a range, or says what is known of it already.
        upper: the SCN up to which the log is complete.
        staging: where mined ranges of tables of these structures are.
        ahead: ranges that this process mined beyond the last offset, in order; it is added to.
        restarted: whether this is the first batch that this process plans.
        again: whether all tables are to be read again when the stream has caught up.
    """

    def __init__(
        self,
        connect: Callable[[str], Connection],
        settings: Options,
        identity: str,
        *,
        mine: Callable[[ScnRange, Mapping[str, Any]], RangeIndex],
        upper: Callable[[], int],
        staging: Callable[[Mapping[str, Any]], Staging],
        ahead: list[ScnRange],
        restarted: bool,
        again: bool = False,
    ) -> None:
        self._connect = connect
        self._settings = settings
        self._identity = identity
        self._mine = mine
        self._upper = upper
        self._staging = staging
        self._ranges = MinedRanges(settings, mine=mine, staging=staging, ahead=ahead, restarted=restarted)
        self._restarted = restarted
        self._again = again
        self._in_redo = settings["log_mining_strategy"] == dictionary.IN_REDO
        self._rules = TableRules(settings)
        self._ad_hoc = AdHocPlanner(lambda: connect(settings["pdb"]), settings, self.database)

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
            elif self._settings["snapshot_mode"] == "initial_only":
                return known
            else:
                try:
                    end = self._stream(start, limit, now)
                except DataLossError as error:
                    end = self._behind_what_is_lost(start, error)
            if end is start:
                # Nothing is told again that the batch before told.
                end = known if start is known else replace(start, log=_settled(start.log))
            if end == known:
                return known
        end = replace(end, initial=end.initial and not snapshot_finished(end)).counting_reads(start)
        return replace(end, capture_time=now, heartbeat=now if self._beats(start, now) else end.heartbeat)

    def _beats(self, start: Offset, now: dt.datetime) -> bool:
        every = self._settings["heartbeat_interval_ms"]
        if not every:
            return False
        return start.heartbeat is None or now - start.heartbeat >= dt.timedelta(milliseconds=every)

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
            begun = {path: TableProgress(commit=end.commit, read=start.reads + 1) for path in end.known}
            return replace(end, tables=begun, initial=True)
        return end

    # Snapshots.

    def _first(self, limit: Limit) -> Offset:
        end, tables = self._beginning()
        if self._settings["snapshot_mode"] in _NO_ROWS:
            return end
        begun = {path: TableProgress(commit=end.commit) for path in tables}
        try:
            return replace(end, tables=self._chunks(begun, tables, limit))
        except MomentGone as gone:
            # It was altered just now: the next attempt begins later.
            raise gone.error from gone

    def _beginning(self) -> tuple[Offset, Mapping[str, OracleTable]]:
        """Where the log is now, from which a snapshot or a stream begins, and the tables there."""
        with self._connect("") as root:
            resetlogs = require_set_up(root)
            with self._connect(self._settings["pdb"]) as connection:
                tables = captured_tables(connection, self.database, self._settings, strict=True)
                if self._settings["signal_data_collection"]:
                    require_signal_table(self._settings["signal_data_collection"], self.database, tables)
            if self._in_redo:
                dictionary.write(root)
            begin, at = place(root, self._settings)
        commit = scn.to_text(at)
        log = {
            "scn": str(begin), "mined": str(begin), "ranges": [], "mining": [], "open": {}, "commit_scn": {},
            "resetlogs": resetlogs, "window": [], "definitions": [], "rules": self._rules.digest,
        }  # fmt: skip
        end = Offset(
            source=self._identity,
            commit=commit,
            known=tuple(tables),
            schemas={path: table.to_json() for path, table in tables.items()},
            log=log,
        )
        return end, tables

    @property
    def database(self) -> str:
        """The database that tables are told to be in."""
        return str(self._settings["pdb"] or self._settings["database"]).upper()

    def _snapshot(self, start: Offset, limit: Limit) -> Offset:
        behind = {path: p if p.done and not p.bounds else p.behind() for path, p in start.tables.items()}
        tables = tables_of(start.schemas)
        try:
            advanced = self._chunks(behind, tables, limit)
        except MomentGone as gone:
            unfinished = [path for path, progress in behind.items() if not progress.done]
            if not gone.is_mended_in(self._settings["snapshot_mode"]) or not all(
                tables[path].chunk_key for path in unfinished
            ):
                # Of a table without a key the changes meanwhile would come twice.
                raise gone.error from gone
            return self._read_later(start, unfinished, gone)
        return replace(start, tables=advanced, log=_settled(start.log), gaps={})

    def _read_later(self, start: Offset, unfinished: list[str], gone: MomentGone) -> Offset:
        """The stream goes on first; then these tables are read from their beginning, as of where it is."""
        _LOG.warning("%s The snapshot of %s begins again.", gone.error.message, ", ".join(unfinished))
        state = AdHoc.from_json(start.ad_hoc).behind()
        waiting = (*state.blocking, *(path for path in unfinished if path not in state.blocking))
        state = replace(state, blocking=waiting)
        return replace(start, tables={}, initial=False, log=_settled(start.log), gaps={}, ad_hoc=state.to_json())

    def _chunks(
        self, lagging: Mapping[str, TableProgress], tables: Mapping[str, OracleTable], limit: Limit
    ) -> dict[str, TableProgress]:
        budget = limit.chunks or self._settings["snapshot_chunks_per_batch"]
        advanced = {}
        with self._connect(self._settings["pdb"]) as connection:
            for path, progress in lagging.items():
                if not progress.done:
                    progress = more_chunks(connection, tables[path], progress, self._settings, budget)
                    budget -= len(progress.bounds)
                advanced[path] = progress
        return advanced

    def _with_fresh(self, start: Offset) -> Offset:
        """With the tables that the options mean since the last run; their snapshot is as of where the stream is."""
        with self._connect(self._settings["pdb"]) as connection:
            found = captured_tables(connection, self.database, self._settings, strict=False)
            selection = Selection(self._settings)
            gone = [path for path in start.known if not selection.means(*path.split(".", 1))]
            fresh = {
                path: table
                for path, table in found.items()
                if path not in start.known and readable(connection, table, start.commit)
            }
        uncaptured = {
            path: commit
            for path, commit in start.uncaptured.items()
            if path not in fresh and selection.means_path(path)
        }
        self._say_uncaptured(uncaptured, start.known, ())
        self._require_matched(start.schemas, found, fresh)
        kept = tuple(path for path in start.known if path not in gone)
        structures = {path: data for path, data in start.schemas.items() if path not in gone}
        if start.log.get("rules", "") != self._rules.digest:
            known = tables_of(start.schemas)
            structures |= {
                path: self._rules.reshaped(known[path], found[path]).to_json() for path in structures if path in found
            }
        elif self._settings["snapshot_mode"] == "recovery":
            structures |= {path: found[path].to_json() for path in structures if path in found}
        elif not fresh and not gone and uncaptured == start.uncaptured:
            return start
        begun = {path: TableProgress(commit=start.commit, read=start.next_read(path)) for path in fresh}
        wanted = self._settings["snapshot_mode"] not in _NO_ROWS
        log = {**(self._mined_again(start.log) if fresh else start.log), "rules": self._rules.digest}
        return replace(
            start,
            known=(*kept, *fresh),
            log=log,
            uncaptured=uncaptured,
            schemas={**structures, **{path: table.to_json() for path, table in fresh.items()}},
            tables={
                **{path: p for path, p in start.tables.items() if path not in gone},
                **(begun if wanted else {}),
            },
        )

    def _mined_again(self, log: Mapping[str, Any]) -> dict[str, Any]:
        """From the beginning of the oldest open transaction: it may have changed a table that was not captured."""
        size = self._settings["mining_range_scns"]
        mined = int(log["mined"])
        begins = [entry[0] for entry in log["open"].values()]
        low = min([int(log["scn"]), *(begin - 1 for begin in begins)])
        cuts = [*range(low, mined, size), mined]
        again = [ScnRange(a, b) for a, b in itertools.pairwise(cuts)]
        return {**log, "ranges": pairs(again), "mining": [], "scn": str(low)}

    def _all_readable(self, end: Offset) -> bool:
        """Whether no table was altered after the batch's end; else the stream goes there first."""
        with self._connect(self._settings["pdb"]) as connection:
            return all(readable(connection, table, end.commit, waits=True) for table in tables_of(end.schemas).values())

    # What was lost.

    def _behind_what_is_lost(self, start: Offset, error: DataLossError) -> Offset:
        """Where it goes on when redo logs with changes after `start` are gone.

        Raises:
            DataLossError: the options do not say to go on, or nothing would be better behind it.
        """
        if self._settings["snapshot_mode"] == "when_needed":
            return self._begun_again(start, error)
        if self._settings["fail_on_data_loss"]:
            raise error
        with self._connect("") as root:
            whole = whole_since(root, self._upper(), self._settings)
            if self._in_redo:
                whole = max(whole, behind_new_dictionary(root, self._settings))
        after = scn.number(start.commit)
        low = max(whole, after)
        needed = start.log["ranges"] or start.log["mining"]
        if low == after and not needed:
            raise error
        _LOG.warning("%s", error)
        with self._connect(self._settings["pdb"]) as connection:
            found = captured_tables(connection, self.database, self._settings, strict=False)
        # Transactions that began before lack what they did there.
        since = start.commit if low > after else scn.to_text(min(after, int(start.log["scn"])))
        log = {
            **_settled(start.log), "scn": str(low), "mined": str(low), "ranges": [], "mining": [], "open": {},
        }  # fmt: skip
        return replace(
            start,
            commit=scn.to_text(low),
            log=log,
            schemas={path: found[path].to_json() for path in start.known if path in found},
            known=tuple(path for path in start.known if path in found),
            tables={},
            gaps=dict.fromkeys(start.known, (since, scn.to_text(low))),
        )

    def _begun_again(self, start: Offset, error: DataLossError) -> Offset:
        """All tables are read again: the log is one for all, so what each lost is not known."""
        end, _ = self._beginning()
        begin, at = int(end.log["mined"]), scn.number(end.commit)
        with self._connect("") as root:
            try:
                # An open transaction may have begun in what is gone; then a snapshot mends nothing.
                high = min(at, self._upper())
                if high > begin:
                    logs_of(root, ScnRange(begin, high), self._settings)
            except DataLossError as gone:
                raise gone from error
        _LOG.warning("%s All tables are read again.", error)
        return replace(
            end,
            tables={path: TableProgress(commit=end.commit, read=start.reads + 1) for path in end.known},
            gaps=dict.fromkeys(start.known, (start.commit, end.commit)),
            heartbeat=start.heartbeat,
            ad_hoc=AdHoc.from_json(start.ad_hoc).behind().to_json(),
        )

    # The stream.

    def _stream(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        log = start.log
        after = scn.number(start.commit)
        kept = [ScnRange(*pair) for pair in (*log["ranges"], *log["mining"])]
        reached = int(log["mined"])
        ranges = [*kept, *self._ranges.known_ahead(reached, start.schemas)]
        reached = ranges[-1].high if ranges and ranges[-1].high > reached else reached
        if self._in_redo:
            with self._connect("") as root:
                keep_dictionary_new(root, self._settings)
        upper = self._upper()
        wanted = self._ranges.wanted(reached, upper, limit, after)
        mining: list[ScnRange] = []
        if len(wanted) == 1:
            # One range is mined here and now; several are mined by tasks, side by side.
            ranges.append(wanted[0])
            self._ranges.mined(wanted[0])
            reached = wanted[0].high
        elif wanted:
            # Before tasks are given what they could not do.
            require_logs(lambda: self._connect(""), ScnRange(wanted[0].low, wanted[-1].high), self._settings)
            mining = wanted
        indexes = {scns: self._mine(scns, start.schemas) for scns in ranges}
        ledger = of_ranges(log["open"], indexes.items(), left_out(self._settings))
        end = self._delivery(start, ledger, indexes, reached, limit)
        cut = self._cut(start, end, ledger)
        if cut > after:
            end = self._delivery(start, ledger, indexes, cut, limit)
        commit = scn.number(end.commit)
        rows = ledger.delivered_by(after, commit)
        quiet = not rows and not end.log["definitions"] and not mining and not start.tables
        settled = AdHoc.from_json(start.ad_hoc).behind()
        signals = self._signals(end, indexes, rows)
        asked = self._ad_hoc.asked(settled, end, signals)
        if self._settings["snapshot_mode"] not in _NO_ROWS:
            # Nothing is known of the rows that they had before, or those are of another table.
            unknown = (*end.log["fresh"], *end.log["made_again"])
            asked = replace(asked, blocking=tuple(dict.fromkeys((*asked.blocking, *unknown))))
        asked, blocking = self._ad_hoc.blocking(asked, end)
        self._say_uncaptured(end.uncaptured, end.known, start.uncaptured)
        for path in end.log["made_again"]:
            say_made_again(path, read_again=self._settings["snapshot_mode"] not in _NO_ROWS)
        bound = min(upper, scn.number(limit.upto)) if limit.upto else upper
        again = self._again and commit >= bound and self._all_readable(end)
        blocking = list(end.known) if again else blocking
        begun = {path: TableProgress(commit=end.commit, read=start.reads + 1) for path in blocking}
        end = replace(end, tables=begun, initial=again, gaps=self._gaps_of_returned(start, end))
        asked = self._ad_hoc.more(asked, end, limit.chunks or self._settings["snapshot_chunks_per_batch"])
        idle = quiet and asked == settled and not blocking and cut <= after
        # A run that should end waits for the SCN of its beginning, so a new process follows the log once.
        follows = bool(limit.upto or self._restarted or log["mining"]) or self._beats(start, now)
        if idle and (commit == after or not follows):
            # Its SCN moves on without end. What was mined stays in staging, also for the next process.
            self._ranges.join(start.schemas)
            return start
        if end.schemas is not start.schemas:
            # What is mined of a range depends on the tables: it is mined again with those that are new.
            indexes = {scns: self._mine(scns, end.schemas) for scns in ranges}
            ledger = of_ranges(log["open"], indexes.items(), left_out(self._settings))
            rows = ledger.delivered_by(after, commit)
        pending = ledger.pending(commit)
        needed = {scns for transaction in pending for scns in transaction.ranges}
        needed |= {scns for scns in ranges if scns.high > commit}
        begins = [t.begin for t in pending if t.begin is not None and t.rows]
        told = {
            "scn": str(min([commit, *(begin - 1 for begin in begins)])),
            "mined": str(mining[-1].high if mining else reached),
            "ranges": pairs(self._ranges.fewer([r for r in ranges if r in needed], pending, indexes, end)),
            "mining": pairs(mining),
            "open": {
                t.xid: [t.start, t.start_time, t.user] for t in pending if t.start is not None and t.start <= commit
            },
            "commit_scn": ledger.newest_commits(commit, log["commit_scn"]),
            "resetlogs": log["resetlogs"],
            "window": pairs(scns for scns in ranges if scns.low < commit),
            "definitions": [definition.to_json() for definition in end.log["definitions"]],
            "rules": log.get("rules", ""),
        }
        # Of all commits, also those of no concern: our own to the flush table says how far an idle database was read.
        times = [instant(t.time, t.zone) for t in ledger.committed if t.commit is not None and t.commit <= commit]
        time = max((t for t in times if t is not None), default=start.commit_time)
        self._ranges.forget_up_to(int(told["mined"]))
        return replace(end, log=told, commit_time=time, ad_hoc=asked.to_json())

    def _say_uncaptured(self, tables: Collection[str], known: Collection[str], before: Collection[str]) -> None:
        gone = [path for path in tables if path not in known]
        say_uncaptured(gone, before, self._settings, _REMEDY)
        partial = [path for path in tables if path in known]
        say_uncaptured(partial, before, self._settings, _REMEDY, _PARTIAL)

    def _gaps_of_returned(self, start: Offset, end: Offset) -> dict[str, tuple[str, str]]:
        """What happened to tables that are whole again while they were not: the log does not tell it.

        A table that was made again has no gap: what it holds came after that.
        """
        gaps = {}
        for path in end.log["fresh"]:
            if path not in start.uncaptured:
                continue
            after = start.uncaptured[path]
            read_again = self._settings["snapshot_mode"] not in _NO_ROWS
            say_returned(path, f"SCN {scn.number(after)}", self._settings, read_again=read_again)
            gaps[path] = (after, end.commit)
        return gaps

    def _signals(self, end: Offset, indexes: Mined, delivered: Sequence[Transaction]) -> list[Signal]:
        """The rows of the signal table in a batch."""
        table = self._ad_hoc.table(end)
        if table is None or table.id.path not in end.known:
            return []
        own = (table.id.schema, table.id.name)
        having = {scns for scns, index in indexes.items() if own in index.tables}
        parts = [replace(t, ranges=[scns for scns in t.ranges if scns in having]) for t in delivered]
        parts = [part for part in parts if part.ranges]
        staging = self._staging(end.schemas)
        paths = owners_and_names(sorted(end.schemas))
        for scns in sorted({scns for part in parts for scns in part.ranges}):
            if staging.index(scns) is None:
                mine(lambda: self._connect(""), scns, paths, self._settings, staging)
        return signals_of(parts, table, staging, self._settings)

    def _delivery(self, start: Offset, ledger: Ledger, indexes: Mined, reached: int, limit: Limit) -> Offset:
        """How far the batch goes, and the structures of its tables: up to before a definition, or from one on."""
        after = scn.number(start.commit)
        commits = ledger.delivered_by(after, reached)
        definitions = definitions_of(ledger, indexes, Selection(self._settings), after, reached)
        bound = limit.commits or self._settings["max_commits_per_trigger"]
        end = reached
        if bound and len(commits) > bound:
            end = commits[bound - 1].commit or reached
        if limit.upto:
            end = max(after, min(end, scn.number(limit.upto)))
        # Definitions before the first change take effect with this batch, later ones end it.
        changing = [t.commit or 0 for t in commits if not only_defines(t, indexes)]
        first = min((at for at in changing if at <= end), default=end + 1)
        taking_effect = [d for d in definitions if d.commit <= min(end, first)]
        later = [d.commit for d in definitions if d.commit > min(end, first) and d.commit <= end]
        if later:
            end = min(later) - 1
        told = [d for d in taking_effect if d.commit <= end]
        result = replace(start, commit=scn.to_text(max(end, after)), log=_told_by(told))
        return self._redefined(result, told) if told else result

    @staticmethod
    def _cut(start: Offset, end: Offset, ledger: Ledger) -> int:
        """The SCN before which a batch has to end that takes tables in or loses some; 0 where none does.

        With other tables ranges are mined again. So that a quiet time is not, the batch before ends where the range
        begins in which they are defined.
        """
        if set(end.schemas) == set(start.schemas):
            return 0
        xids = {definition.xid for definition in end.log["definitions"]}
        return min((t.ranges[0].low for t in ledger.committed if t.xid in xids and t.ranges), default=0)

    def _redefined(self, end: Offset, definitions: Sequence[Definition]) -> Offset:
        """With the structures that tables have after definitions. The server's catalog says the newest."""
        with self._connect(self._settings["pdb"]) as connection:
            found = captured_tables(connection, self.database, self._settings, strict=False)
            chosen = choose(connection, self._settings)
        self._require_matched(end.schemas, found, [path for path in found if path not in end.schemas])
        tables = TablesAfter(end.known, end.schemas, end.uncaptured)
        tables.follow(definitions, found, logs_all=chosen.logs_all, by_logging=chosen.by_logging)
        log = _told_by(tables.applied, tables.fresh, tables.recreated)
        whole = [path for path in tables.known if path not in tables.partial]
        uncaptured = uncaptured_tables(end, whole, Selection(self._settings).means_path)
        return replace(end, schemas=tables.structures, known=tuple(tables.known), log=log, uncaptured=uncaptured)

    def _require_matched(
        self, structures: Mapping[str, Any], found: Mapping[str, OracleTable], fresh: Iterable[str]
    ) -> None:
        """Hold names and patterns against structures that may be new, and tables that are."""
        for path in fresh:
            require_matched_by(self._settings, found[path].id, list(map(columns_of, found.values())))
        for path, known in tables_of(structures).items():
            if path in found:
                held = [column.name for column in known.schema.columns]
                now = columns_of(found[path])
                require_still_matched(self._settings, now, known.names, known.protected, held)

    def _require_same_database(self, start: Offset) -> None:
        if start.source != self._identity:
            raise PositionMismatch(
                f"The checkpoint belongs to '{start.source}', not to '{self._identity}'.",
                remedy="Use another checkpoint for another database.",
            )
        if not self._restarted:
            return
        with self._connect("") as connection:
            resetlogs = DatabaseState.of(connection).resetlogs
            current = int(connection.value(statements.CURRENT_SCN))
        if resetlogs != start.log["resetlogs"] or current < scn.number(start.commit):
            raise PositionMismatch(
                f"Database '{self.database}' was opened with RESETLOGS or is older than SCN "
                f"{scn.number(start.commit)}, up to which changes were delivered: it was restored.",
                remedy="Take a new snapshot with a new checkpoint.",
            )


def left_out(settings: Options) -> tuple[str, ...]:
    """The users whose transactions are not delivered."""
    return ("SYS", "SYSTEM", *settings["users_excluded"])


def _told_by(
    definitions: Sequence[Definition], fresh: Sequence[str] = (), made_again: Sequence[str] = ()
) -> dict[str, Any]:
    """What definitions do, until the batch that they are in is planned."""
    return {"definitions": definitions, "fresh": fresh, "made_again": made_again}


def _settled(log: Mapping[str, Any]) -> dict[str, Any]:
    """The log's state as it is behind a batch that has no streamed rows."""
    return {**log, "window": [], "definitions": []}
