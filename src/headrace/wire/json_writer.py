"""JSON texts from columns: strings, arrays, objects, and whole messages of constants and columns.

The text form is that of Spark's `to_json`, as in `key_text`: no blanks; control characters as `\\n` or `\\u001F`; all
else as it is. Names and values of objects are entries, so that who writes chooses which of them and in what order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.wire.arrays import TextView, bitmap, text_array, text_view
from headrace.wire.compiled import kernel
from headrace.wire.json_reader import skip_number
from headrace.wire.spans import Array, U, copy, put_integer, set_bit

_PLAIN, _SHORT, _LONG = range(3)
_QUOTED, _NUMBER = 1, 2
_ESCAPE = np.zeros(256, np.uint8)
"""How a byte is written: as it is, by a letter after a backslash, or by its number."""
_ESCAPE[:32] = _LONG
_LETTER = np.zeros(256, np.uint8)
for _byte, _letter in zip(b'"\\\b\f\n\r\t', b'"\\bfnrt', strict=True):
    _ESCAPE[_byte], _LETTER[_byte] = _SHORT, _letter
_SIZE = np.array([1, 2, 6], np.int64)[_ESCAPE]
_DIGIT = np.frombuffer(b"0123456789ABCDEF", np.uint8)


def to_text(value: object) -> str:
    """A Python value as JSON text without blanks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Entries(NamedTuple):
    """The members of a column of objects, as numbers of names and of values; `present` is False where there is none."""

    offsets: Array
    names: Array
    values: Array
    present: Array


def objects(
    entries: Entries, names: pa.StringArray, values: pa.StringArray, plain: Array | None = None
) -> pa.StringArray:
    """Objects as JSON texts; a null value is written `null`.

    Args:
        entries: which names and values each object has.
        names: the names that entries speak of.
        values: the values that entries speak of.
        plain: whether a value is the JSON text that it is, and no string; all are strings where None.
    """
    as_is = np.zeros(len(values), np.bool_) if plain is None else plain
    name_view, value_view = text_view(names), text_view(values)
    offsets, valid = np.empty(len(entries.present) + 1, np.int32), bitmap(len(entries.present))
    room = _room(_measure_entries(entries, name_view, value_view))
    out = np.empty(room, np.uint8)
    _write_objects(entries, name_view, value_view, as_is, offsets, out, valid)
    return text_array(offsets, out, None if entries.present.all() else valid)


def are_numbers(texts: pa.StringArray, asked: Array) -> Array:
    is_number = np.zeros(len(texts), np.bool_)
    _mark_numbers(text_view(texts), asked, is_number)
    return is_number


def string_lists(offsets: Array, values: pa.StringArray, present: Array, plain: Array | None = None) -> pa.StringArray:
    """Arrays as JSON texts; what is not `present` is null. `plain` is as for `objects`."""
    as_is = np.zeros(len(values), np.bool_) if plain is None else plain
    view = text_view(values)
    starts, valid = np.empty(len(present) + 1, np.int32), bitmap(len(present))
    every = np.arange(len(values), dtype=np.int32)
    entries = Entries(offsets, every, every, present)
    out = np.empty(_room(_measure_entries(entries, view, view)), np.uint8)
    _write_lists(offsets, view, as_is, present, starts, out, valid)
    return text_array(starts, out, None if present.all() else valid)


class Part(NamedTuple):
    """A column of a message: `quoted` as a JSON string, else as the JSON text that it is. Null is `null`.

    It may be one of 64-bit integers. Rows share texts where `at` says the number of each row's.
    """

    texts: pa.StringArray | pa.Int64Array
    quoted: bool = False
    at: Array | None = None


def messages(parts: Sequence[str | Part], rows: int) -> pa.StringArray:
    """One text for each row: constants and columns, one after another."""
    laid = [Part(pa.array([part], pa.string())) if isinstance(part, str) else part for part in parts]
    data, starts, ends, how = _laid(laid, rows)
    offsets = np.empty(rows + 1, np.int32)
    out = np.empty(_room(_measure_messages(data, starts, ends, how)), np.uint8)
    _write_messages(data, starts, ends, how, offsets, out)
    return text_array(offsets, out, None, 0)


