"""Canonical text and Spark's typed values to Debezium's wire values: the Connect type of each column, and Spark SQL.

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

No exact number passes through a double, and the session's time zone plays no part.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from headrace.changes import Column
from headrace.changes.letter_case import lower, upper
from headrace.changes.refusal import refusal
from headrace.changes.texts import canonical_text
from headrace.changes.typed import literal
from headrace.formats import debezium_numbers as numbers
from headrace.formats import debezium_times as times

CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
XML = "io.debezium.data.Xml"
# Java's ISO formatters leave out the zeros that end a fraction, and a point that nothing follows.
_TRIM_ZONED = r"(?:(\\.[0-9]*[1-9])|\\.)0*(Z|[+-][0-9:]+)$"
_TRIM = r"(?:(\\.[0-9]*[1-9])|\\.)0*$"
_KEY = "coalesce(to_json(map_values(key)), 'none')"
_REMEDY_OF_KEY = "Write times as text or in microseconds (time.precision.mode: isostring or microseconds)."
_REMEDY = (
    f"{_REMEDY_OF_KEY.removesuffix('.')}, or have null or the nearest value in its place "
    "(event.converting.failure.handling.mode: warn)."
)
_NUMBER_WIDTHS = ((2, "int8"), (4, "int16"), (9, "int32"), (18, "int64"))
"""Up to how many digits an Oracle NUMBER without fraction is an integer of which width."""


@dataclass(frozen=True)
class ValueModes:
    """How values are written, in Debezium's words; one per format instance.

    Args:
        decimals: `precise`, `string` or `double`.
        times: `adaptive`, `adaptive_time_microseconds`, `connect`, `isostring`, `microseconds` or `nanoseconds`.
        binary: `bytes`, `base64`, `base64-url-safe` or `hex`.
        placeholder: what stands for a value that the change does not carry.
        failing: whether a value beyond what its wire type holds stops the query; else null stands in its place, or the
            nearest value that the type holds where the column has no NULL.
        null_as_default: whether NULL in a nullable column is written as the column's default.
        recorded_placeholders: whether only text, ntext, image and xml have the placeholder, as recorded of 3.6.1.
        intervals: `string` or `numeric`.
    """

    decimals: str = "precise"
    times: str = "adaptive"
    binary: str = "bytes"
    placeholder: str = "__debezium_unavailable_value"
    failing: bool = True
    null_as_default: bool = False
    recorded_placeholders: bool = False
    intervals: str = "string"


@dataclass(frozen=True)
class WireType:
    """What one column is on the wire.

    Args:
        connect: Kafka Connect's type name.
        sql: Spark SQL from canonical text (an SQL expression) to the value that `to_json` writes; null, never an error,
            where the text does not fit.
        constant: the JSON value of a canonical text, for defaults.
        semantic: the schema name that says what the value means, if any.
        parameters: the schema's parameters.
        checked: whether `sql` may fail on a text that is not null.
        typed: Spark SQL from a value of the column's Spark type, where there is a shorter way than by its text.
        whole: Spark SQL from such a value to the bigint that `of_whole` makes the wire value of; computed once by
            those who can, because the wire value takes it several times.
        of_whole: see `whole`.
        fields: the schema's fields, of a struct.
        doc: the schema's documentation, where Debezium has one.
        limits: what it holds of the values that the column may have, where that is not all of them.
    """

    connect: str
    sql: Callable[[str], str]
    constant: Callable[[str], Any]
    semantic: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    checked: bool = True
    typed: Callable[[str], str] | None = None
    whole: Callable[[str], str] | None = None
    of_whole: Callable[[str], str] | None = None
    fields: tuple[Mapping[str, Any], ...] = ()
    doc: str | None = None
    limits: times.Limits | None = None

    def described(self) -> dict[str, Any]:
        """The type's part of a field's Connect schema, in JsonConverter's order, without `optional`."""
        found: dict[str, Any] = {"type": self.connect}
        return found | ({"fields": list(self.fields)} if self.fields else {})


