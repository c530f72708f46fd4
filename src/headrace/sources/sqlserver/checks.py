"""What is amiss at SQL Server: rights that the login lacks, the capture job, the clean-up job and SQL Server Agent.

Permissions are found out by reading, because that is what a run does: roles, schemas, columns and DENY all count then.

Row-level security, masks and Always Encrypted keep rows and values back from a login. What is here of them is by
Microsoft's documentation; no real server was seen with any of them.

Everything is read from system views, over a connection of its own, so no batch waits for it. What the login may not see
is left unknown and reported with the permission that it needs; it is requested again only after a while.
"""

from __future__ import annotations

import datetime as dt
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from headrace.errors import CaptureError, HeadraceError
from headrace.permissions import MissingPermission
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.captured_table import CapturedTable
from headrace.sources.change_tables.chunks import isolation
from headrace.sources.change_tables.clock import CommitClock, ServerZone
from headrace.sources.change_tables.connection import Connection, MissingObject
from headrace.sources.change_tables.dialect import Advice
from headrace.sources.change_tables.guards import is_retained
from headrace.sources.change_tables.permissions import missing_select, refused
from headrace.sources.change_tables.schema_history import schema_histories
from headrace.sources.change_tables.statements import Queries
from headrace.sources.health import CaptureState, Health, span_text, unasked
from headrace.sources.offset import Offset
from headrace.sources.sqlserver import statements
from headrace.sources.sqlserver.options import SqlServerSettings
from headrace.sources.tables.restricted import RestrictedRead

_IN_SNAPSHOTS = "snapshot"

ADVICE = Advice(
    capture="Run EXEC sys.sp_cdc_enable_table",
    enable="Enable its change data capture (sys.sp_cdc_enable_table)",
    keep="give the clean-up job a longer retention (sys.sp_cdc_change_job)",
    watch="SQL Server Agent and the capture job run",
    see="the permission is VIEW DATABASE STATE",
)
_AGENT_RUNS = 4
_LATE_SECONDS = 60.0
"""From here on a capture job that works is called late; with a longer polling interval, from three of those on."""
_STILL_SECONDS = 30.0
"""A capture job that has not looked at the log for this long and two polling intervals does not work."""
_MARK_SECONDS = 600.0
"""An idle capture job leaves a mark about every five minutes: what is seen where its scans are not."""
_POLLING_SECONDS = 5.0
_UNSEEN_POLLING_SECONDS = 60.0
"""The polling interval that is allowed for when the login may not see it."""
_AGAIN_SECONDS = 60.0
_JOBS_SECONDS = 30.0
_SEE_SERVER = "VIEW SERVER STATE"
_SEE_DATABASE = "VIEW DATABASE STATE"


def missing_in_database(connection: Connection, settings: SqlServerSettings) -> Iterator[MissingPermission]:
    """What is missing beside the captured tables themselves."""
    database, user = settings.database, settings.user or "?"
    for name, read in statements.CAPTURE_READ.items():
        refusal = refused(connection, read)
        if refusal is not None:
            grant = connection.dialect.grant_changes(name, user)
            yield missing_select(refusal, f"cdc.{name}", "what is captured, and all that was", grant)
            # Change tables are in the same schema, so more of the same would say nothing new.
            return
    for (instance,) in connection.rows(statements.HIDDEN_INSTANCES):
        yield MissingPermission.of(
            ["SELECT"],
            f"on the table of capture instance '{instance}'",
            "a table that the login does not see can't be captured",
            f"Run: GRANT SELECT ON OBJECT::<that table> TO {statements.quote(user)}.",
            required=False,
        )
    if connection.value(statements.MAY_SEE_POLICIES) == 0:
        yield MissingPermission.of(
            ["VIEW DEFINITION"],
            f"on database '{database}'",
            "whether row-level security hides rows of tables",
            f"Run: GRANT VIEW DEFINITION TO {statements.quote(user)}.",
            required=False,
        )
    if isolation(settings) == _IN_SNAPSHOTS and not connection.value(statements.SNAPSHOT_ISOLATION, (database,)):
        yield MissingPermission(
            f"ALLOW_SNAPSHOT_ISOLATION is off in database '{database}' (snapshots with "
            "snapshot_isolation_mode: snapshot, and everything on a readable secondary).",
            f"Run: ALTER DATABASE {statements.quote(database)} SET ALLOW_SNAPSHOT_ISOLATION ON.",
        )
    yield from _watching(connection, settings, user)


