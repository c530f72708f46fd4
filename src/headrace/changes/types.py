"""Logical types and their canonical text: the one place where a value's text form is decided.

Images of change rows hold text, so that one schema carries any table and no number passes through a double. Each
logical type has exactly one lossless text form:

| logical type | canonical text | example | Spark type of `typed()` |
|---|---|---|---|
| boolean | `true`, `false` | `true` | boolean |
| int8 int16 int32 int64 | plain digits | `-12` | tinyint smallint int bigint |
| uint64 | plain digits | `18446744073709551615` | decimal(20,0) |
| decimal(p,s) | plain digits with the scale's digits | `12.50` | decimal(p,s); string beyond 38 digits |
| float32 float64 | fewest digits that read back the same; `NaN`, `Infinity` | `3.25`, `1e+22` | float double |
| string uuid json xml interval nested | as it is | `O'Hara` | string |
| bytes | base64 | `3q2+7w==` | binary |
| date | `YYYY-MM-DD` | `2018-07-13` | date |
| time(p) | `[-]HH:MM:SS[.f]` with p fraction digits | `10:23:45.12` | string (Spark 4.0 has no time type) |
| timestamp(p) | `YYYY-MM-DD HH:MM:SS[.f]` with p digits | `2018-07-13 11:23:45.340` | timestamp_ntz; string if p > 6 |
| instant(p) | the same with `T` and `Z` | `2018-07-13T11:23:45.340Z` | timestamp; string if p > 6 |
| zoned_timestamp(p) | the same with its own offset | `2018-07-13T12:23:45+11:00` | timestamp; string if p > 6 |

A time finer than microseconds stays text in typed columns because Spark's timestamps would cut it, and two keys could
become one.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_TEXTUAL = frozenset(("string", "uuid", "json", "xml", "interval", "nested"))
_INTEGERS = frozenset(("int8", "int16", "int32", "int64", "uint64"))
_PRECISE = frozenset(("time", "timestamp", "instant", "zoned_timestamp"))
_KINDS = _TEXTUAL | _INTEGERS | _PRECISE | {"boolean", "decimal", "float32", "float64", "bytes", "date"}
_TYPE_TEXT = re.compile(r"([a-z_0-9]+?)(?:\((\d+)(?:,(-?\d+))?\))?")
_SPARK = {
    "boolean": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "uint64": "decimal(20,0)",
    "float32": "float",
    "float64": "double",
    "bytes": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "instant": "timestamp",
    "zoned_timestamp": "timestamp",
}
MAX_DECIMAL_PRECISION = 38


class NanosecondTime(NamedTuple):
    """A time of day or a timestamp finer than Python's microseconds: the whole second, and the nanoseconds after it."""

    second: Any
    nanosecond: int


