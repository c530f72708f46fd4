"""Whether the changes that are still needed are still there, per capture instance.

SQL Server's clean-up job deletes old rows of change tables and moves the instance's start forward. Checked twice:
before a window is planned and after it was read, because the clean-up can run in between.
"""

from __future__ import annotations

from headrace.changes import TableId
from headrace.errors import DataLossError
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.captured_table import CapturedTable, CatalogTable
from headrace.sources.change_tables.connection import Connection, MissingObject
from headrace.sources.change_tables.schema_history import Window


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
