"""T-SQL's functions: what each becomes in SQLite, and the type of its result."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from headrace_emulators.sqlserver.expressions import ExpressionTranslator, cast, text_literal, unified
from headrace_emulators.sqlserver.scope import Scope, Value
from headrace_emulators.sqlserver.types import (
    BIGINT,
    BIT,
    DATETIME,
    DATETIME2,
    DATETIMEOFFSET,
    FLOAT,
    INT,
    LSN,
    NVARCHAR_MAX,
    SYSNAME,
    SqlType,
)

Call = Callable[[ExpressionTranslator, list[exp.Expression], Scope], Value]
GUID = SqlType("uniqueidentifier")
CALLS: dict[str, Call] = {}


def _named(*names: str) -> Callable[[Call], Call]:
    def keep(call: Call) -> Call:
        for name in names:
            CALLS[name] = call
        return call

    return keep


def _simple(name: str, sql: str, declared: SqlType | None) -> None:
    """A function whose SQLite text is a template; `{0}` is its first argument."""

    def call(t: ExpressionTranslator, arguments: list[exp.Expression], scope: Scope) -> Value:
        parts = [t.expression(a, scope).sql for a in arguments]
        try:
            return Value(sql.format(*parts), declared)
        except IndexError:
            raise t.unknown(f"{name} with {len(parts)} arguments") from None

    CALLS[name] = call


_MAPPING = '(SELECT {} FROM "cdc.lsn_time_mapping"{})'
_PATH = "s.name || '.' || o.name = tsql_object_path({0}) COLLATE NOCASE"
_OBJECT = '"sys.objects" AS o JOIN "sys.schemas" AS s ON s.schema_id = o.schema_id'

for _name, _sql, _type in (
    ("GETDATE", "tsql_now('datetime')", DATETIME),
    ("CURRENT_TIMESTAMP", "tsql_now('datetime')", DATETIME),
    ("GETUTCDATE", "tsql_now('datetime')", DATETIME),
    ("SYSDATETIME", "tsql_now('datetime2')", DATETIME2),
    ("SYSUTCDATETIME", "tsql_now('datetime2')", DATETIME2),
    ("SYSDATETIMEOFFSET", "tsql_now('datetimeoffset')", DATETIMEOFFSET),
    ("CURRENT_TIMEZONE", "'(UTC) Coordinated Universal Time'", SYSNAME),
    ("CURRENT_TIMEZONE_ID", "'UTC'", SYSNAME),
    ("NEWID", "tsql_newid()", GUID),
    ("LEN", "tsql_len({0})", INT),
    ("SIGN", "SIGN({0})", INT),
    ("ROW_NUMBER", "ROW_NUMBER()", BIGINT),
    ("QUOTENAME", "tsql_quotename({0})", SqlType("nvarchar", 258)),
    ("SUSER_SNAME", "tsql_user()", SYSNAME),
    ("CURRENT_USER", "tsql_user()", SYSNAME),
    ("SERVERPROPERTY", "tsql_server_property({0})", None),
    ("ERROR_NUMBER", "tsql_error('number')", INT),
    ("ERROR_MESSAGE", "tsql_error('message')", NVARCHAR_MAX),
    ("ERROR_LINE", "tsql_error('line')", INT),
    ("SCOPE_IDENTITY", "tsql_last_identity()", SqlType("decimal", 0, 38, 0)),
    ("@@IDENTITY", "tsql_last_identity()", SqlType("decimal", 0, 38, 0)),
    ("@@VERSION", "tsql_server_property('Version')", SqlType("nvarchar", 300)),
    ("@@TRANCOUNT", "tsql_transactions()", INT),
    ("@@ROWCOUNT", "tsql_rowcount()", INT),
    ("OBJECT_ID", f"(SELECT o.object_id FROM {_OBJECT} WHERE {_PATH})", INT),
    ("SCHEMA_ID", '(SELECT schema_id FROM "sys.schemas" WHERE name = {0})', INT),
    ("FN_CDC_INCREMENT_LSN", "tsql_step_lsn({0}, 1)", LSN),
    ("FN_CDC_DECREMENT_LSN", "tsql_step_lsn({0}, -1)", LSN),
    ("FN_CDC_GET_MAX_LSN", _MAPPING.format("MAX(start_lsn)", ""), LSN),
    ("FN_CDC_MAP_LSN_TO_TIME", _MAPPING.format("tran_end_time", " WHERE start_lsn = {0}"), DATETIME),
    (
        "FN_CDC_GET_MIN_LSN",
        'COALESCE((SELECT start_lsn FROM "cdc.change_tables" WHERE capture_instance = {0}), zeroblob(10))',
        LSN,
    ),
    ("FN_CDC_IS_BIT_SET", "tsql_bit_set({0}, {1})", BIT),
    ("FN_CDC_GET_COLUMN_ORDINAL",
     '(SELECT c.column_ordinal FROM "cdc.captured_columns" AS c JOIN "cdc.change_tables" AS t ON t.object_id ='
     ' c.object_id'
     " WHERE t.capture_instance = {0} AND c.column_name = {1})", INT),
    ("TODATETIMEOFFSET", "tsql_todatetimeoffset({0}, {1})", DATETIMEOFFSET),
):  # fmt: skip
    _simple(_name, _sql, _type)


def _text(value: Value) -> SqlType:
    if value.type is not None and value.family == "string":
        return SqlType("nvarchar" if value.type.wide else "varchar", value.type.length or -1)
    return NVARCHAR_MAX


@_named("ISNULL")
def _isnull(t: ExpressionTranslator, arguments: list[exp.Expression], scope: Scope) -> Value:
    first, second = (t.expression(a, scope) for a in arguments)
    declared = first.type or second.type
    return Value(f"COALESCE({first.sql}, {t.fitted(second, declared)})", declared)


@_named("COALESCE")
def _coalesce(t: ExpressionTranslator, arguments: list[exp.Expression], scope: Scope) -> Value:
    values = [t.expression(a, scope) for a in arguments]
    declared = unified(values)
    return Value(f"COALESCE({', '.join(t.fitted(v, declared) for v in values)})", declared)


@_named("NULLIF")
def _nullif(t: ExpressionTranslator, arguments: list[exp.Expression], scope: Scope) -> Value:
    first, second = (t.expression(a, scope) for a in arguments)
    return Value(f"(CASE WHEN {t.compare('=', first, second).sql} THEN NULL ELSE {first.sql} END)", first.type)


@_named("IIF")
def _iif(t: ExpressionTranslator, arguments: list[exp.Expression], scope: Scope) -> Value:
    test, yes, no = (t.expression(a, scope) for a in arguments)
    declared = unified([yes, no])
    return Value(f"(CASE WHEN {test.sql} THEN {t.fitted(yes, declared)} ELSE {t.fitted(no, declared)} END)", declared)


def aggregate(t: ExpressionTranslator, name: str, arguments: list[exp.Expression], scope: Scope) -> Value:
    """COUNT, COUNT_BIG, MIN, MAX, SUM, AVG and STRING_AGG."""
    distinct = ""
    if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
        distinct, arguments = "DISTINCT ", list(arguments[0].expressions)
    if name in ("COUNT", "COUNT_BIG"):
        inner = "*" if isinstance(arguments[0], exp.Star) else t.expression(arguments[0], scope).sortable
        return Value(f"COUNT({distinct}{inner})", INT if name == "COUNT" else BIGINT)
    value = t.expression(arguments[0], scope)
    if name in ("MIN", "MAX"):
        return Value(f"{name}({value.sortable})", value.type)
    if name == "STRING_AGG":
        return Value(f"GROUP_CONCAT({value.sql}, {t.expression(arguments[1], scope).sql})", NVARCHAR_MAX)
    if value.family == "decimal" and value.type is not None:
        scale = value.type.scale if name == "SUM" else max(value.type.scale, 6)
        return Value(
            f"{'tsql_sum' if name == 'SUM' else 'tsql_avg'}({distinct}{value.sql})", SqlType("decimal", 0, 38, scale)
        )
    declared = (
        BIGINT
        if value.type == BIGINT
        else FLOAT
        if value.family == "float"
        else INT
        if value.family in ("int", "bit")
        else None
    )
    if name == "AVG" and declared is not FLOAT:
        return Value(f"(SUM({distinct}{value.sql}) / COUNT({distinct}{value.sql}))", declared)
    return Value(f"{name}({distinct}{value.sql})", declared)


for _name in ("COUNT", "COUNT_BIG", "MIN", "MAX", "SUM", "AVG", "STRING_AGG"):

    def _bind(name: str) -> Call:
        return lambda t, arguments, scope: aggregate(t, name, arguments, scope)

    CALLS[_name] = _bind(_name)


def _one_text(name: str, sql: str) -> None:
    def call(t: ExpressionTranslator, arguments: list[exp.Expression], scope: Scope) -> Value:
        value = t.expression(arguments[0], scope)
        return Value(sql.format(value.sql), _text(value))

    CALLS[name] = call


for _name, _sql in (
    ("UPPER", "tsql_upper({0})"), ("LOWER", "tsql_lower({0})"), ("LTRIM", "LTRIM({0}, ' ')"), ("RTRIM",
     "RTRIM({0}, ' ')"),
    ("TRIM", "TRIM({0}, ' ')"),
):  # fmt: skip
    _one_text(_name, _sql)


@_named("LEFT", "RIGHT", "SUBSTRING", "REPLICATE", "REPLACE")
def _cut(t: ExpressionTranslator, arguments: list[exp.Expression], scope: Scope) -> Value:
    values = [t.expression(a, scope) for a in arguments]
    name = t.called
    first = values[0]
    declared = first.type if first.family == "binary" else _text(first)
    if name == "LEFT":
        return Value(f"tsql_substring({first.sql}, 1, {values[1].sql})", declared)
    if name == "RIGHT":
        return Value(
            f"tsql_substring({first.sql}, MAX(LENGTH({first.sql}) - {values[1].sql} + 1, 1), {values[1].sql})", declared
        )
    if name == "SUBSTRING":
        return Value(f"tsql_substring({', '.join(v.sql for v in values)})", declared)
    if name == "REPLACE":
        return Value(f"tsql_replace({', '.join(v.sql for v in values)})", NVARCHAR_MAX)
    if name == "REPLICATE":
        return Value(
            f"tsql_replicate({first.sql}, {values[1].sql})", SqlType(declared.name if declared else "varchar", -1)
        )
    raise t.unknown(name)


@_named("CONCAT")
def _concat(t: ExpressionTranslator, arguments: list[exp.Expression], scope: Scope) -> Value:
    parts = [f"COALESCE({t.fitted(t.expression(a, scope), NVARCHAR_MAX)}, '')" for a in arguments]
    return Value("(" + " || ".join(parts) + ")", NVARCHAR_MAX)


@_named("DATALENGTH")
def _datalength(t: ExpressionTranslator, arguments: list[exp.Expression], scope: Scope) -> Value:
    value = t.expression(arguments[0], scope)
    if value.type is not None and value.type.kind.bytes > 0 and value.family not in ("string", "binary"):
        return Value(f"(CASE WHEN {value.sql} IS NULL THEN NULL ELSE {value.type.kind.bytes} END)", INT)
    wide = value.type is not None and (value.type.wide or value.type.name in ("ntext", "xml"))
    return Value(f"tsql_datalength({value.sql}, {2 if wide else 1})", INT)


@_named("ABS", "ROUND")
def _number(t: ExpressionTranslator, arguments: list[exp.Expression], scope: Scope) -> Value:
    values = [t.expression(a, scope) for a in arguments]
    first = values[0]
    if first.family == "decimal" and first.type is not None:
        digits = values[1].sql if len(values) > 1 else "0"
        return Value(f"tsql_decimal_{t.called.lower()}({first.sql}, {digits}, {first.type.scale})", first.type)
    return Value(f"{t.called}({', '.join(v.sql for v in values)})", first.type)


def _unit_of(t: ExpressionTranslator, node: exp.Expression) -> str:
    if not isinstance(node, exp.Column | exp.Var | exp.Identifier):
        raise t.unknown(node)
    return text_literal(node.name)


@_named("DATEPART")
def _datepart(t: ExpressionTranslator, arguments: list[exp.Expression], scope: Scope) -> Value:
    return Value(f"tsql_datepart({_unit_of(t, arguments[0])}, {t.expression(arguments[1], scope).sql})", INT)


@_named("YEAR", "MONTH", "DAY")
def _calendar(t: ExpressionTranslator, arguments: list[exp.Expression], scope: Scope) -> Value:
    return Value(f"tsql_datepart('{t.called.lower()}', {t.expression(arguments[0], scope).sql})", INT)


@_named("DATEADD")
def _dateadd(t: ExpressionTranslator, arguments: list[exp.Expression], scope: Scope) -> Value:
    count, value = t.expression(arguments[1], scope), t.expression(arguments[2], scope)
    declared = (
        value.type if value.type is not None and value.family in ("date", "time", "datetime", "offset") else DATETIME
    )
    sql = f"tsql_dateadd({_unit_of(t, arguments[0])}, {count.sql}, {value.sql}, '{declared.name}', {declared.scale})"
    return Value(sql, declared)


@_named("DATEDIFF")
def _datediff(t: ExpressionTranslator, arguments: list[exp.Expression], scope: Scope) -> Value:
    start, end = (t.expression(a, scope).sql for a in arguments[1:])
    return Value(f"tsql_datediff({_unit_of(t, arguments[0])}, {start}, {end})", INT)


@_named("OBJECT_NAME", "OBJECT_SCHEMA_NAME")
def _object_name(t: ExpressionTranslator, arguments: list[exp.Expression], scope: Scope) -> Value:
    # A database id as second argument can only be the current one here; other databases are other files.
    column = "o.name" if t.called == "OBJECT_NAME" else "s.name"
    return Value(
        f"(SELECT {column} FROM {_OBJECT} WHERE o.object_id = {t.expression(arguments[0], scope).sql})", SYSNAME
    )


@_named("SCHEMA_NAME")
def _schema_name(t: ExpressionTranslator, arguments: list[exp.Expression], scope: Scope) -> Value:
    if not arguments:
        return Value("'dbo'", SYSNAME)
    return Value(f'(SELECT name FROM "sys.schemas" WHERE schema_id = {t.expression(arguments[0], scope).sql})', SYSNAME)


@_named("DB_NAME", "DB_ID")
def _database(t: ExpressionTranslator, arguments: list[exp.Expression], scope: Scope) -> Value:
    argument = t.expression(arguments[0], scope).sql if arguments else "NULL"
    return Value(
        f"tsql_{t.called.lower()}({argument}, {int(bool(arguments))})", SYSNAME if t.called == "DB_NAME" else INT
    )


@_named("HAS_PERMS_BY_NAME")
def _has_permission(t: ExpressionTranslator, arguments: list[exp.Expression], scope: Scope) -> Value:
    return Value(f"tsql_permitted({', '.join(t.expression(a, scope).sql for a in arguments)})", INT)


@_named("FN_CDC_MAP_TIME_TO_LSN")
def _time_to_lsn(t: ExpressionTranslator, arguments: list[exp.Expression], scope: Scope) -> Value:
    if not isinstance(arguments[0], exp.Literal | exp.National):
        raise t.unknown("fn_cdc_map_time_to_lsn with an operator that is not a constant")
    operators = {
        "largest less than": ("MAX", "<"), "largest less than or equal": ("MAX", "<="),
        "smallest greater than": ("MIN", ">"), "smallest greater than or equal": ("MIN", ">="),
    }  # fmt: skip
    found = operators.get(arguments[0].name.lower())
    if found is None:
        raise t.unknown(f"the operator '{arguments[0].name}'")
    time = cast(t.expression(arguments[1], scope), DATETIME)
    return Value(_MAPPING.format(f"{found[0]}(start_lsn)", f" WHERE tran_end_time {found[1]} {time.sql}"), LSN)