@dataclass(frozen=True)
class LogicalType:
    """What a column's values mean, free of any database's or format's own names.

    Args:
        kind: one of the names in the module's table.
        precision: digits of a decimal, or fraction digits (0 to 9) of a time.
        scale: digits after the point of a decimal.
    """

    kind: str
    precision: int | None = None
    scale: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"unknown logical type '{self.kind}' (known: {', '.join(sorted(_KINDS))})")

    @classmethod
    def parse(cls, text: str) -> LogicalType:
        """Read `decimal(10,2)`, `timestamp(7)`, `string`.

        Raises:
            ValueError: not a logical type.
        """
        match = _TYPE_TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"not a logical type: {text!r}")
        kind, precision, scale = match.groups()
        return cls(kind, int(precision) if precision else None, int(scale) if scale else None)

    def __str__(self) -> str:
        if self.precision is None:
            return self.kind
        return f"{self.kind}({self.precision})" if self.scale is None else f"{self.kind}({self.precision},{self.scale})"

    @property
    def digits(self) -> int:
        """Fraction digits of a time type; 6 where none is declared."""
        return 6 if self.precision is None else self.precision

    @property
    def spark_type(self) -> str:
        """The Spark type of a typed column, as DDL; `string` where Spark has no type that keeps every value."""
        if self.kind == "decimal":
            if self.precision is None or self.precision > MAX_DECIMAL_PRECISION:
                return "string"
            return f"decimal({self.precision},{self.scale or 0})"
        if self.kind in _PRECISE and self.digits > 6:
            return "string"
        return _SPARK.get(self.kind, "string")

    def to_text(self, value: Any) -> str:
        """Canonical text of a Python value (int, bool, float, Decimal, str, bytes, date, time, datetime, Precise).

        Raises:
            ValueError: the value does not belong to the type, or would lose digits.
        """
        if self.kind == "boolean":
            return "true" if value else "false"
        if self.kind in _INTEGERS:
            return str(int(value))
        if self.kind in ("float32", "float64"):
            return _float_text(np.float32(value) if self.kind == "float32" else np.float64(value))
        if self.kind == "decimal":
            return _decimal_text(value, self.scale)
        if self.kind == "bytes":
            return base64.b64encode(value).decode()
        if self.kind == "date":
            return f"{value.year:04}-{value.month:02}-{value.day:02}"
        if self.kind in _PRECISE:
            return self._time_text(value)
        return str(value)

    def from_text(self, text: str) -> Any:
        """The Python value of a canonical text; times finer than microseconds come as `NanosecondTime`.

        Raises:
            ValueError: the text is not canonical for the type.
        """
        if self.kind == "boolean":
            if text not in ("true", "false"):
                raise ValueError(f"not a boolean: {text!r}")
            return text == "true"
        if self.kind in _INTEGERS:
            return int(text)
        if self.kind in ("float32", "float64"):
            return float(text)
        if self.kind == "decimal":
            return Decimal(text)
        if self.kind == "bytes":
            return base64.b64decode(text, validate=True)
        if self.kind == "date":
            return dt.date.fromisoformat(text)
        if self.kind in _PRECISE:
            return self._time_value(text)
        return text

    def _time_text(self, value: Any) -> str:
        moment, nanos = value if isinstance(value, NanosecondTime) else (value, value.microsecond * 1000)
        fraction = f"{nanos:09}"
        if fraction[self.digits :].strip("0"):
            raise ValueError(f"the value has more than the {self.digits} fraction digits of {self}")
        tail = "." + fraction[: self.digits] if self.digits else ""
        clock = f"{moment.hour:02}:{moment.minute:02}:{moment.second:02}{tail}"
        if self.kind == "time":
            return clock
        day = f"{moment.year:04}-{moment.month:02}-{moment.day:02}"
        if self.kind == "timestamp":
            return f"{day} {clock}"
        if self.kind == "instant":
            if moment.utcoffset() not in (None, dt.timedelta(0)):
                raise ValueError("an instant must be in UTC")
            return f"{day}T{clock}Z"
        return f"{day}T{clock}{_offset_text(moment.utcoffset())}"

    def _time_value(self, text: str) -> Any:
        match = re.fullmatch(r"(?:(\d{4}-\d\d-\d\d)[ T])?(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", text)
        if match is None or (match[1] is None) != (self.kind == "time"):
            raise ValueError(f"not a {self}: {text!r}")
        day, clock, fraction, offset = match.groups()
        nanos = int((fraction or "").ljust(9, "0"))
        moment: Any
        if day is None:
            moment = dt.time.fromisoformat(clock)
        else:
            moment = dt.datetime.fromisoformat(f"{day}T{clock}{offset or ''}")
        return NanosecondTime(moment, nanos) if self.digits > 6 else moment.replace(microsecond=nanos // 1000)


def arrow_text(values: pa.Array, logical: LogicalType) -> pa.Array:
    """Canonical text of a whole Arrow column, nulls kept: the vectorised twin of `LogicalType.to_text`.

    Text columns of time types are taken to be canonical already (sources ask their server for that text form).

    Raises:
        ValueError: the Arrow type can't be written as the logical type.
    """
    source = values.type
    if pa.types.is_string(source):
        return values
    if pa.types.is_large_string(source) or pa.types.is_integer(source) or pa.types.is_boolean(source):
        return pc.cast(values, pa.string())
    if pa.types.is_floating(source):
        return _float_texts(values, np.float32 if logical.kind == "float32" else np.float64)
    if pa.types.is_decimal(source):
        return _decimal_texts(values, logical.scale or 0)
    if pa.types.is_binary(source) or pa.types.is_large_binary(source) or pa.types.is_fixed_size_binary(source):
        return base64_texts(values)
    if pa.types.is_date32(source):
        return pc.cast(values, pa.string())
    if pa.types.is_time(source) or pa.types.is_timestamp(source):
        return _time_texts(values, logical)
    raise ValueError(f"an Arrow column of {source} can't become {logical}")


def base64_texts(values: pa.Array) -> pa.Array:
    """Base64 of a binary column. Per-row Python: Arrow has no base64, and binary columns are few."""
    encode = base64.b64encode
    return pa.array([None if v is None else encode(v).decode() for v in values.to_pylist()], pa.string())


def _float_text(value: Any) -> str:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return str(value)


def _float_texts(values: pa.Array, dtype: Any) -> pa.Array:
    """The shortest digits. Arrow finds them ten times as fast as numpy, and writes other exponents than it."""
    numbers = values.fill_null(1).to_numpy(zero_copy_only=False).astype(dtype)
    sizes = np.abs(numbers)
    alike = (sizes >= 1e-3) & (sizes < (1e6 if dtype is np.float32 else 1e10)) | (sizes == 0)
    texts = pc.cast(pa.array(numbers), pa.string())
    whole = alike & (numbers == np.trunc(numbers))
    if whole.any():
        texts = pc.binary_join_element_wise(texts, pc.if_else(pa.array(whole), ".0", ""), "")
    if not alike.all():
        others = numbers[~alike]
        words = np.where(np.isnan(others), "NaN", np.where(others > 0, "Infinity", "-Infinity"))
        written = np.where(np.isfinite(others), others.astype("U32"), words)
        texts = pc.replace_with_mask(texts, pa.array(~alike), pa.array(written, pa.string()))
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string())) if values.null_count else texts


