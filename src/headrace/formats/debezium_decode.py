"""The plan of a decode: Debezium messages to change rows.

Each structure that occurs in the batch gets its own typed `from_json`, chosen by a hash of the message's schema text,
so that integers, decimals and texts are read exactly and each message is parsed once.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.changes import Column, TableId, TableSchema
from headrace.changes.row import CHANGE_ROW_DDL, spark_schema
from headrace.changes.typed import literal, quote
from headrace.errors import OptionError
from headrace.formats import debezium_metadata_decode as metadata
from headrace.formats.debezium_options import field_rules, value_modes
from headrace.formats.debezium_schema import SHAPES, key_schema, value_schema
from headrace.formats.debezium_texts import FieldText, field_text
from headrace.formats.debezium_topics import topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BAD = "_headrace_malformed"
_OPENING = '{"schema":'
_ENVELOPE = ',"payload":'
_MAP = "map<string,string>"
_TRANSACTION = "struct<id:string,total_order:bigint,data_collection_order:bigint>"
_HEAD = f"op string, source {_MAP}, transaction {_TRANSACTION}"
# What the change row says in columns of its own.
_OWN = ("ts_ms", "ts_us", "ts_ns", "snapshot", "db", "schema", "table")
_OPERATIONS = ("r", "c", "u", "d", "t")


@dataclass(frozen=True)
class Reading:
    """One wire structure: the fields of a row or a key, in order.

    Args:
        fields: name on the wire, column and way of reading.
        mark: the SQL condition under which a message follows it.
    """

    fields: tuple[tuple[str, str, FieldText], ...]
    mark: str

    @property
    def struct(self) -> str:
        """The Spark type that `from_json` reads."""
        return "struct<" + ",".join(f"{quote(name)}:{text.parsed}" for name, _, text in self.fields) + ">"

    def image(self, struct: str) -> str:
        """Spark SQL for the image map of a parsed struct."""
        pairs = ", ".join(
            f"{literal(column)}, {text.sql(f'{struct}.{quote(name)}')}" for name, column, text in self.fields
        )
        return f"if({struct} is null, null, map({pairs}))"


@dataclass(frozen=True)
class Structure:
    """A table's structure, and which messages follow it.

    Args:
        schema: the structure.
        row: number of its row's reading.
        key: number of its key's reading; null without a key.
        first: offset and partition of its first message, where known.
    """

    schema: TableSchema
    row: int
    key: int | None
    first: tuple[int, int] | None = None


@dataclass
class Readings:
    """All structures of a batch."""

    rows: list[Reading] = field(default_factory=list)
    keys: list[Reading] = field(default_factory=list)
    structures: list[Structure] = field(default_factory=list)
    topics: dict[str, TableId] = field(default_factory=dict)


def with_texts(messages: DataFrame) -> DataFrame:
    """Kafka's columns with the schema part and the payload part of key and value as text, side by side.

    Converters write `{"schema":...,"payload":...}` without spaces; anything else is split by a JSON parser, which costs
    more but keeps the payload's digits only as far as no binary number is in it.
    """
    have = messages.columns
    kafka = {
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "key": "binary",
        "value": "binary",
        "headers": "array<struct<key:string,value:binary>>",
    }
    columns = [f"cast({name if name in have else 'null'} as {kind}) as {name}" for name, kind in kafka.items()]
    texts = messages.selectExpr(*columns).selectExpr(
        "*",
        "cast(key as string) as kt",
        "cast(value as string) as vt",
        f"substring_index(cast(key as string), '{_ENVELOPE}', 1) as ko",
        f"substring_index(cast(value as string), '{_ENVELOPE}', 1) as vo",
    )
    split = texts.selectExpr(
        *kafka,
        f"{_schema('kt', 'ko')} as key_schema",
        f"{_payload('kt', 'ko', 'key')} as key_payload",
        f"{_schema('vt', 'vo')} as value_schema",
        f"{_payload('vt', 'vo', 'value')} as value_payload",
    )
    return split.selectExpr("*", "xxhash64(key_schema) as kh", "xxhash64(value_schema) as vh")


def _enveloped(text: str, opening: str) -> str:
    return f"startswith({text}, '{_OPENING}{{') and octet_length({opening}) < octet_length({text})"


def _schema(text: str, opening: str) -> str:
    """The message up to its payload: `{"schema":{...}` without the closing brace."""
    slow = f"get_json_object({text}, '$.schema')"
    return (
        f"case when {_enveloped(text, opening)} then {opening} "
        f"when get_json_object({text}, '$.schema.type') is not null then concat('{_OPENING}', {slow}) end"
    )


def _payload(text: str, opening: str, raw: str) -> str:
    # Cut as bytes: cutting a string counts its characters one by one.
    start = f"octet_length({opening}) + {len(_ENVELOPE) + 1}"
    fast = (
        f"cast(substr({raw}, {start}, octet_length({raw}) - octet_length({opening}) - {len(_ENVELOPE) + 1}) as string)"
    )
    slow = f"get_json_object({text}, '$.payload')"
    return (
        f"case when {_enveloped(text, opening)} then {fast} "
        f"when get_json_object({text}, '$.schema.type') is not null then {slow} else {text} end"
    )


def _connect(opening: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(opening + "}")["schema"]
    return schema


def collected(texts: DataFrame, table_field: str) -> Readings:
    """The structures that occur in a batch, by running one job over it.

    `table_field` is the key field of a router, which is no part of the table's key.
    """
    names = "from_json(value_payload, 'source struct<db:string,`schema`:string,`table`:string>').source"
    # Grouped by the texts themselves: aggregating a text instead would sort the batch.
    found = (
        texts.where("value is not null or key is not null")
        .selectExpr("topic", "partition", "offset", "key_schema as ks", "value_schema as vs", f"{names} as s")
        .groupBy("topic", "ks", "vs", "s")
        .agg({"offset": "min", "partition": "min"})
        .selectExpr(
            "topic",
            "ks",
            "vs",
            "xxhash64(ks) as kh",
            "xxhash64(vs) as vh",
            "s.*",
            "`min(offset)` as at",
            "`min(partition)` as part",
        )
        .orderBy("topic", "at")
        .collect()
    )
    readings = Readings()
    keys: dict[int, int] = {}
    rows: dict[int, int] = {}
    for line in found:
        if line.ks is not None and line.kh not in keys:
            fields = _key_fields(line.ks, table_field)
            keys[line.kh] = len(readings.keys)
            readings.keys.append(_reading(fields, f"kh = {line.kh}L and key_schema is not null"))
        row = _row_fields(line.vs)
        if row is None:
            continue
        if line.vh not in rows:
            rows[line.vh] = len(readings.rows)
            readings.rows.append(_reading(row, f"vh = {line.vh}L and value_schema is not null"))
        id = TableId(line.db or "", line.schema or "", line.table or "")
        readings.topics.setdefault(line.topic, id)
        key_fields = _key_fields(line.ks, table_field) if line.ks is not None else []
        columns = tuple(
            Column(f["field"], n, field_text(f).logical, nullable=f["optional"]) for n, f in enumerate(row, 1)
        )
        present = {column.name for column in columns}
        key = tuple(f["field"] for f in key_fields if f["field"] in present)
        readings.structures.append(
            Structure(TableSchema(id, columns, key), rows[line.vh], keys.get(line.kh), (line.at, line.part))
        )
    return readings


def _key_fields(schema: str, table_field: str) -> list[dict[str, Any]]:
    return [field for field in _connect(schema).get("fields") or [] if field.get("field") != table_field]


def _row_fields(schema: str | None) -> list[dict[str, Any]] | None:
    """The fields of a row in an envelope's schema; null where the schema is no data change event's."""
    if schema is None:
        return None
    envelope = {f.get("field"): f for f in _connect(schema).get("fields") or ()}
    row = envelope.get("after") or envelope.get("before")
    if "op" not in envelope or "source" not in envelope or row is None:
        return None
    fields: list[dict[str, Any]] = row.get("fields") or []
    return fields


def _reading(fields: Sequence[Mapping[str, Any]], mark: str, known: Sequence[Column] | None = None) -> Reading:
    """How fields are read; `known` are the columns that they hold, in the same order."""
    if known is None:
        return Reading(tuple((f["field"], f["field"], field_text(f)) for f in fields), mark)
    pairs = zip(fields, known, strict=True)
    return Reading(tuple((f["field"], c.name, field_text(f, c.logical)) for f, c in pairs), mark)


def known_reading(
    readings: Readings, schema: TableSchema, mark: str, row: Mapping[str, Any], key: Mapping[str, Any]
) -> None:
    """Add a structure that the user gave; `row` and `key` are its Connect schemas, `mark` selects its messages."""
    fields = next(f for f in row["fields"] if f["field"] == "after")["fields"]
    readings.rows.append(_reading(fields, mark, schema.columns))
    number = None
    if schema.key:
        number = len(readings.keys)
        readings.keys.append(_reading(key["fields"], mark, schema.key_columns))
    readings.structures.append(Structure(schema, len(readings.rows) - 1, number))


def change_rows(texts: DataFrame, readings: Readings, placeholders: tuple[str, str], *, by_topic: bool) -> DataFrame:
    """The change rows of the messages, lazily."""
    marked = texts.selectExpr(
        "*",
        f"{_number(readings.rows)} as t",
        f"{_number(readings.keys)} as kt",
    )
    options = f"map('columnNameOfCorruptRecord', '{_BAD}')"
    parsed = [
        f"if(t = {n}, from_json(value_payload, "
        f"{literal(f'before {r.struct}, after {r.struct}, {_HEAD}, {_BAD} string')}, {options}), null) as p{n}"
        for n, r in enumerate(readings.rows)
    ]
    parsed += [
        f"if(kt = {n}, from_json(key_payload, {literal(f'{r.struct[:-1]},{_BAD}:string>')}, {options}), null) as k{n}"
        for n, r in enumerate(readings.keys)
    ]
    rows, keys = range(len(readings.rows)), range(len(readings.keys))
    facts = _pick("t", [f"p{n}.source" for n in rows], _MAP)
    own = ", ".join(map(literal, _OWN))
    spelled = marked.selectExpr("*", *parsed).selectExpr(
        *texts.columns,
        "t",
        "kt",
        f"{_pick('t', [f'p{n}.op' for n in rows], 'string')} as op",
        f"{facts} as facts",
        # The lambda also keeps this projection out of whole-stage code, where it would be one method too long for the
        # JIT.
        f"map_filter({facts}, (k, v) -> v is not null and k not in ({own})) as source",
        f"{_pick('t', [f'p{n}.transaction' for n in rows], _TRANSACTION)} as transaction",
        f"{_pick('t', [r.image(f'p{n}.before') for n, r in enumerate(readings.rows)], _MAP)} as before",
        f"{_pick('t', [r.image(f'p{n}.after') for n, r in enumerate(readings.rows)], _MAP)} as after",
        f"{_pick('t', [f'(p{n} is null or p{n}.{_BAD} is not null)' for n in rows], 'boolean')} as bad",
        f"{_pick('kt', [r.image(f'k{n}') for n, r in enumerate(readings.keys)], _MAP)} as key_map",
        f"{_pick('kt', [f'(k{n} is null or k{n}.{_BAD} is not null)' for n in keys], 'boolean')} as bad_key",
        f"{metadata.parsed('t')} as m",
    )
    return _finished(spelled, readings, placeholders, by_topic=by_topic)


def _number(readings: Sequence[Reading]) -> str:
    branches = " ".join(f"when {reading.mark} then {n}" for n, reading in enumerate(readings))
    return f"case {branches} end" if branches else "cast(null as int)"


def _pick(number: str, expressions: Sequence[str], kind: str) -> str:
    branches = " ".join(f"when {n} then {expression}" for n, expression in enumerate(expressions))
    return f"case {number} {branches} end" if branches else f"cast(null as {kind})"


def _finished(spelled: DataFrame, readings: Readings, placeholders: tuple[str, str], *, by_topic: bool) -> DataFrame:
    operations = ", ".join(map(literal, _OPERATIONS))
    error = (
        "case when m.kind is not null then null "
        "when key is not null and (kt is null or bad_key) then 'The key is no JSON of the key schema.' "
        "when value is null then null "
        "when t is null and value_schema is null then 'The value carries no schema and none was given for its topic.' "
        "when t is null then 'The value is no data change event.' "
        "when bad then 'The value does not follow its schema.' "
        f"when not coalesce(op in ({operations}), false) then 'The operation is none of r, c, u, d, t.' end"
    )
    text, encoded = (literal(word) for word in placeholders)
    holds = f"(instr(value_payload, {text}) > 0 or instr(value_payload, {encoded}) > 0)"

    def carried(image: str) -> str:
        left = f"map_filter({image}, (k, v) -> not coalesce(v in ({text}, {encoded}), false))"
        return f"if({image} is not null and {holds}, {left}, {image})"

    # Without a schema row, a tombstone's table is what other messages of its topic say, or the topic's last parts.
    topics = " ".join(
        f"when {literal(topic)} then {_table(*map(literal, (id.database, id.schema, id.name)))}"
        for topic, id in readings.topics.items()
    )
    parts = "split(topic, '[.]')"
    fallback = _table(
        f"if(size({parts}) > 3, element_at({parts}, -3), '')",
        f"if(size({parts}) > 1, element_at({parts}, -2), '')",
        f"element_at({parts}, -1)",
    )
    of_source = _table("coalesce(facts['db'], '')", "coalesce(facts['schema'], '')", "facts['table']")
    of_topic = f"case topic {topics} else {fallback} end" if topics else fallback
    ids = " ".join(
        f"when {_matches(structure, by_topic=by_topic)} then {literal(structure.schema.fingerprint)}"
        for structure in readings.structures
    )
    instant = "coalesce(cast(facts['ts_us'] as bigint), cast(facts['ts_ms'] as bigint) * 1000)"
    columns = {
        "op": "case when e is not null then 'error' when value is null then 'tombstone' else op end",
        "table": f"case when e is not null then null when value is null then {of_topic} else {of_source} end",
        "key": "if(e is null, key_map, null)",
        "key_text": "if(e is null and key_map is not null, to_json(map_values(key_map)), null)",
        "before": f"if(e is null, {carried('before')}, null)",
        "after": f"if(e is null, {carried('after')}, null)",
        "position": "concat(lpad(offset, 20, '0'), '/1/')",
        "event_time": f"timestamp_micros({instant})",
        "capture_time": "timestamp",
        "snapshot": "if(facts['snapshot'] <> 'false', facts['snapshot'], null)",
        "transaction": "transaction",
        "source": "source",
        "schema_id": f"case when e is not null or value is null then null {ids} end" if ids else "null",
        "message": "named_struct('topic', topic, 'partition', partition, 'offset', offset, 'timestamp', timestamp, "
        "'key', if(e is null, null, key), 'value', if(e is null, null, value), 'headers', headers)",
        "error": "e",
    }
    other = metadata.columns(_OWN)
    # Keys of such messages say nothing that the row does not say.
    other |= dict.fromkeys(("key", "key_text", "before", "after"), "null")
    for name, sql in other.items():
        columns[name] = f"if(m.kind is null, {columns.get(name, 'null')}, {sql})"
    kind = spark_schema()
    return spelled.selectExpr("*", f"{error} as e").selectExpr(
        *(f"cast({columns.get(f.name, 'null')} as {f.dataType.simpleString()}) as {f.name}" for f in kind)
    )


def _table(database: str, schema: str, name: str) -> str:
    return f"named_struct('database', {database}, 'schema', {schema}, 'name', {name})"


def _matches(structure: Structure, *, by_topic: bool) -> str:
    test = f"t = {structure.row} and kt <=> {'null' if structure.key is None else structure.key}"
    if by_topic:
        return f"t = {structure.row}"
    id = structure.schema.id
    pairs = zip(("db", "schema", "table"), (id.database, id.schema, id.name), strict=True)
    return " and ".join([test, *(f"coalesce(facts['{name}'], '') = {literal(value)}" for name, value in pairs)])


def schema_rows(messages: DataFrame, readings: Readings) -> DataFrame:
    """One `schema` row per structure, before its first message."""
    lines = []
    for structure in readings.structures:
        id, (offset, partition) = structure.schema.id, structure.first or (0, None)
        topic = next((topic for topic, found in readings.topics.items() if found == id), None)
        line = {
            "op": "schema",
            "table": (id.database, id.schema, id.name),
            "position": f"{offset:020}/0/",
            "schema_id": structure.schema.fingerprint,
            "table_schema": structure.schema.to_text(),
            "message": (topic, partition, offset if structure.first else None, None, None, None, None),
        }
        lines.append(tuple(line.get(f.name) for f in spark_schema()))
    return messages.sparkSession.createDataFrame(lines, CHANGE_ROW_DDL)


def decode(messages: DataFrame, settings: Mapping[str, Any]) -> DataFrame:
    """Debezium events with their schemas (`schemas.enable`) to change rows.

    A batch DataFrame is read twice: first the structures that occur in it are collected on the driver. Each gives a
    `schema` row before its first message. With the option `schema` that first job is left out, values and keys may
    come without their schemas, and columns keep their declared digits; the handling modes must then be set as the
    writer had them. Streaming DataFrames need that option, and give no `schema` rows.

    Tombstones become `tombstone` rows. Schema changes become `schema` rows with `source['change']` and
    `source['ddl']` (and SQL Server's types), edges of transactions `begin` and `end` rows, heartbeats `heartbeat`
    rows, with and without their schemas. What can't be read, and what is none of these, becomes an `error` row that
    keeps the message. A column that holds the unavailable-value placeholder is left out of the image. The field
    that a router adds to keys (`key_field_name`) is left out of the key; a tombstone in a topic of several tables
    carries the name of one of them.

    Raises:
        OptionError: a streaming DataFrame without the option `schema`, or two structures of one table in it.
    """
    given = settings["schema"]
    if given is None and messages.isStreaming:
        raise OptionError(
            "Format 'debezium_json' needs the option 'schema' to decode a streaming DataFrame.",
            remedy="Give the tables' TableSchemas, or decode inside foreachBatch.",
        )
    texts = with_texts(messages)
    placeholder = settings["unavailable_value_placeholder"]
    placeholders = (placeholder, base64.b64encode(placeholder.encode()).decode())
    readings = (
        collected(texts, settings["key_field_name"]) if given is None else _given_readings(given.tables, settings)
    )
    rows = change_rows(texts, readings, placeholders, by_topic=given is not None)
    if messages.isStreaming or not readings.structures:
        return rows
    return schema_rows(messages, readings).unionAll(rows)


def _given_readings(given: tuple[TableSchema, ...], settings: Mapping[str, Any]) -> Readings:
    shape, prefix, modes = SHAPES[settings["shape"]], settings["topic_prefix"], value_modes(settings)
    names, rules = topics(settings, shape), field_rules(settings, shape)
    readings = Readings()
    for schema in given:
        topic = names.of(schema.id)
        taken = readings.topics.get(topic)
        if taken == schema.id:
            raise OptionError(
                f"Option 'schema' of format 'debezium_json' holds two structures of table {schema.id}.",
                remedy="Keep the one that the messages follow.",
            )
        if taken is not None:
            raise OptionError(
                f"Tables {taken} and {schema.id} share the topic '{topic}', so a structure can't be told by it.",
                remedy="Decode messages with schemas, without the option 'schema'.",
            )
        readings.topics[topic] = schema.id
        dot = names.delimiter
        # Without a prefix, whatever stands before the table's parts.
        ending = f"endswith(concat('{dot}', topic), {literal(dot + topic)})"
        mark = f"topic = {literal(topic)}" if prefix else ending
        row = value_schema(schema, topic, shape, modes, rules)
        known_reading(readings, schema, mark, row, key_schema(schema, topic, modes, rules))
    return readings
