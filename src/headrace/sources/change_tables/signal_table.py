"""The signal table: a captured table of the user's whose inserted rows ask the stream for something.

Its three columns are known by their position (id, type, data), whatever their names. What the first snapshot finds in
it is history; only rows that are inserted while the table is streamed are signals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.errors import CaptureError
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.captured_table import CapturedTable, CatalogTable, named_texts
from headrace.sources.change_tables.connection import Connection, Denied, MissingObject
from headrace.sources.change_tables.dialect import Advice
from headrace.sources.change_tables.schema_history import Window
from headrace.sources.signals import SIGNAL_COLUMNS, Signal, require_signal_columns, signal_table


def require_signal_table(
    name: str, database: str, databases: Sequence[str], catalog: Mapping[str, CatalogTable], advice: Advice
) -> None:
    """The signal table is there, where the option names one for this database.

    Raises:
        CaptureError: it is not among the captured tables, or lacks the columns.
    """
    if not name:
        return
    path = signal_table(name, database, catalog)
    if path is None:
        others = [other for other in databases if other.casefold() != database.casefold()]
        if any(name.strip().casefold().startswith(f"{other.casefold()}.") for other in others):
            return
        raise CaptureError(
            f"The signal table '{name}' is not among the captured tables of database '{database}'.",
            remedy=f"{advice.enable} and add it to 'tables'.",
        )
    definition = "id varchar(42), type varchar(32), data varchar(2048)"
    require_signal_columns(path, catalog[path].newest.schema.columns, definition)


def read_signals(connection: Connection, windows: Iterable[Window]) -> list[Signal]:
    """The rows that were inserted into the signal table in a window of commits, in order."""
    signals: list[Signal] = []
    for window in windows:
        names = [column.name for column in window.table.schema.columns[:SIGNAL_COLUMNS]]
        if len(names) < SIGNAL_COLUMNS:
            continue
        sql = connection.statements.inserted(window.table, names)
        try:
            for batch in connection.batches(sql, (lsn.to_bytes(window.after), lsn.to_bytes(window.upto))):
                columns = named_texts(window.table, names, batch)
                rows = zip(*(column.to_pylist() for column in columns), strict=True)
                signals += [Signal(id or "", type or "", data) for id, type, data in rows]
        except MissingObject:
            # Its capture was switched off since the batch was planned, which is reported for every table alike.
            continue
    return signals


def insert_signal(connection: Connection, table: CapturedTable, signal: Signal) -> None:
    """Ask by a row in the signal table.

    Raises:
        CaptureError: the login may not insert, or the row does not fit.
    """
    names = [column.name for column in table.schema.columns[:SIGNAL_COLUMNS]]
    try:
        connection.run(connection.statements.insert(table, names), (signal.id, signal.type, signal.data))
    except CaptureError as error:
        denied = isinstance(error, Denied)
        raise CaptureError(
            f"The signal can't be inserted into table '{table.id.path}'"
            + (", because the login may not do that." if denied else f": {error.message}"),
            remedy=f"Run: GRANT INSERT ON {connection.statements.table_name(table)} TO the login; or use 'signal_path'."
            if denied
            else "Give it an id that is not there yet, and columns that are long enough.",
        ) from error
