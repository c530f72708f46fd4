"""Updates that move keys over each other: SQL Server checks keys when a statement is done, SQLite row by row."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from headrace_emulators.sqlserver.catalog import quoted
from headrace_emulators.sqlserver.change_log import instances_of, pending_columns
from headrace_emulators.sqlserver.statements import Translation
from headrace_emulators.sqlserver.storage import SqlServerStorage
from headrace_emulators.sqlserver.types import LARGE_KINDS


def update_keys(storage: SqlServerStorage, translation: Translation, values: Sequence[object]) -> sqlite3.Cursor:
    """Carry out an UPDATE whose rows take over each other's keys.

    The rows are changed in a copy without keys, taken out, and put back changed. The log gets all deletes and
    then all inserts under one sequence value, as a deferred update has to: no two rows hold one key at any command.

    Raises:
        IntegrityError: keys are not unique afterwards either.
    """
    table = translation.written
    assert table is not None
    connection = storage.sqlite
    names = [c.name for c in table.columns if c.computed is None]
    listed = ", ".join(quoted(n) for n in names)
    copy = '"emulator copy"'
    connection.execute(f"DROP TABLE IF EXISTS temp.{copy}")
    connection.execute(
        f'CREATE TEMP TABLE {copy} AS SELECT rowid AS "emulator row", {listed} FROM {quoted(table.path)}'
    )
    # The statement itself, run on the copy: same text, other table.
    sql = translation.sql.replace(f"UPDATE {quoted(table.path)} AS", f"UPDATE temp.{copy} AS", 1)
    cursor = storage.sqlite.execute(sql, values)
    changed = " OR ".join(f"(o.{quoted(n)} COLLATE BINARY IS NOT n.{quoted(n)})" for n in names)
    old, new = (", ".join(f"{side}.{quoted(n)}" for n in names) for side in "on")
    rows = connection.execute(
        f'SELECT n."emulator row", {old}, {new}'
        f' FROM {quoted(table.path)} AS o JOIN temp.{copy} AS n ON n."emulator row" = o.rowid WHERE {changed} ORDER'
        " BY o.rowid"
    ).fetchall()
    storage.log.enabled = False
    try:
        connection.executemany(f"DELETE FROM {quoted(table.path)} WHERE rowid = ?", [(r[0],) for r in rows])
        marks = ", ".join("?" * len(names))
        width = len(names)
        connection.executemany(
            f"INSERT INTO {quoted(table.path)} ({listed}) VALUES ({marks})", [r[1 + width :] for r in rows]
        )
    except sqlite3.Error as error:
        raise storage.translated(error) from error
    finally:
        storage.log.enabled = True
        connection.execute(f"DROP TABLE IF EXISTS temp.{copy}")
    _log(storage, translation, names, rows)
    return cursor


def _log(storage: SqlServerStorage, translation: Translation, names: list[str], rows: list[tuple[object, ...]]) -> None:
    table = translation.written
    assert table is not None
    instances = instances_of(storage.sqlite, storage.catalog(), table)
    if not instances:
        return
    places = {n.lower(): i for i, n in enumerate(names)}
    # All deletes come before all inserts: a key that one row leaves and another takes must be free first.
    for operation, first in ((1, 1), (2, 1 + len(names))):
        for row in rows:
            storage.sqlite.execute("SELECT cdc_tick(1)").fetchone()
            for instance in instances:
                marks = ", ".join("?" * len(instance.columns))
                cells = [
                    None if operation == 1 and declared.name in LARGE_KINDS else row[first + places[name.lower()]]
                    for name, _, declared in instance.columns
                ]
                storage.sqlite.execute(
                    f"INSERT INTO {instance.pending} ({pending_columns(instance)})"
                    f" VALUES (cdc_number(), cdc_statement_seqval(), ?, ?, cdc_command(0), {marks})",
                    (operation, instance.full_mask, *cells),
                )
