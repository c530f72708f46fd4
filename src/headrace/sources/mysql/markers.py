"""The marker rows of the MySQL source: ends of empty snapshots, gaps and heartbeats."""

from __future__ import annotations

import datetime as dt

from headrace.changes import Operation, Position, TableId, TableSchema
from headrace.sources.mysql.binlog_position import boundary, file_name
from headrace.sources.mysql.connection import MARIADB, MYSQL
from headrace.sources.mysql.stream_state import LogState
from headrace.sources.rows import Marker
from headrace.sources.snapshots.chunks import LAST_OF_TABLE

_GAP_ORDER = "g"
"""Order of a gap: after every streamed change of the commit before it."""
_TABLES_ORDER = "s"
"""Order of tables that come and go: after every streamed change of the commit before it."""
_HEARTBEAT_ORDER = "z"
"""Order of a heartbeat: after everything of its commit."""


def connector(kind: str) -> str:
    """The connector's name in events, by the kind of a server."""
    return MARIADB if kind == MARIADB else MYSQL


def table_id(path: str) -> TableId:
    """The table of a path, `database.table`."""
    database, _, name = path.partition(".")
    return TableId(database, "", name)


def empty_table(log: LogState, schema: TableSchema, position: Position) -> Marker:
    """Ends the snapshot of a table without rows."""
    facts = {"connector": connector(log.kind)}
    return Marker(Operation.SCHEMA, position, facts, schema.id, schema=schema, snapshot=LAST_OF_TABLE)


def gap(log: LogState, path: str, after: str, upto: str, *, skipped: bool = False) -> Marker:
    """Reports that changes of a table are lost, or were left out because a user wanted that."""
    why = "a repair skipped them" if skipped else "the server did not keep these files of its log"
    low, high = _said(log, after), _said(log, upto)
    return Marker(
        Operation.GAP,
        Position(after, _GAP_ORDER),
        {"connector": connector(log.kind), "from": low, "to": high},
        table_id(path),
        error=f"Changes of table '{path}' from {low} to {high} are lost: {why}.",
    )


def created(log: LogState, schema: TableSchema, commit: str) -> Marker:
    """Reports that a table is captured from now on."""
    facts = {**_facts(log, commit), "change": "CREATE"}
    return Marker(Operation.SCHEMA, Position(commit, _TABLES_ORDER), facts, schema.id, schema=schema)


def dropped(log: LogState, table: TableId, commit: str) -> Marker:
    """Reports that a table is not captured any more."""
    facts = {**_facts(log, commit), "change": "DROP", "ddl": "N/A"}
    return Marker(Operation.SCHEMA, Position(commit, _TABLES_ORDER), facts, table)


def heartbeat(log: LogState, commit: str, time: dt.datetime | None) -> Marker:
    """Reports how far the log was read."""
    return Marker(Operation.HEARTBEAT, Position(commit, _HEARTBEAT_ORDER), _facts(log, commit), event_time=time)


def _facts(log: LogState, commit: str) -> dict[str, str]:
    position = boundary(commit)
    return {
        "connector": connector(log.kind),
        "file": file_name(log.base, position.file),
        "pos": str(position.position),
    }


def _said(log: LogState, commit: str) -> str:
    position = boundary(commit)
    return f"{file_name(log.base, position.file)}:{position.position}"
