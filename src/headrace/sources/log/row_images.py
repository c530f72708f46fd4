"""The images of a block's rows: their values where they stand in the log, and maps of those that are given out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.errors import CaptureError
from headrace.wire import cell_kernels as kernels
from headrace.wire.arrays import bitmap, map_array, offsets_of, own_view, text_array
from headrace.wire.cell_kernels import Cells, Columns
from headrace.wire.spans import Array

_MOST_BYTES = (1 << 31) - 1


class TextEncoding(Protocol):
    """What makes the texts that are given out of the values of the log."""

    def __call__(self, texts: pa.StringArray, /) -> pa.StringArray:
        """Whole columns. The values of a log that has bytes stand in the texts as they are."""


class RowImages:
    """The old and new images of rows of any tables.

    Args:
        data: the bytes in which the values stand.
        cells: the values of all images.
        old, new: the numbers of each row's images; -1 for none.
    """

    def __init__(self, data: Array, cells: Cells, old: Array, new: Array) -> None:
        self.old = old
        self.new = new
        self._cells = cells
        self._data = data

    def write(self, written: Columns, by: Array, encodings: Sequence[TextEncoding]) -> None:
        """Put other texts in the place of values: canonical ones, or what hides them.

        Args:
            written: the columns of each table for which that is so.
            by: for each of these the number of its text form.
            encodings: all of them.
        """
        cells = self._cells
        counts = np.zeros(len(encodings), np.int64)
        kernels.count_written(cells, written, by, counts)
        if not counts.any():
            return
        ends = np.cumsum(counts)
        listed = np.empty(int(ends[-1]), np.int64)
        kernels.list_written(cells, written, by, ends - counts, listed)
        offsets = offsets_of(cells.sizes[listed])
        out = np.empty(int(offsets[-1]), np.uint8)
        kernels.gather(self._data, cells, listed, out)
        texts = text_array(offsets, out, None, 0)
        parts, size = [self._data], len(self._data)
        for encoding, end, count in zip(encodings, ends.tolist(), counts.tolist(), strict=True):
            if not count:
                continue
            encoded = encoding(texts.slice(end - count, count))
            view, at = own_view(encoded), listed[end - count : end]
            cells.starts[at] = size + view.offsets[:-1]
            cells.sizes[at] = np.diff(view.offsets)
            if encoded.null_count:
                cells.sizes[at[encoded.is_null().to_numpy(zero_copy_only=False)]] = kernels.NULL
            parts.append(view.data)
            size += len(view.data)
        self._data = np.concatenate(parts)
        self._data.flags.writeable = False

    def complete(self) -> None:
        """Give new images the values that they lack from the old ones, for a log that leaves out what did not change.

        The old image of a row stands in front of the new one.
        """
        cells = self._cells
        lacking = np.flatnonzero(cells.sizes == kernels.ABSENT)
        if not len(lacking):
            return
        is_after = np.zeros(len(cells.tables), np.bool_)
        is_after[self.new[(self.new >= 0) & (self.old >= 0)]] = True
        images = np.searchsorted(cells.firsts, lacking, "right") - 1
        lacking, images = lacking[is_after[images]], images[is_after[images]]
        before = lacking - (cells.firsts[images] - cells.firsts[images - 1])
        cells.starts[lacking], cells.sizes[lacking] = cells.starts[before], cells.sizes[before]

    def alike(self, columns: Columns, *, unknown: bool) -> Array:
        """Which rows have two images with the same in these columns.

        Args:
            columns: those of each table that are compared.
            unknown: whether a column that one image has and the other has not is taken for the same.
        """
        is_alike = np.zeros(len(self.old), np.bool_)
        kernels.compare(self._data, self._cells, self.old, self.new, columns, unknown, is_alike)
        return is_alike

    def lacking(self, images: Array, columns: Columns) -> int:
        """The first row whose image does not have all of these columns; -1 for none."""
        return int(kernels.find_absent(self._cells, images, columns))

    def maps(self, images: Array, columns: Columns, names: pa.StringArray) -> pa.MapArray:
        """Maps of column to text; null for image -1.

        Args:
            images: the image of each row.
            columns: those of each table that are given out, as far as an image has them.
            names: the names of all of them.

        Raises:
            CaptureError: there are more bytes than a column of texts can hold.
        """
        offsets = np.empty(len(images) + 1, np.int32)
        size = kernels.measure_maps(self._cells, images, columns, offsets)
        if size > _MOST_BYTES:
            raise CaptureError(
                f"Changes that are read together have {size:,} bytes of values, and a batch holds {_MOST_BYTES:,}.",
                remedy="Leave the columns with the largest values out by 'column_exclude_list'.",
            )
        count = int(offsets[-1])
        numbers, places = np.empty(count, np.int32), np.empty(count + 1, np.int32)
        out, valid = np.empty(size, np.uint8), bitmap(count)
        nulls = kernels.write_maps(self._data, self._cells, images, columns, numbers, places, out, valid)
        values = text_array(places, out, valid if nulls else None, nulls)
        return map_array(offsets, names.take(pa.array(numbers)), values, images >= 0)
