"""What the server prints of single values, as canonical texts.

The server prints as a session's settings say; all sessions have those of `connection`. Values that no calendar type
holds (infinity, years before 1 and after 9999) stay as they are printed.
"""

from __future__ import annotations

import base64
import binascii

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.types import LogicalType, arrow_text
from headrace.wire.arrays import own_view, text_array
from headrace.wire.spans import Array

_DAY_AND_CLOCK, _CLOCK = 19, 8
"""How many characters `2026-01-02 03:04:05` and `03:04:05` have."""
_ZONE = 3


def booleans(values: pa.StringArray) -> pa.StringArray:
    """`t` and `f`."""
    return pc.if_else(pc.equal(values, "t"), "true", "false")


def money(values: pa.StringArray) -> pa.StringArray:
    """`-$1,234.50` as the locale C has it."""
    return pc.replace_substring_regex(values, "[$,]", "")


def base64_of_hex(values: pa.StringArray, skip: int) -> pa.StringArray:
    """Base64 of bytes in hex digits. Per-row Python: Arrow has neither of them.

    Args:
        values: the digits.
        skip: how many characters stand in front of them.
    """
    read, written = binascii.a2b_hex, base64.b64encode
    return pa.array(
        [None if text is None else written(read(text[skip:])).decode() for text in values.to_pylist()], pa.string()
    )


def floats(values: pa.StringArray, logical: LogicalType) -> pa.StringArray:
    """The server has the fewest digits as well, but leaves `.0` out, and writes other exponents."""
    # Of numbers near 0.0001 the exponent depends on the width.
    plain = pc.match_substring_regex(values, r"^-?([1-9][0-9]*|0)(\.([1-9][0-9]*|0[1-9][0-9]*|00[1-9][0-9]*))?$")
    whole = pc.and_(plain, pc.invert(pc.match_substring(values, ".")))
    texts = pc.if_else(whole, pc.binary_join_element_wise(values, ".0", ""), values)
    odd = pc.invert(plain).fill_null(False)
    if not pc.any(odd).as_py():
        return texts
    kind = pa.float32() if logical.kind == "float32" else pa.float64()
    return pc.replace_with_mask(texts, odd, arrow_text(pc.cast(values.filter(odd), kind), logical))


def times(values: pa.StringArray, digits: int) -> pa.StringArray:
    """`03:04:05.1` with all its fraction digits."""
    return _padded(values, _CLOCK, digits)


def timestamps(values: pa.StringArray, digits: int) -> pa.StringArray:
    """`2026-01-02 03:04:05.1` with all its fraction digits."""
    return _padded(values, _DAY_AND_CLOCK, digits)


def instants(values: pa.StringArray, digits: int) -> pa.StringArray:
    """`2026-01-02 03:04:05.1+00` with all its fraction digits, `T` and `Z`."""
    return _padded(values, _DAY_AND_CLOCK, digits, zoned=True)


def _padded(values: pa.StringArray, fixed: int, digits: int, *, zoned: bool = False) -> pa.StringArray:
    """Values of a fixed number of characters before their fraction, with as many digits in it as the type has.

    Args:
        values: texts.
        fixed: how many characters are before the point.
        digits: those behind it.
        zoned: whether `+00` stands at the end, for which `Z` is written.
    """
    view = own_view(values)
    starts, ends = view.offsets[:-1], view.offsets[1:]
    sizes = ends - starts - (_ZONE if zoned else 0)
    width = fixed + (digits + 1 if digits else 0)
    regular = (sizes >= fixed) & (sizes <= width)
    if not regular.any():
        return values
    if fixed == _DAY_AND_CLOCK:
        # `infinity`, `10000-01-01 00:00:00` and `0044-03-15 00:00:00 BC` are others.
        where = np.where(regular, starts, 0)
        regular &= (view.data[where + 4] == ord("-")) & (view.data[np.maximum(ends, 1) - 1] != ord("C"))
    if values.null_count:
        regular &= values.is_valid().to_numpy(zero_copy_only=False)
    if not zoned and bool(np.all(sizes[regular] == width)):
        return values
    rows = np.flatnonzero(regular)
    made = _table(view.data, starts[rows].astype(np.int64), sizes[rows], fixed, width)
    if zoned:
        made = np.concatenate([made, np.full((len(made), 1), ord("Z"), np.uint8)], axis=1)
        made[:, 10] = ord("T")
    offsets = np.arange(len(made) + 1, dtype=np.int32) * made.shape[1]
    full = np.full((len(made) + 7) // 8, 255, np.uint8)
    texts = text_array(offsets, np.ascontiguousarray(made).reshape(-1), full)
    return texts if len(rows) == len(values) else pc.replace_with_mask(values, pa.array(regular), texts)


def _table(data: Array, starts: Array, sizes: Array, fixed: int, width: int) -> Array:
    """Texts as rows of bytes of one width, with zeros at the end, and a point where the text has none."""
    made = np.full((len(starts), width), ord("0"), np.uint8)
    shortest = int(sizes.min(initial=width))
    for place in range(min(shortest, width)):
        made[:, place] = data[starts + place]
    for place in range(shortest, width):
        rows = np.flatnonzero(sizes > place)
        if not rows.size:
            break
        made[rows, place] = data[starts[rows] + place]
    if width > fixed:
        made[:, fixed] = ord(".")
    return made
