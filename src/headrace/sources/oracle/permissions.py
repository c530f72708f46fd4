"""What a user may not read of an Oracle database that the source needs.

Found out by reading. Permission to run LogMiner itself (LOGMINING, EXECUTE on DBMS_LOGMNR) shows only when a range
is mined.

Virtual Private Database and Data Redaction keep rows and values back from a user. What is here of them is by Oracle's
documentation; no real database was seen with either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headrace.permissions import MissingPermission
from headrace.sources.oracle import scn, statements
from headrace.sources.oracle.captured_table import OracleTable
from headrace.sources.oracle.connection import Connection, OracleError
from headrace.sources.tables.restricted import RestrictedRead

_ACCESS, _REDACTION = "EXEMPT ACCESS POLICY", "EXEMPT REDACTION POLICY"
_NOT_SEEN = frozenset((942, 1031))


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


_DENIED = frozenset((942, 1031, 41900))
_VIEWS: tuple[tuple[tuple[str, ...], str, dict[str, Any], str], ...] = (
    (("V_$DATABASE",), statements.CURRENT_SCN, {}, "where the log stands"),
    (("V_$THREAD",), statements.LAST_REDO, {}, "how far the log is written"),
    (("V_$TRANSACTION",), statements.OLDEST_TRANSACTION, {}, "where mining has to begin"),
    (("V_$LOG", "V_$LOGFILE"), statements.ONLINE_LOGS, {}, "which log files there are"),
    (("V_$ARCHIVED_LOG",), statements.ARCHIVED_LOGS, {"low": 0}, "which archived log files there are"),
    (("V_$ARCHIVE_DEST_STATUS",), statements.DESTINATIONS, {}, "which destination is valid"),
)


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
