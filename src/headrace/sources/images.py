"""Row images: Arrow columns of canonical text become one map per row.

The fast path of every source. Columns are laid end to end once, and each map is a run of picks from them, so that the
cost per cell is a copy in C; Python sees columns, never cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa


class Images:
    """The text columns of one Arrow batch, from which maps for any selection of its rows are built.

    Args:
        names: column names in column order.
        texts: canonical text per column, all of one length.
    """

    def __init__(self, names: Sequence[str], texts: Sequence[pa.Array]) -> None:
        self.names = tuple(names)
        self.rows = len(texts[0]) if texts else 0
        self._cells = pa.concat_arrays([t.combine_chunks() if isinstance(t, pa.ChunkedArray) else t for t in texts])

    def maps(self, rows: np.ndarray, length: int, indexes: np.ndarray, absent: np.ndarray | None = None) -> pa.Array:
        """Maps of column to text.

        Args:
            rows: which rows of the batch become maps.
            length: length of the result; its other elements are null.
            indexes: where in the result each map goes, ascending, as many as `rows`.
            absent: true where a cell is left out of its map, one row per element of `rows`; None when all are whole.
        """
        width = len(self.names)
        picks = rows[:, None] + np.arange(width, dtype=np.int64)[None, :] * self.rows
        if absent is None:
            cells = picks.ravel()
            keys = _repeated(self.names, len(rows))
            sizes: np.ndarray = np.full(len(rows), width, dtype=np.int32)
        else:
            present = ~absent
            cells = picks[present]
            keys = pa.array(self.names, pa.string()).take(
                pa.array(np.broadcast_to(np.arange(width), present.shape)[present])
            )
            sizes = present.sum(axis=1, dtype=np.int32)
        items = self._cells.take(pa.array(cells))
        if len(rows) == length:
            offsets = np.zeros(length + 1, dtype=np.int32)
            np.cumsum(sizes, out=offsets[1:])
            return pa.MapArray.from_arrays(pa.array(offsets), keys, items)
        lengths = np.zeros(length, dtype=np.int32)
        lengths[indexes] = sizes
        offsets = np.zeros(length + 1, dtype=np.int32)
        np.cumsum(lengths, out=offsets[1:])
        null = np.ones(length, dtype=bool)
        null[indexes] = False
        return pa.MapArray.from_arrays(pa.array(offsets), keys, items, mask=pa.array(null))


@lru_cache(maxsize=256)
def _repeated(names: tuple[str, ...], times: int) -> pa.Array:
    """The column names once per row; the same for every batch of a size, so kept."""
    return pa.array(names, pa.string()).take(pa.array(np.tile(np.arange(len(names)), times)))


def constant_map(entries: dict[str, str], length: int) -> pa.Array:
    width = len(entries)
    return pa.MapArray.from_arrays(
        pa.array(np.arange(length + 1, dtype=np.int32) * width),
        _repeated(tuple(entries), length),
        pa.array(list(entries.values()), pa.string()).take(pa.array(np.tile(np.arange(width), length))),
    )


class WholeRows:
    """Canonical texts of whole rows, row after row: the values of their maps as they stand, as a kernel writes them.

    Args:
        names: column names in column order.
        cells: the texts.
    """

    def __init__(self, names: Sequence[str], cells: pa.StringArray) -> None:
        self.names = tuple(names)
        self.cells = cells

    def __len__(self) -> int:
        return len(self.cells) // len(self.names)

    def column(self, index: int) -> pa.Array:
        return self.cells.take(pa.array(np.arange(index, len(self.cells), len(self.names))))

    @property
    def columns(self) -> list[pa.Array]:
        return [self.column(index) for index in range(len(self.names))]

    def maps(self) -> pa.Array:
        offsets = pa.array(np.arange(len(self) + 1, dtype=np.int32) * len(self.names))
        return pa.MapArray.from_arrays(offsets, _repeated(self.names, len(self)), self.cells)
