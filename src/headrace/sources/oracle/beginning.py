"""Where a snapshot and the stream after it begin."""

from __future__ import annotations

import logging

from headrace.errors import CaptureError, DataLossError, PositionMismatch
from headrace.sources.offset import Offset
from headrace.sources.oracle import logs, scn, statements
from headrace.sources.oracle.connection import Connection
from headrace.sources.oracle.database_state import DatabaseState
from headrace.sources.oracle.mining import archived, attempts
from headrace.sources.oracle.mining_state import MiningState
from headrace.sources.oracle.options import OracleSettings

_LOG = logging.getLogger("headrace.sources")


def no_capture(root: Connection) -> CaptureError | None:
    """Why the database's log can't be mined, with the statement that helps; None where it can.

    The one diagnosis that every command gives.
    """
    state = DatabaseState.of(root)
    if not state.archives_log:
        return CaptureError(
            f"Database '{state.name}' is not in ARCHIVELOG mode: logs are overwritten before they are read.",
            remedy="Run ALTER DATABASE ARCHIVELOG.",
        )
    if not state.logs_minimum:
        return CaptureError(
            f"Database '{state.name}' does not log what LogMiner needs.",
            remedy="Run ALTER DATABASE ADD SUPPLEMENTAL LOG DATA.",
        )
    return None


def require_set_up(root: Connection) -> str:
    """See that the database's log can be mined; gives its incarnation.

    Raises:
        CaptureError: it can't.
    """
    reason = no_capture(root)
    if reason is not None:
        raise reason
    return DatabaseState.of(root).resetlogs


def require_not_restored(root: Connection, start: Offset, database: str) -> None:
    """Stop where the database is older than what was delivered, as after a restore of a backup.

    Raises:
        PositionMismatch: it has.
    """
    delivered = scn.number(start.commit)
    same = DatabaseState.of(root).resetlogs == MiningState.of(start).resetlogs
    if not same or int(root.value(statements.CURRENT_SCN)) < delivered:
        raise PositionMismatch(
            f"Database '{database}' was opened with RESETLOGS or is older than SCN {delivered}, up to which changes "
            "were delivered: it was restored.",
            remedy="Take a new snapshot with a new checkpoint.",
        )


def place(root: Connection, settings: OracleSettings) -> tuple[int, int]:
    """The SCN after which the log is mined, and that of the snapshot.

    Raises:
        CaptureError: a transaction is open from before the dictionary in the redo logs.
    """
    begin = at = 0
    for _ in attempts():
        # In this order: whatever was open at the snapshot began before the second look, or is among those seen.
        before = int(root.value(statements.CURRENT_SCN))
        oldest = root.value(statements.OLDEST_TRANSACTION)
        at = int(root.value(statements.CURRENT_SCN))
        begin = min(before, int(oldest) if oldest is not None else before) - 1
        if settings.log_mining_strategy != logs.IN_REDO:
            return begin, at
        try:
            logs.mined_from(archived(root, settings), begin)
            return begin, at
        except DataLossError as error:
            _LOG.debug("A transaction is open that began before the dictionary: %s", error)
    raise CaptureError(
        f"A transaction is open that began at SCN {begin + 1}, before the dictionary in the redo logs.",
        remedy="Start when it has ended, or mine with 'log_mining_strategy' online_catalog.",
    )


def keep_dictionary_new(root: Connection, settings: OracleSettings) -> None:
    """Have the dictionary written again where many logs were filled since, so that these may go."""
    if logs.is_old(archived(root, settings), settings.dictionary_logs):
        logs.write(root)


def scn_after_new_dictionary(root: Connection, settings: OracleSettings) -> int:
    """The SCN from which the log can be mined, no matter what was lost: the end of a dictionary that is written now."""
    logs.write(root)
    return logs.dictionaries(archived(root, settings))[-1][1].next - 1
