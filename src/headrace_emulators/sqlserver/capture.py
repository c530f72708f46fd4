"""The capture job and the clean-up job: from the log to the change tables, and out of them again."""

from __future__ import annotations

import datetime as dt
import sqlite3
import time
from collections.abc import Callable

from headrace_emulators.engine.capture_thread import CaptureThread
from headrace_emulators.sqlserver import lsn as lsns
from headrace_emulators.sqlserver import temporal
from headrace_emulators.sqlserver.catalog import quoted
from headrace_emulators.sqlserver.change_log import has_pending
from headrace_emulators.sqlserver.errors import OperationalError
from headrace_emulators.sqlserver.storage import SqlServerStorage

_KEPT_SESSIONS = 200


def capture(storage: SqlServerStorage, max_transactions: int | None = None) -> int:
    """Move committed transactions into the change tables: whole ones, in commit order, visible all at once.

    Args:
        storage: a connection of its own.
        max_transactions: stop after so many; None takes all.

    Returns:
        How many transactions were moved.
    """
    started = storage.now()
    with storage.writing():
        bound = storage.sqlite.execute(
            "SELECT MAX(tran_number), COUNT(*), SUM(command_count) FROM (SELECT tran_number, command_count FROM"
            ' "emulator.transactions"'
            " ORDER BY tran_number LIMIT ?)",
            (-1 if max_transactions is None else max_transactions,),
        ).fetchone()
        last, count, commands = bound
        if count:
            _move(storage.sqlite, last)
        _note(storage, started, count, commands or 0)
    return int(count)


def scan_if_idle(storage: SqlServerStorage) -> None:
    """Note the empty scan of the capture job that a database has whose catalog of capture a script wrote by hand.

    A server's job looks at the log every few seconds. Such a database has no job here, unless a thread runs
    `CaptureJob`, so the scan is made when scans are queried, but only if nothing waits to be captured.
    """
    waiting = storage.sqlite.execute('SELECT 1 FROM "emulator.transactions" LIMIT 1').fetchone()
    if waiting is None and not storage.state("capture_job") and storage.state("agent") == "4":
        started = storage.now()
        with storage.writing():
            _note(storage, started, 0, 0)


def _move(connection: sqlite3.Connection, last: int) -> None:
    for number, name in connection.execute('SELECT object_id, capture_instance FROM "cdc.change_tables"').fetchall():
        if not has_pending(connection, name):
            continue
        pending, change_table = quoted(f"emulator.pending.{name}"), quoted(f"cdc.{name}_CT")
        if connection.execute(f"SELECT 1 FROM {pending} LIMIT 1").fetchone() is None:
            continue
        columns = connection.execute(
            'SELECT column_name, column_ordinal FROM "cdc.captured_columns" WHERE object_id = ? ORDER BY'
            " column_ordinal",
            (number,),
        ).fetchall()
        targets = ", ".join(quoted(c) for c, _ in columns)
        values = ", ".join(f"p.c{o}" for _, o in columns)
        connection.execute(
            f'INSERT INTO {change_table} ("__$start_lsn", "__$end_lsn", "__$seqval", "__$operation",'
            f' "__$update_mask", {targets},'
            f' "__$command_id") SELECT t.commit_lsn, NULL, p.seqval, p.op, p.mask, {values}, p.command FROM'
            f" {pending} AS p"
            ' JOIN "emulator.transactions" AS t ON t.tran_number = p.tran WHERE p.tran <= ? ORDER BY p.id',
            (last,),
        )
        connection.execute(f"DELETE FROM {pending} WHERE tran <= ?", (last,))
    connection.execute(
        'INSERT INTO "cdc.lsn_time_mapping" SELECT commit_lsn, begin_time, end_time, tran_id, begin_lsn FROM'
        ' "emulator.transactions"'
        " WHERE tran_number <= ? ORDER BY tran_number",
        (last,),
    )
    connection.execute('DELETE FROM "emulator.transactions" WHERE tran_number <= ?', (last,))