def _watching(connection: Connection, settings: SqlServerSettings, user: str) -> Iterator[MissingPermission]:
    signals = settings.signal_data_collection
    quoted = statements.quote(user)
    if signals:
        name = ".".join(statements.quote(part) for part in signals.split(".")[-2:])
        if connection.value(statements.MAY_INSERT, (name,)) == 0:
            yield MissingPermission.of(
                ["INSERT"],
                f"on {signals}",
                "headrace signal",
                f"Run: GRANT INSERT ON OBJECT::{name} TO {quoted}.",
                required=False,
            )
    if settings.application_intent.lower() == "readonly":
        # Jobs, scans and Agent of a readable secondary say nothing about the capture, and are not needed.
        return
    wanted = (
        (
            statements.NEWEST_SCAN,
            "VIEW DATABASE STATE",
            "the capture job's scans: health, and ad-hoc snapshots of an idle database",
            f"Run: GRANT VIEW DATABASE STATE TO {quoted}.",
        ),
        (
            statements.AGENT,
            "VIEW SERVER STATE",
            "whether SQL Server Agent runs",
            f"Run in master: GRANT VIEW SERVER STATE TO {quoted}.",
        ),
    )
    for sql, name, purpose, grant in wanted:
        if refused(connection, sql) is not None:
            yield MissingPermission.of([name], "", purpose, grant, required=False)
    if all(refused(connection, sql) is not None for sql in (statements.JOBS, statements.JOBS_TABLE)):
        yield MissingPermission.of(
            ["SELECT"],
            "on msdb.dbo.cdc_jobs",
            "how long changes are kept, and how often the log is read",
            f"Run in msdb, where the login needs a user: GRANT SELECT ON dbo.cdc_jobs TO {quoted}.",
            required=False,
        )


def restricted_reads(server: Queries, tables: Sequence[CapturedTable]) -> list[RestrictedRead]:
    """What the login does not read as the log has it, as far as it may see that."""
    captured = {table.id.path: table for table in tables}
    return [*_filtered(server, captured), *_masked(server, captured), *_encrypted(server, captured)]


def _filtered(server: Queries, captured: dict[str, CapturedTable]) -> list[RestrictedRead]:
    reads = []
    policies: dict[str, list[str]] = defaultdict(list)
    for schema, name, policy in server.rows(statements.POLICIES):
        policies[f"{schema}.{name}"].append(f"'{policy}'")
    counted = {}
    if policies:
        counted = {f"{s}.{t}": int(rows or 0) for s, t, rows in server.rows(statements.ROW_ESTIMATES)}
    for path, names in policies.items():
        table = captured.get(path)
        if table is None:
            continue
        empty = counted.get(path, 0) > 0 and not server.rows(statements.any_row(table))
        sees = f"It shows the login no row, of {counted.get(path)}." if empty else "Whether it hides rows is not known."
        reads.append(
            RestrictedRead(
                path,
                f"Security policy {', '.join(dict.fromkeys(names))} filters its rows for who reads it, and not for "
                f"change tables. {sees}",
                "Let its predicate give a row for the login, leave the rows unread (snapshot_mode: no_data), or say "
                "which are wanted by 'snapshot_select_statement_overrides'.",
                certain=empty,
            )
        )
    return reads


def _masked(server: Queries, captured: dict[str, CapturedTable]) -> list[RestrictedRead]:
    masked = _columns(server, statements.MASKED, captured)
    if not masked or server.value(statements.MAY_UNMASK_ALL) == 1:
        return []
    reads = []
    for path, columns in masked.items():
        names = [name for name in columns if name in {column.name for column in captured[path].schema.columns}]
        table = statements.table_name(captured[path])
        hidden = [name for name in names if server.value(statements.MAY_UNMASK, (table, name)) != 1]
        if hidden:
            reads.append(
                RestrictedRead(
                    path,
                    f"{_named(hidden)} masked for the login (dynamic data masking): rows that are read have masked "
                    "values, and changes have the real ones.",
                    "Run: GRANT UNMASK TO the login. Or leave the columns out with 'column_exclude_list'.",
                    certain=True,
                )
            )
    return reads