def wire_type(column: Column, modes: ValueModes) -> WireType:
    """The wire form of a column's values; every logical type has one."""
    return _MAKERS[column.logical.kind](column, modes)


def wire_value(text: str, column: Column, modes: ValueModes, *, in_key: bool = False) -> str:
    """Spark SQL for the wire value of a canonical text (an SQL expression that is cheap to repeat).

    A text that does not fit the column stops the query with a sentence that names it. One that fits the column and not
    the wire does so too in a key, and where `modes.failing` is on.
    """
    wire = wire_type(column, modes)
    if modes.null_as_default and column.nullable and column.default is not None:
        text = f"coalesce({text}, {literal(column.default)})"
    range = None if wire.limits is None else wire.limits.of_text(text)
    return _checked(wire.sql(text), text, column, wire, modes, range, in_key)


def typed_wire_value(value: str, column: Column, modes: ValueModes, *, in_key: bool = False) -> str:
    """Spark SQL for the wire value of a value of the column's Spark type (an SQL expression, cheap to repeat)."""
    wire = wire_type(column, modes)
    if wire.typed is None or (modes.null_as_default and column.nullable and column.default is not None):
        return wire_value(canonical_text(value, column), column, modes, in_key=in_key)
    found = wire.typed(value)
    if wire.limits is None:
        return found
    return _checked(found, value, column, wire, modes, wire.limits.of_typed(value), in_key)


def out_of_range(column: Column, value: str, modes: ValueModes, *, typed: bool) -> str | None:
    """Spark SQL: whether something else than a value stands on the wire, because the wire type does not hold it.

    Args:
        value: Spark SQL for the value, as text or typed.
        typed: whether it is of the column's Spark type.

    Returns:
        Null where the wire type holds all values, or such a value stops the query.
    """
    limits = wire_type(column, modes).limits
    if limits is None or modes.failing:
        return None
    as_text = not typed or column.logical.spark_type == "string"
    return (limits.of_text(value) if as_text else limits.of_typed(value)).beyond


def _checked(
    value: str, given: str, column: Column, wire: WireType, modes: ValueModes, range: times.Range | None, in_key: bool
) -> str:
    if not wire.checked:
        return value
    kind = wire.semantic or wire.connect
    where = "'A value of table ', concat_ws('.', table.database, table.schema, table.name), "
    if range is None:
        what = f", column '{column.name}', can't be written as {kind}: it is not of the type {column.logical}."
        instead = refusal(f"concat({where}{literal(what)})")
    else:
        what = f", can't be written as {kind}. {_REMEDY_OF_KEY if in_key else _REMEDY}"
        said = f"concat({where}', column ', {literal(repr(column.name))}, ', key ', {_KEY}, {literal(what)})"
        instead = refusal(said)
        if not modes.failing and not in_key:
            stand_in = "null" if column.nullable else range.nearest
            instead = f"if({range.is_value}, {stand_in}, {instead})"
    return f"coalesce({value}, if({given} is null, null, {instead}))"


def absent_text(column: Column, modes: ValueModes) -> str | None:
    """The canonical text that stands in for a column that an image does not carry; null where Debezium has none."""
    if modes.recorded_placeholders and column.native_type not in ("text", "ntext", "image", "xml"):
        return None
    wire = wire_type(column, modes)
    if column.logical.kind == "bytes":
        return base64.b64encode(modes.placeholder.encode()).decode()
    return modes.placeholder if wire.connect == "string" and not wire.checked else None


def _as_is(text: str) -> str:
    return text


def _number(connect: str, spark: str, python: Callable[[str], Any]) -> Callable[[Column, ValueModes], WireType]:
    wire = WireType(connect, lambda text: f"try_cast({text} as {spark})", python, typed=_as_is)
    return lambda column, modes: wire


def _text(semantic: str | None = None) -> Callable[[Column, ValueModes], WireType]:
    wire = WireType("string", _as_is, _as_is, semantic, checked=False, typed=_as_is)
    return lambda column, modes: wire


