"""Debezium messages of any table, by one expression: parsed, and their images as maps of canonical texts.

One `from_json` reads key and value of any message, whatever its table; how the values are spelled is decided by a plan
that stands beside each message, so that the cost does not grow with the number of tables. A message that carries its
schema is cut before the parse: the parser never sees the schema.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.changes.typed import literal
from headrace.formats import debezium_envelope as envelope
from headrace.formats import debezium_flat as flat
from headrace.formats.debezium_parts import PLACES, parts
from headrace.formats.debezium_table_changes import CHANGES_DDL
from headrace.formats.debezium_texts import (
    BOOLEAN,
    DATE,
    DECIMAL,
    FIELD_DDL,
    FLOAT,
    INTEGER,
    TIME,
    TIMESTAMP,
    let,
    text_case,
)
from headrace.formats.exact_json import BAD, OPTIONS, exact, unmarked_map
from headrace.formats.messages import change_rows, key_text, not_utf8, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MAP = "map<string,string>"
_IMAGES = f"before {_MAP}, after {_MAP}"
_EVENT = f"struct<{_IMAGES}, {envelope.REST}>"
_PART = f"struct<image:{_MAP},names:array<string>,columns:array<string>,fields:array<{FIELD_DDL}>>"
_MADE = f"struct<image:{_MAP},bad:boolean>"
_DATA = "kind = 'data'"
_LENIENT = ", ".join(str(code) for code in (INTEGER, BOOLEAN, FLOAT, DATE, TIME, TIMESTAMP, DECIMAL))


def parsed_messages(found: DataFrame, unwrapped: str | None, skip: str = "false") -> DataFrame:
    """Beside the messages, which have their places: the envelope as `v`, the images `old` and `new`, `key_fields`, and
    whether the texts are JSON of the form (`whole`). Where `skip` (SQL) is true nothing is parsed."""
    value, key = parts("value"), parts("key")
    kept = [name for name in found.columns if name not in PLACES]
    texts = found.selectExpr(
        "*",
        f"if({skip}, null, {value.schema}) as vo",
        f"if({skip}, null, {value.payload}) as vp",
        f"if({skip}, null, {key.payload}) as kp",
        f"if({skip}, false, coalesce({not_utf8('value')}, false)) as bad_value",
        f"if({skip}, false, coalesce({not_utf8('key')}, false)) as bad_key",
    ).selectExpr("*", f"if({skip}, null, {envelope.document('kp', 'vp')}) as doc")
    mark, text = exact("doc")
    # Numbers of a message with a schema are what their types say, so that none loses digits.
    marked = texts.selectExpr("*", f"if(vo is null, {mark}, null) as mark")
    form = f"k {_MAP}, v {_EVENT if unwrapped is None else _MAP}, e int, {BAD} string"
    parsed = marked.selectExpr("*", f"from_json({text}, {literal(form)}, {OPTIONS}) as p")
    parsed = parsed.selectExpr(
        *kept, "vo", "vp", "kp", "mark", "bad_value", "bad_key",
        f"p.{BAD} is null and p.e is not null as whole", f"{unmarked_map('p.k')} as key_fields", "p.v as v",
    )  # fmt: skip
    if unwrapped is not None:
        parsed = flat.as_events(parsed, _EVENT, unwrapped, unmarked_map("v"))
    off = (lambda image: image) if unwrapped is not None else unmarked_map
    return parsed.selectExpr(
        "*", f"{off('v.before')} as old", f"{off('v.after')} as new",
        "v.before is not null or v.after is not null as has_image", "value is null or vp = 'null' as empty",
    )  # fmt: skip


def placeholders(placeholder: str) -> tuple[str, ...]:
    """What stands for a value that a change does not carry, as a text: of a text, of bytes (four forms), of an array of
    texts, of an array of whole numbers, of a map."""
    data = placeholder.encode()
    codes = ",".join(str(byte) for byte in data)
    return (
        placeholder,
        base64.b64encode(data).decode(),
        base64.urlsafe_b64encode(data).decode(),
        data.hex(),
        f'["{placeholder}"]',
        f"[{codes}]",
        f'{{"{placeholder}":"{placeholder}"}}',
    )


def with_kinds(parsed: DataFrame, settings: Mapping[str, Any]) -> DataFrame:
    """Beside it: what kind of message it is (`kind`), and its key without a router's field (`own_key`)."""
    table_field = literal(settings["key_field_name"])
    own_key = f"if(key_fields[{table_field}] is null, key_fields, map_filter(key_fields, (k, x) -> k <> {table_field}))"
    return parsed.selectExpr(
        "*", f"{envelope.kind(settings['heartbeat_topics_prefix'])} as kind", f"{own_key} as own_key"
    )


