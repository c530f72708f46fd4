"""Rows that are no data: schemas, gaps and heartbeats; and the gaps that only show while a window is read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from headrace.changes import Operation, Position, TableId, TableSchema, arrow_schema
from headrace.errors import DataLossError
from headrace.options import Options
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.retention import require_still_retained
from headrace.sources.change_tables.schema_history import Window
from headrace.sources.offset import time_of, time_text
from headrace.sources.tables.lost import WITHOUT_ROWS, say_changes_gone

SWITCHED_OFF = "its change data capture was switched off"
"""Why changes are lost: off for good, or on again with a change table that is another one."""


@dataclass(frozen=True)
class Notice:
    """A row that is no data: a schema, a gap or a heartbeat.

    Args:
        op: which of them.
        position: where it stands.
        source: the source's facts, the connector's name among them.
        table: the table that it is about; null where it is about none.
        schema: the table's schema, where it announces one.
        snapshot: as in the change row.
        event_time: when it happened.
        capture_time: null for that of the batch.
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

    def to_json(self) -> dict[str, Any]:
        """JSON values, for the slice that announces it."""
        table, schema = self.table, self.schema
        return {
            "op": self.op.value,
            "table": None if table is None else [table.database, table.schema, table.name],
            "position": self.position.text,
            "source": dict(self.source),
            "schema_id": None if schema is None else schema.fingerprint,
            "table_schema": None if schema is None else schema.to_text(),
            "snapshot": self.snapshot,
            "event_time": time_text(self.event_time),
            "capture_time": time_text(self.capture_time),
            "error": self.error,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Notice:
        """Read `to_json`'s form back."""
        return cls(
            Operation(data["op"]),
            Position.parse(data["position"]),
            data["source"],
            None if data["table"] is None else TableId(*data["table"]),
            None if data["table_schema"] is None else TableSchema.from_text(data["table_schema"]),
            data["snapshot"],
            time_of(data["event_time"]),
            time_of(data["capture_time"]),
            data["error"],
        )


def lost(
    connection: Connection, window: Window, settings: Options, capture_time: dt.datetime | None
) -> Iterator[pa.RecordBatch]:
    """The row that says that changes were cleaned while a window was read; none where all are still there.

    Raises:
        DataLossError: some were, and the options do not say to go on without them.
        MissingObject: the capture instance is gone.
    """
    try:
        require_still_retained(connection, window.table, window.after)
    except DataLossError:
        if settings["fail_on_data_loss"] or settings["snapshot_mode"] == "when_needed":
            raise
        yield _gap(connection.dialect.connector, window, capture_time, "they were cleaned on the server")


def switched_off(connector: str, window: Window, settings: Options, capture_time: dt.datetime | None) -> pa.RecordBatch:
    """The row that says that a change table went away before all of a window was read.

    Raises:
        DataLossError: the table is not read again, and the options do not say to go on without its changes.
    """
    say_switched_off(window, settings)
    return _gap(connector, window, capture_time, SWITCHED_OFF)


def say_switched_off(window: Window, settings: Options) -> None:
    """Log that changes of a table that were to be read went with their change table.

    Raises:
        DataLossError: the table is not read again, and the options do not say to go on without them.
    """
    say_changes_gone(
        window.table.id.path,
        f"from LSN {lsn.after(window.after)} to {window.upto}",
        SWITCHED_OFF,
        settings,
        read_again=window.newest and settings["snapshot_mode"] not in WITHOUT_ROWS,
    )


def _gap(connector: str, window: Window, capture_time: dt.datetime | None, why: str) -> pa.RecordBatch:
    table = window.table.id
    gap = Notice(
        Operation.GAP,
        Position(window.after, "s", "g"),
        {
            "connector": connector,
            "from_lsn": lsn.after(window.after),
            "to_lsn": window.upto,
            "commit_lsn": window.after,
        },
        table,
        error=f"Changes of table '{table.path}' from LSN {lsn.after(window.after)} to {window.upto} are lost, or some "
        f"of them: {why}.",
    )
    return notice_batch([gap], capture_time)


def notice_batch(notices: Sequence[Notice], capture_time: dt.datetime | None) -> pa.RecordBatch:
    """Notices as change rows."""
    schema = arrow_schema()
    rows = []
    for notice in notices:
        table, new = notice.table, notice.schema
        rows.append(
            {
                **dict.fromkeys(schema.names),
                "op": notice.op.value,
                "table": None if table is None else asdict(table),
                "position": notice.position.text,
                "source": list(notice.source.items()),
                "schema_id": None if new is None else new.fingerprint,
                "table_schema": None if new is None else new.to_text(),
                "snapshot": notice.snapshot,
                "event_time": notice.event_time,
                "capture_time": notice.capture_time or capture_time,
                "error": notice.error,
            }
        )
    return pa.RecordBatch.from_pylist(rows, schema=schema)
