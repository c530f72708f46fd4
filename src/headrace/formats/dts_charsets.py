"""Character sets of DTS texts, which come as bytes with MySQL's name of their character set.

UTF-8 and Windows-1252 (MySQL's latin1) are Spark's own. All others are decoded by the Java library, by its own
`URLDecoder`, which SQL can call: the bytes are spelled `%C4%E3` for it. So no text leaves the JVM.
"""

from __future__ import annotations

from headrace.changes.letter_case import lower
from headrace.changes.typed import literal

UTF_8 = ("utf8mb4", "utf8", "utf8mb3", "utf-8", "ascii", "us-ascii", "al32utf8")
"""Read as UTF-8, of which ASCII is a part."""

CP1252 = ("latin1", "cp1252", "windows-1252", "dec8", "hp8", "swe7", "geostd8", "armscii8")

JAVA = {
    "gbk": "GBK",
    "gb2312": "GB2312",
    "gb18030": "GB18030",
    "big5": "Big5",
    "sjis": "Shift_JIS",
    "cp932": "windows-31j",
    "ujis": "EUC-JP",
    "eucjpms": "EUC-JP",
    "euckr": "EUC-KR",
    "tis620": "TIS-620",
    "koi8r": "KOI8-R",
    "koi8u": "KOI8-U",
    "latin2": "ISO-8859-2",
    "latin5": "ISO-8859-9",
    "latin7": "ISO-8859-13",
    "greek": "ISO-8859-7",
    "hebrew": "ISO-8859-8",
    "cp1250": "windows-1250",
    "cp1251": "windows-1251",
    "cp1256": "windows-1256",
    "cp1257": "windows-1257",
    "cp850": "IBM850",
    "cp852": "IBM852",
    "cp866": "IBM866",
    "keybcs2": "IBM852",
    "macce": "x-MacCentralEurope",
    "macroman": "x-MacRoman",
    "utf16": "UTF-16BE",
    "utf16le": "UTF-16LE",
    "utf32": "UTF-32BE",
    "ucs2": "UTF-16BE",
}
"""MySQL's names of character sets, and Java's. A name that is not here is tried as it is."""

_HIGH = bytes(range(0x80, 0xA0))


def _cp1252(byte: int) -> str:
    # Five bytes have no character; they keep their number, so that nothing is lost.
    return bytes([byte]).decode("cp1252" if byte not in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else "latin-1")


def is_bytes(charset: str) -> str:
    """Spark SQL: whether the value is bytes, not text: charset `binary`, or none."""
    return f"{lower(charset)} in ('binary', '')"


def is_utf8(charset: str) -> str:
    """Spark SQL: whether the bytes are UTF-8; the name as it mostly is comes first."""
    return f"({charset} = 'utf8mb4' or {lower(charset)} in ({_list(UTF_8)}))"


def cp1252_text(value: str) -> str:
    """Spark SQL for bytes of Windows-1252 as text."""
    low, high = _HIGH.decode("latin-1"), "".join(map(_cp1252, _HIGH))
    return f"translate(decode({value}, 'ISO-8859-1'), {literal(low)}, {literal(high)})"


def text(charset: str, value: str) -> str:
    """Spark SQL for the text of bytes in a character set; null where the bytes are none, or the set is unknown.

    Args:
        charset: SQL for the set's name, in any case.
        value: SQL for the bytes.
    """
    names = ", ".join(f"{literal(name)}, {literal(java)}" for name, java in JAVA.items())
    named = f"coalesce(try_element_at(map({names}), {lower(charset)}), {charset})"
    decoded = f"get(transform(array({java_text(value, named)}), t -> if({_replaced('t', value, named)}, null, t)), 0)"
    return (
        f"case when {lower(charset)} in ({_list(UTF_8)}) then try_validate_utf8(cast({value} as string)) "
        f"when {lower(charset)} in ({_list(CP1252)}) then {cp1252_text(value)} else {decoded} end"
    )


def is_known(charset: str) -> str:
    """Spark SQL: whether there is a decoder for the character set."""
    probe = java_text("X'41'", charset)
    return f"({lower(charset)} in ({_list((*UTF_8, *CP1252, *JAVA))}) or {probe} is not null)"


def java_text(value: str, charset: str) -> str:
    """Spark SQL for bytes as Java decodes them: U+FFFD for what it can't, null where it does not know the set."""
    percent = f"regexp_replace(hex({value}), '(..)', '%$1')"
    return f"try_reflect('java.net.URLDecoder', 'decode', {percent}, {charset})"


def _replaced(text: str, value: str, charset: str) -> str:
    """Whether Java met bytes that are no text: U+FFFD is in the result, and was not in the bytes."""
    meant = f"hex({value}) like if({charset} = 'UTF-16LE', '%FDFF%', if({charset} = 'GB18030', '%8431A437%', '%FFFD%'))"
    unicode = f"{charset} in ('UTF-16BE', 'UTF-16LE', 'UTF-32BE', 'GB18030')"
    return f"contains({text}, '\\uFFFD') and not ({unicode} and {meant})"


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(map(literal, names))
