"""Columns of texts that are constants of a module."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa


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
