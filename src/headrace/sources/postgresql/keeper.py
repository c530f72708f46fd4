"""The session that keeps a snapshot: all tables as they were at one position of the log, for as long as they are read.

The session that makes a slot exports a snapshot of the position where the slot begins, which goes with its next
command. The keeper imports it, takes locks that keep tables from being altered, truncated and rewritten, and exports it
again. It lives in the planner's process. Readers that imported its snapshot go on when it ends.

A consistent snapshot of the database at which tables are read begins where a slot was made.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Self

from headrace import faultpoints
from headrace.errors import CaptureError
from headrace.sources.connection import LostConnection
from headrace.sources.log.planner import PointWaits
from headrace.sources.postgresql import lsn, slots, statements
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.connection import Connection, connect
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.refusals import PostgresError

LOCK_NOT_AVAILABLE = "55P03"
_NO_TABLE = frozenset(("42P01", "3F000"))


class PointPassed(Exception):
    """A table was emptied, rewritten or replaced between the position of a snapshot and its lock, so the snapshot no
    longer shows what it held. One at a later position does.

    Args:
        error: the error for the user where nothing else helps.
    """

    def __init__(self, error: CaptureError) -> None:
        super().__init__(str(error))
        self.error = error


class Keeper:
    """Holds a snapshot with the locks of its tables.

    Args:
        settings: the source's options.
        snapshot: the name under which the session that made the slot exported it. It is not needed any more when this
            returns.
        tables: those that are read in it.

    Raises:
        PointPassed: begin again with a snapshot of a later position.
        CaptureError: a table can't be locked in time, or may not be read.
    """

    def __init__(self, settings: PostgresSettings, snapshot: str, tables: Sequence[PostgresTable]) -> None:
        self._keyed = {table.id.path: bool(table.chunk_key) for table in tables}
        self._until = time.monotonic() + settings.snapshot_max_hold_s
        self._name = ""
        with ExitStack() as stack:
            self._connection = stack.enter_context(connect(settings))
            self._connection.run(statements.BEGIN)
            # Before all else, even a lock.
            self._connection.run(statements.import_snapshot(snapshot))
            self._connection.run(statements.lock_timeout(settings.snapshot_lock_timeout_ms))
            for table in tables:
                lock_table(self._connection, table, settings)
                faultpoints.reach("source.snapshot.lock")
            self._require_untouched(tables)
            self._name = str(self._connection.value(statements.EXPORT))
            stack.pop_all()

    @property
    def connection(self) -> Connection:
        """The session itself, for queries of the planner that are to see what the snapshot sees."""
        return self._connection

    @property
    def snapshot(self) -> str:
        """The name under which readers import the snapshot."""
        return self._name

    def serves(self, path: str) -> bool:
        """Whether a table is read in the snapshot now.

        A table with a key is not where the time of `snapshot_max_hold_s` is over or the session has ended: it can be
        read as it is. Others need the snapshot until they are read, so it is held for them.

        Raises:
            CaptureError: the session has ended, and the table has no key.
        """
        keyed = self._keyed[path]
        if keyed and time.monotonic() >= self._until:
            if all(self._keyed.values()):
                self.close()
            return False
        if self._is_open():
            return True
        if keyed:
            return False
        raise snapshot_ended(path)

    def close(self) -> None:
        """Let the snapshot go, with all locks."""
        self._name = ""
        self._connection.close()

    def _is_open(self) -> bool:
        if not self._name:
            return False
        try:
            self._connection.value("SELECT 1")
        except (LostConnection, PostgresError):
            self.close()
            return False
        return True

    def _require_untouched(self, tables: Sequence[PostgresTable]) -> None:
        """Nothing may have happened to the tables between the snapshot's position and the locks.

        Raises:
            PointPassed: it did.
        """
        for table in tables:
            leaves = set(table.leaves)
            kept = dict(self._connection.rows(statements.FILES, (sorted(leaves),)))
            if table.leaves != (table.oid,):
                now = {int(oid) for (oid,) in self._connection.rows(statements.LEAVES, (table.oid,))}
            else:
                now = leaves
            if now != leaves or set(kept) != leaves or not all(kept.values()):
                raise PointPassed(
                    CaptureError(
                        f"Table '{table.id.path}' was truncated, rewritten or made again while its snapshot began.",
                        remedy="Start again when that is done.",
                    )
                )


def snapshot_ended(path: str) -> CaptureError:
    """The error of a table without a key whose snapshot went with its session."""
    return CaptureError(
        f"The session that kept the snapshot of table '{path}' has ended, and the table has no key by which it could "
        "be read without it.",
        remedy="Start again: the table is read once more, from its beginning.",
    )


def lock_table(connection: Connection, table: PostgresTable, settings: PostgresSettings) -> None:
    """Keep a table from being altered, truncated or rewritten until the transaction ends; rows may be written.

    Args:
        connection: in a transaction with the lock timeout; rolled back where this raises.
        table: it.
        settings: the source's options.

    Raises:
        PointPassed: it is not there any more.
        CaptureError: it can't be locked in time; the sentence says who is in the way.
    """
    try:
        connection.run(statements.lock(table))
    except PostgresError as error:
        connection.run(statements.END)
        if error.sqlstate in _NO_TABLE:
            raise PointPassed(
                CaptureError(f"Table '{table.id.path}' went away while its snapshot began.", remedy="Start again.")
            ) from error
        if error.sqlstate == LOCK_NOT_AVAILABLE:
            raise not_locked(connection, table, settings) from error
        raise


def not_locked(connection: Connection, table: PostgresTable, settings: PostgresSettings) -> CaptureError:
    """The error for a table that could not be locked in time.

    Args:
        connection: outside of a transaction.
        table: it.
        settings: the source's options.
    """
    seconds = f"{settings.snapshot_lock_timeout_ms / 1000:g} s"
    sentence = f"Table '{table.id.path}' could not be locked for reading within {seconds}"
    lines = connection.rows(statements.LOCKED_BY, (sorted({table.oid, *table.leaves}),))
    longer = "set 'snapshot_lock_timeout_ms' to more."
    if not lines:
        return CaptureError(f"{sentence}.", remedy=f"Try again, or {longer}")
    pid, application, user, granted = lines[0]
    if pid is None:
        return CaptureError(
            f"{sentence}, because a prepared transaction has locked it.",
            remedy=f"End it (SELECT gid FROM pg_prepared_xacts;), or {longer}",
        )
    who = ", ".join(part for part in (application, f"user {user}" if user else "") if part)
    does = "has locked it for itself" if granted else "waits to lock it for itself"
    return CaptureError(
        f"{sentence}, because session {pid}{f' ({who})' if who else ''} {does}.",
        remedy=f"Let it end, run SELECT pg_cancel_backend({pid}); or {longer}",
    )


_ATTEMPTS = 3
_WAIT_SECONDS = 2
"""How long a snapshot beside the stream waits for open transactions before it leaves that to a later batch."""


class SnapshotPoint:
    """Everything that was committed before the boundary is in it, and nothing else is.

    It lives in the driver's Python process. When that ends, tables with a key are read as they are, and their changes
    since the boundary come again in the stream.

    Args:
        boundary: where the stream goes on after it.
        keeper: the session that keeps it; None where no table is read.
        paths: the tables that are read at it.
    """

    def __init__(self, boundary: int, keeper: Keeper | None, paths: frozenset[str]) -> None:
        self.boundary = boundary
        self._keeper = keeper
        self._paths = paths

    @classmethod
    def created(
        cls, settings: PostgresSettings, tables: Mapping[str, PostgresTable], *, permanent: bool, waits: bool = False
    ) -> Self:
        """A moment after all that is committed now.

        Args:
            settings: the source's options.
            tables: those that are read, by path.
            permanent: whether its slot stays, as the one that the stream is read from.
            waits: whether the caller tries again later.

        Raises:
            CaptureError: the slot can't be made, or a table can't be locked.
            PointWaits: transactions are open that began before, and the caller tries again later.
        """
        timeout = _WAIT_SECONDS if waits else settings.slot_creation_timeout_s
        for attempt in range(_ATTEMPTS):
            try:
                with slots.created(settings, temporary=not permanent, timeout_s=timeout) as slot:
                    keeper = Keeper(settings, slot.snapshot, list(tables.values())) if tables else None
                    return cls(slot.boundary, keeper, frozenset(tables))
            except slots.SlotWaits as error:
                if not waits:
                    raise
                raise PointWaits(error.message) from error
            except PointPassed as passed:
                if attempt == _ATTEMPTS - 1:
                    raise passed.error from passed
        raise AssertionError("the last attempt returns or raises")

    def serves(self, path: str, commit: str) -> bool:
        """Whether a table is read at this moment; where it is not, it is read as it is.

        Raises:
            CaptureError: it can't be had any more, and the table has no key by which it could be read without it.
        """
        here = self._keeper is not None and path in self._paths and lsn.boundary(commit) == self.boundary
        return here and self._keeper is not None and self._keeper.serves(path)

    @property
    def session(self) -> Connection:
        """The session that sees the tables at this moment, while it serves one."""
        assert self._keeper is not None
        return self._keeper.connection

    @property
    def exported(self) -> str:
        """The name of the snapshot for other sessions, while it serves a table."""
        assert self._keeper is not None
        return self._keeper.snapshot

    def close(self) -> None:
        """Let the moment go."""
        if self._keeper is not None:
            self._keeper.close()