def _decimal_text(value: Any, scale: int | None) -> str:
    number = value if isinstance(value, Decimal) else Decimal(str(value))
    if scale is None:
        return format(number, "f")
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"not a finite decimal: {value}")
    if -exponent > scale and any(digits[len(digits) + exponent + scale :]):
        raise ValueError(f"the value has more than {scale} digits after the point")
    # Built from digits, not by quantize: the context's precision (28 digits) must not matter.
    unscaled = (
        str(int("".join(map(str, digits)) + "0" * (exponent + scale)))
        if exponent + scale >= 0
        else str(int("".join(map(str, digits[: exponent + scale])) or "0"))
    )
    if scale > 0:
        unscaled = unscaled.rjust(scale + 1, "0")
        unscaled = f"{unscaled[:-scale]}.{unscaled[-scale:]}"
    return f"-{unscaled}" if sign and unscaled.strip("0.") else unscaled


def _decimal_texts(values: pa.Array, scale: int) -> pa.Array:
    if values.type.scale != scale:
        values = pc.cast(values, pa.decimal256(76, scale))
    texts = pc.cast(values, pa.string())
    scientific = pc.match_substring(texts, "E")
    if pc.any(scientific).as_py():
        # Arrow writes tiny values as 1E-10; those few are written one by one.
        plain = [None if v is None else _decimal_text(v, scale) for v in values.filter(scientific).to_pylist()]
        texts = pc.replace_with_mask(texts, scientific.fill_null(False), pa.array(plain, pa.string()).drop_null())
    return texts


def _time_texts(values: pa.Array, logical: LogicalType) -> pa.Array:
    digits = logical.digits
    zoned = pa.types.is_timestamp(values.type) and values.type.tz is not None
    if zoned:
        values = pc.cast(values, pa.timestamp(values.type.unit))
    texts = pc.cast(values, pa.string())
    have = {"s": 0, "ms": 3, "us": 6, "ns": 9}[values.type.unit]
    if have > digits:
        cut = have - digits + (0 if digits else 1)
        texts = pc.utf8_slice_codeunits(texts, 0, stop=-cut)
    elif have < digits:
        texts = pc.binary_join_element_wise(texts, "0" * (digits - have) if have else "." + "0" * digits, "")
    if logical.kind in ("instant", "zoned_timestamp"):
        texts = pc.binary_join_element_wise(pc.replace_substring(texts, " ", "T"), "Z", "")
    return texts


def _offset_text(offset: dt.timedelta | None) -> str:
    if offset is None or not offset:
        return "Z"
    minutes = int(offset.total_seconds() // 60)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
