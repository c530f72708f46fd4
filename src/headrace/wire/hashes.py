"""Hashes of the values of a column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.wire.arrays import text_view
from headrace.wire.compiled import kernel
from headrace.wire.spans import Array, hashed

_SEED = 0x5851F42D4C957F2D


def hashes(column: pa.Array) -> Array:
    """A hash of 64 bits for each value of a column of texts or bytes without nulls. Not secret (`spans.hashed`)."""
    values = np.empty(len(column), np.uint64)
    view = text_view(column)
    _fill(view.data, view.offsets, values)
    return values


@kernel
def _fill(data: Array, offsets: Array, values: Array) -> None:
    for i in range(values.size):
        values[i] = hashed(data, offsets[i], offsets[i + 1] - offsets[i], _SEED)
