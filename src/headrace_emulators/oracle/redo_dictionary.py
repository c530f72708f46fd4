"""`DBMS_LOGMNR_D.BUILD`: the dictionary is written into the redo logs."""

from __future__ import annotations

import re

from headrace_emulators.oracle.errors import DatabaseError
from headrace_emulators.oracle.redo_log import RedoLog

_CALL = re.compile(
    r"BEGIN\s+(?:SYS\.)?DBMS_LOGMNR_D\.BUILD\s*\("
    r"\s*OPTIONS\s*=>\s*(?:SYS\.)?DBMS_LOGMNR_D\.STORE_IN_REDO_LOGS\s*\)\s*;\s*END\s*;?",
    re.IGNORECASE,
)


def is_build(text: str) -> bool:
    """Whether a statement calls it, to store the dictionary in the redo logs."""
    return _CALL.fullmatch(text) is not None


def build(log: RedoLog, thread: int, time: str, container: str) -> None:
    """Write the dictionary into logs of its own. The caller holds the write transaction.

    Raises:
        DatabaseError: the session is in a pluggable database, or logs are not archived.
    """
    if container not in ("", "CDB$ROOT"):
        raise DatabaseError(65040, "operation not allowed from within a pluggable database")
    if log.fact("log_mode") != "ARCHIVELOG":
        raise DatabaseError(1325, "archive log mode must be enabled to build into the logstream")
    log.write_dictionary(thread, time)
