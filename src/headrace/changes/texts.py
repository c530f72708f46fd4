"""Spark SQL that writes values as canonical text, the counterpart of `typed_value`.

Integer arithmetic and Java's own digits only: nothing depends on the session's time zone, and no exact number passes
through a double.

`key_text` makes one ordered JSON array of a key's canonical texts, by which rows are grouped, joined and partitioned.
Its text form is that of Spark's `to_json(array(...))`, so that a key made here (Arrow), by a decoder (Spark SQL) or in
Python is the same text: `["1005"]`, `["é\\"x",null]`; control characters as in Java's JSON (`\\u001F` upper case).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.table import Column, TableSchema
from headrace.changes.typed import literal, quote

_DAY = 86_400


def canonical_text(value: str, column: Column) -> str:
    """Spark SQL for the canonical text of a value of the column's Spark type (`LogicalType.spark_type`)."""
    kind = column.logical.spark_type
    if kind == "string":
        return value
    if kind == "binary":
        return base64_text(value)
    if kind in ("float", "double"):
        return float_text(value)
    if kind.startswith("decimal"):
        plain = f"replace(format_number({value}, {column.logical.scale or 0}), ',', '')"
        return f"if(contains(cast({value} as string), 'E'), {plain}, cast({value} as string))"
    if kind == "timestamp_ntz":
        return _local(value, column.logical.digits)
    if kind == "timestamp":
        local = moment_text(f"unix_micros({value})", "timestamp", 6, column.logical.digits)
        return f"concat(replace({local}, ' ', 'T'), 'Z')"
    return f"cast({value} as string)"


def base64_text(value: str) -> str:
    """Spark SQL for bytes in base64 on one line; Spark's own function breaks it after 76 characters."""
    return f"replace(base64({value}), '\\r\\n', '')"


def text_image(image: str, schema: TableSchema, absent: str = "null") -> str:
    """Spark SQL for a struct image as a map of canonical texts, in column order; null where the struct is null.

    Args:
        image: SQL for the struct.
        schema: the table's schema.
        absent: SQL for the names of the columns that the image does not carry, which are left out; null for none.
    """
    if not schema.columns:
        return f"if({image} is null, null, cast(map() as map<string,string>))"
    pairs = ", ".join(f"{literal(c.name)}, {canonical_text(f'{image}.{quote(c.name)}', c)}" for c in schema.columns)
    whole = f"map({pairs})"
    if absent == "null":
        return f"if({image} is null, null, {whole})"
    left = f"map_filter({whole}, (k, v) -> not array_contains({absent}, k))"
    return f"case when {image} is null then null when {absent} is null then {whole} else {left} end"


def moment_text(value: str, kind: str, unit: int, digits: int) -> str:
    """A count of 10**-unit seconds, since midnight (`time`) or the epoch (`timestamp`), as clock or day and clock."""
    per_second = f"{10**unit}L"
    per_day = f"{_DAY * 10**unit}L"
    in_day = f"pmod({value}, {per_day})"
    second = f"({in_day} div {per_second})"
    parts = [f"lpad({second} div 3600, 2, '0')", "':'", f"lpad({second} div 60 % 60, 2, '0')", "':'"]
    parts.append(f"lpad({second} % 60, 2, '0')")
    if digits:
        fraction = f"lpad({in_day} % {per_second}, {unit}, '0')"
        parts += ["'.'", f"rpad(substr({fraction}, 1, {digits}), {digits}, '0')"]
    if kind == "timestamp":
        day = f"cast((({value}) - {in_day}) div {per_day} as int)"
        parts = [f"cast(date_from_unix_date({day}) as string)", "' '", *parts]
    return f"concat({', '.join(parts)})"


def float_text(value: str) -> str:
    """Java's digits of a binary number in the canonical text form: plain from 0.0001 up to 10**16, else `1e+22`."""
    java = f"cast({value} as string)"
    plain = f"regexp_replace(cast(cast({java} as decimal(38,21)) as string), '(\\\\.[0-9]+?)0*$', '$1')"
    scientific = (
        f"regexp_replace(regexp_replace(regexp_replace({java}, '\\\\.0E', 'E'), 'E([0-9])', 'e+$1'), "
        "'E-([0-9]+)$', 'e-$1')"
    )
    scientific = f"regexp_replace({scientific}, 'e-([0-9])$', 'e-0$1')"
    middling = f"(abs({value}) >= 1e7D and abs({value}) < 1e16D) or (abs({value}) < 1e-3D and abs({value}) >= 1e-4D)"
    return f"case when not contains({java}, 'E') then {java} when {middling} then {plain} else {scientific} end"


def _local(value: str, digits: int) -> str:
    """A local timestamp with exactly its digits; a cast to string leaves trailing zeros out."""
    text = f"cast({value} as string)"
    whole = f"substring_index({text}, '.', 1)"
    if not digits:
        return whole
    fraction = f"if(contains({text}, '.'), substring_index({text}, '.', -1), '')"
    return f"concat({whole}, '.', rpad({fraction}, {digits}, '0'))"


_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_CONTROL = r"[\x00-\x1f]"


def key_text(texts: Sequence[str | None]) -> str:
    """The key text of one key."""
    return "[" + ",".join("null" if t is None else f'"{_escape(t)}"' for t in texts) + "]"


def key_texts(columns: Sequence[pa.Array]) -> pa.Array:
    """The key texts of whole columns of canonical text, one per key column in key order."""
    parts: list[pa.Array | str] = []
    for number, column in enumerate(columns):
        parts.append("," if number else "[")
        quoted = pc.binary_join_element_wise('"', _escape_all(column), '"', "")
        parts.append(quoted.fill_null("null") if column.null_count else quoted)
    return pc.binary_join_element_wise(*parts, "]", "")


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda m: _SHORT.get(m[0]) or f"\\u{ord(m[0]):04X}", text)


def _escape_all(column: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(column, _CONTROL)).as_py():
        # Control characters in a key are rare; then the column is escaped value by value.
        return pa.array([None if t is None else _escape(t) for t in column.to_pylist()], pa.string())
    for plain in ("\\", '"'):
        if pc.any(pc.match_substring(column, plain)).as_py():
            column = pc.replace_substring(column, plain, _SHORT[plain])
    return column
