"""Flashback: what a session may read of the past, and `DBMS_FLASHBACK`, by which all its queries do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headrace_emulators.oracle.catalog import Table
from headrace_emulators.oracle.errors import DatabaseError
from headrace_emulators.oracle.redo_log import RedoLog

_CALL = re.compile(
    r"BEGIN\s+(?:SYS\.)?DBMS_FLASHBACK\.(?:DISABLE|ENABLE_AT_SYSTEM_CHANGE_NUMBER\s*\("
    r"\s*(?:QUERY_SCN\s*=>\s*)?:(?P<scn>\w+)\s*\))\s*;\s*END\s*;?",
    re.IGNORECASE,
)


class Flashback:
    """One session's.

    Args:
        log: the database's.

    Attributes:
        scn: the SCN that all queries of the session see; null for the present.
    """

    def __init__(self, log: RedoLog) -> None:
        self._log = log
        self.scn: int | None = None

    def call(self, text: str, given: Mapping[str, Any], *, in_transaction: bool) -> bool:
        """Run a call of `DBMS_FLASHBACK`; whether it was one.

        Raises:
            DatabaseError: a transaction is open.
        """
        found = _CALL.fullmatch(text)
        if found is None:
            return False
        if found["scn"] and in_transaction:
            raise DatabaseError(8183, "Flashback cannot be enabled in the middle of a transaction")
        self.scn = int(given[found["scn"]]) if found["scn"] else None
        return True

    def require(self, table: Table, scn: int) -> None:
        """A table can be read as of an SCN.

        Raises:
            DatabaseError: it can't.
        """
        if scn < table.changed_scn:
            raise DatabaseError(1466, "unable to read data - table definition has changed")
        if scn < int(self._log.fact("undo_scn")):
            raise DatabaseError(1555, "snapshot too old")
        if scn > int(self._log.fact("scn")):
            raise DatabaseError(8181, "specified number is not a valid system change number")
