"""The log: what a running transaction changed in registered tables, by triggers, until the Capture program takes it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

Register = Callable[..., None]
_RECORD, _COMMIT = 0x56, 0x1A0
"""How many bytes of the log a change and a commit take here."""


class TransactionLog:
    """The log records of one connection's transaction.

    Args:
        connection: the SQLite connection.
        now: the time as stored text.
    """

    def __init__(self, connection: sqlite3.Connection, now: Callable[[], str]) -> None:
        self._connection = connection
        self._now = now
        self._open = False
        self._number = 0
        self._position = 0
        self._begun = ""
        self._forced_commit: bytes | None = None
        self._forced_records: list[bytes] = []

    def register(self, add: Register) -> None:
        """Give the triggers their functions."""
        add("db2_tran", 0, self._tran, deterministic=False)
        add("db2_seq", 0, self._next, deterministic=False)
        add("db2_capture_begins", 0, self._capture_begins, deterministic=False)

    def begin(self) -> None:
        """A write transaction began; nothing is logged yet."""
        self._open = False
        self._begun = self._now()

    def force(self, commit: bytes, records: Sequence[bytes] = ()) -> None:
        """Decide the commit sequence of the next logged transaction, and the sequences of its changes, in order."""
        self._forced_commit, self._forced_records = commit, list(records)

    @property
    def width(self) -> int:
        """How many bytes a sequence has."""
        return int(self._value("lsn_bytes"))

    def end(self) -> bytes:
        return self._bytes(int(self._value("lsn")))

    def _value(self, name: str) -> Any:
        return self._connection.execute('SELECT value FROM "emulator.state" WHERE name = ?', (name,)).fetchone()[0]

    def _bytes(self, position: int) -> bytes:
        return position.to_bytes(self.width, "big")

    def _tran(self) -> int:
        if not self._open:
            self._open = True
            self._number = int(self._value("transaction")) + 1
            self._position = int(self._value("lsn"))
        return self._number

    def _next(self) -> bytes:
        self._tran()
        if self._forced_records:
            return self._forced_records.pop(0)
        self._position += _RECORD
        return self._bytes(self._position)

    def _capture_begins(self) -> bytes:
        """Where capture of a table begins: after all that was logged before, the activation included."""
        position = max(self._position if self._open else 0, int(self._value("lsn"))) + _COMMIT
        self._position = position
        self._moved()
        return self._bytes(position)

    def _moved(self) -> None:
        # As text: sixteen bytes are more than SQLite's integers hold.
        self._connection.execute("UPDATE \"emulator.state\" SET value = ? WHERE name = 'lsn'", (str(self._position),))

    def commit(self) -> None:
        """The transaction is committed: it has its place in the log now."""
        if not self._open:
            return
        self._open = False
        self._position += _COMMIT
        commit = self._forced_commit or self._bytes(self._position)
        self._position = max(self._position, int.from_bytes(commit, "big"))
        self._forced_commit = None
        execute = self._connection.execute
        execute(
            'INSERT INTO "emulator.transactions" VALUES (?, ?, ?, ?)', (self._number, commit, self._begun, self._now())
        )
        execute("UPDATE \"emulator.state\" SET value = ? WHERE name = 'transaction'", (self._number,))
        self._moved()
