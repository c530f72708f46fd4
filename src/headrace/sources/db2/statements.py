"""Every statement that goes to Db2; nothing else is sent.

Only `headrace.sources.change_tables.statements`, which writes what servers write alike, holds SQL besides.

Identifiers are always quoted, and what users give is always bound. LSNs are selected as hexadecimal digits and given
as bytes, which become constants on the way (`headrace.sources.db2.connection`). What differs between the platforms is
the catalog: SYSCAT on Linux, UNIX and Windows, SYSIBM on z/OS.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headrace.sources.change_tables.captured_table import CapturedTable, NativeType
from headrace.sources.change_tables.statements import Bound, KeyRanges, Query

LUW, ZOS = "luw", "zos"


@dataclass(frozen=True)
class _Catalog:
    """A platform's names for facts of the catalog.

    Args:
        tables, columns, indexes, uses: its tables.
        schema, table, created, altered, cardinality, remarks: columns of `tables`.
        column_schema, column_table, column, facts: columns of `columns`; the facts are type, length, scale, whether it
            is FOR BIT DATA, whether it may be NULL, identity, default and remarks.
        index_schema, index_table, index_name, index_owner: columns of `indexes`.
        use_owner, use_name: columns of `uses`.
        number: what stands for the order of indexes.
    """

    tables: str
    columns: str
    indexes: str
    uses: str
    schema: str
    table: str
    created: str
    altered: str
    cardinality: str
    remarks: str
    column_schema: str
    column_table: str
    column: str
    facts: str
    index_schema: str
    index_table: str
    index_owner: str
    index_name: str
    use_owner: str
    use_name: str
    tail: str


_CATALOGS = {
    LUW: _Catalog(
        "SYSCAT.TABLES", "SYSCAT.COLUMNS", "SYSCAT.INDEXES", "SYSCAT.INDEXCOLUSE",
        "TABSCHEMA", "TABNAME", "CREATE_TIME", "ALTER_TIME", "CARD", "REMARKS",
        "TABSCHEMA", "TABNAME", "COLNAME",
        "c.TYPENAME, c.LENGTH, c.SCALE, CASE WHEN c.CODEPAGE = 0 THEN 'Y' ELSE 'N' END, c.NULLS, c.IDENTITY, "
        "c.\"DEFAULT\", c.REMARKS",
        "TABSCHEMA", "TABNAME", "INDSCHEMA", "INDNAME", "INDSCHEMA", "INDNAME", "",
    ),
    ZOS: _Catalog(
        "SYSIBM.SYSTABLES", "SYSIBM.SYSCOLUMNS", "SYSIBM.SYSINDEXES", "SYSIBM.SYSKEYS",
        "CREATOR", "NAME", "CREATEDTS", "ALTEREDTS", "CARDF", "REMARKS",
        "TBCREATOR", "TBNAME", "NAME",
        "c.COLTYPE, c.LENGTH, c.SCALE, CASE WHEN c.FOREIGNKEY = 'B' THEN 'Y' ELSE 'N' END, c.NULLS, "
        "CASE WHEN c.\"DEFAULT\" IN ('I', 'J') THEN 'Y' ELSE 'N' END, c.DEFAULTVALUE, c.REMARKS",
        "TBCREATOR", "TBNAME", "CREATOR", "NAME", "IXCREATOR", "IXNAME", " FOR READ ONLY WITH UR",
    ),
}  # fmt: skip


class Statements:
    """The statements for one platform and one schema of SQL Replication.

    Args:
        platform: `luw` or `zos`.
        schema: the Capture schema, `ASNCDC` unless it was set up otherwise.
    """

    def __init__(self, platform: str, schema: str) -> None:
        c = _CATALOGS[platform]
        self.capture_schema = schema
        asn = quote(schema)
        register, uow = f"{asn}.IBMSNAP_REGISTER", f"{asn}.IBMSNAP_UOW"
        tail = c.tail
        self.platform = platform
        self._tail = tail
        source = "r.GLOBAL_RECORD <> 'Y' AND r.SOURCE_VIEW_QUAL = 0 AND r.CD_TABLE IS NOT NULL"
        named = "r.CD_OWNER || '\".\"' || r.CD_TABLE"
        changes = f"{c.tables} AS t ON t.{c.schema} = r.CD_OWNER AND t.{c.table} = r.CD_TABLE"
        # Of a time, because numbers of tables are used again.
        number = f"CAST(VARCHAR_FORMAT(t.{c.created}, 'YYYYMMDDHH24MISSFF4') AS BIGINT)"
        head = (
            f"SELECT MAX(x.lsn) FROM (SELECT r.CD_NEW_SYNCHPOINT AS lsn FROM {register} AS r "
            f"UNION ALL SELECT s.SYNCHPOINT AS lsn FROM {register} AS s) AS x"
        )

        # The catalog.

        self.TABLES = f"SELECT t.{c.schema}, t.{c.table} FROM {c.tables} AS t WHERE t.TYPE = 'T'{tail}"
        self.REGISTRATIONS = (
            f"SELECT r.SOURCE_OWNER, r.SOURCE_TABLE, r.CD_OWNER, r.CD_TABLE, r.STATE, HEX(r.CD_OLD_SYNCHPOINT), "
            f"{number}, r.BEFORE_IMG_PREFIX FROM {register} AS r JOIN {changes} "
            f"WHERE {source} ORDER BY r.SOURCE_OWNER, r.SOURCE_TABLE{tail}"
        )
        self.COLUMNS = (
            f"SELECT c.{c.column_schema}, c.{c.column_table}, c.{c.column}, {c.facts} FROM {c.columns} AS c "
            f"JOIN {register} AS r ON c.{c.column_schema} = r.SOURCE_OWNER AND c.{c.column_table} = r.SOURCE_TABLE "
            f"WHERE {source} ORDER BY c.{c.column_schema}, c.{c.column_table}, c.COLNO{tail}"
        )
        self.CHANGE_COLUMNS = (
            f"SELECT c.{c.column_schema}, c.{c.column_table}, c.{c.column}, {c.facts} FROM {c.columns} AS c "
            f"JOIN {register} AS r ON c.{c.column_schema} = r.CD_OWNER AND c.{c.column_table} = r.CD_TABLE "
            f"WHERE {source} ORDER BY c.{c.column_schema}, c.{c.column_table}, c.COLNO{tail}"
        )
        self.KEYS = (
            f"SELECT i.{c.index_schema}, i.{c.index_table}, i.{c.index_name}, i.UNIQUERULE, u.COLNAME "
            f"FROM {c.indexes} AS i JOIN {c.uses} AS u ON u.{c.use_owner} = i.{c.index_owner} "
            f"AND u.{c.use_name} = i.{c.index_name} JOIN {register} AS r "
            f"ON i.{c.index_schema} = r.SOURCE_OWNER AND i.{c.index_table} = r.SOURCE_TABLE "
            f"WHERE i.UNIQUERULE IN ('P', 'U', 'C', 'N', 'R', 'G') AND {source} "
            f"ORDER BY i.{c.index_schema}, i.{c.index_table}, i.{c.index_name}, u.COLSEQ{tail}"
        )
        self.CONTROLLED = (
            f"SELECT t.{c.schema}, t.{c.table}, t.CONTROL, CAST(t.{c.cardinality} AS BIGINT) FROM {c.tables} AS t "
            f"WHERE t.TYPE = 'T' AND t.CONTROL IN ('R', 'C', 'B') ORDER BY 1, 2{tail}"
        )
        """Tables with row or column access control that is active."""
        self.ALTERED = f"SELECT t.{c.schema}, t.{c.table}, t.{c.altered} FROM {c.tables} AS t WHERE t.TYPE = 'T'{tail}"
        logged = "t.DATACAPTURE, t.LOG_ATTRIBUTE" if platform == LUW else "t.DATACAPTURE, '0'"
        self.LOGGING = f"SELECT t.{c.schema}, t.{c.table}, {logged} FROM {c.tables} AS t WHERE t.TYPE = 'T'{tail}"
        self.COMMENTS = (
            f"SELECT t.{c.schema}, t.{c.table}, t.{c.remarks} FROM {c.tables} AS t "
            f"WHERE t.{c.remarks} IS NOT NULL{tail}"
        )
        self.COLUMN_NAMES = (
            f"SELECT c.{c.column} FROM {c.columns} AS c WHERE c.{c.column_schema} = ? AND c.{c.column_table} = ?{tail}"
        )
        self.INSTANCES = (
            f"SELECT {named}, {number}, HEX(r.CD_OLD_SYNCHPOINT) FROM {register} AS r JOIN {changes} "
            f"WHERE {source} AND r.STATE = 'A' ORDER BY 1{tail}"
        )
        self.INSTANCE_START = (
            f"SELECT HEX(r.CD_OLD_SYNCHPOINT), {number} FROM {register} AS r JOIN {changes} "
            f"WHERE {source} AND r.STATE = 'A' AND {named} = ?{tail}"
        )
        self.CATALOG_STATE = f"SELECT COUNT(*), MAX(t.{c.altered}) FROM {c.tables} AS t{tail}"
        self.LAST_DDL = ""
        self.ROW_ESTIMATES = (
            f"SELECT t.{c.schema}, t.{c.table}, CAST(t.{c.cardinality} AS BIGINT) FROM {c.tables} AS t{tail}"
        )

        # Commits and the server's clock.

        self.MAX_LSN = f"SELECT HEX(h.lsn) FROM ({head.replace('MAX(x.lsn)', 'MAX(x.lsn) AS lsn')}) AS h{tail}"
        self.NEWEST_TRANSACTION = f"SELECT HEX(MAX(r.CD_NEW_SYNCHPOINT)) FROM {register} AS r{tail}"
        self.OLDEST_MAPPED = f"SELECT HEX(MIN(u.IBMSNAP_COMMITSEQ)) FROM {uow} AS u{tail}"
        self.NTH_COMMIT_AFTER = (
            f"SELECT COALESCE(MAX(x.lsn), MAX(h.lsn)) FROM (SELECT HEX(y.lsn) AS lsn FROM "
            f"({head.replace('MAX(x.lsn)', 'MAX(x.lsn) AS lsn')}) AS y) AS h "
            f"LEFT JOIN (SELECT HEX(z.lsn) AS lsn FROM (SELECT CAST(? AS INTEGER) AS bound FROM SYSIBM.SYSDUMMY1) AS b "
            "JOIN (SELECT u.IBMSNAP_COMMITSEQ AS lsn, ROW_NUMBER() OVER (ORDER BY u.IBMSNAP_COMMITSEQ) AS n "
            f"FROM {uow} AS u WHERE u.IBMSNAP_COMMITSEQ > ?) AS z ON z.n = b.bound) AS x ON x.lsn IS NOT NULL{tail}"
        )
        """The nth, or how far the log was read where there are not so many."""
        self.CHANGED_SINCE = (
            f"SELECT COUNT(*) FROM {register} AS r WHERE r.GLOBAL_RECORD <> 'Y' AND r.CD_NEW_SYNCHPOINT > ?{tail}"
        )
        self.TRANSACTIONS_STRICTLY_BETWEEN = (
            f"SELECT COUNT(*) FROM {uow} AS u WHERE u.IBMSNAP_COMMITSEQ > ? AND u.IBMSNAP_COMMITSEQ < ?{tail}"
        )
        self.EVERY_NTH_COMMIT = (
            f"SELECT HEX(x.lsn) FROM (SELECT u.IBMSNAP_COMMITSEQ AS lsn, ROW_NUMBER() OVER "
            f"(ORDER BY u.IBMSNAP_COMMITSEQ) AS n FROM {uow} AS u WHERE u.IBMSNAP_COMMITSEQ > ? "
            f"AND u.IBMSNAP_COMMITSEQ <= ?) AS x WHERE MOD(x.n, ?) = 0 ORDER BY x.lsn{tail}"
        )
        self.TRANSACTIONS_BEFORE = (
            f"SELECT HEX(x.lsn), x.at, x.at FROM (SELECT u.IBMSNAP_COMMITSEQ AS lsn, u.IBMSNAP_LOGMARKER AS at, "
            f"ROW_NUMBER() OVER (ORDER BY u.IBMSNAP_COMMITSEQ DESC) AS n, CAST(? AS INTEGER) AS bound FROM {uow} AS u "
            f"WHERE u.IBMSNAP_COMMITSEQ < ?) AS x WHERE x.n <= x.bound ORDER BY x.lsn DESC{tail}"
        )
        self.COMMIT_TIME = (
            f"SELECT MIN(x.at) FROM (SELECT u.IBMSNAP_COMMITSEQ AS lsn, u.IBMSNAP_LOGMARKER AS at FROM {uow} AS u "
            f"UNION ALL SELECT r.SYNCHPOINT AS lsn, r.SYNCHTIME AS at FROM {register} AS r "
            f"WHERE r.GLOBAL_RECORD = 'Y') AS x WHERE x.lsn = ?{tail}"
        )
        self.FIRST_SINCE = (
            f"SELECT HEX(MIN(u.IBMSNAP_COMMITSEQ)) FROM {uow} AS u WHERE u.IBMSNAP_LOGMARKER >= CAST(? AS TIMESTAMP)"
            f"{tail}"
        )
        self.LAST_TRANSACTION = (
            f"SELECT HEX(u.IBMSNAP_COMMITSEQ), u.IBMSNAP_LOGMARKER FROM {uow} AS u WHERE u.IBMSNAP_COMMITSEQ <= ? "
            f"ORDER BY u.IBMSNAP_COMMITSEQ DESC FETCH FIRST 1 ROWS ONLY{tail}"
        )
        self.NEWEST_CHANGES = (
            f"SELECT {named}, {number}, HEX(r.CD_NEW_SYNCHPOINT) FROM {register} AS r JOIN {changes} "
            f"WHERE {source}{tail}"
        )
        times = (
            f"SELECT HEX(u.IBMSNAP_COMMITSEQ), u.IBMSNAP_LOGMARKER FROM {uow} AS u "
            f"WHERE u.IBMSNAP_COMMITSEQ > ? AND u.IBMSNAP_COMMITSEQ <= ? ORDER BY u.IBMSNAP_COMMITSEQ{tail}"
        )
        self.COMMIT_TIMES = {"end": times}
        self.FIRST_REPEATED = (
            "SELECT HEX(x.lsn), x.peak FROM (SELECT u.IBMSNAP_COMMITSEQ AS lsn, u.IBMSNAP_LOGMARKER AS at, "
            "MAX(u.IBMSNAP_LOGMARKER) OVER (ORDER BY u.IBMSNAP_COMMITSEQ ROWS UNBOUNDED PRECEDING) AS peak "
            f"FROM {uow} AS u WHERE u.IBMSNAP_LOGMARKER >= CAST(? AS TIMESTAMP) "
            "AND u.IBMSNAP_LOGMARKER < CAST(? AS TIMESTAMP)) AS x WHERE x.at < CAST(? AS TIMESTAMP) "
            "AND (x.at < x.peak - 1 MINUTE OR x.peak >= CAST(? AS TIMESTAMP)) "
            f"ORDER BY x.lsn FETCH FIRST 1 ROWS ONLY{tail}"
        )
        self.FIRST_SETTLED = (
            f"SELECT HEX(MIN(u.IBMSNAP_COMMITSEQ)) FROM {uow} AS u WHERE u.IBMSNAP_COMMITSEQ > ? "
            "AND ((u.IBMSNAP_LOGMARKER >= CAST(? AS TIMESTAMP) AND u.IBMSNAP_LOGMARKER < CAST(? AS TIMESTAMP)) "
            f"OR u.IBMSNAP_LOGMARKER >= CAST(? AS TIMESTAMP)){tail}"
        )
        dummy = "FROM SYSIBM.SYSDUMMY1"
        self.TIME_AND_CLOCK = (
            f"SELECT CURRENT TIMESTAMP, CAST(x.z AS INTEGER) / 10000 * 60 + MOD(CAST(x.z AS INTEGER), 10000) / 100 "
            f"FROM (SELECT CURRENT TIMEZONE AS z {dummy}) AS x"
        )

        # Whether capture works.

        self.NEWEST_MARK = (
            f"SELECT HEX(r.SYNCHPOINT), r.SYNCHTIME FROM {register} AS r WHERE r.GLOBAL_RECORD = 'Y'{tail}"
        )
        self.NEWEST_EMPTY_SCAN = ""
        self.GLOBAL_RECORD = (
            f"SELECT HEX(r.SYNCHPOINT), r.SYNCHTIME, CURRENT TIMESTAMP FROM {register} AS r "
            f"WHERE r.GLOBAL_RECORD = 'Y'{tail}"
        )
        self.STATES = f"SELECT r.SOURCE_OWNER, r.SOURCE_TABLE, r.STATE FROM {register} AS r WHERE {source}{tail}"
        self.RETENTION = f"SELECT p.RETENTION_LIMIT FROM {asn}.IBMSNAP_CAPPARMS AS p{tail}"
        self.FIRST_TRANSACTION_AFTER = (
            f"SELECT HEX(u.IBMSNAP_COMMITSEQ), u.IBMSNAP_LOGMARKER FROM {uow} AS u WHERE u.IBMSNAP_COMMITSEQ > ? "
            f"ORDER BY u.IBMSNAP_COMMITSEQ FETCH FIRST 1 ROWS ONLY{tail}"
        )

        self.TRANSACTIONS_AFTER = (
            f"SELECT COUNT(*) FROM (SELECT u.IBMSNAP_COMMITSEQ FROM {uow} AS u WHERE u.IBMSNAP_COMMITSEQ > ? "
            f"ORDER BY u.IBMSNAP_COMMITSEQ FETCH FIRST 100000 ROWS ONLY) AS x{tail}"
        )

        # Sessions.

        self.ISOLATION = {
            "exclusive": "SET CURRENT ISOLATION = RR",
            "repeatable_read": "SET CURRENT ISOLATION = RS",
            "read_committed": "SET CURRENT ISOLATION = CS",
            "read_uncommitted": "SET CURRENT ISOLATION = UR",
        }

    def lock_timeout(self, milliseconds: int, /) -> str:
        """How long the session waits for a lock; -1 for as long as the database says."""
        return f"SET CURRENT LOCK TIMEOUT = {'NULL' if milliseconds < 0 else -(-milliseconds // 1000)}"

    # Tables of users.

    def lock(self, table: CapturedTable, /) -> str:
        """Lock a table against everybody until the transaction ends."""
        return f"LOCK TABLE {self.table_name(table)} IN EXCLUSIVE MODE"

    def table_name(self, table: CapturedTable, /) -> str:
        return _RANGES.table(table)

    def any_row(self, table: CapturedTable, select: str | None = None, /) -> str:
        """One row when the table has any, or the statement that is read in its place."""
        relation = self.table_name(table) if select is None else f"({select}\n)"
        return f"SELECT 1 FROM {relation} AS t FETCH FIRST 1 ROWS ONLY"

    def rows_of_select(self, table: CapturedTable, select: str, /) -> str:
        """The captured columns of what a user's statement gives in place of the table."""
        return _RANGES.rows_of_select(table, select)

    def rows_in_range(
        self,
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
        """The rows of a key range (lower, upper]; both ends open when null."""
        tail = " WITH RR USE AND KEEP SHARE LOCKS" if locked else ""
        return _RANGES.rows(table, key, lower, upper, present=present, condition=condition, ordered=ordered, tail=tail)

    def greatest_key(self, table: CapturedTable, key: Sequence[str], *, condition: str | None = None) -> Query:
        """The last key in the server's own order; of the rows that meet a condition, where one is given."""
        where, parameters = _RANGES.where(table, key, None, None, condition)
        fields, order = _RANGES.key(table, key, "t"), _RANGES.order(key, " DESC")
        sql = f"SELECT {fields} FROM {self.table_name(table)} AS t{where} ORDER BY {order}"
        return f"{sql} FETCH FIRST 1 ROWS ONLY", parameters

    def chunk_bounds(
        self,
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

        One row more is looked at, so that a bound is only given when a row follows it and no chunk is empty.
        """
        order = _RANGES.order(key)
        where, parameters = _RANGES.where(table, key, lower, last, condition)
        inner = (
            f"SELECT {order}, ROW_NUMBER() OVER (ORDER BY {order}) AS HEADRACE_N FROM {self.table_name(table)} AS t"
            f"{where} ORDER BY {order} FETCH FIRST {int(chunk_rows) * int(chunks) + 1} ROWS ONLY"
        )
        counted = f"SELECT x.*, MAX(x.HEADRACE_N) OVER () AS HEADRACE_ROWS FROM ({inner}) AS x"
        sql = (
            f"SELECT {_RANGES.key(table, key, 'y')} FROM ({counted}) AS y "
            f"WHERE MOD(y.HEADRACE_N, {int(chunk_rows)}) = 0 AND y.HEADRACE_N < y.HEADRACE_ROWS ORDER BY y.HEADRACE_N"
        )
        return sql, parameters

    def insert(self, table: CapturedTable, columns: Sequence[str], /) -> str:
        """One row into a table of the user's: the only statement that writes, sent by `headrace signal` alone."""
        return _RANGES.insert(table, columns)

    # Change tables.

    def changes(self, instance: str, columns: Sequence[tuple[str, NativeType]]) -> str:
        """All rows of a change table in a window of commits, in the order of the log."""
        fields = "".join(f", {native.projection(f'd.{quote(name)}')} AS {quote(name)}" for name, native in columns)
        return (
            f"SELECT HEX(d.IBMSNAP_COMMITSEQ), HEX(d.IBMSNAP_INTENTSEQ), d.IBMSNAP_OPERATION{fields} "
            f"FROM {change_table(instance)} AS d WHERE d.IBMSNAP_COMMITSEQ > ? AND d.IBMSNAP_COMMITSEQ <= ? "
            f"ORDER BY d.IBMSNAP_COMMITSEQ, d.IBMSNAP_INTENTSEQ"
        )

    def changed_instances(self, instances: Sequence[str], /) -> str:
        """Which of these change tables have a change in their window: one query for many (two parameters each)."""
        parts = [
            f"SELECT {number} AS n FROM SYSIBM.SYSDUMMY1 WHERE EXISTS (SELECT 1 FROM {change_table(instance)} AS d "
            "WHERE d.IBMSNAP_COMMITSEQ > ? AND d.IBMSNAP_COMMITSEQ <= ?)"
            for number, instance in enumerate(instances)
        ]
        return f"SELECT x.n FROM ({' UNION ALL '.join(parts)}) AS x"

    def changed_keys(self, table: CapturedTable, key: Sequence[str], *, updates: bool) -> str:
        """The keys, old and new, of all changes in a window of commits.

        An update is a D and an I row like any other, so that updates can't be left out.
        """
        return (
            f"SELECT {_RANGES.key(table, key, 'd')} FROM {change_table(table.instance.name)} AS d "
            "WHERE d.IBMSNAP_COMMITSEQ > ? AND d.IBMSNAP_COMMITSEQ <= ?"
        )

    def inserted(self, table: CapturedTable, columns: Sequence[str], /) -> str:
        """The rows that were inserted in a window of commits, in order."""
        return (
            f"SELECT {_RANGES.key(table, columns, 'd')} FROM {change_table(table.instance.name)} AS d "
            "WHERE d.IBMSNAP_COMMITSEQ > ? AND d.IBMSNAP_COMMITSEQ <= ? AND d.IBMSNAP_OPERATION = 'I' "
            "ORDER BY d.IBMSNAP_COMMITSEQ, d.IBMSNAP_INTENTSEQ"
        )

    def last_change(self, instance: str, has_command_id: bool, /) -> str:
        """The last row that a commit left in a change table; the operations as numbers in their order."""
        return (
            "SELECT 0, HEX(d.IBMSNAP_INTENTSEQ), CASE WHEN d.IBMSNAP_OPERATION = 'D' THEN 1 ELSE 2 END "
            f"FROM {change_table(instance)} AS d WHERE d.IBMSNAP_COMMITSEQ = ? "
            "ORDER BY d.IBMSNAP_INTENTSEQ DESC FETCH FIRST 1 ROWS ONLY"
        )

    def count_changes(self, instance: str, /) -> str:
        """How many rows of a window of commits a change table has; an update may be two."""
        return (
            f"SELECT COUNT(*) FROM {change_table(instance)} AS d "
            f"WHERE d.IBMSNAP_COMMITSEQ > ? AND d.IBMSNAP_COMMITSEQ <= ?{self._tail}"
        )

    def rows_of_change(self, instance: str, /) -> str:
        """How many rows of a change table share a commit and a sequence value."""
        return (
            f"SELECT COUNT(*) FROM {change_table(instance)} AS d "
            "WHERE d.IBMSNAP_COMMITSEQ = ? AND d.IBMSNAP_INTENTSEQ = ?"
        )


def quote(name: str) -> str:
    """An identifier as SQL reads it whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def change_table(instance: str) -> str:
    """The change table that an instance's name means: owner and name with `"."` between."""
    owner, _, name = instance.partition('"."')
    return f"{quote(owner)}.{quote(name)}"


_RANGES = KeyRanges(quote, nulls_first=False, absent=lambda native: "CAST(NULL AS VARCHAR(1))")
