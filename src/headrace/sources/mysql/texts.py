"""Values of the log and of result rows as canonical texts, column by column.

What kernels write themselves (`headrace.wire.binlog_kernels`) does not come here.
"""

from __future__ import annotations

import base64
import json
import socket
import struct
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.types import LogicalType, arrow_text, base64_texts
from headrace.sources.mysql import binary_json
from headrace.wire.arrays import own_view
from headrace.wire.spans import Array

__all__ = [
    "addresses", "base64_texts", "bits", "digits", "floats", "geometries", "inflated", "instants",
    "json_texts", "printed_floats", "sets", "vectors", "years",
]  # fmt: skip
_POINT = 1
_HEAD, _WHOLE_POINT = 9, 25
_DEFLATE, _NO_FRAME = 8, 8


def floats(values: pa.BinaryArray, logical: LogicalType) -> pa.StringArray:
    """Numbers of 4 or 8 bytes, little-endian; none is null."""
    kind = np.dtype("<f4" if logical.kind == "float32" else "<f8")
    return arrow_text(pa.array(np.frombuffer(_fixed(values, kind.itemsize), kind)), logical)


def printed_floats(values: pa.BinaryArray, logical: LogicalType) -> pa.StringArray:
    """Numbers as a server prints them with all digits of a double; null stays null."""
    numbers = pc.cast(values.cast(pa.string()), pa.float64())
    return arrow_text(pc.cast(numbers, pa.float32()) if logical.kind == "float32" else numbers, logical)


def digits(values: pa.BinaryArray) -> pa.StringArray:
    """Numbers without the zeros that ZEROFILL puts in front."""
    texts = values.cast(pa.string())
    return pc.replace_substring_regex(texts, "^0+([0-9])", r"\1") if _any(texts, "^0[0-9]") else texts


def sets(values: pa.BinaryArray, labels: Sequence[str]) -> pa.StringArray:
    """The labels whose bits are set, in their order, with commas.

    Raises:
        ValueError: a bit is set that has no label.
    """
    if not len(values):
        return pa.array([], pa.string())
    width = len(values[0].as_py())
    padded = np.zeros((len(values), 8), np.uint8)
    padded[:, :width] = np.frombuffer(_fixed(values, width), np.uint8).reshape(-1, width)
    masks, numbers = np.unique(padded.reshape(-1).view("<u8"), return_inverse=True)
    values_of_masks = masks.tolist()
    if values_of_masks[-1] >> len(labels):
        raise ValueError(f"a set has bits beyond its {len(labels)} labels")
    written = [",".join(label for bit, label in enumerate(labels) if mask >> bit & 1) for mask in values_of_masks]
    return pa.array(written, pa.string()).take(pa.array(numbers))


def bits(values: pa.BinaryArray, *, boolean: bool) -> pa.StringArray:
    """BIT columns, whose bytes a server prints big-endian: `true` and `false` of one bit, else little-endian base64."""
    if boolean:
        return _each(values, lambda data: "true" if any(data) else "false")
    return _each(values, lambda data: base64.b64encode(data[::-1]).decode())


def years(values: pa.BinaryArray) -> pa.StringArray:
    """Years; `0000` is 0."""
    return pc.replace_substring_regex(values.cast(pa.string()), "^0000$", "0")


def instants(values: pa.BinaryArray) -> pa.StringArray:
    """Timestamps of a session in UTC."""
    return pc.binary_join_element_wise(pc.replace_substring(values.cast(pa.string()), " ", "T"), "Z", "")


def inflated(values: pa.BinaryArray) -> pa.BinaryArray:
    """The values of a COMPRESSED column; null stays null.

    The first byte says how a value is stored: 0 plain; else in its high half the method, of which there is one (8,
    deflate), and below the size of the length that follows, and whether deflate's frame is left out.

    Raises:
        ValueError: a value is compressed in another way, or damaged.
    """
    return pa.array([None if value is None else _inflated(value) for value in values.to_pylist()], pa.binary())


def _inflated(value: bytes) -> bytes:
    if not value or value[0] == 0:
        return value[1:]
    how, size = value[0], value[0] & 7
    if how >> 4 != _DEFLATE:
        raise ValueError(f"it is compressed by a method {how >> 4} that is not known")
    try:
        plain = zlib.decompress(value[1 + size :], -zlib.MAX_WBITS if how & _NO_FRAME else zlib.MAX_WBITS)
    except zlib.error as error:
        raise ValueError(f"it can't be decompressed ({error})") from error
    if len(plain) != int.from_bytes(value[1 : 1 + size], "big"):
        raise ValueError("it has another length than it says")
    return plain


def json_texts(values: pa.BinaryArray) -> pa.StringArray:
    """Binary JSON as the server prints it.

    Raises:
        ValueError: bytes are no binary JSON.
    """
    return _each(values, binary_json.text)


def addresses(values: pa.BinaryArray, size: int) -> pa.StringArray:
    """INET4 and INET6, whose zeros at the end the log leaves out."""
    family = socket.AF_INET if size == 4 else socket.AF_INET6
    return _each(values, lambda data: socket.inet_ntop(family, data.ljust(size, b"\0")))


def vectors(values: pa.BinaryArray) -> pa.StringArray:
    """Lists of single precision numbers in JSON."""
    single = LogicalType("float32")

    def written(data: bytes) -> str:
        if len(data) % 4:
            raise ValueError("a vector has a part of a number")
        return f"[{','.join(arrow_text(pa.array(np.frombuffer(data, '<f4')), single).to_pylist())}]"

    return _each(values, written)


def geometries(values: pa.BinaryArray) -> pa.StringArray:
    """JSON objects with the WKB in base64 and the SRID; points have their coordinates as well."""
    return _each(values, _geometry)


def _geometry(data: bytes) -> str:
    if len(data) < _HEAD:
        raise ValueError("a geometry is cut off")
    (srid,), wkb = struct.unpack_from("<I", data), data[4:]
    value: dict[str, object] = {"wkb": base64.b64encode(wkb).decode(), "srid": srid}
    if len(data) == _WHOLE_POINT and struct.unpack_from("<BI", wkb) == (1, _POINT):
        x, y = struct.unpack_from("<dd", wkb, 5)
        value = {"x": x, "y": y, **value}
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _each(values: pa.BinaryArray, written: Callable[[bytes], str]) -> pa.StringArray:
    return pa.array([None if value is None else written(value) for value in values.to_pylist()], pa.string())


def _fixed(values: pa.BinaryArray, size: int) -> Array:
    """The bytes of values that all have one size.

    Raises:
        ValueError: one has another.
    """
    view = own_view(values)
    if values.null_count or (np.diff(view.offsets) != size).any():
        raise ValueError(f"a value has not {size} bytes")
    return view.data[: size * len(values)]


def _any(values: pa.StringArray, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(values, pattern)).as_py())
