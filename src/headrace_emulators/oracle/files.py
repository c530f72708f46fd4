"""The SQLite file of an emulated database: its tables and views, and how it is opened."""

from __future__ import annotations

import re
import sqlite3
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from headrace_emulators.oracle.errors import DatabaseError
from headrace_emulators.oracle.redo_text import nameless

_SCHEMA = """
CREATE TABLE "sys.facts" (name TEXT PRIMARY KEY, value);
CREATE TABLE "sys.objects" (object_id INTEGER PRIMARY KEY, owner TEXT, name TEXT, created_scn INTEGER, version INTEGER,
  kind TEXT, all_columns INTEGER, changed_scn INTEGER, UNIQUE (owner, name));
CREATE TABLE "sys.columns" (object_id INTEGER, column_id INTEGER, name TEXT, type TEXT, length INTEGER,
  precision INTEGER, scale INTEGER, nullable INTEGER, default_text TEXT, identity INTEGER);
CREATE TABLE "sys.keys" (object_id INTEGER, name TEXT, kind TEXT, ordinal INTEGER, column_name TEXT);
CREATE TABLE "sys.threads" (thread INTEGER PRIMARY KEY, status TEXT, last_scn INTEGER, last_time TEXT);
CREATE TABLE "sys.logs" (thread INTEGER, sequence INTEGER, first_scn INTEGER, next_scn INTEGER, first_time TEXT,
  online INTEGER, archived INTEGER, deleted INTEGER, records INTEGER, dictionary_begin INTEGER DEFAULT 0,
  dictionary_end INTEGER DEFAULT 0, PRIMARY KEY (thread, sequence));
CREATE TABLE "sys.redo" (id INTEGER PRIMARY KEY, thread INTEGER, sequence INTEGER, rs_id TEXT, ssn INTEGER, scn INTEGER,
  xid BLOB, operation_code INTEGER, owner TEXT, name TEXT, row_id TEXT, rollback INTEGER, time TEXT, username TEXT,
  sql_redo TEXT, status INTEGER, info TEXT, object_id INTEGER, object_version INTEGER, con TEXT);
CREATE INDEX "sys.redo_scn" ON "sys.redo" (scn);
CREATE TABLE "sys.transactions" (xid BLOB PRIMARY KEY, thread INTEGER, start_scn INTEGER, start_time TEXT,
  username TEXT);
CREATE VIEW "V$DATABASE" AS SELECT
  (SELECT value FROM "sys.facts" WHERE name = 'name') AS NAME,
  (SELECT value FROM "sys.facts" WHERE name = 'dbid') AS DBID,
  (SELECT value FROM "sys.facts" WHERE name = 'scn') AS CURRENT_SCN,
  (SELECT value FROM "sys.facts" WHERE name = 'resetlogs') AS "RESETLOGS_CHANGE#",
  '2024-01-01 00:00:00' AS RESETLOGS_TIME,
  (SELECT value FROM "sys.facts" WHERE name = 'log_mode') AS LOG_MODE,
  coalesce((SELECT value FROM "sys.facts" WHERE name = 'force_logging'), 'NO') AS FORCE_LOGGING,
  (SELECT value FROM "sys.facts" WHERE name = 'cdb') AS CDB,
  (SELECT value FROM "sys.facts" WHERE name = 'supplemental') AS SUPPLEMENTAL_LOG_DATA_MIN,
  (SELECT value FROM "sys.facts" WHERE name = 'supplemental_all') AS SUPPLEMENTAL_LOG_DATA_ALL;
CREATE VIEW "V$THREAD" AS SELECT thread AS "THREAD#", status AS STATUS, 'PUBLIC' AS ENABLED,
  last_scn AS "LAST_REDO_CHANGE#", last_time AS LAST_REDO_TIME FROM "sys.threads";
CREATE VIEW "V$LOG" AS SELECT thread * 100 + sequence % 3 AS "GROUP#", thread AS "THREAD#", sequence AS "SEQUENCE#",
  first_scn AS "FIRST_CHANGE#", coalesce(next_scn, 281474976710655) AS "NEXT_CHANGE#", first_time AS FIRST_TIME,
  CASE WHEN next_scn IS NULL THEN 'CURRENT' ELSE 'INACTIVE' END AS STATUS,
  CASE WHEN archived THEN 'YES' ELSE 'NO' END AS ARCHIVED, 209715200 AS BYTES FROM "sys.logs" WHERE online;
CREATE VIEW "V$LOGFILE" AS SELECT thread * 100 + sequence % 3 AS "GROUP#", 'ONLINE' AS TYPE,
  'redo_' || thread || '_' || sequence || '_' || member AS MEMBER
  FROM "sys.logs", (SELECT 'a' AS member UNION ALL SELECT 'b') WHERE online;
CREATE VIEW "V$ARCHIVED_LOG" AS SELECT 'arch_' || thread || '_' || sequence AS NAME, thread AS "THREAD#",
  sequence AS "SEQUENCE#", first_scn AS "FIRST_CHANGE#", next_scn AS "NEXT_CHANGE#", first_time AS FIRST_TIME,
  CASE WHEN deleted THEN 'D' ELSE 'A' END AS STATUS, 'YES' AS ARCHIVED, 1 AS DEST_ID,
  CASE WHEN dictionary_begin THEN 'YES' ELSE 'NO' END AS DICTIONARY_BEGIN,
  CASE WHEN dictionary_end THEN 'YES' ELSE 'NO' END AS DICTIONARY_END,
  (SELECT value FROM "sys.facts" WHERE name = 'resetlogs') AS "RESETLOGS_CHANGE#",
  '2024-01-01 00:00:00' AS RESETLOGS_TIME FROM "sys.logs" WHERE archived;
CREATE VIEW "V$ARCHIVE_DEST_STATUS" AS SELECT 1 AS DEST_ID, 'LOG_ARCHIVE_DEST_1' AS DEST_NAME, 'VALID' AS STATUS,
  'LOCAL' AS TYPE;
CREATE VIEW "V$TRANSACTION" AS SELECT xid AS XID, start_scn AS START_SCN, start_time AS START_TIME
  FROM "sys.transactions";
CREATE VIEW "GV$TRANSACTION" AS SELECT thread AS INST_ID, * FROM "V$TRANSACTION", (SELECT 1 AS thread);
CREATE VIEW "ALL_TABLES" AS SELECT owner AS OWNER, name AS TABLE_NAME, 'N' AS TEMPORARY, 'N' AS SECONDARY,
  'NO' AS NESTED, NULL AS IOT_TYPE, NULL AS NUM_ROWS,
  CASE WHEN EXISTS (SELECT 1 FROM "sys.facts" f WHERE f.name = 'nologging.' || object_id) THEN 'NO' ELSE 'YES' END
  AS LOGGING FROM "sys.objects";
CREATE VIEW "ALL_OBJECTS" AS SELECT owner AS OWNER, name AS OBJECT_NAME, object_id AS OBJECT_ID,
  object_id AS DATA_OBJECT_ID, 'TABLE' AS OBJECT_TYPE FROM "sys.objects";
CREATE VIEW "ALL_TAB_COLUMNS" AS SELECT o.owner AS OWNER, o.name AS TABLE_NAME, c.name AS COLUMN_NAME,
  c.column_id AS COLUMN_ID, c.type AS DATA_TYPE, c.length AS DATA_LENGTH, c.length AS CHAR_LENGTH,
  c.precision AS DATA_PRECISION, c.scale AS DATA_SCALE, CASE WHEN c.nullable THEN 'Y' ELSE 'N' END AS NULLABLE,
  c.default_text AS DATA_DEFAULT, CASE WHEN c.identity THEN 'YES' ELSE 'NO' END AS IDENTITY_COLUMN
  FROM "sys.columns" c JOIN "sys.objects" o ON o.object_id = c.object_id;
CREATE VIEW "ALL_CONSTRAINTS" AS SELECT DISTINCT o.owner AS OWNER, o.name AS TABLE_NAME, k.name AS CONSTRAINT_NAME,
  k.kind AS CONSTRAINT_TYPE, 'ENABLED' AS STATUS FROM "sys.keys" k JOIN "sys.objects" o ON o.object_id = k.object_id;
CREATE VIEW "ALL_CONS_COLUMNS" AS SELECT o.owner AS OWNER, o.name AS TABLE_NAME, k.name AS CONSTRAINT_NAME,
  k.column_name AS COLUMN_NAME, k.ordinal AS POSITION
  FROM "sys.keys" k JOIN "sys.objects" o ON o.object_id = k.object_id;
CREATE VIEW "DUAL" AS SELECT 'X' AS DUMMY, datetime('now') || ' +00:00' AS SYSTIMESTAMP;
CREATE VIEW "ALL_LOG_GROUPS" AS SELECT owner AS OWNER, name AS TABLE_NAME, 'ALL COLUMN LOGGING' AS LOG_GROUP_TYPE
  FROM "sys.objects" WHERE all_columns;
"""
_LATER = """
ALTER TABLE "sys.columns" ADD COLUMN virtual INTEGER DEFAULT 0;
CREATE VIEW "ALL_TAB_COLS" AS SELECT o.owner AS OWNER, o.name AS TABLE_NAME, c.name AS COLUMN_NAME,
  c.column_id AS INTERNAL_COLUMN_ID, CASE WHEN c.virtual THEN 'YES' ELSE 'NO' END AS VIRTUAL_COLUMN
  FROM "sys.columns" c JOIN "sys.objects" o ON o.object_id = c.object_id;
CREATE TABLE "ALL_POLICIES" (OBJECT_OWNER TEXT, OBJECT_NAME TEXT, POLICY_NAME TEXT, SEL TEXT, ENABLE TEXT);
CREATE TABLE "REDACTION_POLICIES" (OBJECT_OWNER TEXT, OBJECT_NAME TEXT, POLICY_NAME TEXT, ENABLE TEXT);
CREATE TABLE "REDACTION_COLUMNS" (OBJECT_OWNER TEXT, OBJECT_NAME TEXT, COLUMN_NAME TEXT);
CREATE TABLE "SESSION_PRIVS" (PRIVILEGE TEXT);
"""
"""What the files of earlier releases lack."""
SUFFIX = ".sqlite"
BUSY_SECONDS = 30.0


