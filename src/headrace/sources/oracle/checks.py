"""What is amiss at an Oracle database: rights that the user lacks, the state of the log, and how far it was mined.

Found out by reading. Permission to run LogMiner itself (LOGMINING, EXECUTE on DBMS_LOGMNR) shows only when a range
is mined.

Virtual Private Database and Data Redaction keep rows and values back from a user. What is here of them is by Oracle's
documentation; no real database was seen with either.

A change is in the log when it is committed, so nothing can be late on the server's side but the log itself. What waits
is known as far as it was mined; nothing is mined to answer a question. How long logs are kept is not
configured anywhere, since backups decide it: once some were deleted, it is how far back the others reach.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from headrace.errors import DataLossError, HeadraceError, PositionMismatch
from headrace.permissions import MissingPermission
from headrace.sources.health import CaptureState, Health, unasked
from headrace.sources.offset import Offset
from headrace.sources.oracle import scn, statements
from headrace.sources.oracle.captured_table import OracleTable
from headrace.sources.oracle.change_rows import instant
from headrace.sources.oracle.connection import Connection, OracleError
from headrace.sources.oracle.database_state import DatabaseState
from headrace.sources.oracle.ledger import excluded_users, of_ranges
from headrace.sources.oracle.mining import logs_of
from headrace.sources.oracle.mining_state import MiningState
from headrace.sources.oracle.options import OracleSettings
from headrace.sources.oracle.range_index import RangeIndex
from headrace.sources.oracle.scn import ScnRange
from headrace.sources.oracle.snapshot_read import no_capture, require_not_restored
from headrace.sources.oracle.staging import Staging
from headrace.sources.tables.restricted import RestrictedRead

_ACCESS, _REDACTION = "EXEMPT ACCESS POLICY", "EXEMPT REDACTION POLICY"
_NOT_SEEN = frozenset((942, 1031))

_DENIED = frozenset((942, 1031, 41900))
_VIEWS: tuple[tuple[tuple[str, ...], str, dict[str, Any], str], ...] = (
    (("V_$DATABASE",), statements.CURRENT_SCN, {}, "where the log stands"),
    (("V_$THREAD",), statements.LAST_REDO, {}, "how far the log is written"),
    (("V_$TRANSACTION",), statements.OLDEST_TRANSACTION, {}, "where mining has to begin"),
    (("V_$LOG", "V_$LOGFILE"), statements.ONLINE_LOGS, {}, "which log files there are"),
    (("V_$ARCHIVED_LOG",), statements.ARCHIVED_LOGS, {"low": 0}, "which archived log files there are"),
    (("V_$ARCHIVE_DEST_STATUS",), statements.DESTINATIONS, {}, "which destination is valid"),
)


def restricted_reads(connection: Connection, captured: Mapping[str, OracleTable], user: str) -> list[RestrictedRead]:
    """What the user does not read as the log has it.

    What a policy does is up to a function, or an expression, that no catalog shows; the exemption is a privilege, so
    without it a table is taken for one that is read otherwise.
    """
    exempt = {str(privilege) for (privilege,) in connection.rows(statements.EXEMPTIONS)}
    reads = []
    if _ACCESS not in exempt:
        for path, policies in _by_table(connection, statements.POLICIES, captured).items():
            sentence = (
                f"Policy {_named(policies)} (Virtual Private Database) filters what a query reads, and not the log: "
                "rows or values may be missing from what is read."
            )
            remedy = (
                f"Run: GRANT {_ACCESS} TO {user}. Or say what is wanted by 'snapshot_select_statement_overrides', or "
                "leave the rows unread (snapshot_mode: no_data)."
            )
            reads.append(RestrictedRead(path, sentence, remedy, certain=True))
    if _REDACTION not in exempt and sees_redaction(connection):
        for path, columns in _by_table(connection, statements.REDACTED, captured).items():
            names = [column for column in columns if column in captured[path].names]
            if names:
                sentence = (
                    f"Data Redaction changes the values of {_named(names)} when they are read, and not in the log."
                )
                remedy = f"Run: GRANT {_REDACTION} TO {user}. Or leave the columns out with 'column_exclude_list'."
                reads.append(RestrictedRead(path, sentence, remedy, certain=True))
    return reads


def sees_redaction(connection: Connection) -> bool:
    try:
        connection.rows(statements.REDACTED)
    except OracleError as error:
        if error.number in _NOT_SEEN:
            return False
        raise
    return True


def _by_table(connection: Connection, sql: str, captured: Mapping[str, OracleTable]) -> dict[str, list[str]]:
    columns: dict[str, list[str]] = defaultdict(list)
    for owner, name, what in connection.rows(sql):
        path = f"{owner}.{name}"
        if path in captured and str(what) not in columns[path]:
            columns[path].append(str(what))
    return {path: names for path, names in columns.items() if names}


def _named(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def missing_on_views(connection: Connection, user: str) -> Iterator[MissingPermission]:
    for names, sql, parameters, purpose in _VIEWS:
        if _denied(connection, sql, parameters):
            grants = " ".join(f"GRANT SELECT ON {name} TO {user};" for name in names)
            where = f"on {' and '.join(names)}"
            yield MissingPermission.of(["SELECT"], where, purpose, f"Run as SYS: {grants}")


def missing_on_tables(
    connection: Connection, tables: Iterable[OracleTable], at: str, user: str
) -> Iterator[MissingPermission]:
    """The tables that the user may not read as of an SCN, as snapshots do."""
    for table in tables:
        if _denied(connection, statements.any_row(table), {"scn": scn.number(at)}):
            id = table.schema.id
            name = f"{statements.quoted(id.schema)}.{statements.quoted(id.name)}"
            yield MissingPermission.of(
                ["SELECT", "FLASHBACK"],
                f"on {id.path}",
                "its snapshot",
                f"Run: GRANT SELECT, FLASHBACK ON {name} TO {user};",
            )


def missing_on_redaction(connection: Connection, user: str) -> Iterator[MissingPermission]:
    """The views that say which columns are redacted; without them a run can't know."""
    if not sees_redaction(connection):
        yield MissingPermission.of(
            ["SELECT"],
            "on REDACTION_COLUMNS and REDACTION_POLICIES",
            "whether Data Redaction changes what snapshots read",
            f"Run as SYS: GRANT SELECT ON REDACTION_COLUMNS TO {user}; GRANT SELECT ON REDACTION_POLICIES TO {user};",
            required=False,
        )


