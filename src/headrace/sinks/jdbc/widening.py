"""Which column types hold every value of which others, so that a column can be widened without a loss."""

from __future__ import annotations

import re

_INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "integer": 10, "bigint": 19, "bigint unsigned": 20}
_UNBOUNDED = {"varchar": ("longtext", "text"), "varbinary": ("longblob",)}
_FLOATS = {"float": "double", "real": "double precision"}
_TYPE = re.compile(r"([a-z ]+?)(?:\((\d+)(?:,(\d+))?\))?((?: with| without) time zone)?")


def holds(wide: str, narrow: str) -> bool:
    """Whether every value of one type is one of the other, written the same.

    Args:
        wide: a type as a catalog writes it (`numeric(12,2)`, `bigint unsigned`).
        narrow: another one of the same database.
    """
    if wide == narrow:
        return True
    a, b = _TYPE.fullmatch(wide), _TYPE.fullmatch(narrow)
    if a is None or b is None or (wide == "tinyint(1)") != (narrow == "tinyint(1)"):
        return False
    base, other = a[1], b[1]
    if other in _INTEGER_DIGITS:
        signed = base != "bigint unsigned"
        if base in _INTEGER_DIGITS:
            return signed and other != "bigint unsigned" and _INTEGER_DIGITS[base] >= _INTEGER_DIGITS[other]
        return base in ("numeric", "decimal") and _whole_digits(a) >= _INTEGER_DIGITS[other]
    if other in ("numeric", "decimal") and base == other:
        return _whole_digits(a) >= _whole_digits(b) and _scale(a) >= _scale(b)
    if _FLOATS.get(other) == base or base in _UNBOUNDED.get(other, ()):
        return True
    if base != other or a[4] != b[4] or other not in ("varchar", "varbinary", "time", "timestamp", "datetime"):
        return False
    # PostgreSQL's times have six digits where none are given, MariaDB's have none.
    untold = 6 if a[4] else 0
    return int(a[2] or untold) >= int(b[2] or untold) if a[2] or b[2] else True


def _whole_digits(kind: re.Match[str]) -> float:
    return float("inf") if kind[2] is None else int(kind[2]) - int(kind[3] or 0)


def _scale(kind: re.Match[str]) -> float:
    return float("inf") if kind[2] is None else int(kind[3] or 0)
