"""PostgreSQL's columns on the wire, where its connector does not go by the logical type alone.

| native type | wire |
|---|---|
| numeric | `VariableScaleDecimal` without the zeros that end a fraction; its words are beyond it |
| money | Connect's `Decimal` of scale 2 |
| timestamptz | `ZonedTimestamp` with all fraction digits |
| timetz | `ZonedTime`, moved to UTC |
| interval | `Interval` in ISO 8601, or `MicroDuration` |
| bit(1); bit(n), varbit | boolean; `Bits`, the lowest byte first |
| enum; ltree; xml | `Enum`, `Ltree`, `Xml` |
| hstore | `Json` |
| point; PostGIS's geometry, geography | `Point`; `Geometry`, `Geography` |
| pgvector's vector, halfvec | `DoubleVector`, `FloatVector` |
| arrays of one dimension | array of what their elements are |

Source: recorded events of the PostgreSQL connector 3.0.8; Debezium's documentation (data type mappings).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headrace.changes import Column, LogicalType, TableSchema
from headrace.formats.debezium import postgresql_values as values
from headrace.formats.debezium.values import is_timestamp, java_texts
from headrace.formats.debezium.wire_types import (
    XML,
    JsonText,
    ValueModes,
    WireType,
    json_of,
    logical_wire_type,
    variable_decimal,
)
from headrace.wire.json_columns import BOOLEAN, FLOAT, QUOTED, WHOLE

NAME = "postgresql"
"""The connector."""
_DATA, _TIME = "io.debezium.data.", "io.debezium.time."
BITS, POINT = f"{_DATA}Bits", f"{_DATA}geometry.Point"
_UNBOUNDED = 2**31 - 1
_ELEMENTS = {
    "bool": "boolean", "int2": "int16", "int4": "int32", "int8": "int64", "oid": "int64", "float4": "float32",
    "float8": "float64", "numeric": "decimal", "money": "decimal(19,2)", "bytea": "bytes", "date": "date",
    "time": "time", "timestamp": "timestamp", "timestamptz": "instant", "interval": "interval", "uuid": "uuid",
    "json": "json", "jsonb": "json", "xml": "xml", "hstore": "nested", "geometry": "bytes", "geography": "bytes",
    "xid": "int64", "cid": "int64", "xid8": "uint64",
}  # fmt: skip
"""What elements of arrays mean, by their type; all others are strings."""
_OWN_BOUNDS = re.compile(r"(?:\[-?\d+:-?\d+\])+=\{([^{}\"\\]*)\}")
_PLAIN_ITEMS = {
    code: re.compile(rf"\[(?:(?:{item}|null)(?:,(?:{item}|null))*)?\]", re.ASCII)
    for code, item in ((WHOLE, r"-?\d+"), (BOOLEAN, "(?:true|false)"))
}
"""Arrays of one dimension whose elements are JSON's own, by the code of their elements."""
_AS_PRINTED = frozenset(("int2", "int4", "int8", "oid", "numeric", "uuid", "date", "text", "varchar", "inet", "cidr"))
"""The types whose values are printed in an array as their canonical texts."""


_OWN = frozenset(
    ("int2", "int4", "int8", "float4", "float8", "bool", "bpchar", "timestamptz", "timetz", "jsonb", "bytea", "varbit")
)
"""Names of types that only PostgreSQL has."""


def describes(schema: TableSchema) -> bool:
    natives = {column.native_type for column in schema.columns}
    return not _OWN.isdisjoint(natives) or any(native.startswith("_") for native in natives)


def wire_type(column: Column, modes: ValueModes) -> WireType | None:
    """The wire form of a column's values; None where its logical type says it, and for another connector's."""
    if modes.connector != NAME:
        return None
    native, kind = column.native_type, column.logical.kind
    if column.enum_values is not None and kind == "string":
        return _enum(column.enum_values)
    if kind == "nested" and native.startswith("_"):
        return _array(column, modes)
    make = _MAKERS.get((native, kind))
    return None if make is None else make(column, modes)


