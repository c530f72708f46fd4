"""The system catalog: its tables in the SQLite file, and the picture of it that statements are translated with."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace_emulators.sqlserver.errors import invalid_column
from headrace_emulators.sqlserver.types import DEFAULT_COLLATION, KINDS, SqlType, parse_type

SYSTEM_TABLES: dict[str, str] = {
    "sys.schemas": "name sysname, schema_id int, principal_id int",
    "sys.objects": "name sysname, object_id int, principal_id int, schema_id int, parent_object_id int, type"
    " char(2), type_desc nvarchar(60),"
    " create_date datetime, modify_date datetime, is_ms_shipped bit",
    "sys.columns": "object_id int, name sysname, column_id int, system_type_id tinyint, user_type_id int, max_length"
    " smallint,"
    " precision tinyint, scale tinyint, collation_name sysname, is_nullable bit, is_identity bit, is_computed bit,"
    " default_object_id int, is_masked bit, encryption_type int",
    "sys.security_policies": "name sysname, object_id int, is_enabled bit",
    "sys.security_predicates": "object_id int, target_object_id int, predicate_type int",
    "sys.types": "name sysname, system_type_id tinyint, user_type_id int, schema_id int, max_length smallint,"
    " precision tinyint,"
    " scale tinyint, collation_name sysname, is_nullable bit, is_user_defined bit, is_assembly_type bit",
    "sys.default_constraints": "name sysname, object_id int, schema_id int, parent_object_id int, parent_column_id int,"
    " definition nvarchar(max), is_system_named bit",
    "sys.computed_columns": "object_id int, name sysname, column_id int, definition nvarchar(max), is_persisted bit",
    "sys.identity_columns": "object_id int, name sysname, column_id int, seed_value bigint, increment_value bigint,"
    " last_value bigint",
    "sys.sequences": "name sysname, object_id int, start_value bigint, increment bigint, minimum_value bigint,"
    " maximum_value bigint, is_cycling bit, current_value bigint, system_type_id tinyint, is_used bit",
    "sys.indexes": "object_id int, name sysname, index_id int, type tinyint, type_desc nvarchar(60), is_unique bit,"
    " is_primary_key bit, is_unique_constraint bit, is_disabled bit, has_filter bit",
    "sys.index_columns": "object_id int, index_id int, index_column_id int, column_id int, key_ordinal tinyint,"
    " is_descending_key bit, is_included_column bit",
    "sys.extended_properties": "class tinyint, class_desc nvarchar(60), major_id int, minor_id int, name sysname,"
    " value nvarchar(max)",
    "sys.dm_cdc_log_scan_sessions": "session_id int, start_time datetime, end_time datetime, duration int,"
    " scan_phase nvarchar(200),"
    " error_count int, start_lsn nvarchar(23), current_lsn nvarchar(23), end_lsn nvarchar(23), tran_count bigint,"
    " last_commit_lsn nvarchar(23), last_commit_time datetime, log_record_count bigint, schema_change_count int,"
    " command_count bigint, latency int, empty_scan_count int",
    "emulator.state": "name varchar(64), value nvarchar(max)",
    "emulator.transactions": "tran_number bigint, commit_lsn binary(10), begin_lsn binary(10), begin_time datetime,"
    " end_time datetime,"
    " tran_id varbinary(10), command_count bigint",
    "emulator.permissions": "grantee sysname, securable nvarchar(300), state varchar(8)",
}
VIEWS: dict[str, tuple[str, str]] = {
    "sys.tables": (
        "name sysname, object_id int, schema_id int, parent_object_id int, type char(2), type_desc nvarchar(60),"
        " create_date datetime,"
        " modify_date datetime, is_ms_shipped bit, is_tracked_by_cdc bit, temporal_type tinyint, is_memory_optimized"
        " bit, is_external bit",
        "SELECT name, object_id, schema_id, parent_object_id, type, type_desc, create_date, modify_date,"
        " is_ms_shipped, EXISTS (SELECT 1"
        ' FROM "cdc.change_tables" AS c WHERE c.source_object_id = o.object_id) AS is_tracked_by_cdc, 0 AS'
        " temporal_type,"
        " 0 AS is_memory_optimized, 0 AS is_external FROM \"sys.objects\" AS o WHERE o.type = 'U '",
    ),
    "sys.key_constraints": (
        "name sysname, object_id int, schema_id int, parent_object_id int, type char(2), type_desc nvarchar(60),"
        " unique_index_id int,"
        " is_system_named bit",
        "SELECT o.name, o.object_id, o.schema_id, o.parent_object_id, o.type, o.type_desc, i.index_id AS"
        " unique_index_id,"
        ' 1 AS is_system_named FROM "sys.objects" AS o JOIN "sys.indexes" AS i ON i.object_id = o.parent_object_id'
        " AND i.name = o.name"
        " WHERE o.type IN ('PK', 'UQ')",
    ),
}
COMPUTED_TABLES: dict[str, str] = {
    "sys.databases": "name sysname, database_id int, create_date datetime, compatibility_level tinyint,"
    " collation_name sysname,"
    " is_read_only bit, state tinyint, state_desc nvarchar(60), snapshot_isolation_state tinyint,"
    " snapshot_isolation_state_desc nvarchar(60), is_read_committed_snapshot_on bit, is_cdc_enabled bit",
    "msdb.cdc_jobs": "database_id int, job_type nvarchar(20), job_id uniqueidentifier, maxtrans int, maxscans int,"
    " continuous bit, pollinginterval bigint, retention bigint, threshold bigint",
    "sys.partitions": "partition_id bigint, object_id int, index_id int, partition_number int, rows bigint",
    "sys.dm_db_partition_stats": "partition_id bigint, object_id int, index_id int, partition_number int, row_count"
    " bigint",
    "sys.dm_db_log_space_usage": "database_id int, total_log_size_in_bytes bigint, used_log_space_in_bytes bigint,"
    " used_log_space_in_percent real, log_space_in_bytes_since_last_backup bigint",
    "sys.dm_server_services": "servicename nvarchar(256), startup_type int, startup_type_desc nvarchar(256), status"
    " int,"
    " status_desc nvarchar(256), process_id int",
}
CDC_TABLES: dict[str, str] = {
    "change_tables": "object_id int NOT NULL PRIMARY KEY, version int NULL, source_object_id int NULL,"
    " capture_instance sysname NOT NULL,"
    " start_lsn binary(10) NULL, end_lsn binary(10) NULL, supports_net_changes bit NULL, has_drop_pending bit NULL,"
    " role_name sysname NULL, index_name sysname NULL, filegroup_name sysname NULL, create_date datetime NULL,"
    " partition_switch bit NOT NULL",
    "captured_columns": "object_id int NOT NULL, column_name sysname NOT NULL, column_id int NULL, column_type"
    " sysname NOT NULL,"
    " column_ordinal int NOT NULL, is_computed bit NULL",
    "index_columns": "object_id int NOT NULL, column_name sysname NOT NULL, index_ordinal tinyint NOT NULL,"
    " column_id int NOT NULL",
    "lsn_time_mapping": "start_lsn binary(10) NOT NULL PRIMARY KEY, tran_begin_time datetime NULL, tran_end_time"
    " datetime NULL,"
    " tran_id varbinary(10) NULL, tran_begin_lsn binary(10) NULL",
    "ddl_history": "source_object_id int NULL, object_id int NULL, required_column_update bit NULL, ddl_command"
    " nvarchar(max) NULL,"
    " ddl_lsn binary(10) NULL, ddl_time datetime NULL",
}
_CLR = 240
_INDEXES = (
    'CREATE UNIQUE INDEX "emulator.columns_key" ON "sys.columns" (object_id, column_id)',
    'CREATE UNIQUE INDEX "emulator.objects_key" ON "sys.objects" (object_id)',
    'CREATE INDEX "emulator.indexes_key" ON "sys.indexes" (object_id, index_id)',
    'CREATE INDEX "emulator.index_columns_key" ON "sys.index_columns" (object_id, index_id)',
    'CREATE UNIQUE INDEX "emulator.state_key" ON "emulator.state" (name)',
    'CREATE UNIQUE INDEX "emulator.transactions_key" ON "emulator.transactions" (tran_number)',
)


@dataclass(frozen=True)
class ColumnInfo:
    """A column as statements see it.

    Args:
        name: as declared.
        type: its declared type.
        column_id: its number in the table; numbers of dropped columns are not used again.
        nullable: whether NULL may be stored.
        identity: whether the server numbers it.
        default: the text of its default, in SQL Server's own rendering.
        computed: the text of its expression, when it is computed.
    """

    name: str
    type: SqlType
    column_id: int = 0
    nullable: bool = True
    identity: bool = False
    default: str | None = None
    computed: str | None = None


@dataclass(frozen=True)
class TableInfo:
    """A table or view as statements see it.

    Args:
        schema: its schema, as declared.
        name: its name, as declared.
        object_id: its number; 0 for system views.
        columns: in the order of `SELECT *`.
        computed: whether its rows are made when it is read.
    """

    schema: str
    name: str
    object_id: int
    columns: tuple[ColumnInfo, ...]
    computed: bool = False

    @property
    def path(self) -> str:
        return f"{self.schema}.{self.name}"

    def column(self, name: str) -> ColumnInfo:
        """A column by its name in any case; raises error 207."""
        lowered = name.lower()
        for column in self.columns:
            if column.name.lower() == lowered:
                return column
        raise invalid_column(name)


def columns_of(declarations: str) -> tuple[ColumnInfo, ...]:
    """Columns of a short list `name type, ...`."""
    found = []
    depth, start, parts = 0, 0, []
    for position, c in enumerate(declarations + ","):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(declarations[start:position])
            start = position + 1
    for part in parts:
        name, kind = part.split()[:2]
        found.append(ColumnInfo(name, parse_type(kind), nullable="NOT NULL" not in part))
    return tuple(found)


def quoted(name: str) -> str:
    """A name as SQLite takes it, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def column_definition(name: str, declared: SqlType) -> str:
    """A column as the SQLite table declares it: affinity and order of values."""
    collate = f' COLLATE "{declared.collate}"' if declared.collate else ""
    return f"{quoted(name)} {declared.kind.affinity}{collate}"


