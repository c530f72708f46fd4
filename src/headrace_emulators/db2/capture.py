"""The Capture program and its pruning: from the log to the change tables, and out of them again."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from headrace_emulators.db2.catalog import quoted
from headrace_emulators.db2.errors import InternalError, not_emulated
from headrace_emulators.db2.registrations import HEADER, REGISTER, SCHEMA, UOW, pending
from headrace_emulators.db2.storage import Db2Storage
from headrace_emulators.db2.syntax import Reader
from headrace_emulators.engine.capture_thread import CaptureThread

_BUSY = -911
_SERVICES = ("start", "stop", "status", "reinit", "prune", "suspend", "resume")


def capture(storage: Db2Storage, max_transactions: int | None = None) -> int:
    """Move committed transactions into the change tables: whole ones, in commit order.

    The global row holds how far the log was read, also when nothing was found.

    Args:
        storage: a connection of its own.
        max_transactions: stop after so many; None takes all.

    Returns:
        How many transactions were moved.
    """
    execute = storage.sqlite.execute
    with storage.writing():
        last, count = execute(
            'SELECT MAX(tran), COUNT(*) FROM (SELECT tran FROM "emulator.transactions" ORDER BY tran LIMIT ?)',
            (-1 if max_transactions is None else max_transactions,),
        ).fetchone()
        reached, at = storage.log.end(), storage.now()
        if count:
            _move(storage, last)
            left = execute(
                'SELECT commit_lsn, commit_time FROM "emulator.transactions" WHERE tran = ?', (last,)
            ).fetchone()
            execute('DELETE FROM "emulator.transactions" WHERE tran <= ?', (last,))
            if execute('SELECT 1 FROM "emulator.transactions" LIMIT 1').fetchone() is not None:
                reached, at = left
        execute(f"UPDATE {quoted(REGISTER)} SET SYNCHPOINT = ?, SYNCHTIME = ? WHERE GLOBAL_RECORD = 'Y'", (reached, at))
        execute(f"DELETE FROM {quoted(SCHEMA + '.IBMSNAP_CAPMON')}")
        execute(f"INSERT INTO {quoted(SCHEMA + '.IBMSNAP_CAPMON')} VALUES (?, ?)", (storage.now(), at))
    return int(count)


def _move(storage: Db2Storage, last: int) -> None:
    execute = storage.sqlite.execute
    moved = set()
    for cd_owner, cd_table in execute(
        f"SELECT CD_OWNER, CD_TABLE FROM {quoted(REGISTER)} WHERE GLOBAL_RECORD = 'N'"
    ).fetchall():
        waiting = quoted(pending(f"{cd_owner}.{cd_table}"))
        columns = [row[1] for row in execute(f"PRAGMA table_info({waiting})").fetchall()][4:]
        if not columns:
            continue
        there = {row[1] for row in execute(f"PRAGMA table_info({quoted(f'{cd_owner}.{cd_table}')})").fetchall()}
        kept = [name for name in columns if name in there]
        names = "".join(f", {quoted(name)}" for name in kept)
        values = "".join(f", p.{quoted(name)}" for name in kept)
        (newest,) = execute(
            f"SELECT MAX(t.commit_lsn) FROM {waiting} AS p"
            ' JOIN "emulator.transactions" AS t ON t.tran = p."emulator tran" WHERE p."emulator tran" <= ?',
            (last,),
        ).fetchone()
        if newest is None:
            continue
        moved |= {
            row[0]
            for row in execute(f'SELECT DISTINCT "emulator tran" FROM {waiting} WHERE "emulator tran" <= ?', (last,))
        }
        execute(
            f"INSERT INTO {quoted(f'{cd_owner}.{cd_table}')} ({', '.join(HEADER)}{names})"
            f' SELECT t.commit_lsn, p."emulator seq", p."emulator op"{values} FROM {waiting} AS p'
            ' JOIN "emulator.transactions" AS t ON t.tran = p."emulator tran" WHERE p."emulator tran" <= ?'
            ' ORDER BY p."emulator id"',
            (last,),
        )
        execute(f'DELETE FROM {waiting} WHERE "emulator tran" <= ?', (last,))
        execute(
            f"UPDATE {quoted(REGISTER)} SET CD_NEW_SYNCHPOINT = ? WHERE CD_OWNER = ? AND CD_TABLE = ?",
            (newest, cd_owner, cd_table),
        )
    for number in sorted(moved):
        execute(
            f"INSERT INTO {quoted(UOW)} SELECT SUBSTR(commit_lsn, -10), commit_lsn, commit_time, 'EMULATOR',"
            " 'DB2INST1',"
            " '0', NULL FROM \"emulator.transactions\" WHERE tran = ?",
            (number,),
        )


def prune(storage: Db2Storage, mark: bytes | None) -> None:
    """Delete what was captured before a commit, from all change tables and from the units of work.

    Args:
        storage: a connection.
        mark: the oldest commit that stays; None for the newest there is.
    """
    execute = storage.sqlite.execute
    with storage.writing():
        if mark is None:
            (mark,) = execute(f"SELECT SYNCHPOINT FROM {quoted(REGISTER)} WHERE GLOBAL_RECORD = 'Y'").fetchone()
        for cd_owner, cd_table in execute(
            f"SELECT CD_OWNER, CD_TABLE FROM {quoted(REGISTER)} WHERE GLOBAL_RECORD = 'N'"
        ).fetchall():
            execute(f"DELETE FROM {quoted(f'{cd_owner}.{cd_table}')} WHERE IBMSNAP_COMMITSEQ < ?", (mark,))
        execute(f"DELETE FROM {quoted(UOW)} WHERE IBMSNAP_COMMITSEQ < ?", (mark,))
        execute(
            f"UPDATE {quoted(REGISTER)} SET CD_OLD_SYNCHPOINT = ? WHERE GLOBAL_RECORD = 'N'"
            " AND (CD_OLD_SYNCHPOINT IS NULL OR CD_OLD_SYNCHPOINT < ?)",
            (mark, mark),
        )


def prune_old(storage: Db2Storage, retention: dt.timedelta) -> None:
    """Delete what was committed longer ago than a retention."""
    limit = storage.clock() + dt.timedelta(minutes=storage.zone_minutes) - retention
    (mark,) = storage.sqlite.execute(
        f"SELECT MIN(IBMSNAP_COMMITSEQ) FROM {quoted(UOW)} WHERE IBMSNAP_LOGMARKER >= ?",
        (f"{limit:%Y-%m-%d %H:%M:%S.%f}",),
    ).fetchone()
    prune(storage, mark)


def service(storage: Db2Storage, reader: Reader) -> str:
    """VALUES ASNCDC.ASNCDCSERVICES(command, schema): carries out the command and returns its answer."""
    reader.expect("VALUES")
    if reader.path(SCHEMA) != (SCHEMA, "ASNCDCSERVICES"):
        raise not_emulated("VALUES of another function")
    reader.expect("(")
    command = reader.constant().lower()
    reader.expect(",")
    reader.constant()
    reader.expect(")")
    reader.finish()
    if command not in _SERVICES:
        raise not_emulated(f"the command {command}")
    if command == "prune":
        prune(storage, None)
    elif command in ("start", "resume", "stop", "suspend"):
        storage.set_state("capture", "running" if command in ("start", "resume") else "stopped")
    state = storage.state("capture", "running")
    return f"asncap {command}: the Capture program is {'doing work' if state == 'running' else 'down'}."


class CaptureProgram(CaptureThread[Db2Storage]):
    """The Capture program in a thread with a connection of its own.

    Args:
        open_storage: gives the connection.
        poll: seconds between two looks at the log.
        max_transactions: transactions per look; None for all.

    `VALUES ASNCDC.ASNCDCSERVICES('suspend', 'asncdc')` and `'resume'` from any connection pause and resume it too.
    """

    def __init__(
        self, open_storage: Callable[[], Db2Storage], *, poll: float = 0.1, max_transactions: int | None = None
    ) -> None:
        super().__init__("asncap", open_storage, poll)
        self._max = max_transactions

    def look(self, storage: Db2Storage) -> None:
        if storage.state("capture", "running") != "running":
            return
        try:
            capture(storage, self._max)
        except InternalError as error:
            # The writer held the database for long; the next look tries again.
            if error.number != _BUSY:
                raise
