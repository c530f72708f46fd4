"""Where a snapshot and the stream after it begin, and its chunks by key."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headrace import faultpoints
from headrace.errors import CaptureError, DataLossError, HeadraceError, PositionMismatch
from headrace.sources.images import constant_map
from headrace.sources.offset import Key, Offset, TableProgress
from headrace.sources.oracle import logs, scn, statements
from headrace.sources.oracle.captured_table import OracleTable
from headrace.sources.oracle.change_rows import CONNECTOR
from headrace.sources.oracle.connection import Connection, OracleError
from headrace.sources.oracle.database_state import DatabaseState
from headrace.sources.oracle.mining import archived, attempts
from headrace.sources.oracle.mining_state import MiningState
from headrace.sources.oracle.options import OracleSettings
from headrace.sources.signals import say
from headrace.sources.snapshots.chunks import Chunk, with_further_chunks
from headrace.sources.snapshots.select_overrides import SelectOverrides, failed
from headrace.sources.snapshots.snapshot_rows import SnapshotRows
from headrace.sources.tables.masks import Masks

_LOG = logging.getLogger("headrace.sources")

TOO_OLD, CHANGED, NO_TABLE, NO_SCN = 1555, 1466, 942, 8181
_NOT_DECLARED = 6550


def no_capture(root: Connection) -> CaptureError | None:
    """Why the database's log can't be mined, with the statement that helps; None where it can.

    The one diagnosis that every command gives.
    """
    state = DatabaseState.of(root)
    if not state.archives_log:
        return CaptureError(
            f"Database '{state.name}' is not in ARCHIVELOG mode: logs are overwritten before they are read.",
            remedy="Run ALTER DATABASE ARCHIVELOG.",
        )
    if not state.logs_minimum:
        return CaptureError(
            f"Database '{state.name}' does not log what LogMiner needs.",
            remedy="Run ALTER DATABASE ADD SUPPLEMENTAL LOG DATA.",
        )
    return None


def require_set_up(root: Connection) -> str:
    """See that the database's log can be mined; gives its incarnation.

    Raises:
        CaptureError: it can't.
    """
    reason = no_capture(root)
    if reason is not None:
        raise reason
    return DatabaseState.of(root).resetlogs


def require_not_restored(root: Connection, start: Offset, database: str) -> None:
    """Stop where the database is older than what was delivered, as after a restore of a backup.

    Raises:
        PositionMismatch: it has.
    """
    delivered = scn.number(start.commit)
    same = DatabaseState.of(root).resetlogs == MiningState.of(start).resetlogs
    if not same or int(root.value(statements.CURRENT_SCN)) < delivered:
        raise PositionMismatch(
            f"Database '{database}' was opened with RESETLOGS or is older than SCN {delivered}, up to which changes "
            "were delivered: it was restored.",
            remedy="Take a new snapshot with a new checkpoint.",
        )


def place(root: Connection, settings: OracleSettings) -> tuple[int, int]:
    """The SCN after which the log is mined, and that of the snapshot.

    Raises:
        CaptureError: a transaction is open from before the dictionary in the redo logs.
    """
    begin = at = 0
    for _ in attempts():
        # In this order: whatever was open at the snapshot began before the second look, or is among those seen.
        before = int(root.value(statements.CURRENT_SCN))
        oldest = root.value(statements.OLDEST_TRANSACTION)
        at = int(root.value(statements.CURRENT_SCN))
        begin = min(before, int(oldest) if oldest is not None else before) - 1
        if settings.log_mining_strategy != logs.IN_REDO:
            return begin, at
        try:
            logs.mined_from(archived(root, settings), begin)
            return begin, at
        except DataLossError as error:
            _LOG.debug("A transaction is open that began before the dictionary: %s", error)
    raise CaptureError(
        f"A transaction is open that began at SCN {begin + 1}, before the dictionary in the redo logs.",
        remedy="Start when it has ended, or mine with 'log_mining_strategy' online_catalog.",
    )


def keep_dictionary_new(root: Connection, settings: OracleSettings) -> None:
    """Have the dictionary written again where many logs were filled since, so that these may go."""
    if logs.is_old(archived(root, settings), settings.dictionary_logs):
        logs.write(root)


def scn_after_new_dictionary(root: Connection, settings: OracleSettings) -> int:
    """The SCN from which the log can be mined, no matter what was lost: the end of a dictionary that is written now."""
    logs.write(root)
    return logs.dictionaries(archived(root, settings))[-1][1].next - 1


class MomentGone(Exception):
    """What a table held at the snapshot's SCN can't be read any more.

    Args:
        error: the error for the user where nothing else helps.
        altered: whether a definition is in the way, and not that the undo is gone.
    """

    def __init__(self, error: HeadraceError, *, altered: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self._altered = altered

    def is_mended_in(self, mode: str) -> bool:
        """Whether the table is read again later in a snapshot mode, when the stream has gone on."""
        return mode == "when_needed" or (self._altered and mode != "initial_only")


def readable(connection: Connection, table: OracleTable, commit: str, *, waits: bool = False) -> bool:
    """Whether the table was there, as it is now, at an SCN.

    Args:
        connection: to its database.
        table: it.
        commit: the SCN.
        waits: whether the caller tries again later, so that missing undo is not an error.
    """
    try:
        connection.rows(statements.any_row(table), scn=scn.number(commit))
    except OracleError as error:
        if error.number in (CHANGED, NO_TABLE, NO_SCN) or (waits and error.number == TOO_OLD):
            return False
        raise
    return True


@contextmanager
def as_of(connection: Connection, at: int) -> Iterator[None]:
    """While this lasts, the connection's session reads what was there at an SCN.

    Raises:
        CaptureError: the user may not ask for it.
    """
    try:
        connection.run(statements.FLASH_BACK, scn=at)
    except OracleError as error:
        if error.number != _NOT_DECLARED:
            raise
        raise CaptureError(
            "The user may not read a SELECT of 'snapshot_select_statement_overrides' as of the snapshot's SCN: "
            f"{error.message}",
            remedy="Run as SYS: GRANT EXECUTE ON DBMS_FLASHBACK TO the user.",
        ) from error
    try:
        yield
    finally:
        connection.run(statements.FLASH_FORWARD)


def more_chunks(
    connection: Connection, table: OracleTable, progress: TableProgress, settings: OracleSettings, budget: int
) -> TableProgress:
    """A table's snapshot with up to `budget` further chunks; one that the user's own SELECT reads has one.

    Raises:
        MomentGone: what the table held at the snapshot's SCN can't be read any more.
        CaptureError: the user's statement fails.
    """
    select = SelectOverrides.of(settings).select(table.id)
    try:
        if select is not None:
            return _whole(connection, table, progress, select, budget)
        return _more(connection, table, progress, settings.snapshot_chunk_rows, budget)
    except OracleError as error:
        raise _refusal(error, table, progress.commit) from error


def _whole(
    connection: Connection, table: OracleTable, progress: TableProgress, select: str, budget: int
) -> TableProgress:
    with _reporting(table, select), as_of(connection, scn.number(progress.commit)):
        empty = not connection.rows(statements.any_row_of_select(select))
    if empty:
        return replace(progress, done=True, empty=True)
    return replace(progress, bounds=(None,), done=True) if budget else progress


@contextmanager
def _reporting(table: OracleTable, select: str | None) -> Iterator[None]:
    """Raise errors of the user's own SELECT as such, unless the SCN is their reason."""
    try:
        yield
    except OracleError as error:
        if select is None or error.number in (TOO_OLD, CHANGED, NO_SCN):
            raise
        raise failed(table.id, error) from error


