"""The SQL that is sent to an Oracle server, all of it.

What holds an SCN is fetched as text, and given as an integer: drivers make doubles of numbers whose digits no catalog
declares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.sources.offset import Key
from headrace.sources.oracle.captured_table import OracleTable
from headrace.sources.oracle.redo_codes import CHANGES, CONTROL, DDL, PIECES, UNSUPPORTED
from headrace.sources.snapshots import chunks
from headrace.sources.snapshots.chunks import KeyLimit

MINING_SESSION = (
    "ALTER SESSION SET NLS_DATE_FORMAT = 'YYYY-MM-DD HH24:MI:SS' "
    "NLS_TIMESTAMP_FORMAT = 'YYYY-MM-DD HH24:MI:SS.FF9' "
    "NLS_TIMESTAMP_TZ_FORMAT = 'YYYY-MM-DD HH24:MI:SS.FF9 TZH:TZM' "
    "NLS_NUMERIC_CHARACTERS = '.,' TIME_ZONE = '00:00'"
)
"""They decide how LogMiner prints values."""
BINARY_ORDER = "ALTER SESSION SET NLS_SORT = BINARY NLS_COMP = BINARY"
"""ORDER BY and comparisons follow settings of their own, which need not agree; chunks need one order."""
DATABASE = (
    "SELECT NAME, LOG_MODE, CDB, SUPPLEMENTAL_LOG_DATA_MIN, SUPPLEMENTAL_LOG_DATA_ALL, TO_CHAR(DBID), "
    "TO_CHAR(RESETLOGS_CHANGE#) FROM V$DATABASE"
)
_ROW = '"row#"'
CURRENT_SCN = "SELECT TO_CHAR(CURRENT_SCN) FROM V$DATABASE"
LAST_REDO = "SELECT TO_CHAR(MIN(LAST_REDO_CHANGE#)) FROM V$THREAD WHERE STATUS = 'OPEN'"
THREADS = "SELECT THREAD# FROM V$THREAD WHERE STATUS = 'OPEN'"
OLDEST_TRANSACTION = "SELECT TO_CHAR(MIN(START_SCN)) FROM V$TRANSACTION WHERE START_SCN > 0"
ZONE = "SELECT TO_CHAR(SYSTIMESTAMP, 'TZH:TZM') FROM DUAL"
CLOCK = "SELECT TO_CHAR(SYSTIMESTAMP, 'YYYY-MM-DD HH24:MI:SS'), TO_CHAR(SYSTIMESTAMP, 'TZH:TZM') FROM DUAL"
ONLINE_LOGS = (
    "SELECT MIN(F.MEMBER), L.THREAD#, L.SEQUENCE#, TO_CHAR(L.FIRST_CHANGE#), TO_CHAR(L.NEXT_CHANGE#), L.STATUS, "
    "L.ARCHIVED FROM V$LOG L JOIN V$LOGFILE F ON F.GROUP# = L.GROUP# "
    "GROUP BY L.THREAD#, L.SEQUENCE#, L.FIRST_CHANGE#, L.NEXT_CHANGE#, L.STATUS, L.ARCHIVED"
)
ARCHIVED_LOGS = (
    "SELECT A.NAME, A.THREAD#, A.SEQUENCE#, TO_CHAR(A.FIRST_CHANGE#), TO_CHAR(A.NEXT_CHANGE#), A.DEST_ID, "
    "A.DICTIONARY_BEGIN, A.DICTIONARY_END "
    "FROM V$ARCHIVED_LOG A JOIN V$DATABASE D ON D.RESETLOGS_CHANGE# = A.RESETLOGS_CHANGE# "
    "AND D.RESETLOGS_TIME = A.RESETLOGS_TIME "
    "WHERE A.ARCHIVED = 'YES' AND A.STATUS = 'A' AND A.NAME IS NOT NULL AND A.NEXT_CHANGE# > :low"
)
OLDEST_LOGS = (
    "SELECT TO_CHAR(MIN(CASE WHEN A.STATUS = 'A' THEN A.FIRST_TIME END), 'YYYY-MM-DD HH24:MI:SS'), "
    "COUNT(CASE WHEN A.STATUS = 'D' THEN 1 END) FROM V$ARCHIVED_LOG A "
    "JOIN V$DATABASE D ON D.RESETLOGS_CHANGE# = A.RESETLOGS_CHANGE# AND D.RESETLOGS_TIME = A.RESETLOGS_TIME "
    "WHERE A.ARCHIVED = 'YES'"
)
"""When the oldest archived log begins that is there, and how many were deleted."""
OLDEST_ONLINE_LOG = "SELECT TO_CHAR(MIN(FIRST_TIME), 'YYYY-MM-DD HH24:MI:SS') FROM V$LOG"
DESTINATIONS = "SELECT DEST_ID, DEST_NAME, STATUS, TYPE FROM V$ARCHIVE_DEST_STATUS ORDER BY DEST_ID"
ADD_LOG = "BEGIN SYS.DBMS_LOGMNR.ADD_LOGFILE(LOGFILENAME => :name, OPTIONS => SYS.DBMS_LOGMNR.ADDFILE); END;"
_START = (
    "BEGIN SYS.DBMS_LOGMNR.START_LOGMNR(STARTSCN => :low, ENDSCN => :high, OPTIONS => {} + "
    "SYS.DBMS_LOGMNR.NO_ROWID_IN_STMT); END;"
)
START = {
    "online_catalog": _START.format("SYS.DBMS_LOGMNR.DICT_FROM_ONLINE_CATALOG"),
    "redo_log_catalog": _START.format("SYS.DBMS_LOGMNR.DICT_FROM_REDO_LOGS + SYS.DBMS_LOGMNR.DDL_DICT_TRACKING"),
}
"""By the strategy: where LogMiner has names from."""
BUILD_DICTIONARY = "BEGIN SYS.DBMS_LOGMNR_D.BUILD(OPTIONS => SYS.DBMS_LOGMNR_D.STORE_IN_REDO_LOGS); END;"
END = "BEGIN SYS.DBMS_LOGMNR.END_LOGMNR(); END;"
TABLES = (
    "SELECT OWNER, TABLE_NAME FROM ALL_TABLES WHERE TEMPORARY = 'N' AND SECONDARY = 'N' AND NESTED = 'NO' "
    "AND (IOT_TYPE IS NULL OR IOT_TYPE = 'IOT') ORDER BY OWNER, TABLE_NAME"
)
FORCE_LOGGING = "SELECT FORCE_LOGGING FROM V$DATABASE"
ROW_ESTIMATES = "SELECT OWNER, TABLE_NAME, NUM_ROWS FROM ALL_TABLES WHERE NUM_ROWS IS NOT NULL"
NO_LOGGING = "SELECT OWNER, TABLE_NAME FROM ALL_TABLES WHERE LOGGING = 'NO' ORDER BY OWNER, TABLE_NAME"
EXEMPTIONS = (
    "SELECT PRIVILEGE FROM SESSION_PRIVS WHERE PRIVILEGE IN ('EXEMPT ACCESS POLICY', 'EXEMPT REDACTION POLICY')"
)
POLICIES = (
    "SELECT OBJECT_OWNER, OBJECT_NAME, POLICY_NAME FROM ALL_POLICIES WHERE SEL = 'YES' AND ENABLE = 'YES' "
    "ORDER BY OBJECT_OWNER, OBJECT_NAME, POLICY_NAME"
)
REDACTED = (
    "SELECT C.OBJECT_OWNER, C.OBJECT_NAME, C.COLUMN_NAME FROM REDACTION_COLUMNS C JOIN REDACTION_POLICIES P "
    "ON P.OBJECT_OWNER = C.OBJECT_OWNER AND P.OBJECT_NAME = C.OBJECT_NAME WHERE TRIM(P.ENABLE) = 'YES' "
    "ORDER BY C.OBJECT_OWNER, C.OBJECT_NAME, C.COLUMN_NAME"
)
ALL_COLUMN_LOGGING = "SELECT OWNER, TABLE_NAME FROM ALL_LOG_GROUPS WHERE LOG_GROUP_TYPE = 'ALL COLUMN LOGGING'"
COLUMNS = (
    "SELECT C.COLUMN_NAME, C.COLUMN_ID, C.DATA_TYPE, C.CHAR_LENGTH, C.DATA_LENGTH, C.DATA_PRECISION, C.DATA_SCALE, "
    "C.NULLABLE, C.DATA_DEFAULT, C.IDENTITY_COLUMN, V.VIRTUAL_COLUMN FROM ALL_TAB_COLUMNS C JOIN ALL_TAB_COLS V "
    "ON V.OWNER = C.OWNER AND V.TABLE_NAME = C.TABLE_NAME AND V.COLUMN_NAME = C.COLUMN_NAME "
    "WHERE C.OWNER = :owner AND C.TABLE_NAME = :name ORDER BY C.COLUMN_ID, V.INTERNAL_COLUMN_ID"
)
"""Of those that ALL_TAB_COLS has beside them, what users did not make is left out."""
KEYS = (
    "SELECT C.CONSTRAINT_TYPE, C.CONSTRAINT_NAME, K.COLUMN_NAME FROM ALL_CONSTRAINTS C JOIN ALL_CONS_COLUMNS K "
    "ON K.OWNER = C.OWNER AND K.CONSTRAINT_NAME = C.CONSTRAINT_NAME AND K.TABLE_NAME = C.TABLE_NAME "
    "WHERE C.OWNER = :owner AND C.TABLE_NAME = :name AND C.CONSTRAINT_TYPE IN ('P', 'U') AND C.STATUS = 'ENABLED' "
    "ORDER BY C.CONSTRAINT_TYPE, C.CONSTRAINT_NAME, K.POSITION"
)
BUILT_IN = (
    "SYS", "SYSTEM", "OUTLN", "XDB", "CTXSYS", "MDSYS", "ORDSYS", "ORDDATA", "OLAPSYS", "LBACSYS", "DVSYS", "DVF",
    "WMSYS", "DBSNMP", "APPQOSSYS", "AUDSYS", "GSMADMIN_INTERNAL", "OJVMSYS", "GGSYS", "DBSFWUSER",
    "REMOTE_SCHEDULER_AGENT",
)  # fmt: skip
"""Schemas that the database itself writes to."""
_MOST_IN_A_LIST = 900
"""Oracle takes a thousand (ORA-01795)."""


def container(pdb: str) -> str:
    """The statement after which the session is in a pluggable database (or in the root)."""
    return f"ALTER SESSION SET CONTAINER = {pdb}"


def quoted(name: str) -> str:
    return '"' + name + '"'


def flush(table: str) -> str:
    """The write that makes the log writer put its buffer on disk."""
    return f"UPDATE {table} SET SCN = :scn"


def flush_parts(table: str) -> tuple[str, str]:
    """How the flush table is made, and given its one row."""
    return f"CREATE TABLE {table} (SCN NUMBER(19))", f"INSERT INTO {table} (SCN) VALUES (0)"


def contents(tables: Sequence[tuple[str, str]], pdb: str, *, pieces: bool) -> str:
    """The rows of one mined range: what begins and ends transactions, definitions, and changes of these tables."""
    codes = _list(sorted(CHANGES | (PIECES if pieces else frozenset()) | {UNSUPPORTED}))
    where = ["SCN > :low", "SCN <= :high"]
    if pdb:
        where.append("SRC_CON_NAME = :pdb")
    built_in = ", ".join(map(literal, BUILT_IN))
    named = ["SEG_OWNER IS NULL", "SEG_OWNER = 'UNKNOWN'", "TABLE_NAME LIKE 'OBJ#%'"]
    for start in range(0, len(tables), _MOST_IN_A_LIST):
        part = tables[start : start + _MOST_IN_A_LIST]
        named.append(f"SEG_OWNER || '.' || TABLE_NAME IN ({', '.join(literal(f'{o}.{t}') for o, t in part)})")
    where.append(
        f"(OPERATION_CODE IN ({_list(CONTROL)})"
        f" OR (OPERATION_CODE = {DDL} AND (SEG_OWNER IS NULL OR SEG_OWNER NOT IN ({built_in}))"
        " AND (INFO IS NULL OR INFO NOT LIKE 'INTERNAL DDL%'))"
        f" OR (OPERATION_CODE IN ({codes}) AND ({' OR '.join(named)})))"
    )
    return (
        "SELECT TO_CHAR(SCN) AS SCN_TEXT, RAWTOHEX(XID) AS XID_TEXT, THREAD#, RS_ID, SSN, OPERATION_CODE, SEG_OWNER, "
        'TABLE_NAME, ROW_ID, "ROLLBACK", TO_CHAR("TIMESTAMP", \'YYYY-MM-DD HH24:MI:SS\') AS TIME_TEXT, USERNAME, '
        f"SQL_REDO, CSF, STATUS, INFO FROM V$LOGMNR_CONTENTS WHERE {' AND '.join(where)}"
    )


def _list(codes: Iterable[int]) -> str:
    return ", ".join(map(str, codes))


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def table_name(table: OracleTable) -> str:
    return f"{quoted(table.id.schema)}.{quoted(table.id.name)}"


def insert(table: OracleTable, columns: Sequence[str]) -> str:
    """One row into the signal table; values are :v0, :v1 and so on."""
    places = ", ".join(f":v{number}" for number in range(len(columns)))
    return f"INSERT INTO {table_name(table)} ({', '.join(map(quoted, columns))}) VALUES ({places})"


FLASH_BACK = "BEGIN SYS.DBMS_FLASHBACK.ENABLE_AT_SYSTEM_CHANGE_NUMBER(QUERY_SCN => :scn); END;"
"""From now on the session reads all tables as of an SCN."""
FLASH_FORWARD = "BEGIN SYS.DBMS_FLASHBACK.DISABLE; END;"


def any_row_of_select(select: str) -> str:
    return f"SELECT 1 FROM ({select}\n) T FETCH FIRST 1 ROWS ONLY"


def rows_of_select(table: OracleTable, select: str) -> str:
    """The captured columns of what a user's statement gives in place of the table."""
    # On a line of its own, because the statement may end with a comment.
    return f"SELECT {_shown(table)} FROM ({select}\n) T"


