"""Character sets of DTS texts, which come as bytes with MySQL's name of their character set."""

from __future__ import annotations

import codecs
import functools

UTF_8 = frozenset(("utf8mb4", "utf8", "utf8mb3", "utf-8", "ascii", "us-ascii", "al32utf8"))
"""Read as UTF-8, of which ASCII is a part."""

CP1252 = frozenset(("latin1", "cp1252", "windows-1252", "dec8", "hp8", "swe7", "geostd8", "armscii8"))

_PYTHON = {
    "sjis": "shift_jis", "ujis": "euc_jp", "eucjpms": "euc_jp", "euckr": "euc_kr", "tis620": "tis-620",
    "koi8r": "koi8-r", "koi8u": "koi8-u", "latin2": "iso8859-2", "latin5": "iso8859-9", "latin7": "iso8859-13",
    "greek": "iso8859-7", "hebrew": "iso8859-8", "keybcs2": "cp852", "macce": "mac-latin2", "macroman": "mac-roman",
    "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be", "ucs2": "utf-16-be",
    # Python has no such codec: only its ASCII is read, and other bytes are refused.
    "euc-tw": "ascii",
}  # fmt: skip
"""MySQL's names of character sets, and Python's. A name that is not here is tried as it is."""

# Five bytes have no character; they keep their number, so that nothing is lost.
_GAPS = {byte: chr(byte) for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}
_CP1252 = "".join(_GAPS.get(byte) or bytes([byte]).decode("cp1252") for byte in range(256))


def is_bytes(charset: str) -> bool:
    """Whether values are bytes, not text: charset `binary`, none, or one that nobody knows."""
    name = charset.lower()
    return name in ("binary", "") or not (name in UTF_8 or name in CP1252 or _codec(name) is not None)


def text(charset: str, value: bytes) -> str | None:
    """The text of bytes in a character set; None where the bytes are none."""
    name = charset.lower()
    if name in CP1252:
        return value.decode("latin-1").translate(_TABLE)
    codec = "utf-8" if name in UTF_8 else _codec(name)
    try:
        return None if codec is None else value.decode(codec)
    except UnicodeError:
        return None


_TABLE = {byte: ord(character) for byte, character in enumerate(_CP1252)}


@functools.cache
def _codec(name: str) -> str | None:
    try:
        found = codecs.lookup(_PYTHON.get(name, name))
    except (LookupError, ValueError):
        return None
    # Not a codec of texts: `hex`, `zip` and the like.
    return found.name if getattr(found, "_is_text_encoding", True) else None
