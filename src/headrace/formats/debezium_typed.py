"""Images of canonical texts as structs of one table's types.

A text that does not fit its column's type gives an error row, not a null, and not a value that lost digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.changes import Column, TableSchema
from headrace.changes.letter_case import lower
from headrace.changes.typed import literal, quote
from headrace.formats.debezium_envelope import moment, of_milliseconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ZONE = "(Z|[+-][0-9]{2}:?[0-9]{2}(:?[0-9]{2})?)$"


def typed_images(rows: DataFrame, schema: TableSchema, times: str, skip: str) -> DataFrame:
    """The rows with `before_struct` and `after_struct` beside the maps `before_map` and `after_map`.

    Args:
        times: the time precision mode, by which a bare number is an instant.
        skip: SQL for where nothing is to be done.
    """
    fields = ", ".join(f"{literal(c.name)}, {typed_or_null(f'm[{literal(c.name)}]', c, times)}" for c in schema.columns)
    struct = f"if(m is null, null, named_struct({fields}))"
    # One expression for both: it is large.
    both = rows.selectExpr(
        "*", f"if({skip}, null, transform(array(before_map, after_map), m -> {struct})) as typed_images"
    )
    return both.selectExpr(*rows.columns, "typed_images[0] as before_struct", "typed_images[1] as after_struct")


def typed_or_null(text: str, column: Column, times: str) -> str:
    """Spark SQL for a canonical text, or a number as text, as the column's Spark type; null for what does not fit."""
    kind = column.logical.spark_type
    if kind == "string":
        return text
    if kind == "binary":
        return f"try_to_binary({text}, 'base64')"
    if kind.startswith("decimal("):
        return exact_decimal(text, column)
    if kind == "timestamp":
        # A text without a zone is UTC: the session's zone must not matter.
        instant = f"try_cast(if({text} rlike {literal(_ZONE)}, {text}, concat({text}, 'Z')) as timestamp)"
        count = f"try_cast({text} as bigint)"
        made = {"connect": of_milliseconds(count), "nanoseconds": moment(f"{count} div 1000L")}.get(
            times, moment(count)
        )
        return instant if times == "isostring" else f"if({count} is null, {instant}, {made})"
    if kind == "timestamp_ntz":
        return f"try_cast(rtrim('Z', {text}) as timestamp_ntz)"
    if kind == "date":
        return f"try_cast(substring_index(rtrim('Z', {text}), 'T', 1) as date)"
    return f"try_cast({text} as {kind})"


def exact_decimal(text: str, column: Column) -> str:
    """Spark SQL for plain digits as the column's decimal; null where it would lose digits after the point."""
    kind, scale = column.logical.spark_type, column.logical.scale or 0
    fraction = f"rtrim('0', substring_index({text}, '.', -1))"
    fits = f"not contains({text}, '.') or contains({lower(text)}, 'e') or length({fraction}) <= {scale}"
    return f"if({fits}, try_cast({text} as {kind}), null)"


def misfit(schema: TableSchema) -> str:
    """Branches of a CASE that name the first column whose text does not fit its type."""
    branches = []
    for column in schema.columns:
        if column.logical.spark_type == "string":
            continue
        name = literal(column.name)
        tests = " or ".join(
            f"{image}_map[{name}] is not null and {image}_struct.{quote(column.name)} is null"
            for image in ("before", "after")
        )
        why = f"The value of column '{column.name}' is no {column.logical.spark_type} as the options say."
        branches.append(f"when {tests} then {literal(why)}")
    return " ".join(branches)


def absent_columns(image: str, schema: TableSchema) -> str:
    """Spark SQL for the columns that an image map does not carry; null where it carries all, or there is none."""
    names = ", ".join(literal(column.name) for column in schema.columns)
    missing = f"array_except(array({names}), map_keys({image}))"
    whole = " and ".join(f"map_contains_key({image}, {literal(c.name)})" for c in schema.columns) or "true"
    return f"if({image} is null or {whole}, null, {missing})"


def table_of_one(table: str, schema: TableSchema) -> str:
    """Spark SQL for a row's table: what the message says, else the structure's own name."""
    if not schema.id.name:
        return table
    parts = zip(("database", "schema", "name"), (schema.id.database, schema.id.schema, schema.id.name), strict=True)
    own = f"named_struct({', '.join(f'{literal(name)}, {literal(value)}' for name, value in parts)})"
    return f"if(kind = 'data' and v.source['table'] is null, {own}, {table})"
