"""Every statement that goes to the server; nothing else is sent.

Only `headrace.sources.change_tables.statements`, which writes what servers write alike, holds SQL besides.

Identifiers are always quoted and values always bound; what is written into a text are our own names and numbers. Types
define in `types` how their columns are selected.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headrace.sources.change_tables.captured_table import CapturedTable, NativeType
from headrace.sources.change_tables.statements import Bound, KeyRanges, Query

# The catalog.

DATABASE = "SELECT d.name, d.is_cdc_enabled FROM sys.databases AS d WHERE d.name = ?"
TABLES = """
SELECT s.name, t.name, t.object_id,
       CASE WHEN EXISTS (SELECT 1 FROM cdc.change_tables AS c WHERE c.source_object_id = t.object_id) THEN 1 ELSE 0 END
FROM sys.tables AS t JOIN sys.schemas AS s ON s.schema_id = t.schema_id
WHERE t.is_ms_shipped = 0 AND s.name <> 'cdc' AND t.temporal_type <> 1
ORDER BY s.name, t.name
"""
COLUMNS = """
SELECT c.object_id, c.name, c.column_id,
       CASE WHEN b.is_assembly_type = 1 AND b.is_user_defined = 1 THEN 'clr' ELSE b.name END,
       c.max_length, c.precision, c.scale, c.is_nullable, c.is_identity, c.is_computed, d.definition, e.value,
       c.collation_name, c.encryption_type
FROM sys.columns AS c
JOIN sys.tables AS t ON t.object_id = c.object_id
JOIN sys.types AS u ON u.user_type_id = c.user_type_id
JOIN sys.types AS b ON b.user_type_id = CASE WHEN u.system_type_id = 240 THEN u.user_type_id ELSE u.system_type_id END
LEFT JOIN sys.default_constraints AS d ON d.object_id = c.default_object_id
LEFT JOIN sys.extended_properties AS e
       ON e.class = 1 AND e.major_id = c.object_id AND e.minor_id = c.column_id AND e.name = 'MS_Description'
WHERE t.object_id IN (SELECT x.source_object_id FROM cdc.change_tables AS x)
ORDER BY c.object_id, c.column_id
"""
KEYS = """
SELECT i.object_id, i.index_id, i.is_primary_key, k.column_id
FROM sys.indexes AS i
JOIN sys.index_columns AS k ON k.object_id = i.object_id AND k.index_id = i.index_id
WHERE i.is_unique = 1 AND i.is_disabled = 0 AND i.has_filter = 0 AND k.is_included_column = 0
      AND i.object_id IN (SELECT x.source_object_id FROM cdc.change_tables AS x)
