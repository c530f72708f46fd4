"""Change rows to Qlik messages: what JSON and Avro have in common, and the JSON form.

Rows are laid out first: their structure's number, the values of both images by ordinal (arrays of texts; for struct
images the structs themselves), which columns they carry, and the masks. Then each form writes them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.changes import Column, TableSchema
from headrace.changes.refusal import unknown_structure
from headrace.changes.texts import canonical_text, moment_text
from headrace.changes.typed import literal, quote
from headrace.formats.debezium_texts import let
from headrace.formats.map_sql import json_text
from headrace.formats.qlik_metadata import type_facts
from headrace.local_rows import local_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPERATION = "case op when 'r' then 'REFRESH' when 'c' then 'INSERT' when 'u' then 'UPDATE' else 'DELETE' end"
_DATA = "op in ('r', 'c', 'u', 'd')"
_HEADER_TYPE = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True)
class Encoding:
    """How messages are written.

    Args:
        topic: SQL for a row's topic.
        metadata_topic: the topic of metadata messages; that of the table where it is None.
        key: `none`, `schema_table` or `primary_key`.
        envelope: whether messages stand in the envelope, and metadata messages are written.
        server: what stands in the lineage where a row does not say it.
        task: the same.
        little: whether masks have their least significant byte first.
    """

    topic: str
    metadata_topic: str | None
    key: str
    envelope: bool
    server: str
    task: str
    little: bool


def schema_id(schema: TableSchema) -> str:
    """The id by which data messages name a structure: 32 hex digits that are the same for the same structure."""
    return hashlib.sha256(schema.fingerprint.encode()).hexdigest()[:32].upper()


def metadata_parts(schema: TableSchema, data_schema: str) -> tuple[str, str]:
    """A metadata message before and behind its lineage, as JSON."""
    columns = {}
    for place, column in enumerate(schema.columns, 1):
        at = schema.key.index(column.name) + 1 if column.name in schema.key else 0
        columns[column.name] = {"ordinal": place, **type_facts(column), "primaryKeyPosition": at}
    tail = {"tableStructure": {"tableColumns": columns}, "dataSchema": data_schema}
    return f'{{"schemaId":"{schema_id(schema)}","lineage":', "," + _json(tail)[1:]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def lineage_fields(encoding: Encoding) -> dict[str, str]:
    """SQL for the fields of a metadata message's lineage, from a `schema` row."""
    return {
        "server": f"coalesce(source['server'], {literal(encoding.server)})",
        "task": f"coalesce(source['task'], {literal(encoding.task)})",
        "schema": "coalesce(table.schema, '')",
        "table": "coalesce(table.name, '')",
        "tableVersion": "coalesce(try_cast(source['tableVersion'] as int), 1)",
        "timestamp": f"coalesce(source['timestamp'], {_clock('coalesce(event_time, capture_time)')}, '')",
    }


def with_metadata_rows(changes: DataFrame, schemas: Sequence[TableSchema]) -> DataFrame:
    """The rows of a batch with a `schema` row in front for each structure that has none among them."""
    from headrace.changes.row import spark_schema

    said = changes.where("op = 'schema' and table_schema is not null").selectExpr("schema_id").distinct().collect()
    known = {row.schema_id for row in said}
    missing = [schema for schema in schemas if schema.fingerprint not in known]
    if not missing:
        return changes
    names = changes.columns
    ddl = "op string, database string, schema string, name string, schema_id string, table_schema string"
    lines = [("schema", s.id.database, s.id.schema, s.id.name, s.fingerprint, s.to_text()) for s in missing]
    kinds = {f.name: f.dataType.simpleString() for f in changes.schema}
    made = {
        "op": "op",
        "table": "named_struct('database', nullif(database, ''), 'schema', nullif(schema, ''), 'name', name)",
        "position": "''",
        "schema_id": "schema_id",
        "table_schema": "table_schema",
    }
    wanted = [f.name for f in spark_schema() if f.name in names] + [n for n in names if n not in spark_schema().names]
    rows = local_rows(changes.sparkSession, lines, ddl).selectExpr(
        *(f"cast({made.get(name, 'null')} as {kinds[name]}) as {quote(name)}" for name in wanted)
    )
    return rows.unionByName(changes)


