"""DTS records of one known table to change rows with struct images.

`dts_straight` reads the records that are as expected. What it leaves is read here, from canonical texts, which read
every branch of the union, whatever the order of the fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.changes import Column, TableSchema
from headrace.changes.typed import literal, quote
from headrace.formats.dts_decode import RowParts, is_careful, is_micro, message_keys, record_of, row_columns, row_of
from headrace.formats.dts_schema import ARRAY, BINARY_OBJECT, CHARACTER
from headrace.formats.dts_straight import key_of, straight
from headrace.formats.dts_types import KIND
from headrace.formats.dts_values import let, read_value
from headrace.formats.messages import change_rows, kafka_columns
from headrace.formats.text_values import misfit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame


def decode_structs(messages: DataFrame, schema: TableSchema, keys: Sequence[str]) -> DataFrame:
    """The change rows, lazily."""
    kafka = kafka_columns(messages)
    careful = is_careful(kafka)
    known = "cast(null as array<string>)"
    parts = RowParts(
        lambda image: _image(image, schema),
        known if schema.key else message_keys(keys),
        key_of(schema, "coalesce(a.image, b.image)", "k"),
    )
    rows = straight(
        kafka,
        schema,
        record_of(careful=careful),
        row_of(parts, careful=careful),
        known if schema.key else message_keys(keys, "f.tags['pk_uk_info']"),
    )
    is_row = "d.op in ('c', 'u', 'd', 'r')"
    columns = {**row_columns(), "schema_id": f"if({is_row}, {literal(schema.fingerprint)}, null)"}
    return change_rows(rows, columns, error="d.problem")


def _names(schema: TableSchema) -> str:
    return f"array({', '.join(literal(column.name) for column in schema.columns)})"


def _image(image: str, schema: TableSchema) -> str:
    """A struct of the typed image, the columns that it does not carry, and what is wrong with it."""
    names, values, wanted = f"r.fields.{ARRAY}.name", f"{image}.{ARRAY}", _names(schema)
    # The column's place among the fields.
    places = f"transform({wanted}, c -> cast(array_position({names}, c) as int) - 1)"
    kind = KIND.format("r.source.sourceType")
    read = read_value("x", f"get(r.fields.{ARRAY}, p).dataTypeNumber", "kind", "micro")
    missing = "named_struct('text', null, 'form', null, 'absent', true, 'bad', false)"
    each = f"if(p < 0, {missing}, {let('x', f'get({values}, p)', read)})"
    texts = let("kind", kind, let("micro", is_micro(), f"transform({places}, p -> {each})"))
    raw = f"transform({places}, p -> if(p < 0, null, get({values}, p)))"
    fields, problems = [], []
    for n, column in enumerate(schema.columns):
        value = f"get(t, {n})"
        text, typed = f"{value}.text", f"s.{quote(column.name)}"
        fields.append(f"{literal(column.name)}, {_typed_text(text, f'{value}.form', f'get(v, {n})', column)}")
        lossy = misfit(text, typed, column) if column.logical.spark_type != "binary" else f"{typed} is null"
        bad = f"{value}.bad"
        if lossy is not None:
            bad += f" or (not {_is_zero(text, column)} and {text} is not null and {lossy})"
        sentence = literal(f"A value of column '{column.name}' does not fit its type {column.logical.spark_type}.")
        problems.append(f"when {bad} then {sentence}")
    absent = f"nullif(filter({wanted}, (c, i) -> get(t, i).absent), cast(array() as array<string>))"
    problem = f"case {' '.join(problems)} end" if problems else "cast(null as string)"
    made = f"named_struct('image', s, 'absent', {absent}, 'problem', {problem})"
    body = let("v", raw, let("t", texts, let("s", f"named_struct({', '.join(fields)})", made)))
    return f"if({values} is null, null, {body})"


def _is_zero(text: str, column: Column) -> str:
    """A zero date of MySQL becomes null, as no Spark type has it."""
    if column.logical.spark_type not in ("date", "timestamp", "timestamp_ntz"):
        return "false"
    return f"{text} rlike '^[0-9]{{4}}-(00-[0-9]{{2}}|[0-9]{{2}}-00)'"


def _typed_text(text: str, form: str, value: str, column: Column) -> str:
    """A canonical text as the column's type; null where it does not fit."""
    kind = column.logical.spark_type
    if kind == "binary":
        # Of a text in a column of bytes, the bytes.
        raw = f"coalesce({value}.{CHARACTER}.value, {value}.{BINARY_OBJECT}.value)"
        return f"if({form} = 'b', try_to_binary({text}, 'base64'), coalesce({raw}, cast({text} as binary)))"
    if kind == "boolean":
        words = (
            f"when lower({text}) in ('true', 't', '1') then true when lower({text}) in ('false', 'f', '0') then false"
        )
        return f"case {words} end"
    if kind == "timestamp":
        # A clock without a zone is no instant.
        return f"if({form} in ('i', 'z'), try_cast({text} as timestamp), null)"
    if kind == "timestamp_ntz":
        return f"if({form} in ('i', 'z'), null, try_cast({text} as timestamp_ntz))"
    return text if kind == "string" else f"try_cast({text} as {kind})"
