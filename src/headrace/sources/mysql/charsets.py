"""Character sets: which one a collation has, and bytes of it as text.

Table maps name collations by number. The numbers are the same in MySQL and MariaDB, as far as both have a collation.
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pyarrow as pa

from headrace.errors import SchemaError
from headrace.wire.arrays import mask_bitmap, own_view, text_array
from headrace.wire.charset_kernels import GROWTH, NONE, PAGE, REPLACEMENT, write_utf8
from headrace.wire.spans import Array

BINARY = "binary"
"""The character set of columns that hold bytes."""
UTF8 = frozenset(("utf8mb4", "utf8mb3", "utf8"))
"""Character sets whose bytes are UTF-8 already."""
_COLLATIONS = """
armscii8 32 64 1056 1088, ascii 11 65 1035 1089, big5 1 84 1025 1108, binary 63, cp1250 26 34 44 66 99 1050 1090,
cp1251 14 23 50-52 1074-1075, cp1256 57 67 1081 1091, cp1257 29 58-59 1082-1083, cp850 4 80 1028 1104,
cp852 40 81 1064 1105, cp866 36 68 1060 1092, cp932 95-96 1119-1120, dec8 3 69 1027 1093, eucjpms 97-98 1121-1122,
euckr 19 85 1043 1109, gb18030 248-250, gb2312 24 86 1048 1110, gbk 28 87 1052 1111, geostd8 92-93 1116-1117,
greek 25 70 1049 1094, hebrew 16 71 1040 1095, hp8 6 72 1030 1096, keybcs2 37 73 1061 1097, koi8r 7 74 1031 1098,
koi8u 22 75 1046 1099, latin1 5 8 15 31 47-49 94 1032 1071, latin2 2 9 21 27 77 1033 1101, latin5 30 78 1054 1102,
latin7 20 41-42 79 1065 1103, macce 38 43 1062 1067, macroman 39 53 1063 1077, sjis 13 88 1037 1112,
swe7 10 82 1034 1106, tis620 18 89 1042 1113, ucs2 35 90 128-151 159 640-642 1059 1114 1152 1174 2560-2815,
ujis 12 91 1036 1115, utf16 54-55 101-124 672-674 1078-1079 1125 1147 2816-3071, utf16le 56 62 1080 1086,
utf32 60-61 160-183 736-738 1084-1085 1184 1206 3072-3327,
utf8mb3 33 76 83 192-215 223 576-578 1057 1107 1216 1238 2048-2303,
utf8mb4 45-46 224-247 255-323 608-610 1069-1070 1248 1270 2304-2559
"""
"""The numbers of each one's collations; from 2048 on each has 256 of the Unicode algorithm's."""
_WIDTHS = {
    "big5": 2, "cp932": 2, "eucjpms": 3, "euckr": 2, "gb18030": 4, "gb2312": 2, "gbk": 2, "sjis": 2, "ucs2": 2,
    "ujis": 3, "utf16": 4, "utf16le": 4, "utf32": 4, "utf8": 3, "utf8mb3": 3, "utf8mb4": 4,
}  # fmt: skip
_CODECS = {
    "binary": "latin-1", "gb18030": "gb18030", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be",
    **dict.fromkeys(UTF8, "utf-8"),
}  # fmt: skip
"""Those of which Python's codecs have the servers' characters, but for `_SWAPPED`."""
_SWAPPED = {"gb18030": {0x1E3F: "\ue7c7", 0xE7C7: "\u1e3f"}}
"""Characters of a codec that servers have in each other's place."""
_MOST = 2**31 - 1
_FILE = "charsets.npz"
"""Made by `python -m headrace_emulators.mysql.charset_tables`."""


def charset_of(collation: int) -> str:
    """The character set of a collation.

    Raises:
        SchemaError: nobody knows the number.
    """
    charset = _by_collation().get(collation)
    if charset is None:
        raise SchemaError(
            f"The collation with the number {collation} is unknown, so the texts of its columns can't be read.",
            remedy="Give the columns a collation that SHOW COLLATION of a released server has, or leave them out.",
        )
    return charset