def _note(storage: SqlServerStorage, started: str, count: int, commands: int) -> None:
    connection = storage.sqlite
    newest = connection.execute(
        'SELECT start_lsn, tran_end_time FROM "cdc.lsn_time_mapping" ORDER BY start_lsn DESC LIMIT 1'
    ).fetchone()
    shown = lsns.to_text(newest[0]) if newest is not None else None
    last = connection.execute(
        'SELECT session_id, empty_scan_count, tran_count FROM "sys.dm_cdc_log_scan_sessions" ORDER BY session_id'
        " DESC LIMIT 1"
    )
    row = last.fetchone()
    now = storage.now()
    if not count and row is not None and row[2] == 0:
        # Scans that find nothing are counted in one row, as on a server.
        connection.execute(
            'UPDATE "sys.dm_cdc_log_scan_sessions" SET end_time = ?, empty_scan_count = empty_scan_count + 1 WHERE'
            " session_id = ?",
            (now, row[0]),
        )
        return
    number = 1 if row is None else row[0] + 1
    latency = 0
    if newest is not None and newest[1]:
        latency = max(int((_moment(now) - _moment(newest[1])).total_seconds()), 0)
    connection.execute(
        f'INSERT INTO "sys.dm_cdc_log_scan_sessions" VALUES ({", ".join("?" * 17)})',
        (number, started, now, 0, "Done", 0, shown, shown, shown, count, shown, newest[1] if newest else None,
         commands, 0, commands,
         latency, int(not count)),
    )  # fmt: skip
    connection.execute('DELETE FROM "sys.dm_cdc_log_scan_sessions" WHERE session_id <= ?', (number - _KEPT_SESSIONS,))


def _moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def mark_idle(storage: SqlServerStorage) -> bytes:
    """Write a dummy row into cdc.lsn_time_mapping, as the job does while nothing happens; gives its LSN."""
    with storage.writing():
        storage.log.open()
        lsn = storage.log.commit(dummy=True)
        (number,) = storage.sqlite.execute('SELECT MAX(tran_number) FROM "emulator.transactions"').fetchone()
        _move(storage.sqlite, number)
    assert lsn is not None
    return lsn


def clean_instance(storage: SqlServerStorage, instance: str, mark: bytes | None) -> None:
    """Delete rows below a low watermark and move the instance's start; the time mapping follows the slowest instance.

    Args:
        storage: in a write transaction.
        instance: the capture instance.
        mark: the new lowest LSN; None means the newest there is.
    """
    connection = storage.sqlite
    if mark is None:
        (mark,) = connection.execute('SELECT MAX(start_lsn) FROM "cdc.lsn_time_mapping"').fetchone()
        if mark is None:
            return
    connection.execute(f'DELETE FROM {quoted(f"cdc.{instance}_CT")} WHERE "__$start_lsn" < ?', (mark,))
    connection.execute(
        'UPDATE "cdc.change_tables" SET start_lsn = ? WHERE capture_instance = ? AND start_lsn < ?',
        (mark, instance, mark),
    )
    connection.execute(
        'DELETE FROM "cdc.lsn_time_mapping" WHERE start_lsn < (SELECT MIN(start_lsn) FROM "cdc.change_tables")'
    )


def clean_old(storage: SqlServerStorage, retention: dt.timedelta) -> bytes | None:
    """The clean-up job: all instances forget what is older than the retention; gives the new low watermark."""
    limit = temporal.to_text(temporal.parse(temporal.of_datetime(storage.clock() - retention)), "datetime", 3)
    with storage.writing():
        (mark,) = storage.sqlite.execute(
            'SELECT MAX(start_lsn) FROM "cdc.lsn_time_mapping" WHERE tran_end_time <= ?', (limit,)
        ).fetchone()
        if mark is None:
            return None
        for (name,) in storage.sqlite.execute('SELECT capture_instance FROM "cdc.change_tables"').fetchall():
            clean_instance(storage, name, bytes(mark))
    return bytes(mark)


class CaptureJob(CaptureThread[SqlServerStorage]):
    """The capture job in a thread with a connection of its own.

    Args:
        open_storage: gives the connection.
        poll: seconds between scans of the log.
        idle: seconds without a transaction after which a dummy row is written; None for never.
        max_transactions: transactions per scan; None for all.

    `EXEC sys.sp_cdc_stop_job` and `sp_cdc_start_job` from any connection pause and resume it too, and so does stopping
    SQL Server Agent.
    """

    def __init__(
        self,
        open_storage: Callable[[], SqlServerStorage],
        *,
        poll: float = 0.1,
        idle: float | None = 300.0,
        max_transactions: int | None = None,
    ) -> None:
        super().__init__("capture-job", open_storage, poll)
        self._idle = idle
        self._max = max_transactions
        self._last = time.monotonic()

    def look(self, storage: SqlServerStorage) -> None:
        """One scan of the log, unless the job or the Agent is stopped."""
        if not self._running(storage):
            return
        try:
            if capture(storage, self._max):
                self._last = time.monotonic()
            elif self._idle is not None and time.monotonic() - self._last >= self._idle:
                mark_idle(storage)
                self._last = time.monotonic()
        except OperationalError as error:
            # The writer held the database for long; the next scan tries again.
            if error.number != 1222:
                raise

    def _running(self, storage: SqlServerStorage) -> bool:
        # A catalog written by hand has no job of its own; then this one is it.
        return storage.state("capture_job", "1") == "1" and storage.state("agent") == "4"
