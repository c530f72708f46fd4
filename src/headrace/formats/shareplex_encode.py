"""Change rows to SharePlex messages: `meta`, `data` and `key` are written one by one and joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.changes import TableSchema
from headrace.changes.refusal import unknown_structure
from headrace.changes.texts import canonical_text, moment_text
from headrace.changes.typed import literal, quote
from headrace.formats import text_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WORDS = "case op when 'u' then 'upd' when 'd' then 'del' when 't' then 'truncate' else 'ins' end"
_NULLS = "map('ignoreNullFields', 'false')"


@dataclass(frozen=True)
class Wire:
    """How messages are written.

    Args:
        topic: SQL for a row's topic.
        table_parts: how many parts of a table's name `meta.table` has at most.
        binary: how bytes are written, `hex` or `base64`.
    """

    topic: str
    table_parts: int
    binary: str


def encoded_maps(changes: DataFrame, schemas: Sequence[TableSchema], keys: Sequence[str], wire: Wire) -> DataFrame:
    """The messages of change rows with map images, whose `schema_id` is the fingerprint of one of the structures.

    A row of another structure stops the query.
    """
    known = ", ".join(literal(schema.fingerprint) for schema in schemas) or "''"
    # A filter, because Spark leaves out a projected check whose result nobody reads.
    rows = changes.where(
        f"case when op in ('r', 'c', 'u', 'd') then coalesce(schema_id in ({known}), false) or {unknown_structure()} "
        "else op = 't' end"
    )
    differs = (
        "map_filter(new, (k, v) -> not map_contains_key(old, k) or not (old[k] <=> v) "
        "or coalesce(array_contains(changed, k), false))"
    )
    # A delete without its old row is told by its key.
    old_row = "if(op = 'd', coalesce(before, key), before)"
    laid = rows.selectExpr(
        "*",
        f"{text_values.wire_map(old_row, schemas, 'schema_id', wire.binary)} as old",
        f"{text_values.wire_map('after', schemas, 'schema_id', wire.binary)} as new",
    ).selectExpr(
        "*",
        f"case op when 't' then null when 'd' then old when 'u' then if(old is null, new, {differs}) else new end as d",
    )
    key = "key"
    if keys:
        names = f"array({', '.join(map(literal, keys))})"
        image = "coalesce(after, before)"
        values = f"transform({names}, n -> {image}[n])"
        key = f"coalesce(key, if({image} is null, null, map_from_arrays({names}, {values})))"
    data = "if(d is null, null, concat(',\"data\":', to_json(d)))"
    old = "if(op = 'u' and old is not null, concat(',\"key\":', to_json(old)), null)"
    return _messages(laid, key, data, old, wire)


def encoded_structs(changes: DataFrame, schema: TableSchema, wire: Wire) -> DataFrame:
    """The messages of change rows of one table with struct images."""
    columns = schema.columns
    names = f"array({', '.join(literal(c.name) for c in columns)})"
    rows = changes.where("op in ('r', 'c', 'u', 'd', 't')").selectExpr(
        "*",
        "if(op = 'u' and before is not null, before, null) as b",
        "if(op = 'd', before, after) as i",
        "if(op = 'd', before_absent, after_absent) as i_absent",
    )

    def image(struct: str) -> str:
        fields = ", ".join(
            f"{literal(c.name)}, {text_values.wire_text(f'{struct}.{quote(c.name)}', c, wire.binary)}" for c in columns
        )
        return f"if({struct} is null, null, named_struct({fields}))"

    laid = rows.selectExpr(*fenced(rows.columns), f"{image('i')} as it", f"{image('b')} as bt")
    # A column whose new value stands in `data` of an update.
    said = {
        c.name: f"(not (it.{quote(c.name)} <=> bt.{quote(c.name)}) or array_contains(changed, {literal(c.name)}))"
        for c in columns
    }
    some = ", ".join(f"{literal(n)}, if({test}, it.{quote(n)}, null)" for n, test in said.items())
    nulled = " or ".join(f"(it.{quote(n)} is null and {test})" for n, test in said.items())
    listed = ", ".join(
        f"if({test} or array_contains(before_absent, {literal(n)}), {literal(n)}, null)" for n, test in said.items()
    )

    def whole(struct: str, absent: str) -> str:
        pairs = ", ".join(f"{literal(c.name)}, {struct}.{quote(c.name)}" for c in columns)
        present = f"to_json(map_filter(map({pairs}), (k, v) -> not array_contains({absent}, k)))"
        return f"if({absent} is null, to_json({struct}, {_NULLS}), {present})"

    pairs = ", ".join(f"{literal(c.name)}, it.{quote(c.name)}" for c in columns)
    left_out = f"array_except({names}, array_except(array_compact(array({listed})), coalesce(i_absent, array())))"
    exact = f"to_json(map_filter(map({pairs}), (k, v) -> not array_contains(left_out, k)))"
    laid = laid.selectExpr(
        *fenced(laid.columns),
        f"bt is not null and ({nulled} or before_absent is not null or i_absent is not null) as careful",
    ).selectExpr("*", f"if(careful, {left_out}, null) as left_out")
    update = f"if(careful, {exact}, to_json(named_struct({some})))"
    data = f"if(it is null, null, concat(',\"data\":', if(bt is null, {whole('it', 'i_absent')}, {update})))"
    old = f"if(bt is null, null, concat(',\"key\":', {whole('bt', 'before_absent')}))"
    key = "key"
    if schema.key:
        newest = ", ".join(f"{literal(c.name)}, {canonical_text(f'i.{quote(c.name)}', c)}" for c in schema.key_columns)
        key = f"coalesce(key, if(i is null, null, map({newest})))"
    return _messages(laid, key, data, old, wire)


def _messages(rows: DataFrame, key: str, data: str, old: str, wire: Wire) -> DataFrame:
    value = f"concat('{{\"meta\":', {_meta(wire.table_parts)}, coalesce({data}, ''), coalesce({old}, ''), '}}')"
    return rows.selectExpr(
        f"{wire.topic} as topic",
        "cast(null as int) as partition",
        f"cast(to_json({key}) as binary) as key",
        f"cast({value} as binary) as value",
        "cast(null as array<struct<key:string,value:binary>>) as headers",
        "transform(array(position), p -> p)[0] as position",
    )


def _meta(table_parts: int) -> str:
    number = "try_cast(source['userid'] as bigint)"
    plain = f"cast({number} as string) <=> source['userid']"
    sequence, size = "transaction.total_order", "try_cast(source['size'] as bigint)"
    clock = f"replace({moment_text('unix_micros(event_time)', 'timestamp', 6, 0)}, ' ', 'T')"
    fields = {
        "time": clock,
        # A name that stands twice is written once: one of the two is null, and nulls are left out.
        "userid": f"if({plain}, {number}, null)",
        "`userid`": f"if({plain}, null, source['userid'])",
        "op": _WORDS,
        "scn": "coalesce(source['commit_scn'], source['scn'])",
        "rowid": "coalesce(source['rowid'], source['row_id'])",
        "trans": "transaction.id",
        "seq": sequence,
        "size": size,
        "table": _table(table_parts),
        "idx": f"if({sequence} is null or {size} is null, null, concat({sequence}, '/', {size}))",
        "posttime": "source['posttime']",
    }
    pairs = ", ".join(f"'{name.strip('`')}', {sql}" for name, sql in fields.items())
    return f"to_json(named_struct({pairs}))"


def _table(parts: int) -> str:
    """The table's parts with points between; a part that holds a point or a quote stands in quotes."""
    names = ("table.database", "table.schema", "table.name")[-min(parts, 3) :]
    odd = literal('[."]')
    quoted = (f"if({n} rlike {odd}, concat('\"', replace({n}, '\"', '\"\"'), '\"'), nullif({n}, ''))" for n in names)
    return f"nullif(concat_ws('.', {', '.join(quoted)}), '')"


def fenced(columns: Sequence[str]) -> list[str]:
    """The columns, `op` by way of a lambda: Spark keeps such a projection out of whole-stage code, where expressions
    for many columns make one method that is too long to be compiled."""
    return [f"transform(array({c}), c -> c)[0] as {c}" if c == "op" else c for c in columns]
