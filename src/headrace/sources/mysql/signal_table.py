"""The signal table: rows that users insert to ask a running stream for something."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from headrace.changes import Operation
from headrace.errors import CaptureError
from headrace.sources.log import signal_table
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.connection import Connection
from headrace.sources.mysql.refusals import MysqlError, identifier
from headrace.sources.mysql.snapshot_statements import quoted
from headrace.sources.signals import SIGNAL_COLUMNS, Signal


def require_signal_table(name: str, tables: Mapping[str, MysqlTable]) -> MysqlTable:
    """The signal table; as `log.signal_table.require_signal_table`."""
    return signal_table.require_signal_table(
        name,
        name.partition(".")[0],
        tables,
        capture="Add it to 'tables', and its database to 'databases'.",
        definition="id varchar(42) PRIMARY KEY, type varchar(32), data varchar(2048)",
    )


def insert_signal(connection: Connection, table: MysqlTable, signal: Signal) -> None:
    """Insert a signal.

    Raises:
        CaptureError: the server refuses it.
    """
    columns = ", ".join(identifier(column.name) for column in table.schema.columns[:SIGNAL_COLUMNS])
    sql = f"INSERT INTO {quoted(table.id)} ({columns}) VALUES (%s, %s, %s)".replace("%", "%%").replace("%%s", "%s")
    try:
        connection.rows(sql, (signal.id, signal.type, signal.data))
    except MysqlError as error:
        raise CaptureError(
            f"The signal can't be inserted into table '{table.path}': {error.message}",
            remedy=f"Run GRANT INSERT ON {quoted(table.id)} TO the login, give the signal an id that is not there yet, "
            "or use 'signal_path'.",
        ) from error


def signals_in(table: MysqlTable, changes: Iterable[pa.RecordBatch]) -> list[Signal]:
    """What was inserted into the signal table, in the order of the changes."""
    names = [column.name for column in table.schema.columns[:SIGNAL_COLUMNS]]
    signals = []
    for batch in changes:
        for op, image in zip(batch.column("op").to_pylist(), batch.column("after").to_pylist(), strict=True):
            if op == Operation.CREATE.value and image is not None:
                values = dict(image)
                id, kind, data = (values.get(name) for name in names)
                signals.append(Signal(id or "", kind or "", data))
    return signals
