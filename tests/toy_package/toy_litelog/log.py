"""The log: a table that triggers fill, and the statements that read it.

`toy_litelog.install` makes it. An entry has a number, which is the commit it is read by: SQLite lets one transaction
write at a time, so numbers are in the order of commits, and what a reader sees ends with a whole transaction. A
transaction that is rolled back takes its numbers back.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

from headrace.errors import CaptureError, ConnectError, DataLossError

LOG, IDENTITY = "headrace_log", "headrace_identity"
_DIGITS = 19


class Entry(NamedTuple):
    """A change; images are JSON objects of `Native.sql` by column."""

    number: int
    time: dt.datetime
    table: str
    op: str
    before: str | None
    after: str | None


def text(number: int) -> str:
    """A commit as it stands in positions and offsets: texts compare as the numbers do."""
    return f"{number:0{_DIGITS}}"


def connect(path: str) -> sqlite3.Connection:
    """A connection that reads.

    Raises:
        ConnectError: the file is not there, or is no database.
    """
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
        connection.execute("SELECT name FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.DatabaseError as error:
        raise ConnectError(f"The database '{path}' can't be read: {error}.", remedy="Check 'path'.") from error
    return connection


def identity(connection: sqlite3.Connection) -> str:
    """By what the log is known again.

    Raises:
        CaptureError: there is none.
    """
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (LOG,)).fetchall():
        raise CaptureError("No table of this database is captured.", remedy="Run toy_litelog.install.capture for one.")
    return str(connection.execute(f"SELECT id FROM {IDENTITY}").fetchone()[0])


def head(connection: sqlite3.Connection) -> int:
    """The number of the last entry, kept or not; 0 before the first."""
    identity(connection)
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (LOG,)).fetchone()
    return int(row[0]) if row else 0


def first_kept(connection: sqlite3.Connection) -> int:
    """The first entry that is still there; the next one to come where there is none."""
    number = connection.execute(f"SELECT min(number) FROM {LOG}").fetchone()[0]
    return head(connection) + 1 if number is None else int(number)


def require_kept(connection: sqlite3.Connection, commit: int) -> None:
    """See that all after a commit is there.

    Raises:
        DataLossError: it is not.
    """
    first = first_kept(connection)
    if first > commit + 1:
        raise DataLossError(
            f"The log begins with entry {first}, and entry {commit + 1} is next.",
            remedy="Start with a new checkpoint, or set 'snapshot_mode' to when_needed.",
        )


def entries(connection: sqlite3.Connection, after: int, upto: int) -> Iterator[Entry]:
    """What the log has in (after, upto], in its order."""
    statement = f"SELECT number, time, name, op, before, after FROM {LOG} WHERE number > ? AND number <= ? ORDER BY 1"
    for number, time, *change in connection.execute(statement, (after, upto)):
        yield Entry(number, dt.datetime.fromisoformat(time), *change)
