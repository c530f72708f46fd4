"""The images of a block's rows: their values where they stand in the log, and maps of those that are given out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.errors import CaptureError
from headrace.sources.postgresql.layouts import Arrays
from headrace.wire import pgoutput_kernels as kernels
from headrace.wire.arrays import bitmap, map_array, offsets_of, own_view, text_array
from headrace.wire.pgoutput_kernels import Cells, Columns
from headrace.wire.spans import Array

_MOST_BYTES = (1 << 31) - 1


class RowImages:
    """The old and new images of rows of any tables.

    Args:
        data: the bytes of the messages.
        starts: where each message begins and ends.
        rows: the numbers of the messages that are rows.
        tables: each row's table.
        has_old, has_new: which images each row has.
        arrays: the layouts of the tables.
    """

    def __init__(
        self, data: Array, starts: Array, rows: Array, tables: Array, has_old: Array, has_new: Array, arrays: Arrays
    ) -> None:
        self._arrays = arrays
        ends = np.cumsum(has_old.astype(np.int64) + has_new)
        self.old = np.where(has_old, ends - 1 - has_new, -1)
        self.new = np.where(has_new, ends - 1, -1)
        of_images: Array = np.repeat(tables, np.diff(ends, prepend=0))
        firsts = np.zeros(len(of_images) + 1, np.int64)
        np.cumsum(arrays.widths[of_images], out=firsts[1:])
        count = int(firsts[-1])
        self._cells = Cells(of_images, firsts, np.zeros(count, np.int64), np.zeros(count, np.int64))
        self._data = data
        self.wrong = int(kernels.find_cells(data, starts, rows, tables, arrays.widths, self.old, self.new, self._cells))
        """The number of a row that is not as its table says; -1 where all are fine."""

    def spell(self) -> None:
        """Make canonical texts of the values, and hide those that are masked."""
        arrays, cells = self._arrays, self._cells
        counts = np.zeros(len(arrays.spellings), np.int64)
        kernels.count_spelled(cells, arrays.spelled, arrays.by, counts)
        if not counts.any():
            return
        ends = np.cumsum(counts)
        listed = np.empty(int(ends[-1]), np.int64)
        kernels.list_spelled(cells, arrays.spelled, arrays.by, ends - counts, listed)
        offsets = offsets_of(cells.sizes[listed])
        out = np.empty(int(offsets[-1]), np.uint8)
        kernels.gather(self._data, cells, listed, out)
        texts = text_array(offsets, out, None, 0)
        parts, size = [self._data], len(self._data)
        for spelling, end, count in zip(arrays.spellings, ends.tolist(), counts.tolist(), strict=True):
            if not count:
                continue
            spelled = spelling(texts.slice(end - count, count))
            view, at = own_view(spelled), listed[end - count : end]
            cells.starts[at] = size + view.offsets[:-1]
            cells.sizes[at] = np.diff(view.offsets)
            if spelled.null_count:
                cells.sizes[at[spelled.is_null().to_numpy(zero_copy_only=False)]] = kernels.NULL
            parts.append(view.data)
            size += len(view.data)
        self._data = np.concatenate(parts)
        self._data.flags.writeable = False

    def alike(self, columns: Columns, *, unknown: bool) -> Array:
        """Which rows have two images with the same in these columns.

        Args:
            columns: those of each table that are compared.
            unknown: whether a column that one image has and the other has not is taken for the same.
        """
        found = np.zeros(len(self.old), np.bool_)
        kernels.compare(self._data, self._cells, self.old, self.new, columns, unknown, found)
        return found

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
