"""Whether the database is still the one that was read: a restore of a backup, or a failover that lost commits, gives
another history behind the same name.

Runs in the driver, before a window of commits is planned. A server that keeps the times of all positions in its log is
queried for the time of the commit that was delivered last. Of another one the offset keeps a mark: the last captured
transaction with its time, and the table that it was in.
"""

from __future__ import annotations

from typing import Any

from headrace.errors import PositionMismatch
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.clock import CommitClock
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.history_mark import HistoryMark, NewestChange
from headrace.sources.offset import Offset


class OtherHistory(PositionMismatch):
    """What was delivered is not what the database has now, and it has moved on since."""


class SameHistory:
    """Sees that a database has not gone back behind what was delivered.

    Args:
        connection: to the database.
        database: its name.
    """

    def __init__(self, connection: Connection, database: str) -> None:
        self._connection = connection
        self._statements = connection.statements
        self._dialect = connection.dialect
        self._database = database

    def mark(self, commit: str, before: HistoryMark, *, restored: bool) -> HistoryMark:
        """What the offset keeps so that the history up to a commit is recognised.

        Args:
            commit: the batch's end.
            before: the mark of the batch before; it stays where clean-up left nothing newer.
            restored: whether the database was restored before this batch.
        """
        if self._dialect.keeps_idle_commits:
            return HistoryMark(restored=restored)
        last = self._dialect.last_transaction(self._connection, commit)
        changes = self._dialect.newest_changes(self._connection).items()
        newest = max(
            (NewestChange(at, table) for table, at in changes if at is not None and at <= commit), default=before.newest
        )
        return HistoryMark(before.transaction if last is None else last, newest, restored)

    def require_not_older(self, start: Offset) -> None:
        """The database has not gone back behind what was delivered, as after a restore of a backup.

        Raises:
            PositionMismatch: it has.
        """
        head = self._connection.value(self._statements.MAX_LSN)
        # A commit without a time is the start of a capture instance, which may be ahead of what is captured.
        if head is None or start.commit_time is None or lsn.read(head) >= start.commit:
            return
        raise PositionMismatch(
            f"Database '{self._database}' is captured up to LSN {lsn.read(head)}, but changes up "
            f"to LSN {start.commit} were delivered already: it was restored or failed over to an older state.",
            remedy="Take a new snapshot with a new checkpoint. With snapshot.mode=when_needed, a run that "
            "begins when the database is captured beyond that LSN reads all tables again.",
        )

    def require_same(self, start: Offset, oldest: Any) -> None:
        """What was delivered last is still what it was.

        A database that was restored to an older state and has moved on since has something else there, or nothing.

        Args:
            start: up to where changes were delivered.
            oldest: what `Statements.OLDEST_MAPPED` gave.

        Raises:
            OtherHistory: it is not.
        """
        if self._dialect.keeps_idle_commits:
            self._require_same_commit(start, oldest)
        elif start.log:
            self._require_same_mark(start)

    def _require_same_commit(self, start: Offset, oldest: Any) -> None:
        if start.commit_time is None or oldest is None or lsn.read(oldest) > start.commit:
            # It had no time, or the mapping was cleaned beyond it: nothing can be said.
            return
        # The commits that tell a repeated hour's readings apart may be cleaned by now, so either will do.
        local = self._connection.value(self._statements.COMMIT_TIME, (lsn.to_bytes(start.commit),))
        if start.commit_time not in CommitClock(self._connection, start.clock).can_be(local):
            raise self._other(f"no longer has the commit with LSN {start.commit} that was delivered")

    def _require_same_mark(self, start: Offset) -> None:
        known = HistoryMark.from_json(start.log)
        last = self._dialect.last_transaction(self._connection, start.commit)
        # Where there is none, clean-up has taken it, and its changes too: then it is seen whether any are missing.
        if last is not None and last != known.transaction:
            if known.transaction is None or last.commit > known.transaction.commit:
                raise self._other(
                    f"has a transaction with LSN {last.commit}, which was not there when changes up to LSN "
                    f"{start.commit} were delivered"
                )
            gone = known.transaction
            raise self._other(f"no longer has the transaction with LSN {gone.commit} of {gone.time} that was delivered")
        if known.newest is None:
            return
        at, table = known.newest
        now = self._dialect.newest_changes(self._connection)
        if table in now and (now[table] or "") < at:
            raise self._other(
                f"no longer has the changes up to LSN {at} in change table '{table.name}' that were delivered"
            )

    def _other(self, what: str) -> OtherHistory:
        return OtherHistory(
            f"Database '{self._database}' {what}: it was restored or failed over to an older state and has changed "
            "since.",
            remedy="Take a new snapshot with a new checkpoint and an empty target. With snapshot.mode=when_needed all "
            "tables are read again, and rows that were delivered and are not there any more stay where they are.",
        )