def _boolean(column: Column, modes: ValueModes) -> WireType:
    return WireType("boolean", lambda text: f"try_cast({text} as boolean)", lambda text: text == "true", typed=_as_is)


def _xml(column: Column, modes: ValueModes) -> WireType:
    return WireType("string", _as_is, _as_is, XML if _native(column) != "xml" else None, checked=False, typed=_as_is)


def _uuid(column: Column, modes: ValueModes) -> WireType:
    if _native(column) == "uniqueidentifier":
        # SQL Server's connector writes plain texts in capitals.
        return WireType("string", lambda text: f"{upper(text)}", str.upper, checked=False)
    return WireType("string", _as_is, _as_is, "io.debezium.data.Uuid", checked=False, typed=_as_is)


def _native(column: Column) -> str:
    return column.native_type.lower().partition("(")[0].strip()


def _bytes(column: Column, modes: ValueModes) -> WireType:
    if modes.binary == "hex":
        return WireType(
            "string",
            lambda text: lower(f"hex(unbase64({text}))"),
            lambda t: base64.b64decode(t).hex(),
            checked=False,
            typed=lambda value: lower(f"hex({value})"),
        )
    if modes.binary == "base64-url-safe":
        return WireType(
            "string",
            lambda text: f"translate({text}, '+/', '-_')",
            lambda t: t.translate(str.maketrans("+/", "-_")),
            checked=False,
        )
    # to_json writes binary values as base64 too.
    return WireType("bytes" if modes.binary == "bytes" else "string", _as_is, _as_is, checked=False, typed=_as_is)


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
            return _INTEGERS[width](column, modes)
    if modes.decimals == "double":
        return WireType("double", lambda text: f"try_cast({text} as double)", float)
    if modes.decimals == "string":
        # Recorded: values have the scale's digits, defaults only their own.
        return WireType("string", _as_is, lambda t: _plain(Decimal(t)), checked=False)
    if precision is None:
        return _variable_decimal()
    return _connect_decimal(column, precision, scale)


def _connect_decimal(column: Column, precision: int, scale: int) -> WireType:
    short = precision <= 18 or column.native_type in ("money", "smallmoney")
    typed = whole = of_whole = None
    if precision <= 18 and column.logical.spark_type.startswith("decimal"):
        number = "cast({} as bigint)" if scale == 0 else f"cast({{}} * {10**scale}BD as bigint)"
        typed, whole, of_whole = (lambda v: numbers.long_bytes(number.format(v))), number.format, numbers.long_bytes
    return WireType(
        "bytes",
        lambda text: numbers.digit_bytes(_at_scale(text, scale), 18 if short else precision),
        lambda text: base64.b64encode(numbers.twos_complement(text, scale)).decode(),
        CONNECT_DECIMAL,
        {"scale": str(scale), "connect.decimal.precision": str(precision)},
        typed=typed,
        whole=whole,
        of_whole=of_whole,
    )


def _variable_decimal() -> WireType:
    def sql(text: str) -> str:
        scale = f"if(contains({text}, '.'), length({text}) - instr({text}, '.'), 0)"
        unscaled = numbers.digit_bytes(f"replace({text}, '.', '')", None)
        struct = f"named_struct('scale', {scale}, 'value', {unscaled})"
        return f"if({text} rlike '{numbers.NUMBER}', {struct}, null)"

    def constant(text: str) -> dict[str, Any]:
        scale = len(text.partition(".")[2])
        return {"scale": scale, "value": base64.b64encode(numbers.twos_complement(text, scale)).decode()}

    return WireType(
        "struct",
        sql,
        constant,
        VARIABLE_DECIMAL,
        fields=(
            {"type": "int32", "optional": False, "field": "scale"},
            {"type": "bytes", "optional": False, "field": "value"},
        ),
        doc="Variable scaled decimal",
    )


def _plain(number: Decimal) -> str:
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _at_scale(text: str, scale: int) -> str:
    """Digits without the point. Text is canonical, so it has exactly the scale's digits; others are refused."""
    if scale == 0:
        return text
    return f"if(substr({text}, -{scale + 1}, 1) = '.', replace({text}, '.', ''), null)"


