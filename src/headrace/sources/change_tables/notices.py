"""Rows that are no data: schemas, gaps and heartbeats; and the gaps that only show while a window is read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
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


def notice(
    connector: str,
    op: Operation,
    position: Position,
    *,
    source: Mapping[str, str],
    table: TableSchema | None = None,
    id: TableId | None = None,
    snapshot: str | None = None,
    event_time: dt.datetime | None = None,
    capture_time: dt.datetime | None = None,
    error: str | None = None,
) -> dict[str, Any]:
    """A row that is no data (a schema, a gap, a heartbeat) as JSON values."""
    named = table.id if table is not None else id
    return {
        "op": op.value,
        "table": None if named is None else [named.database, named.schema, named.name],
        "position": position.text,
        "source": {"connector": connector, **source},
        "schema_id": None if table is None else table.fingerprint,
        "table_schema": None if table is None else table.to_text(),
        "snapshot": snapshot,
        "event_time": time_text(event_time),
        "capture_time": time_text(capture_time),
        "error": error,
    }


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
    said = notice(
        connector,
        Operation.GAP,
        Position(window.after, "s", "g"),
        id=table,
        source={"from_lsn": lsn.after(window.after), "to_lsn": window.upto, "commit_lsn": window.after},
        error=f"Changes of table '{table.path}' from LSN {lsn.after(window.after)} to {window.upto} are lost, or some "
        f"of them: {why}.",
    )
    return notice_batch([said], capture_time)


def notice_batch(rows: Sequence[dict[str, Any]], capture_time: dt.datetime | None) -> pa.RecordBatch:
    """Such rows as change rows."""
    schema = arrow_schema()
    empty = dict.fromkeys(schema.names)
    found = []
    for row in rows:
        table = row["table"]
        found.append(
            {
                **empty,
                **row,
                "table": None if table is None else dict(zip(("database", "schema", "name"), table, strict=True)),
                "source": list(row["source"].items()),
                "event_time": time_of(row["event_time"]),
                "capture_time": time_of(row["capture_time"]) or capture_time,
            }
        )
    return pa.RecordBatch.from_pylist(found, schema=schema)
