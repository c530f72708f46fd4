"""LogMiner: which logs a session added, what it started with, and the rows that it then sees."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any

from headrace_emulators.oracle.errors import DatabaseError, NotSupportedError

_CALL = re.compile(
    r"BEGIN\s+(?:SYS\.)?DBMS_LOGMNR\.(?P<procedure>\w+)\s*(?:\((?P<arguments>.*)\))?\s*;\s*END\s*;?",
    re.IGNORECASE | re.DOTALL,
)
_ARGUMENT = re.compile(r"\s*(\w+)\s*=>\s*(.+?)\s*", re.DOTALL)
_FLAGS = {
    "ADDFILE": 0, "NEW": 1, "DDL_DICT_TRACKING": 8, "DICT_FROM_ONLINE_CATALOG": 16, "DICT_FROM_REDO_LOGS": 32,
    "NO_SQL_DELIMITER": 64, "NO_ROWID_IN_STMT": 2048,
}  # fmt: skip
_REFUSED = ("CONTINUOUS_MINE", "COMMITTED_DATA_ONLY", "SKIP_CORRUPTION")
SETTINGS = {
    "NLS_DATE_FORMAT": "YYYY-MM-DD HH24:MI:SS",
    "NLS_TIMESTAMP_FORMAT": "YYYY-MM-DD HH24:MI:SS.FF9",
    "NLS_TIMESTAMP_TZ_FORMAT": "YYYY-MM-DD HH24:MI:SS.FF9 TZH:TZM",
    "NLS_NUMERIC_CHARACTERS": ".,",
    "TIME_ZONE": "00:00",
}
_OPERATIONS = {
    0: "INTERNAL", 1: "INSERT", 2: "DELETE", 3: "UPDATE", 5: "DDL", 6: "START", 7: "COMMIT", 9: "SELECT_LOB_LOCATOR",
    10: "LOB_WRITE", 11: "LOB_TRIM", 34: "MISSING_SCN", 36: "ROLLBACK", 68: "XML DOC BEGIN", 70: "XML DOC WRITE",
    71: "XML DOC END", 255: "UNSUPPORTED",
}  # fmt: skip


_ROW_CHANGES = (1, 2, 3, 9, 10, 11, 68, 70, 71)


class LogMiner:
    """LogMiner's state of one session.

    Args:
        connection: the session's, to the database's file.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.settings: Mapping[str, str] = {}
        self._added: list[tuple[str, int, int]] = []
        self._started: tuple[int, int, bool] | None = None

    def call(self, text: str, given: Mapping[str, Any]) -> None:
        """Run `BEGIN DBMS_LOGMNR.procedure(...); END;`.

        Raises:
            DatabaseError: as a server would answer.
        """
        found = _CALL.fullmatch(text.strip())
        if found is None:
            raise NotSupportedError("PL/SQL other than a call of DBMS_LOGMNR")
        arguments = {}
        for part in (found["arguments"] or "").split(","):
            if part.strip():
                match = _ARGUMENT.fullmatch(part)
                if match is None:
                    raise DatabaseError(6550, "PLS-00103: arguments are given by name")
                arguments[match[1].upper()] = self._value(match[2], given)
        procedures = {
            "ADD_LOGFILE": self._add,
            "REMOVE_LOGFILE": self._remove,
            "START_LOGMNR": self._start,
            "END_LOGMNR": self._end,
        }
        procedure = procedures.get(found["procedure"].upper())
        if procedure is None:
            raise DatabaseError(6550, f"PLS-00302: component '{found['procedure'].upper()}' must be declared")
        procedure(arguments)

    def _value(self, text: str, given: Mapping[str, Any]) -> Any:
        if text.startswith(":"):
            return given[text[1:]]
        if text.startswith("'"):
            return text[1:-1].replace("''", "'")
        total = 0
        for part in text.split("+"):
            word = part.strip().upper().removeprefix("SYS.").removeprefix("DBMS_LOGMNR.")
            if word in _REFUSED:
                raise NotSupportedError(f"DBMS_LOGMNR.{word}")
            total += _FLAGS[word] if word in _FLAGS else int(word)
        return total

    def _add(self, arguments: Mapping[str, Any]) -> None:
        name = str(arguments["LOGFILENAME"])
        match = re.fullmatch(r"(?:redo|arch)_(\d+)_(\d+)(?:_[ab])?", name)
        row = None
        if match:
            row = self._connection.execute(
                'SELECT online, archived, deleted FROM "sys.logs" WHERE thread = ? AND sequence = ?',
                (int(match[1]), int(match[2])),
            ).fetchone()
        online = name.startswith("redo")
        if match is None or row is None or (online and not row[0]) or (not online and (not row[1] or row[2])):
            raise DatabaseError(1284, f"file {name} cannot be opened")
        place = (int(match[1]), int(match[2]))
        if any(added[1:] == place for added in self._added):
            raise DatabaseError(1289, f"cannot add duplicate logfile {name}")
        self._added.append((name, *place))

    def _remove(self, arguments: Mapping[str, Any]) -> None:
        name = str(arguments["LOGFILENAME"])
        if not any(added[0] == name for added in self._added):
            raise DatabaseError(1290, f"cannot remove unlisted logfile {name}")
        self._added = [added for added in self._added if added[0] != name]

    def _start(self, arguments: Mapping[str, Any]) -> None:
        wrong = [name for name, value in SETTINGS.items() if self.settings.get(name) != value]
        if wrong:
            raise NotSupportedError(f"mining with another {wrong[0]} than {SETTINGS[wrong[0]]}")
        low, high = int(arguments["STARTSCN"]), int(arguments["ENDSCN"])
        tracked = self._follows_definitions(int(arguments.get("OPTIONS", 0)))
        if not self._added:
            raise DatabaseError(1292, "no log file has been specified for the current LogMiner session")
        if high < low:
            raise DatabaseError(1281, "SCN range specified is invalid")
        needed = self._dictionary(low) if tracked else low
        for (thread,) in self._connection.execute(
            "SELECT thread FROM \"sys.threads\" WHERE status = 'OPEN'"
        ).fetchall():
            self._require_cover(int(thread), needed, high)
        self._started = (low, high, tracked)

    @staticmethod
    def _follows_definitions(options: int) -> bool:
        """Whether names are those of a dictionary in the logs, and not of the catalog as it is."""
        online, in_logs, tracking = (
            bool(options & _FLAGS[name])
            for name in ("DICT_FROM_ONLINE_CATALOG", "DICT_FROM_REDO_LOGS", "DDL_DICT_TRACKING")
        )
        if online and (in_logs or tracking):
            raise DatabaseError(1298, "conflicting dictionary option")
        if not online and not (in_logs and tracking):
            raise NotSupportedError(
                "mining without DICT_FROM_ONLINE_CATALOG, or DICT_FROM_REDO_LOGS + DDL_DICT_TRACKING"
            )
        return in_logs

    def _dictionary(self, low: int) -> int:
        """The first SCN of the dictionary in the added logs; it has to be whole and before what is mined.

        Definitions after it are read from there on.
        """
        added = {added[1:] for added in self._added}
        first: dict[tuple[int, int], int] = {}
        found = []
        for thread, sequence, begin, end, begins, ends in self._connection.execute(
            'SELECT thread, sequence, first_scn, next_scn, dictionary_begin, dictionary_end FROM "sys.logs"'
            " WHERE archived ORDER BY thread, sequence"
        ).fetchall():
            if (thread, sequence) not in added:
                continue
            if begins:
                first[thread, sequence] = begin
            elif (thread, sequence - 1) in first:
                first[thread, sequence] = first[thread, sequence - 1]
            if ends and (thread, sequence) in first and end <= low:
                found.append(first[thread, sequence])
        if not found:
            raise DatabaseError(1371, "Complete LogMiner dictionary not found")
        return int(max(found))

    def _require_cover(self, thread: int, low: int, high: int) -> None:
        added = {sequence for _, of, sequence in self._added if of == thread}
        logs = self._connection.execute(
            'SELECT sequence FROM "sys.logs" WHERE thread = ? AND first_scn <= ? AND coalesce(next_scn, 9e18) > ?',
            (thread, high, low),
        ).fetchall()
        if any(int(sequence) not in added for (sequence,) in logs):
            raise DatabaseError(1291, f"missing logfile of thread {thread}")

    def _end(self, arguments: Mapping[str, Any]) -> None:
        if self._started is None:
            raise DatabaseError(1307, "no LogMiner session is currently active")
        self._started = None
        self._added = []

    def show(self, *, mined: bool) -> None:
        """Make the views that this session sees.

        Raises:
            DatabaseError: rows are queried and mining was not started.
        """
        execute = self._connection.execute
        execute('CREATE TEMP TABLE IF NOT EXISTS "V$LOGMNR_LOGS" (FILENAME TEXT, "THREAD_ID" INTEGER, seq INTEGER)')
        execute('DELETE FROM temp."V$LOGMNR_LOGS"')
        self._connection.executemany('INSERT INTO temp."V$LOGMNR_LOGS" VALUES (?, ?, ?)', self._added)
        if not mined:
            return
        if self._started is None:
            raise DatabaseError(
                1306, "dbms_logmnr.start_logmnr() must be invoked before selecting from v$logmnr_contents"
            )
        low, high, tracked = self._started
        execute('DROP VIEW IF EXISTS temp."V$LOGMNR_CONTENTS"')
        # With the catalog as it is now nothing is known of the names that a table had before a definition.
        row_changes = f"r.operation_code IN ({', '.join(map(str, _ROW_CHANGES))})"
        nameless = "0" if tracked else f"(o.object_id IS NULL AND r.object_id IS NOT NULL AND {row_changes})"
        names = " ".join(f"WHEN {code} THEN '{name}'" for code, name in _OPERATIONS.items())
        execute(
            'CREATE TEMP VIEW "V$LOGMNR_CONTENTS" AS SELECT r.scn AS SCN, r.xid AS XID, r.thread AS "THREAD#",'
            ' r.sequence AS "SEQUENCE#", r.rs_id AS RS_ID, r.ssn AS SSN, r.operation_code AS OPERATION_CODE,'
            f" CASE r.operation_code {names} END AS OPERATION, CASE WHEN {nameless} THEN 'UNKNOWN' ELSE r.owner END"
            f" AS SEG_OWNER, CASE WHEN {nameless} THEN 'OBJ# ' || r.object_id ELSE r.name END AS TABLE_NAME,"
            " r.row_id AS ROW_ID, r.rollback AS ROLLBACK, r.time AS TIMESTAMP, r.username AS USERNAME,"
            f" CASE WHEN {nameless} THEN NAMELESS(r.sql_redo, r.object_id) ELSE r.sql_redo END AS SQL_REDO, 0 AS CSF,"
            f" CASE WHEN {nameless} THEN 2 ELSE r.status END AS STATUS,"
            f" CASE WHEN {nameless} THEN 'Dictionary Mismatch' ELSE r.info END AS INFO, r.con AS SRC_CON_NAME,"
            ' r.object_id AS "DATA_OBJ#", r.object_version AS "DATA_OBJV#"'
            ' FROM main."sys.redo" r JOIN temp."V$LOGMNR_LOGS" l ON l."THREAD_ID" = r.thread AND l.seq = r.sequence'
            ' LEFT JOIN main."sys.objects" o ON o.object_id = r.object_id AND o.version = r.object_version'
            f" WHERE r.scn BETWEEN {low} AND {high}"
            f' AND r.scn <= (SELECT last_scn FROM main."sys.threads" t WHERE t.thread = r.thread)'
            " ORDER BY r.scn, r.thread, r.id"
        )

    def split(self, columns: tuple[str, ...], rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Rows whose statement is long come in pieces, all but the last with CSF = 1."""
        if "SQL_REDO" not in columns or "CSF" not in columns:
            yield from rows
            return
        text, flag = columns.index("SQL_REDO"), columns.index("CSF")
        most = int(self._connection.execute("SELECT value FROM \"sys.facts\" WHERE name = 'csf_bytes'").fetchone()[0])
        for row in rows:
            if not row[text] or len(row[text]) * 4 <= most:
                # Most statements are short enough in any encoding.
                yield row
                continue
            pieces = list(_pieces(row[text], most))
            for number, piece in enumerate(pieces, 1):
                shown = list(row)
                shown[text], shown[flag] = piece, int(number < len(pieces))
                yield tuple(shown)


def _pieces(text: str, most: int) -> Iterator[str]:
    """A text in pieces of so many bytes at the most; characters stay whole."""
    data = text.encode()
    start = 0
    while start < len(data):
        end = min(start + most, len(data))
        while end > start and end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        while end == start or (end < len(data) and data[end] & 0xC0 == 0x80):
            # A character that is longer than a piece may be is a piece of its own.
            end += 1
        piece = data[start:end]
        yield piece.decode()
        start = end
