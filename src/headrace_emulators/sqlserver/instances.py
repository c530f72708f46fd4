"""Capture instances that scripts wrote by hand, and the end of any instance."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from headrace_emulators.sqlserver import change_log
from headrace_emulators.sqlserver import lsn as lsns
from headrace_emulators.sqlserver.catalog import Catalog, TableInfo, quoted
from headrace_emulators.sqlserver.errors import ProgrammingError
from headrace_emulators.sqlserver.storage import SqlServerStorage
from headrace_emulators.sqlserver.types import SqlType


def adopt(storage: SqlServerStorage, instances: Sequence[str] = ()) -> list[str]:
    """Keep a log for capture instances that a script wrote by hand, from now on.

    Args:
        storage: where.
        instances: which ones; all without a log when none is given.

    Returns:
        Those that had none before.

    Raises:
        ProgrammingError: no such capture instance (22964).
    """
    if storage.catalog().find("cdc", "change_tables") is None:
        if instances:
            raise ProgrammingError(
                f"The capture instance name '{instances[0]}' does not exist in the current database.", 22964
            )
        return []
    known = dict(
        storage.sqlite.execute('SELECT capture_instance, source_object_id FROM "cdc.change_tables"').fetchall()
    )
    for name in instances:
        if name not in known:
            raise ProgrammingError(f"The capture instance name '{name}' does not exist in the current database.", 22964)
    wanted = [n for n in (instances or known) if not change_log.has_pending(storage.sqlite, n)]
    if not wanted:
        return []
    with storage.writing():
        catalog = storage.catalog()
        for name in wanted:
            change_log.create_pending(storage.sqlite, name, _ordinals(storage, catalog, name))
            storage.set_state(f"written.{name}", "1")
        _advance(storage, known)
        for number in {known[name] for name in wanted}:
            table = next((t for t in catalog.tables.values() if t.object_id == number), None)
            if table is not None:
                change_log.create_triggers(storage.sqlite, catalog, table)
    return wanted


def _ordinals(storage: SqlServerStorage, catalog: Catalog, instance: str) -> list[tuple[str, int, SqlType]]:
    change_table = catalog.find("cdc", f"{instance}_CT")
    if change_table is None:
        raise ProgrammingError(f"Invalid object name 'cdc.{instance}_CT'.", 208)
    return [
        (column, ordinal, change_table.column(column).type)
        for column, ordinal in storage.sqlite.execute(
            'SELECT c.column_name, c.column_ordinal FROM "cdc.captured_columns" AS c JOIN "cdc.change_tables" AS t ON'
            " t.object_id = c.object_id WHERE t.capture_instance = ? ORDER BY c.column_ordinal",
            (instance,),
        ).fetchall()
    ]


def _advance(storage: SqlServerStorage, instances: dict[str, int]) -> None:
    """Let the log begin above the LSNs that were written by hand."""
    texts = ['SELECT MAX(start_lsn) FROM "cdc.lsn_time_mapping"', 'SELECT MAX(start_lsn) FROM "cdc.change_tables"']
    texts += [f'SELECT MAX("__$start_lsn") FROM {quoted(f"cdc.{name}_CT")}' for name in instances]
    found = [storage.sqlite.execute(text).fetchone()[0] for text in texts]
    newest = max((bytes(lsn) for lsn in found if lsn is not None), default=b"")
    if newest > bytes.fromhex(storage.state("lsn")):
        storage.set_state("lsn", lsns.next_block(newest).hex())
    (number,) = storage.sqlite.execute('SELECT MAX(tran_id) FROM "cdc.lsn_time_mapping"').fetchone()
    taken = int.from_bytes(number or b"", "big")
    if int(storage.state("next_tran")) <= taken < 2**47:
        storage.set_state("next_tran", str(taken + 1))


def drop_instance(
    connection: sqlite3.Connection, catalog: Catalog, drop_table: Callable[[TableInfo], None], instance: str
) -> None:
    """Forget a capture instance with its change table and its part of the log.

    Args:
        connection: in a write transaction.
        catalog: as it is now.
        drop_table: drops the change table.
        instance: which one.
    """
    number, source = connection.execute(
        'SELECT object_id, source_object_id FROM "cdc.change_tables" WHERE capture_instance = ?', (instance,)
    ).fetchone()
    table = next((t for t in catalog.tables.values() if t.object_id == source), None)
    if table is not None:
        change_log.drop_triggers(connection, table)
    for path in ("cdc.change_tables", "cdc.captured_columns", "cdc.index_columns", "cdc.ddl_history"):
        connection.execute(f"DELETE FROM {quoted(path)} WHERE object_id = ?", (number,))
    change_table = catalog.find("cdc", f"{instance}_CT")
    if change_table is not None:
        drop_table(change_table)
    connection.execute(f"DROP TABLE IF EXISTS {quoted('emulator.pending.' + instance)}")
    connection.execute('DELETE FROM "emulator.state" WHERE name = ?', (f"written.{instance}",))
