"""Texts of a tape as a column of an Arrow type. Kernels settle the ordinary text form, `typed_exact` every other."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.wire.arrays import bitmap
from headrace.wire.compiled import kernel
from headrace.wire.json_exact import FALSE, NULL, NUMBER, STRING, TRUE
from headrace.wire.json_reader import Tokens
from headrace.wire.names import as_data
from headrace.wire.spans import Array, U, byte, negated, same, set_bit
from headrace.wire.tape import Tape
from headrace.wire.typed_exact import value_of

_NONE = np.int64(-(2**62))
_LOCAL, _UTC, _ZONED = range(3)
_TRUE, _FALSE = as_data(b"true"), as_data(b"false")


@cache
def _ends_of_time() -> tuple[pa.Scalar, pa.Scalar]:
    # Arrow imports pandas for the first value, so not when the module is imported.
    first, last = (pa.scalar(end, pa.timestamp("us", "UTC")) for end in (dt.datetime.min, dt.datetime.max))
    return first, last


class TypedColumn:
    """A column, and the rows whose text it can't hold.

    Args:
        tape: where the texts are.
        at: their indexes; null and absent give null.
        kind: the Arrow type.
        zone: for instants, the zone of texts that say none.
    """

    def __init__(self, tape: Tape, at: Array, kind: pa.DataType, zone: str | None = None) -> None:
        self._tape, self._at, self._kind, self._zone = tape, at, kind, zone
        self.refused: Array = np.zeros(0, np.int64)
        """The rows whose text is not a value of the type; they are null."""
        self.values = self._read()

    def _read(self) -> pa.Array:
        kind, types = self._kind, pa.types
        if types.is_string(kind):
            return self._tape.texts(self._at)
        if types.is_binary(kind) or types.is_floating(kind):
            return self._by_text()
        rows = self._at.size
        fill: Callable[..., None]
        arguments: tuple[Any, ...]
        if types.is_boolean(kind):
            fill, out, arguments = _booleans, bitmap(rows), ()
        elif types.is_integer(kind):
            out = np.zeros(rows, kind.to_pandas_dtype())
            limits = np.iinfo(out.dtype)
            fill, arguments = _integers, (int(limits.min), int(limits.max))
        elif types.is_decimal(kind):
            out = np.zeros(2 * rows, np.uint64)
            fill, arguments = _decimals, (kind.scale, kind.precision)
        elif types.is_date(kind):
            fill, out, arguments = _dates, np.zeros(rows, np.int32), ()
        elif kind.tz is None:
            fill, out, arguments = _moments, np.zeros(rows, np.int64), (_LOCAL,)
        else:
            meant = _UTC if self._zone in (None, "UTC") else _ZONED
            fill, out, arguments = _moments, np.zeros(rows, np.int64), (meant,)
        valid, odd = bitmap(rows), np.zeros(rows, np.bool_)
        fill(self._tape.data, self._tape.tokens, self._at, out, valid, odd, *arguments)
        values = pa.Array.from_buffers(kind, rows, [pa.py_buffer(valid), pa.py_buffer(out)])
        return self._settled(values, np.flatnonzero(odd)) if odd.any() else values

    def _by_text(self) -> pa.Array:
        texts = self._tape.texts(self._at)
        if pa.types.is_floating(self._kind):
            try:
                values = texts.cast(self._kind)
            except pa.ArrowInvalid:
                values = None
            if values is not None and not pc.any(pc.is_inf(values)).as_py():
                return values
        return self._settled(pa.nulls(len(texts), self._kind), np.flatnonzero(self._tape.is_value(self._at)))

    def _settled(self, array: pa.Array, rows: Array) -> pa.Array:
        """The column with these rows read the exact way."""
        texts = self._tape.texts(self._at[rows]).to_pylist()
        values = [value_of(text, self._kind, self._zone) for text in texts]
        self.refused = rows[[value is None for value in values]]
        indexes = np.arange(len(array))
        indexes[rows] = len(array) + np.arange(rows.size)
        return pa.concat_arrays([array, pa.array(values, self._kind)]).take(pa.array(indexes))


def integers(tape: Tape, at: Array) -> pa.Array:
    """Values as 64-bit integers; null where they are none."""
    return TypedColumn(tape, at, pa.int64()).values


def instants(tape: Tape, at: Array) -> TypedColumn:
    """Values as the times of events: instants, in UTC where they say no zone.

    Digits that are finer than microseconds are cut off. Years that Python's times don't have are refused.
    """
    column = TypedColumn(tape, at, pa.timestamp("us", "UTC"))
    if column.refused.size:
        long = np.ascontiguousarray(at[column.refused])
        cut = pc.replace_substring_regex(tape.texts(long), r"(\.[0-9]{6})[0-9]+", r"\1")
        tape.replace(long, cut)
        column = TypedColumn(tape, at, pa.timestamp("us", "UTC"))
    first, last = _ends_of_time()
    beyond = pc.or_(pc.less(column.values, first), pc.greater(column.values, last)).fill_null(False)
    if pc.any(beyond).as_py():
        column.values = pc.if_else(beyond, None, column.values)
        column.refused = np.union1d(column.refused, np.flatnonzero(beyond))
    return column


@kernel
def _scalar_kind(tokens: Tokens, t: Any) -> Any:
    return NULL if t < 0 else tokens.kind[U(t)]


@kernel
def _booleans(data: Array, tokens: Tokens, at: Array, out: Array, valid: Array, odd: Array) -> None:
    for r in range(at.size):
        kind = _scalar_kind(tokens, at[r])
        if kind == TRUE or kind == FALSE:
            set_bit(valid, r)
            if kind == TRUE:
                set_bit(out, r)
        elif kind != NULL:
            i, size = tokens.start[U(at[r])], tokens.size[U(at[r])]
            if size == 4 and same(_TRUE, 0, data, i, 4):
                set_bit(valid, r)
                set_bit(out, r)
            elif size == 5 and same(_FALSE, 0, data, i, 5):
                set_bit(valid, r)
            elif size == 1 and (byte(data, i) == 48 or byte(data, i) == 49):
                set_bit(valid, r)
                if byte(data, i) == 49:
                    set_bit(out, r)
            else:
                odd[r] = True


@kernel
def _integers(
    data: Array, tokens: Tokens, at: Array, out: Array, valid: Array, odd: Array, least: Any, most: Any
) -> None:
    for r in range(at.size):
        kind = _scalar_kind(tokens, at[r])
        if kind == NULL:
            continue
        i, size = tokens.start[U(at[r])], tokens.size[U(at[r])]
        end = i + size
        negative = size > 0 and byte(data, i) == 45
        if negative:
            i += 1
        # 19 digits may be too many for 64 bits: the exact way.
        fine = (kind == NUMBER or kind == STRING) and i < end and end - i <= 18
        v = np.int64(0)
        while fine and i < end:
            d = np.int64(byte(data, i)) - 48
            fine = 0 <= d <= 9
            v = v * 10 + d
            i += 1
        if negative:
            v = -v
        if fine and least <= v <= most:
            out[r] = v
            set_bit(valid, r)
        else:
            odd[r] = True


@kernel
def _decimals(
    data: Array, tokens: Tokens, at: Array, out: Array, valid: Array, odd: Array, scale: Any, precision: Any
) -> None:
    """Plain decimals. `digits` counts from the first digit that is not zero."""
    for r in range(at.size):
        kind = _scalar_kind(tokens, at[r])
        if kind == NULL:
            continue
        i, size = tokens.start[U(at[r])], tokens.size[U(at[r])]
        end = i + size
        negative = size > 0 and byte(data, i) == 45
        if negative:
            i += 1
        fine = (kind == NUMBER or kind == STRING) and 0 < end - i <= 39 and byte(data, i) != 46
        high, low, digits, indexes, point = U(0), U(0), 0, 0, False
        while fine and i < end:
            c = np.int64(byte(data, i))
            if 48 <= c <= 57:
                digits += 1 if digits > 0 or c != 48 else 0
                indexes += 1 if point else 0
                high, low = _with_digit(high, low, c - 48)
            else:
                fine = c == 46 and not point
                point = True
            i += 1
        if fine and indexes <= scale and (digits == 0 or digits + scale - indexes <= precision):
            for _ in range(scale - indexes):
                high, low = _with_digit(high, low, 0)
            if negative:
                high, low = negated(high, low)
            out[2 * r] = low
            out[2 * r + 1] = high
            set_bit(valid, r)
        else:
            odd[r] = True


@kernel
def _with_digit(high: Any, low: Any, digit: Any) -> Any:
    """A number of 128 bits, in two halves, with one more digit."""
    if high == U(0) and low < U(10**18):
        return high, low * U(10) + U(digit)
    first = (low & U(0xFFFFFFFF)) * U(10) + U(digit)
    second = (low >> U(32)) * U(10) + (first >> U(32))
    return high * U(10) + (second >> U(32)), (second << U(32)) | (first & U(0xFFFFFFFF))


@kernel
def _digits(data: Array, i: Any, size: Any) -> Any:
    """A number of exactly so many digits; -1 where there is anything else."""
    v = np.int64(0)
    for k in range(size):
        d = np.int64(byte(data, i + k)) - 48
        if d < 0 or d > 9:
            return -1
        v = v * 10 + d
    return v


@kernel
def day_of(data: Array, i: Any) -> Any:
    """`YYYY-MM-DD` as days since 1970; `_NONE` where it is not a day of the calendar."""
    y, m, d = _digits(data, i, 4), _digits(data, i + 5, 2), _digits(data, i + 8, 2)
    if y < 1 or m < 1 or m > 12 or d < 1 or byte(data, i + 4) != 45 or byte(data, i + 7) != 45:
        return _NONE
    most = 31
    if m == 2:
        most = 29 if y % 4 == 0 and (y % 100 != 0 or y % 400 == 0) else 28
    elif m == 4 or m == 6 or m == 9 or m == 11:
        most = 30
    if d > most:
        return _NONE
    if m <= 2:
        y -= 1
        m += 12
    return 365 * y + y // 4 - y // 100 + y // 400 + (153 * m - 457) // 5 + d - 719469


@kernel
def _dates(data: Array, tokens: Tokens, at: Array, out: Array, valid: Array, odd: Array) -> None:
    for r in range(at.size):
        kind = _scalar_kind(tokens, at[r])
        if kind == NULL:
            continue
        day = _NONE
        if kind == STRING and tokens.size[U(at[r])] == 10:
            day = day_of(data, tokens.start[U(at[r])])
        if day != _NONE:
            out[r] = day
            set_bit(valid, r)
        else:
            odd[r] = True


@kernel
def _moments(data: Array, tokens: Tokens, at: Array, out: Array, valid: Array, odd: Array, meant: Any) -> None:
    """`YYYY-MM-DD hh:mm:ss` and up to nine digits, zeros after the sixth; with a Z behind where it is an instant,
    but for those in UTC."""
    for r in range(at.size):
        kind = _scalar_kind(tokens, at[r])
        if kind == NULL:
            continue
        i, size = tokens.start[U(at[r])], tokens.size[U(at[r])]
        fine = kind == STRING
        if meant != _LOCAL:
            in_utc = size > 0 and byte(data, i + size - 1) == 90
            fine = fine and (in_utc or meant == _UTC)
            if in_utc:
                size -= 1
        fine = fine and 19 <= size <= 29 and size != 20
        moment = _moment(data, i, size) if fine else _NONE
        if moment != _NONE:
            out[r] = moment
            set_bit(valid, r)
        else:
            odd[r] = True


@kernel
def _moment(data: Array, i: Any, size: Any) -> Any:
    day = day_of(data, i)
    h, m, s = _digits(data, i + 11, 2), _digits(data, i + 14, 2), _digits(data, i + 17, 2)
    between = byte(data, i + 10)
    if day == _NONE or h < 0 or h > 23 or m < 0 or m > 59 or s < 0 or s > 59 or (between != 32 and between != 84):
        return _NONE
    if byte(data, i + 13) != 58 or byte(data, i + 16) != 58:
        return _NONE
    fraction = 0
    if size > 19:
        fraction = _digits(data, i + 20, min(size, 26) - 20)
        if fraction < 0 or byte(data, i + 19) != 46 or (size > 26 and _digits(data, i + 26, size - 26) != 0):
            return _NONE
        for _ in range(26 - size):
            fraction *= 10
    return (((day * 24 + h) * 60 + m) * 60 + s) * 1000000 + fraction
