"""Debezium's messages that are no data, back to change rows: schema changes, transaction edges, heartbeats.

They are told by their payload, so they are read with and without schemas, and only where no table's reading fits.

Source: recorded events of the SQL Server connector 1.7.2 and 3.6.1; types as in spec/sqlserver.md section 12.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.changes.typed import literal

_COLUMN = (
    "struct<name:string,jdbcType:int,typeName:string,length:int,scale:int,position:int,optional:boolean,"
    "autoIncremented:boolean,generated:boolean,comment:string,defaultValueExpression:string>"
)
_TABLE = f"struct<primaryKeyColumnNames:array<string>,columns:array<{_COLUMN}>,comment:string>"
_PARSED = (
    "status string, id string, event_count bigint, data_collections "
    "array<struct<data_collection:string,event_count:bigint>>, ts_ms bigint, source map<string,string>, "
    f"databaseName string, schemaName string, ddl string, tableChanges array<struct<type:string,table:{_TABLE}>>"
)
_LSN = "^[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{4}$"
# The least length that the driver reports of a type that may hold gigabytes.
_LARGE = 0x3FFFFFFF
_LOGICAL = {
    "boolean": "bit",
    "int16": "tinyint smallint",
    "int32": "int",
    "int64": "bigint",
    "float32": "real",
    "float64": "float",
    "date": "date",
    "timestamp(3)": "datetime",
    "timestamp(0)": "smalldatetime",
    "uuid": "uniqueidentifier",
    "xml": "xml",
    "bytes": "binary varbinary image timestamp rowversion hierarchyid",
}
_SCALED = {"time": "time", "timestamp": "datetime2", "zoned_timestamp": "datetimeoffset"}


def parsed(reading: str) -> str:
    """Spark SQL that parses the payload where `reading`, the number of a table's reading, is null.

    Its fields `kind` (null for other messages), `source`, `table_schema` and `schema_id` are read by `columns`.
    """
    message = f"from_json(value_payload, {literal(_PARSED)})"
    kind = (
        "case when p.status in ('BEGIN', 'END') and p.id is not null then lower(p.status) "
        "when p.tableChanges is not null and size(p.tableChanges) <= 1 and p.source is not null then 'schema' "
        "when p.ts_ms is not null and get_json_object(key_payload, '$.serverName') is not null then 'heartbeat' end"
    )
    described = _table_schema("p.tableChanges[0].table")
    fields = f"named_struct('kind', {kind}, 'p', p, 'd', {described})"
    # A lambda, so that each part is computed once.
    return f"if({reading} is null and value is not null, transform(array({message}), p -> {fields})[0], null)"


def columns(facts: Sequence[str]) -> dict[str, str]:
    """Spark SQL, per column of the change row, for what `parsed` gave as `m`; `facts` are told in other columns."""
    own = ", ".join(map(literal, facts))
    change = (
        "map_concat("
        f"map_filter(m.p.source, (k, v) -> v is not null and k not in ({own})), "
        "if(m.p.ddl is null, map(), map('ddl', m.p.ddl)), "
        "if(size(m.p.tableChanges) = 1, map('change', m.p.tableChanges[0].type), map()))"
    )
    # The message does not name its connector; an LSN of this form is SQL Server's.
    edge = (
        f"map_concat(if(m.p.id rlike '{_LSN}', map('connector', 'sqlserver', 'commit_lsn', m.p.id), map()), "
        "if(m.p.data_collections is null, map(), map('data_collections', to_json(m.p.data_collections))))"
    )
    source_time = "coalesce(cast(m.p.source['ts_us'] as bigint), cast(m.p.source['ts_ms'] as bigint) * 1000)"
    table = (
        "named_struct('database', coalesce(m.p.databaseName, m.p.source['db'], ''), "
        "'schema', coalesce(m.p.schemaName, m.p.source['schema'], ''), 'name', coalesce(m.p.source['table'], ''))"
    )
    return {
        "op": "m.kind",
        "table": f"if(m.kind = 'schema', {table}, null)",
        "event_time": "case m.kind when 'schema' then "
        f"timestamp_micros({source_time}) when 'heartbeat' then null else timestamp_millis(m.p.ts_ms) end",
        "capture_time": "if(m.kind = 'heartbeat', timestamp_millis(m.p.ts_ms), timestamp)",
        "snapshot": "if(m.kind = 'schema', nullif(m.p.source['snapshot'], 'false'), null)",
        "transaction": "if(m.kind in ('begin', 'end'), named_struct('id', m.p.id, 'total_order', m.p.event_count, "
        "'data_collection_order', cast(null as bigint)), null)",
        "source": f"case m.kind when 'schema' then {change} when 'heartbeat' then map() else {edge} end",
        "schema_id": "m.d.fingerprint",
        "table_schema": "m.d.text",
    }


def _table_schema(table: str) -> str:
    """Spark SQL for a struct of the table's structure as TableSchema writes it, and its fingerprint.

    The same texts as `TableSchema.to_text` and `fingerprint` give; names with control characters aside, which Java's
    JSON spells another way.
    """
    name = "regexp_replace(lower(c.typeName), ' *([(][)])? *identity$', '')"
    places = " ".join(
        f"when {name} in ({', '.join(map(literal, natives.split()))}) then '{logical}'"
        for logical, natives in _LOGICAL.items()
    )
    scaled = " ".join(
        f"when {name} = '{native}' then concat('{kind}(', coalesce(c.scale, 7), ')')"
        for kind, native in _SCALED.items()
    )
    logical = (
        f"case {places} {scaled} when {name} in ('decimal', 'numeric', 'money', 'smallmoney') "
        "then concat('decimal(', c.length, ',', coalesce(c.scale, 0), ')') else 'string' end"
    )
    column = {
        "name": "c.name",
        "jdbcType": "c.jdbcType",
        "nativeType": "cast(null as int)",
        "typeName": "c.typeName",
        "typeExpression": "c.typeName",
        "charsetName": "cast(null as string)",
        "length": "c.length",
        "scale": "c.scale",
        "position": "c.position",
        "optional": "coalesce(c.optional, true)",
        "autoIncremented": "coalesce(c.autoIncremented, false)",
        "generated": "coalesce(c.generated, false)",
        "comment": "c.comment",
        "defaultValueExpression": "c.defaultValueExpression",
        "enumValues": "cast(null as string)",
        "logicalType": logical,
        "default": "cast(null as string)",
        "large": f"c.length >= {_LARGE}",
    }
    source = "p.source"
    parts = [f"coalesce({source}['{name}'], '')" for name in ("db", "schema", "table")]
    id = f"array({', '.join(parts)})"

    def structure(columns: dict[str, str], *, sort: bool) -> str:
        listed = f"transform({table}.columns, c -> {_struct(columns, sort=sort)})"
        whole = {
            "id": f"concat('\"', array_join(filter({id}, i -> i <> ''), '\".\"'), '\"')",
            "tableId": id,
            "defaultCharsetName": "cast(null as string)",
            "primaryKeyColumnNames": f"coalesce({table}.primaryKeyColumnNames, cast(array() as array<string>))",
            "columns": listed,
        }
        if not sort:
            whole["comment"] = f"{table}.comment"
        return f"to_json({_struct(whole, sort=sort)}, map('ignoreNullFields', 'false'))"

    bare = {name: sql for name, sql in column.items() if name != "comment"}
    fingerprint = f"substr(sha2({structure(bare, sort=True)}, 256), 1, 16)"
    described = f"named_struct('text', {structure(column, sort=False)}, 'fingerprint', {fingerprint})"
    return f"if({table}.columns is null, null, {described})"


def _struct(fields: dict[str, str], *, sort: bool) -> str:
    names = sorted(fields) if sort else list(fields)
    return f"named_struct({', '.join(f'{literal(name)}, {fields[name]}' for name in names)})"