def any_row(table: OracleTable) -> str:
    return f"SELECT 1 FROM {table_name(table)} AS OF SCN :scn FETCH FIRST 1 ROWS ONLY"


def greatest_key(table: OracleTable, condition: str | None = None) -> str:
    """The table's last key at an SCN, among the rows that meet a condition."""
    shown = ", ".join(_key_columns(table))
    order = ", ".join(f"{quoted(name)} DESC" for name in table.chunk_key)
    where = f" WHERE ({condition}\n)" if condition else ""
    return f"SELECT {shown} FROM {table_name(table)} AS OF SCN :scn{where} ORDER BY {order} FETCH FIRST 1 ROWS ONLY"


def chunk_bounds(
    table: OracleTable,
    lower: Key | None,
    rows: int,
    chunks: int,
    *,
    last: Key | None = None,
    condition: str | None = None,
) -> tuple[str, dict[str, object]]:
    """The keys at which the next chunks end, by the server's own order; with the parameters.

    Args:
        table: it.
        lower: keys after this; None from the beginning.
        rows: how many rows a chunk has.
        chunks: how many keys at the most.
        last: keys up to and with this; None to the end.
        condition: a predicate of the user's that rows must meet; None for all.
    """
    names = ", ".join(map(quoted, table.chunk_key))
    where, parameters = _range(table, lower, last, condition)
    numbered = (
        f"SELECT {names}, ROW_NUMBER() OVER (ORDER BY {names}) AS {_ROW} FROM {table_name(table)} AS OF SCN :scn{where}"
    )
    shown = ", ".join(_key_columns(table))
    sql = (
        f"SELECT {shown} FROM ({numbered}) K WHERE MOD({_ROW}, {rows}) = 0 AND {_ROW} <= {rows * chunks} "
        f"ORDER BY {_ROW}"
    )
    return sql, parameters