ORDER BY i.object_id, i.is_primary_key DESC, i.index_id, k.key_ordinal
"""
CAPTURE_INSTANCES = """
SELECT t.source_object_id, t.capture_instance, t.object_id, t.start_lsn, t.create_date
FROM cdc.change_tables AS t WHERE t.source_object_id IS NOT NULL
ORDER BY t.source_object_id, t.create_date, t.object_id
"""
CAPTURED_COLUMNS = """
SELECT c.object_id, c.column_name, c.column_id, c.column_ordinal FROM cdc.captured_columns AS c ORDER BY c.object_id,
c.column_ordinal
"""
CHANGE_TABLES_WITH_COMMAND = """
SELECT c.object_id FROM sys.columns AS c JOIN cdc.change_tables AS t ON t.object_id = c.object_id WHERE c.name =
'__$command_id'
"""
TABLE_COMMENTS = """
SELECT e.major_id, e.value FROM sys.extended_properties AS e WHERE e.class = 1 AND e.minor_id = 0 AND e.name =
'MS_Description'
"""
COLUMN_NAMES = (
    "SELECT c.name FROM sys.columns AS c JOIN sys.tables AS t ON t.object_id = c.object_id "
    "JOIN sys.schemas AS s ON s.schema_id = t.schema_id WHERE s.name = ? AND t.name = ?"
)
INSTANCES = "SELECT t.capture_instance, t.object_id, t.start_lsn FROM cdc.change_tables AS t ORDER BY t.object_id"
INSTANCE_START = "SELECT t.start_lsn, t.object_id FROM cdc.change_tables AS t WHERE t.capture_instance = ?"
DDL_STATE = "SELECT COUNT_BIG(*), MAX(h.ddl_lsn) FROM cdc.ddl_history AS h"
LAST_DDL = "SELECT MAX(h.ddl_lsn) FROM cdc.ddl_history AS h WHERE h.object_id = ? AND h.ddl_lsn > ?"
ALTERATIONS = (
    "SELECT h.object_id, h.ddl_lsn, h.ddl_command FROM cdc.ddl_history AS h WHERE h.ddl_lsn > ? AND h.ddl_lsn <= ? "
    "ORDER BY h.ddl_lsn"
)
ALTERATIONS_COUNT = "SELECT COUNT_BIG(*) FROM cdc.ddl_history AS h WHERE h.ddl_lsn > ? AND h.ddl_lsn <= ?"
SWITCHABLE = (
    "SELECT DISTINCT s.name, t.name FROM cdc.change_tables AS c JOIN sys.tables AS t ON t.object_id = "
    "c.source_object_id JOIN sys.schemas AS s ON s.schema_id = t.schema_id JOIN sys.partitions AS p ON p.object_id = "
    "t.object_id WHERE c.partition_switch = 1 AND p.partition_number > 1 ORDER BY s.name, t.name"
)
ROW_ESTIMATES = (
    "SELECT s.name, t.name, SUM(p.rows) FROM sys.partitions AS p JOIN sys.tables AS t ON t.object_id = p.object_id "
    "JOIN sys.schemas AS s ON s.schema_id = t.schema_id WHERE p.index_id IN (0, 1) GROUP BY s.name, t.name"
)

# Commits and the server's clock.

MAX_LSN = "SELECT sys.fn_cdc_get_max_lsn()"
NEWEST_TRANSACTION = "SELECT MAX(m.start_lsn) FROM cdc.lsn_time_mapping AS m WHERE m.tran_id <> 0x00"
OLDEST_MAPPED = "SELECT MIN(m.start_lsn) FROM cdc.lsn_time_mapping AS m"
NTH_COMMIT_AFTER = (
    "SELECT MAX(x.start_lsn) FROM (SELECT TOP (?) m.start_lsn FROM cdc.lsn_time_mapping AS m "
    "WHERE m.start_lsn > ? ORDER BY m.start_lsn) AS x"
)
TRANSACTIONS_BETWEEN = (
    "SELECT COUNT_BIG(*) FROM cdc.lsn_time_mapping AS m "
    "WHERE m.start_lsn > ? AND m.start_lsn <= ? AND m.tran_id <> 0x00"
)
TRANSACTIONS_STRICTLY_BETWEEN = (
    "SELECT COUNT_BIG(*) FROM cdc.lsn_time_mapping AS m WHERE m.start_lsn > ? AND m.start_lsn < ? AND m.tran_id <> 0x00"
)
EVERY_NTH_COMMIT = (
    "SELECT x.start_lsn FROM (SELECT m.start_lsn, ROW_NUMBER() OVER (ORDER BY m.start_lsn) AS n "
    "FROM cdc.lsn_time_mapping AS m WHERE m.start_lsn > ? AND m.start_lsn <= ? AND m.tran_id <> 0x00) AS x "
    "WHERE x.n % ? = 0 ORDER BY x.start_lsn"
)
TRANSACTIONS_BEFORE = (
    "SELECT TOP (?) m.start_lsn, m.tran_end_time, m.tran_begin_time FROM cdc.lsn_time_mapping AS m "
    "WHERE m.start_lsn < ? AND m.tran_id <> 0x00 ORDER BY m.start_lsn DESC"
)
COMMIT_TIME = "SELECT m.tran_end_time FROM cdc.lsn_time_mapping AS m WHERE m.start_lsn = ?"
_COMMIT_TIMES = (
    "SELECT m.start_lsn, m.tran_end_time{} FROM cdc.lsn_time_mapping AS m "
    "WHERE m.start_lsn > ? AND m.start_lsn <= ? ORDER BY m.start_lsn"
)
COMMIT_TIMES = {"end": _COMMIT_TIMES.format(""), "begin": _COMMIT_TIMES.format(", m.tran_begin_time")}
FIRST_SINCE = "SELECT MIN(m.start_lsn) FROM cdc.lsn_time_mapping AS m WHERE m.tran_end_time >= CAST(? AS datetime)"
FIRST_REPEATED = (
    "SELECT TOP (1) x.start_lsn, x.peak FROM (SELECT m.start_lsn, m.tran_end_time, "
    "MAX(m.tran_end_time) OVER (ORDER BY m.start_lsn ROWS UNBOUNDED PRECEDING) AS peak "
    "FROM cdc.lsn_time_mapping AS m "
    "WHERE m.tran_end_time >= CAST(? AS datetime) AND m.tran_end_time < CAST(? AS datetime)) AS x "
    "WHERE x.tran_end_time < CAST(? AS datetime) "
    "AND (x.tran_end_time < DATEADD(minute, -1, x.peak) OR x.peak >= CAST(? AS datetime)) ORDER BY x.start_lsn"
)
"""The first commit of a repeated hour whose time is a second reading, and the latest local time up to it."""
FIRST_SETTLED = (
    "SELECT TOP (1) m.start_lsn FROM cdc.lsn_time_mapping AS m WHERE m.start_lsn > ? "
    "AND (m.tran_end_time >= CAST(? AS datetime) AND m.tran_end_time < CAST(? AS datetime) "
    "OR m.tran_end_time >= CAST(? AS datetime)) ORDER BY m.start_lsn"
)
"""The first commit after that one from which on all are second readings."""
SERVER_VERSION = (
    "SELECT CAST(SERVERPROPERTY('ProductMajorVersion') AS int), CAST(SERVERPROPERTY('EngineEdition') AS int)"
)
SERVER_ZONE = "SELECT CURRENT_TIMEZONE_ID()"
"""Does not compile before SQL Server 2022, so it is sent only where the version is known."""

# Whether capture works.

NEWEST_EMPTY_SCAN = (
    "SELECT TOP (1) s.session_id, s.empty_scan_count, s.end_time FROM sys.dm_cdc_log_scan_sessions AS s "
    "WHERE s.session_id > 0 AND s.empty_scan_count > 0 ORDER BY s.session_id DESC"
)
TIME_AND_CLOCK = "SELECT SYSDATETIME(), DATEPART(TZOFFSET, SYSDATETIMEOFFSET())"
NEWEST_MARK = "SELECT TOP (1) m.start_lsn, m.tran_end_time FROM cdc.lsn_time_mapping AS m ORDER BY m.start_lsn DESC"
FIRST_TRANSACTION_AFTER = (
    "SELECT TOP (1) m.start_lsn, m.tran_end_time FROM cdc.lsn_time_mapping AS m "
    "WHERE m.start_lsn > ? AND m.tran_id <> 0x00 ORDER BY m.start_lsn"
)
TRANSACTIONS_AFTER = (
    "SELECT COUNT_BIG(*) FROM (SELECT TOP (100000) m.start_lsn FROM cdc.lsn_time_mapping AS m "
    "WHERE m.start_lsn > ? AND m.tran_id <> 0x00 ORDER BY m.start_lsn) AS x"
)
"""Bounded, because it is sent every few seconds however much waits."""
NEWEST_SCAN = (
    "SELECT TOP (1) s.end_time, s.tran_count, s.empty_scan_count, s.error_count "
    "FROM sys.dm_cdc_log_scan_sessions AS s WHERE s.session_id > 0 ORDER BY s.session_id DESC"
)
AGENT = "SELECT s.status FROM sys.dm_server_services AS s WHERE s.servicename LIKE N'SQL Server Agent (%'"
JOBS = "EXEC sys.sp_cdc_help_jobs"
JOBS_TABLE = (
    "SELECT j.job_type, j.continuous, j.pollinginterval, j.retention FROM msdb.dbo.cdc_jobs AS j "
    "WHERE j.database_id = DB_ID()"
)
NEWEST_INSTANCE_START = "SELECT MAX(t.start_lsn) FROM cdc.change_tables AS t"
LOG_USED = "SELECT u.used_log_space_in_bytes FROM sys.dm_db_log_space_usage AS u"

# What the login may do.

POLICIES = """
SELECT s.name, t.name, p.name
FROM sys.security_policies AS p
JOIN sys.security_predicates AS d ON d.object_id = p.object_id
JOIN sys.tables AS t ON t.object_id = d.target_object_id
JOIN sys.schemas AS s ON s.schema_id = t.schema_id
WHERE p.is_enabled = 1 AND d.predicate_type = 0
ORDER BY s.name, t.name, p.name
"""
"""The policies that filter rows of tables, of those that the login may see."""
MASKED = """
SELECT s.name, t.name, c.name
FROM sys.columns AS c
JOIN sys.tables AS t ON t.object_id = c.object_id
JOIN sys.schemas AS s ON s.schema_id = t.schema_id
WHERE c.is_masked = 1
ORDER BY s.name, t.name, c.column_id
"""
ENCRYPTED = MASKED.replace("c.is_masked = 1", "c.encryption_type IS NOT NULL")
MAY_UNMASK_ALL = "SELECT HAS_PERMS_BY_NAME(DB_NAME(), 'DATABASE', 'UNMASK')"
MAY_UNMASK = "SELECT HAS_PERMS_BY_NAME(?, 'OBJECT', 'UNMASK', ?, 'COLUMN')"
"""Of one column; NULL before SQL Server 2022, which has that permission for databases alone."""
MAY_SEE_POLICIES = "SELECT HAS_PERMS_BY_NAME(DB_NAME(), 'DATABASE', 'VIEW DEFINITION')"

CAPTURE_READ = {
    "change_tables": "SELECT TOP (0) * FROM cdc.change_tables",
    "captured_columns": "SELECT TOP (0) * FROM cdc.captured_columns",
    "lsn_time_mapping": "SELECT TOP (0) * FROM cdc.lsn_time_mapping",
    "ddl_history": "SELECT TOP (0) * FROM cdc.ddl_history",
}
"""Reads that find nothing, for which the server still checks the permission to read."""
HIDDEN_INSTANCES = (
    "SELECT t.capture_instance FROM cdc.change_tables AS t WHERE t.source_object_id IS NOT NULL "
    "AND NOT EXISTS (SELECT 1 FROM sys.tables AS s WHERE s.object_id = t.source_object_id) ORDER BY t.capture_instance"
)
"""Capture instances of tables that the login does not see in the catalog."""
SNAPSHOT_ISOLATION = "SELECT d.snapshot_isolation_state FROM sys.databases AS d WHERE d.name = ?"
MAY_INSERT = "SELECT HAS_PERMS_BY_NAME(?, 'OBJECT', 'INSERT')"

# Sessions.

BEGIN = "BEGIN TRANSACTION"
END = "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION"
"""Our transactions only read. Where the server ended one itself (a deadlock), this does not hide why."""
ISOLATION = {
    "exclusive": "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "repeatable_read": "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "snapshot": "SET TRANSACTION ISOLATION LEVEL SNAPSHOT",
    "read_committed": "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "read_uncommitted": "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
}
"""By snapshot isolation mode; `read_committed` is what a session begins with, and is left with."""


def lock_timeout(milliseconds: int) -> str:
    """How long the session waits for a lock; -1 for ever. SET takes no parameter."""
    return f"SET LOCK_TIMEOUT {int(milliseconds)}"


# Names.


def quote(name: str) -> str:
    """An identifier as T-SQL reads it whatever characters it has."""
    return "[" + name.replace("]", "]]") + "]"


_RANGES = KeyRanges(
    quote, nulls_first=True, absent=lambda native: native.projection(f"CAST(NULL AS {native.declaration})")
)


def table_name(table: CapturedTable) -> str:
    return _RANGES.table(table)


# Tables of users.

_TABLE_ITSELF = " OPTION (EXPAND VIEWS)"
"""The table is read and no indexed view of it, which would leave the table without the lock."""


def any_row(table: CapturedTable, select: str | None = None) -> str:
    return f"SELECT TOP (1) 1 AS [one] FROM {table_name(table) if select is None else f'({select}{chr(10)})'} AS t"


def any_value(table: CapturedTable, column: str) -> str:
    return f"SELECT TOP (1) 1 AS [one] FROM {table_name(table)} AS t WHERE t.{quote(column)} IS NOT NULL"


def rows_of_select(table: CapturedTable, select: str) -> str:
    """The captured columns of what a user's statement gives in place of the table."""
    return _RANGES.rows_of_select(table, select)