def path_of(directory: Path, name: str) -> Path:
    return directory / f"{name.upper()}{SUFFIX}"


def create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(_SCHEMA + _LATER)
    connection.close()


def bring_forward(path: Path) -> None:
    """Give a file of an earlier release what it lacks."""
    connection = sqlite3.connect(path)
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'ALL_TAB_COLS'").fetchone() is None:
        connection.executescript(_LATER)
    connection.close()


def opened(path: Path) -> sqlite3.Connection:
    """A connection to the file, in which each statement is a transaction of its own until BEGIN."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = OFF")
    connection.create_collation("ORACLE_NUMBER", _compared)
    for name, arguments, function in _FUNCTIONS:
        connection.create_function(name, arguments, function, deterministic=True)
    return connection


def _compared(a: str, b: str) -> int:
    left, right = Decimal(a), Decimal(b)
    return (left > right) - (left < right)


_SHOWN = {
    "TZH:TZM": (re.compile(r".* ([+-]\d\d:\d\d)"), "{0}"),
    "YYYY-MM-DD HH24:MI:SS": (re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)"), "{0}"),
    "YYYY-MM-DD HH24:MI:SS.FF9": (re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d+))?"), "{0}.{1:0<9}"),
    'YYYY-MM-DD"T"HH24:MI:SS.FF9TZH:TZM': (
        re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d+))? ?([+-]\d\d:\d\d)?"),
        "{0}T{1}.{2:0<9}{3}",
    ),
}


def to_char(value: Any, form: str | None = None, _: str | None = None) -> str | None:
    """`TO_CHAR` of a number, a time or an interval, in the forms that are known."""
    if value is None:
        return None
    if form is None or form == "TM9":
        text = str(value)
        if type(value) is int:
            return text
        return re.sub(r"^(-?)0\.", r"\1.", text)
    return _time_shown(str(value), form)


@lru_cache(maxsize=1024)
def _time_shown(value: str, form: str) -> str:
    if form not in _SHOWN:
        raise DatabaseError(1821, "date format not recognized")
    pattern, shown = _SHOWN[form]
    match = pattern.match(value)
    if match is None:
        raise DatabaseError(1481, "invalid number format model")
    return shown.format(*(part or "" for part in match.groups()))


def _to_timestamp(value: Any, form: str | None = None) -> str | None:
    return None if value is None else re.sub(r"(\.\d*?)0+$", r"\1", str(value)).rstrip(".")


def _to_number(value: Any) -> Any:
    if value is None:
        return None
    text = str(value)
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else text


_FUNCTIONS: tuple[tuple[str, int, Any], ...] = (
    ("TO_CHAR", -1, to_char),
    ("TO_NUMBER", 1, _to_number),
    ("TO_DATE", 2, lambda value, form: value),
    ("TO_TIMESTAMP", 2, _to_timestamp),
    ("RAWTOHEX", 1, lambda value: None if value is None else value.hex().upper()),
    ("HEXTORAW", 1, lambda value: None if value is None else bytes.fromhex(value)),
    ("NVL", 2, lambda value, other: other if value is None else value),
    ("ROWIDTOCHAR", 1, lambda value: value),
    ("SYS_EXTRACT_UTC", 1, lambda value: value),
    ("XMLTOCLOB", 1, lambda value: value),
    # Not of the server's: for the emulated LogMiner.
    ("NAMELESS", 2, nameless),
)
