"""Maxwell messages to change rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.changes import TableSchema
from headrace.changes.letter_case import lower
from headrace.changes.typed import literal, quote
from headrace.formats import exact_json, overlaid_structs, text_values
from headrace.formats.map_sql import each_name_once, names_sql, overlay
from headrace.formats.messages import change_rows, kafka_columns, key_text, not_utf8, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DDL_TYPES = (
    "table-create", "table-alter", "table-drop", "database-create", "database-alter", "database-drop",
)  # fmt: skip
_DATA = {"insert": "c", "update": "u", "delete": "d", "bootstrap-insert": "r"}
_NO_EVENT = ("bootstrap-start", "bootstrap-complete")
_FACTS = ("position", "gtid", "server_id", "thread_id", "schema_id", "query", "commit")
_HEAD = (
    "database string, `table` string, type string, ts string, xid string, xoffset string, `sql` string, "
    + ", ".join(f"`{name}` string" for name in _FACTS)
    + f", primary_key_columns array<string>, {exact_json.BAD} string"
)
_ELSEWHERE = frozenset(
    ("database", "table", "type", "ts", "xid", "xoffset", "sql", "data", "old", "def", "primary_key",
     "primary_key_columns", *_FACTS)
)  # fmt: skip
_OLD = '"old":{'
IS_DATA = "coalesce(operation in ('c', 'u', 'd', 'r'), false)"
# Seconds reach this number in the year 5138, milliseconds passed it in 1973.
_MILLISECONDS = 100_000_000_000
_LAST_MS = 253_402_300_799_999


def _parsed(messages: DataFrame, image: str) -> DataFrame:
    mark, text = exact_json.exact("text")
    ddl = f"data {image}, old {image}, {_HEAD}"
    types = " ".join(f"when {literal(name)} then {literal(op)}" for name, op in _DATA.items())
    changes = ", ".join(map(literal, DDL_TYPES))
    operation = (
        f"case when value is null then 'tombstone' when {lower('m.type')} in ({changes}) then 'schema' "
        f"else case {lower('m.type')} {types} end end"
    )
    nothing = ", ".join(map(literal, _NO_EVENT))
    problem = (
        "case when value is null then null "
        f"when {not_utf8('value')} then 'The value is no UTF-8.' "
        f"when m is null or m.{exact_json.BAD} is not null then 'The value is no JSON object of Maxwell\\'s form.' "
        # The parser reads the first value only.
        r"when not endswith(rtrim(' \\n\\r\\t', text), '}') then 'Something stands behind the JSON object.' "
        "when m.type is null then 'The message has no type.' "
        f"when operation is null and {lower('m.type')} not in ({nothing}) "
        "then concat('The type ', m.type, ' is not known.') "
        f"when {IS_DATA} and m.data is null then 'The message has no data.' end"
    )
    # Keys are `{"database":..,"table":..,"pk.id":..}`.
    key_mark, key = exact_json.exact("key_json", "key_mark")
    fields = f"from_json({key}, 'map<string,string>', {exact_json.OPTIONS})"
    names = "map_filter(key_fields, (k, v) -> startswith(k, 'pk.'))"
    return (
        kafka_columns(messages)
        .selectExpr("*", "cast(value as string) as text", "cast(key as string) as key_json")
        .selectExpr("*", f"{mark} as mark", f"{key_mark} as key_mark")
        .selectExpr(
            "*",
            f"from_json({text}, {literal(ddl)}, {exact_json.OPTIONS}) as m",
            f"if(key_json is null, null, {fields}) as key_parsed",
        )
        .selectExpr("*", f"{each_name_once('key_parsed')} as key_once")
        .selectExpr("*", f"{exact_json.unmarked_map('key_once', 'key_mark')} as key_fields")
        .selectExpr("*", f"{operation} as operation", f"if(key_fields is null, null, {names}) as pk_fields")
        .selectExpr("*", f"{problem} as problem_found")
    )


def _key_names(keys: Sequence[str]) -> str:
    named = "array_distinct(filter(m.primary_key_columns, k -> k is not null))"
    from_key = "array_distinct(transform(map_keys(pk_fields), k -> substr(k, 4)))"
    return (
        f"case when coalesce(size(m.primary_key_columns), 0) > 0 then {named} "
        f"when coalesce(size(pk_fields), 0) > 0 then {from_key} else {names_sql(keys)} end"
    )


def _columns(**own: str) -> dict[str, str]:
    number = f"try_cast({exact_json.unmarked('m.ts')} as bigint)"
    millis = f"if({number} >= {_MILLISECONDS}, {number}, {number} * 1000)"
    known = f"{number} between -62135596800 and {_LAST_MS}"
    offset = f"try_cast({exact_json.unmarked('m.xoffset')} as bigint)"
    xid = exact_json.unmarked("m.xid")
    facts = {name: exact_json.unmarked(f"m.`{name}`") for name in _FACTS}
    facts["commit"] = "if(m.commit = 'true', 'true', null)"
    # Where it is no time, the fact is all that is left of it.
    facts["ts"] = f"if({known}, null, {exact_json.unmarked('m.ts')})"
    facts["type"] = f"if(operation = 'schema', {lower('m.type')}, null)"
    facts["ddl"] = "if(operation = 'schema', coalesce(m.`sql`, ''), null)"
    pairs = ", ".join(f"{literal(name)}, {sql}" for name, sql in facts.items())
    part = "if(operation = 'tombstone', key_fields[{0}], {1})"
    key = f"if(operation = 'tombstone', {_TOMBSTONE_KEY}, key_found)"
    return {
        "op": "operation",
        "table": table(
            f"coalesce({part.format(literal('database'), exact_json.unmarked('m.database'))}, '')",
            "''",
            f"coalesce({part.format(literal('table'), exact_json.unmarked('m.`table`'))}, '')",
        ),
        "key": key,
        "key_text": key_text(key),
        "event_time": f"if({known}, timestamp_millis({millis}), null)",
        "snapshot": "if(operation = 'r', 'true', null)",
        "transaction": f"if({xid} is null, null, named_struct('id', {xid}, 'total_order', "
        f"if({offset} between 0 and 9223372036854775806, {offset} + 1, null), "
        "'data_collection_order', cast(null as bigint)))",
        "source": f"if(operation = 'tombstone', null, map_filter(map('connector', 'mysql', {pairs}), "
        "(k, v) -> v is not null))",
        **own,
    }


_TOMBSTONE_KEY = (
    "if(coalesce(size(pk_fields), 0) = 0, null, "
    "map_from_arrays(transform(map_keys(pk_fields), k -> substr(k, 4)), map_values(pk_fields)))"
)


def decode_maps(messages: DataFrame, keys: Sequence[str], tables: Sequence[TableSchema]) -> DataFrame:
    """The change rows, lazily, with images as maps; typed by the structures of their tables where known."""
    parsed = _parsed(messages, "map<string,string>")
    row = table("coalesce(m.database, '')", "''", "coalesce(m.`table`, '')")
    once = parsed.selectExpr(
        "*", f"{row} as row_table", *(f"{each_name_once(f'm.{image}')} as {image}_once" for image in ("data", "old"))
    )
    plain = once.selectExpr(
        "*", *(f"{exact_json.unmarked_map(f'{image}_once')} as {image}_plain" for image in ("data", "old"))
    )
    spelled = plain.selectExpr(
        "*",
        f"{text_values.canonical_map('data_plain', tables, 'row_table')} as whole",
        f"{text_values.canonical_map('old_plain', tables, 'row_table')} as partial",
        f"if(problem_found is null and {IS_DATA}, {_key_names(keys)}, null) as key_names",
    )
    keyed = spelled.selectExpr(
        "*",
        "if(size(key_names) > 0 and forall(key_names, k -> map_contains_key(whole, k)), "
        "map_from_arrays(key_names, transform(key_names, k -> whole[k])), null) as key_found",
    )
    own = {
        "before": f"case operation when 'd' then whole when 'u' then if(partial is null, null, "
        f"{overlay('whole', 'partial')}) end",
        "after": "if(operation in ('c', 'r', 'u'), whole, null)",
        "changed": "if(operation = 'u', map_keys(partial), null)",
    }
    ids = " ".join(
        f"when {text_values.is_table(schema, 'row_table')} then {literal(schema.fingerprint)}" for schema in tables
    )
    if ids:
        own["schema_id"] = f"if({IS_DATA}, case {ids} end, null)"
    return change_rows(keyed, _columns(**own), error="problem_found")


def decode_structs(messages: DataFrame, schema: TableSchema, keys: Sequence[str]) -> DataFrame:
    """The change rows of one table, lazily, with images as structs of its types."""
    fields = ",".join(f"{quote(c.name)}:string" for c in schema.columns)
    parsed = _parsed(messages, f"struct<{fields}>")
    readable = f"problem_found is null and {IS_DATA}"
    tail = overlaid_structs.tail(_OLD, "operation = 'u' and m.old is not null")
    looked = parsed.selectExpr("*", tail).selectExpr("*", overlaid_structs.head_of(_OLD))
    unclear = overlaid_structs.unclear(schema, "m.data", _ELSEWHERE)
    maps = f"from_json(text, 'data map<string,string>, old map<string,string>', {exact_json.OPTIONS})"
    texts = looked.selectExpr(
        *(name for name in looked.columns if name not in ("head", "tail")),
        f"if({readable} and ({unclear} or contains(tail, 'null')), {maps}, null) as maps",
        f"{overlaid_structs.unmarked('m.data', schema)} as texts",
        f"if(operation = 'u', {overlaid_structs.unmarked('m.old', schema)}, null) as old_texts",
    )
    typed = texts.selectExpr(
        "*",
        f"{text_values.typed_struct('texts', schema)} as whole",
        f"{text_values.typed_struct('old_texts', schema)} as partial",
    )
    misfits = ", ".join(
        text_values.misfit_sentence(t, v, schema) for t, v in (("texts", "whole"), ("old_texts", "partial"))
    )
    old = overlaid_structs.overlaid(schema, partial="old_texts", typed="partial", whole="whole", names="maps.old")
    found = typed.selectExpr(
        "*",
        f"coalesce(problem_found, if({IS_DATA}, coalesce({misfits}), null)) as value_problem",
        f"if({readable}, {_struct_key(schema, keys)}, null) as key_found",
        f"{old} as old_row",
    )
    whole_absent = overlaid_structs.absent(schema, "maps.data")
    return change_rows(
        found,
        _columns(
            before="case operation when 'd' then whole when 'u' then old_row end",
            after="if(operation in ('c', 'r', 'u'), whole, null)",
            before_absent=f"case operation when 'd' then {whole_absent} when 'u' then "
            f"if(old_row is null, null, {overlaid_structs.absent(schema, 'maps.data', 'maps.old')}) end",
            after_absent=f"if(operation in ('c', 'r', 'u'), {whole_absent}, null)",
            changed=f"if(operation = 'u', {overlaid_structs.changed(schema, 'old_texts', 'maps.old')}, null)",
            schema_id=f"if({IS_DATA}, {literal(schema.fingerprint)}, null)",
        ),
        error="value_problem",
    )


def _struct_key(schema: TableSchema, keys: Sequence[str]) -> str:
    """The key as a map of canonical texts, from the texts of the newest row."""
    texts = {c.name: text_values.canonical_text(f"texts.{quote(c.name)}", c) for c in schema.columns}
    if schema.key:
        return f"map({', '.join(f'{literal(name)}, {texts[name]}' for name in schema.key)})"
    branches = " ".join(f"when {literal(name)} then {text}" for name, text in texts.items())
    names, known = _key_names(keys), names_sql(list(texts))
    return (
        f"if(size({names}) > 0 and size(array_except({names}, {known})) = 0, "
        f"map_from_arrays({names}, transform({names}, k -> case k {branches} end)), null)"
    )
