"""Foreign keys whose actions InnoDB carries out by itself, so that the log does not have them.

They are read from SHOW CREATE TABLE, which shows them to every login that may read the table;
`information_schema.referential_constraints` hides them from one that may only read. From MySQL 9.6 on the server itself
changes the rows and logs them, unless `innodb_native_foreign_keys` says otherwise.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from headrace.changes import TableId
from headrace.changes.foreign_key import Action, Cascade, ForeignKey, Match
from headrace.errors import CaptureError
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.connection import Connection
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.refusals import MysqlError, identifier
from headrace.sources.mysql.snapshot_statements import quoted, text
from headrace.sources.tables.rewrites import FAIL, REREAD, WARN

_NAME = r"`((?:[^`]|``)+)`"
_NAMES = r"\(((?:`(?:[^`]|``)+`(?:, ?)?)+)\)"
_CLAUSE = re.compile(
    rf"^\s+CONSTRAINT {_NAME} FOREIGN KEY {_NAMES} REFERENCES {_NAME}(?:\.{_NAME})? {_NAMES}(.*)$", re.MULTILINE
)
_ACTIONS = re.compile(r"ON (DELETE|UPDATE) (CASCADE|SET NULL)")
_COLLATIONS = """
SELECT table_schema, table_name, column_name, collation_name FROM information_schema.columns
WHERE collation_name IS NOT NULL AND (table_schema, table_name) IN ({})
"""
_LOGS = "innodb_native_foreign_keys"
_ROWS = 200
_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_GONE = frozenset((1054, 1146))
"""Refusals of a column or a table that is not there any more."""
_REFUSED = frozenset((1142, 1146))
"""Refusals of a table that the login may not read, or that went away."""


def unlogged_keys(connection: Connection, tables: Mapping[str, MysqlTable]) -> tuple[ForeignKey, ...]:
    """The foreign keys of captured tables by which InnoDB changes rows without a change in the log.

    Args:
        connection: to the server.
        tables: the captured tables by path.
    """
    if not are_unlogged(connection):
        return ()
    keys: list[ForeignKey] = []
    folds = connection.server.folds_names
    known = {_written(table.id, folds=folds): table.id for table in tables.values()}
    for table in tables.values():
        if not table.has_snapshots:
            continue
        try:
            [(_, statement)] = connection.rows(f"SHOW CREATE TABLE {quoted(table.id)}")
        except MysqlError as error:
            if error.number not in _REFUSED:
                raise
            continue
        for key in keys_in(str(statement), table.id):
            keys.append(replace(key, parent=known.get(_written(key.parent, folds=folds), key.parent)))
    matches = _matches(connection, {key.child for key in keys})
    return tuple(
        sorted(
            (replace(key, matches=tuple(matches.get((key.child, name), "") for name in key.columns)) for key in keys),
            # The order in which InnoDB goes through them.
            key=lambda key: (key.child.database, key.name),
        )
    )


def are_unlogged(connection: Connection) -> bool:
    """Whether the server leaves the actions of foreign keys to InnoDB."""
    server = connection.server
    if server.is_mariadb or server.version < (9, 6):
        return True
    return connection.variables(_LOGS).get(_LOGS, "OFF").upper() in ("1", "ON")


def keys_in(statement: str, table: TableId) -> list[ForeignKey]:
    """The foreign keys with actions in what SHOW CREATE TABLE gives of a table. Values are compared exactly."""
    exactly: Match = ""
    keys = []
    for name, columns, first, second, referenced, rest in _CLAUSE.findall(statement):
        actions = {event: _action(action) for event, action in _ACTIONS.findall(rest)}
        if not actions:
            continue
        database, parent = (_plain(first), _plain(second)) if second else (table.database, _plain(first))
        names = _split(columns)
        keys.append(
            ForeignKey(
                _plain(name),
                table,
                names,
                TableId(database, "", parent),
                _split(referenced),
                actions.get("DELETE", ""),
                actions.get("UPDATE", ""),
                tuple(exactly for _ in names),
            )
        )
    return keys


def cascades(
    keys: Sequence[ForeignKey],
    tables: Mapping[str, MysqlTable],
    settings: MysqlSettings,
    *,
    uncertain: Collection[ForeignKey] = (),
) -> list[Cascade]:
    """The foreign keys with what keeps the rows that they change from being told.

    Args:
        keys: see `unlogged_keys`.
        tables: the captured tables by path.
        settings: the source's options.
        uncertain: those of the keys that came, went or changed within a batch.
    """
    captured = {table.id: table for table in tables.values()}
    return [
        Cascade(key, _lack(key, captured, settings), key not in uncertain, _computed(key, captured[key.child]))
        for key in keys
        if key.child in captured
    ]


def _computed(key: ForeignKey, child: MysqlTable) -> tuple[str, ...]:
    """The columns that may have another value where a foreign key changes rows and deletes none."""
    changes = key.on_delete == "set null" or bool(key.on_update)
    return tuple(column.name for column in child.schema.columns if column.generated) if changes else ()


def require_followed(keys: Sequence[ForeignKey], settings: MysqlSettings) -> None:
    """Stop where a foreign key changes rows that no log carries, and the options say so.

    Raises:
        CaptureError: with the first one.
    """
    if settings.on_cascade == FAIL and keys:
        raise CaptureError(
            f"{Cascade(keys[0]).sentence}.",
            remedy=f"Set 'on_cascade' to {REREAD} or {WARN} to go on, or leave the table out.",
        )


def still_there(
    connection: Connection, key: ForeignKey, table: MysqlTable, rows: Sequence[Mapping[str, str | None]]
) -> list[bool]:
    """Whether rows are there now as they were, although a foreign key may have deleted or changed them.

    Args:
        connection: to the server.
        key: the foreign key.
        table: its table, as it was.
        rows: the rows, in canonical texts; all that the key would delete need their primary key alone.
    """
    is_there: list[bool] = []
    names = [*table.row_key, *(key.columns if key.on_delete != "cascade" else ())]
    for first in range(0, len(rows), _ROWS):
        some = rows[first : first + _ROWS]
        parts = [
            " AND ".join(f"{identifier(name)} <=> {_constant(table, name, row[name])}" for name in names)
            for row in some
        ]
        asked = (f"EXISTS (SELECT 1 FROM {quoted(table.id)} WHERE {part})" for part in parts)
        try:
            [answers] = connection.rows(f"SELECT {', '.join(asked)}")
        except MysqlError as error:
            if error.number not in _GONE:
                raise
            return [False] * len(rows)
        is_there += map(bool, answers)
    return is_there


def _constant(table: MysqlTable, name: str, value: str | None) -> str:
    """A canonical text as SQL."""
    if value is None:
        return "NULL"
    kind = table.schema.column(name).logical.kind
    if kind == "bytes":
        return f"x'{base64.b64decode(value).hex()}'"
    if _NUMBER.fullmatch(value) and kind not in ("string", "json"):
        return value
    return text(value.replace("T", " ").removesuffix("Z") if kind.startswith("timestamp") else value)


def _lack(key: ForeignKey, captured: Mapping[TableId, MysqlTable], settings: MysqlSettings) -> str:
    if settings.on_cascade != REREAD:
        return f"'on_cascade' is {settings.on_cascade}"
    parent, child = captured.get(key.parent), captured[key.child]
    if parent is None:
        return f"table '{key.parent.path}' is not captured"
    if not child.row_key:
        return f"table '{key.child.path}' has no key"
    for table, names in ((child, key.columns), (parent, key.referenced)):
        hidden = next((name for name in names if name not in table.names or name in table.protected), None)
        if hidden is not None:
            return f"column '{hidden}' of table '{table.path}' is not captured as it is"
    if ("d" in settings.skipped_operations and key.on_delete) or ("u" in settings.skipped_operations and key.on_update):
        return "'skipped_operations' leaves out what they follow from"
    return ""


def _matches(connection: Connection, tables: Collection[TableId]) -> dict[tuple[TableId, str], Match]:
    """How columns of texts are compared; others are not among them."""
    if not tables:
        return {}
    names = ", ".join(f"({text(table.database)}, {text(table.name)})" for table in sorted(tables))
    matches: dict[tuple[TableId, str], Match] = {}
    for database, table, column, collation in connection.rows(_COLLATIONS.format(names)):
        matches[TableId(str(database), "", str(table)), str(column)] = match_of(str(collation))
    return matches


def match_of(collation: str) -> Match:
    """How a collation compares texts, as far as case and spaces at the end go."""
    words = collation.lower().split("_")
    if "bin" in words or "cs" in words or words == ["binary"]:
        return "" if "0900" in words or "nopad" in words or words == ["binary"] else "p"
    return "c"


def _written(table: TableId, *, folds: bool) -> tuple[str, str]:
    return (table.database.lower(), table.name.lower()) if folds else (table.database, table.name)


def _action(text: str) -> Action:
    return "cascade" if text == "CASCADE" else "set null"


def _split(names: str) -> tuple[str, ...]:
    return tuple(_plain(name) for name in re.findall(_NAME, names))


def _plain(name: str) -> str:
    return name.replace("``", "`")
