"""When everything that the log shows as committed before a position can be seen by SQL.

A transaction is written to the log as committed, and only then does the server let others see it. In between it waits
for a synchronous standby, which may take hours. A row that is read meanwhile is older than a change that was delivered.
"""

from __future__ import annotations

import time

from headrace.sources.postgresql.connection import Connection

_SECONDS = 2.0
_POLL_SECONDS = 0.02
_NEXT = "SELECT age('3'::xid)::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::numeric"
_OLDEST = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::numeric"
_WHO = """
SELECT l.pid, a.application_name, a.usename::text, a.wait_event = 'SyncRep' FROM pg_locks l
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.transactionid = %s::text::xid
"""
_PREPARED = "SELECT gid FROM pg_prepared_xacts WHERE transaction = %s::text::xid"
_XIDS = 1 << 32
_FIRST_XID = 3


class Visibility:
    """Waits until what was committed before now can be seen by every later query. Runs in the planner.

    The rule is simple: all transactions that have written when it begins have ended when it is over. So one that is
    open for an hour holds reads up for that hour, whatever it writes. It is waited for once and then only looked at.
    """

    def __init__(self) -> None:
        self._in_the_way = -1

    def wait_for(self, connection: Connection) -> str | None:
        """Wait, 2 seconds at most, until all that the log has now can be seen.

        Returns:
            Null when it can; or the sentence that names the transaction in the way.
        """
        upto = next_xid(connection)
        deadline = time.monotonic() + _SECONDS
        while (oldest := int(connection.value(_OLDEST))) < upto:
            if oldest == self._in_the_way or time.monotonic() >= deadline:
                self._in_the_way = oldest
                return _sentence(connection, oldest)
            time.sleep(_POLL_SECONDS)
        return None


def next_xid(connection: Connection) -> int:
    """The number that the next transaction will have; none is used up.

    The end of a snapshot is not it: that is behind the last transaction that has ended.
    """
    age, next_id = connection.rows(_NEXT)[0]
    number = (int(age) + _FIRST_XID) % _XIDS
    # The server counts in 64 bits, and shows 32 of them here.
    whole = int(next_id) // _XIDS * _XIDS + number
    return whole if whole >= int(next_id) else whole + _XIDS


def _sentence(connection: Connection, xid: int) -> str:
    short = xid % _XIDS
    prepared = connection.value(_PREPARED, (short,))
    if prepared is not None:
        return f"Transaction {xid} is prepared as '{prepared}' and not ended."
    lines = connection.rows(_WHO, (short,))
    if not lines:
        return f"Transaction {xid} is not ended."
    pid, application, user, waits = lines[0]
    who = ", ".join(part for part in (application, f"user {user}" if user else "") if part)
    session = f"session {pid} ({who})" if who else f"session {pid}"
    if waits:
        return f"Transaction {xid} of {session} waits for a synchronous standby."
    return f"Transaction {xid} of {session} is open."
