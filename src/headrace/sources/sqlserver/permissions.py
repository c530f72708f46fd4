"""What a login may not see of a SQL Server database that the source needs or would use.

Permissions are found out by reading, because that is what a run does: roles, schemas, columns and DENY all count then.

Row-level security, masks and Always Encrypted keep rows and values back from a login. What is here of them is by
Microsoft's documentation; no real server was seen with any of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from headrace.permissions import MissingPermission
from headrace.sources.change_tables.captured_table import CapturedTable
from headrace.sources.change_tables.chunks import isolation
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.dialect import Advice
from headrace.sources.change_tables.permissions import missing_select, refused
from headrace.sources.change_tables.statements import Queries
from headrace.sources.sqlserver import statements
from headrace.sources.sqlserver.options import SqlServerSettings
from headrace.sources.tables.restricted import RestrictedRead

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


ADVICE = Advice(
    capture="Run EXEC sys.sp_cdc_enable_table",
    enable="Enable its change data capture (sys.sp_cdc_enable_table)",
    keep="give the clean-up job a longer retention (sys.sp_cdc_change_job)",
    watch="SQL Server Agent and the capture job run",
    see="the permission is VIEW DATABASE STATE",
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
