"""What is amiss at Db2: rights that the login lacks, and what the control tables say of the Capture program.

Everything is read over a connection of its own, so no batch waits for it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import replace

from headrace.errors import CaptureError, HeadraceError
from headrace.permissions import MissingPermission
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.clock import CommitClock, ServerZone
from headrace.sources.change_tables.connection import Connection, MissingObject
from headrace.sources.change_tables.guards import is_retained
from headrace.sources.change_tables.options import ChangeTableSettings
from headrace.sources.change_tables.permissions import missing_select, refused
from headrace.sources.change_tables.schema_history import schema_histories
from headrace.sources.db2.dialect import grant_select
from headrace.sources.db2.statements import Statements, quote
from headrace.sources.health import CaptureState, Health, span_text, unasked
from headrace.sources.offset import Offset

_LATE_SECONDS = 60.0
"""From here on the Capture program is called late: it commits about every thirty seconds."""
_STILL_SECONDS = 300.0
"""A Capture program that has not moved for this long is taken not to run."""
_START = "Start it: VALUES ASNCDC.ASNCDCSERVICES('start','asncdc'), and see its log."
_STOPPED = "S"


def missing_in_database(
    connection: Connection, statements: Statements, schema: str, user: str
) -> Iterator[MissingPermission]:
    """What is missing beside the captured tables and their change tables."""
    wanted = (
        ("IBMSNAP_REGISTER", statements.STATES, "which tables are captured, and how far"),
        ("IBMSNAP_UOW", statements.OLDEST_MAPPED, "commits and their times"),
    )
    for name, sql, purpose in wanted:
        refusal = refused(connection, sql)
        if refusal is not None:
            grant = grant_select(f"{quote(schema)}.{quote(name)}", user)
            yield missing_select(refusal, f"{schema}.{name}", purpose, grant)
    if refused(connection, statements.RETENTION) is not None:
        name = "IBMSNAP_CAPPARMS"
        grant = grant_select(f"{quote(schema)}.{quote(name)}", user)
        purpose = "how long changes are kept"
        yield MissingPermission.of(["SELECT"], f"on {schema}.{name}", purpose, grant, required=False)


class HealthProbe:
    """Asks one database how its capture is. Runs in the driver.

    Args:
        connect: opens a connection.
        statements: for its platform.
        settings: the source's options.
    """

    def __init__(
        self, connect: Callable[[], Connection], statements: Statements, settings: ChangeTableSettings
    ) -> None:
        self._connect = connect
        self._statements = statements
        self._settings = settings
        self._zone = ServerZone(settings)

    def ask(self, offset: Offset | None) -> Health:
        """How it is now; `offset` says what is in all sinks. Raises nothing that a server may answer."""
        try:
            with self._connect() as connection:
                try:
                    return self._health(connection, offset)
                except MissingObject as error:
                    reason = connection.dialect.no_capture(connection, self._settings.database) or error
                    return Health(CaptureState.NOT_CAPTURING, reason.message, reason.remedy)
        except HeadraceError as error:
            return unasked(error)

    def _health(self, connection: Connection, offset: Offset | None) -> Health:
        zone, now = self._zone.now(connection)
        clock = CommitClock(connection, zone)
        commit, time, _ = connection.row(self._statements.GLOBAL_RECORD) or (None, None, None)
        until = None if commit is None else clock.end(lsn.read(commit), time)
        health = replace(self._judged(connection, now, until), checked=now, captured_until=until)
        try:
            kept = connection.value(self._statements.RETENTION)
        except CaptureError:
            kept = None
            health = replace(health, not_seen=("the retention (needs SELECT on IBMSNAP_CAPPARMS)",))
        # Kept in minutes.
        health = replace(health, retention_seconds=None if kept is None else 60.0 * float(kept))
        if offset is None or offset.is_nothing or self._settings.snapshot_mode == "initial_only":
            return health
        return self._with_headroom(connection, clock, health, offset)

    def _judged(self, connection: Connection, now: dt.datetime, until: dt.datetime | None) -> Health:
        stopped = [
            f"{str(owner).rstrip()}.{table}"
            for owner, table, state in connection.rows(self._statements.STATES)
            if str(state).strip() == _STOPPED
        ]
        if stopped:
            return Health(
                CaptureState.NOT_CAPTURING,
                f"The Capture program stopped table '{stopped[0]}' because of an error (STATE 'S').",
                "See its log (asncap), mend what it says, set STATE to 'A' and let it read that (reinit).",
            )
        if until is None:
            return Health(CaptureState.UNKNOWN, "Nothing was captured yet.", _START)
        lag = (now - until).total_seconds()
        if lag > _STILL_SECONDS:
            return Health(CaptureState.NOT_CAPTURING, f"Nothing was captured for {span_text(lag)}.", _START)
        if lag > _LATE_SECONDS:
            remedy = "See what the Capture program waits for; COMMIT_INTERVAL and MEMORY_LIMIT bound its speed."
            return Health(CaptureState.LAGGING, f"The Capture program is {span_text(lag)} behind.", remedy)
        return Health(CaptureState.CAPTURING, f"The log was read {span_text(lag)} ago.")

    def _with_headroom(self, connection: Connection, clock: CommitClock, health: Health, offset: Offset) -> Health:
        delivered = min([offset.commit, *(progress.commit for progress in offset.tables.values())])
        first, time = connection.row(self._statements.FIRST_TRANSACTION_AFTER, (lsn.to_bytes(delivered),)) or (
            None,
            None,
        )
        waiting = None if first is None else clock.end(lsn.read(first), time)
        commits = 0
        if waiting is not None:
            commits = int(connection.value(self._statements.TRANSACTIONS_AFTER, (lsn.to_bytes(delivered),)))
        lost = self._lost(connection, offset)
        health = replace(health, waiting_since=waiting, waiting_commits=commits, lost=lost)
        if health.retention_seconds is None or health.checked is None:
            return health
        used = 0.0 if waiting is None else max(0.0, (health.checked - waiting).total_seconds())
        return replace(health, headroom_seconds=0.0 if health.lost else health.retention_seconds - used)

    def _lost(self, connection: Connection, offset: Offset) -> tuple[str, ...]:
        starts = {
            int(number): lsn.read(start)
            for _, number, start in connection.rows(self._statements.INSTANCES)
            if start is not None
        }
        lost = []
        for path in offset.known:
            progress = offset.tables.get(path)
            after = offset.commit if progress is None else progress.commit
            windows = schema_histories(offset.schemas, connection.dialect)[path].windows(after, lsn.after(after))
            start = starts.get(windows[0].table.instance.object_id) if windows else None
            if start is not None and not is_retained(connection, after, start):
                lost.append(path)
        return tuple(lost)