def rows_in_range(
    table: OracleTable, lower: Key | None, upper: Key | None, *, condition: str | None = None, now: bool = False
) -> tuple[str, dict[str, object]]:
    """A chunk's rows by key, at an SCN or as they are now; with the parameters."""
    shown = _shown(table)
    where, parameters = _range(table, lower, upper, condition)
    order = f" ORDER BY {', '.join(map(quoted, table.chunk_key))}" if table.chunk_key else ""
    return f"SELECT {shown} FROM {table_name(table)}{'' if now else ' AS OF SCN :scn'}{where}{order}", parameters


def _shown(table: OracleTable) -> str:
    return ", ".join(
        native.projection(quoted(column.name)) + f' AS "c#{number}"'
        for number, (column, native) in enumerate(zip(table.schema.columns, table.natives, strict=True))
    )


def _key_columns(table: OracleTable) -> list[str]:
    # An ORDER BY takes such a name before a column's, so it must not be one that a table has.
    return [table.native(name).projection(quoted(name)) + f' AS "k#{n}"' for n, name in enumerate(table.chunk_key)]


def _range(
    table: OracleTable, lower: Key | None, upper: Key | None, condition: str | None = None
) -> tuple[str, dict[str, object]]:
    parameters: dict[str, object] = {}

    def limit(letter: str, number: int, text: str | None) -> KeyLimit:
        name = table.chunk_key[number]
        column, nullable, parameter = quoted(name), table.schema.column(name).nullable, f"{letter}{number}"
        if text is None:
            return KeyLimit(column, nullable)
        parameters[parameter] = text
        return KeyLimit(column, nullable, table.native(name).marker(parameter))

    bounds = (
        None if key is None else [limit(letter, number, text) for number, text in enumerate(key)]
        for letter, key in (("l", lower), ("u", upper))
    )
    inside, _ = chunks.between(*bounds, nulls_first=False)
    parts = ([f"({condition}\n)"] if condition else []) + ([inside] if inside else [])
    return (" WHERE " + " AND ".join(parts) if parts else ""), parameters