def width_of(charset: str) -> int:
    """How many bytes its longest character has."""
    return _WIDTHS.get(charset, 1)


def texts_of(values: pa.BinaryArray, charset: str) -> pa.StringArray:
    """Texts of bytes; null stays null. What the server itself has no character for, and shows as `?`, is U+FFFD.

    Raises:
        SchemaError: nobody knows the character set.
        ValueError: the bytes are to be UTF-8 and are not.
    """
    if charset in _CODECS:
        decode = _decoder(charset)
        return pa.array([None if value is None else decode(value) for value in values.to_pylist()], pa.string())
    table, view = _table(charset), own_view(values)
    if len(values) > 1 and int(view.offsets[-1]) * GROWTH > _MOST:
        half = len(values) // 2
        parts = [texts_of(part, charset) for part in (values.slice(0, half), values.slice(half))]
        return pa.concat_arrays(parts)
    out = np.empty(GROWTH * view.data.size, np.uint8)
    ends = np.empty(len(values) + 1, np.int32)
    write_utf8(view.data, view.offsets, table, out, ends)
    valid = None if not values.null_count else mask_bitmap(values.is_valid().to_numpy(zero_copy_only=False))
    return text_array(ends, out[: ends[-1]].copy(), valid, values.null_count)


def text_of(data: bytes, charset: str) -> str:
    """One text; as `texts_of`."""
    return str(texts_of(pa.array([data], pa.binary()), charset)[0])


@cache
def _decoder(charset: str) -> Callable[[bytes], str]:
    codec, swapped = _CODECS[charset], _SWAPPED.get(charset)
    if swapped is None:
        # No server keeps bytes that are no UTF-8, so these are damaged.
        errors = "strict" if charset in UTF8 else "replace"
        return lambda data: data.decode(codec, errors)
    has_any = re.compile(f"[{''.join(map(chr, swapped))}]").search

    def decode(data: bytes) -> str:
        text = data.decode(codec, "replace")
        return text.translate(swapped) if has_any(text) else text

    return decode


@cache
def _table(charset: str) -> Array:
    """The table of a character set, as the kernel takes it."""
    if charset == "ascii":
        code_points = np.arange(PAGE)
        code_points[128:] = REPLACEMENT
        return code_points.astype(np.int32)
    if charset == "ucs2":
        # Halves of surrogates are no characters of it.
        points = np.arange(1 << 16)
        points[0xD800:0xE000] = REPLACEMENT
        return np.concatenate([-np.arange(1, PAGE + 1), points]).astype(np.int32)
    with importlib.resources.files(__package__).joinpath(_FILE).open("rb") as file, np.load(file) as tables:
        if charset not in tables:
            raise SchemaError(
                f"The character set '{charset}' can't be read.",
                remedy="Convert its columns to utf8mb4 by ALTER TABLE ... MODIFY, or leave them out.",
            )
        pairs = np.cumsum(tables[charset], axis=0)
    pages = [np.full(PAGE, NONE)]
    pages_of = {b"": 0}
    for number, point in pairs.tolist():
        data = number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big")
        for size in range(1, len(data)):
            front = data[:size]
            if front not in pages_of:
                pages[pages_of[front[:-1]]][front[-1]] = -len(pages)
                pages_of[front] = len(pages)
                pages.append(np.full(PAGE, NONE))
        pages[pages_of[data[:-1]]][data[-1]] = point
    return np.concatenate(pages).astype(np.int32)


@cache
def _by_collation() -> dict[int, str]:
    charsets = {}
    for line in _COLLATIONS.split(","):
        charset, *ranges = line.split()
        for piece in ranges:
            first, _, last = piece.partition("-")
            charsets.update(dict.fromkeys(range(int(first), int(last or first) + 1), charset))
    return charsets
