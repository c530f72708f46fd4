"""Where the snapshot chunks of the next batch end: keys that the server found, in its own order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.sources.change_tables.captured_table import CapturedTable, named_texts
from headrace.sources.change_tables.connection import Connection, MissingObject, StatementError
from headrace.sources.change_tables.options import ChangeTableSettings
from headrace.sources.offset import Key, TableProgress
from headrace.sources.snapshots.chunks import with_further_chunks
from headrace.sources.snapshots.select_overrides import SelectOverrides, failed

IN_ONE_SESSION = ("exclusive", "snapshot")
"""Isolation modes that hold one session's view: all tables are read by one task, in one batch."""


def in_one_session(settings: ChangeTableSettings) -> bool:
    """Whether the snapshot is read in one piece, because only one session sees its state."""
    return isolation(settings) in IN_ONE_SESSION


def isolation(settings: ChangeTableSettings) -> str:
    """The isolation mode of snapshots; a readable secondary only offers `snapshot`."""
    if str(settings.get("application_intent", "")).lower() == "readonly":
        return "snapshot"
    mode: str = settings.snapshot_isolation_mode
    return mode


def more(
    connection: Connection, table: CapturedTable, progress: TableProgress, settings: ChangeTableSettings, budget: int
) -> TableProgress:
    """A table's snapshot with up to `budget` further chunks."""
    select = SelectOverrides.of(settings).select(table.id)
    try:
        return _more(connection, table, progress, settings.snapshot_chunk_rows, budget, select)
    except (StatementError, MissingObject) as error:
        there = columns_there(connection, table)
        if select is not None and there:
            raise failed(table.id, error) from error
        if not isinstance(error, MissingObject):
            raise
        # The table went away between the catalog and now; the next batch says so.
        return replace(progress, done=True)


def columns_there(connection: Connection, table: CapturedTable) -> set[str]:
    """The columns that a table has now; none where it went away."""
    rows = connection.rows(connection.statements.COLUMN_NAMES, (table.id.schema, table.id.name))
    return {str(name) for (name,) in rows}


def _more(
    connection: Connection, table: CapturedTable, progress: TableProgress, rows: int, budget: int, select: str | None
) -> TableProgress:
    taken_back = not table.chunk_key and select is None
    if (
        progress.chunk == 0
        and not taken_back
        and connection.value(connection.statements.any_row(table, select)) is None
    ):
        # Done at once even without budget, so that the last row of the last table that has rows is known to be the
        # last. One that is taken back to the snapshot's commit may have had rows then: its reader finds out.
        return replace(progress, done=True, empty=True)
    if budget == 0:
        return progress
    key = table.chunk_key
    if select is not None or not key or not rows:
        return replace(progress, bounds=(None,), done=True)
    asked = connection.statements

    def greatest() -> Key | None:
        return next(iter(keys(connection, table, *asked.greatest_key(table, key))), None)

    def bounds(last: Key) -> Sequence[Key]:
        return keys(connection, table, *asked.chunk_bounds(table, key, progress.lower, last, rows, budget))

    return with_further_chunks(progress, budget, greatest, bounds)


def keys(connection: Connection, table: CapturedTable, sql: str, parameters: Sequence[object]) -> list[Key]:
    """Keys that a statement gives, as canonical texts."""
    bounds: list[Key] = []
    for batch in connection.batches(sql, parameters):
        columns = named_texts(table, table.chunk_key, batch)
        bounds += zip(*(column.to_pylist() for column in columns), strict=True)
    return bounds
