"""Which types keep all values of another one."""

from __future__ import annotations

from dataclasses import replace

from headrace.sources.mysql.charsets import width_of
from headrace.sources.mysql.types import NativeType

INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
"""From the smallest to the largest."""
_TEXTS = ("tinytext", "text", "mediumtext", "longtext")
_BLOBS = ("tinyblob", "blob", "mediumblob", "longblob")
_TEXT_BYTES = dict(zip(_TEXTS, (255, 65_535, 16_777_215, 4_294_967_295), strict=True))
WITH_CHARSET = frozenset((*_TEXTS, "char", "varchar", "enum", "set"))
"""The kinds of texts that a statement gives a character set."""
_SUPERSETS = {"ascii": ("utf8", "utf8mb3", "utf8mb4"), "utf8": ("utf8mb3", "utf8mb4"), "utf8mb3": ("utf8", "utf8mb4")}
"""Character sets that have all characters of another one."""


def keeps_values(was: NativeType, now: NativeType) -> bool:
    """Whether every value of one type is the same in another."""
    if was == now:
        return True
    if was.compressed != now.compressed:
        return keeps_values(replace(was, compressed=False), replace(now, compressed=False))
    if was.kind in WITH_CHARSET and now.kind in WITH_CHARSET:
        if was.charset != now.charset and now.charset not in _SUPERSETS.get(was.charset or "", ()):
            return False
        if was.kind in ("enum", "set"):
            return was.kind == now.kind and now.labels[: len(was.labels)] == was.labels
        return _holds_texts(was, now)
    if was.kind in INTEGERS and now.kind in INTEGERS:
        return was.unsigned == now.unsigned and INTEGERS.index(was.kind) <= INTEGERS.index(now.kind)
    if was.kind == now.kind == "decimal":
        whole = (now.length or 0) - (now.scale or 0) >= (was.length or 0) - (was.scale or 0)
        return was.unsigned == now.unsigned and whole and (now.scale or 0) >= (was.scale or 0)
    if was.kind == now.kind and was.kind in ("time", "datetime", "timestamp"):
        return (now.scale or 0) >= (was.scale or 0)
    if was.kind == now.kind == "varbinary":
        return (now.length or 0) >= (was.length or 0)
    if was.kind in _BLOBS and now.kind in _BLOBS:
        return _BLOBS.index(was.kind) <= _BLOBS.index(now.kind)
    return False


def _holds_texts(was: NativeType, now: NativeType) -> bool:
    if was.kind in _TEXTS and now.kind in _TEXTS:
        grows = width_of(now.charset or "") > width_of(was.charset or "")
        return _TEXTS.index(was.kind) + grows <= _TEXTS.index(now.kind)
    if was.kind == "varchar" and now.kind in _TEXTS:
        return (was.length or 0) * width_of(now.charset or "") <= _TEXT_BYTES[now.kind]
    return was.kind == now.kind and (now.length or 0) >= (was.length or 0)
