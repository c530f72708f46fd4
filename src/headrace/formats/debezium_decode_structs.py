"""Debezium messages of one known table to change rows with images as structs: the fast way.

One typed `from_json` reads the envelope with its images, and integer arithmetic makes Spark's dates and timestamps of
the wire's counts. What that parse can't be sure of goes the way of any table (`debezium_decode_maps`) and is typed
afterwards: a column that is absent, a number with a fraction where a text or a decimal is wanted, times written another
way, a schema in the message that says other types, bytes that are no UTF-8, control messages. So the common message
costs one parse, and no value is ever guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.changes import TableSchema
from headrace.changes.texts import canonical_text
from headrace.changes.typed import literal, quote
from headrace.formats import debezium_envelope as envelope
from headrace.formats import debezium_source_blocks as blocks
from headrace.formats.debezium_columns import REPLACED, FastColumn, fast_columns, image, struct_ddl
from headrace.formats.debezium_decode_maps import (
    IMAGES,
    columns_of,
    error_of,
    parsed_messages,
    placeholders,
    with_images,
    with_kinds,
)
from headrace.formats.debezium_parts import PLACES, parts, with_places
from headrace.formats.debezium_schema_plans import same_forms, single_plan
from headrace.formats.debezium_table_changes import CHANGES_DDL
from headrace.formats.debezium_texts import AS_IS, BOOLEAN, DECIMAL, INTEGER
from headrace.formats.debezium_typed import absent_columns, misfit, table_of_one, typed_images
from headrace.formats.exact_json import BAD, all_present
from headrace.formats.messages import change_rows, finished_row, key_text, only_unfinished, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_END = "_headrace_end"
_OPTIONS = (
    f"map('columnNameOfCorruptRecord', '{BAD}', 'allowUnquotedControlChars', 'true', 'allowSingleQuotes', 'false')"
)
_TRANSACTION = "struct<id:string,total_order:bigint,data_collection_order:bigint>"
# Names that may stand in an envelope with a null, beside the columns' own.
_ELSEWHERE = frozenset((*blocks.FIELDS, "ts_ns", "before", "after", "source", "transaction")) - {
    "version", "connector", "name", "db", "server_id", "file", "pos", "row",
}  # fmt: skip


def struct_rows(found: DataFrame, settings: Mapping[str, Any], schema: TableSchema) -> DataFrame:
    """The change rows of Kafka's columns; `schema` says the columns, and the key where it has one."""
    columns = fast_columns(schema, settings)
    unwrapped = settings["unwrapped_prefix"] if settings["unwrapped"] else None
    first = _first_reading(found, settings, schema, columns)
    done = f"if(sure, {finished_row(_columns(schema))}, null) as done"
    ready = first.selectExpr(*only_unfinished("sure"), *PLACES, "sure", done)
    value_plan = f"if(sure, null, {single_plan(schema, columns, settings)})"
    planned = ready.selectExpr("*", f"{value_plan} as plan", "cast(null as string) as schema_id")
    parsed = parsed_messages(planned, unwrapped, skip="sure")
    kinds = with_kinds(_decimals_told(parsed, columns), settings)
    made = with_images(kinds, settings, skip="sure", lenient=True)
    change = f"cast(null as {CHANGES_DDL.removeprefix('array<').removesuffix('>')}) as change"
    rows = made.selectExpr(*(n for n in made.columns if n != "images"), "0 as number", change, *IMAGES)
    typed = typed_images(rows, schema, settings["time_precision_mode"], skip="sure")
    error = f"{error_of(settings, by_topic=False).removesuffix('end')} {misfit(schema)} end"
    return change_rows(typed, _other_columns(settings, schema), error=error, done="done")


def _first_reading(
    found: DataFrame, settings: Mapping[str, Any], schema: TableSchema, columns: Sequence[FastColumn]
) -> DataFrame:
    """Beside the messages: the typed parse `fast`, its images `old_row` and `new_row`, the key where it has to be read
    (`fast_key`), and whether they are sure."""
    text = "cast(value as string)"
    enveloped = f"value_at <= octet_length(value) and startswith({text}, '{{\"schema\":{{')"
    head = "cast(substr(value, 1, value_at - 12) as string)"
    opened = with_places(found).selectExpr("*", f"if({enveloped}, {head}, null) as vo")
    start = "value_at"
    # The last brace gives way to one more member: it is missing where the text ends early or goes on behind its end.
    body = (
        f"if(vo is null, cast(substr(value, 1, octet_length(value) - 1) as string), "
        f"cast(substr(value, {start} + 1, octet_length(value) - {start} - 2) as string))"
    )
    ending = "if(vo is null, endswith(cast(value as string), '}'), endswith(cast(value as string), '}}'))"
    doc = f"if({'false' if settings['unwrapped'] else ending}, concat({body}, ',\"{_END}\":1}}'), null)"
    struct = struct_ddl(columns)
    form = (
        f"before {struct}, after {struct}, source {blocks.BLOCK_DDL}, op string, transaction {_TRANSACTION}, "
        f"{_END} int, {BAD} string"
    )
    parsed = opened.selectExpr("*", f"{doc} as fast_doc").selectExpr(
        "*", f"from_json(fast_doc, {literal(form)}, {_OPTIONS}) as fast"
    )
    key, key_is_sure = _read_key(schema, columns, settings["key_field_name"])
    images = parsed.selectExpr(
        "*",
        f"{image('fast.before', columns)} as old_row",
        f"{image('fast.after', columns)} as new_row",
        f"{key} as fast_key",
    )
    doubts = [
        doubt
        for parsed_image, made in (("fast.before", "old_row"), ("fast.after", "new_row"))
        for column in columns
        for doubt in column.doubts(
            f"{parsed_image}.{quote(column.name)}",
            f"{made}.{quote(column.column.name)}",
            placeholders(settings["unavailable_value_placeholder"]),
        )
    ]
    doubts += [f"contains({text_}, '{REPLACED}')" for text_ in blocks.texts_of("fast.source")]
    certain = [
        f"fast.{BAD} is null and fast.{_END} is not null",
        "(fast.op in ('c', 'r', 'u') and fast.after is not null or fast.op = 'd' and fast.before is not null)",
        blocks.known_connector("fast.source"),
        f"not coalesce({' or '.join(f'coalesce({d}, false)' for d in doubts)}, false)",
        all_present([c.name for c in columns], ("fast.before", "fast.after"), "fast_doc", _ELSEWHERE),
        f"(vo is null or {same_forms('vo', columns)})",
    ]
    certain.append(key_is_sure)
    return images.selectExpr("*", f"coalesce({' and '.join(certain)}, false) as sure")


