"""Rows that are no data: schemas, gaps and heartbeats; and the gaps that only show while a window is read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pyarrow as pa

from headrace.changes import Operation, Position
from headrace.errors import DataLossError
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.guards import require_still_retained
from headrace.sources.change_tables.options import ChangeTableSettings
from headrace.sources.change_tables.schema_history import Window
from headrace.sources.rows import Marker, marker_batch
from headrace.sources.snapshots.chunks import is_read_first, reads_all
from headrace.sources.tables.lost import say_changes_gone

SWITCHED_OFF = "its change data capture was switched off"
"""Why changes are lost: off for good, or on again with a change table that is another one."""


def lost(
    connection: Connection, window: Window, settings: ChangeTableSettings, capture_time: dt.datetime | None
) -> Iterator[pa.RecordBatch]:
    """The row that says that changes were cleaned while a window was read; none where all are still there.

    Raises:
        DataLossError: some were, and the options do not say to go on without them.
        MissingObject: the capture instance is gone.
    """
    try:
        require_still_retained(connection, window.table, window.after)
    except DataLossError:
        if settings.fail_on_data_loss or reads_all(settings, [window.table.id]):
            raise
        yield _gap(connection.dialect.connector, window, capture_time, "they were cleaned on the server")


def switched_off(
    connector: str, window: Window, settings: ChangeTableSettings, capture_time: dt.datetime | None
) -> pa.RecordBatch:
    """The row that says that a change table went away before all of a window was read.

    Raises:
        DataLossError: the table is not read again, and the options do not say to go on without its changes.
    """
    say_switched_off(window, settings)
    return _gap(connector, window, capture_time, SWITCHED_OFF)


def say_switched_off(window: Window, settings: ChangeTableSettings) -> None:
    """Log that changes of a table that were to be read went with their change table.

    Raises:
        DataLossError: the table is not read again, and the options do not say to go on without them.
    """
    say_changes_gone(
        window.table.id.path,
        f"from LSN {lsn.after(window.after)} to {window.upto}",
        SWITCHED_OFF,
        settings,
        read_again=window.newest and is_read_first(settings, window.table.id),
    )


def _gap(connector: str, window: Window, capture_time: dt.datetime | None, why: str) -> pa.RecordBatch:
    table = window.table.id
    gap = Marker(
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
    return marker_batch([gap], capture_time)
