"""The fast path of DTS records of one known table: records whose fields are the table's columns in their order.

A lambda takes from a record only what rows need: each value as text, and times, floats and bytes apart, by place. So
the union of all kinds of values, which is dear to write into Spark's rows, is never written. A projection that Spark
compiles then makes typed columns of it and looks whether every value fitted. All other records (another order of
fields, a value in another branch, no row at all) are read again, by `dts_structs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.changes import Column, TableSchema
from headrace.changes.letter_case import lower
from headrace.changes.texts import canonical_text
from headrace.changes.typed import literal, quote
from headrace.formats.dts_decode import FACTS, IS_FILLER, LAST_SECOND, MORE_FACTS, message_keys, read_record
from headrace.formats.dts_schema import (
    ARRAY,
    BINARY_GEOMETRY,
    BINARY_OBJECT,
    CHARACTER,
    DATE_TIME,
    DECIMAL,
    FLOAT,
    INTEGER,
    TEXT_OBJECT,
    TIMESTAMP,
)
from headrace.formats.dts_values import DECIMAL_TEXT, MOST_SECONDS, is_day, let

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EPOCH = "timestamp_ntz'1970-01-01 00:00:00'"
_MOMENTS = ("time", "timestamp", "instant", "zoned_timestamp")
# Before what is no text of the source: the word of a boolean, or what stands for a value that is there and no text.
_MARK = "'\\0\\0'"
_NO_TEXT = "'\\0\\0no text'"

_TEXTS = (
    f"v -> case when v is null then null when v.{INTEGER} is not null then v.{INTEGER}.value "
    f"when v.{CHARACTER}.charset in ('utf8mb4', 'utf8', 'utf8mb3') then cast(v.{CHARACTER}.value as string) "
    f"when v.{DECIMAL} is not null then v.{DECIMAL}.value "
    f"when v.{TEXT_OBJECT}.type in ('JSON', 'ENUM', 'SET', 'UUID', 'XML') then v.{TEXT_OBJECT}.value "
    f"when v.{TEXT_OBJECT}.type in ('BOOL', 'BOOLEAN') then concat({_MARK}, v.{TEXT_OBJECT}.value) "
    f"else {_NO_TEXT} end"
)
_OTHERS = {
    "numbers": f"v -> v.{INTEGER} is not null or v.{DECIMAL} is not null",
    "floats": f"v -> v.{FLOAT}.value",
    "times": f"v -> v.{DATE_TIME}",
    "instants": f"v -> v.{TIMESTAMP}",
    "binaries": f"v -> coalesce(v.{BINARY_OBJECT}.value, v.{BINARY_GEOMETRY}.value, "
    f"if(v.{CHARACTER}.charset in ('binary', ''), v.{CHARACTER}.value, null))",
}
_OTHER_OF = {
    "string": "numbers",
    "float": "floats",
    "double": "floats",
    "date": "times",
    "timestamp_ntz": "times",
    "timestamp": "instants",
    "binary": "binaries",
}


def straight(messages: DataFrame, schema: TableSchema, keys: Sequence[str], *, careful: bool) -> DataFrame:
    """Kafka's columns with the row struct `fast`, null for all messages that are not as expected.

    Args:
        messages: has Kafka's columns.
        schema: the table's columns.
        keys: the key columns where neither the table nor a record names them.
        careful: as in `read_record`.
    """
    kafka = messages.columns
    record = f"if({IS_FILLER}, null, {read_record(careful=careful)})"
    taken = messages.selectExpr("*", f"{let('r', record, _taken(schema))} as f")
    shaped = taken.selectExpr(
        *kafka, "f", f"{_image('f.before', schema)} as b", f"{_image('f.after', schema)} as a",
        # A lambda, so that Spark does not put all this into one Java method, which would be too long to be compiled.
        "exists(headers, h -> h.key is null) as apart",
    )  # fmt: skip
    names = message_keys(keys, "f.tags['pk_uk_info']")
    return shaped.selectExpr(*kafka, f"if({_fits(schema)}, {_row(schema, names)}, null) as fast")


def _taken(schema: TableSchema) -> str:
    """What the record `r` says; null where it is no row of the table, or says something seldom said."""
    names = f"array({', '.join(literal(c.name) for c in schema.columns)})"
    usual = (
        f"r.fields.{ARRAY}.name = {names} and r.operation in ('INSERT', 'UPDATE', 'DELETE', 'INIT') "
        "and r.processTimestamps is null"
    )
    others = {_OTHER_OF[c.logical.spark_type] for c in schema.columns if c.logical.spark_type in _OTHER_OF}

    def image(name: str) -> str:
        values = f"r.{name}.{ARRAY}"
        parts = [f"'texts', transform({values}, {_TEXTS})"]
        parts += [f"'{other}', transform({values}, {each})" for other, each in _OTHERS.items() if other in others]
        return f"if({values} is null, null, named_struct({', '.join(parts)}))"

    parts = {
        "operation": "r.operation",
        "path": "r.objectName",
        "id": "r.id",
        "seconds": "r.sourceTimestamp",
        "position": "r.sourcePosition",
        "safe": "r.safeSourcePosition",
        "txid": "r.sourceTxid",
        "type": "r.source.sourceType",
        "version": "r.source.version",
        "born": "r.bornTimestamp",
        "tags": "r.tags",
        "before": image("beforeImages"),
        "after": image("afterImages"),
    }
    made = ", ".join(f"'{name}', {value}" for name, value in parts.items())
    return f"if({usual}, named_struct({made}), null)"


def _image(taken: str, schema: TableSchema) -> str:
    fields = ", ".join(f"{literal(c.name)}, {_typed(taken, n, c)}" for n, c in enumerate(schema.columns))
    return f"if({taken} is null, null, named_struct({fields}))"


def _typed(taken: str, n: int, column: Column) -> str:
    """A value as the column's type; null where it does not fit, or is not of the branch that the type expects."""
    kind = column.logical.spark_type
    text = f"get({taken}.texts, {n})"
    if kind in _OTHER_OF and kind != "string":
        other = f"get({taken}.{_OTHER_OF[kind]}, {n})"
        if kind in ("double", "binary"):
            return other
        if kind == "float":
            return f"cast({other} as float)"
        if kind == "date":
            day = f"make_date({other}.year, {other}.month, {other}.day)"
            return f"if({is_day(other)} and {other}.hour is null, {day}, null)"
        return _local(other) if kind == "timestamp_ntz" else _instant(other)
    if kind == "string":
        if column.logical.kind in _MOMENTS:
            return "cast(null as string)"
        if column.logical.kind == "decimal":
            return f"if({text} rlike {literal(DECIMAL_TEXT)}, {text}, null)"
        # A number in a column of texts has to be looked at: it may be none.
        number = f"get({taken}.numbers, {n})"
        return f"try_validate_utf8(if(startswith({text}, {_MARK}) or {number}, null, {text}))"
    if kind == "boolean":
        yes, no = (", ".join(["'1'" if w == "true" else "'0'", f"concat({_MARK}, '{w}')"]) for w in ("true", "false"))
        return f"case when {text} in ({yes}) then true when {text} in ({no}) then false end"
    if column.logical.kind == "decimal":
        # A cast rounds: only digits that the scale holds are taken here.
        digits = f"(not contains({text}, '.') or length({text}) - instr({text}, '.') <= {column.logical.scale or 0})"
        plain = f"not contains({text}, 'e') and not contains({text}, 'E')"
        return f"if({digits} and {plain}, try_cast({text} as {kind}), null)"
    return f"if(not contains({text}, '.'), try_cast({text} as {kind}), null)"


