"""Canonical texts of what a wire counts or packs: days, times, timestamps, decimals. `canonical_exact` says the same.

Kernels write the ordinary value; a decimal of more than 37 digits and an odd text form go the exact way, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.wire.arrays import bitmap, text_array
from headrace.wire.compiled import kernel
from headrace.wire.json_exact import NULL, NUMBER, STRING
from headrace.wire.json_reader import Tokens
from headrace.wire.spans import SIXTY_FOUR, Array, U, byte, negated, set_bit
from headrace.wire.tape import Tape

DATE, TIME, TIMESTAMP = range(3)
"""What a number counts: days since 1970; units of a time, with a sign; units since 1970."""

_MOMENT_ROOM, _DECIMAL_ROOM, _MOST_SCALE = 48, 64, 40
_BILLION, _HALF, _MOST_HIGH = U(10**9), U(0xFFFFFFFF), U(10**19)
_SIXTY_FOUR = np.full(256, -1, np.int64)
_SIXTY_FOUR[SIXTY_FOUR] = np.arange(64)


def moment_texts(counts: pa.Int64Array, kind: int, unit: int, digits: int) -> pa.StringArray:
    """The texts of numbers; null for null, and for a day that 32 bits don't count.

    Args:
        counts: the numbers.
        kind: what they count.
        unit: how many fraction digits one second has in them.
        digits: how many the text has; -1 for the unit's, of which a time leaves out a fraction of zero.
    """
    present = counts.is_valid().to_numpy(zero_copy_only=False)
    offsets, valid = np.empty(len(counts) + 1, np.int32), bitmap(len(counts))
    out = np.empty(_MOMENT_ROOM * len(counts), np.uint8)
    numbers = counts.fill_null(0).to_numpy()
    _write_moments(numbers, present, kind, 10**unit, unit, digits, offsets, out, valid)
    return text_array(offsets, out, valid)


def decimal_texts(tape: Tape, at: Array, scales: Array, exact: Callable[[str, int], str | None]) -> pa.StringArray:
    """The digits of numbers whose bytes are written in base64; null for what is none.

    Args:
        tape: where the values are.
        at: their indexes, where strings stand.
        scales: how many digits of each stand after the point.
        exact: what one text and scale give, for those that the kernel leaves.
    """
    offsets, valid, odd = np.empty(at.size + 1, np.int32), bitmap(at.size), np.zeros(at.size, np.bool_)
    out = np.empty(_DECIMAL_ROOM * at.size, np.uint8)
    _write_decimals(tape.data, tape.tokens, at, scales.astype(np.int64), offsets, out, valid, odd)
    written = text_array(offsets, out, valid)
    rows = np.flatnonzero(odd)
    texts = tape.texts(np.ascontiguousarray(at[rows])).to_pylist()
    return settled(written, rows, [exact(t, int(s)) for t, s in zip(texts, scales[rows], strict=True)])


def odd_floats(tape: Tape, at: Array) -> Array:
    """Whether a number is not written in the fewest digits with a point, as far as a kernel can tell."""
    odd = np.zeros(at.size, np.bool_)
    _find_odd_floats(tape.data, tape.tokens, at, odd)
    return odd


def settled(texts: pa.StringArray, rows: Array, values: Sequence[str | None]) -> pa.StringArray:
    if not rows.size:
        return texts
    indexes = np.arange(len(texts))
    indexes[rows] = len(texts) + np.arange(rows.size)
    return pa.concat_arrays([texts, pa.array(values, pa.string())]).take(pa.array(indexes))


@kernel
def put_number(out: Array, o: Any, v: Any, width: Any) -> Any:
    """Write a number that is not negative, with zeros in front up to a width."""
    size, rest = 0, v
    while rest > 0:
        rest //= 10
        size += 1
    if size < width:
        size = width
    for k in range(size):
        out[U(o + size - 1 - k)] = 48 + v % 10
        v //= 10
    return o + size


@kernel
def put_day(out: Array, o: Any, day: Any) -> Any:
    """Write the date of a day since 1970; the index after it."""
    z = day + 719468
    era = z // 146097
    doe = z - era * 146097
    yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    year = yoe + era * 400
    month = mp + 3 if mp < 10 else mp - 9
    if month <= 2:
        year += 1
    if year < 0:
        out[U(o)] = 45
        o += 1
        year = -year
    o = put_number(out, o, year, 4)
    out[U(o)] = 45
    o = put_number(out, o + 1, month, 2)
    out[U(o)] = 45
    return put_number(out, o + 1, doy - (153 * mp + 2) // 5 + 1, 2)


@kernel
def _put_clock(out: Array, o: Any, second: Any, rest: Any, unit: Any, digits: Any, drop: Any) -> Any:
    o = put_number(out, o, second // 3600, 2)
    out[U(o)] = 58
    o = put_number(out, o + 1, second // 60 % 60, 2)
    out[U(o)] = 58
    o = put_number(out, o + 1, second % 60, 2)
    if digits == 0 or (digits < 0 and drop and rest == 0):
        return o
    out[U(o)] = 46
    o += 1
    if digits < 0:
        return put_number(out, o, rest, unit)
    for _ in range(unit - digits):
        rest //= 10
    o = put_number(out, o, rest, min(unit, digits))
    for _ in range(digits - unit):
        out[U(o)] = 48
        o += 1
    return o


@kernel
def _write_moments(
    counts: Array, present: Array, kind: Any, per: Any, unit: Any, digits: Any, offsets: Array, out: Array, valid: Array
) -> None:
    o = 0
    for r in range(counts.size):
        offsets[r] = o
        if not present[r]:
            continue
        v = np.int64(counts[r])
        if kind == TIME:
            # Cut towards zero: the least number has no counterpart.
            second = v // per
            rest = v - second * per
            if v < 0:
                if rest != 0:
                    second += 1
                    rest = per - rest
                second = -second
                out[U(o)] = 45
                o += 1
            o = _put_clock(out, o, second, rest, unit, digits, True)
            set_bit(valid, r)
            continue
        day, second, rest = v, np.int64(0), np.int64(0)
        if kind == TIMESTAMP:
            whole = v // per
            rest = v - whole * per
            day = whole // 86400
            second = whole - day * 86400
        if day < -2147483648 or day > 2147483647:
            continue
        o = put_day(out, o, day)
        if kind == TIMESTAMP:
            out[U(o)] = 32
            o = _put_clock(out, o + 1, second, rest, unit, digits, False)
        set_bit(valid, r)
    offsets[counts.size] = o


@kernel
def _write_decimals(
    data: Array, tokens: Tokens, at: Array, scales: Array, offsets: Array, out: Array, valid: Array, odd: Array
) -> None:
    o = 0
    for r in range(at.size):
        offsets[r] = o
        t = at[r]
        if t < 0 or tokens.kind[U(t)] == NULL:
            continue
        i, size, scale = tokens.start[U(t)], tokens.size[U(t)], scales[r]
        fine = tokens.kind[U(t)] == STRING and 0 < size <= 24 and size % 4 == 0 and 0 <= scale <= _MOST_SCALE
        count = 0
        if fine:
            count = size // 4 * 3
            if byte(data, i + size - 1) == 61:
                count -= 1
                if byte(data, i + size - 2) == 61:
                    count -= 1
            fine = count <= 16
        high, low = U(0), U(0)
        bits = count * 8
        k = 0
        while fine and bits > 0:
            d = _SIXTY_FOUR[byte(data, i + k)]
            fine = d >= 0
            more = min(bits, 6)
            high = (high << U(more)) | (low >> U(64 - more))
            low = (low << U(more)) | (U(d) >> U(6 - more))
            bits -= more
            k += 1
        if fine:
            high, low = _widened(high, low, count)
            negative = high >> U(63) != U(0)
            if negative:
                high, low = negated(high, low)
            high, low = _divided(high, low)
            fine = high < _MOST_HIGH
        if not fine:
            odd[r] = True
            continue
        if negative:
            out[U(o)] = 45
            o += 1
        o = _put_decimal(out, o, high, low, scale)
        set_bit(valid, r)
    offsets[at.size] = o


@kernel
def _widened(high: Any, low: Any, count: Any) -> Any:
    """A number of so many bytes, with its sign, as one of 128 bits in two halves."""
    if count <= 8:
        shift = U(64 - 8 * count)
        low = U((np.int64(low << shift)) >> np.int64(shift))
        return (U(0xFFFFFFFFFFFFFFFF) if low >> U(63) else U(0)), low
    shift = U(128 - 8 * count)
    return U((np.int64(high << shift)) >> np.int64(shift)), low


@kernel
def _divided(high: Any, low: Any) -> Any:
    """A number of 128 bits divided by ten to the power of 18, and the rest; the first is too large where it is."""
    rest, unit = U(0), U(1)
    for _ in range(2):
        left = U(0)
        a = high >> U(32)
        a, left = a // _BILLION, a % _BILLION
        b = (left << U(32)) | (high & _HALF)
        b, left = b // _BILLION, b % _BILLION
        c = (left << U(32)) | (low >> U(32))
        c, left = c // _BILLION, c % _BILLION
        d = (left << U(32)) | (low & _HALF)
        d, left = d // _BILLION, d % _BILLION
        high, low = (a << U(32)) | b, (c << U(32)) | d
        rest, unit = rest + left * unit, unit * _BILLION
    return (U(0xFFFFFFFFFFFFFFFF) if high > U(0) else low), rest


@kernel
def _put_decimal(out: Array, o: Any, high: Any, low: Any, scale: Any) -> Any:
    """Write the digits of `high`, and 18 digits of `low` behind them, with a point `scale` digits before the end."""
    size, rest = (18, high) if high > U(0) else (0, low)
    while rest > U(0):
        rest //= U(10)
        size += 1
    if size < scale + 1:
        size = scale + 1
    end = o + size + (1 if scale > 0 else 0)
    p = end - 1
    u = low
    for k in range(size):
        if k == scale and k > 0:
            out[U(p)] = 46
            p -= 1
        if k == 18:
            u = high
        out[U(p)] = U(48) + u % U(10)
        u //= U(10)
        p -= 1
    return end


@kernel
def _find_odd_floats(data: Array, tokens: Tokens, at: Array, odd: Array) -> None:
    """Ordinary are at most 18 digits around a point, no zero at the end that says nothing, and no value so small
    that its text has an exponent."""
    for r in range(at.size):
        t = at[r]
        if t < 0 or tokens.kind[U(t)] == NULL:
            continue
        i, size = tokens.start[U(t)], tokens.size[U(t)]
        end = i + size
        fine = tokens.kind[U(t)] == NUMBER and size <= 20
        if fine and byte(data, i) == 45:
            i += 1
        first, point, digits = i, -1, 0
        large = False
        while fine and i < end:
            c = byte(data, i)
            if c == 46:
                point = i
            elif 48 <= c <= 57:
                digits += 1
                if c != 48 and (point < 0 or i - point <= 4):
                    large = True
            else:
                fine = False
            i += 1
        fine = fine and point > first and digits <= 18
        if fine:
            short = end - point == 2
            fine = (byte(data, end - 1) != 48 or short) and (large or (short and byte(data, end - 1) == 48))
        if not fine:
            odd[r] = True
