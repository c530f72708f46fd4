"""What a login of MariaDB may not do that mirrors need.

Its DDL is in no transaction, so nothing is tried: `SHOW GRANTS` is read, which lists the login's own permissions and
those of its active roles.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.permissions import MissingPermission
from headrace.sinks.jdbc.dialect import TableName, TargetDialect, stage_of

Ask = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]

_ROWS = ("SELECT", "INSERT", "UPDATE", "DELETE")
_MIRROR = ("CREATE", *_ROWS)
_STAGE = ("CREATE", "DROP", "SELECT", "INSERT")
_ALTER = "ALTER"
_ALL = ("ALL PRIVILEGES", "ALL")
_NAME = r"(\*|`(?:[^`]|``)+`)"
_GRANT = re.compile(rf"GRANT (.+?) ON (?:TABLE )?{_NAME}\.{_NAME} TO ", re.IGNORECASE)
_WORD = re.compile(r"([A-Z][A-Z ]*?)\s*(\([^)]*\))?\s*(?:,|$)")


class Grants:
    """What a login may do, as the lines of SHOW GRANTS say it."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._granted: list[tuple[re.Pattern[str], str | None, frozenset[str]]] = []
        for line in lines:
            match = _GRANT.match(line)
            if match is None:
                continue
            # A permission on some columns only is not a permission on the table.
            privileges = frozenset(word.strip() for word, columns in _WORD.findall(match[1].upper()) if not columns)
            database, table = _unquoted(match[2]), _unquoted(match[3])
            self._granted.append((_pattern(database, exact=table is not None), table, privileges))

    def lacking(self, name: TableName, wanted: Sequence[str]) -> list[str]:
        has: set[str] = set()
        for database, table, privileges in self._granted:
            if database.fullmatch(name.schema) and table in (None, name.name):
                has |= privileges
        return [] if has & set(_ALL) else [name for name in wanted if name not in has]


def _unquoted(name: str) -> str | None:
    return None if name == "*" else name[1:-1].replace("``", "`")


def _pattern(database: str | None, *, exact: bool) -> re.Pattern[str]:
    """A database's name in a grant as an expression: `_` and `%` are wildcards there, unless it is for one table."""
    if database is None:
        return re.compile(".*", re.DOTALL)
    if exact:
        return re.compile(re.escape(database))
    wild = {"_": ".", "%": ".*"}
    parts = re.findall(r"\\.|.", database, re.DOTALL)
    text = "".join(wild.get(part, re.escape(part[1:] if len(part) == 2 else part)) for part in parts)
    return re.compile(text, re.DOTALL)


def missing_in_mariadb(
    ask: Ask, dialect: TargetDialect, mirrors: Sequence[TableName], progress: TableName
) -> list[MissingPermission]:
    """What is missing, for each database with its GRANT.

    Args:
        ask: runs a query.
        dialect: quotes names.
        mirrors: the tables that would be written; they may not be there yet.
        progress: the progress table, which may not be there yet either.
    """
    grants = Grants([str(line[0]) for line in ask("SHOW GRANTS", ())])
    name, _, host = str(ask("SELECT CURRENT_USER()", ())[0][0]).rpartition("@")
    user = f"{dialect.literal(name)}@{dialect.literal(host)}"
    there = {
        TableName(str(schema), str(table))
        for schema, table in ask(
            "SELECT table_schema, table_name FROM information_schema.tables "
            "WHERE table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')",
            (),
        )
    }
    missing: dict[str, dict[str, TableName]] = {}
    altering: dict[str, TableName] = {}
    for mirror in dict.fromkeys([progress, *mirrors]):
        # A table that is there need not be made; one that the login may not see looks as if it were not there.
        wanted = {mirror: _ROWS if mirror in there else _MIRROR}
        if mirror != progress:
            wanted[stage_of(mirror)] = _STAGE
            if grants.lacking(mirror, (_ALTER,)):
                altering.setdefault(mirror.schema, mirror)
        for table, privileges in wanted.items():
            for privilege in grants.lacking(table, privileges):
                missing.setdefault(mirror.schema, {}).setdefault(privilege, mirror)
    return [*_grants(dialect, missing, user), *_alterations(dialect, altering, user)]


def _grants(
    dialect: TargetDialect, missing: Mapping[str, Mapping[str, TableName]], user: str
) -> list[MissingPermission]:
    return [
        MissingPermission.of(
            list(tables),
            f"in database {schema}",
            f"{next(iter(tables.values()))} and the tables beside it",
            f"Run: GRANT {', '.join(tables)} ON {_granted(dialect, schema)}.* TO {user}.",
        )
        for schema, tables in missing.items()
    ]


def _alterations(dialect: TargetDialect, altering: Mapping[str, TableName], user: str) -> list[MissingPermission]:
    return [
        MissingPermission(
            f"The login lacks the permission ALTER in database {schema}, so it can't follow a change of the source's "
            f"schema ({example} and others).",
            f"Run: GRANT ALTER ON {_granted(dialect, schema)}.* TO {user}.",
            required=False,
        )
        for schema, example in altering.items()
    ]


def _granted(dialect: TargetDialect, schema: str) -> str:
    """A database's name as a GRANT takes it, where an underscore is a wildcard."""
    return dialect.quote(re.sub(r"([\\_%])", r"\\\1", schema))
