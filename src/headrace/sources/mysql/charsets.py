"""Character sets: which one a collation has, and bytes of it as text.

Table maps name collations by number. The numbers are the same in MySQL and MariaDB, as far as both have a collation.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from functools import cache

from headrace.errors import SchemaError

BINARY = "binary"
"""The character set of columns that hold bytes."""
UTF8 = frozenset(("utf8mb4", "utf8mb3", "utf8", "ascii"))
"""Character sets whose bytes are UTF-8 already."""
_OTHERWISE = {
    "cp866": {0xFC: "\u207f", 0xFD: "\u00b2"}, "greek": {0xA1: "\u02bd", 0xA2: "\u02bc"}, "hebrew": {0xAF: "\u203e"},
    "koi8u": {0x95: "\u2022"},
}  # fmt: skip
"""Characters that servers have in the place of those of the codec."""
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
    "big5": "cp950", "binary": "latin-1", "cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256",
    "cp1257": "cp1257", "cp850": "cp850", "cp852": "cp852", "cp866": "cp866", "cp932": "cp932", "eucjpms": "euc_jp",
    "euckr": "cp949", "gb18030": "gb18030", "gb2312": "gb2312", "gbk": "gbk", "greek": "iso8859-7",
    "hebrew": "iso8859-8", "koi8r": "koi8-r", "koi8u": "koi8-u", "latin1": "cp1252", "latin2": "iso8859-2",
    "latin5": "iso8859-9", "latin7": "iso8859-13", "macce": "mac-latin2", "macroman": "mac-roman", "sjis": "shift-jis",
    "tis620": "tis-620", "ucs2": "utf-16-be", "ujis": "euc_jp", "utf16": "utf-16-be", "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}  # fmt: skip


def charset_of(collation: int) -> str:
    """The character set of a collation.

    Raises:
        SchemaError: nobody knows the number.
    """
    found = _by_collation().get(collation)
    if found is None:
        raise SchemaError(
            f"The collation with the number {collation} is unknown, so the texts of its columns can't be read.",
            remedy="Give the columns a collation that SHOW COLLATION of a released server has, or leave them out.",
        )
    return found


def width_of(charset: str) -> int:
    """How many bytes its longest character has."""
    return _WIDTHS.get(charset, 1)


@cache
def decoder(charset: str) -> Callable[[bytes], str]:
    """What makes texts of bytes; it raises ValueError for bytes that are none.

    Raises:
        SchemaError: nobody knows the character set.
    """
    if charset in UTF8:
        return lambda data: data.decode("ascii" if charset == "ascii" else "utf-8")
    codec = _CODECS.get(charset)
    if codec is None:
        raise SchemaError(
            f"The character set '{charset}' can't be read.",
            remedy="Convert its columns to utf8mb4 by ALTER TABLE ... MODIFY, or leave them out.",
        )
    if width_of(charset) == 1:
        table = _table(charset, codec)
        return lambda data: codecs.charmap_decode(data, "strict", table)[0]
    return lambda data: data.decode(codec)


def _table(charset: str, codec: str) -> str:
    """The characters of all 256 bytes. Those that the codec leaves out are controls in cp1252, else nothing."""
    found = [bytes([code]).decode(codec, "replace") for code in range(256)]
    if codec == "cp1252":
        found = [chr(code) if text == "\ufffd" else text for code, text in enumerate(found)]
    for code, character in _OTHERWISE.get(charset, {}).items():
        found[code] = character
    return "".join("\ufffe" if text == "\ufffd" else text for text in found)


@cache
def _by_collation() -> dict[int, str]:
    found = {}
    for line in _COLLATIONS.split(","):
        charset, *ranges = line.split()
        for piece in ranges:
            first, _, last = piece.partition("-")
            found.update(dict.fromkeys(range(int(first), int(last or first) + 1), charset))
    return found
