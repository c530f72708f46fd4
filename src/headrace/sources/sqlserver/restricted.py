"""What SQL Server keeps back from a login, or shows otherwise: row-level security, masks, Always Encrypted.

By reading of Microsoft's documentation; no real server was seen with any of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from headrace.sources.change_tables.captured_table import CapturedTable
from headrace.sources.change_tables.statements import Queries
from headrace.sources.sqlserver import statements
from headrace.sources.tables.restricted import RestrictedRead


def restricted_reads(server: Queries, tables: Sequence[CapturedTable]) -> list[RestrictedRead]:
    """What the login does not read as the log has it, as far as it may see that."""
    captured = {table.id.path: table for table in tables}
    return [*_filtered(server, captured), *_masked(server, captured), *_encrypted(server, captured)]


def _filtered(server: Queries, captured: dict[str, CapturedTable]) -> list[RestrictedRead]:
    found = []
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
        found.append(
            RestrictedRead(
                path,
                f"Security policy {', '.join(dict.fromkeys(names))} filters its rows for who reads it, and not for "
                f"change tables. {sees}",
                "Let its predicate give a row for the login, leave the rows unread (snapshot_mode: no_data), or say "
                "which are wanted by 'snapshot_select_statement_overrides'.",
                certain=empty,
            )
        )
    return found


def _masked(server: Queries, captured: dict[str, CapturedTable]) -> list[RestrictedRead]:
    masked = _columns(server, statements.MASKED, captured)
    if not masked or server.value(statements.MAY_UNMASK_ALL) == 1:
        return []
    found = []
    for path, columns in masked.items():
        names = [name for name in columns if name in {column.name for column in captured[path].schema.columns}]
        table = statements.table_name(captured[path])
        hidden = [name for name in names if server.value(statements.MAY_UNMASK, (table, name)) != 1]
        if hidden:
            found.append(
                RestrictedRead(
                    path,
                    f"{_named(hidden)} masked for the login (dynamic data masking): rows that are read have masked "
                    "values, and changes have the real ones.",
                    "Run: GRANT UNMASK TO the login. Or leave the columns out with 'column_exclude_list'.",
                    certain=True,
                )
            )
    return found


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
    found: dict[str, list[str]] = defaultdict(list)
    for schema, name, column in server.rows(sql):
        if f"{schema}.{name}" in captured:
            found[f"{schema}.{name}"].append(str(column))
    return found


def _named(columns: Sequence[str]) -> str:
    names = ", ".join(f"'{name}'" for name in columns)
    return f"Column {names} is" if len(columns) == 1 else f"Columns {names} are"
