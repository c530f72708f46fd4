"""Where the next batch of one database ends: snapshots, windows of commits, schemas and heartbeats.

Runs in the driver, with one connection per question. Everything that decides the rows of a batch is put into its end
offset here, so that a replay asks nothing of a catalog that may have changed.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.changes import TableId
from headrace.errors import CaptureError, DataLossError, OptionError
from headrace.sources.base import Limit
from headrace.sources.batch_planner import BatchPlanner
from headrace.sources.change_tables import chunks, lsn
from headrace.sources.change_tables.captured_table import CapturedTable, CatalogTable, columns_of
from headrace.sources.change_tables.clock import CommitClock, ServerZone
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.dialect import Alteration
from headrace.sources.change_tables.guards import (
    OtherHistory,
    Retention,
    SameHistory,
    begins_again,
    oldest_needed,
    require_retained,
)
from headrace.sources.change_tables.history_mark import HistoryMark
from headrace.sources.change_tables.incremental import AdHocPlanner
from headrace.sources.change_tables.moves import TableMoves
from headrace.sources.change_tables.options import ChangeTableSettings
from headrace.sources.change_tables.schema_history import SchemaHistory, schema_histories
from headrace.sources.health import Health
from headrace.sources.offset import Offset, TableProgress
from headrace.sources.signals import say
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.chunks import read_first, reads_all
from headrace.sources.table_versions import MovePlan
from headrace.sources.tables.lost import Means, say_returned, say_uncaptured, uncaptured_tables
from headrace.sources.tables.rewrites import Rewrite, follow_rewrites
from headrace.sources.tables.unmatched import require_matched_by, require_still_matched

_MANY_DUMMIES = 10_000
"""More dummy commits than an idle server writes in the quiet time."""
_QUIET_SECONDS = 60.0
"""An idle server writes dummy commits.