def members(parts: Mapping[str, Part], rows: int) -> pa.StringArray:
    """An object for each row; a member that is null is left out."""
    data, starts, ends, how = _laid(list(parts.values()), rows)
    names = text_view(pa.array([to_text(name) + ":" for name in parts], pa.string()))
    room = _measure_messages(data, starts, ends, how) + rows * (int(names.offsets[-1]) + len(parts) + 2)
    offsets, out = np.empty(rows + 1, np.int32), np.empty(_room(room), np.uint8)
    _write_members(data, starts, ends, how, names, offsets, out)
    return text_array(offsets, out, None, 0)


def _laid(parts: Sequence[Part], rows: int) -> tuple[Array, Array, Array, Array]:
    """The bytes of all columns, where the value of each column and row begins and ends, and how columns are written.

    Of a column of numbers, the value stands where it would begin. The end is -1 for null.
    """
    numbers = [pa.types.is_int64(part.texts.type) for part in parts]
    how = np.array([_NUMBER if number else int(part.quoted) for part, number in zip(parts, numbers, strict=True)])
    starts, ends = np.empty((len(parts), rows), np.int64), np.empty((len(parts), rows), np.int64)
    data, begin = [], 0
    for number, (texts, _, at) in enumerate(parts):
        missing = texts.is_null().to_numpy(zero_copy_only=False) if texts.null_count else None
        if numbers[number]:
            starts[number] = texts.to_numpy() if missing is None else texts.fill_null(0).to_numpy()
            ends[number] = 0 if missing is None else -missing.astype(np.int64)
            continue
        view = text_view(texts)
        first, last = int(view.offsets[0]), int(view.offsets[-1])
        data.append(view.data[first:last])
        indexes = view.offsets + np.int64(begin - first)
        begin += last - first
        if missing is None:
            starts[number], ends[number] = (indexes[:-1], indexes[1:]) if at is None else (indexes[at], indexes[1:][at])
        else:
            after = np.where(missing, -1, indexes[1:])
            starts[number], ends[number] = (indexes[:-1], after) if at is None else (indexes[at], after[at])
    every = np.concatenate([*data, np.zeros(8, np.uint8)])
    every.flags.writeable = False
    return every, starts, ends, how


def _room(size: int) -> int:
    if size >= 2**31:
        raise ValueError("the texts of one column have more than 2 GiB")
    return size


@kernel
def quoted_size(data: Array, i: Any, end: Any) -> Any:
    """How many bytes a text has as a JSON string."""
    size = 2
    while i < end:
        size += _SIZE[data[U(i)]]
        i += 1
    return size


@kernel
def put_quoted(out: Array, o: Any, data: Array, i: Any, end: Any) -> Any:
    """Write a text as a JSON string; the index after it."""
    out[U(o)] = 34
    o += 1
    while i < end:
        c = data[U(i)]
        i += 1
        how = _ESCAPE[c]
        if how == _PLAIN:
            out[U(o)] = c
            o += 1
        elif how == _SHORT:
            out[U(o)] = 92
            out[U(o + 1)] = _LETTER[c]
            o += 2
        else:
            out[U(o)] = 92
            out[U(o + 1)] = 117
            out[U(o + 2)] = 48
            out[U(o + 3)] = 48
            out[U(o + 4)] = _DIGIT[c >> 4]
            out[U(o + 5)] = _DIGIT[c & 15]
            o += 6
    out[U(o)] = 34
    return o + 1


@kernel
def _put_null(out: Array, o: Any) -> Any:
    out[U(o)] = 110
    out[U(o + 1)] = 117
    out[U(o + 2)] = 108
    out[U(o + 3)] = 108
    return o + 4


@kernel
def is_valid(view: TextView, k: Any) -> Any:
    b = view.first + k
    return (view.valid[U(b >> 3)] >> np.uint8(b & 7)) & 1 != 0


@kernel
def _put_value(out: Array, o: Any, view: TextView, k: Any, plain: Any) -> Any:
    if not is_valid(view, k):
        return _put_null(out, o)
    if plain:
        return copy(out, o, view.data, view.offsets[U(k)], view.offsets[U(k + 1)] - view.offsets[U(k)])
    return put_quoted(out, o, view.data, view.offsets[U(k)], view.offsets[U(k + 1)])


