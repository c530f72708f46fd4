"""Rows that are no data: schemas, gaps and heartbeats."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from headrace.changes import Operation, Position, TableId, TableSchema, arrow_schema


@dataclass(frozen=True)
class Marker:
    """A row that is not data: a schema, a gap or a heartbeat.

    Args:
        op: which of them.
        position: where it stands.
        source: the source's facts, the connector's name among them.
        table: the table that it is about; None where it is about none.
        schema: the table's schema, where it announces one.
        snapshot: as in the change row.
        event_time: when it happened.
        capture_time: None for that of the batch.
        error: which changes are lost.
    """

    op: Operation
    position: Position
    source: Mapping[str, str]
    table: TableId | None = None
    schema: TableSchema | None = None
    snapshot: str | None = None
    event_time: dt.datetime | None = None
    capture_time: dt.datetime | None = None
    error: str | None = None


def marker_batch(markers: Sequence[Marker], capture_time: dt.datetime | None) -> pa.RecordBatch:
    schema = arrow_schema()
    rows = []
    for marker in markers:
        table, new = marker.table, marker.schema
        rows.append(
            {
                **dict.fromkeys(schema.names),
                "op": marker.op.value,
                "table": None if table is None else asdict(table),
                "position": marker.position.text,
                "source": list(marker.source.items()),
                "schema_id": None if new is None else new.fingerprint,
                "table_schema": None if new is None else new.to_text(),
                "snapshot": marker.snapshot,
                "event_time": marker.event_time,
                "capture_time": marker.capture_time or capture_time,
                "error": marker.error,
            }
        )
    return pa.RecordBatch.from_pylist(rows, schema=schema)