def laid_maps(changes: DataFrame, schemas: Sequence[TableSchema], encoding: Encoding) -> DataFrame:
    """The data rows with map images: `s` (number of the structure), `n` (its columns' names), `b` and `a` (values of
    `beforeData` and `data` by ordinal), `b_has` and `a_has` (whether each is carried), `changeMask`, `columnMask` and,
    for Avro, `narrowMask`.

    A row of another structure stops the query.
    """
    numbers = " ".join(f"when {literal(schema.fingerprint)} then {n}" for n, schema in enumerate(schemas))
    rows = changes.selectExpr("*", f"case schema_id {numbers or 'when null then 0'} end as s")
    unknown = unknown_structure()
    # A filter, because Spark leaves out a projected check whose result nobody reads.
    rows = rows.where(f"case when {_DATA} then s is not null or {unknown} else op = 'schema' and s is not null end")
    names = _array_of(schemas, lambda schema: _names([c.name for c in schema.columns]))
    large = _array_of(schemas, lambda schema: _names([c.name for c in schema.columns if c.large]))
    keys = _array_of(schemas, lambda schema: _names(schema.key))
    imaged = rows.selectExpr(
        "*",
        f"{names}[s] as n",
        f"{large}[s] as large",
        f"{keys}[s] as k",
        "if(op = 'u', before, null) as old",
        # A delete without its old row is told by its key.
        "if(op = 'd', coalesce(before, key), after) as new",
    )
    valued = imaged.selectExpr(
        *(name for name in imaged.columns if name not in ("old", "new")),
        "if(old is null, null, transform(n, c -> old[c])) as b",
        "if(old is null, null, transform(n, c -> map_contains_key(old, c))) as b_has",
        "if(new is null, null, transform(n, c -> new[c])) as a",
        "if(new is null, null, transform(n, c -> map_contains_key(new, c))) as a_has",
    )
    # An old image that lacks a column does not say that it changed.
    differs = "(b_has[i] and a_has[i] and not (b[i] <=> a[i]))"
    changed = (
        "case op when 'd' then transform(n, (c, i) -> array_contains(k, c)) "
        "when 'u' then if(changed is null and b is null, null, transform(n, (c, i) -> not array_contains(large, c) "
        f"and if(changed is null, {differs}, array_contains(changed, c)))) "
        "else transform(n, (c, i) -> a_has[i] and not array_contains(large, c)) end"
    )
    has = "transform(n, (c, i) -> a_has[i] or coalesce(b_has[i], false))"
    # In Avro no field can be left out: a null is NULL only where both images carry the column.
    everywhere = "transform(n, (c, i) -> a_has[i] and coalesce(b_has[i], true))"
    return valued.selectExpr(
        "*",
        f"{let(changed, 'flags', mask('flags', little=encoding.little))} as changeMask",
        f"{let(has, 'flags', mask('flags', little=encoding.little))} as columnMask",
        f"{let(everywhere, 'flags', mask('flags', little=encoding.little))} as narrowMask",
    )


def mask(flags: str, *, little: bool) -> str:
    """Spark SQL for the hexadecimal text of an array of booleans by ordinal; null for null."""
    bits = f"transform(slice({flags}, y * 8 + 1, 8), (f, i) -> if(f, shiftleft(1, i), 0))"
    count = f"((size({flags}) + 7) div 8)"
    order = f"sequence(0, {count} - 1)" if little else f"sequence({count} - 1, 0, -1)"
    text = f"lpad(hex(aggregate({bits}, 0, (t, x) -> t + x)), 2, '0')"
    return (
        f"case when {flags} is null then null when size({flags}) = 0 then '' else array_join(transform("
        f"transform({order}, y -> cast(y as int)), y -> {text}), '') end"
    )


def json_messages(laid: DataFrame, schemas: Sequence[TableSchema], encoding: Encoding) -> DataFrame:
    """Messages of rows laid out by `laid_maps`."""
    spelled = _array_of(
        schemas,
        lambda schema: _booleans([c.logical.kind == "timestamp" for c in schema.columns]),
    )

    def image(values: str, has: str) -> str:
        value = f"if(wire[i], replace({values}[i], ' ', 'T'), {values}[i])"
        # What neither image carries is null, which columnMask tells from NULL; what this one alone lacks is left out.
        carried = f"({has}[i] or not (a_has[i] or coalesce(b_has[i], false)))"
        entry = f"concat({json_text('c')}, ':', coalesce({json_text('v')}, 'null'))"
        each = f"transform(n, (c, i) -> if({carried}, {let(value, 'v', entry)}, null))"
        return f"if({values} is null, null, concat('{{', array_join({each}, ','), '}}'))"

    data_schema = _json({"type": "record", "name": "DataRecord", "fields": []})
    parts = [metadata_parts(schema, data_schema) for schema in schemas]
    heads = f"array({', '.join(literal(head) for head, _ in parts)})[s]" if parts else "null"
    tails = f"array({', '.join(literal(tail) for _, tail in parts)})[s]" if parts else "null"
    lineage = ", ".join(f"'{name}', {sql}" for name, sql in lineage_fields(encoding).items())
    metadata = f"concat({heads}, to_json(named_struct({lineage})), {tails})"
    ids = f"array({', '.join(literal(schema_id(schema)) for schema in schemas) or 'null'})[s]"
    known = laid.selectExpr("*", f"{spelled}[s] as wire")
    message = (
        f"concat('{{\"data\":', {image('a', 'a_has')}, ',\"beforeData\":', coalesce({image('b', 'b_has')}, 'null'), "
        f"',\"headers\":', {headers_json(encoding)}, '}}')"
    )
    if encoding.envelope:
        opening = (
            'concat(\'{"magic":"atMSG","type":"\', if(op = \'schema\', \'MD\', \'DT\'), \'","headers":null,'
            f"\"messageSchemaId\":', if(op = 'schema', 'null', concat('\"', {ids}, '\"')), ',\"messageSchema\":null,"
            '"message":\')'
        )
        value = f"concat({opening}, if(op = 'schema', {metadata}, {message}), '}}')"
    else:
        known, value = known.where("op <> 'schema'"), message
    return finished(known, f"cast({value} as binary)", f"cast({json_key(encoding)} as binary)", encoding)


