"""The marker rows of the Oracle source: gaps, heartbeats and definitions."""

from __future__ import annotations

import datetime as dt

from headrace.changes import Operation, Position, TableId
from headrace.sources.oracle import scn
from headrace.sources.oracle.captured_table import OracleTable
from headrace.sources.oracle.change_rows import CONNECTOR, instant
from headrace.sources.oracle.definitions import Definition
from headrace.sources.rows import Marker

_GAP_ORDER = "g"
"""Order of a gap: after everything of the commit before it."""
_DEFINITION_ORDER = "0"
"""Order of a definition in its commit: before every change."""
_HEARTBEAT_ORDER = "z"
"""Order of a heartbeat: after everything of its commit."""


def gap(database: str, path: str, after: str, upto: str) -> Marker:
    """Reports that changes of a table are lost."""
    low, high = scn.number(after) + 1, scn.number(upto)
    return Marker(
        Operation.GAP,
        Position(after, _GAP_ORDER),
        {"connector": CONNECTOR, "from_scn": str(low), "to_scn": str(high)},
        _table_id(database, path),
        error=f"Changes of table '{path}' with SCNs from {low} to {high} are lost, or some of them: their redo logs "
        "are gone.",
    )


def heartbeat(commit: str, time: dt.datetime | None) -> Marker:
    """Reports how far the source was read."""
    facts = {"connector": CONNECTOR, "commit_scn": str(scn.number(commit))}
    return Marker(Operation.HEARTBEAT, Position(commit, _HEARTBEAT_ORDER), facts, event_time=time)


def definition_marker(definition: Definition, database: str, table: OracleTable | None) -> Marker:
    """A definition as its user wrote it.

    Args:
        definition: it.
        database: where its table is.
        table: the table after it; None where it is gone.
    """
    facts = {
        "connector": CONNECTOR,
        "change": definition.kind,
        "ddl": definition.sql,
        "scn": str(definition.scn),
        "commit_scn": str(definition.commit),
        "rs_id": definition.rs_id,
        "txId": definition.xid,
        "user_name": definition.user,
    }
    return Marker(
        Operation.SCHEMA,
        Position(scn.to_text(definition.commit), _DEFINITION_ORDER, str(definition.scn)),
        {name: text for name, text in facts.items() if text is not None},
        _table_id(database, definition.table),
        None if table is None else table.schema,
        event_time=instant(definition.time, definition.zone),
    )


def _table_id(database: str, path: str) -> TableId:
    owner, _, name = path.partition(".")
    return TableId(database, owner, name)
