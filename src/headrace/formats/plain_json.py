"""Row images written as plain JSON objects: numbers as JSON numbers, digit for digit, all else as strings.

Maxwell and GoldenGate write so. Map images are written by the names of their columns of numbers, which a join gives to
each row, so that the cost does not grow with the number of tables; struct images by one expression per column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.changes import Column, TableSchema
from headrace.changes.refusal import unknown_structure
from headrace.changes.texts import canonical_text
from headrace.changes.typed import literal, quote
from headrace.formats.map_sql import json_text
from headrace.local_rows import local_rows
from headrace.wire.json_writer import to_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NUMBERS = frozenset(("int8", "int16", "int32", "int64", "uint64", "decimal", "float32", "float64"))
# As JSON has it. NaN and Infinity are no JSON numbers and are written as strings.
_NUMBER = r"^-?(?:0|[1-9][0-9]*+)(?:[.][0-9]++)?+(?:[eE][+-]?[0-9]++)?+\z"


def with_numbers(changes: DataFrame, schemas: Sequence[TableSchema]) -> DataFrame:
    """The rows with `known` (whether `schema_id` is among the structures), `numbers` and `booleans` (names of columns)
    and `schema_key`."""
    from pyspark.sql import functions as F  # noqa: N812

    lines = [
        (
            schema.fingerprint,
            [c.name for c in schema.columns if c.logical.kind in _NUMBERS],
            [c.name for c in schema.columns if c.logical.kind == "boolean"],
            list(schema.key),
            True,
        )
        for schema in schemas
    ]
    ddl = "schema_id string, numbers array<string>, booleans array<string>, schema_key array<string>, known boolean"
    facts = local_rows(changes.sparkSession, lines, ddl)
    return changes.join(F.broadcast(facts), "schema_id", "left")


def of_map(image: str) -> str:
    """Spark SQL for the JSON object of a map image; null where that is null."""
    value = value_of("e", "numbers", "booleans")
    members = f"transform(map_entries({image}), e -> concat({json_text('e.key')}, ':', {value}))"
    return f"if({image} is null, null, concat('{{', array_join({members}, ','), '}}'))"


def value_of(entry: str, numbers: str, booleans: str) -> str:
    """Spark SQL for the JSON value of a map's entry.

    Args:
        entry: SQL for the entry.
        numbers: SQL for the names of the columns of numbers.
        booleans: the same of booleans.
    """
    number = f"array_contains({numbers}, {entry}.key) and {entry}.value rlike {literal(_NUMBER)}"
    boolean = f"array_contains({booleans}, {entry}.key) and {entry}.value in ('true', 'false')"
    return (
        f"case when {entry}.value is null then 'null' when {number} or {boolean} then {entry}.value "
        f"else {json_text(f'{entry}.value')} end"
    )


def is_number(column: Column) -> bool:
    """Whether a column's values are written as JSON numbers."""
    return column.logical.kind in _NUMBERS


def of_struct(image: str, schema: TableSchema, left_out: dict[str, str] | None = None) -> str:
    """Spark SQL for the JSON object of a struct image; null where that is null.

    Args:
        image: the struct, a column of a change row.
        schema: its structure.
        left_out: SQL by column for whether it is left out; where None, `<image>_absent` says it.
    """
    members = [_member(image, column) for column in schema.columns]
    if not members:
        return f"if({image} is null, null, '{{}}')"
    tests = left_out or {c.name: f"array_contains({image}_absent, {literal(c.name)})" for c in schema.columns}
    some = ", ".join(f"if({tests[c.name]}, null, {m})" for c, m in zip(schema.columns, members, strict=True))
    partial = f"concat('{{', concat_ws(',', {some}), '}}')"
    if left_out is not None:
        return f"if({image} is null, null, {partial})"
    separated = ", ',', ".join(members)
    return (
        f"case when {image} is null then null when {image}_absent is null then concat('{{', {separated}, '}}') "
        f"else {partial} end"
    )


def _member(image: str, column: Column) -> str:
    value = f"{image}.{quote(column.name)}"
    name = to_text(column.name)
    written = _json(value, column)
    return f"coalesce(concat({literal(name + ':')}, {written}), {literal(name + ':null')})"


def _json(value: str, column: Column) -> str:
    kind, text = column.logical, canonical_text(value, column)
    if kind.kind == "boolean":
        return text
    if kind.kind in _NUMBERS:
        if kind.spark_type in ("float", "double"):
            return f"if(isnan({value}) or abs({value}) = double('Infinity'), concat('\"', {text}, '\"'), {text})"
        if kind.spark_type == "string":
            return f"if({text} rlike {literal(_NUMBER)}, {text}, {json_text(text)})"
        return text
    return json_text(text) if kind.spark_type == "string" else f"concat('\"', {text}, '\"')"


def members(*pairs: tuple[str, str | None]) -> str:
    """Spark SQL for a JSON object of names and SQL for their JSON values, in this order; null values are left out."""
    made = ", ".join(f"concat({literal(to_text(name) + ':')}, {sql})" for name, sql in pairs if sql is not None)
    return f"concat('{{', concat_ws(',', {made}), '}}')"


def known_filter() -> str:
    """Spark SQL that is true, or stops the query at a row whose structure no schema row describes."""
    unknown = unknown_structure()
    return (
        f"case when op in ('r', 'c', 'u', 'd') and schema_id is not null and known is null then {unknown} else true end"
    )
