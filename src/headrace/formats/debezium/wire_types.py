"""Debezium's wire values: the Connect type of each column, and what a canonical text is on the wire.

Source: Debezium's documentation of the SQL Server, Oracle and Db2 connectors (data type mappings),
and recorded events of the SQL Server connector 1.7.2 and 3.6.1 and of the PostgreSQL and MariaDB connectors
3.0.8, type by type.

| logical type | adaptive | connect | isostring |
|---|---|---|---|
| date | `Date`, days | Connect's `Date` | `IsoDate` |
| time(0-3) (4-6) (7-9) | `Time` ms, `MicroTime`, `NanoTime` | Connect's `Time`, ms | `IsoTime` |
| timestamp(0-3) (4-6) (7-9) | the same with `Timestamp` | Connect's `Timestamp`, ms | `IsoTimestamp` |
| zoned_timestamp, instant | `ZonedTimestamp` | `ZonedTimestamp` | `ZonedTimestamp` |

`microseconds` and `nanoseconds` use one unit for every time and timestamp; `adaptive_time_microseconds` for times only.

| logical type | precise | string | double |
|---|---|---|---|
| decimal(p,s), uint64 | Connect's `Decimal` | string | double |
| decimal (digits differ by value) | `VariableScaleDecimal` | string | double |
| decimal(p,0) of a NUMBER, p up to 18 | int8, int16, int32, int64 | the same | the same |

A nested value is `Json`. An interval is `Interval`, or `MicroDuration` where intervals are numeric.

No exact number passes through a double, and no time zone plays a part.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.changes import Column
from headrace.formats.change_columns import upper
from headrace.formats.change_messages import quoted
from headrace.formats.debezium import values
from headrace.wire.json_columns import BOOLEAN, CAPITALS, DAY, DECIMAL, FLOAT, MOMENT, ODD, QUOTED, TIME, WHOLE, ZONED
from headrace.wire.json_writer import to_text
from headrace.wire.typed_exact import value_of

CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
XML = "io.debezium.data.Xml"
UUID = "io.debezium.data.Uuid"
_NUMBER_WIDTHS = ((2, "int8"), (4, "int16"), (9, "int32"), (18, "int64"))
"""Up to how many digits an Oracle NUMBER without fraction is an integer of which width."""
_WHOLE_NUMBER = re.compile(r"\s*([+-]?[0-9]+)\s*", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
# Java's ISO formatters leave out the zeros that end a fraction, and a point that nothing follows.
_TRIM = re.compile(r"(?:(\.[0-9]*[1-9])|\.)0*$")
_TRIM_ZONED = re.compile(r"(?:(\.[0-9]*[1-9])|\.)0*(Z|[+-][0-9:]+)$")


@dataclass(frozen=True)
class ValueModes:
    """How values are written, in Debezium's words.

    Args:
        connector: whose values they are; empty for any.
        decimals: `precise`, `string` or `double`.
        times: `adaptive`, `adaptive_time_microseconds`, `connect`, `isostring`, `microseconds` or `nanoseconds`.
        binary: `bytes`, `base64`, `base64-url-safe` or `hex`.
        placeholder: what stands for a value that the change does not carry.
        failing: whether a value beyond what its wire type holds stops the query; else null stands in its place, or the
            nearest value that the type holds where the column has no NULL.
        null_as_default: whether NULL in a nullable column is written as the column's default.
        recorded_placeholders: whether only text, ntext, image and xml have the placeholder, as recorded of 3.6.1.
        intervals: `string` or `numeric`.
        unsigned: `precise` or `long`: how MySQL's unsigned 64-bit numbers are written.
        adjust_years: whether years below 100 of MySQL are those of 1970 to 2069.
        float_texts: whether binary numbers are strings with their canonical texts, for what reads them again.
    """

    connector: str = ""
    decimals: str = "precise"
    times: str = "adaptive"
    binary: str = "bytes"
    placeholder: str = "__debezium_unavailable_value"
    failing: bool = True
    null_as_default: bool = False
    recorded_placeholders: bool = False
    intervals: str = "string"
    unsigned: str = "precise"
    adjust_years: bool = False
    float_texts: bool = False


@dataclass(frozen=True)
class WireType:
    """What one column is on the wire.

    Args:
        connect: Kafka Connect's type name.
        value: the JSON value of a canonical text; None where the text does not fit.
        code: how kernels write it (see `wire.json_columns`); they leave what they can't to `value`.
        first: of the code.
        second: of the code.
        semantic: the schema name that says what the value means, if any.
        parameters: the schema's parameters.
        checked: whether canonical texts are looked at; else each is a value, and a placeholder may stand for one.
        constant: the JSON value of a default, where that is another.
        fields: the schema's fields, of a struct.
        doc: the schema's documentation, where Debezium has one.
        limited: of a type that holds less than the column may have (nanoseconds of 64 bits, decimals that are numbers),
            whether a text is a value beyond it.
        items: the schema of an array's items.
        prepare: changes a column of texts before kernels write them.
    """

    connect: str
    value: Callable[[str], Any]
    code: int = ODD
    first: int = 0
    second: int = 0
    semantic: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    checked: bool = True
    constant: Callable[[str], Any] | None = None
    fields: tuple[Mapping[str, Any], ...] = ()
    doc: str | None = None
    limited: Callable[[str], bool] | None = None
    items: Mapping[str, Any] | None = None
    prepare: Callable[[pa.StringArray], pa.StringArray] | None = None

    def described(self) -> dict[str, Any]:
        """The type's part of a field's Connect schema, in JsonConverter's order, up to `optional`."""
        schema: dict[str, Any] = {"type": self.connect}
        schema |= {"fields": list(self.fields)} if self.fields else {}
        return schema | ({"items": dict(self.items)} if self.items is not None else {})

    def meaning(self, more: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The part after `optional`: what values mean.

        Args:
            more: further parameters.
        """
        schema: dict[str, Any] = {"name": self.semantic, "version": 1} if self.semantic else {}
        schema |= {"doc": self.doc} if self.doc else {}
        parameters = {**self.parameters, **(more or {})}
        return schema | ({"parameters": parameters} if parameters else {})

    def default(self, column: Column) -> Any:
        """The JSON value of the column's default; None where it has none that can be written."""
        return None if column.default is None else (self.constant or self.value)(column.default)


def logical_wire_type(column: Column, modes: ValueModes) -> WireType:
    """The wire form that a column's logical type has; every one has one."""
    return _MAKERS[column.logical.kind](column, modes)


class JsonText(str):
    __slots__ = ()


def json_of(value: object) -> str:
    if isinstance(value, JsonText):
        return value
    return quoted(value) if isinstance(value, str) else to_text(value)


def _as_is(text: str) -> str:
    return text


def _number(connect: str, kind: pa.DataType, code: int, first: int) -> Callable[[Column, ValueModes], WireType]:
    wire = WireType(connect, lambda text: value_of(text, kind), code, first)
    if kind == pa.float32():
        # The number that the text means to 64 bits has the same digits.
        wire = replace(wire, constant=lambda text: None if value_of(text, kind) is None else float(text))
    return lambda column, modes: wire


def _text(semantic: str | None = None) -> Callable[[Column, ValueModes], WireType]:
    wire = WireType("string", _as_is, QUOTED, semantic=semantic, checked=False)
    return lambda column, modes: wire


def _xml(column: Column, modes: ValueModes) -> WireType:
    return WireType("string", _as_is, QUOTED, semantic=XML if _native(column) != "xml" else None, checked=False)


def _uuid(column: Column, modes: ValueModes) -> WireType:
    if _native(column) == "uniqueidentifier":
        # SQL Server's connector writes plain texts in capitals.
        return WireType("string", upper, CAPITALS, checked=False)
    return WireType("string", _as_is, QUOTED, semantic=UUID, checked=False)


def _native(column: Column) -> str:
    return column.native_type.lower().partition("(")[0].strip()


def _bytes(column: Column, modes: ValueModes) -> WireType:
    if modes.binary == "hex":
        return WireType("string", _hex, checked=False)
    if modes.binary == "base64-url-safe":
        safe = str.maketrans("+/", "-_")
        return WireType("string", lambda text: text.translate(safe), checked=False)
    return WireType("bytes" if modes.binary == "bytes" else "string", _as_is, QUOTED, checked=False)


def _hex(text: str) -> str | None:
    try:
        return base64.b64decode(text).hex()
    except ValueError:
        return None


def _decimal(column: Column, modes: ValueModes) -> WireType:
    precision, scale = column.logical.precision, column.logical.scale or 0
    if column.logical.kind == "uint64":
        precision, scale = 20, 0
    elif precision is not None and scale < 0:
        # Its values are multiples of a power of ten, written with all their digits.
        precision, scale = precision - scale, 0
    if precision is not None and scale == 0 and _native(column) == "number":
        width = next((kind for digits, kind in _NUMBER_WIDTHS if precision <= digits), None)
        if width is not None:
            return _MAKERS[width](column, modes)
    if modes.decimals == "double":
        return WireType("double", lambda text: value_of(text, pa.float64()), FLOAT, 15)
    if modes.decimals == "string":
        return WireType("string", _as_is, QUOTED, checked=False)
    if precision is None:
        return WireType(
            "struct",
            variable_decimal,
            semantic=VARIABLE_DECIMAL,
            fields=(
                {"type": "int32", "optional": False, "field": "scale"},
                {"type": "bytes", "optional": False, "field": "value"},
            ),
            doc="Variable scaled decimal",
        )
    largest = _largest(column, precision)
    return WireType(
        "bytes",
        lambda text: _unscaled(text, scale, largest),
        DECIMAL if scale <= 18 else ODD,
        scale,
        semantic=CONNECT_DECIMAL,
        parameters={"scale": str(scale), "connect.decimal.precision": str(precision)},
    )


def _largest(column: Column, precision: int) -> int | None:
    """The largest unscaled number that is written for a column; None for any."""
    if precision <= 18 or column.native_type in ("money", "smallmoney"):
        return 2**63
    return 10**38 if precision <= 38 else None


def _unscaled(text: str, scale: int, largest: int | None) -> str | None:
    """The bytes of a decimal that has exactly the scale's digits."""
    if scale and text[-scale - 1 : -scale] != ".":
        return None
    match = _WHOLE_NUMBER.fullmatch(text.replace(".", "") if scale else text)
    if match is None:
        return None
    number = _integer(match[1])
    return None if largest is not None and not -largest <= number < largest else _base64(number)


def variable_decimal(text: str) -> dict[str, Any] | None:
    """A number with its own scale."""
    if not _NUMBER.fullmatch(text):
        return None
    return {"scale": len(text.partition(".")[2]), "value": _base64(_integer(text.replace(".", "")))}


def _integer(digits: str) -> int:
    # By way of Decimal, because Python's own limit for the digits of integers is below ours.
    return int(Decimal(digits)) if len(digits) > 4_000 else int(digits)


def _base64(number: int) -> str:
    """A whole number in the fewest bytes of two's complement, most significant first, as base64."""
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


def _interval(column: Column, modes: ValueModes) -> WireType:
    if modes.intervals == "string":
        return WireType("string", _as_is, QUOTED, semantic="io.debezium.time.Interval", checked=False)
    semantic = "io.debezium.time.MicroDuration"
    # Debezium has no constant for a default: the field then says none.
    return WireType("int64", values.of_interval, semantic=semantic, constant=lambda text: None)


def _date(column: Column, modes: ValueModes) -> WireType:
    if modes.times == "isostring":
        return WireType("string", lambda text: f"{text}Z", semantic="io.debezium.time.IsoDate", checked=False)
    name = "org.apache.kafka.connect.data.Date" if modes.times == "connect" else "io.debezium.time.Date"
    return WireType("int32", values.of_date, DAY, semantic=name)


def _time(column: Column, modes: ValueModes) -> WireType:
    unit = _unit(column, modes, of_day=True)
    if unit == "iso":
        return _iso("io.debezium.time.IsoTime")
    digits, name, _ = TIME_UNITS[unit]
    bits = 32 if digits == 3 else 64
    return WireType(f"int{bits}", lambda text: values.of_time(text, digits), TIME, digits, bits, name)


def _timestamp(column: Column, modes: ValueModes) -> WireType:
    unit = _unit(column, modes, of_day=False)
    if unit == "iso":
        return _iso("io.debezium.time.IsoTimestamp")
    digits, _, name = TIME_UNITS[unit]
    limited = values.is_timestamp if digits == 9 else None
    return WireType(
        "int64", lambda text: values.of_timestamp(text, digits), MOMENT, digits, semantic=name, limited=limited
    )


TIME_UNITS = {
    "connect": (3, "org.apache.kafka.connect.data.Time", "org.apache.kafka.connect.data.Timestamp"),
    "ms": (3, "io.debezium.time.Time", "io.debezium.time.Timestamp"),
    "us": (6, "io.debezium.time.MicroTime", "io.debezium.time.MicroTimestamp"),
    "ns": (9, "io.debezium.time.NanoTime", "io.debezium.time.NanoTimestamp"),
}
"""By unit: its fraction digits, and what the schemas of times and of timestamps are called."""


def _unit(column: Column, modes: ValueModes, *, of_day: bool) -> str:
    if modes.times == "isostring":
        return "iso"
    if modes.times == "connect":
        return "connect"
    if modes.times == "microseconds" or (of_day and modes.times == "adaptive_time_microseconds"):
        return "us"
    if modes.times == "nanoseconds":
        return "ns"
    digits = column.logical.digits
    return "ms" if digits <= 3 else "us" if digits <= 6 else "ns"


def _iso(name: str) -> WireType:
    def value(text: str) -> str:
        return _TRIM.sub(lambda m: m[1] or "", text.replace(" ", "T")) + "Z"

    return WireType("string", value, semantic=name, checked=False)


def _zoned(column: Column, modes: ValueModes) -> WireType:
    def value(text: str) -> str:
        return _TRIM_ZONED.sub(lambda m: (m[1] or "") + m[2], text)

    code = ZONED if column.logical.digits else QUOTED
    return WireType("string", value, code, semantic="io.debezium.time.ZonedTimestamp", checked=False)


_MAKERS: dict[str, Callable[[Column, ValueModes], WireType]] = {
    "int8": _number("int8", pa.int8(), WHOLE, 8),
    "int16": _number("int16", pa.int16(), WHOLE, 16),
    "int32": _number("int32", pa.int32(), WHOLE, 32),
    "int64": _number("int64", pa.int64(), WHOLE, 64),
    "boolean": _number("boolean", pa.bool_(), BOOLEAN, 0),
    "uint64": _decimal,
    "float32": _number("float", pa.float32(), FLOAT, 6),
    "float64": _number("double", pa.float64(), FLOAT, 15),
    "decimal": _decimal,
    "string": _text(),
    "xml": _xml,
    "json": _text("io.debezium.data.Json"),
    "nested": _text("io.debezium.data.Json"),
    "interval": _interval,
    "uuid": _uuid,
    "bytes": _bytes,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "instant": _zoned,
    "zoned_timestamp": _zoned,
}
