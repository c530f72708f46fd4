"""The Avro schemas of Qlik's data messages: what their columns mean, and schemas for tables that are encoded.

| Avro | logical type | text of a value |
|---|---|---|
| int, long | int32, int64 | digits |
| float, double | float32, float64 | fewest digits |
| boolean, string, enum | boolean, string | as it is |
| bytes, fixed | bytes | base64 |
| decimal(p,s) | decimal(p,s) | digits with the scale's |
| date | date | `YYYY-MM-DD` |
| time-millis, time-micros | time(3), time(6) | `HH:MM:SS.ffffff` |
| timestamp-millis, -micros | instant(3), instant(6) | `YYYY-MM-DDTHH:MM:SS.ffffffZ` |
| local-timestamp-millis, -micros | timestamp(3), timestamp(6) | `YYYY-MM-DD HH:MM:SS.ffffff` |
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.texts import float_text
from headrace.formats.debezium_texts import date_text, decimal_text, time_text, timestamp_text

_NAMESPACE = re.compile(r"com\.attunity\.queue\.msg\.[^.]*\.(?P<schema>[^.]*)\.(?P<table>.+)")
_PLAIN = {
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "boolean": "boolean",
    "bytes": "bytes",
    "fixed": "bytes",
}
_TIMES = {
    "time-millis": ("time(3)", "c3"),
    "time-micros": ("time(6)", "c6"),
    "timestamp-millis": ("instant(3)", "i3"),
    "timestamp-micros": ("instant(6)", "i6"),
    "local-timestamp-millis": ("timestamp(3)", "l3"),
    "local-timestamp-micros": ("timestamp(6)", "l6"),
    "date": ("date", "d"),
}


def described(schema: str) -> str | None:
    """The columns of a data record (names, logical types, codes of `avro_map`) and its table, as one line of JSON.

    None where the schema is that of no data record.
    """
    try:
        parsed = json.loads(schema)
        namespace = _NAMESPACE.fullmatch(parsed.get("namespace") or parsed["name"].rpartition(".")[0])
        data = next(field["type"] for field in parsed["fields"] if field["name"] == "data")
        columns = [_column(field) for field in _branch(data)["fields"]]
    # Schemas come from outside, and any part may be missing or of another type.
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return None
    table = [namespace["schema"], namespace["table"]] if namespace else None
    return json.dumps({"table": table, "columns": columns}, ensure_ascii=False, separators=(",", ":"))


def _branch(kind: Any) -> Any:
    """The branch of a union with null that says something; the type itself else."""
    if isinstance(kind, list):
        return next((branch for branch in kind if branch != "null"), "null")
    return kind


def _column(field: Mapping[str, Any]) -> tuple[str, str, str, bool, str]:
    """Name on the wire, logical type, code, whether it can be null, name in the table."""
    nullable = isinstance(field["type"], list)
    name_in_table = str(field.get("columnName") or field["name"])
    kind = _branch(field["type"])
    said = kind if isinstance(kind, Mapping) else {"type": kind}
    logical = said.get("logicalType")
    if logical == "decimal":
        scale, precision = int(said.get("scale", 0)), int(said.get("precision", 0))
        known = precision >= max(scale, 1) and scale >= 0
        decimal = f"decimal({precision},{scale})" if known else "string"
        return field["name"], decimal, f"n{scale}", nullable, name_in_table
    if logical in _TIMES:
        name, code = _TIMES[logical]
        return field["name"], name, code, nullable, name_in_table
    name = _PLAIN.get(said["type"], "string")
    return field["name"], name, {"float32": "f", "float64": "g"}.get(name, ""), nullable, name_in_table


@dataclass(frozen=True)
class Description:
    """What `described` wrote.

    Args:
        schema: the structure, without a key.
        codes: how values become canonical texts, by column.
        renamed: names in the table by name on the wire, where they differ.
    """

    schema: TableSchema
    codes: Mapping[str, str]
    renamed: Mapping[str, str]


def read_description(text: str, names: Sequence[str] = ()) -> Description:
    """Read what `described` wrote.

    Args:
        text: its line.
        names: the table's columns in order, where they are known; those of the schema are fit for Avro only.
    """
    said = json.loads(text)
    schema, name = said["table"] or ("", "")
    wire = [column[0] for column in said["columns"]]
    own = list(names) if len(names) == len(wire) else [column[4] for column in said["columns"]]
    if len(set(own)) < len(own):
        own = wire
    columns = tuple(
        Column(column, place, LogicalType.parse(facts[1]), nullable=facts[3])
        for place, (column, facts) in enumerate(zip(own, said["columns"], strict=True), 1)
    )
    codes = {column: facts[2] for column, facts in zip(own, said["columns"], strict=True) if facts[2]}
    renamed = {before: after for before, after in zip(wire, own, strict=True) if before != after}
    return Description(TableSchema(TableId("", schema, name), columns), codes, renamed)


def avro_map(image: str, codes: str) -> str:
    """Spark SQL for a map of JSON's texts of Avro values as canonical texts, by SQL for the codes of its columns."""
    count = "try_cast(v as bigint)"
    decimal = decimal_text("try_to_binary(v, 'base64')", "cast(substr(codes[k], 2) as int)")
    spelled = (
        "case codes[k] "
        f"when 'f' then {float_text('cast(v as float)')} when 'g' then {float_text('cast(v as double)')} "
        f"when 'd' then {date_text('v')} "
        f"when 'i3' then concat(replace({timestamp_text(count, '3', '3')}, ' ', 'T'), 'Z') "
        f"when 'i6' then concat(replace({timestamp_text(count, '6', '6')}, ' ', 'T'), 'Z') "
        f"when 'l3' then {timestamp_text(count, '3', '3')} when 'l6' then {timestamp_text(count, '6', '6')} "
        f"when 'c3' then {time_text(count, '3', '3')} when 'c6' then {time_text(count, '6', '6')} "
        "else if(startswith(codes[k], 'n'), "
        f"{decimal}, v) end"
    )
    each = f"transform_values({image}, (k, v) -> if(v is null, null, {spelled}))"
    return (
        f"if({image} is null, null, element_at(transform(array({codes}), codes -> "
        f"if(coalesce(size(codes), 0) = 0, {image}, {each})), 1))"
    )
