"""What Oracle keeps back from a user, or shows otherwise: Virtual Private Database and Data Redaction.

By reading of Oracle's documentation; no real database was seen with either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from headrace.sources.oracle import statements
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
    found = []
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
            found.append(RestrictedRead(path, sentence, remedy, certain=True))
    if _REDACTION not in exempt and sees_redaction(connection):
        for path, columns in _by_table(connection, statements.REDACTED, captured).items():
            names = [column for column in columns if column in captured[path].names]
            if names:
                sentence = (
                    f"Data Redaction changes the values of {_named(names)} when they are read, and not in the log."
                )
                remedy = f"Run: GRANT {_REDACTION} TO {user}. Or leave the columns out with 'column_exclude_list'."
                found.append(RestrictedRead(path, sentence, remedy, certain=True))
    return found


def sees_redaction(connection: Connection) -> bool:
    """Whether the user may see which columns are redacted."""
    try:
        connection.rows(statements.REDACTED)
    except OracleError as error:
        if error.number in _NOT_SEEN:
            return False
        raise
    return True


def _by_table(connection: Connection, sql: str, captured: Mapping[str, OracleTable]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for owner, name, what in connection.rows(sql):
        path = f"{owner}.{name}"
        if path in captured and str(what) not in found[path]:
            found[path].append(str(what))
    return {path: names for path, names in found.items() if names}


def _named(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