def with_images(
    kinds: DataFrame, settings: Mapping[str, Any], skip: str = "false", *, lenient: bool = False
) -> DataFrame:
    """Beside it: `images`, the old and the new row and the key, without what stands for a value not carried.

    Args:
        skip: SQL for where nothing is to be done.
        lenient: whether a value that is not as the plan says keeps its text (to be typed later).
    """
    forms = placeholders(settings["unavailable_value_placeholder"])
    holds = " or ".join(f"contains(vp, {literal(form)})" for form in (forms[0], forms[1], forms[3], forms[5]))
    absent = ", ".join(map(literal, dict.fromkeys(forms)))
    old, new = (
        f"if(holds and {image} is not null, map_filter({image}, (k, x) -> x is null or x not in ({absent})), {image})"
        for image in ("old", "new")
    )
    images = _images(old, new, lenient=lenient)
    return kinds.selectExpr("*", f"{holds} as holds").selectExpr("*", f"if({skip}, null, {images}) as images")


def map_rows(made: DataFrame, settings: Mapping[str, Any], *, by_topic: bool) -> DataFrame:
    """Change rows with images as maps.

    Args:
        made: what `with_images` gives.
        by_topic: whether structures were given, so that messages of other topics can't be read.
    """
    tables = f"if(kind = 'schema' and size(plan.changes) > 0, plan.changes, cast(array(null) as {CHANGES_DDL}))"
    kept = [name for name in made.columns if name not in ("new_schema", "images")]
    # A schema change may be about several tables: a row for each. An expression, because from a column Spark would
    # infer a filter and compute all again for it.
    rows = made.selectExpr("*", f"posexplode({tables}) as (number, change)").selectExpr(
        *kept, "number", "change", "if(number = 0, new_schema, null) as new_schema", *IMAGES
    )
    return change_rows(
        rows,
        columns_of(settings),
        error=error_of(settings, by_topic=by_topic),
        announced=table(*(f"coalesce(get_json_object(new_schema, '$.tableId[{n}]'), '')" for n in range(3))),
    )


IMAGES = (
    "images[0].image as before_map",
    "images[1].image as after_map",
    "images[2].image as key_map",
    "images[0].bad or images[1].bad as bad_image",
    "images[2].bad as bad_key_image",
)
"""The parts of the column `images`."""


def _images(old: str, new: str, *, lenient: bool) -> str:
    """SQL for before, after and key as canonical texts, and whether one of them can't be read.

    One expression for the three: it is large.
    """
    fields = ("names", "columns", "fields")
    whens = ((_DATA, old, ""), (_DATA, new, ""), (f"{_DATA} and v.op <> 'm' or empty", "own_key", "key_"))
    items = ", ".join(
        f"named_struct('image', if({when}, {image}, null), "
        + ", ".join(f"'{name}', plan.{prefix}{name}" for name in fields)
        + ")"
        for when, image, prefix in whens
    )
    same = "map_keys(d.image) <=> d.names"
    at = "cast(array_position(d.names, k) as int) - 1"
    plans = f"if({same}, d.fields, transform(map_keys(d.image), k -> get(d.fields, {at})))"
    names = f"if({same}, d.columns, transform(map_keys(d.image), k -> coalesce(get(d.columns, {at}), k)))"
    text = text_case("x", "f")
    if lenient:
        text = f"coalesce({text}, if(f.code in ({_LENIENT}), x, null))"
    texts = f"zip_with(map_values(d.image), {plans}, (x, f) -> {text})"
    unread = "exists(zip_with(map_values(d.image), t, (x, y) -> x is not null and y is null), b -> b)"
    typed = let(texts, "t", f"named_struct('image', map_from_arrays({names}, t), 'bad', {unread})")
    twice = f"not {same} and size(array_distinct({names})) < size(d.image)"
    made = (
        f"case when d.image is null then cast(null as {_MADE}) "
        f"when {twice} then named_struct('image', null, 'bad', true) "
        f"when d.fields is null then named_struct('image', d.image, 'bad', false) else {typed} end"
    )
    return f"transform(cast(array({items}) as array<{_PART}>), d -> {made})"


