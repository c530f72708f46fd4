"""What a login may not see of a SQL Server database that the source needs or would use.

Rights are found out by reading, because that is what a run does: roles, schemas, columns and DENY all count then.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.options import Options
from headrace.sources.change_tables.chunks import isolation
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.rights import missing_select, refused
from headrace.sources.permissions import MissingRight
from headrace.sources.sqlserver import statements

_IN_SNAPSHOTS = "snapshot"


def database_rights(connection: Connection, settings: Options) -> Iterator[MissingRight]:
    """What is missing beside the captured tables themselves."""
    database, user = settings["database"], settings["user"] or "?"
    for name, read in statements.CAPTURE_READ.items():
        refusal = refused(connection, read)
        if refusal is not None:
            grant = connection.dialect.grant_changes(name, user)
            yield missing_select(refusal, f"cdc.{name}", "what is captured, and all that was", grant)
            # Change tables are in the same schema, so more of the same would say nothing new.
            return
    for (instance,) in connection.rows(statements.HIDDEN_INSTANCES):
        yield MissingRight(
            f"the right SELECT on the table of capture instance '{instance}'",
            "a table that the login may not see is none that can be captured",
            f"Run: GRANT SELECT ON OBJECT::<that table> TO {statements.quote(user)}.",
            required=False,
        )
    if isolation(settings) == _IN_SNAPSHOTS and not connection.value(statements.SNAPSHOT_ISOLATION, (database,)):
        yield MissingRight(
            f"the setting ALLOW_SNAPSHOT_ISOLATION in database '{database}'",
            "snapshots with snapshot_isolation_mode: snapshot, and all of a readable secondary",
            f"Run: ALTER DATABASE {statements.quote(database)} SET ALLOW_SNAPSHOT_ISOLATION ON.",
        )
    yield from _watching(connection, settings, user)


def _watching(connection: Connection, settings: Options, user: str) -> Iterator[MissingRight]:
    signals = settings["signal_data_collection"]
    quoted = statements.quote(user)
    if signals:
        name = ".".join(statements.quote(part) for part in signals.split(".")[-2:])
        if connection.value(statements.MAY_INSERT, (name,)) == 0:
            yield MissingRight(
                f"the right INSERT on {signals}",
                "headrace signal",
                f"Run: GRANT INSERT ON OBJECT::{name} TO {quoted}.",
                required=False,
            )
    if settings["application_intent"].lower() == "readonly":
        # Jobs, scans and Agent of a readable secondary say nothing of the capture, and are not asked for.
        return
    wanted = (
        (
            statements.NEWEST_SCAN,
            "the right VIEW DATABASE STATE",
            "the capture job's scans: health, and ad-hoc snapshots of an idle database",
            f"Run: GRANT VIEW DATABASE STATE TO {quoted}.",
        ),
        (
            statements.AGENT,
            "the right VIEW SERVER STATE",
            "whether SQL Server Agent runs",
            f"Run in master: GRANT VIEW SERVER STATE TO {quoted}.",
        ),
    )
    for sql, right, purpose, grant in wanted:
        if refused(connection, sql) is not None:
            yield MissingRight(right, purpose, grant, required=False)
    if all(refused(connection, sql) is not None for sql in (statements.JOBS, statements.JOBS_TABLE)):
        yield MissingRight(
            "the right SELECT on msdb.dbo.cdc_jobs",
            "how long changes are kept, and how often the log is read",
            f"Run in msdb, where the login needs a user: GRANT SELECT ON dbo.cdc_jobs TO {quoted}.",
            required=False,
        )
