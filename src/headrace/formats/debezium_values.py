"""Canonical text to Debezium's wire values: the Connect type of each column, and Spark SQL that makes the value.

Source: spec/format_debezium.md (logical types), spec/sqlserver.md section 12, and recorded events of the SQL Server
connector 1.7.2 and 3.6.1, type by type.

| logical type | adaptive | connect | isostring |
|---|---|---|---|
| date | `Date`, days | Connect's `Date` | `IsoDate` |
| time(0-3) (4-6) (7-9) | `Time` ms, `MicroTime`, `NanoTime` | Connect's `Time`, ms | `IsoTime` |
| timestamp(0-3) (4-6) (7-9) | the same with `Timestamp` | Connect's `Timestamp`, ms | `IsoTimestamp` |
| zoned_timestamp, instant | `ZonedTimestamp` | `ZonedTimestamp` | `ZonedTimestamp` |

`microseconds` and `nanoseconds` use one unit for every time and timestamp; `adaptive_time_microseconds` for times only.

No exact number passes through a double, and the session's time zone plays no part.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from headrace.changes import Column
from headrace.changes.typed import literal
from headrace.changes.types import MAX_DECIMAL_PRECISION
from headrace.errors import OptionError

CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
# Java's ISO formatters leave out the zeros that end a fraction, and a point that nothing follows.
_TRIM_ZONED = r"(?:(\\.[0-9]*[1-9])|\\.)0*(Z|[+-][0-9:]+)$"
_TRIM = r"(?:(\\.[0-9]*[1-9])|\\.)0*$"
# Leading bytes that two's complement does not need: 00 before a clear bit, FF before a set one.
_SIGN_BYTES = "^(00(?=[0-7])|FF(?=[89A-F]))+"
_TWO_TO_64 = "18446744073709551616BD"


@dataclass(frozen=True)
class ValueModes:
    """How values are written, in Debezium's words; one per format instance.

    Args:
        decimals: `precise`, `string` or `double`.
        times: `adaptive`, `adaptive_time_microseconds`, `connect`, `isostring`, `microseconds` or `nanoseconds`.
        binary: `bytes`, `base64`, `base64-url-safe` or `hex`.
        placeholder: what stands for a value that the change does not carry.
        failing: whether a value that can't be converted stops the query (else it becomes null).
        null_as_default: whether NULL in a nullable column is written as the column's default.
        recorded_placeholders: whether only text, ntext, image and xml have the placeholder, as recorded of 3.6.1.
    """

    decimals: str = "precise"
    times: str = "adaptive"
    binary: str = "bytes"
    placeholder: str = "__debezium_unavailable_value"
    failing: bool = True
    null_as_default: bool = False
    recorded_placeholders: bool = False


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
    """

    connect: str
    sql: Callable[[str], str]
    constant: Callable[[str], Any]
    semantic: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    checked: bool = True


def wire_type(column: Column, modes: ValueModes) -> WireType:
    """The wire form of a column's values.

    Raises:
        OptionError: the type has no Debezium form here.
    """
    make = _MAKERS.get(column.logical.kind)
    if make is None:
        raise OptionError(
            f"Column '{column.name}' of type {column.logical} can't be written as Debezium JSON.",
            remedy="Leave the column out, or cast it to string in a transform.",
        )
    return make(column, modes)


def wire_value(text: str, column: Column, modes: ValueModes) -> str:
    """Spark SQL for the wire value of a canonical text (an SQL expression that is cheap to repeat).

    A text that does not fit the column stops the query with a message that names the column, or becomes null where
    `modes.failing` is off.
    """
    wire = wire_type(column, modes)
    if modes.null_as_default and column.nullable and column.default is not None:
        text = f"coalesce({text}, {literal(column.default)})"
    value = wire.sql(text)
    if not wire.checked or not modes.failing:
        return value
    message = literal(f"A value of column '{column.name}' can't be written as {wire.semantic or wire.connect}.")
    return f"coalesce({value}, if({text} is null, null, raise_error({message})))"


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
    wire = WireType(connect, lambda text: f"try_cast({text} as {spark})", python)
    return lambda column, modes: wire


