"""Whether the database is still the one that was read, and still has the changes that are needed.

Runs in the driver, before a window of commits is planned. A server that keeps the times of all positions in its log is
queried for the time of the commit that was delivered last. Of another one the offset keeps a mark: the last captured
transaction with its time, and the table that it was in.

SQL Server's clean-up job deletes old rows of change tables and moves the instance's start forward. Checked twice:
before a window is planned and after it was read, because the clean-up can run in between.
"""

from __future__ import annotations

from typing import Any

from headrace.changes import TableId
from headrace.errors import DataLossError, PositionMismatch
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.captured_table import CapturedTable, CatalogTable
from headrace.sources.change_tables.clock import CommitClock
from headrace.sources.change_tables.connection import Connection, MissingObject
from headrace.sources.change_tables.history_mark import HistoryMark, NewestChange
from headrace.sources.change_tables.schema_history import Window
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


def oldest_needed(table: CatalogTable, window: Window | None) -> str | None:
    """The oldest LSN that is held by the instance from which a window is read; None when it has not begun."""
    captured = table.of(window.table.instance) if window is not None else None
    return (captured or table.newest).instance.start_lsn


def require_still_retained(connection: Connection, table: CapturedTable, after: str) -> None:
    """Every change of the table after a commit is still in its change table, according to the server now.

    Raises:
        DataLossError: some may have been cleaned.
        MissingObject: the capture instance is gone, though there may be a later one of the same name.
    """
    instance = table.instance
    rows = connection.rows(connection.statements.INSTANCE_START, (instance.name,))
    starts = [start for start, number in rows if int(number) == instance.object_id]
    if not starts:
        raise MissingObject(
            f"Capture instance '{instance.name}' of table '{table.id.path}' is gone.",
            remedy="Have the table captured again and start with a new checkpoint.",
        )
    if starts[0] is not None:
        require_retained(connection, table.id, after, lsn.read(starts[0]))


def require_retained(connection: Connection, table: TableId, after: str, oldest: str) -> None:
    """Nothing was lost after a commit, though the change table only holds what came from `oldest` on.

    An idle table whose start was moved past `after` has lost nothing as long as the server's commit mapping shows no
    transaction in between.

    Raises:
        DataLossError: some changes may have been cleaned.
    """
    if is_retained(connection, after, oldest):
        return
    rested = ", or its registration was not active for a time" if _may_skip(connection) else ""
    raise DataLossError(
        f"Changes of table '{table.path}' after LSN {after} are needed, but its change table "
        f"holds only those from LSN {oldest}: the rest was cleaned{rested}.",
        remedy=(
            "Take a new snapshot with a new checkpoint (or snapshot.mode=when_needed, which does so for such tables "
            f"alone), and {connection.dialect.advice.keep}."
        ),
    )


def is_retained(connection: Connection, after: str, oldest: str) -> bool:
    """Whether a change table that begins at `oldest` holds every change after a commit that was captured."""
    if oldest <= lsn.after(after):
        return True
    if not _is_mapped(connection, after):
        # The mapping was cleaned as well, so it can't prove anything.
        return False
    # The instance's start itself is still held; only commits strictly before it could be missing.
    return not _transactions(connection, after, oldest) or begins_again(connection, after, oldest)


def begins_again(connection: Connection, after: str, oldest: str) -> bool:
    """Whether a change table begins at `oldest` because its table was not captured for a time after a commit.

    Its rows from before that time are still there. A registration of Db2 says where the Capture program began with it,
    and where its change table was pruned to, in one place. It is the beginning where pruning has not come as far as the
    commit, and no transaction is there: pruning leaves a transaction as the oldest one.
    """
    if not _may_skip(connection) or oldest <= lsn.after(after) or not _is_mapped(connection, after):
        return False
    return not _transactions(connection, lsn.before(oldest), lsn.after(oldest))


def _may_skip(connection: Connection) -> bool:
    # Where the log's positions are kept, a change table is a new one each time that capture begins.
    return not connection.dialect.keeps_idle_commits


def _is_mapped(connection: Connection, commit: str) -> bool:
    """Whether the server still lists a transaction that is not newer than a commit."""
    mapped = connection.value(connection.statements.OLDEST_MAPPED)
    return mapped is not None and lsn.read(mapped) <= commit


def _transactions(connection: Connection, after: str, before: str) -> int:
    """How many transactions the server lists between two LSNs, themselves aside."""
    edges = (lsn.to_bytes(after), lsn.to_bytes(before))
    return int(connection.value(connection.statements.TRANSACTIONS_STRICTLY_BETWEEN, edges))


class Retention:
    """What is still held, for all tables of a batch: the clean-up moves them to one place, so one answer serves many.

    Args:
        connection: to the database.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._kept: dict[tuple[str, str], bool] = {}

    def holds(self, after: str, oldest: str) -> bool:
        """Whether a change table that begins at `oldest` holds every change after a commit."""
        if (after, oldest) not in self._kept:
            self._kept[after, oldest] = is_retained(self._connection, after, oldest)
        return self._kept[after, oldest]