def _same(text: str) -> str:
    return text


def _named(name: str) -> Callable[[Column, ValueModes], WireType]:
    wire = WireType("string", _same, QUOTED, semantic=name, checked=False)
    return lambda column, modes: wire


def _enum(labels: tuple[str, ...]) -> WireType:
    allowed = {"allowed": ",".join(labels)}
    return WireType("string", _same, QUOTED, semantic=f"{_DATA}Enum", parameters=allowed, checked=False)


def _numeric(column: Column, modes: ValueModes) -> WireType:
    """A number, which may be none: `NaN` and the infinities have no bytes."""
    wire = logical_wire_type(column, modes)
    if modes.decimals != "precise":
        return wire
    if column.logical.precision is None:
        return replace(wire, value=lambda text: variable_decimal(values.shortest_decimal(text)), limited=_is_word)
    parameters = dict(wire.parameters)
    if column.length is not None and (column.scale or 0) > column.length:
        # More decimal places than digits: Debezium gives both as declared.
        parameters["connect.decimal.precision"] = str(column.length)
    return replace(wire, parameters=parameters, limited=_is_word)


def _is_word(text: str) -> bool:
    return text in ("NaN", "Infinity", "-Infinity")


def _money(column: Column, modes: ValueModes) -> WireType:
    wire = logical_wire_type(column, modes)
    if column.logical.scale != 2 or modes.decimals != "precise":
        return wire
    return replace(wire, parameters={"scale": "2"})


def _timestamp(column: Column, modes: ValueModes) -> WireType:
    wire = logical_wire_type(column, modes)
    # Microseconds of 64 bits end in the year 294247, and the type 29 years later.
    return replace(wire, limited=is_timestamp) if wire.connect == "int64" and wire.first >= 6 else wire


def _instant(column: Column, modes: ValueModes) -> WireType:
    digits = column.logical.digits
    return WireType(
        "string",
        lambda text: values.zoned_text(text, digits),
        QUOTED,
        semantic=f"{_TIME}ZonedTimestamp",
        checked=False,
        prepare=lambda texts: values.zoned_texts(texts, digits),
    )


def _zoned_time(column: Column, modes: ValueModes) -> WireType:
    return WireType("string", values.zoned_time, semantic=f"{_TIME}ZonedTime")


def _interval(column: Column, modes: ValueModes) -> WireType:
    if modes.intervals == "string":
        return WireType("string", values.iso_interval, semantic=f"{_TIME}Interval")
    return WireType("int64", values.micro_duration, semantic=f"{_TIME}MicroDuration", limited=values.is_interval)


def _bits(column: Column, modes: ValueModes) -> WireType:
    if column.length == 1:
        return WireType("boolean", {"1": True, "0": False}.get)
    length = {"length": str(column.length or _UNBOUNDED)}
    return WireType("bytes", values.bits, semantic=BITS, parameters=length)


def _point(column: Column, modes: ValueModes) -> WireType:
    fields: list[dict[str, Any]] = [{"type": "double", "optional": False, "field": name} for name in ("x", "y")]
    return WireType(
        "struct", values.point, semantic=POINT, fields=(*fields, *_binary(required=False)), doc="Geometry (POINT)"
    )


def _geometry(name: str) -> Callable[[Column, ValueModes], WireType]:
    wire = WireType(
        "struct", values.geometry, semantic=f"{_DATA}geometry.{name}", fields=_binary(required=True), doc=name
    )
    return lambda column, modes: wire


def _binary(*, required: bool) -> tuple[dict[str, Any], ...]:
    return (
        {"type": "bytes", "optional": not required, "field": "wkb"},
        {"type": "int32", "optional": True, "field": "srid"},
    )