def _text(semantic: str | None = None) -> Callable[[Column, ValueModes], WireType]:
    wire = WireType("string", _as_is, _as_is, semantic, checked=False)
    return lambda column, modes: wire


def _boolean(column: Column, modes: ValueModes) -> WireType:
    return WireType("boolean", lambda text: f"try_cast({text} as boolean)", lambda text: text == "true")


def _upper(column: Column, modes: ValueModes) -> WireType:
    return WireType("string", lambda text: f"upper({text})", str.upper, checked=False)


def _bytes(column: Column, modes: ValueModes) -> WireType:
    if modes.binary == "hex":
        return WireType(
            "string", lambda text: f"lower(hex(unbase64({text})))", lambda t: base64.b64decode(t).hex(), checked=False
        )
    if modes.binary == "base64-url-safe":
        return WireType(
            "string",
            lambda text: f"translate({text}, '+/', '-_')",
            lambda t: t.translate(str.maketrans("+/", "-_")),
            checked=False,
        )
    return WireType("bytes" if modes.binary == "bytes" else "string", _as_is, _as_is, checked=False)


def _decimal(column: Column, modes: ValueModes) -> WireType:
    precision, scale = column.logical.precision, column.logical.scale or 0
    if precision is None or precision > MAX_DECIMAL_PRECISION or scale < 0:
        raise OptionError(
            f"Column '{column.name}' of type {column.logical} can't be written as a Debezium decimal.",
            remedy=f"Up to {MAX_DECIMAL_PRECISION} digits with a scale of 0 or more are built.",
        )
    if modes.decimals == "double":
        return WireType("double", lambda text: f"try_cast({text} as double)", float)
    if modes.decimals == "string":
        # Recorded: values have the scale's digits, defaults only their own.
        return WireType("string", _as_is, lambda t: _plain(Decimal(t)), checked=False)
    short = precision <= 18 or column.native_type in ("money", "smallmoney")
    return WireType(
        "bytes",
        lambda text: _unscaled_bytes(_at_scale(text, precision, scale), short),
        lambda text: base64.b64encode(_twos_complement(text, scale)).decode(),
        CONNECT_DECIMAL,
        {"scale": str(scale), "connect.decimal.precision": str(precision)},
    )


def _plain(number: Decimal) -> str:
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _at_scale(text: str, precision: int, scale: int) -> str:
    """Digits without the point. Text is canonical, so it has exactly the scale's digits; others are refused."""
    if scale == 0:
        return text
    return f"if(substr({text}, -{scale + 1}, 1) = '.', replace({text}, '.', ''), null)"


def _unscaled_bytes(digits: str, short: bool) -> str:
    low = f"lpad(hex(try_cast({digits} as bigint)), 16, '0')"
    if short:
        return f"unhex(regexp_replace({low}, '{_SIGN_BYTES}', ''))"
    # Two halves of 64 bits: the low one unsigned, the high one with the sign.
    whole = f"try_cast({digits} as decimal(38,0))"
    low_half = f"lpad(conv(cast(pmod({whole}, {_TWO_TO_64}) as string), 10, 16), 16, '0')"
    # The quotient is rounded towards zero; two's complement wants it rounded down.
    high_half = f"lpad(hex({whole} div {_TWO_TO_64} - if({whole} % {_TWO_TO_64} < 0, 1, 0)), 16, '0')"
    wide = f"concat({high_half}, {low_half})"
    return f"unhex(regexp_replace(if(length({digits}) <= 18, {low}, {wide}), '{_SIGN_BYTES}', ''))"


