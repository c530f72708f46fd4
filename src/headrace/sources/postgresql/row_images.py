"""The images of a block's rows, found in the messages."""

from __future__ import annotations

import numpy as np

from headrace.sources.log.row_images import RowImages
from headrace.wire import pgoutput_kernels as kernels
from headrace.wire.cell_kernels import Cells
from headrace.wire.spans import Array


def read_images(
    data: Array, starts: Array, rows: Array, tables: Array, has_old: Array, has_new: Array, widths: Array
) -> tuple[RowImages, int]:
    """The images, and the number of a row that is not as its table says; -1 where all are fine.

    Args:
        data: the bytes of the messages.
        starts: where each message begins and ends.
        rows: the numbers of the messages that are rows.
        tables: each row's table.
        has_old, has_new: which images each row has.
        widths: how many columns each table has.
    """
    ends = np.cumsum(has_old.astype(np.int64) + has_new)
    old = np.where(has_old, ends - 1 - has_new, -1)
    new = np.where(has_new, ends - 1, -1)
    of_images: Array = np.repeat(tables, np.diff(ends, prepend=0))
    firsts = np.zeros(len(of_images) + 1, np.int64)
    np.cumsum(widths[of_images], out=firsts[1:])
    count = int(firsts[-1])
    cells = Cells(of_images, firsts, np.zeros(count, np.int64), np.zeros(count, np.int64))
    wrong = int(kernels.find_cells(data, starts, rows, tables, widths, old, new, cells))
    return RowImages(data, cells, old, new), wrong