def _encrypted(server: Queries, captured: dict[str, CapturedTable]) -> list[RestrictedRead]:
    return [
        RestrictedRead(
            path,
            f"{_named(columns)} encrypted by Always Encrypted. The server has no plain values, so that rows and "
            "changes come without them.",
            "Leave them out with 'column_exclude_list' if that is meant.",
        )
        for path, columns in _columns(server, statements.ENCRYPTED, captured).items()
    ]


def _columns(server: Queries, sql: str, captured: dict[str, CapturedTable]) -> dict[str, list[str]]:
    columns: dict[str, list[str]] = defaultdict(list)
    for schema, name, column in server.rows(sql):
        if f"{schema}.{name}" in captured:
            columns[f"{schema}.{name}"].append(str(column))
    return columns


def _named(columns: Sequence[str]) -> str:
    names = ", ".join(f"'{name}'" for name in columns)
    return f"Column {names} is" if len(columns) == 1 else f"Columns {names} are"


@dataclass(frozen=True)
class Jobs:
    """What is set for the two jobs of a database's capture.

    Args:
        capture: whether there is a capture job. Where transactional replication reads the log there is none.
        continuous: whether it runs all the time, not on a schedule.
        polling_seconds: how often it looks at the log.
        retention_seconds: how long the clean-up job keeps changes; None when there is no such job.
    """

    capture: bool = False
    continuous: bool = True
    polling_seconds: float = _POLLING_SECONDS
    retention_seconds: float | None = None


@dataclass(frozen=True)
class Scan:
    """The newest session in which the capture job read the log.

    Args:
        ended: None while it goes on.
        empty: it found nothing, so everything before its end is captured.
        failed: it met errors and got nothing.
    """

    ended: dt.datetime | None
    empty: bool
    failed: bool


