"""What a login may not see of a SQL Server database that the source needs or would use.

Permissions are found out by reading, because that is what a run does: roles, schemas, columns and DENY all count then.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.permissions import MissingPermission
from headrace.sources.change_tables.chunks import isolation
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.permissions import missing_select, refused
from headrace.sources.sqlserver import statements
from headrace.sources.sqlserver.options import SqlServerSettings

_IN_SNAPSHOTS = "snapshot"


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