def finished(rows: DataFrame, value: str, key: str, encoding: Encoding) -> DataFrame:
    """The columns of a message."""
    topic = encoding.topic
    if encoding.metadata_topic is not None:
        topic = f"if(op = 'schema', {literal(encoding.metadata_topic)}, {topic})"
    return rows.selectExpr(
        f"{topic} as topic",
        "cast(null as int) as partition",
        f"if(op = 'schema', null, {key}) as key",
        f"{value} as value",
        f"cast(null as {_HEADER_TYPE}) as headers",
        # The lambda keeps all this out of whole-stage code, where one method would be too long to be compiled.
        "transform(array(position), p -> p)[0] as position",
    )


def json_key(encoding: Encoding) -> str:
    """SQL for Kafka's key as text."""
    return {
        "none": "cast(null as string)",
        "schema_table": "nullif(concat_ws('.', nullif(table.schema, ''), nullif(table.name, '')), '')",
        "primary_key": "to_json(key)",
    }[encoding.key]


def header_values() -> dict[str, str]:
    """SQL for the headers that are texts, by name."""
    counter = "lpad(coalesce(transaction.total_order, 0), 19, '0')"
    instant = f"translate({_clock('event_time', 2)}, '-:T.', '')"
    return {
        "changeSequence": f"coalesce(source['changeSequence'], if(op = 'r', null, concat({instant}, {counter})), '')",
        "timestamp": f"coalesce({_clock('event_time')}, '')",
        "streamPosition": "coalesce(source['streamPosition'], '')",
        "transactionId": "coalesce(transaction.id, '')",
    }


LAST_EVENT = "case source['transactionLastEvent'] when 'true' then true when 'false' then false end"


def headers_json(encoding: Encoding) -> str:
    """SQL for the headers as JSON. A message that names no metadata says its table in them."""
    fields = [("operation", OPERATION), *header_values().items()]
    fields += [("changeMask", "changeMask"), ("columnMask", "columnMask")]
    fields += [("transactionEventCounter", "transaction.total_order"), ("transactionLastEvent", LAST_EVENT)]
    pairs = ", ".join(f"'{name}', {sql}" for name, sql in fields)
    whole = f"to_json(named_struct({pairs}), map('ignoreNullFields', 'false'))"
    some = "'externalSchemaId', source['externalSchemaId']"
    if not encoding.envelope:
        some += ", 'schema', nullif(table.schema, ''), 'table', nullif(table.name, '')"
    # Only where there are any: headers that a message may lack.
    more = f"to_json(named_struct({some}))"
    added = let(more, "m", "if(m = '{}', '', concat(',', substr(m, 2, length(m) - 2)))")
    return let(whole, "w", f"concat(substr(w, 1, length(w) - 1), {added}, '}}')")


def _clock(moment: str, digits: int = 3) -> str:
    """`YYYY-MM-DDTHH:MM:SS.fff` in UTC; null for null."""
    return f"replace({moment_text(f'unix_micros({moment})', 'timestamp', 6, digits)}, ' ', 'T')"


def _array_of(schemas: Sequence[TableSchema], make: Callable[[TableSchema], str]) -> str:
    made = ", ".join(make(schema) for schema in schemas)
    return f"array({made or 'null'})"


def _names(names: Sequence[str]) -> str:
    return f"cast(array({', '.join(map(literal, names))}) as array<string>)"


def _booleans(flags: Sequence[bool]) -> str:
    return f"cast(array({', '.join('true' if flag else 'false' for flag in flags)}) as array<boolean>)"


def value_text(value: str, column: Column) -> str:
    """SQL for a value of the column's Spark type as the text that JSON messages have."""
    text = canonical_text(value, column)
    return f"replace({text}, ' ', 'T')" if column.logical.kind == "timestamp" else text
