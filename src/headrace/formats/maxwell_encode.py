"""Change rows to Maxwell messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.changes import TableSchema
from headrace.changes.typed import literal, quote
from headrace.formats import plain_json
from headrace.formats.encoding import topic_of
from headrace.formats.map_sql import changed_of_maps, json_text, names_sql
from headrace.formats.maxwell_decode import DDL_TYPES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TYPES = {"c": "insert", "u": "update", "d": "delete", "r": "bootstrap-insert"}
# Comments and blanks may stand before a statement. Possessive, so that Java does not recurse on long texts.
_START = r"(?i)\A(?:\s++|/\*(?:[^*]|\*(?!/))*+\*/|--[^\n]*+\n|#[^\n]*+\n)*+"
_STATEMENTS = (
    (r"CREATE\s+(?:TEMPORARY\s+)?TABLE\b", "table-create"),
    (r"DROP\s+(?:TEMPORARY\s+)?TABLE\b", "table-drop"),
    (r"CREATE\s+(?:DATABASE|SCHEMA)\b", "database-create"),
    (r"ALTER\s+(?:DATABASE|SCHEMA)\b", "database-alter"),
    (r"DROP\s+(?:DATABASE|SCHEMA)\b", "database-drop"),
)


def of_maps(changes: DataFrame, schemas: Sequence[TableSchema], topic: str) -> DataFrame:
    """Messages of rows with map images."""
    rows = plain_json.with_numbers(changes, schemas).where(plain_json.known_filter())
    marked = rows.selectExpr("*", f"if(op = 'u', {changed_of_maps()}, null) as old_row")
    return _written(
        marked,
        data=f"if(op = 'd', {plain_json.of_map('before')}, {plain_json.of_map('after')})",
        old=plain_json.of_map("old_row"),
        values=plain_json.value_of("e", "numbers", "booleans"),
        own_key="if(size(schema_key) > 0, schema_key, null)",
        topic=topic,
    )


def of_structs(changes: DataFrame, schema: TableSchema, topic: str) -> DataFrame:
    """Messages of rows with struct images, which follow one structure."""
    left_out = {}
    for column in schema.columns:
        name = literal(column.name)
        old, new = f"before.{quote(column.name)}", f"after.{quote(column.name)}"
        same = (
            f"{old} <=> {new} and not coalesce(array_contains(changed, {name}), false) "
            f"and not coalesce(array_contains(after_absent, {name}), false)"
        )
        left_out[column.name] = f"({same}) or coalesce(array_contains(before_absent, {name}), false)"
    numbers = names_sql([c.name for c in schema.columns if plain_json.is_number(c)])
    return _written(
        changes,
        data=f"if(op = 'd', {plain_json.of_struct('before', schema)}, {plain_json.of_struct('after', schema)})",
        old=plain_json.of_struct("before", schema, left_out),
        values=plain_json.value_of("e", numbers, names_sql(())),
        own_key=names_sql(schema.key) if schema.key else "null",
        topic=topic,
    )


def _written(rows: DataFrame, *, data: str, old: str, values: str, own_key: str, topic: str) -> DataFrame:
    own = f"source['type'] in ({', '.join(map(literal, DDL_TYPES))})"
    starts = " ".join(f"when source['ddl'] rlike {literal(_START + s)} then '{name}'" for s, name in _STATEMENTS)
    types = " ".join(f"when '{op}' then '{name}'" for op, name in _TYPES.items())
    ddl_type = f"case when {own} then source['type'] {starts} else 'table-alter' end"
    kind = f"if(op = 'schema', {ddl_type}, case op {types} end)"
    is_data = "op in ('r', 'c', 'u', 'd')"
    seconds = "cast(unix_seconds(event_time) as string)"
    order = "if(transaction.total_order > 0, cast(transaction.total_order - 1 as string), null)"
    xid = "if(transaction.id rlike '^[0-9]{1,18}\\\\z', transaction.id, " + json_text("transaction.id") + ")"
    pk = f"array_join(transform(map_entries(key), e -> {values}), ',')"
    fields = f"array_join(transform(map_entries(key), e -> concat(',', {json_text(_PK)}, ':', {values})), '')"
    value = plain_json.members(
        ("database", json_text("coalesce(table.database, '')")),
        ("table", json_text("nullif(table.name, '')")),
        ("type", f"concat('\"', {kind}, '\"')"),
        ("ts", f"if({is_data}, {seconds}, cast(unix_millis(event_time) as string))"),
        ("xid", f"if({is_data}, {xid}, null)"),
        ("xoffset", f"if({is_data}, {order}, null)"),
        ("commit", "if(source['commit'] = 'true', 'true', null)"),
        *((name, json_text(f"if({is_data}, source['{name}'], null)")) for name in ("position", "gtid")),
        ("primary_key", f"if({is_data}, concat('[', {pk}, ']'), null)"),
        ("primary_key_columns", f"if({is_data}, to_json(coalesce(map_keys(key), {own_key})), null)"),
        ("sql", "if(op = 'schema', " + json_text("source['ddl']") + ", null)"),
        ("data", f"if({is_data}, {data}, null)"),
        ("old", f"if(op = 'u' and before is not null, {old}, null)"),
    )
    database, name = json_text("coalesce(table.database, '')"), json_text("coalesce(table.name, '')")
    kafka_key = f"concat('{{\"database\":', {database}, ',\"table\":', {name}, {fields}, '}}')"
    taken = f"{is_data} or (op = 'tombstone' and key is not null) or (op = 'schema' and source['ddl'] is not null)"
    return rows.where(taken).selectExpr(
        f"{topic_of(topic)} as topic",
        "cast(null as int) as partition",
        f"if(key is null, null, cast({kafka_key} as binary)) as key",
        f"cast(if(op = 'tombstone', null, {value}) as binary) as value",
        "cast(null as array<struct<key:string,value:binary>>) as headers",
        "position",
    )


_PK = "concat('pk.', e.key)"