def _more(connection: Connection, table: OracleTable, progress: TableProgress, rows: int, budget: int) -> TableProgress:
    at = scn.number(progress.commit)
    if progress.chunk == 0 and not connection.rows(statements.any_row(table), scn=at):
        return replace(progress, done=True, empty=True)
    if budget == 0:
        return progress
    if not table.chunk_key or not rows:
        return replace(progress, bounds=(None,), done=True)
    sql, parameters = statements.chunk_bounds(table, progress.lower, rows, budget)
    return with_further_chunks(
        progress,
        budget,
        lambda: keys(connection, table, statements.greatest_key(table), {"scn": at})[0],
        lambda last: keys(connection, table, sql, {**parameters, "scn": at}),
    )


def keys(connection: Connection, table: OracleTable, sql: str, parameters: dict[str, object]) -> list[Key]:
    """The keys that a statement gives, as canonical texts."""
    natives = [table.native(name) for name in table.chunk_key]
    bounds: list[Key] = []
    for batch in connection.batches(sql, **dict[str, Any](parameters)):
        columns = [native.texts(batch.column(n)).to_pylist() for n, native in enumerate(natives)]
        bounds += zip(*columns, strict=True)
    return bounds


def read_chunk(
    connection: Connection, table: OracleTable, chunk: Chunk, settings: OracleSettings, capture_time: dt.datetime | None
) -> Iterator[pa.RecordBatch]:
    """The rows of one chunk, with the table's schema first.

    Where what the table held at the snapshot's SCN can't be read any more, and the mode allows it, they are read as
    they are now: they may be ahead of the changes that follow, which bring every row where it has to be.

    Raises:
        DataLossError: it can't be read any more, and the mode or a table without a key does not allow another moment.
    """
    rows = snapshot_rows(table, settings, capture_time)
    yield rows.schema_of(chunk)
    begun = False
    try:
        for batch in rows.of_chunk(chunk, _texts(connection, table, chunk, settings), numbered=True):
            begun = True
            yield batch
    except MomentGone as gone:
        mended = gone.is_mended_in(settings.snapshot_mode) and table.chunk_key and is_there(connection, table)
        if begun or not mended:
            raise gone.error from gone
        say(f"{gone.error.message} A chunk of it is read as it is now.")
        yield from rows.of_chunk(chunk, _texts(connection, table, chunk, settings, now=True), numbered=True)
    faultpoints.reach("source.snapshot.chunk")