def _interval(column: Column, modes: ValueModes) -> WireType:
    if modes.intervals == "string":
        return WireType("string", _as_is, _as_is, "io.debezium.time.Interval", checked=False, typed=_as_is)
    return WireType("int64", times.micro_duration, _no_constant, "io.debezium.time.MicroDuration")


def _no_constant(text: str) -> None:
    """A default that has no constant here: the field then says null."""


def _date(column: Column, modes: ValueModes) -> WireType:
    if modes.times == "isostring":
        return WireType(
            "string", lambda text: f"{text} || 'Z'", lambda t: t + "Z", "io.debezium.time.IsoDate", {}, False
        )
    name = "org.apache.kafka.connect.data.Date" if modes.times == "connect" else "io.debezium.time.Date"
    return WireType("int32", times.days, times.day_constant, name, typed=lambda value: f"unix_date({value})")


def _time(column: Column, modes: ValueModes) -> WireType:
    unit = _unit(column, modes, of_day=True)
    if unit == "iso":
        return _iso("io.debezium.time.IsoTime", _as_is, _as_is)
    name = {"connect": "org.apache.kafka.connect.data.Time", "ms": "Time", "us": "MicroTime", "ns": "NanoTime"}[unit]
    count = "ms" if unit == "connect" else unit
    return WireType(
        "int32" if count == "ms" else "int64",
        lambda text: times.of_time(text, count),
        lambda text: times.time_constant(text, count),
        _named(name),
    )


def _timestamp(column: Column, modes: ValueModes) -> WireType:
    unit = _unit(column, modes, of_day=False)
    if unit == "iso":
        return _iso(
            "io.debezium.time.IsoTimestamp", lambda text: f"replace({text}, ' ', 'T')", lambda t: t.replace(" ", "T")
        )
    name = {
        "connect": "org.apache.kafka.connect.data.Timestamp",
        "ms": "Timestamp",
        "us": "MicroTimestamp",
        "ns": "NanoTimestamp",
    }[unit]
    count = "ms" if unit == "connect" else unit
    local = column.logical.spark_type == "timestamp_ntz"
    return WireType(
        "int64",
        lambda text: times.of_timestamp(text, count),
        lambda text: times.timestamp_constant(text, count),
        _named(name),
        typed=(lambda value: times.of_typed_timestamp(value, count)) if local else None,
        limits=times.NANOSECONDS if count == "ns" else None,
    )


def _named(name: str) -> str:
    return name if "." in name else f"io.debezium.time.{name}"


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


def _iso(name: str, sql: Callable[[str], str], python: Callable[[str], str]) -> WireType:
    return WireType(
        "string",
        lambda text: f"regexp_replace({sql(text)}, '{_TRIM}', '$1') || 'Z'",
        lambda text: re.sub(r"(?:(\.[0-9]*[1-9])|\.)0*$", r"\1", python(text)) + "Z",
        name,
        {},
        False,
    )


def _zoned(column: Column, modes: ValueModes) -> WireType:
    return WireType(
        "string",
        lambda text: f"regexp_replace({text}, '{_TRIM_ZONED}', '$1$2')" if column.logical.digits else text,
        lambda text: re.sub(r"(?:(\.[0-9]*[1-9])|\.)0*(Z|[+-][0-9:]+)$", r"\1\2", text),
        "io.debezium.time.ZonedTimestamp",
        checked=False,
    )


_INTEGERS = {
    "int8": _number("int8", "tinyint", int),
    "int16": _number("int16", "smallint", int),
    "int32": _number("int32", "int", int),
    "int64": _number("int64", "bigint", int),
}
_MAKERS: dict[str, Callable[[Column, ValueModes], WireType]] = {
    **_INTEGERS,
    "boolean": _boolean,
    "uint64": _decimal,
    "float32": _number("float", "float", float),
    "float64": _number("double", "double", float),
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
