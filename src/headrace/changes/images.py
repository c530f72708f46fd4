"""Columns of change rows in Arrow: images as maps from column to text, and columns that hold one of a few constants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def one_array(rows: pa.Table, name: str) -> pa.Array:
    """A column in one piece."""
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.array([], column.type), *column.chunks])


def sizes(images: pa.Array) -> NDArray[np.int64]:
    """How many columns each image has; 0 for null."""
    lengths: NDArray[np.int64] = np.diff(images.offsets.to_numpy()).astype(np.int64)
    if images.null_count:
        lengths[images.is_null().to_numpy(zero_copy_only=False)] = 0
    return lengths


class Images:
    """Maps from column to text, whose names are read once for all columns."""

    def __init__(self, images: pa.Array) -> None:
        offsets = images.offsets.to_numpy()
        if (np.diff(offsets) != sizes(images)).any():
            # A map that is null may hide entries.
            images = images.take(pa.array(np.arange(len(images))))
            offsets = images.offsets.to_numpy()
        first, last = int(offsets[0]), int(offsets[-1])
        names = images.keys.slice(first, last - first).dictionary_encode()
        self._codes = {name: code for code, name in enumerate(names.dictionary.to_pylist())}
        codes = names.indices.to_numpy()
        self._order = np.argsort(codes, kind="stable")
        self._ends = np.searchsorted(codes[self._order], np.arange(len(self._codes) + 1))
        self._row_of = np.repeat(np.arange(len(images)), np.diff(offsets))
        self._texts = images.items.slice(first, last - first)
        self._size = len(images)

    @property
    def names(self) -> frozenset[str]:
        """The columns that some image has."""
        return frozenset(self._codes)

    def column(self, name: str) -> tuple[pa.Array, NDArray[np.bool_]]:
        """The texts of a column, null where an image does not have it, and whether an image has it."""
        places = np.full(self._size, -1, np.int64)
        code = self._codes.get(name)
        if code is not None:
            entries = self._order[self._ends[code] : self._ends[code + 1]]
            places[self._row_of[entries]] = entries
        return self._texts.take(pa.array(places, mask=places < 0)), places >= 0


def constant(texts: Sequence[str | None]) -> pa.StringArray:
    """A column of these texts.

    `pa.array` would load pandas to see what it is given, which takes a third of a second in each process that imports
    the module.
    """
    parts = [(text or "").encode() for text in texts]
    offsets = np.cumsum([0, *map(len, parts)]).astype(np.int32)
    valid = np.packbits(np.array([text is not None for text in texts], np.bool_), bitorder="little")
    buffers = [pa.py_buffer(buffer) for buffer in (valid, offsets, b"".join(parts))]
    return pa.Array.from_buffers(pa.string(), len(parts), buffers)
