"""Arrow arrays from the buffers that kernels filled, and views of Arrow's buffers as kernels take them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.wire.compiled import kernel
from headrace.wire.spans import Array, U

TEXT_MAP = pa.map_(pa.string(), pa.string())
_NO_BYTES = np.frombuffer(b"\0", np.uint8)


class TextView(NamedTuple):
    """A column of texts or bytes as kernels take it: its bytes, where each value begins, and a bitmap of what is valid.

    `first` is the number of the column's first bit in the bitmap.
    """

    data: Array
    offsets: Array
    valid: Array
    first: int


def text_view(column: pa.Array) -> TextView:
    """The buffers of a column of `string` or `binary`, without a copy."""
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        raise TypeError(f"a column of {column.type} is not a column of texts")
    valid, offsets, data = column.buffers()
    size = len(column)
    if offsets is None or size == 0:
        return TextView(_NO_BYTES, np.frombuffer(bytes(4), np.int32), _NO_BYTES, 0)
    indexes = _read_only(offsets, np.int32)[column.offset : column.offset + size + 1]
    view = _NO_BYTES if data is None or data.size == 0 else _read_only(data, np.uint8)
    if valid is None:
        return TextView(view, indexes, np.frombuffer(b"\xff" * ((column.offset % 8 + size + 7) // 8), np.uint8), 0)
    return TextView(view, indexes, _read_only(valid, np.uint8), column.offset)


def own_view(column: pa.Array) -> TextView:
    """The same with no byte of the rows around a slice, so that what is copied is the slice's; offsets begin with 0."""
    view = text_view(column)
    first, last = int(view.offsets[0]), int(view.offsets[-1])
    offsets = view.offsets - np.int32(first)
    offsets.flags.writeable = False
    return view._replace(data=view.data[first:last] if last > first else _NO_BYTES, offsets=offsets)


def _read_only(buffer: pa.Buffer, kind: type[np.generic]) -> Array:
    """What a buffer holds. Never writable, as those of Arrow: another type would be compiled again."""
    array = np.frombuffer(buffer, kind)
    array.flags.writeable = False
    return array


def bitmap(size: int) -> Array:
    return np.zeros((size + 7) // 8, np.uint8)


def mask_bitmap(mask: Array) -> Array:
    return np.packbits(mask, bitorder="little")


def text_array(offsets: Array, data: Array, valid: Array | None, nulls: int = -1) -> pa.StringArray:
    """A column of texts from what a kernel wrote. The kernel answers for it that the bytes are UTF-8."""
    buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers, nulls)


def fixed_texts(template: bytes, numbers: Sequence[Array]) -> pa.StringArray:
    """Texts of one length: a template whose runs of zeros are filled with the digits of columns of numbers.

    The numbers must not be negative, and not have more digits than there are zeros.
    """
    count = len(numbers[0])
    out = np.empty((count, len(template)), np.uint8)
    out[:] = np.frombuffer(template, np.uint8)
    for run, values in zip(re.finditer(rb"0+", template), numbers, strict=True):
        _put_digits(np.array(values, np.int64), run.start(), run.end(), out)
    offsets = np.arange(count + 1, dtype=np.int32) * len(template)
    return text_array(offsets.astype(np.int32), out.reshape(-1), None, 0)


@kernel
def _put_digits(numbers: Array, first: Any, end: Any, out: Array) -> None:
    for r in range(numbers.size):
        rest = numbers[r]
        for index in range(end - 1, first - 1, -1):
            out[U(r), U(index)] = 48 + rest % 10
            rest //= 10


def offsets_of(counts: Array) -> Array:
    """Where lists of so many items begin, one after another, and where the last one ends."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def list_array(offsets: Array, values: pa.Array, present: Array | None = None) -> pa.ListArray:
    """A column of lists; `present` is False where it is null."""
    return _nested(pa.list_(values.type), offsets, values, present)


def map_array(offsets: Array, keys: pa.Array, values: pa.Array, present: Array | None = None) -> pa.MapArray:
    """A column of maps from text to text; `present` is False where it is null."""
    entries = pa.StructArray.from_arrays([keys, values], fields=[TEXT_MAP.key_field, TEXT_MAP.item_field])
    return _nested(TEXT_MAP, offsets, entries, present)


def _nested(kind: pa.DataType, offsets: Array, values: pa.Array, present: Array | None) -> pa.Array:
    valid = None if present is None or present.all() else pa.py_buffer(mask_bitmap(present))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [valid, pa.py_buffer(offsets)], children=[values])


def joined_maps(maps: Sequence[pa.MapArray], present: Array) -> pa.MapArray:
    """The entries of several columns of maps together, row by row; no name may be in two of them."""
    counts = [np.where(column.is_valid().to_numpy(zero_copy_only=False), np.diff(column.offsets), 0) for column in maps]
    rows = np.concatenate([np.repeat(np.arange(len(present)), count) for count in counts])
    order = pa.array(np.argsort(rows, kind="stable"))
    entries = [(column.keys, column.items) for column in maps]
    keys = pa.concat_arrays([key for key, _ in entries]).take(order)
    values = pa.concat_arrays([value for _, value in entries]).take(order)
    return map_array(offsets_of(np.sum(counts, axis=0)), keys, values, present)


def map_of(columns: Sequence[tuple[str, pa.Array]], present: Array | None = None) -> pa.MapArray:
    """Maps with an entry for each named column, but for those that are null in a row."""
    rows, count = len(columns[0][1]), len(columns)
    carried = np.empty((rows, count), bool)
    for index, (_, column) in enumerate(columns):
        carried[:, index] = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else True
    if present is not None:
        carried &= present[:, None]
    row, number = np.nonzero(carried)
    keys = pa.array([name for name, _ in columns], pa.string()).take(pa.array(number))
    values = pa.concat_arrays([column for _, column in columns]).take(pa.array(number * rows + row))
    return map_array(offsets_of(carried.sum(axis=1)), keys, values, present)