The offset follows them this often, so that it never falls behind the clean-up job.
"""
_LOG = logging.getLogger("headrace.sources")
Catalog = Mapping[str, CatalogTable]


class Planner(BatchPlanner[ChangeTableSettings]):
    """Plans one batch.

    Args:
        connection: to the database.
        settings: the source's options.
        identity: what stands in `Offset.source`.
        catalog: the tables as the server shows them now, by path, in include order.
        health: asks how the capture job is.
        zone: says which zone the server's clock shows.
        means: whether the options mean a table, be it there or not.
        restarted: whether this is the first batch that this process plans.
        lost: tables of which the batch before lacks changes, because they were cleaned after it was planned.
    """

    def __init__(
        self,
        connection: Connection,
        settings: ChangeTableSettings,
        identity: str,
        catalog: Catalog,
        *,
        health: Callable[[], Health],
        zone: ServerZone,
        means: Means,
        restarted: bool,
        lost: Collection[str] = (),
    ) -> None:
        super().__init__(settings, identity, restarted=restarted)
        self._lost = lost
        self._retention = Retention(connection)
        self._connection = connection
        self._statements = connection.statements
        self._zero = connection.dialect.zero
        self._catalog = catalog
        self._zone = zone
        self._means = means
        self._history = SameHistory(connection, settings.database)
        self._ad_hoc = AdHocPlanner(connection, settings, health)
        self._mode = settings.snapshot_mode
        self._estimates: dict[tuple[str, str], int] | None = None

    def advance(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        """The end of the batch that begins at `start`; `start` itself when nothing is new.

        Raises:
            DataLossError: changes after `start` are gone, and the options do not say to go on without them.
            PositionMismatch: `start` belongs to another database, or the database is older than it.
        """
        restored = False
        if start.is_nothing:
            end = self._first(limit)
        else:
            self._require_same_database(start)
            try:
                end = self._next(start, limit, now)
            except OtherHistory as error:
                if not reads_all(self._settings, (table.id for table in self._catalog.values())):
                    raise
                end, restored = self._restart(start, limit, error), True
        if end == start and not self._heartbeat_is_due(start, now):
            return start
        end = self._planned(start, end, now)
        before = HistoryMark() if restored else HistoryMark.from_json(start.log)
        mark = self._history.mark(end.commit, before, restored=restored)
        return self._stamped(replace(end, log=mark.to_json()))

    # The first batch.

    def _first(self, limit: Limit, read: int = 0) -> Offset:
        commit = self.snapshot_commit()
        schemas = {path: SchemaHistory.begin(table.newest).to_json() for path, table in self._catalog.items()}
        end = Offset(source=self._identity, commit=commit, known=tuple(self._catalog), schemas=schemas)
        begun = {path: self._begin(path, commit, read) for path in self._read_first(self._catalog)}
        return replace(end, tables=self._more_chunks(begun, self._histories(end), limit))

    def _restart(self, start: Offset, limit: Limit, error: OtherHistory) -> Offset:
        """All tables are read again: what each lost or got back is not known."""
        _LOG.warning("%s All tables are read again.", error)
        end = self._first(limit, start.reads + 1)
        return replace(
            end,
            heartbeat=start.heartbeat,
            ad_hoc=AdHoc.from_json(start.ad_hoc).advanced().restart().to_json(),
            uncaptured=uncaptured_tables(start, self._catalog, self._means),
            gaps={path: (start.commit, lsn.after(end.commit)) for path in start.known if path in end.known},
        )

    def snapshot_commit(self) -> str:
        """The commit at which tables are read.

        What the capture job has done, and no table's change table starts after it.
        """
        head = self._connection.value(self._statements.MAX_LSN)
        starts = [table.newest.instance.start_lsn or self._zero for table in self._catalog.values()]
        return max([self._zero if head is None else lsn.read(head), *starts])

    def _begin(self, path: str, commit: str, read: int) -> TableProgress:
        return TableProgress(commit=commit, rows=self._rows_of(self._catalog[path].id), read=read)

    def _rows_of(self, id: TableId) -> int:
        """About how many rows a table has; -1 where the catalog does not say."""
        if self._estimates is None:
            rows = self._connection.rows(self._statements.ROW_ESTIMATES)
            self._estimates = {(str(schema), str(name)): int(count or 0) for schema, name, count in rows}
        return self._estimates.get((id.schema, id.name), -1)

    # The batches that follow.

    def _next(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        again = self._mode == "always" and self._restarted and not start.initial
        again = again and bool(self._read_first(path for path in start.known if path in self._catalog))
        initial = start.initial or again
        commit = start.commit if initial or self._mode == "initial_only" else self._next_commit(start, limit)
        uncaptured = self._uncaptured(start)
        again_on = self._switched_off_and_on(start)
        known = tuple(path for path in start.known if path in self._catalog and path not in again_on)
        fresh = [path for path in self._catalog if path not in known]
        histories, rewrites = self._evolved(start, commit, known, fresh)
        lagging, catching_up = self._lagging(start, commit, streaming=not initial)
        if again:
            # The stream of a table that lags goes on from where it is.
            reached = {path: progress.commit for path, progress in start.tables.items()}
            lagging |= {
                path: self._begin(path, reached.get(path, start.commit), start.reads + 1)
                for path in self._read_first(known)
            }
        before = AdHoc.from_json(start.ad_hoc)
        settled = requests = before.advanced()
        if not initial:
            requested = self._ad_hoc.requested(start, commit, histories)
            requested = self._read_again(requested, rewrites, histories)
            requests, begun = self._ad_hoc.blocking(requested, start, histories)
            lagging |= {path: self._begin(path, start.commit, start.reads + 1) for path in begun}
        else:
            requests = self._read_again(requests, rewrites, histories)
        requests, moved = self._moved(requests, start, histories, lagging)
        lagging |= {plan.move.table: TableProgress(commit=plan.move.to, done=True) for plan in moved}
        left_out = {plan.move.table: (plan.at, plan.move.to) for plan in moved if plan.move.kind == "skip"}
        for path in fresh:
            lagging[path] = self._newly_captured(path, start)
        needed = tuple(path for path in known if path not in left_out)
        gaps = {} if again else self._gaps(start, needed, histories, lagging)
        gaps |= {path: (after, lsn.after(upto)) for path, (after, upto) in left_out.items()}
        gaps |= self._gaps_of_returned(start, fresh, lagging)
        # A snapshot that begins again has no chunk yet in the batch that says so.
        advanced = lagging if again else self._more_chunks(lagging, histories, limit)
        end = replace(
            start,
            commit=commit,
            initial=initial,
            known=(*known, *fresh),
            tables=advanced,
            schemas={path: history.to_json() for path, history in histories.items()},
            gaps=gaps,
            uncaptured=uncaptured,
            skipped={**start.skipped, **left_out},
        )
        requests = requests.cut_again({path: history.newest for path, history in histories.items()})
        if not self._restarted:
            requests = requests.paced(before, start.capture_time, now, self._settings.snapshot_chunk_rows)
        budget = limit.chunks or self._settings.snapshot_chunks_per_batch
        lost = {*self._lost, *(path for path, gap in gaps.items() if start.gaps.get(path) != gap)}
        requests = requests.restart(lambda request: request.table in lost)
        requests = self._ad_hoc.ends(requests, start, end, histories)
        requests = self._ad_hoc.more(requests, end, histories, budget)
        if end == replace(start, tables=lagging) and not catching_up and requests == settled:
            return start
        return replace(end, schemas=self._still_needed(start, end, histories), ad_hoc=requests.to_json())

    def _lagging(self, start: Offset, commit: str, *, streaming: bool) -> tuple[dict[str, TableProgress], bool]:
        """The tables that this batch does not bring up to the others, and whether it does so with any."""
        lagging: dict[str, TableProgress] = {}
        catching_up = False
        for path, progress in start.tables.items():
            if path not in self._catalog:
                continue
            if progress.done and streaming and progress.commit <= commit:
                catching_up |= progress.commit < commit
            else:
                lagging[path] = progress.advanced()
        return lagging, catching_up

    def _moved(
        self,
        requests: AdHoc,
        start: Offset,
        histories: Mapping[str, SchemaHistory],
        lagging: Mapping[str, TableProgress],
    ) -> tuple[AdHoc, list[MovePlan]]:
        """The tables whose changes go on elsewhere from this batch on, which has none of them."""
        by_path: dict[str, MovePlan] = {}
        signals, database = self._settings.signal_data_collection, self._settings.database
        moves = TableMoves(self._connection, self._catalog, histories, signals, database)
        # A read that begins with this batch counts.
        at = replace(start, tables={**start.tables, **{path: p for path, p in lagging.items() if not p.done}})
        for move in requests.moves:
            try:
                by_path[move.table] = moves.checked(move, at)
            except OptionError as error:
                say(f"The {move.kind} of table '{move.table}' is not followed: {error}")
        return replace(requests, moves=()), list(by_path.values())

    def _newly_captured(self, path: str, start: Offset) -> TableProgress:
        """A table that is captured since the last batch."""
        begun = self._catalog[path].newest.instance.start_lsn or self._zero
        at = max(start.commit, begun) if start.initial else self.snapshot_commit()
        if not self._read_first([path]):
            return TableProgress(commit=at, done=True)
        return self._begin(path, at, start.next_read(path))

    def _read_first(self, paths: Iterable[str]) -> list[str]:
        return read_first(self._settings, (self._catalog[path].id for path in paths))

    def _next_commit(self, start: Offset, limit: Limit) -> str:
        """The end of the next window of commits; the start itself when nothing new is worth a batch."""
        value, waits_for = self._connection.value, AdHoc.from_json(start.ad_hoc).waits_for
        bound = limit.commits or self._settings.max_commits_per_trigger
        after = lsn.to_bytes(start.commit)
        newest = value(self._statements.NTH_COMMIT_AFTER, (bound, after)) if bound else value(self._statements.MAX_LSN)
        commit = start.commit if newest is None else lsn.read(newest)
        if commit <= start.commit:
            self._history.require_not_older(start)
            return start.commit
        oldest = value(self._statements.OLDEST_MAPPED)
        self._history.require_same(start, oldest)
        if limit.upto:
            # Tables that were first captured later than that have to be brought level too.
            last = max([limit.upto, waits_for, *(progress.commit for progress in start.tables.values())])
            commit = max(start.commit, min(commit, last))
            if commit == start.commit:
                return commit
        quiet = self._connection.dialect.is_quiet(self._connection, start.commit, commit, oldest)
        # What was requested for a table that was read further than the stream waits for the stream.
        further = any(progress.commit > start.commit for progress in start.tables.values()) or waits_for > start.commit
        if quiet and start.commit_time is not None and start.is_level and not further:
            at = self._commit_time(commit, start.clock)
            recent = at is not None and (at - start.commit_time).total_seconds() < _QUIET_SECONDS
            # Where more has come since, a bounded window of dummy commits must not be what is always looked at.
            is_bounded = bool(limit.upto) or 0 < bound < _MANY_DUMMIES
            head = value(self._statements.MAX_LSN) if is_bounded else newest
            if recent and head is not None and lsn.read(head) == commit:
                return start.commit
        return commit

    # Schemas.

    def _switched_off_and_on(self, start: Offset) -> set[str]:
        """Known tables whose change tables are all new, or began again, and do not reach back to where reading stopped.

        They are captured as new ones, with a snapshot.
        """
        switched = set()
        for path in start.known:
            table = self._catalog.get(path)
            if table is None:
                continue
            progress = start.tables.get(path)
            after = start.commit if progress is None else progress.commit
            captured = table.of(self._histories(start)[path].newest.instance)
            oldest = (captured or table.newest).instance.start_lsn
            if captured is not None:
                again = oldest is not None and begins_again(self._connection, after, oldest)
            else:
                # Even when the server's mapping shows no transaction in between: nothing is mapped while capture is
                # off.
                again = oldest is None or oldest > lsn.after(after)
            if again:
                switched.add(path)
        return switched

    def _histories(self, offset: Offset) -> Mapping[str, SchemaHistory]:
        return schema_histories(offset.schemas, self._connection.dialect)

    def _evolved(
        self, start: Offset, commit: str, known: tuple[str, ...], fresh: list[str]
    ) -> tuple[dict[str, SchemaHistory], list[Rewrite]]:
        """How each table is read up to `commit`, with what was altered since the last batch, and what that may have
        done to rows that were there."""
        histories: dict[str, SchemaHistory] = {}
        rewrites: list[Rewrite] = []
        asked = commit > start.commit
        alterations = self._connection.dialect.alterations(self._connection, start.commit, commit) if asked else ()
        for path in known:
            history = self._histories(start)[path]
            progress = start.tables.get(path)
            after = start.commit if progress is None else progress.commit
            snapshotting = progress is not None and not progress.done
            histories[path] = self._evolve(path, history, after, commit, snapshotting=snapshotting)
            histories[path], rewrite = self._with_alterations(
                path, history.newest, histories[path], max(after, start.commit), commit, alterations
            )
            rewrites += [] if rewrite is None else [rewrite]
            if snapshotting:
                histories[path] = histories[path].cut_by(history.newest.chunk_key)
        for path in fresh:
            if path in start.schemas:
                # It was switched off and on, and is read again.
                self._require_still_matched(path, self._histories(start)[path].newest, held=())
            tables = [columns_of(table) for table in self._catalog.values()]
            require_matched_by(self._settings, self._catalog[path].id, tables)
            histories[path] = SchemaHistory.begin(self._catalog[path].newest)
        return histories, rewrites

    def _with_alterations(
        self,
        path: str,
        before: CapturedTable,
        history: SchemaHistory,
        since: str,
        commit: str,
        alterations: Sequence[Alteration],
    ) -> tuple[SchemaHistory, Rewrite | None]:
        """A table's history with what tells a later alteration, and what those up to a commit may have done to rows."""
        catalog, now = self._catalog[path], history.newest
        shown = catalog.of(now.instance) or catalog.newest
        if self._mode == "recovery" and self._restarted:
            return history, None
        if before.altered and shown.altered != before.altered:
            # Rows that are read now must not be followed by changes from before.
            passed = self._connection.dialect.has_passed(self._connection, commit, shown.altered)
            now = replace(now, altered=shown.altered if passed else before.altered)
        elif commit <= since and now == before:
            # Nothing is kept for its own sake, so an idle database gives no batch.
            return history, None
        else:
            now = replace(now, altered=shown.altered)
        now, before = now.numbered_as(shown), before.numbered_as(catalog.of(before.instance))
        capture_tables = (before.instance.object_id, now.instance.object_id)
        statements = [a.statement for a in alterations if a.change_table in capture_tables and since < a.lsn]
        dropped, rewrite = self._connection.dialect.rewrite(
            self._connection, before, now, list(dict.fromkeys(statements))
        )
        return history.knowing(numbers=now.numbers, altered=now.altered, dropped=dropped), rewrite

    def _read_again(
        self, requests: AdHoc, rewrites: Iterable[Rewrite], histories: Mapping[str, SchemaHistory]
    ) -> AdHoc:
        tables = {path: history.newest for path, history in histories.items()}
        read = self._read_first(tables)
        return follow_rewrites(rewrites, requests, tables, self._settings, read=read, rows=self._estimated)

    def _estimated(self, tables: Iterable[CapturedTable]) -> dict[str, int]:
        """About how many rows tables have, where the catalog says."""
        estimates = {table.id.path: self._rows_of(table.id) for table in tables}
        return {path: rows for path, rows in estimates.items() if rows >= 0}

    def _evolve(
        self, path: str, history: SchemaHistory, after: str, commit: str, *, snapshotting: bool
    ) -> SchemaHistory:
        known, table = history.newest, self._catalog[path]
        if self._mode == "recovery" and self._restarted:
            return SchemaHistory.begin(table.of(known.instance) or table.newest)
        newest = table.newest
        self._require_still_matched(path, known, held=[column.name for column in known.schema.columns])
        captured = table.of(known.instance)
        if captured is None:
            # Its change table is gone, and the other one holds all that is needed.
            return history.followed_by(newest, max(newest.instance.start_lsn or self._zero, lsn.after(after)))
        if captured.instance.name != newest.instance.name:
            begun = newest.instance.start_lsn
            if begun is not None and begun <= commit and commit > after:
                return history.followed_by(newest, max(begun, lsn.after(after)))
        if captured.same_rows(known):
            return history.knowing(protected=captured.protected)
        at = self._altered(known.instance.object_id, after)
        if at is None or snapshotting:
            return history.followed_by(captured, lsn.after(after))
        # Rows of commits before the alteration follow the old schema; when they are all here, the new one begins.
        if at > commit:
            return history
        retyped = known.retyped_as(captured)
        if retyped.natives != known.natives:
            history = history.followed_by(retyped, lsn.after(after))
        return history if captured.same_rows(retyped) else history.followed_by(captured, lsn.after(at))

    def _require_still_matched(self, path: str, known: CapturedTable, held: Sequence[str]) -> None:
        now = columns_of(self._catalog[path])
        require_still_matched(self._settings, now, known.names, known.protected, held)

    def _altered(self, instance: int, after: str) -> str | None:
        """The last alteration after a commit; None where there was none, or the server does not say."""
        if not self._statements.LAST_DDL:
            return None
        altered = self._connection.value(self._statements.LAST_DDL, (instance, lsn.to_bytes(after)))
        return None if altered is None else lsn.read(altered)

    def _still_needed(
        self, start: Offset, end: Offset, histories: Mapping[str, SchemaHistory]
    ) -> dict[str, list[dict[str, Any]]]:
        """Schemas without versions that neither this batch nor a later one reads."""
        needed = {}
        for path, history in histories.items():
            progress = start.tables.get(path) or end.tables.get(path)
            after = start.commit if progress is None else min(progress.commit, start.commit)
            needed[path] = history.needed_after(after).to_json()
        return needed

    # Snapshots.

    def _more_chunks(
        self, lagging: dict[str, TableProgress], histories: Mapping[str, SchemaHistory], limit: Limit
    ) -> dict[str, TableProgress]:
        """The snapshots moved on by the chunks that one batch may hold, tables one after another."""
        whole = chunks.in_one_session(self._settings)

        def more(path: str, progress: TableProgress, budget: int) -> TableProgress:
            if whole:
                return replace(progress, bounds=(None,), done=True)
            return chunks.more(self._connection, histories[path].newest, progress, self._settings, budget)

        return self._with_chunks(lagging, limit, more)

    # What was lost.

    def _gaps(
        self,
        start: Offset,
        known: tuple[str, ...],
        histories: Mapping[str, SchemaHistory],
        lagging: dict[str, TableProgress],
    ) -> dict[str, tuple[str, str]]:
        """Changes that are needed and gone.

        Either the batch is refused, or they are noted; with `when_needed` their tables are snapshotted again.
        """
        gaps: dict[str, tuple[str, str]] = {}
        for path in known:
            mended = reads_all(self._settings, [self._catalog[path].id])
            if path in self._lost and mended:
                lagging[path] = self._begin(path, self.snapshot_commit(), start.reads + 1)
                continue
            progress = start.tables.get(path)
            after = start.commit if progress is None else progress.commit
            instance = next(iter(histories[path].windows(after, lsn.after(after))), None)
            oldest = oldest_needed(self._catalog[path], instance)
            if oldest is None or self._retention.holds(after, oldest):
                continue
            _, announced = start.gaps.get(path, (None, None))
            if announced == oldest:
                gaps[path] = start.gaps[path]
                continue
            try:
                require_retained(self._connection, self._catalog[path].id, after, oldest)
            except DataLossError as error:
                if mended:
                    lagging[path] = self._begin(path, self.snapshot_commit(), start.reads + 1)
                elif self._settings.fail_on_data_loss:
                    raise
                _LOG.warning("%s", error)
                gaps[path] = (after, oldest)
        return gaps

    def _uncaptured(self, start: Offset) -> dict[str, str]:
        """The tables that are not captured any more; each is reported when it is found, and again after a restart."""
        uncaptured = uncaptured_tables(start, self._catalog, self._means)
        reported = () if self._restarted else start.uncaptured
        say_uncaptured(uncaptured, reported, self._settings, self._connection.dialect.advice.enable)
        return uncaptured

    def _gaps_of_returned(
        self, start: Offset, fresh: list[str], lagging: Mapping[str, TableProgress]
    ) -> dict[str, tuple[str, str]]:
        """What happened to tables that are captured again while they were not: it is in no change table."""
        gaps = {}
        for path in fresh:
            if path not in start.tables_seen:
                continue
            progress = start.tables.get(path)
            after = start.uncaptured.get(path) or (start.commit if progress is None else progress.commit)
            say_returned(path, f"LSN {after}", self._settings, read_again=not lagging[path].done)
            gaps[path] = (after, lsn.after(lagging[path].commit))
        return gaps

    # Times.

    def _stamped(self, end: Offset) -> Offset:
        stamp = self._zone.of(self._connection)
        return replace(end, clock=stamp, commit_time=self._commit_time(end.commit, stamp))

    def _commit_time(self, commit: str, zone: str) -> dt.datetime | None:
        local = self._connection.value(self._statements.COMMIT_TIME, (lsn.to_bytes(commit),))
        return CommitClock(self._connection, zone).end(commit, local)

    def _require_same_database(self, start: Offset) -> None:
        self._require_own(start)
        lost = [path for path in start.known if path not in start.schemas]
        if lost:
            raise CaptureError(
                f"The checkpoint lacks the schema of table '{lost[0]}'.", remedy="Start with a new checkpoint."
            )