def _read_key(schema: TableSchema, columns: Sequence[FastColumn], table_field: str) -> tuple[str, str]:
    """Spark SQL for the message's key, where the structure says none, and for whether its texts are canonical."""
    if schema.key:
        return "cast(null as map<string,string>)", "true"
    payload = parts("key").payload
    whole = f"concat('{{\"k\":', {payload}, ',\"e\":1}}')"
    parsed = f"from_json({whole}, {literal(f'k map<string,string>, e int, {BAD} string')}, {_OPTIONS})"
    told = f"if(k.{BAD} is null and k.e is not null, k.k, null)"
    found = f"if(key is null, null, element_at(transform(array({parsed}), k -> {told}), 1))"
    other = [c.name for c in columns if c.text.code not in (AS_IS, INTEGER, BOOLEAN)]
    names = ", ".join(map(literal, [*other, table_field]))
    return found, f"(key is null or fast_key is not null and not arrays_overlap(map_keys(fast_key), array({names})))"


def _decimals_told(parsed: DataFrame, columns: Sequence[FastColumn]) -> DataFrame:
    """Digits alone are a number or base64: what stands unquoted in the text gets a point, which base64 never has."""
    names = [c.name for c in columns if c.text.code == DECIMAL]
    if not names:
        return parsed
    listed = ", ".join(map(literal, names))
    quoted = " + ".join(f"instr(vp, concat('\"', k, '\":{blank}\"', x, '\"'))" for blank in ("", " "))
    told = (
        "transform_values({0}, (k, x) -> if(k in (" + listed + ") and try_cast(x as bigint) is not null and "
        + quoted + " = 0, concat(x, '.'), x))"
    )  # fmt: skip
    others = [name for name in parsed.columns if name not in ("old", "new")]
    return parsed.selectExpr(*others, *(f"{told.format(name)} as {name}" for name in ("old", "new")))


def _columns(schema: TableSchema) -> dict[str, str]:
    """Spark SQL by column of a row whose first reading is sure."""
    key, text = _fast_key(schema)
    micros = "fast.source.ts_us"
    own = schema.id
    database, schema_name = (f"coalesce(fast.source.{part}, '')" for part in ("db", "schema"))
    name = f"coalesce(fast.source.table, {literal(own.name)})" if own.name else "fast.source.table"
    return {
        "op": "fast.op",
        "table": table(database, schema_name, name),
        "key": key,
        "key_text": text,
        "before": "old_row",
        "after": "new_row",
        "position": "concat(lpad(coalesce(offset, 0L), 20, '0'), '/1/')",
        "event_time": f"if({micros} is null, {envelope.of_milliseconds('fast.source.ts_ms')}, {envelope.moment(micros)})",  # noqa: E501
        "snapshot": "nullif(fast.source.snapshot, 'false')",
        "transaction": envelope.known_transaction("fast.transaction"),
        "source": blocks.facts("fast.source"),
    }


def _other_columns(settings: Mapping[str, Any], schema: TableSchema) -> dict[str, str]:
    """Spark SQL by column of a row that is read a second time."""
    slow = columns_of(settings)
    slow |= {"before": "before_struct", "after": "after_struct"}
    slow |= {f"{name}_absent": absent_columns(f"{name}_map", schema) for name in ("before", "after")}
    return slow | {"table": table_of_one(slow["table"], schema)}


def _fast_key(schema: TableSchema) -> tuple[str, str]:
    """Spark SQL for the key and its text: from the image, or the message's own where the structure says none."""
    if not schema.key:
        return "fast_key", key_text("fast_key")
    values = [canonical_text(f"coalesce(new_row, old_row).{quote(c.name)}", c) for c in schema.key_columns]
    pairs = ", ".join(f"{literal(c.name)}, {v}" for c, v in zip(schema.key_columns, values, strict=True))
    made = f"map({pairs})"
    plain = all(c.logical.kind in ("int8", "int16", "int32", "int64", "date", "decimal") for c in schema.key_columns)
    if plain:
        joined = ", '\",\"', ".join(values)
        return made, f"concat('[\"', {joined}, '\"]')"
    return made, key_text(made)
