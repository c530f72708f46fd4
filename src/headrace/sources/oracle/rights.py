"""What a user may not read of an Oracle database that the source needs.

Found out by reading. The right to run LogMiner itself (LOGMINING, EXECUTE on DBMS_LOGMNR) shows only when a range is
mined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from headrace.sources.oracle import scn, statements
from headrace.sources.oracle.connection import Connection, OracleError
from headrace.sources.oracle.structure import OracleTable
from headrace.sources.permissions import MissingRight

_DENIED = frozenset((942, 1031, 41900))
_VIEWS: tuple[tuple[tuple[str, ...], str, dict[str, Any], str], ...] = (
    (("V_$DATABASE",), statements.CURRENT_SCN, {}, "where the log stands"),
    (("V_$THREAD",), statements.LAST_REDO, {}, "how far the log is written"),
    (("V_$TRANSACTION",), statements.OLDEST_TRANSACTION, {}, "where mining has to begin"),
    (("V_$LOG", "V_$LOGFILE"), statements.ONLINE_LOGS, {}, "which log files there are"),
    (("V_$ARCHIVED_LOG",), statements.ARCHIVED_LOGS, {"low": 0}, "which archived log files there are"),
    (("V_$ARCHIVE_DEST_STATUS",), statements.DESTINATIONS, {}, "which destination is valid"),
)


def view_rights(connection: Connection, user: str) -> Iterator[MissingRight]:
    """The views that the user may not read."""
    for names, sql, parameters, purpose in _VIEWS:
        if _denied(connection, sql, parameters):
            grants = " ".join(f"GRANT SELECT ON {name} TO {user};" for name in names)
            yield MissingRight(f"the right SELECT on {' and '.join(names)}", purpose, f"Run as SYS: {grants}")


def table_rights(connection: Connection, tables: Iterable[OracleTable], at: str, user: str) -> Iterator[MissingRight]:
    """The tables that the user may not read as of an SCN, as snapshots do."""
    for table in tables:
        if _denied(connection, statements.any_row(table), {"scn": scn.number(at)}):
            id = table.schema.id
            name = f"{statements.quoted(id.schema)}.{statements.quoted(id.name)}"
            yield MissingRight(
                f"the rights SELECT and FLASHBACK on {id.path}",
                "its snapshot",
                f"Run: GRANT SELECT, FLASHBACK ON {name} TO {user};",
            )


def flashback_rights(connection: Connection, at: str, user: str) -> Iterator[MissingRight]:
    """The right to read as of an SCN whatever a statement names, which statements of one's own need."""
    try:
        connection.run(statements.FLASH_BACK, scn=scn.number(at))
    except OracleError:
        yield MissingRight(
            "the right EXECUTE on DBMS_FLASHBACK",
            "snapshots by a statement of one's own",
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