def _instant(x: str) -> str:
    usual = f"{x}.timestamp between -{MOST_SECONDS}L and {MOST_SECONDS}L and {x}.millis between 0 and 999999"
    return f"if({usual}, timestamp_micros({x}.timestamp * 1000000L + {x}.millis), null)"


def _local(d: str) -> str:
    """A DateTime with day and clock as a local timestamp; null where it has something that Spark's has not."""
    micro = "(f.type in ('MySQL', 'PostgreSQL') and not contains(f.position, '<->'))"
    clock = (
        f"{d}.hour between 0 and 23 and coalesce({d}.minute, 0) between 0 and 59 "
        f"and coalesce({d}.second, 0) between 0 and 59 and coalesce({d}.millis, 0) >= 0 and "
        f"if({micro}, coalesce({d}.millis, 0) <= 999999, {d}.millis <= 999999999 and {d}.millis % 1000 = 0)"
    )
    seconds = f"({d}.hour * 3600 + coalesce({d}.minute, 0) * 60 + coalesce({d}.second, 0))"
    micros = f"coalesce(if({micro}, {d}.millis, {d}.millis div 1000), 0)"
    day = f"cast(unix_date(make_date({d}.year, {d}.month, {d}.day)) as bigint)"
    return (
        f"if({is_day(d)} and {clock}, timestampadd(MICROSECOND, "
        f"({day} * 86400L + {seconds}) * 1000000L + {micros}, {_EPOCH}), null)"
    )


