"""MySQL's and MariaDB's columns on the wire, where their connectors do not go by the logical type alone.

| native type | wire |
|---|---|
| tinyint | int16 |
| bigint unsigned | Connect's `Decimal` of scale 0, or int64 that wraps around |
| float(m,d) | double |
| bit(n) | `Bits`, the lowest byte first |
| year | `Year` |
| date, datetime | `Date`; `Timestamp` up to three fraction digits, else `MicroTimestamp` |
| time | `MicroTime`, also beyond a day and before midnight |
| timestamp | `ZonedTimestamp` with all fraction digits |
| enum; set | `Enum`; `EnumSet` |
| json | `Json`; of MariaDB, where it is a longtext that is checked, a string |
| point; other geometries | `Point`; `Geometry` |
| vector | `FloatVector` |

A date that is none (`0000-00-00`) is NULL in a change row. In a column without NULL its default stands for it, or 1970.

Source: recorded events of the MariaDB connector 3.0.8; Debezium's documentation of the MySQL connector (data types).
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Column, LogicalType, TableSchema
from headrace.formats.debezium import postgresql_types as postgresql
from headrace.formats.debezium import values
from headrace.formats.debezium.wire_types import CONNECT_DECIMAL, TIME_UNITS, ValueModes, WireType, logical_wire_type
from headrace.wire.json_columns import QUOTED

NAMES = ("mysql", "mariadb")
"""The connectors."""
_DATA = "io.debezium.data."
_WORD = re.compile(r"[a-z_0-9]+")
_OWN = frozenset(
    ("mediumint", "tinytext", "mediumtext", "longtext", "tinyblob", "mediumblob", "longblob", "enum", "set", "year")
)
"""Names of types that only these databases have; their unsigned numbers are the other sign of them."""
_GEOMETRIES = frozenset(
    (
        "geometry", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
        "geomcollection",
    )
)  # fmt: skip
_DAY_MILLISECONDS = 86_400_000
_YEAR_DIGITS = 4
_NOW = re.compile(r"\(?(current_timestamp|now|localtime|localtimestamp)\b.*", re.IGNORECASE | re.DOTALL)
_ZERO_DATE = re.compile(r"\d{4}-(00-\d\d|\d\d-00)([ T].*)?", re.ASCII | re.DOTALL)
_EARLY = re.compile(r"00(\d\d)(-(?!00).*)", re.ASCII | re.DOTALL)
_FIRST_MOMENTS = {"date": "1970-01-01", "timestamp": "1970-01-01 00:00:00", "instant": "1970-01-01T00:00:00Z"}


def word_of(column: Column) -> str:
    """The name of a column's type, without length and attributes."""
    match = _WORD.match(column.native_type.lower())
    return "" if match is None else match[0]


def describes(schema: TableSchema) -> bool:
    return any(word_of(column) in _OWN or " unsigned" in column.native_type.lower() for column in schema.columns)


def wire_type(column: Column, modes: ValueModes) -> WireType | None:
    """The wire form of a column's values; None where its logical type says it, and for another connector's."""
    # A column without a type comes from a message, whose schema told its logical type.
    if modes.connector not in NAMES or not column.native_type:
        return None
    if modes.times == "adaptive":
        modes = replace(modes, times="adaptive_time_microseconds")
    word, kind = word_of(column), column.logical.kind
    make = _BY_WORD.get((word, kind)) or _BY_KIND.get(kind)
    return None if make is None else make(column, modes)


def default_of(column: Column, wire: WireType) -> Any:
    """The JSON value of the column's default; None where it has none that can be written."""
    kind, text = column.logical.kind, column.default
    if kind in _FIRST_MOMENTS:
        if text is None and column.default_expression is not None and _NOW.fullmatch(column.default_expression):
            return wire.value(_FIRST_MOMENTS[kind])
        if text is not None and _ZERO_DATE.fullmatch(text):
            return None if column.nullable else wire.value(_FIRST_MOMENTS[kind])
    return wire.default(column)


def instead_of_null(column: Column, wire: WireType) -> Any:
    """The JSON value for NULL in a column without NULL, which a date that is none has; None where null stands."""
    if column.nullable or not column.native_type or column.logical.kind not in _FIRST_MOMENTS:
        return None
    default = default_of(column, wire)
    return wire.value(_FIRST_MOMENTS[column.logical.kind]) if default is None else default


def _same(text: str) -> str:
    return text


def _tiny(column: Column, modes: ValueModes) -> WireType:
    return logical_wire_type(replace(column, logical=LogicalType("int16")), modes)


def _unsigned(column: Column, modes: ValueModes) -> WireType:
    if modes.unsigned == "long":
        # Kernels leave what is beyond 63 bits.
        return replace(logical_wire_type(replace(column, logical=LogicalType("int64")), modes), value=_wrapped)
    wire = logical_wire_type(column, replace(modes, decimals="precise"))
    return replace(wire, semantic=CONNECT_DECIMAL, parameters={"scale": "0"})


def _wrapped(text: str) -> int | None:
    if not text.isascii() or not text.isdigit() or int(text) >= 2**64:
        return None
    number = int(text)
    return number if number < 2**63 else number - 2**64


def _float(column: Column, modes: ValueModes) -> WireType:
    kind = "float32" if column.scale is None else "float64"
    return logical_wire_type(replace(column, logical=LogicalType(kind)), modes)


