"""Log sequence numbers: `0000002b:000004e8:0001` in positions, offsets and events.

SQL Server's have ten bytes; Db2's have sixteen, or ten in old releases. Within one database they have one length.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

_TEXT = re.compile(r"[0-9a-f]{8}:[0-9a-f]{8}:(?:[0-9a-f]{4}|[0-9a-f]{16})")
_LENGTHS = (10, 16)
ZERO = "00000000:00000000:0000"
"""SQL Server's first; as text it is before all others of any length."""


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
    """The text form of a whole column of bytes or of hexadecimal digits.

    Repeated values (all rows of a commit) are spelled once.
    """
    encoded = pc.dictionary_encode(lsns if pa.types.is_string(lsns.type) else lsns.cast(pa.binary()))
    words = pa.array([None if v is None else read(v) for v in encoded.dictionary.to_pylist()], pa.string())
    return words.take(encoded.indices)


def before(text: str) -> str:
    """The greatest LSN below this one; zero stays zero."""
    return _moved(text, -1)


def after(text: str) -> str:
    """The least LSN above this one."""
    return _moved(text, 1)


def _moved(text: str, step: int) -> str:
    digits = text.replace(":", "")
    return to_text(max(int(digits, 16) + step, 0).to_bytes(len(digits) // 2, "big"))