def table_of_topic() -> str:
    """Spark SQL for the table that the last parts of a topic name."""
    parts_ = "split(topic, '[.]')"
    return table(
        f"if(size({parts_}) > 3, element_at({parts_}, -3), '')",
        f"if(size({parts_}) > 1, element_at({parts_}, -2), '')",
        f"element_at({parts_}, -1)",
    )


def columns_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """Spark SQL by column of the change row, with images as maps."""
    source = envelope.facts("v.source")
    of_source = table("coalesce(v.source['db'], '')", "coalesce(v.source['schema'], '')", "v.source['table']")
    of_topic = f"if(topic is null, null, {table_of_topic()})"
    emptied = "'tombstone'"
    if settings["unwrapped"] and settings["tombstone_as_delete"]:
        emptied = "if(key_map is null, 'tombstone', 'd')"
    without_content = f"map_filter({source}, (k, x) -> k not in ('prefix', 'content', 'content_base64'))"
    rows = {
        "op": f"case when empty then {emptied} when v.op = 'm' then 'message' else v.op end",
        "table": f"case when v.op = 'm' then null when empty or v.source['table'] is null then {of_topic} "
        f"else {of_source} end",
        "event_time": envelope.source_time(envelope.SOURCE_FACT),
        "capture_time": "timestamp",
        "snapshot": "nullif(v.source['snapshot'], 'false')",
        "transaction": envelope.known_transaction("v.transaction"),
        "source": f"if(v.op = 'm', map_concat({without_content}, {envelope.message_content()}), {source})",
        "schema_id": "if(empty, null, schema_id)",
        "table_schema": "null",
    }
    other = envelope.control_columns(source)
    columns = {name: f"if({_DATA} or empty, {sql}, {other[name]})" for name, sql in rows.items()}
    key, before = _key(settings["keys"]), "before_map"
    if settings["unwrapped"] and settings["tombstone_as_delete"]:
        before = "if(empty, key_map, before_map)"
    return columns | {
        "key": key,
        "key_text": key_text(key),
        "before": before,
        "after": "after_map",
        "position": "concat(lpad(coalesce(offset, 0L), 20, '0'), '/1/', if(number = 0, '', lpad(number, 9, '0')))",
    }


def _key(keys: Sequence[str]) -> str:
    """The key of the message, else the columns that the user names."""
    if not keys:
        return "key_map"
    names = ", ".join(map(literal, keys))
    image = "coalesce(after_map, before_map)"
    found = f"map_from_arrays(array({names}), transform(array({names}), n -> {image}[n]))"
    return f"coalesce(key_map, if({image} is null, null, map_filter({found}, (k, x) -> map_contains_key({image}, k))))"


def no_json(text: str) -> str:
    """Spark SQL: whether a text is no JSON value."""
    return f"from_json(concat('{{\"j\":', {text}, ',\"e\":1}}'), 'j string, e int', {OPTIONS}).e is null"


def error_of(settings: Mapping[str, Any], *, by_topic: bool) -> str:
    """Spark SQL for why a message can't be read; null where it can."""
    branches: list[tuple[str, str | None]] = [
        ("bad_value", "The value is no UTF-8 text."),
        ("bad_key", "The key is no UTF-8 text."),
        (f"not whole and kp is not null and {no_json('kp')}", "The key is no JSON."),
        (f"not whole and vp is not null and {no_json('vp')}", "The value is no JSON."),
    ]
    if not settings["keys"]:
        branches.append(("key is not null and key_fields is null and kp <> 'null'", "The key is no JSON object."))
    branches += [
        ("not whole", "The value does not have the form of a Debezium event."),
        ("empty and bad_key_image", "The key does not follow its schema."),
        ("empty", None),
        ("kind is null", "The value is no data change event."),
        (f"not {_DATA}", None),
        (envelope.UNKNOWN_OPERATION, envelope.UNKNOWN_OPERATION_REASON),
        ("v.op = 'm'", None),
    ]
    if by_topic:
        why = "The value carries no schema and none was given for its topic."
        branches.append(("plan.names is null", why))
    branches += [
        ("vo is not null and plan.names is null", "The schema of the value can't be read."),
        ("bad_image and plan.fields is null", "A field stands twice in the value."),
        ("bad_image", "The value does not follow its schema."),
        ("bad_key_image", "The key does not follow its schema."),
        ("v.op in ('r', 'c', 'u') and after_map is null", "The event carries no new row."),
        ("v.op = 'd' and before_map is null and key_map is null", "The event carries neither the old row nor a key."),
    ]
    whens = " ".join(f"when {when} then {'null' if why is None else literal(why)}" for when, why in branches)
    return f"case {whens} end"