def _bits(column: Column, modes: ValueModes) -> WireType:
    parameters = {"length": str(column.length)} if column.length is not None else {}
    return WireType("bytes", _same, QUOTED, semantic=f"{_DATA}Bits", parameters=parameters, checked=False)


def _year(column: Column, modes: ValueModes) -> WireType:
    wire = logical_wire_type(replace(column, logical=LogicalType("int32")), modes)
    return replace(wire, semantic="io.debezium.time.Year")


def _dated(column: Column, modes: ValueModes) -> WireType:
    """A date or timestamp: one that is none may stand in a change row as its text, if the user wants it so."""
    wire = logical_wire_type(column, modes)
    prepare = _adjusted_years if modes.adjust_years else None
    return replace(wire, limited=_is_zero_date, prepare=prepare)


def _is_zero_date(text: str) -> bool:
    return _ZERO_DATE.fullmatch(text) is not None


def _adjusted_years(texts: pa.StringArray) -> pa.StringArray:
    """Years below 100 as MySQL reads two digits: 1970 to 2069."""
    early = pc.starts_with(texts, "00")
    if not pc.any(early, min_count=0).as_py():
        return texts
    adjusted = [_EARLY.sub(_adjusted, text) for text in texts.filter(early).to_pylist()]
    return pc.replace_with_mask(texts, early, pa.array(adjusted, pa.string()))


def _adjusted(match: re.Match[str]) -> str:
    return f"{'20' if match[1] < '70' else '19'}{match[1]}{match[2]}"


def _time(column: Column, modes: ValueModes) -> WireType:
    if modes.times != "connect":
        return logical_wire_type(column, modes)
    # Connect's time is one of day.
    return WireType("int32", _of_day, semantic=TIME_UNITS["connect"][1], limited=lambda text: _is_time(text))


def _of_day(text: str) -> int | None:
    count = values.of_time(text, 3)
    return count if count is not None and 0 <= count <= _DAY_MILLISECONDS and not text.startswith("-") else None


def _is_time(text: str) -> bool:
    return values.of_time(text, 6) is not None


def _instant(column: Column, modes: ValueModes) -> WireType:
    return WireType(
        "string",
        lambda text: None if _is_zero_date(text) else text,
        QUOTED,
        _YEAR_DIGITS,
        semantic="io.debezium.time.ZonedTimestamp",
        checked=False,
        limited=_is_zero_date,
    )


def _labelled(name: str) -> Callable[[Column, ValueModes], WireType]:
    def make(column: Column, modes: ValueModes) -> WireType:
        labels = (label.replace(",", "\\,") for label in column.enum_values or ())
        allowed = {"allowed": ",".join(labels)}
        return WireType("string", _same, QUOTED, semantic=f"{_DATA}{name}", parameters=allowed, checked=False)

    return make


def _json(column: Column, modes: ValueModes) -> WireType:
    semantic = f"{_DATA}Json" if modes.connector == "mysql" else None
    return WireType("string", _same, QUOTED, semantic=semantic, checked=False)


def _geometry(column: Column, modes: ValueModes) -> WireType:
    return WireType("struct", _shape, semantic=f"{_DATA}geometry.Geometry", fields=_binary(True), doc="Geometry")


def _point(column: Column, modes: ValueModes) -> WireType:
    fields = [{"type": "double", "optional": False, "field": name} for name in ("x", "y")]
    return WireType(
        "struct",
        _index,
        semantic=f"{_DATA}geometry.Point",
        fields=(*fields, *_binary(False)),
        doc="Geometry (POINT)",
    )


def _binary(required: bool) -> tuple[dict[str, Any], ...]:
    return (
        {"type": "bytes", "optional": not required, "field": "wkb"},
        {"type": "int32", "optional": True, "field": "srid"},
    )


def _shape(text: str) -> dict[str, Any] | None:
    """A geometry's well-known binary and the number of its reference system, None for none."""
    try:
        parsed = json.loads(text)
    except ValueError:
        return None
    if not isinstance(parsed, dict) or not isinstance(parsed.get("wkb"), str):
        return None
    return {"wkb": parsed["wkb"], "srid": parsed.get("srid") or None}


def _index(text: str) -> dict[str, Any] | None:
    shape = _shape(text)
    try:
        data = b"" if shape is None else base64.b64decode(shape["wkb"], validate=True)
        order = "<" if data[:1] == b"\1" else ">"
        kind, x, y = struct.unpack(f"{order}xIdd", data)
    except (ValueError, struct.error):
        return None
    return {"x": x, "y": y, **shape} if shape is not None and kind == 1 else None


_BY_KIND: dict[str, Callable[[Column, ValueModes], WireType]] = {
    "uint64": _unsigned,
    "int8": _tiny,
    "date": _dated,
    "timestamp": _dated,
    "time": _time,
    "instant": _instant,
    "json": _json,
}
_BY_WORD: dict[tuple[str, str], Callable[[Column, ValueModes], WireType]] = {
    ("float", "float32"): _float,
    ("bit", "bytes"): _bits,
    ("year", "int16"): _year,
    ("enum", "string"): _labelled("Enum"),
    ("set", "string"): _labelled("EnumSet"),
    ("point", "nested"): _point,
    ("vector", "nested"): postgresql.vector("FloatVector", "float32"),
    **{(word, "nested"): _geometry for word in _GEOMETRIES},
}