def change_table(instance: str) -> str:
    return f"[cdc].{quote(instance + '_CT')}"


def changes(
    instance: str, has_command_id: bool, columns: Sequence[tuple[str, NativeType]], *, skipped: Sequence[int] = ()
) -> str:
    """All rows of a change table in a window of commits, in the server's order of operations.

    Without `__$command_id` (servers before 2012 SP4) the order is that of their clustered index.

    Args:
        instance: the capture instance.
        has_command_id: whether its change table has `__$command_id`.
        columns: names and types of the columns that are read.
        skipped: values of `__$operation` that are left out.
    """
    without = f" AND d.[__$operation] NOT IN ({', '.join(map(str, skipped))})" if skipped else ""
    command = "d.[__$command_id]" if has_command_id else "CONVERT(int, 0)"
    fields = "".join(f", {native.projection(f'd.{quote(name)}')} AS {quote(name)}" for name, native in columns)
    order = "d.[__$command_id], d.[__$seqval]" if has_command_id else "d.[__$seqval]"
    return (
        "SELECT d.[__$start_lsn], d.[__$seqval], d.[__$operation], d.[__$update_mask], "
        f"{command} AS [__$command_id]{fields} "
        f"FROM {change_table(instance)} AS d WHERE d.[__$start_lsn] > ? AND d.[__$start_lsn] <= ?{without} "
        f"ORDER BY d.[__$start_lsn], {order}, d.[__$operation]"
    )