def _fits(schema: TableSchema) -> str:
    """Spark SQL: whether the record is one of the fast path, and each of its values went to its column."""
    count = len(schema.columns)

    def whole(image: str, taken: str) -> str:
        same = " and ".join(
            f"(get({taken}.texts, {n}) is null) = ({image}.{quote(c.name)} is null)"
            for n, c in enumerate(schema.columns)
        )
        return f"(size({taken}.texts) = {count} and {same})"

    before, after = whole("b", "f.before"), whole("a", "f.after")
    images = (
        f"case f.operation when 'UPDATE' then {after} and (f.before is null or {before}) "
        f"when 'DELETE' then f.after is null and {before} else f.before is null and {after} end"
    )
    facts = ", ".join(map(literal, (*FACTS, *MORE_FACTS)))
    return (
        f"f is not null and {_points()} in (1, 2) and not contains(f.path, '\\\\') "
        f"and is_valid_utf8(concat_ws('', f.path, f.position, f.safe, f.txid, f.version, map_keys(f.tags), "
        f"map_values(f.tags))) and f.seconds between 1L and {LAST_SECOND}L and f.type <> 'OTHER' "
        f"and not arrays_overlap(map_keys(f.tags), array({facts})) and {images}"
    )


def _points() -> str:
    return "(length(f.path) - length(replace(f.path, '.', '')))"


def _row(schema: TableSchema, keys: str) -> str:
    """The row struct of a record that fits."""
    nothing, none = "cast(null as array<string>)", "cast(array() as array<string>)"
    names = f"array({', '.join(map(literal, FACTS))})"
    values = f"array({lower('f.type')}, f.version, cast(f.id as string), f.position, f.safe)"
    source = (
        f"map_from_arrays(concat({names}, if(f.born = 0, {none}, array('bornTimestamp')), map_keys(f.tags)), "
        f"concat({values}, if(f.born = 0, {none}, array(cast(f.born as string))), map_values(f.tags)))"
    )
    operation = "case f.operation when 'INSERT' then 'c' when 'UPDATE' then 'u' when 'DELETE' then 'd' else 'r' end"
    parts = {
        "op": operation,
        "table": "named_struct('database', nullif(split_part(f.path, '.', 1), ''), "
        f"'schema', if({_points()} = 2, nullif(split_part(f.path, '.', 2), ''), null), "
        "'name', split_part(f.path, '.', -1))",
        "before": "b",
        "after": "a",
        "before_absent": nothing,
        "after_absent": nothing,
        "key": key_of(schema, "coalesce(a, b)", keys),
        "event_time": "timestamp_seconds(f.seconds)",
        "snapshot": "if(f.operation = 'INIT', 'true', null)",
        "transaction": "if(f.txid in ('', '0'), null, f.txid)",
        "source": source,
    }
    return f"named_struct({', '.join(f'{literal(name)}, {value}' for name, value in parts.items())})"


def key_of(schema: TableSchema, row: str, keys: str) -> str:
    """Spark SQL for the key map of a struct image.

    Args:
        schema: its columns; its key is that of all rows, if it has one.
        row: SQL for the image.
        keys: SQL for the names of the key columns otherwise.
    """
    if schema.key:
        pairs = ", ".join(
            f"{literal(c.name)}, {canonical_text(f'{row}.{quote(c.name)}', c)}" for c in schema.key_columns
        )
        return f"map({pairs})"
    branches = " ".join(
        f"when {literal(c.name)} then {canonical_text(f'i.{quote(c.name)}', c)}" for c in schema.columns
    )
    have = f"size(k) > 0 and size(array_except(k, array({', '.join(literal(c.name) for c in schema.columns)}))) = 0"
    values = f"transform(array_distinct(k), n -> case n {branches} end)"
    return let("i", row, let("k", keys, f"if({have}, map_from_arrays(array_distinct(k), {values}), null)"))
