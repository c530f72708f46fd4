"""`SqlServerSource`: any number of tables of one database, snapshotted and then followed by commit LSN.

Offsets name commits. The initial snapshot is read at the newest captured commit; what was committed between that and
the read comes again as changes, which tables absorb. Later tables are snapshotted beside the stream of the others
(spec/sqlserver.md sections 2 to 6).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from headrace.changes import TableSchema
from headrace.errors import CaptureError, PositionMismatch
from headrace.options import Options
from headrace.sources.base import Limit, Slice, Source
from headrace.sources.offset import Key, Offset, TableProgress
from headrace.sources.snapshot import plan_chunks, snapshot_finished
from headrace.sources.sqlserver import clock, lsn, statements
from headrace.sources.sqlserver.catalog import CapturedTable, captured_tables
from headrace.sources.sqlserver.connection import Connection
from headrace.sources.sqlserver.options import OPTIONS
from headrace.sources.sqlserver.retention import require_retained
from headrace.sources.sqlserver.slices import read_slice, snapshot_slice, stream_slice

_QUIET_SECONDS = 60.0
"""An idle server writes dummy commits.

The offset follows them this often, so that it never falls behind the clean-up job.
"""
_TABLES_PER_QUERY = 500


class SqlServerSource(Source):
    """Changes of a SQL Server database from its change data capture."""

    name = "sqlserver"
    options = OPTIONS

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._captured: tuple[CapturedTable, ...] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Executors read slices, which carry what they need; the catalog stays with the planner.
        return {**self.__dict__, "_captured": None}

    def tables(self) -> Sequence[TableSchema]:
        """What is captured now, in include-list order."""
        with self._connect() as connection:
            return [table.schema for table in self._refresh(connection)]

    def head(self) -> str:
        """The newest captured transaction; dummy commits of an idle server do not count."""
        with self._connect() as connection:
            newest = connection.value(statements.NEWEST_TRANSACTION)
            return lsn.ZERO if newest is None else lsn.to_text(bytes(newest))

    def advance(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        """Where the next batch ends: more snapshot chunks, a window of commits, or both."""
        with self._connect() as connection:
            tables = self._refresh(connection)
            if start.is_nothing:
                commit = self._snapshot_commit(connection, tables)
                begun = {table.id.path: self._begin(connection, table, commit) for table in tables}
                end = Offset(source=self._identity, commit=commit, known=tuple(begun))
                end = replace(end, tables=self._more_chunks(connection, tables, begun, limit))
            else:
                self._require_same_database(start)
                end = self._after(connection, tables, start, limit)
                if end == start:
                    return start
            end = replace(end, initial=start.initial and not snapshot_finished(end))
            self._require_retained(connection, tables, start, end)
            return self._stamped(connection, end, now)

    def plan(self, start: Offset, end: Offset) -> list[Slice]:
        """Snapshot chunks by key range, and the stream by table and commit range."""
        if start == end:
            return []
        with self._connect() as connection:
            tables = {t.id.path: t for t in self._refresh(connection)}
            slices = [snapshot_slice(self._table(tables, chunk.table), chunk, end) for chunk in plan_chunks(start, end)]
            if not start.initial:
                slices += self._stream(connection, tables, start, end)
            return slices

    def read(self, slice: Slice) -> Iterator[pa.RecordBatch]:
        """The change rows of one slice; opens a connection of its own and closes it at the end."""
        with self._connect() as connection:
            yield from read_slice(connection, slice, self.settings)

    # Planning.

    def _after(self, connection: Connection, tables: Sequence[CapturedTable], start: Offset, limit: Limit) -> Offset:
        """The offset after `start`, without its times; `start` itself when nothing is new."""
        known = tuple(table.id.path for table in tables)
        commit = start.commit if start.initial else self._next_commit(connection, start, limit)
        lagging: dict[str, TableProgress] = {}
        catching_up = False
        for path, progress in start.tables.items():
            if path in known:
                if progress.done and not start.initial and progress.commit <= commit:
                    # This batch streams the table up to the others.
                    catching_up |= progress.commit < commit
                else:
                    lagging[path] = progress.behind()
        for table in tables:
            if table.id.path not in start.known and not start.initial:
                at = self._snapshot_commit(connection, tables)
                lagging[table.id.path] = self._begin(connection, table, at)
        if start.initial:
            known = start.known + tuple(path for path in known if path not in start.known)
            for table in tables:
                if table.id.path not in start.known:
                    lagging[table.id.path] = self._begin(connection, table, start.commit)
        advanced = self._more_chunks(connection, tables, lagging, limit)
        if commit == start.commit and known == start.known and advanced == lagging and not catching_up:
            return start
        return replace(start, commit=commit, known=known, tables=advanced)

    def _snapshot_commit(self, connection: Connection, tables: Sequence[CapturedTable]) -> str:
        """The commit at which tables are read.

        What the capture job has done, and no table's change table starts after it.
        """
        head = connection.value(statements.MAX_LSN)
        starts = [table.instance.start_lsn or lsn.ZERO for table in tables]
        return max([lsn.ZERO if head is None else lsn.to_text(bytes(head)), *starts])

    def _begin(self, connection: Connection, table: CapturedTable, commit: str) -> TableProgress:
        estimate = connection.value(statements.ROW_ESTIMATE, (table.id.schema, table.id.name))
        return TableProgress(commit=commit, rows=-1 if estimate is None else int(estimate))

    def _more_chunks(
        self,
        connection: Connection,
        tables: Sequence[CapturedTable],
        lagging: dict[str, TableProgress],
        limit: Limit,
    ) -> dict[str, TableProgress]:
        """The snapshots moved on by the chunks that one batch may hold, tables one after another."""
        budget = limit.chunks or self.settings["snapshot_chunks_per_batch"]
        advanced: dict[str, TableProgress] = {}
        for table in tables:
            progress = lagging.get(table.id.path)
            if progress is None:
                continue
            if not progress.done:
                progress = self._chunks(connection, table, progress, budget)
                budget -= len(progress.bounds)
            advanced[table.id.path] = progress
        return advanced

    def _chunks(
        self, connection: Connection, table: CapturedTable, progress: TableProgress, budget: int
    ) -> TableProgress:
        """Up to `budget` further chunks of one table; their bounds are keys that the server found."""
        if progress.chunk == 0 and connection.value(statements.any_row(table)) is None:
            # Done at once even without budget, so that the last row of the last table that has rows is known to be the
            # last.
            return replace(progress, done=True)
        if budget == 0:
            return progress
        key = table.chunk_key
        if not key:
            return replace(progress, bounds=(None,), done=True)
        greatest = (
            [progress.last] if progress.last else self._keys(connection, table, *statements.greatest_key(table, key))
        )
        if not greatest:
            # Emptied since it was looked at: what went is in the stream.
            return replace(progress, done=True)
        last = greatest[0]
        rows = self.settings["snapshot_chunk_rows"]
        found = self._keys(connection, table, *statements.chunk_bounds(table, key, progress.lower, last, rows, budget))
        done = len(found) < budget
        bounds = (*found, last) if done else tuple(found)
        return replace(progress, last=last, bounds=bounds, done=done)

    @staticmethod
    def _keys(connection: Connection, table: CapturedTable, sql: str, parameters: Sequence[object]) -> list[Key]:
        """Keys that a statement gives, as canonical texts."""
        keys: list[Key] = []
        for batch in connection.batches(sql, parameters):
            columns = [table.native(name).texts(batch.column(i)) for i, name in enumerate(table.chunk_key)]
            keys += zip(*(column.to_pylist() for column in columns), strict=True)
        return keys

    def _next_commit(self, connection: Connection, start: Offset, limit: Limit) -> str:
        """The end of the next window of commits; the start itself when nothing new is worth a batch."""
        bound = limit.commits or self.settings["max_commits_per_trigger"]
        after = lsn.to_bytes(start.commit)
        if bound:
            newest = connection.value(statements.NTH_COMMIT_AFTER, (bound, after))
        else:
            newest = connection.value(statements.MAX_LSN)
        if newest is None:
            return start.commit
        commit = lsn.to_text(bytes(newest))
        if commit <= start.commit:
            return start.commit
        real = connection.value(statements.TRANSACTIONS_BETWEEN, (after, bytes(newest)))
        oldest = connection.value(statements.OLDEST_MAPPED)
        # A mapping that was cleaned beyond our place can't say that nothing happened: then the retention check decides.
        certain = oldest is not None and lsn.to_text(bytes(oldest)) <= start.commit
        if certain and not real and start.commit_time is not None and start.is_level:
            at = self._commit_time(connection, commit, start.clock)
            if at is not None and (at - start.commit_time).total_seconds() < _QUIET_SECONDS:
                return start.commit
        return commit

    def _stream(
        self, connection: Connection, tables: dict[str, CapturedTable], start: Offset, end: Offset
    ) -> list[Slice]:
        """One slice per table and commit range, only for tables that changed in their window."""
        windows: list[tuple[CapturedTable, str]] = []
        for path in end.known:
            progress = start.tables.get(path)
            if progress is not None and not progress.done:
                continue
            if progress is None and path not in start.known:
                continue
            after = start.commit if progress is None else progress.commit
            if after < end.commit:
                windows.append((self._table(tables, path), after))
        changed = self._changed(connection, windows, end.commit)
        slices: list[Slice] = []
        cuts: dict[str, list[str]] = {}
        for table, after in changed:
            if after not in cuts:
                cuts[after] = self._cuts(connection, after, end.commit)
            edges = [after, *cuts[after], end.commit]
            for number, (low, high) in enumerate(pairwise(edges)):
                slices.append(stream_slice(table, low, high, end, first=number == 0))
        return slices

    @staticmethod
    def _changed(
        connection: Connection, windows: list[tuple[CapturedTable, str]], upto: str
    ) -> list[tuple[CapturedTable, str]]:
        changed: list[tuple[CapturedTable, str]] = []
        for first in range(0, len(windows), _TABLES_PER_QUERY):
            part = windows[first : first + _TABLES_PER_QUERY]
            sql = statements.changed_instances([table.instance.name for table, _ in part])
            parameters = [p for _, after in part for p in (lsn.to_bytes(after), lsn.to_bytes(upto))]
            changed += [part[number] for number in sorted(int(row[0]) for row in connection.rows(sql, parameters))]
        return changed

    def _cuts(self, connection: Connection, after: str, upto: str) -> list[str]:
        step = self.settings["commits_per_slice"]
        rows = connection.rows(statements.EVERY_NTH_COMMIT, (lsn.to_bytes(after), lsn.to_bytes(upto), step))
        return [text for text in (lsn.to_text(bytes(row[0])) for row in rows) if text < upto]

    def _require_retained(
        self, connection: Connection, tables: Sequence[CapturedTable], start: Offset, end: Offset
    ) -> None:
        for table in tables:
            progress = end.tables.get(table.id.path) or start.tables.get(table.id.path)
            after = start.commit if progress is None else progress.commit
            require_retained(connection, table.id, table.instance.name, after)

    def _stamped(self, connection: Connection, end: Offset, now: dt.datetime) -> Offset:
        zone = self.settings["server_timezone"]
        stamp = zone or clock.offset_text(int(connection.value(statements.CLOCK) or 0))
        end = replace(end, clock=stamp, capture_time=now)
        at = self._commit_time(connection, end.commit, stamp)
        return replace(end, commit_time=at)

    @staticmethod
    def _commit_time(connection: Connection, commit: str, zone: str) -> dt.datetime | None:
        local = connection.value(statements.COMMIT_TIME, (lsn.to_bytes(commit),))
        if local is None:
            return None
        instant: dt.datetime = clock.to_instants(pa.array([local], pa.timestamp("us")), zone)[0].as_py()
        return instant

    # Small things.

    @property
    def _identity(self) -> str:
        return f"{self.name}:{self.settings['database']}"

    def _require_same_database(self, start: Offset) -> None:
        if start.source != self._identity:
            raise PositionMismatch(
                f"The checkpoint belongs to '{start.source}', not to '{self._identity}'.",
                remedy="Use another checkpoint for another database.",
            )

    def _refresh(self, connection: Connection) -> tuple[CapturedTable, ...]:
        include = (self.settings["table"],) if self.settings["table"] else self.settings["tables"]
        self._captured = tuple(captured_tables(connection, self.settings["database"], include))
        return self._captured

    @staticmethod
    def _table(tables: dict[str, CapturedTable], path: str) -> CapturedTable:
        table = tables.get(path)
        if table is None:
            raise CaptureError(
                f"Table '{path}' is in the checkpoint's batch but no longer captured.",
                remedy="Enable its change data capture again, or start with a new checkpoint.",
            )
        return table

    def _connect(self) -> Connection:
        names = (
            "hostname",
            "port",
            "instance",
            "database",
            "user",
            "password",
            "authentication",
            "encrypt",
            "trust_server_certificate",
            "application_intent",
        )
        return Connection(self.settings["driver"], {name: self.settings[name] for name in names})