def changed_instances(instances: Sequence[str]) -> str:
    """Which of these instances have a change in their window: one light query for many tables (two parameters each)."""
    parts = [
        f"SELECT {number} AS n WHERE EXISTS (SELECT 1 FROM {change_table(instance)} AS c "
        "WHERE c.[__$start_lsn] > ? AND c.[__$start_lsn] <= ?)"
        for number, instance in enumerate(instances)
    ]
    return f"SELECT x.n FROM ({' UNION ALL '.join(parts)}) AS x"


def changed_keys(table: CapturedTable, key: Sequence[str], *, updates: bool) -> str:
    """The keys, old and new, of all changes in a window of commits; with updates or without them."""
    operations = "" if updates else " AND d.[__$operation] IN (1, 2)"
    return (
        f"SELECT {_RANGES.key(table, key, 'd')} FROM {change_table(table.instance.name)} AS d "
        f"WHERE d.[__$start_lsn] > ? AND d.[__$start_lsn] <= ?{operations}"
    )


def inserted(table: CapturedTable, columns: Sequence[str]) -> str:
    """The rows that were inserted in a window of commits, in order."""
    instance = table.instance
    command = "d.[__$command_id], " if instance.has_command_id else ""
    return (
        f"SELECT {_RANGES.key(table, columns, 'd')} FROM {change_table(instance.name)} AS d "
        "WHERE d.[__$start_lsn] > ? AND d.[__$start_lsn] <= ? AND d.[__$operation] = 2 "
        f"ORDER BY d.[__$start_lsn], {command}d.[__$seqval]"
    )


