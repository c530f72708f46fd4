"""Log sequence numbers: `0000002b:000004e8:0001` in positions, offsets and events.

SQL Server's have ten bytes; Db2's have sixteen, or ten in old releases. Within one database they have one length.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

_TEXT = re.compile(r"[0-9a-f]{8}:[0-9a-f]{8}:(?:[0-9a-f]{4}|[0-9a-f]{16})")
_LENGTHS = (10, 16)
ZERO = "00000000:00000000:0000"
"""SQL Server's first; as text it is before all others of any length."""
_TEXT_FORM = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint8).reshape(256, 2)
_LOWER = np.zeros(256, np.uint8)
"""Each hexadecimal digit in lower case; zero for what is none."""
for _digit in "0123456789abcdefABCDEF":
    _LOWER[ord(_digit)] = ord(_digit.lower())


def to_text(lsn: bytes) -> str:
    """The text form; lower-case hex with colons after eight and sixteen digits, so that text order is LSN order."""
    if len(lsn) not in _LENGTHS:
        raise ValueError(f"an LSN has 10 or 16 bytes, not {len(lsn)}")
    digits = lsn.hex()
    return f"{digits[:8]}:{digits[8:16]}:{digits[16:]}"


def read(value: bytes | str) -> str:
    """The text form of an LSN as a driver gives it: bytes, or hexadecimal digits."""
    return to_text(bytes.fromhex(value) if isinstance(value, str) else bytes(value))


def to_bytes(text: str) -> bytes:
    """The bytes of a text form.

    Raises:
        ValueError: it is not an LSN.
    """
    if not _TEXT.fullmatch(text):
        raise ValueError(f"not an LSN: {text!r}")
    return bytes.fromhex(text.replace(":", ""))


def to_texts(lsns: pa.Array) -> pa.Array:
    """The text form of a whole column of bytes or of hexadecimal digits, all of one length.

    Raises:
        ValueError: one of them is no LSN, or they have different lengths.
    """
    values = lsns.cast(pa.string() if pa.types.is_string(lsns.type) else pa.binary()).drop_null()
    if not len(values):
        return pa.nulls(len(lsns), pa.string())
    cells = _cells(values)
    if pa.types.is_string(values.type):
        digits = _LOWER[cells]
        if not digits.all():
            raise ValueError("an LSN holds what is no hexadecimal digit")
    else:
        digits = _TEXT_FORM[cells].reshape(len(cells), -1)
    if digits.shape[1] // 2 not in _LENGTHS:
        raise ValueError(f"an LSN has 10 or 16 bytes, not {digits.shape[1] // 2}")
    colon = np.full((len(digits), 1), ord(":"), np.uint8)
    texts = _texts(np.concatenate([digits[:, :8], colon, digits[:, 8:16], colon, digits[:, 16:]], axis=1))
    if not lsns.null_count:
        return texts
    valid = lsns.is_valid().to_numpy(zero_copy_only=False)
    return texts.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def words(numbers: np.ndarray) -> pa.Array:
    """Numbers below 2^32 as eight hexadecimal digits each."""
    cells = numbers.astype(">u4").view(np.uint8).reshape(-1, 4)
    return _texts(_TEXT_FORM[cells].reshape(-1, 8))


def _cells(values: pa.Array) -> np.ndarray:
    """The bytes of values without a null, a row for each."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    sizes = np.diff(offsets)
    if (sizes != sizes[0]).any():
        raise ValueError("the LSNs of a column have different lengths")
    data = values.buffers()[2]
    cells = np.frombuffer(b"" if data is None else data, np.uint8)[offsets[0] : offsets[-1]]
    return cells.reshape(len(values), int(sizes[0]))


def _texts(cells: np.ndarray) -> pa.Array:
    count, width = cells.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(cells)))


def before(text: str) -> str:
    """The greatest LSN below this one; zero stays zero."""
    return _moved(text, -1)


def after(text: str) -> str:
    """The least LSN above this one."""
    return _moved(text, 1)


def _moved(text: str, step: int) -> str:
    digits = text.replace(":", "")
    return to_text(max(int(digits, 16) + step, 0).to_bytes(len(digits) // 2, "big"))
