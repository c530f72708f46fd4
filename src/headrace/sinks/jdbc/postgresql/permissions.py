"""What a login of PostgreSQL may not do that mirrors need.

The server's own functions answer (`has_table_privilege` and its like), so that roles, PUBLIC, ownership and
superusers count as they would in a run. Nothing is made and no lock is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.permissions import MissingPermission
from headrace.sinks.jdbc.dialect import TableName, TargetDialect

Ask = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]

_OF_TABLE = ("SELECT", "INSERT", "UPDATE", "DELETE")
_TABLE = (
    "SELECT {}, pg_has_role(c.relowner, 'USAGE') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')"
)


def missing_in_postgresql(
    ask: Ask, dialect: TargetDialect, mirrors: Sequence[TableName], progress: TableName
) -> list[MissingPermission]:
    """What is missing, each with its GRANT.

    Args:
        ask: runs a query.
        dialect: quotes names.
        mirrors: the tables that would be written; they may not be there yet.
        progress: the progress table, which may not be there yet either.
    """
    (facts,) = ask("SELECT current_user, current_database(), has_database_privilege(current_database(), 'CREATE')", ())
    user, database = dialect.quote(str(facts[0])), dialect.quote(str(facts[1]))
    missing: list[MissingPermission] = []
    # A mirror's schema holds its staging table too, so something is made there in every batch.
    schemas = dict.fromkeys([progress.schema, *(name.schema for name in mirrors)])
    usable = set()
    for schema in schemas:
        allowed = ask(
            "SELECT has_schema_privilege(oid, 'USAGE'), has_schema_privilege(oid, 'CREATE') "
            "FROM pg_namespace WHERE nspname = %s",
            (schema,),
        )
        if not allowed:
            if not facts[2]:
                missing.append(
                    MissingPermission.of(
                        ["CREATE"],
                        "on the database",
                        f"schema {schema} is not there",
                        f"Run: GRANT CREATE ON DATABASE {database} TO {user}; or CREATE SCHEMA {dialect.quote(schema)} "
                        f"AUTHORIZATION {user}.",
                    )
                )
            continue
        if allowed[0][0]:
            usable.add(schema)
        denied = [name for name, has in zip(("USAGE", "CREATE"), allowed[0], strict=True) if not has]
        if denied:
            missing.append(
                MissingPermission.of(
                    denied,
                    f"on schema {schema}",
                    "mirrors, staging tables and the progress table are created there",
                    f"Run: GRANT {', '.join(denied)} ON SCHEMA {dialect.quote(schema)} TO {user}.",
                )
            )
    for name in dict.fromkeys([progress, *mirrors]):
        if name.schema in usable:
            missing += _of_table(ask, dialect, name, user, evolves=name != progress)
    return missing


def _of_table(
    ask: Ask, dialect: TargetDialect, name: TableName, user: str, *, evolves: bool
) -> list[MissingPermission]:
    """What is missing on a table; nothing where it would be made by the login, whose own it is then."""
    privileges = ", ".join(f"has_table_privilege(c.oid, '{name}')" for name in _OF_TABLE)
    lines = ask(_TABLE.format(privileges), (name.schema, name.name))
    if not lines:
        return []
    *has, owns = lines[0]
    table = dialect.table(name)
    missing = []
    denied = [privilege for privilege, allowed in zip(_OF_TABLE, has, strict=True) if not allowed]
    if denied:
        purpose = "the mirror's rows" if evolves else "which batch each mirror has"
        missing.append(
            MissingPermission.of(denied, f"on {name}", purpose, f"Run: GRANT {', '.join(denied)} ON {table} TO {user}.")
        )
    if evolves and not owns:
        missing.append(
            MissingPermission(
                f"The login does not own {name}, so it can't follow a change of the source's schema.",
                f"Run: ALTER TABLE {table} OWNER TO {user}.",
                required=False,
            )
        )
    return missing