def insert(table: CapturedTable, columns: Sequence[str]) -> str:
    """One row into a table of the user's: the only statement that writes, sent by `headrace signal` alone."""
    return _RANGES.insert(table, columns)


def count_changes(instance: str) -> str:
    """How many changes of a window of commits a change table has; the row before an update does not count."""
    return (
        f"SELECT COUNT_BIG(*) FROM {change_table(instance)} AS d "
        "WHERE d.[__$start_lsn] > ? AND d.[__$start_lsn] <= ? AND d.[__$operation] <> 3"
    )


def last_change(instance: str, has_command_id: bool) -> str:
    """The last row that a commit left in a change table."""
    command = "d.[__$command_id]" if has_command_id else "CONVERT(int, 0)"
    order = "d.[__$command_id] DESC, d.[__$seqval] DESC" if has_command_id else "d.[__$seqval] DESC"
    return (
        f"SELECT TOP (1) {command} AS [__$command_id], d.[__$seqval], d.[__$operation] "
        f"FROM {change_table(instance)} AS d WHERE d.[__$start_lsn] = ? ORDER BY {order}, d.[__$operation] DESC"
    )


def rows_of_change(instance: str) -> str:
    """How many rows of a change table share a commit and a sequence value."""
    return f"SELECT COUNT_BIG(*) FROM {change_table(instance)} AS d WHERE d.[__$start_lsn] = ? AND d.[__$seqval] = ?"


