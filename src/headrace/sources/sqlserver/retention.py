"""Whether the changes that are still needed are still there, per capture instance (spec/sqlserver.md section 4).

SQL Server's clean-up job deletes old rows of change tables and moves the instance's start forward. Checked twice:
before a window is planned and after it was read, because the clean-up can run in between.
"""

from __future__ import annotations

from headrace.changes import TableId
from headrace.errors import DataLossError
from headrace.sources.sqlserver import lsn, statements
from headrace.sources.sqlserver.connection import Connection, MissingObject


def require_retained(connection: Connection, table: TableId, instance: str, after: str) -> None:
    """Every change of the table after a commit is still in its change table.

    An idle table whose start was moved past `after` has lost nothing as long as the server's commit mapping shows no
    transaction in between.

    Raises:
        DataLossError: some may have been cleaned.
        MissingObject: the capture instance is gone.
    """
    rows = connection.rows(statements.INSTANCE_START, (instance,))
    if not rows:
        raise MissingObject(
            f"Capture instance '{instance}' of table '{table.path}' is gone.",
            remedy="Enable change data capture for the table again and start with a new checkpoint.",
        )
    if rows[0][0] is None:
        return
    oldest = lsn.to_text(bytes(rows[0][0]))
    if oldest <= after or _nothing_between(connection, after, oldest):
        return
    raise DataLossError(
        f"Changes of table '{table.path}' after LSN {after} are needed, but capture instance '{instance}' "
        f"holds only those from LSN {oldest}: the rest was cleaned.",
        remedy=(
            "Take a new snapshot with a new checkpoint, and give the clean-up job a longer retention "
            "(sys.sp_cdc_change_job)."
        ),
    )


def _nothing_between(connection: Connection, after: str, oldest: str) -> bool:
    mapped = connection.value(statements.OLDEST_MAPPED)
    if mapped is None or lsn.to_text(bytes(mapped)) > after:
        # The mapping was cleaned as well, so it can't prove anything.
        return False
    # The instance's start itself is still held; only commits strictly before it could be missing.
    between = connection.value(statements.TRANSACTIONS_STRICTLY_BETWEEN, (lsn.to_bytes(after), lsn.to_bytes(oldest)))
    return not between