def vector(name: str, kind: str) -> Callable[[Column, ValueModes], WireType]:
    """What makes the wire form of a list of binary numbers of one logical type."""
    element = logical_wire_type(Column("", 1, LogicalType(kind)), ValueModes())
    items = {"type": element.connect, "optional": False}
    wire = WireType("array", lambda text: _items(text, element, ""), semantic=f"{_DATA}{name}", items=items)
    return lambda column, modes: wire


def element_type(column: Column, modes: ValueModes) -> WireType | None:
    """The wire form of the elements of an array or vector; None for what is none."""
    native = column.native_type
    if native in ("vector", "halfvec"):
        return logical_wire_type(Column("", 1, LogicalType("float64" if native == "vector" else "float32")), modes)
    if not native.startswith("_") or column.logical.kind != "nested":
        return None
    element = native.removeprefix("_")
    logical = LogicalType.parse(_ELEMENTS.get(element, "string"))
    if element == "numeric" and column.length is not None:
        length, scale = column.length, column.scale or 0
        logical = LogicalType("decimal", max(length, scale) if scale >= 0 else length - scale, max(scale, 0))
    elif element in ("time", "timestamp", "timestamptz"):
        logical = replace(logical, precision=column.scale)
    part = replace(column, native_type=element, logical=logical)
    return wire_type(part, modes) or logical_wire_type(part, modes)


def _array(column: Column, modes: ValueModes) -> WireType:
    """An array. The wire has one dimension and no bounds; what has more is beyond it."""
    element, name = element_type(column, modes), column.native_type.removeprefix("_")
    assert element is not None
    items = element.described() | {"optional": column.enum_values is None} | element.meaning()
    return WireType("array", lambda text: _items(text, element, name), items=items, limited=_is_listed)


def _is_listed(text: str) -> bool:
    """Whether a text is an array, of any dimensions."""
    return text.startswith("[")


def _items(text: str, element: WireType, native: str) -> JsonText | None:
    plain = _PLAIN_ITEMS.get(element.code)
    if plain is not None and plain.fullmatch(text):
        return JsonText(text)
    try:
        items = json.loads(text, parse_int=str, parse_float=str)
    except ValueError:
        # Bounds that do not begin with 1 are left out; the elements stand as the server prints them.
        bounded = _OWN_BOUNDS.fullmatch(text) if native in _AS_PRINTED else None
        if bounded is None:
            return None
        items = [None if item == "NULL" else item for item in bounded[1].split(",")]
    if not isinstance(items, list) or any(isinstance(item, list) for item in items):
        return None
    texts = [_text(item) for item in items]
    if element.code == FLOAT:
        item_texts = java_texts(pa.array(texts, pa.string()), single=element.connect == "float")
    else:
        item_texts = [None if item is None else _json(element.value(item)) for item in texts]
    if any(json is None and item is not None for json, item in zip(item_texts, texts, strict=True)):
        return None
    return JsonText(f"[{','.join(json or 'null' for json in item_texts)}]")


def _text(item: Any) -> str | None:
    if item is None or isinstance(item, str):
        return item
    return json.dumps(item, ensure_ascii=False)


def _json(value: Any) -> str | None:
    return None if value is None else json_of(value)


_MAKERS: dict[tuple[str, str], Callable[[Column, ValueModes], WireType]] = {
    ("numeric", "decimal"): _numeric,
    ("money", "decimal"): _money,
    ("timestamp", "timestamp"): _timestamp,
    ("timestamptz", "instant"): _instant,
    ("timetz", "string"): _zoned_time,
    ("interval", "interval"): _interval,
    ("bit", "string"): _bits,
    ("varbit", "string"): _bits,
    ("xml", "xml"): _named(XML),
    ("ltree", "string"): _named(f"{_DATA}Ltree"),
    ("point", "string"): _point,
    ("geometry", "bytes"): _geometry("Geometry"),
    ("geography", "bytes"): _geometry("Geography"),
    ("vector", "nested"): vector("DoubleVector", "float64"),
    ("halfvec", "nested"): vector("FloatVector", "float32"),
}
