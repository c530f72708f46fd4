"""The signal table: rows that users insert to ask a running stream for something."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import CaptureError
from headrace.sources.log import signal_table
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.connection import Connection
from headrace.sources.postgresql.publication import table_name
from headrace.sources.postgresql.refusals import PostgresError, identifier
from headrace.sources.signals import SIGNAL_COLUMNS, Signal


def require_signal_table(name: str, database: str, tables: Mapping[str, PostgresTable]) -> PostgresTable:
    """The signal table; as `log.signal_table.require_signal_table`."""
    return signal_table.require_signal_table(
        name,
        database,
        tables,
        capture="Add it to 'tables', or to the publication.",
        definition="id varchar(42) PRIMARY KEY, type varchar(32), data varchar(2048)",
    )


def insert_signal(connection: Connection, table: PostgresTable, signal: Signal) -> None:
    """Insert a signal.

    Raises:
        CaptureError: the server refuses it.
    """
    columns = ", ".join(identifier(column.name) for column in table.schema.columns[:SIGNAL_COLUMNS])
    sql = f"INSERT INTO {table_name(table)} ({columns}) VALUES (%s, %s, %s)"
    try:
        connection.rows(sql, (signal.id, signal.type, signal.data))
    except PostgresError as error:
        raise CaptureError(
            f"The signal can't be inserted into table '{table.id.path}': {error.message}",
            remedy=f"Run GRANT INSERT ON {table_name(table)} TO the role, give the signal an id that is not there yet, "
            "or use 'signal_path'.",
        ) from error