@kernel
def _measure_entries(entries: Entries, names: TextView, values: TextView) -> Any:
    total = 2 * entries.present.size
    for e in range(entries.offsets[0], entries.offsets[entries.present.size]):
        k, v = entries.names[U(e)], entries.values[U(e)]
        total += 6 + quoted_size(names.data, names.offsets[U(k)], names.offsets[U(k + 1)])
        total += quoted_size(values.data, values.offsets[U(v)], values.offsets[U(v + 1)])
    return total


@kernel
def _write_objects(
    entries: Entries, names: TextView, values: TextView, plain: Array, offsets: Array, out: Array, valid: Array
) -> None:
    o = 0
    for r in range(entries.present.size):
        offsets[r] = o
        if not entries.present[r]:
            continue
        set_bit(valid, r)
        out[U(o)] = 123
        o += 1
        for e in range(entries.offsets[r], entries.offsets[r + 1]):
            if e > entries.offsets[r]:
                out[U(o)] = 44
                o += 1
            k = entries.names[U(e)]
            o = put_quoted(out, o, names.data, names.offsets[U(k)], names.offsets[U(k + 1)])
            out[U(o)] = 58
            v = entries.values[U(e)]
            o = _put_value(out, o + 1, values, v, plain[U(v)])
        out[U(o)] = 125
        o += 1
    offsets[entries.present.size] = o


@kernel
def _write_lists(
    starts: Array, values: TextView, plain: Array, present: Array, offsets: Array, out: Array, valid: Array
) -> None:
    o = 0
    for r in range(present.size):
        offsets[r] = o
        if not present[r]:
            continue
        set_bit(valid, r)
        out[U(o)] = 91
        o += 1
        for e in range(starts[r], starts[r + 1]):
            if e > starts[r]:
                out[U(o)] = 44
                o += 1
            o = _put_value(out, o, values, e, plain[U(e)])
        out[U(o)] = 93
        o += 1
    offsets[present.size] = o


@kernel
def _measure_messages(data: Array, starts: Array, ends: Array, how: Array) -> Any:
    total = 0
    for p in range(starts.shape[0]):
        for r in range(starts.shape[1]):
            if ends[p, r] < 0:
                total += 4
            elif how[p] == _NUMBER:
                total += 20
            elif how[p] == _QUOTED:
                total += quoted_size(data, starts[p, r], ends[p, r])
            else:
                total += ends[p, r] - starts[p, r]
    return total


@kernel
def _write_messages(data: Array, starts: Array, ends: Array, how: Array, offsets: Array, out: Array) -> None:
    o = 0
    for r in range(starts.shape[1]):
        offsets[r] = o
        for p in range(starts.shape[0]):
            i, end = starts[p, r], ends[p, r]
            if end < 0:
                o = _put_null(out, o)
            elif how[p] == _NUMBER:
                o = put_integer(out, o, i)
            elif how[p] == _QUOTED:
                o = put_quoted(out, o, data, i, end)
            else:
                o = copy(out, o, data, i, end - i)
    offsets[starts.shape[1]] = o


@kernel
def _write_members(
    data: Array, starts: Array, ends: Array, how: Array, names: TextView, offsets: Array, out: Array
) -> None:
    o = 0
    for r in range(starts.shape[1]):
        offsets[r] = o
        out[U(o)] = 123
        o += 1
        first = o
        for p in range(starts.shape[0]):
            i, end = starts[p, r], ends[p, r]
            if end < 0:
                continue
            if o > first:
                out[U(o)] = 44
                o += 1
            o = copy(out, o, names.data, names.offsets[p], names.offsets[p + 1] - names.offsets[p])
            if how[p] == _NUMBER:
                o = put_integer(out, o, i)
            elif how[p] == _QUOTED:
                o = put_quoted(out, o, data, i, end)
            else:
                o = copy(out, o, data, i, end - i)
        out[U(o)] = 125
        o += 1
    offsets[starts.shape[1]] = o


@kernel
def _mark_numbers(texts: TextView, asked: Array, is_number: Array) -> None:
    for k in range(asked.size):
        if asked[k]:
            i, end = texts.offsets[k], texts.offsets[k + 1]
            is_number[k] = i < end and skip_number(texts.data, i, end) == end
