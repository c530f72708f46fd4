"""EXEC: the stored procedures of change data capture, and the few others that scripts need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headrace_emulators.sqlserver import change_log
from headrace_emulators.sqlserver.alterations import Alterations
from headrace_emulators.sqlserver.capture import clean_instance
from headrace_emulators.sqlserver.catalog import CDC_TABLES, TableInfo, columns_of, quoted
from headrace_emulators.sqlserver.computed_views import jobs
from headrace_emulators.sqlserver.drafts import ColumnDraft, KeyDraft
from headrace_emulators.sqlserver.errors import ProgrammingError
from headrace_emulators.sqlserver.instances import drop_instance
from headrace_emulators.sqlserver.reader import StatementReader
from headrace_emulators.sqlserver.result import Result
from headrace_emulators.sqlserver.storage import SqlServerStorage
from headrace_emulators.sqlserver.types import LSN, SqlType, parse_type
from headrace_emulators.sqlserver.variables import Variables

Arguments = dict[str, Any]
Procedure = Callable[[SqlServerStorage, Arguments], Result]
_CHANGE_COLUMNS = (
    ("__$start_lsn", LSN, False),
    ("__$end_lsn", LSN, True),
    ("__$seqval", LSN, False),
    ("__$operation", SqlType("int"), False),
    ("__$update_mask", SqlType("varbinary", 128), True),
)


@dataclass(frozen=True)
class Call:
    """An EXEC statement.

    Args:
        database: whose procedure it is; empty for the current one.
        name: of the procedure, in lower case.
        arguments: by parameter.
        parameters: how many parameters of the statement it takes.
    """

    database: str
    name: str
    arguments: Arguments
    parameters: int


def read_call(statement: str, values: list[object], variables: Variables) -> Call:
    """Read an EXEC statement.

    Args:
        statement: its text; arguments are constants, variables or `?`.
        values: the parameters to come.
        variables: of the batch.
    """
    reader = StatementReader(statement)
    if not reader.accept("EXECUTE"):
        reader.accept("EXEC")
    database, _, name = reader.path()
    if name.lower() not in _PROCEDURES:
        raise ProgrammingError(f"Could not find stored procedure '{name}'.", 2812)
    names, _ = _PROCEDURES[name.lower()]
    arguments: Arguments = {}
    used = 0
    while not reader.done:
        key = names[len(arguments)] if len(arguments) < len(names) else ""
        if reader.word() == "@" and reader.word(2) == "=":
            reader.next()
            key = reader.name().lower()
            reader.expect("=")
        if not key or key not in names:
            raise ProgrammingError(f"@{key} is not a parameter for procedure {name}.", 8145)
        token = reader.word()
        if token == "@":
            reader.next()
            arguments[key] = variables.find(reader.name()).value
        elif token == "?":
            reader.next()
            arguments[key] = values[used]
            used += 1
        else:
            arguments[key] = reader.constant()
        reader.accept("OUTPUT")
        if not reader.done:
            reader.expect(",")
    return Call(database, name.lower(), arguments, used)


def run(storage: SqlServerStorage, call: Call) -> Result:
    """Run a procedure, unless it is sp_executesql, which a session runs."""
    _, procedure = _PROCEDURES[call.name]
    assert procedure is not None
    return procedure(storage, call.arguments)


def _done() -> Result:
    return Result()


def _rows(columns: str, rows: Iterable[tuple[Any, ...]]) -> Result:
    return Result(tuple((c.name, c.type) for c in columns_of(columns)), iter(rows))


def _require_cdc(storage: SqlServerStorage) -> None:
    if storage.catalog().find("cdc", "change_tables") is None:
        raise ProgrammingError(
            f"The database '{storage.name}' is not enabled for Change Data Capture. Ensure that the correct"
            " database context is set"
            " and retry the operation. To report on the databases enabled for Change Data Capture, query the"
            " is_cdc_enabled column in the sys.databases catalog view.", 22901
        )  # fmt: skip


def enable_database(storage: SqlServerStorage, arguments: Arguments) -> Result:
    """sys.sp_cdc_enable_db: makes the schema cdc with its tables."""
    if storage.catalog().find("cdc", "change_tables") is not None:
        return _done()
    with storage.writing():
        storage.definitions.create_schema("cdc")
        for name, declarations in CDC_TABLES.items():
            columns = columns_of(declarations)
            drafts = [ColumnDraft(c.name, c.type, c.nullable) for c in columns]
            key = [columns[0].name] if "PRIMARY KEY" in declarations else []
            keys = [KeyDraft(key, True, clustered=True, name=f"{name}_clustered_idx")] if key else []
            storage.definitions.create_table("cdc", name, drafts, keys, shipped=True)
        storage.sqlite.execute(
            'INSERT OR REPLACE INTO "emulator.state" VALUES (?, ?), (?, ?)', ("capture_job", "1", "polling", "5")
        )
        # The server marks the enabling in its log, so that there is a highest LSN from the start.
        storage.log.open()
        storage.log.commit(dummy=True)
    return _done()


def disable_database(storage: SqlServerStorage, arguments: Arguments) -> Result:
    """sys.sp_cdc_disable_db: drops everything in the schema cdc."""
    _require_cdc(storage)
    with storage.writing():
        for (name,) in storage.sqlite.execute('SELECT capture_instance FROM "cdc.change_tables"').fetchall():
            drop_instance(storage.sqlite, storage.catalog(), storage.definitions.drop_table, name)
        declarations = ", ".join(d.split(" NOT")[0].split(" NULL")[0] for d in CDC_TABLES["change_tables"].split(", "))
        for table in [t for t in storage.catalog().tables.values() if t.schema.lower() == "cdc"]:
            storage.definitions.drop_table(table)
        body = ", ".join(quoted(c.name) for c in columns_of(declarations))
        storage.sqlite.execute(f'CREATE TABLE "cdc.change_tables" ({body})')
        storage.sqlite.execute("DELETE FROM \"sys.schemas\" WHERE name = 'cdc'")
        storage.sqlite.execute('DELETE FROM "emulator.transactions"')
    return _done()


def _source(storage: SqlServerStorage, arguments: Arguments) -> TableInfo:
    schema, name = arguments.get("source_schema") or "dbo", arguments.get("source_name")
    table = storage.catalog().find(str(schema), str(name))
    if table is None or not table.object_id:
        raise ProgrammingError(f"Source table '{schema}.{name}' does not exist in the current database. Ensure that"
        " the correct"
                               " database context is set. Specify a valid schema and table name for the database.",
                               22931)  # fmt: skip
    return table


def enable_table(storage: SqlServerStorage, arguments: Arguments) -> Result:
    """sys.sp_cdc_enable_table: makes a capture instance; a table has at most two."""
    _require_cdc(storage)
    table = _source(storage, arguments)
    instance = str(arguments.get("capture_instance") or f"{table.schema}_{table.name}")
    have = [n for (n,) in storage.sqlite.execute(
        'SELECT capture_instance FROM "cdc.change_tables" WHERE source_object_id = ?', (table.object_id,)
    )]  # fmt: skip
    if len(have) >= 2:
        raise ProgrammingError(
            f"Two capture instances already exist for source table '{table.path}'. A table can have at most two capture"
            " instances. If the current tracking options are not appropriate, disable change tracking for the obsolete"
            " instance by using sys.sp_cdc_disable_table and retry the operation.", 22962
        )  # fmt: skip
    if storage.catalog().find("cdc", f"{instance}_CT") is not None:
        raise ProgrammingError(f"Could not create a capture instance because the capture instance name '{instance}'"
        " already exists in the"
                               " current database. Specify an explicit unique name for the parameter"
                               " @capture_instance.", 22926)  # fmt: skip
    chosen = _captured(table, arguments.get("captured_column_list"))
    keys = _keys(storage, table, arguments.get("index_name"))
    if arguments.get("supports_net_changes") and not keys:
        raise ProgrammingError(
            "The parameter @supports_net_changes is set to 1, but the source table does not have a primary key defined"
            " and no alternate unique index has been specified.",
            22939,
        )
    with storage.writing():
        drafts = [ColumnDraft(name, declared, nullable) for name, declared, nullable in _CHANGE_COLUMNS]
        drafts += [ColumnDraft(c.name, _stored(c.type), True) for c in chosen]
        drafts.append(ColumnDraft("__$command_id", SqlType("int"), True))
        number = storage.definitions.create_table("cdc", f"{instance}_CT", drafts, [], shipped=True)
        _describe_clustered(storage, number, instance, len(drafts))
        change_log.create_pending(storage.sqlite, instance, [(c.name, i, c.type) for i, c in enumerate(chosen, 1)])
        storage.sqlite.executemany(
            'INSERT INTO "cdc.captured_columns" VALUES (?, ?, ?, ?, ?, 0)',
            [(number, c.name, c.column_id, c.type.name, ordinal) for ordinal, c in enumerate(chosen, 1)],
        )
        storage.sqlite.executemany(
            'INSERT INTO "cdc.index_columns" VALUES (?, ?, ?, ?)',
            [(number, name, ordinal, table.column(name).column_id) for ordinal, name in enumerate(keys, 1)],
        )
        storage.log.open()
        start = storage.log.commit(dummy=True)
        net = int(
            bool(keys) if arguments.get("supports_net_changes") is None else bool(arguments["supports_net_changes"])
        )
        index = arguments.get("index_name") or _primary_key(storage, table)
        storage.sqlite.execute(
            f'INSERT INTO "cdc.change_tables" VALUES ({", ".join("?" * 13)})',
            (number, 0, table.object_id, instance, start, None, net, 0, arguments.get("role_name"),
             index if keys else None,
             arguments.get("filegroup_name"), storage.now(), int(bool(arguments.get("allow_partition_switch", 1)))),
        )  # fmt: skip
        change_log.create_triggers(storage.sqlite, storage.catalog(), table)
    return _done()


def _stored(declared: SqlType) -> SqlType:
    return parse_type("binary(8)") if declared.name == "timestamp" else declared


def _captured(table: TableInfo, listed: object) -> list[Any]:
    plain = [c for c in table.columns if c.computed is None]
    if not listed:
        return plain
    names = [n.strip().strip("[]").lower() for n in str(listed).split(",")]
    for name in names:
        table.column(name)
    return [c for c in plain if c.name.lower() in names]


def _primary_key(storage: SqlServerStorage, table: TableInfo) -> str | None:
    row = storage.sqlite.execute(
        'SELECT name FROM "sys.indexes" WHERE object_id = ? AND is_primary_key = 1', (table.object_id,)
    ).fetchone()
    return None if row is None else str(row[0])


def _keys(storage: SqlServerStorage, table: TableInfo, index: object) -> list[str]:
    name = index or _primary_key(storage, table)
    if name is None:
        return []
    rows = storage.sqlite.execute(
        'SELECT c.name FROM "sys.indexes" AS i JOIN "sys.index_columns" AS k ON k.object_id = i.object_id AND'
        " k.index_id = i.index_id"
        ' JOIN "sys.columns" AS c ON c.object_id = k.object_id AND c.column_id = k.column_id'
        " WHERE i.object_id = ? AND i.name = ? AND i.is_unique = 1 AND k.is_included_column = 0 ORDER BY k.key_ordinal",
        (table.object_id, name),
    ).fetchall()
    if not rows:
        raise ProgrammingError(f"Index name '{name}' is not a unique index of table '{table.path}'.", 22938)
    return [str(r) for (r,) in rows]


def _describe_clustered(storage: SqlServerStorage, number: int, instance: str, columns: int) -> None:
    storage.sqlite.execute('DELETE FROM "sys.indexes" WHERE object_id = ?', (number,))
    storage.sqlite.execute(
        'INSERT INTO "sys.indexes" VALUES (?, ?, 1, 1, ?, 1, 0, 0, 0, 0)',
        (number, f"{instance}_CT_clustered_idx", "CLUSTERED"),
    )
    storage.sqlite.executemany(
        'INSERT INTO "sys.index_columns" VALUES (?, 1, ?, ?, ?, 0, 0)',
        [(number, i, column, i) for i, column in enumerate((1, columns, 3, 4), 1)],
    )


def disable_table(storage: SqlServerStorage, arguments: Arguments) -> Result:
    """sys.sp_cdc_disable_table: drops one instance, or all of a table."""
    _require_cdc(storage)
    table = _source(storage, arguments)
    wanted = str(arguments.get("capture_instance") or "all")
    names = [n for (n,) in storage.sqlite.execute(
        'SELECT capture_instance FROM "cdc.change_tables" WHERE source_object_id = ?', (table.object_id,)
    )]  # fmt: skip
    chosen = names if wanted.lower() == "all" else [n for n in names if n.lower() == wanted.lower()]
    if not chosen:
        raise ProgrammingError(f"Change data capture instance '{wanted}' has not been enabled for the source table"
                               f" '{table.path}'. Use sys.sp_cdc_help_change_data_capture to verify the capture"
                               " instance name and retry the operation.", 22960)  # fmt: skip
    with storage.writing():
        for name in chosen:
            drop_instance(storage.sqlite, storage.catalog(), storage.definitions.drop_table, name)
        change_log.create_triggers(storage.sqlite, storage.catalog(), table)
    return _done()


def clean_up(storage: SqlServerStorage, arguments: Arguments) -> Result:
    """sys.sp_cdc_cleanup_change_table: moves the low watermark of one instance."""
    _require_cdc(storage)
    instance, mark = arguments.get("capture_instance"), arguments.get("low_water_mark")
    _check_instance(storage, str(instance))
    with storage.writing():
        clean_instance(storage, str(instance), mark if isinstance(mark, bytes) else None)
    return _done()


def _job(running: str) -> Procedure:
    def switch(storage: SqlServerStorage, arguments: Arguments) -> Result:
        _require_cdc(storage)
        if str(arguments.get("job_type") or "capture").lower() == "capture":
            if storage.state("agent") != "4":
                raise ProgrammingError(
                    "SQLServerAgent is not currently running so it cannot be notified of this action.", 22022
                )
            storage.set_state("capture_job", running)
        return _done()

    return switch


def help_jobs(storage: SqlServerStorage, arguments: Arguments) -> Result:
    """sys.sp_cdc_help_jobs: the capture job and the clean-up job."""
    _require_cdc(storage)
    columns = (
        "job_id uniqueidentifier, job_type nvarchar(20), job_name sysname, maxtrans int, maxscans int, continuous bit,"
        " pollinginterval bigint, retention bigint, threshold bigint"
    )
    state = dict(storage.sqlite.execute('SELECT name, value FROM "emulator.state"').fetchall())
    rows = [(number, kind, f"cdc.{storage.name}_{kind}", *rest) for kind, number, *rest in jobs(state)]
    return _rows(columns, rows)


def change_job(storage: SqlServerStorage, arguments: Arguments) -> Result:
    """sys.sp_cdc_change_job: the polling interval of the capture job, the retention of the clean-up job."""
    _require_cdc(storage)
    for argument, name, largest in (("pollinginterval", "polling", 86399), ("retention", "retention", 52494800)):
        value = arguments.get(argument)
        if value is not None:
            if not 0 <= int(value) <= largest:
                raise ProgrammingError(f"The value of @{argument} is not between 0 and {largest}.")
            storage.set_state(name, str(int(value)))
    return _done()


def help_change_data_capture(storage: SqlServerStorage, arguments: Arguments) -> Result:
    """sys.sp_cdc_help_change_data_capture: one row per capture instance."""
    _require_cdc(storage)
    columns = (
        "source_schema sysname, source_table sysname, capture_instance sysname, object_id int, source_object_id int,"
        " start_lsn binary(10),"
        " end_lsn binary(10), supports_net_changes bit, has_drop_pending bit, role_name sysname, index_name sysname,"
        " filegroup_name sysname, create_date datetime, index_column_list nvarchar(max), captured_column_list"
        " nvarchar(max)"
    )
    found = storage.sqlite.execute(
        "SELECT s.name, o.name, t.capture_instance, t.object_id, t.source_object_id, t.start_lsn, t.end_lsn,"
        " t.supports_net_changes,"
        ' t.has_drop_pending, t.role_name, t.index_name, t.filegroup_name, t.create_date FROM "cdc.change_tables" AS t'
        ' JOIN "sys.objects" AS o ON o.object_id = t.source_object_id JOIN "sys.schemas" AS s ON s.schema_id ='
        " o.schema_id"
        " ORDER BY t.create_date, t.object_id"
    ).fetchall()
    if arguments.get("source_name"):
        wanted = (str(arguments.get("source_schema") or "dbo").lower(), str(arguments["source_name"]).lower())
        found = [r for r in found if (r[0].lower(), r[1].lower()) == wanted]
    rows = []
    for row in found:
        lists = []
        for path, order in (("cdc.index_columns", "index_ordinal"), ("cdc.captured_columns", "column_ordinal")):
            names = storage.sqlite.execute(
                f"SELECT column_name FROM {quoted(path)} WHERE object_id = ? ORDER BY {order}", (row[3],)
            )
            lists.append(", ".join(f"[{n}]" for (n,) in names) or None)
        rows.append((*row, *lists))
    return _rows(columns, rows)


def ddl_history(storage: SqlServerStorage, arguments: Arguments) -> Result:
    """sys.sp_cdc_get_ddl_history: what changed the structure of the source table of a capture instance."""
    _require_cdc(storage)
    instance = str(arguments.get("capture_instance"))
    _check_instance(storage, instance)
    rows = storage.sqlite.execute(
        "SELECT s.name, o.name, t.capture_instance, h.required_column_update, h.ddl_command, h.ddl_lsn, h.ddl_time"
        ' FROM "cdc.ddl_history" AS h JOIN "cdc.change_tables" AS t ON t.object_id = h.object_id'
        ' JOIN "sys.objects" AS o ON o.object_id = t.source_object_id'
        ' JOIN "sys.schemas" AS s ON s.schema_id = o.schema_id WHERE t.capture_instance = ? ORDER BY h.ddl_lsn',
        (instance,),
    ).fetchall()
    columns = (
        "source_schema sysname, source_table sysname, capture_instance sysname, required_column_update bit, ddl_command"
        " nvarchar(max), ddl_lsn binary(10), ddl_time datetime"
    )
    return _rows(columns, rows)


def captured_columns(storage: SqlServerStorage, arguments: Arguments) -> Result:
    """sys.sp_cdc_get_captured_columns: the columns of a capture instance as the source table declares them."""
    _require_cdc(storage)
    instance = str(arguments.get("capture_instance"))
    _check_instance(storage, instance)
    change_table = storage.catalog().find("cdc", f"{instance}_CT")
    rows = storage.sqlite.execute(
        "SELECT s.name, o.name, t.capture_instance, c.column_name, c.column_id, c.column_ordinal, c.column_type"
        ' FROM "cdc.captured_columns" AS c JOIN "cdc.change_tables" AS t ON t.object_id = c.object_id'
        ' JOIN "sys.objects" AS o ON o.object_id = t.source_object_id'
        ' JOIN "sys.schemas" AS s ON s.schema_id = o.schema_id WHERE t.capture_instance = ? ORDER BY c.column_ordinal',
        (instance,),
    ).fetchall()
    shown = []
    for row in rows:
        declared = change_table.column(row[3]).type if change_table is not None else SqlType(row[6])
        length = declared.length if declared.length else None
        shown.append((*row, length, declared.shown_precision, declared.shown_scale))
    columns = (
        "source_schema sysname, source_table sysname, capture_instance sysname, column_name sysname, column_id int,"
        " ordinal_position int, data_type sysname, character_maximum_length int, numeric_precision tinyint,"
        " numeric_scale int"
    )
    return _rows(columns, shown)


def _check_instance(storage: SqlServerStorage, instance: str) -> None:
    if (
        storage.sqlite.execute('SELECT 1 FROM "cdc.change_tables" WHERE capture_instance = ?', (instance,)).fetchone()
        is None
    ):
        raise ProgrammingError(f"The capture instance name '{instance}' does not exist in the current database.", 22964)


def rename(storage: SqlServerStorage, arguments: Arguments) -> Result:
    """sp_rename: of a table or a column."""
    with storage.writing():
        Alterations(storage).rename(
            str(arguments["objname"]), str(arguments["newname"]), str(arguments.get("objtype") or "OBJECT")
        )
        storage.changed()
    return _done()


def add_property(storage: SqlServerStorage, arguments: Arguments) -> Result:
    """sp_addextendedproperty: of a table or a column."""
    table = storage.catalog().find(str(arguments.get("level0name") or "dbo"), str(arguments.get("level1name")))
    if table is None:
        raise ProgrammingError(
            "Object is invalid. Extended properties are not permitted on it, or the object does not exist.", 15135
        )
    minor = table.column(str(arguments["level2name"])).column_id if arguments.get("level2name") else 0
    with storage.writing():
        storage.sqlite.execute(
            'INSERT INTO "sys.extended_properties" VALUES (1, ?, ?, ?, ?, ?)',
            ("OBJECT_OR_COLUMN", table.object_id, minor, arguments["name"], arguments.get("value")),
        )
    return _done()


_TABLE = ("source_schema", "source_name")
_EXTENDED = ("name", "value", "level0type", "level0name", "level1type", "level1name", "level2type", "level2name")
_ENABLE = ("supports_net_changes", "role_name", "index_name", "captured_column_list", "filegroup_name")
_JOB = ("job_type", "maxtrans", "maxscans", "continuous", "pollinginterval", "retention", "threshold")
_PROCEDURES: dict[str, tuple[tuple[str, ...], Procedure | None]] = {
    "sp_cdc_enable_db": ((), enable_database),
    "sp_cdc_disable_db": ((), disable_database),
    "sp_cdc_enable_table": ((*_TABLE, "capture_instance", *_ENABLE, "allow_partition_switch"), enable_table),
    "sp_cdc_disable_table": ((*_TABLE, "capture_instance"), disable_table),
    "sp_cdc_cleanup_change_table": (("capture_instance", "low_water_mark", "threshold", "fcleanupfailed"), clean_up),
    "sp_cdc_start_job": (("job_type",), _job("1")),
    "sp_cdc_stop_job": (("job_type",), _job("0")),
    "sp_cdc_help_jobs": ((), help_jobs),
    "sp_cdc_change_job": (_JOB, change_job),
    "sp_cdc_help_change_data_capture": (_TABLE, help_change_data_capture),
    "sp_cdc_get_ddl_history": (("capture_instance",), ddl_history),
    "sp_cdc_get_captured_columns": (("capture_instance",), captured_columns),
    "sp_rename": (("objname", "newname", "objtype"), rename),
    "sp_addextendedproperty": (_EXTENDED, add_property),
    "sp_executesql": (("stmt",), None),
}