@dataclass
class Catalog:
    """The tables of one database at one version of its structure."""

    tables: dict[str, TableInfo] = field(default_factory=dict)
    schemas: set[str] = field(default_factory=set)

    def find(self, schema: str, name: str) -> TableInfo | None:
        """A table or system view, by names in any case."""
        return self.tables.get(f"{schema}.{name}".lower())


def _system_infos(groups: Iterable[tuple[str, str, bool]]) -> dict[str, TableInfo]:
    made = {}
    for path, declarations, computed in groups:
        schema, name = path.split(".")
        made[path] = TableInfo(schema, name, 0, columns_of(declarations), computed)
    return made


_SYSTEM = _system_infos(
    [(path, text, False) for path, text in SYSTEM_TABLES.items()]
    + [(path, text, False) for path, (text, _) in VIEWS.items()]
    + [(path, text, True) for path, text in COMPUTED_TABLES.items()]
)


def load(connection: sqlite3.Connection) -> Catalog:
    """Read the picture of the catalog that statements are translated with."""
    names = {number: name for name, number in _type_ids()}
    defaults = dict(connection.execute('SELECT object_id, definition FROM "sys.default_constraints"').fetchall())
    computed = {
        (o, c): text
        for o, c, text in connection.execute('SELECT object_id, column_id, definition FROM "sys.computed_columns"')
    }
    columns: dict[int, list[ColumnInfo]] = {}
    for row in connection.execute(
        "SELECT object_id, name, column_id, system_type_id, max_length, precision, scale, collation_name,"
        " is_nullable, is_identity,"
        ' default_object_id, user_type_id FROM "sys.columns" ORDER BY object_id, column_id'
    ):
        column_type = declared(names[row[11] if row[3] == _CLR else row[3]], row[4], row[5], row[6], row[7])
        columns.setdefault(row[0], []).append(
            ColumnInfo(
                row[1],
                column_type,
                row[2],
                bool(row[8]),
                bool(row[9]),
                defaults.get(row[10]),
                computed.get((row[0], row[2])),
            )
        )
    catalog = Catalog(dict(_SYSTEM))
    catalog.schemas = {name.lower() for (name,) in connection.execute('SELECT name FROM "sys.schemas"')}
    for object_id, name, schema in connection.execute(
        'SELECT o.object_id, o.name, s.name FROM "sys.objects" AS o JOIN "sys.schemas" AS s ON s.schema_id ='
        " o.schema_id"
        " WHERE o.type = 'U '"
    ):
        catalog.tables[f"{schema}.{name}".lower()] = TableInfo(
            schema, name, object_id, tuple(columns.get(object_id, ()))
        )
    return catalog