class HealthProbe:
    """Asks one database how its capture is, and remembers what the login may not see. Runs in the driver.

    Args:
        connect: opens a connection.
        settings: the source's options.
        ticks: seconds that only grow.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        settings: SqlServerSettings,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._settings = settings
        self._ticks = ticks
        self.zone = ServerZone(settings)
        self._refused: dict[str, float] = {}
        self._jobs: tuple[float, Jobs | None] | None = None
        self._seen: dt.datetime | None = None
        self._moved = float("-inf")

    def ask(self, offset: Offset | None) -> Health:
        """How it is now; `offset` says what is in all sinks. Raises nothing that a server may answer."""
        try:
            with self._connect() as connection:
                try:
                    return _Questions(self, connection, self._settings).health(offset)
                except MissingObject as error:
                    reason = connection.dialect.no_capture(connection, self._settings.database) or error
                    return Health(CaptureState.NOT_CAPTURING, reason.message, reason.remedy)
        except HeadraceError as error:
            return unasked(error)

    def optional(self, connection: Connection, sql: str) -> list[tuple[Any, ...]] | None:
        """The rows of a statement that the login may lack the permission for; None if it does."""
        again = self._refused.get(sql)
        if again is not None and self._ticks() < again:
            return None
        try:
            rows = connection.rows(sql)
        except CaptureError:
            self._refused[sql] = self._ticks() + _AGAIN_SECONDS
            return None
        self._refused.pop(sql, None)
        return rows

    def jobs(self, connection: Connection) -> Jobs | None:
        """What is set for the jobs, kept for a while; None when the login may not see it."""
        if self._jobs is None or self._ticks() - self._jobs[0] > _JOBS_SECONDS:
            rows = self.optional(connection, statements.JOBS)
            if rows is None:
                rows = self.optional(connection, statements.JOBS_TABLE)
            else:
                rows = [(kind, *settings) for _, kind, _, _, _, *settings in rows]
            self._jobs = (self._ticks(), None if rows is None else _jobs(rows))
        return self._jobs[1]

    def advances(self, captured: dt.datetime) -> bool:
        """Whether capture was seen to move on in the last minutes."""
        if self._seen is not None and captured > self._seen:
            self._moved = self._ticks()
        self._seen = captured
        return self._ticks() - self._moved <= _MARK_SECONDS


class _Questions:
    def __init__(self, probe: HealthProbe, connection: Connection, settings: SqlServerSettings) -> None:
        self._probe = probe
        self._connection = connection
        self._settings = settings
        self._not_seen: list[str] = []

    def health(self, offset: Offset | None) -> Health:
        zone, now = self._probe.zone.now(self._connection)
        self._clock = CommitClock(self._connection, zone)
        marked = self._commit_time(self._connection.row(statements.NEWEST_MARK))
        # What a readable secondary says of jobs and Agent is about itself, and capture runs on the primary.
        primary = self._settings.application_intent.lower() != "readonly"
        agent = self._agent() if primary else None
        scan = self._scan(now) if primary else None
        jobs = self._probe.jobs(self._connection) if primary else None
        if not primary:
            self._not_seen.append("SQL Server Agent and the capture job, which run on the primary replica")
        elif jobs is None:
            self._not_seen.append("the jobs' settings (needs the role db_owner, or SELECT on msdb.dbo.cdc_jobs)")
        until = marked
        if scan is not None and scan.empty and scan.ended is not None:
            until = max(scan.ended, marked or scan.ended)
        state, sentence, remedy = self._judged(now, until, agent, scan, jobs)
        health = Health(state, sentence, remedy, checked=now, captured_until=until)
        if health.is_late:
            health = replace(health, log_used_bytes=self._log_used())
        if jobs is not None:
            health = replace(health, retention_seconds=jobs.retention_seconds)
        if offset is not None and not offset.is_nothing and self._settings.snapshot_mode != "initial_only":
            health = self._with_headroom(health, offset)
        return replace(health, not_seen=tuple(self._not_seen))

    def _judged(
        self,
        now: dt.datetime,
        until: dt.datetime | None,
        agent: bool | None,
        scan: Scan | None,
        jobs: Jobs | None,
    ) -> tuple[CaptureState, str, str]:
        if agent is False:
            return (
                CaptureState.NOT_CAPTURING,
                "SQL Server Agent is stopped.",
                "Start the service SQL Server Agent; until then changes wait in the transaction log.",
            )
        if scan is not None and scan.failed:
            return (
                CaptureState.NOT_CAPTURING,
                "The capture job's last scan of the log failed.",
                "Look into sys.dm_cdc_errors and the history of the job in SQL Server Agent.",
            )
        known = jobs or Jobs(capture=True, polling_seconds=_UNSEEN_POLLING_SECONDS)
        start = "Start it: EXEC sys.sp_cdc_start_job @job_type = N'capture'."
        late = max(_LATE_SECONDS, 3 * known.polling_seconds)
        lag = None if until is None else (now - until).total_seconds()
        moves = until is not None and self._probe.advances(until)
        if scan is not None and known.continuous:
            idle = 0.0 if scan.ended is None else (now - scan.ended).total_seconds()
            if idle > _STILL_SECONDS + 2 * known.polling_seconds:
                return CaptureState.NOT_CAPTURING, f"The capture job has not read the log for {span_text(idle)}.", start
        else:
            late = max(late, _MARK_SECONDS)
        if lag is None:
            if not known.capture:
                return CaptureState.NOT_CAPTURING, *_no_job(self._settings.database)
            return CaptureState.UNKNOWN, "Nothing was captured yet.", start
        if lag <= late:
            return CaptureState.CAPTURING, f"The log was read {span_text(lag)} ago.", ""
        if not known.capture and not moves:
            return CaptureState.NOT_CAPTURING, *_no_job(self._settings.database)
        if scan is not None or moves:
            return (
                CaptureState.LAGGING,
                f"The capture job is {span_text(lag)} behind.",
                "Let it read more at a time: EXEC sys.sp_cdc_change_job with @maxtrans, @maxscans, @pollinginterval.",
            )
        return CaptureState.NOT_CAPTURING, f"Nothing was captured for {span_text(lag)}.", start

    def _agent(self) -> bool | None:
        rows = self._probe.optional(self._connection, statements.AGENT)
        if rows is None:
            self._not_seen.append(f"SQL Server Agent (needs {_SEE_SERVER})")
        return None if not rows else _only(rows) == _AGENT_RUNS

    def _scan(self, now: dt.datetime) -> Scan | None:
        rows = self._probe.optional(self._connection, statements.NEWEST_SCAN)
        if rows is None:
            self._not_seen.append(f"the capture job's scans (needs {_SEE_DATABASE})")
        if not rows:
            return None
        ended, transactions, empty, errors = rows[0]
        return Scan(
            # The last reading of that time that has been: scans are not in the order of commits.
            ended=self._clock.begin(ended, now),
            empty=not transactions and bool(empty) and not errors,
            failed=not transactions and bool(errors),
        )

    def _log_used(self) -> int | None:
        rows = self._probe.optional(self._connection, statements.LOG_USED)
        if rows is None:
            self._not_seen.append(f"the size of the transaction log (needs {_SEE_DATABASE})")
        return _only(rows) if rows else None

    def _with_headroom(self, health: Health, offset: Offset) -> Health:
        delivered = min([offset.commit, *(progress.commit for progress in offset.tables.values())])
        waiting = self._commit_time(
            self._connection.row(statements.FIRST_TRANSACTION_AFTER, (lsn.to_bytes(delivered),))
        )
        commits = 0
        if waiting is not None:
            commits = int(self._connection.value(statements.TRANSACTIONS_AFTER, (lsn.to_bytes(delivered),)))
        lost = self._lost(offset, delivered)
        health = replace(health, waiting_since=waiting, waiting_commits=commits, lost=lost)
        kept = health.retention_seconds
        if kept is None or health.checked is None:
            return health
        used = 0.0 if waiting is None else max(0.0, (health.checked - waiting).total_seconds())
        return replace(health, headroom_seconds=0.0 if health.lost else kept - used)

    def _lost(self, offset: Offset, delivered: str) -> tuple[str, ...]:
        value = self._connection.value(statements.NEWEST_INSTANCE_START)
        newest = lsn.ZERO if value is None else lsn.to_text(bytes(value))
        if newest <= lsn.after(delivered):
            return ()
        starts = {
            (str(name), int(number)): lsn.to_text(bytes(start))
            for name, number, start in self._connection.rows(statements.INSTANCES)
            if start is not None
        }
        kept: dict[tuple[str, str], bool] = {}
        lost = []
        for path in offset.known:
            progress = offset.tables.get(path)
            after = offset.commit if progress is None else progress.commit
            if newest <= lsn.after(after):
                continue
            windows = schema_histories(offset.schemas, self._connection.dialect)[path].windows(after, lsn.after(after))
            instance = windows[0].table.instance if windows else None
            start = None if instance is None else starts.get((instance.name, instance.object_id))
            if start is None:
                continue
            if (after, start) not in kept:
                kept[after, start] = is_retained(self._connection, after, start)
            if not kept[after, start]:
                lost.append(path)
        return tuple(lost)

    def _commit_time(self, row: tuple[Any, ...] | None) -> dt.datetime | None:
        """When a commit was made that a statement gives with its LSN and its local time; None without one."""
        if row is None:
            return None
        commit, time = row
        return self._clock.end(lsn.to_text(bytes(commit)), time)


class _Job(NamedTuple):
    """A row of `statements.JOBS_TABLE`; the polling interval in seconds, the retention in minutes."""

    kind: str
    continuous: bool
    polling: int | None
    retention: int | None


def _jobs(rows: list[tuple[Any, ...]]) -> Jobs:
    by_kind = {str(job.kind).lower(): job for job in (_Job(*row[: len(_Job._fields)]) for row in rows)}
    capture, cleanup = by_kind.get("capture"), by_kind.get("cleanup")
    return Jobs(
        capture=capture is not None,
        continuous=capture is None or bool(capture.continuous),
        polling_seconds=_POLLING_SECONDS if capture is None else max(_POLLING_SECONDS, float(capture.polling or 0)),
        retention_seconds=None if cleanup is None else 60.0 * float(cleanup.retention or 0),
    )


def _only(rows: list[tuple[Any, ...]]) -> int | None:
    ((value,), *_) = rows
    return None if value is None else int(value)


def _no_job(database: str) -> tuple[str, str]:
    return f"Database '{database}' has no capture job.", "Add it: EXEC sys.sp_cdc_add_job @job_type = N'capture'."
