"""A deletion vector: which rows of a data file are no more, in the form that Delta and Iceberg 3 share."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from headrace.sinks.lake.indexed import Rows

_MAGIC = struct.pack("<I", 1681511377)
FRAME = 8
"""How many bytes a file has of a vector beside the vector itself."""


def encoded(rows: Rows) -> bytes:
    """A vector as it stands in Delta's log."""
    from pyroaring import BitMap64

    return _MAGIC + bytes(BitMap64(rows).serialize())


def decoded(data: bytes) -> Rows:
    """The rows of a vector.

    Raises:
        ValueError: it is of another form.
    """
    from pyroaring import BitMap64

    if data[:4] != _MAGIC:
        raise ValueError("a deletion vector is of an unknown form")
    return np.asarray(BitMap64.deserialize(data[4:]).to_array(), np.int64)


def framed(rows: Rows) -> bytes:
    """A vector as it stands in a file, between its size and a checksum."""
    data = encoded(rows)
    return struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))


def unframed(frame: bytes, path: str) -> Rows:
    """The rows of a vector that stands in a file.

    Args:
        frame: what the file has of it.
        path: the file.

    Raises:
        ValueError: the file is damaged, or the vector is of another form.
    """
    data = frame[4:-4]
    if (
        len(frame) < FRAME
        or frame[:4] != struct.pack(">I", len(data))
        or frame[-4:] != struct.pack(">I", zlib.crc32(data))
    ):
        raise ValueError(f"the deletion vector in {path} is damaged")
    return decoded(data)
