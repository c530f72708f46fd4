"""Log sequence numbers: ten bytes in SQL Server, `0000002b:000004e8:0001` in positions, offsets and events."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

_TEXT = re.compile(r"[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{4}")
ZERO = "00000000:00000000:0000"


def to_text(lsn: bytes) -> str:
    """The text form; lower-case hex 8:8:4, so that text order is LSN order."""
    if len(lsn) != 10:
        raise ValueError(f"an LSN has 10 bytes, not {len(lsn)}")
    digits = lsn.hex()
    return f"{digits[:8]}:{digits[8:16]}:{digits[16:]}"


def to_bytes(text: str) -> bytes:
    """The ten bytes of a text form.

    Raises:
        ValueError: it is not an LSN.
    """
    if not _TEXT.fullmatch(text):
        raise ValueError(f"not an LSN: {text!r}")
    return bytes.fromhex(text.replace(":", ""))


def to_texts(lsns: pa.Array) -> pa.Array:
    """The text form of a whole column. Repeated values (all rows of a commit) are spelled once."""
    encoded = pc.dictionary_encode(lsns.cast(pa.binary()))
    words = pa.array([None if v is None else to_text(v) for v in encoded.dictionary.to_pylist()], pa.string())
    return words.take(encoded.indices)


def before(text: str) -> str:
    """The greatest LSN below this one; zero stays zero."""
    number = int(text.replace(":", ""), 16)
    return to_text(max(number - 1, 0).to_bytes(10, "big"))


def after(text: str) -> str:
    """The least LSN above this one."""
    return to_text((int(text.replace(":", ""), 16) + 1).to_bytes(10, "big"))
