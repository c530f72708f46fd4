"""The marker rows of the PostgreSQL source: ends of empty snapshots, gaps and heartbeats."""

from __future__ import annotations

import datetime as dt

from headrace.changes import Operation, Position, TableId, TableSchema
from headrace.sources.postgresql import lsn
from headrace.sources.rows import Marker
from headrace.sources.snapshots.chunks import LAST_OF_TABLE

CONNECTOR = "postgresql"
_GAP_ORDER = "g"
"""Order of a gap: after every streamed change of the commit before it."""
_TABLES_ORDER = "s"
"""Order of tables that come and go: after every streamed change of the commit before it."""
_HEARTBEAT_ORDER = "z"
"""Order of a heartbeat: after everything of its commit."""


def empty_table(schema: TableSchema, position: Position) -> Marker:
    """Ends the snapshot of a table without rows."""
    return Marker(
        Operation.SCHEMA, position, {"connector": CONNECTOR}, schema.id, schema=schema, snapshot=LAST_OF_TABLE
    )


def gap(database: str, path: str, after: str, upto: str, *, skipped: bool = False) -> Marker:
    """Reports that changes of a table are lost, or were left out because a user wanted that."""
    why = "a repair skipped them" if skipped else "the slot did not keep their log"
    low, high = lsn.to_server(lsn.boundary(after)), lsn.to_server(lsn.number(upto))
    schema, _, name = path.partition(".")
    return Marker(
        Operation.GAP,
        Position(after, _GAP_ORDER),
        {"connector": CONNECTOR, "from_lsn": low, "to_lsn": high},
        TableId(database, schema, name),
        error=f"Changes of table '{path}' that were committed from {low} to {high} are lost: {why}.",
    )


def created(schema: TableSchema, commit: str) -> Marker:
    """Reports that a table is captured from now on."""
    facts = {"connector": CONNECTOR, "change": "CREATE", "lsn": str(lsn.number(commit))}
    return Marker(Operation.SCHEMA, Position(commit, _TABLES_ORDER), facts, schema.id, schema=schema)


def altered(schema: TableSchema, commit: str, statement: str) -> Marker:
    """Reports what was done to the names of a table's columns, where no row that follows shows it."""
    facts = {"connector": CONNECTOR, "ddl": statement, "lsn": str(lsn.number(commit))}
    return Marker(Operation.SCHEMA, Position(commit, _TABLES_ORDER), facts, schema.id, schema=schema)


def dropped(table: TableId, commit: str) -> Marker:
    """Reports that a table is not there any more, or not in the publication."""
    facts = {"connector": CONNECTOR, "change": "DROP", "ddl": "N/A", "lsn": str(lsn.number(commit))}
    return Marker(Operation.SCHEMA, Position(commit, _TABLES_ORDER), facts, table)


def heartbeat(commit: str, time: dt.datetime | None) -> Marker:
    """Reports how far the source was read."""
    facts = {"connector": CONNECTOR, "lsn": str(lsn.number(commit))}
    return Marker(Operation.HEARTBEAT, Position(commit, _HEARTBEAT_ORDER), facts, event_time=time)