def _twos_complement(text: str, scale: int) -> bytes:
    # Digits are moved as text: arithmetic on Decimal would round to the context's 28 digits.
    whole, _, fraction = text.partition(".")
    number = int(whole + fraction.ljust(scale, "0"))
    magnitude = number if number >= 0 else ~number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _date(column: Column, modes: ValueModes) -> WireType:
    if modes.times == "isostring":
        return WireType(
            "string", lambda text: f"{text} || 'Z'", lambda t: t + "Z", "io.debezium.time.IsoDate", {}, False
        )
    name = "org.apache.kafka.connect.data.Date" if modes.times == "connect" else "io.debezium.time.Date"
    return WireType(
        "int32",
        lambda text: f"unix_date(try_cast({text} as date))",
        lambda text: dt.date.fromisoformat(text).toordinal() - _EPOCH_DAY,
        name,
    )


def _time(column: Column, modes: ValueModes) -> WireType:
    unit = _unit(column, modes, of_day=True)
    if unit == "iso":
        return _iso("io.debezium.time.IsoTime", _as_is, _as_is)
    name = {"connect": "org.apache.kafka.connect.data.Time", "ms": "Time", "us": "MicroTime", "ns": "NanoTime"}[unit]
    return _count(name, unit, "int32" if unit in ("ms", "connect") else "int64", "1970-01-01 ")


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
    return _count(name, unit, "int64", "")


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


def _count(name: str, unit: str, connect: str, day: str) -> WireType:
    """Milliseconds, microseconds or nanoseconds since the epoch (or midnight, with `day` in front of the text)."""
    # Microseconds end at this character; what follows are nanoseconds.
    end = 26 - len("1970-01-01 ") if day else 26

    def sql(text: str) -> str:
        whole = f"concat('{day}', {text}, 'Z')"
        if unit in ("ms", "connect"):
            milliseconds = f"unix_millis(try_cast({whole} as timestamp))"
            return f"cast({milliseconds} as int)" if connect == "int32" else milliseconds
        if unit == "us":
            return f"unix_micros(try_cast({whole} as timestamp))"
        micros = f"unix_micros(try_cast(concat('{day}', substr({text}, 1, {end}), 'Z') as timestamp))"
        nanos = f"try_cast(rpad(substr({text}, {end + 1}), 3, '0') as int)"
        return f"try_add(try_multiply({micros}, 1000L), {nanos})"

    def constant(text: str) -> int:
        moment, _, fraction = (day + text).partition(".")
        seconds = (dt.datetime.fromisoformat(moment) - dt.datetime(1970, 1, 1)) // dt.timedelta(seconds=1)
        nanos = seconds * 10**9 + int(fraction.ljust(9, "0")[:9])
        return nanos // {"ns": 1, "us": 1000}.get(unit, 10**6)

    return WireType(connect, sql, constant, name if "." in name else f"io.debezium.time.{name}")


def _zoned(column: Column, modes: ValueModes) -> WireType:
    return WireType(
        "string",
        lambda text: f"regexp_replace({text}, '{_TRIM_ZONED}', '$1$2')" if column.logical.digits else text,
        lambda text: re.sub(r"(?:(\.[0-9]*[1-9])|\.)0*(Z|[+-][0-9:]+)$", r"\1\2", text),
        "io.debezium.time.ZonedTimestamp",
        checked=False,
    )


_MAKERS: dict[str, Callable[[Column, ValueModes], WireType]] = {
    "boolean": _boolean,
    "int8": _number("int8", "tinyint", int),
    "int16": _number("int16", "smallint", int),
    "int32": _number("int32", "int", int),
    "int64": _number("int64", "bigint", int),
    "float32": _number("float", "float", float),
    "float64": _number("double", "double", float),
    "decimal": _decimal,
    "string": _text(),
    "xml": _text(),
    "json": _text("io.debezium.data.Json"),
    "uuid": _upper,
    "bytes": _bytes,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "instant": _zoned,
    "zoned_timestamp": _zoned,
}
