"""Rows that are no data: gaps, heartbeats and definitions."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from headrace.changes import Operation, Position, TableId
from headrace.sources.oracle import scn
from headrace.sources.oracle.captured_table import OracleTable
from headrace.sources.oracle.change_rows import CONNECTOR, instant
from headrace.sources.oracle.definitions import Definition
from headrace.sources.rows import change_batch, instants, table_column

_GAP_ORDER = "g"
"""Order of a gap: after everything of the commit before it."""
_DEFINITION_ORDER = "0"
"""Order of a definition in its commit: before every change."""
_HEARTBEAT_ORDER = "z"
"""Order of a heartbeat: after everything of its commit."""
_FACTS = pa.map_(pa.string(), pa.string())


def gap_row(database: str, path: str, after: str, upto: str, capture_time: dt.datetime | None) -> pa.RecordBatch:
    """The row that says that changes of a table are lost."""
    owner, _, name = path.partition(".")
    low, high = scn.number(after) + 1, scn.number(upto)
    facts = [("connector", CONNECTOR), ("from_scn", str(low)), ("to_scn", str(high))]
    return change_batch(
        1,
        {
            "op": pa.array([Operation.GAP.value]),
            "table": table_column(TableId(database, owner, name), 1),
            "position": pa.array([Position(after, _GAP_ORDER).text]),
            "capture_time": instants(capture_time, 1),
            "source": pa.array([facts], _FACTS),
            "error": pa.array(
                [
                    f"Changes of table '{path}' with SCNs from {low} to {high} are lost, or some of them: their redo "
                    "logs are gone."
                ]
            ),
        },
    )


def heartbeat_row(commit: str, time: dt.datetime | None, capture_time: dt.datetime | None) -> pa.RecordBatch:
    """The row that says how far the source was read."""
    facts = [("connector", CONNECTOR), ("commit_scn", str(scn.number(commit)))]
    return change_batch(
        1,
        {
            "op": pa.array([Operation.HEARTBEAT.value]),
            "position": pa.array([Position(commit, _HEARTBEAT_ORDER).text]),
            "event_time": instants(time, 1),
            "capture_time": instants(capture_time, 1),
            "source": pa.array([facts], _FACTS),
        },
    )


def definition_row(
    definition: Definition, database: str, table: OracleTable | None, capture_time: dt.datetime | None
) -> pa.RecordBatch:
    """The row that carries a definition as its user wrote it.

    Args:
        definition: it.
        database: where its table is.
        table: the table after it; null where it is gone.
        capture_time: when the batch was planned.
    """
    schema = None if table is None else table.schema
    owner, _, name = definition.table.partition(".")
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
    position = Position(scn.to_text(definition.commit), _DEFINITION_ORDER, str(definition.scn))
    source = [(name, text) for name, text in facts.items() if text is not None]
    return change_batch(
        1,
        {
            "op": pa.array([Operation.SCHEMA.value]),
            "table": table_column(TableId(database, owner, name), 1),
            "position": pa.array([position.text]),
            "event_time": instants(instant(definition.time, definition.zone), 1),
            "capture_time": instants(capture_time, 1),
            "source": pa.array([source], _FACTS),
            "schema_id": pa.array([None if schema is None else schema.fingerprint], pa.string()),
            "table_schema": pa.array([None if schema is None else schema.to_text()], pa.string()),
        },
    )
