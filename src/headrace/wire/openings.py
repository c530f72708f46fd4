"""Texts that begin alike: what many messages open with is found by comparing bytes, and cut off before reading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.wire.arrays import mask_bitmap, text_view
from headrace.wire.compiled import kernel
from headrace.wire.names import as_data
from headrace.wire.spans import Array, U, byte, copy, same


class Openings:
    """A set of openings by number, and the byte with which a text that opens so must end."""

    def __init__(self, texts: Sequence[bytes], last: bytes) -> None:
        self._data = as_data(b"".join(texts))
        self._offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(text) for text in texts], out=self._offsets[1:])
        self._last = last[0]

    def of(self, values: pa.BinaryArray) -> Array:
        """The number of each text's opening; -1 for none."""
        view = text_view(values)
        openings = np.full(len(values), -1, np.int32)
        if self._offsets.size > 1 and len(values):
            _find_openings(view.data, view.offsets, self._data, self._offsets, self._last, openings)
        return openings

    def cut(self, values: pa.BinaryArray, opening: Array) -> pa.BinaryArray:
        """The texts without their openings and their last byte."""
        view = text_view(values)
        offsets = np.empty(len(values) + 1, np.int32)
        out = np.empty(int(view.offsets[-1] - view.offsets[0]), np.uint8)
        _cut(view.data, view.offsets, self._offsets, opening, offsets, out)
        valid = None
        if values.null_count:
            valid = pa.py_buffer(mask_bitmap(values.is_valid().to_numpy(zero_copy_only=False)))
        return pa.Array.from_buffers(pa.binary(), len(values), [valid, pa.py_buffer(offsets), pa.py_buffer(out)])


@kernel
def _find_openings(data: Array, offsets: Array, texts: Array, indexes: Array, last: Any, openings: Array) -> None:
    count, guess = indexes.size - 1, 0
    for r in range(openings.size):
        begin, end = offsets[r], offsets[r + 1]
        if begin == end or byte(data, end - 1) != last:
            continue
        for step in range(count):
            k = guess + step
            if k >= count:
                k -= count
            size = indexes[U(k + 1)] - indexes[U(k)]
            if size < end - begin and same(texts, indexes[U(k)], data, begin, size):
                openings[r] = k
                guess = k
                break


@kernel
def _cut(data: Array, offsets: Array, indexes: Array, opening: Array, new_offsets: Array, out: Array) -> None:
    o = 0
    for r in range(opening.size):
        new_offsets[r] = o
        begin, end = offsets[r], offsets[r + 1]
        k = opening[r]
        if k >= 0:
            begin += indexes[U(k + 1)] - indexes[U(k)]
            end -= 1
        o = copy(out, o, data, begin, end - begin)
    new_offsets[opening.size] = o
