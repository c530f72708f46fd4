"""A database file as one connection has it open: its clock, settings and transactions. It runs no statements."""

from __future__ import annotations

import datetime as dt
import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from headrace_emulators.engine import database_files as files

QUERY_LOG = "HEADRACE_EMULATOR_QUERY_LOG"
"""The environment variable that names a file to which each executed statement is appended, one per line."""
BUSY_SECONDS = 60.0
Clock = Callable[[], dt.datetime]


def utc_now() -> dt.datetime:
    """The server's clock, which runs in UTC."""
    return dt.datetime.now(dt.UTC).replace(tzinfo=None)


def record_query(text: str) -> None:
    """Append a statement to the file that `QUERY_LOG` names."""
    path = os.environ.get(QUERY_LOG)
    if path:
        with Path(path).open("a", encoding="utf-8") as log:
            log.write(" ".join(text.split()) + "\n")


class Log(Protocol):
    """The log records of one connection's transaction."""

    def begin(self) -> None:
        """A write transaction began; nothing is logged yet."""

    def commit(self) -> object:
        """Write the commit record, in the transaction that is about to commit."""


class Storage(ABC):
    """A connection to one database file. Only one connection writes at a time.

    Args:
        path: the SQLite file.
        clock: gives transaction times, naive and in UTC; set the attribute to move time.
    """

    log: Log

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self.name = files.name_of(path)
        self.clock = clock
        self.autocommit = True
        self.depth = 0
        """How many BEGIN TRANSACTIONs are open."""
        self.writes = False
        """Whether this connection is the writer now."""
        self.sqlite = sqlite3.connect(
            path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        self.sqlite.execute("PRAGMA synchronous = OFF")
        self.sqlite.execute("PRAGMA recursive_triggers = OFF")

    @abstractmethod
    def now(self) -> str:
        """The time as the database stores it."""

    @abstractmethod
    def translated(self, error: sqlite3.Error) -> Exception:
        """An SQLite error as the emulated server words it."""

    @abstractmethod
    def changed(self) -> None:
        """The catalog's rows changed without a change of SQLite's own schema."""

    # Settings.

    def state(self, name: str, default: str = "") -> str:
        """A setting that the file keeps."""
        row = self.sqlite.execute('SELECT value FROM "emulator.state" WHERE name = ?', (name,)).fetchone()
        return default if row is None else str(row[0])

    def set_state(self, name: str, value: str) -> None:
        """Change a setting that the file keeps."""
        with self.writing():
            self.sqlite.execute('INSERT OR REPLACE INTO "emulator.state" VALUES (?, ?)', (name, value))

    # Rows.

    def execute(self, sql: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        """Run SQLite's SQL; its errors are worded as the emulated server words them."""
        try:
            return self.sqlite.execute(sql, values)
        except sqlite3.Error as error:
            raise self.translated(error) from error

    def rows(self, cursor: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, fetched on demand."""
        while True:
            try:
                block = cursor.fetchmany(1024)
            except sqlite3.Error as error:
                raise self.translated(error) from error
            if not block:
                return
            yield from block

    # Transactions.

    @property
    def explicit(self) -> bool:
        """Whether a transaction is open that only a commit or a rollback ends."""
        return self.depth > 0 or not self.autocommit

    def begin(self) -> None:
        """Begin a transaction; they nest."""
        self.depth += 1

    def begin_write(self) -> None:
        """Become the writer, unless this connection is it."""
        if self.writes:
            return
        # A transaction that already reads can only be upgraded, and fails when another connection wrote meanwhile.
        if not self.sqlite.in_transaction:
            self.execute("BEGIN IMMEDIATE")
        self.writes = True
        self.log.begin()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A write: all of it or nothing. It is a transaction of its own unless a larger one is open."""
        inner = self.writes or self.explicit
        self.begin_write()
        if inner:
            self.sqlite.execute('SAVEPOINT "emulator statement"')
        try:
            yield
        except BaseException as error:
            if not inner:
                self.rollback()
            elif self.sqlite.in_transaction:
                self.sqlite.execute('ROLLBACK TO "emulator statement"')
                self.sqlite.execute('RELEASE "emulator statement"')
                self.changed()
            if isinstance(error, sqlite3.Error):
                raise self.translated(error) from error
            raise
        if not inner:
            self.commit()
        elif self.sqlite.in_transaction:
            self.sqlite.execute('RELEASE "emulator statement"')

    def commit(self) -> None:
        """End the transaction. What it changed in captured tables is in the log now."""
        if self.writes:
            self.log.commit()
        if self.sqlite.in_transaction:
            self.sqlite.execute("COMMIT")
        self._ended()

    def rollback(self) -> None:
        if self.sqlite.in_transaction:
            self.sqlite.execute("ROLLBACK")
        self._ended()
        self.changed()

    def _ended(self) -> None:
        self.writes, self.depth = False, 0

    def close(self) -> None:
        """Roll back what is open and close."""
        if self.sqlite.in_transaction:
            self.rollback()
        self.sqlite.close()