def lock(table: CapturedTable) -> str:
    """Lock a table against everybody until the transaction ends.

    It reads one row, because a plan that touches no table, or an indexed view in its place, takes no notice of hints.
    """
    return f"SELECT TOP (1) 1 AS [one] FROM {table_name(table)} WITH (TABLOCKX){_TABLE_ITSELF}"


def rows_in_range(
    table: CapturedTable,
    key: Sequence[str],
    lower: Bound | None,
    upper: Bound | None,
    *,
    present: Collection[str] | None = None,
    condition: str | None = None,
    ordered: bool = False,
    locked: bool = False,
) -> Query:
    """The rows of a key range (lower, upper]; both ends open when null. `locked` is under a shared table lock."""
    hint, tail = (" WITH (TABLOCK, HOLDLOCK)", _TABLE_ITSELF) if locked else ("", "")
    return _RANGES.rows(
        table, key, lower, upper, present=present, condition=condition, ordered=ordered, hint=hint, tail=tail
    )


def greatest_key(table: CapturedTable, key: Sequence[str], *, condition: str | None = None) -> Query:
    """The last key in the server's own order; of the rows that meet a condition, where one is given."""
    where, parameters = _RANGES.where(table, key, None, None, condition)
    fields, order = _RANGES.key(table, key, "t"), _RANGES.order(key, " DESC")
    return f"SELECT TOP (1) {fields} FROM {table_name(table)} AS t{where} ORDER BY {order}", parameters


def chunk_bounds(
    table: CapturedTable,
    key: Sequence[str],
    lower: Bound | None,
    last: Bound,
    chunk_rows: int,
    chunks: int,
    *,
    condition: str | None = None,
) -> Query:
    """Every `chunk_rows`-th key after `lower` and before `last`, at most `chunks`: read from the key's index alone.

    Only rows that meet a condition count, where one is given. One row more is looked at, so that a bound is only given
    when a row follows it and no chunk is empty.
    """
    order = _RANGES.order(key)
    where, parameters = _RANGES.where(table, key, lower, last, condition)
    sql = (
        f"SELECT {_RANGES.key(table, key, 'y')} FROM (SELECT x.*, MAX(x.[__n]) OVER () AS [__rows] FROM "
        f"(SELECT TOP (?) {order}, ROW_NUMBER() OVER (ORDER BY {order}) AS [__n] "
        f"FROM {table_name(table)} AS t{where} "
        f"ORDER BY {order}) AS x) AS y WHERE y.[__n] % ? = 0 AND y.[__n] < y.[__rows] ORDER BY y.[__n]"
    )
    return sql, [chunk_rows * chunks + 1, *parameters, chunk_rows]