def missing_flashback(connection: Connection, at: str, user: str) -> Iterator[MissingPermission]:
    """Permission to read as of an SCN whatever a statement names, which the user's own statements need."""
    try:
        connection.run(statements.FLASH_BACK, scn=scn.number(at))
    except OracleError:
        yield MissingPermission.of(
            ["EXECUTE"],
            "on DBMS_FLASHBACK",
            "snapshots by the user's own statement",
            f"Run as SYS: GRANT EXECUTE ON DBMS_FLASHBACK TO {user};",
        )
        return
    connection.run(statements.FLASH_FORWARD)


def _denied(connection: Connection, sql: str, parameters: dict[str, Any]) -> bool:
    try:
        connection.rows(sql, **parameters)
    except OracleError as error:
        if error.number in _DENIED:
            return True
        raise
    return False


class HealthProbe:
    """Examines the log of one database. Runs in the driver.

    Args:
        connect: opens a connection; with the pluggable database's name when that is to be its container.
        settings: the source's options.
        staging: where mined ranges of tables of these schemas and this incarnation are.
    """

    def __init__(
        self,
        connect: Callable[[str], Connection],
        settings: OracleSettings,
        staging: Callable[[Mapping[str, Any], str], Staging],
    ) -> None:
        self._connect = connect
        self._settings = settings
        self._staging = staging

    def ask(self, offset: Offset | None) -> Health:
        """How it is now; `offset` says what is in all sinks. Raises nothing that a server may answer."""
        try:
            with self._connect("") as connection:
                health = self._judged(connection)
                if offset is None or offset.is_nothing or self._settings.snapshot_mode == "initial_only":
                    return health
                require_not_restored(connection, offset, DatabaseState.of(connection).name)
                return self._with_log(connection, health, offset)
        except PositionMismatch as error:
            return replace(health, state=CaptureState.NOT_CAPTURING, sentence=error.message, remedy=error.remedy)
        except HeadraceError as error:
            return unasked(error)

    def _judged(self, connection: Connection) -> Health:
        name = DatabaseState.of(connection).name
        local, zone = connection.rows(statements.CLOCK)[0]
        now = instant(str(local), str(zone))
        kept = self._kept(connection, now, str(zone))
        reason = no_capture(connection)
        if reason is not None:
            return Health(CaptureState.NOT_CAPTURING, reason.message, reason.remedy, checked=now)
        return Health(
            CaptureState.CAPTURING,
            f"Database '{name}' archives its log and logs what is needed.",
            checked=now,
            retention_seconds=kept,
        )

    def _with_log(self, connection: Connection, health: Health, offset: Offset) -> Health:
        state = MiningState.of(offset)
        staging = self._staging(offset.schemas, state.resetlogs)
        mined = [*state.unfinished, *staging.following(state.mined)]
        known: dict[ScnRange, RangeIndex] = {}
        missing: list[ScnRange] = []
        for scns in mined:
            index = staging.index(scns)
            if index is None:
                missing.append(scns)
            else:
                known[scns] = index
        ledger = of_ranges(state.open, known.items(), excluded_users(self._settings))
        reached = max([state.mined, *(scns.high for scns in mined)])
        waiting = ledger.delivered_by(scn.number(offset.commit), reached)
        first = instant(waiting[0].time, waiting[0].zone) if waiting else None
        times = [instant(t.time, t.zone) for t in ledger.committed]
        until = max((time for time in [*times, offset.commit_time] if time is not None), default=None)
        gone = [scns for scns in [*missing, self._unmined(connection, reached)] if self._is_gone(connection, scns)]
        if gone:
            health = replace(
                health,
                sentence=f"Redo logs with SCNs after {gone[0].low} are gone before they were mined.",
                remedy="Restore the archived logs and register them (RMAN RESTORE ARCHIVELOG), or take a new snapshot "
                "with a new checkpoint.",
            )
        quiet = until if first is None else None
        return replace(
            health,
            waiting_since=first,
            waiting_commits=len(waiting),
            quiet_until=quiet,
            captured_until=until,
            headroom_seconds=0.0 if gone else self._headroom(health, until),
            lost=tuple(offset.known) if gone else (),
        )

    @staticmethod
    def _kept(connection: Connection, now: dt.datetime | None, zone: str) -> float | None:
        """For how long logs are kept, in seconds; None while none was deleted, or none exists."""
        oldest, deleted = connection.rows(statements.OLDEST_LOGS)[0]
        if not int(deleted):
            return None
        since = oldest or connection.value(statements.OLDEST_ONLINE_LOG)
        begin = None if since is None else instant(str(since), zone)
        return None if begin is None or now is None else max(0.0, (now - begin).total_seconds())

    @staticmethod
    def _headroom(health: Health, until: dt.datetime | None) -> float | None:
        """How long until logs may go that were not mined: what was mined is in staging."""
        if health.retention_seconds is None or health.checked is None or until is None:
            return None
        return max(0.0, health.retention_seconds - max(0.0, (health.checked - until).total_seconds()))

    @staticmethod
    def _unmined(connection: Connection, reached: int) -> ScnRange:
        current = int(connection.value(statements.CURRENT_SCN))
        return ScnRange(reached, max(reached, current - 1))

    def _is_gone(self, connection: Connection, scns: ScnRange) -> bool:
        if scns.low == scns.high:
            return False
        try:
            # Logs that are not archived yet are there all the same.
            logs_of(connection, scns, replace(self._settings, archive_log_only=False))
        except DataLossError:
            return True
        return False
