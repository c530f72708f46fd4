"""The redo log: threads with log sequences, records in them, switches, archiving, and what is lost when a log goes."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from headrace_emulators.oracle.errors import DatabaseError

ONLINE_LOGS = 3
"""Online logs per thread; the fourth switch overwrites the first, which is archived by then."""


@dataclass
class Scripted:
    """What the records of a session contain, in scenarios that prescribe it."""

    scn: int | None = None
    time: str | None = None
    rs_id: str | None = None
    ssn: int | None = None
    xid: str | None = None
    commit: int | None = None


class RedoLog:
    """Writes records of one database. The caller holds SQLite's write transaction.

    Args:
        connection: to the database's file.
        records_per_log: after so many records a thread switches by itself; 0 for never.
    """

    def __init__(self, connection: sqlite3.Connection, records_per_log: int) -> None:
        self._connection = connection
        self._records_per_log = records_per_log

    def fact(self, name: str) -> Any:
        return self._connection.execute('SELECT value FROM "sys.facts" WHERE name = ?', (name,)).fetchone()[0]

    def put_fact(self, name: str, value: Any) -> None:
        self._connection.execute('INSERT OR REPLACE INTO "sys.facts" VALUES (?, ?)', (name, value))

    def next_scn(self, at: int | None = None) -> int:
        """Move the clock on, or to a given place."""
        scn = int(self.fact("scn")) + 1 if at is None else at
        self.put_fact("scn", max(scn, int(self.fact("scn"))))
        return scn

    def begin_thread(self, thread: int, time: str) -> None:
        scn = int(self.fact("scn"))
        self._connection.execute("INSERT OR REPLACE INTO \"sys.threads\" VALUES (?, 'OPEN', ?, ?)", (thread, scn, time))
        self._connection.execute(
            'INSERT INTO "sys.logs" VALUES (?, 1, ?, NULL, ?, 1, 0, 0, 0, 0, 0)', (thread, scn, time)
        )

    def current(self, thread: int) -> tuple[int, int]:
        """The sequence of a thread's current log, and how many records it has.

        Raises:
            DatabaseError: the thread is not open.
        """
        row = self._connection.execute(
            'SELECT sequence, records FROM "sys.logs" WHERE thread = ? AND next_scn IS NULL', (thread,)
        ).fetchone()
        if row is None:
            raise DatabaseError(1613, f"instance of thread {thread} is not mounted")
        return int(row[0]), int(row[1])

    def append(self, thread: int, records: list[dict[str, Any]], script: Scripted | None = None) -> None:
        if not records:
            return
        sequence, count = self.current(thread)
        if self._records_per_log and count >= self._records_per_log:
            self.switch(thread, str(records[0]["time"]))
            sequence, count = self.current(thread)
        rows = []
        for number, record in enumerate(records, count):
            rs_id = f" 0x{sequence:06x}.{number // 30 + 2:08x}.{(number % 30) * 16 + 16:04x} "
            ssn = 0
            if script is not None and script.rs_id is not None:
                rs_id, ssn = script.rs_id, script.ssn or 0
            rows.append(
                (thread, sequence, record.get("rs_id", rs_id), record.get("ssn", ssn), record["scn"], record["xid"],
                 record["operation_code"], record.get("owner"), record.get("name"), record.get("row_id"),
                 record.get("rollback", 0), record["time"], record.get("username"), record.get("sql_redo"),
                 record.get("status", 0), record.get("info"), record.get("object_id"), record.get("version"),
                 self._con)
            )  # fmt: skip
        self._connection.executemany(
            'INSERT INTO "sys.redo" (thread, sequence, rs_id, ssn, scn, xid, operation_code, owner, name, row_id,'
            " rollback, time, username, sql_redo, status, info, object_id, object_version, con)"
            f" VALUES ({', '.join('?' * 19)})",
            rows,
        )
        self._connection.execute(
            'UPDATE "sys.logs" SET records = records + ? WHERE thread = ? AND sequence = ?',
            (len(records), thread, sequence),
        )

    @property
    def _con(self) -> str:
        return str(self.fact("pdb") or self.fact("name"))

    def flush(self, thread: int, scn: int, time: str) -> None:
        """What a thread wrote so far is on disk, as after a commit."""
        self._connection.execute(
            'UPDATE "sys.threads" SET last_scn = max(last_scn, ?), last_time = ? WHERE thread = ?', (scn, time, thread)
        )

    def switch(self, thread: int, time: str, *, archive: bool = True) -> None:
        """Begin the thread's next log; the one before is archived, and overwritten two switches later."""
        sequence, _ = self.current(thread)
        scn = self.next_scn()
        execute = self._connection.execute
        execute(
            'UPDATE "sys.logs" SET next_scn = ?, archived = ? WHERE thread = ? AND sequence = ?',
            (scn, archive, thread, sequence),
        )
        execute(
            'UPDATE "sys.logs" SET online = 0 WHERE thread = ? AND sequence <= ?', (thread, sequence + 1 - ONLINE_LOGS)
        )
        execute('INSERT INTO "sys.logs" VALUES (?, ?, ?, NULL, ?, 1, 0, 0, 0, 0, 0)', (thread, sequence + 1, scn, time))

    def write_dictionary(self, thread: int, time: str) -> None:
        """Put the dictionary into logs of its own: it begins in one and ends in the next, and both are archived."""
        self.switch(thread, time)
        for edge in ("begin", "end"):
            sequence, _ = self.current(thread)
            self._connection.execute(
                f'UPDATE "sys.logs" SET dictionary_{edge} = 1 WHERE thread = ? AND sequence = ?', (thread, sequence)
            )
            self.next_scn()
            self.switch(thread, time)
        self.flush(thread, int(self.fact("scn")), time)