def declared(name: str, max_length: int, precision: int, scale: int, collation: str | None) -> SqlType:
    """The type that a row of sys.columns or sys.types describes."""
    kept = "" if collation in (None, DEFAULT_COLLATION) else str(collation)
    if name in ("varchar", "char", "varbinary", "binary"):
        return SqlType(name, max_length, collation=kept)
    if name in ("nvarchar", "nchar"):
        return SqlType(name, max_length // 2 if max_length > 0 else -1, collation=kept)
    if name in ("decimal", "numeric", "money", "smallmoney"):
        return SqlType(name, 0, precision, 4 if "money" in name else scale)
    if name in ("time", "datetime2", "datetimeoffset"):
        return SqlType(name, scale=scale)
    return SqlType(name, collation=kept)


def _type_ids() -> list[tuple[str, int]]:
    return [(name, kind.user_type_id) for name, kind in KINDS.items()]


def table_sql(path: str) -> str:
    body = ", ".join(column_definition(c.name, c.type) for c in columns_of(SYSTEM_TABLES[path]))
    return f"CREATE TABLE {quoted(path)} ({body})"


def create(connection: sqlite3.Connection, created: str) -> None:
    """Make the catalog of a new, empty database.

    Args:
        connection: to the SQLite file.
        created: when, as stored text of a datetime.
    """
    for path in SYSTEM_TABLES:
        connection.execute(table_sql(path))
    # The view of tables looks into this one, so it exists before capture is enabled; the catalog names it only
    # afterwards.
    body = ", ".join(column_definition(c.name, c.type) for c in columns_of(CDC_TABLES["change_tables"]))
    connection.execute(f'CREATE TABLE "cdc.change_tables" ({body})')
    for path, (_, query) in VIEWS.items():
        connection.execute(f"CREATE VIEW {quoted(path)} AS {query}")
    for statement in _INDEXES:
        connection.execute(statement)
    connection.executemany(
        'INSERT INTO "sys.schemas" VALUES (?, ?, 1)', [("dbo", 1), ("guest", 2), ("INFORMATION_SCHEMA", 3), ("sys", 4)]
    )
    rows = []
    for name, kind in KINDS.items():
        sample = parse_type(name)
        collation = DEFAULT_COLLATION if kind.family == "string" and name != "xml" else None
        length = 8000 if kind.bytes == 0 and kind.family in ("string", "binary") else sample.max_length
        rows.append(
            (
                name,
                kind.system_type_id,
                kind.user_type_id,
                4,
                length,
                sample.shown_precision,
                sample.shown_scale,
                collation,
                1,
                0,
                int(kind.system_type_id == _CLR),
            )
        )
    rows.append(("sysname", 231, 256, 4, 256, 0, 0, DEFAULT_COLLATION, 0, 0, 0))
    connection.executemany(f'INSERT INTO "sys.types" VALUES ({", ".join("?" * 11)})', rows)
    connection.executemany(
        'INSERT INTO "emulator.state" VALUES (?, ?)',
        [
            ("next_object", "245575913"),
            ("created", created),
            ("next_tran", "1000"),
            ("lsn", "00000025000004e80003"),
            ("agent", "4"),
        ],
    )
