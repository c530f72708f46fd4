"""DTS records of one known table to change rows with struct images.

`dts_straight` reads the records that are as expected. What it leaves is read here, from canonical texts, which read
every branch of the union, whatever the order of the fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.changes import Column, TableSchema
from headrace.changes.letter_case import lower
from headrace.changes.typed import literal, quote
from headrace.formats.dts_decode import (
    TRANSACTION,
    is_careful,
    message_keys,
    read_images,
    records,
    row_columns,
    value_problem,
)
from headrace.formats.dts_straight import key_of, straight
from headrace.formats.dts_values import ABSENT
from headrace.formats.messages import KAFKA_COLUMNS, change_rows, kafka_columns, key_text
from headrace.formats.text_values import misfit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_IMAGES = ("before", "after")
_DATA = "('c', 'u', 'd', 'r')"


def decode_structs(messages: DataFrame, schema: TableSchema, keys: Sequence[str]) -> DataFrame:
    """The change rows, lazily.

    Args:
        messages: has Kafka's columns.
        schema: the table's structure.
        keys: the key columns where neither the table nor a record names them.
    """
    kafka = kafka_columns(messages)
    careful = is_careful(kafka)
    fast = straight(kafka, schema, keys, careful=careful)
    read = read_images(records(fast, "fast is null", careful=careful))
    facts = row_columns("cast(null as array<string>)" if schema.key else message_keys(keys))
    laid = read.selectExpr(
        *KAFKA_COLUMNS, "fast", *(f"{sql} as {name}" for name, sql in facts.items()),
        f"{value_problem()} as why",
        *(f"{_in_order(f'get(read_values, {n})', schema)} as {image}_texts" for n, image in enumerate(_IMAGES)),
    )  # fmt: skip
    # A lambda in each projection, so that Spark does not put it into one Java method, which would be too long.
    apart = "exists(headers, h -> h.key is null) as apart"
    typed = laid.selectExpr("*", *(f"{_struct(f'{image}_texts', schema)} as {image}" for image in _IMAGES), apart)
    checked = typed.selectExpr(
        *KAFKA_COLUMNS, "fast", *facts, *_IMAGES, "before_texts", "after_texts",
        f"coalesce(why, {', '.join(_misfits(f'{image}_texts', image, schema) for image in _IMAGES)}) as why",
        *(f"{_absent(f'{image}_texts', schema)} as {image}_absent" for image in _IMAGES),
    )  # fmt: skip
    key = key_of(schema, "coalesce(after, before)", "key_names")
    whole = checked.selectExpr("*", f"if(op in {_DATA} and why is null, {key}, null) as row_key")
    slow = {name: name for name in ("op", "table", *_IMAGES, "before_absent", "after_absent", "event_time", "snapshot")}
    slow |= {"key": "row_key", "transaction": "transaction", "source": "source"}
    rows = whole.selectExpr(
        *KAFKA_COLUMNS, "why", *(f"if(fast is null, {sql}, fast.{name}) as got_{name}" for name, sql in slow.items())
    )
    columns = {name: f"got_{name}" for name in slow} | {
        "key_text": key_text("got_key"),
        "transaction": TRANSACTION.replace("transaction", "got_transaction"),
        "schema_id": f"if(got_op in {_DATA}, {literal(schema.fingerprint)}, null)",
    }
    return change_rows(rows, columns, error="why")


def _names(schema: TableSchema) -> str:
    return f"array({', '.join(literal(column.name) for column in schema.columns)})"


def _in_order(image: str, schema: TableSchema) -> str:
    """The values of an image in the order of the columns; of a column that is no field, an absent one."""
    missing = f"named_struct('text', cast(null as string), 'form', '{ABSENT}')"
    place = "cast(array_position(names, c) as int)"
    each = f"if(array_contains(names, c), get({image}, {place} - 1), {missing})"
    return f"if({image} is null, null, transform({_names(schema)}, c -> {each}))"


def _struct(texts: str, schema: TableSchema) -> str:
    fields = ", ".join(
        f"{literal(c.name)}, {_typed(f'get({texts}, {n}).text', f'get({texts}, {n}).form', c)}"
        for n, c in enumerate(schema.columns)
    )
    return f"if({texts} is null, null, named_struct({fields}))"


def _typed(text: str, form: str, column: Column) -> str:
    """A canonical text as the column's type; null where it does not fit."""
    kind = column.logical.spark_type
    if kind == "binary":
        return f"if({form} = 'b', try_to_binary({text}, 'base64'), cast({text} as binary))"
    if kind == "boolean":
        yes, no = "('true', 't', '1')", "('false', 'f', '0')"
        return f"case when {lower(text)} in {yes} then true when {lower(text)} in {no} then false end"
    if kind == "timestamp":
        # A clock without a zone is no instant.
        return f"if({form} in ('i', 'z'), try_cast({text} as timestamp), null)"
    if kind == "timestamp_ntz":
        return f"if({form} in ('i', 'z'), null, try_cast({text} as timestamp_ntz))"
    return text if kind == "string" else f"try_cast({text} as {kind})"


def _misfits(texts: str, image: str, schema: TableSchema) -> str:
    """A sentence that names the first column whose value does not fit its type; null where all fit."""
    tests = []
    for n, column in enumerate(schema.columns):
        kind, text, typed = column.logical.spark_type, f"get({texts}, {n}).text", f"{image}.{quote(column.name)}"
        lossy = f"{typed} is null" if kind == "binary" else misfit(text, typed, column)
        if lossy is None:
            continue
        # A zero date of MySQL becomes null, as no Spark type has it.
        zero = f"{text} rlike '^[0-9]{{4}}-(00-[0-9]{{2}}|[0-9]{{2}}-00)'"
        date = f" and not {zero}" if kind in ("date", "timestamp", "timestamp_ntz") else ""
        sentence = literal(f"A value of column '{column.name}' does not fit its type {kind}.")
        tests.append(f"when {text} is not null and {lossy}{date} then {sentence}")
    return f"case {' '.join(tests)} end" if tests else "cast(null as string)"


def _absent(texts: str, schema: TableSchema) -> str:
    names = f"filter({_names(schema)}, (c, i) -> get({texts}, i).form <=> '{ABSENT}')"
    return f"if({texts} is null, null, nullif({names}, cast(array() as array<string>)))"
