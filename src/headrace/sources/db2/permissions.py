"""What a login may not read of SQL Replication's control tables; found out by reading."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.permissions import MissingPermission
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.permissions import missing_select, refused
from headrace.sources.db2.dialect import grant_select
from headrace.sources.db2.statements import Statements, quote


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