def snapshot_rows(table: OracleTable, settings: OracleSettings, capture_time: dt.datetime | None) -> SnapshotRows:
    masks = Masks.of(settings).of_table(table.schema, table.natives)

    def sources(commit: str, count: int) -> pa.Array:
        return constant_map({"connector": CONNECTOR, "scn": str(scn.number(commit))}, count)

    return SnapshotRows(CONNECTOR, table.schema, masks, sources, capture_time)


def _texts(
    connection: Connection, table: OracleTable, chunk: Chunk, settings: OracleSettings, *, now: bool = False
) -> Iterator[list[pa.Array]]:
    try:
        for batch in _rows(connection, table, chunk, settings, now=now):
            yield table.texts(batch)
    except OracleError as error:
        raise _refusal(error, table, chunk.commit) from error


def _rows(
    connection: Connection, table: OracleTable, chunk: Chunk, settings: OracleSettings, *, now: bool
) -> Iterator[pa.RecordBatch]:
    at = scn.number(chunk.commit)
    select = SelectOverrides.of(settings).select(table.id)
    if select is None:
        sql, parameters = statements.rows_in_range(table, chunk.lower, chunk.upper, now=now)
        yield from connection.batches(sql, rows=table.batch_rows, **parameters, **({} if now else {"scn": at}))
        return
    with _reporting(table, select), nullcontext() if now else as_of(connection, at):
        yield from connection.batches(statements.rows_of_select(table, select), rows=table.batch_rows)


def is_there(connection: Connection, table: OracleTable) -> bool:
    rows = connection.rows(statements.COLUMNS, owner=table.id.schema, name=table.id.name)
    return {str(row[0]) for row in rows}.issuperset(column.name for column in table.schema.columns)


def _refusal(error: OracleError, table: OracleTable, commit: str) -> OracleError | MomentGone:
    if error.number == TOO_OLD:
        gone = DataLossError(
            f"What table {table.id.path} held at SCN {scn.number(commit)} is no longer in the undo (ORA-01555).",
            remedy="Raise UNDO_RETENTION and the size of the undo tablespace, and start with a new checkpoint (or with "
            "snapshot.mode=when_needed, which reads a table that has a key again).",
        )
        return MomentGone(gone, altered=False)
    if error.number == CHANGED:
        changed = CaptureError(
            f"Table {table.id.path} was altered while its snapshot was read (ORA-01466).",
            remedy="Start with a new checkpoint, and alter it when the snapshot is done.",
        )
        return MomentGone(changed, altered=True)
    return error
