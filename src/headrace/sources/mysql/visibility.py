"""Consistent snapshots without a global lock, and which transactions they see, as positions in the log.

A server writes a commit to its log first and shows it to readers a moment later. So a snapshot that is opened after the
log's end was read may lack transactions before that end. What is surely seen, and what is surely not, is found out in
the way that each kind of server offers:

- MariaDB and Percona say at which position of the log a snapshot stands, exactly.
- MySQL with GTIDs tells which of them are in use: a transaction has its GTID from before it is in the log until it can
  be seen. When all those have ended that were in use after the log's end was read, everything before that end can be
  seen.
- MySQL without GTIDs needs a lock on the tables for the moment in which the end is read and the snapshot is opened. It
  waits for open writers, and no other is there then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.errors import CaptureError
from headrace.sources.mysql.binlog_position import BinlogPosition, file_of
from headrace.sources.mysql.connection import MYSQL, ServerKind

_POLL_SECONDS = 0.002
_REPEATABLE = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
_OPEN = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
_END = "ROLLBACK"
_SNAPSHOT_STATUS = "SHOW STATUS LIKE 'binlog_snapshot_%'"
_IN_USE = "SELECT @@GLOBAL.gtid_owned"
_WITH_GTIDS = "SELECT @@GLOBAL.gtid_mode"


class Session(Protocol):
    def rows(self, sql: str) -> Sequence[tuple[Any, ...]]:
        """The rows of a query."""

    def close(self) -> None:
        """End it."""


@dataclass(frozen=True)
class Visible:
    """What a snapshot sees.

    Args:
        low: every transaction that begins before this position.
        high: no transaction that begins here or behind.
    """

    low: BinlogPosition
    high: BinlogPosition

    @property
    def is_exact(self) -> bool:
        """Whether it is known of every transaction whether the snapshot sees it."""
        return self.low == self.high


@dataclass(frozen=True)
class Snapshots:
    """Opens consistent snapshots of one server.

    Args:
        server: what it is.
        epoch: of the positions.
        wait_seconds: how long transactions may take to be seen, or a lock to come.
    """

    server: ServerKind
    epoch: int = 0
    wait_seconds: float = 60.0

    def opened(
        self,
        session: Session,
        after: BinlogPosition | None = None,
        *,
        tables: Sequence[str] = (),
        another: Callable[[], Session],
    ) -> Visible:
        """Begin a transaction that sees one state of all InnoDB tables, and say which.

        Args:
            session: outside of a transaction.
            after: a position of the log that it has to see everything before.
            tables: with their quotes, what a lock is taken on where there is no other way.
            another: opens a session for that lock.

        Raises:
            CaptureError: transactions were not seen in time, or a right is missing.
        """
        deadline = time.monotonic() + self.wait_seconds
        while True:
            visible = self._opened(session, tables, another, deadline)
            if after is None or visible.low >= after:
                return visible
            session.rows(_END)
            _require_time(deadline, "what the log has up to the end of the batch")
            time.sleep(_POLL_SECONDS)

    def exact(self, session: Session, tables: Sequence[str], another: Callable[[], Session]) -> Visible:
        """The same, so that of the tables every transaction is known to be seen or not.

        Args:
            session: outside of a transaction.
            tables: with their quotes.
            another: opens a session for a lock.

        Raises:
            CaptureError: the lock did not come in time, or the right to take it is missing.
        """
        session.rows(_REPEATABLE)
        if self.server.name == MYSQL:
            return self._locked(session, tables, another)
        return self._stated(session)

    def held(self, session: Session, table: str) -> Visible:
        """Keep all others from writing to a table until the session ends, and say what it holds.

        For tables of engines without snapshots.

        Args:
            session: outside of a transaction; the only one that is used.
            table: with its quotes.

        Raises:
            CaptureError: the lock did not come in time, or the right to take it is missing.
        """
        session.rows(self._lock_wait)
        session.rows(f"LOCK TABLES {table} READ")
        position = self.head(session)
        return Visible(position, position)

    def head(self, session: Session) -> BinlogPosition:
        """Where the log ends; transactions before it may not be seen yet.

        Raises:
            CaptureError: the server has no log.
        """
        rows = session.rows(self.server.log_status)
        if not rows:
            raise CaptureError("The server writes no binary log.", remedy="Start it with --log-bin.")
        return self._position(rows[0][0], rows[0][1])

    def _opened(
        self, session: Session, tables: Sequence[str], another: Callable[[], Session], deadline: float
    ) -> Visible:
        session.rows(_REPEATABLE)
        if self.server.name != MYSQL:
            return self._stated(session)
        if str(session.rows(_WITH_GTIDS)[0][0]).upper() != "ON":
            return self._locked(session, tables, another)
        low = self.head(session)
        self._ended(session, deadline)
        session.rows(_OPEN)
        return Visible(low, self.head(session))

    def wait_executed(self, session: Session) -> None:
        """Wait until the transactions that are in the log are among those that the server says that it has.

        Raises:
            CaptureError: that took too long.
        """
        if self.server.name == MYSQL:
            self._ended(session, time.monotonic() + self.wait_seconds)

    def _ended(self, session: Session, deadline: float) -> None:
        in_use = _gtids(session)
        while in_use:
            _require_time(deadline, f"{len(in_use)} transactions that are in the log")
            time.sleep(_POLL_SECONDS)
            in_use &= _gtids(session)

    def _stated(self, session: Session) -> Visible:
        session.rows(_OPEN)
        status = {str(name).lower(): value for name, value in session.rows(_SNAPSHOT_STATUS)}
        if not status.get("binlog_snapshot_file"):
            raise CaptureError("The server writes no binary log.", remedy="Start it with --log-bin.")
        position = self._position(status["binlog_snapshot_file"], status["binlog_snapshot_position"])
        return Visible(position, position)

    def _locked(self, session: Session, tables: Sequence[str], another: Callable[[], Session]) -> Visible:
        """By a lock of a moment: with the transaction it would end, so another session has it."""
        if not tables:
            raise ValueError("no tables to lock")
        with closing(another()) as other:
            other.rows(self._lock_wait)
            other.rows(f"LOCK TABLES {', '.join(f'{table} READ' for table in tables)}")
            position = self.head(other)
            session.rows(_OPEN)
            other.rows("UNLOCK TABLES")
        return Visible(position, position)

    @property
    def _lock_wait(self) -> str:
        return f"SET SESSION lock_wait_timeout = {max(1, int(self.wait_seconds))}"

    def _position(self, file: object, position: object) -> BinlogPosition:
        return BinlogPosition(self.epoch, file_of(str(file))[1], int(str(position)))


def _gtids(session: Session) -> set[tuple[str, str]]:
    """The GTIDs that are in use: `uuid:5#17:6#18,` and so on, with the numbers of their threads."""
    gtids = set()
    for line in str(session.rows(_IN_USE)[0][0] or "").split(","):
        source, *numbers = line.strip().split(":")
        gtids |= {(source, number) for number in numbers}
    return gtids


def _require_time(deadline: float, what: str) -> None:
    if time.monotonic() >= deadline:
        raise CaptureError(
            f"A snapshot can't be opened, because {what} can't be seen yet.",
            remedy="Look for transactions that hang in their commit: SHOW PROCESSLIST.",
        )
