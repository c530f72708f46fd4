"""What an administrator runs: which tables are captured, and how long the log is kept. A pipeline only reads."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing

from toy_litelog.catalog import columns_in, quoted
from toy_litelog.log import IDENTITY, LOG

_MADE = (
    f"CREATE TABLE IF NOT EXISTS {LOG} (number INTEGER PRIMARY KEY AUTOINCREMENT, "
    "time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), name TEXT NOT NULL, op TEXT NOT NULL, "
    "before TEXT, after TEXT)",
    f"CREATE TABLE IF NOT EXISTS {IDENTITY} (id TEXT NOT NULL)",
)
_IMAGES = {"insert": ("c", "", "new"), "update": ("u", "old", "new"), "delete": ("d", "old", "")}


def capture(path: str, table: str) -> None:
    """Write the changes of a table into the log from now on; once more after its columns were altered."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in _MADE:
            connection.execute(statement)
        if not connection.execute(f"SELECT 1 FROM {IDENTITY}").fetchall():
            connection.execute(f"INSERT INTO {IDENTITY} VALUES (?)", (uuid.uuid4().hex,))
        columns = columns_in(connection, table)
        _drop(connection, table)
        for event, (op, *rows) in _IMAGES.items():
            images = [
                "NULL" if not row else _image([(c.name, n.sql(f"{row}.{quoted(c.name)}")) for c, n in columns])
                for row in rows
            ]
            connection.execute(
                f"CREATE TRIGGER {_trigger(event, table)} AFTER {event} ON {quoted(table)} BEGIN INSERT INTO {LOG} "
                f"(name, op, before, after) VALUES ({_literal(table)}, '{op}', {', '.join(images)}); END"
            )


def _image(columns: list[tuple[str, str]]) -> str:
    return "json_object(" + ", ".join(f"{_literal(name)}, {sql}" for name, sql in columns) + ")"


def _trigger(event: str, table: str) -> str:
    return quoted(f"headrace_{event}_{table}")


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def release(path: str, table: str) -> None:
    """Write no more changes of a table into the log."""
    with closing(sqlite3.connect(path)) as connection, connection:
        _drop(connection, table)


def _drop(connection: sqlite3.Connection, table: str) -> None:
    for event in _IMAGES:
        connection.execute(f"DROP TRIGGER IF EXISTS {_trigger(event, table)}")


def forget(path: str, upto: int) -> None:
    """Delete what stands in the log up to a number."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"DELETE FROM {LOG} WHERE number <= ?", (upto,))
