"""Orders of values as SQL Server has them: texts by their collation, decimals as numbers, guids by groups of bytes.

The order of letters is that of Latin: digits after punctuation, letters after digits, accents after their base letter,
lower case before upper case. Letters that a language sorts elsewhere are not known here.
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata
import uuid
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

from headrace_emulators.sqlserver import temporal
from headrace_emulators.sqlserver.types import DEFAULT_COLLATION, sqlite_collation

# Punctuation sorts before digits, digits before letters; the underscore and braces move down.
_ORDER = {ord(c): i + 33 for i, c in enumerate("!\"#$%&()*,./:;?@[\\]^_`{|}~'-+<=>")}
_ORDER |= {ord(c): 70 + i for i, c in enumerate("0123456789")}
_ORDER |= {ord(c): 97 + i for i, c in enumerate("abcdefghijklmnopqrstuvwxyz")}
_MINIMAL, _LETTERS = re.compile("['-]"), re.compile("[^'-]")

Key = Callable[[str], Any]


@lru_cache(maxsize=65536)
def _letters(text: str) -> tuple[str, str]:
    """The letters without case and accents as they sort, and the text without case."""
    folded = text.rstrip(" ").casefold()
    if folded.isascii():
        return folded.translate(_ORDER), ""
    parts = unicodedata.normalize("NFD", folded)
    base = "".join(c for c in parts if not unicodedata.combining(c))
    return base.translate(_ORDER), parts


def _text_key(*, cases: bool, accents: bool, words: bool) -> Key:
    @lru_cache(maxsize=65536)
    def key(text: str) -> tuple[str, ...]:
        text = text.rstrip(" ")
        plain, marks = text, ""
        if words:
            # Windows collations sort co-op next to coop: hyphens and apostrophes count only where all else is equal.
            plain, marks = _MINIMAL.sub("", text), _LETTERS.sub(" ", text)
        letters, accented = _letters(plain)
        upper = ""
        if cases:
            # Lower case comes first, which is the other way round in code points.
            upper = (plain if accents else _without_accents(plain)).swapcase()
        return (letters, accented if accents else "", upper, marks if len(plain) < len(text) else "")

    return key


def _without_accents(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


@lru_cache(maxsize=65536)
def _code_units(text: str) -> bytes:
    return text.rstrip(" ").encode("utf-16-be", "surrogatepass")


@lru_cache(maxsize=65536)
def _code_page(text: str) -> bytes:
    return text.rstrip(" ").encode("cp1252", "replace")


@lru_cache(maxsize=65536)
def _guid_order(text: str) -> bytes:
    raw = uuid.UUID(text).bytes_le
    return raw[10:16] + raw[8:10] + raw[6:8] + raw[4:6] + raw[0:4]


_decimal_of = lru_cache(maxsize=65536)(Decimal)
_instant_of = lru_cache(maxsize=65536)(temporal.instant)


def _ordering(key: Key) -> Callable[[str, str], int]:
    def compare(a: str, b: str) -> int:
        if a == b:
            return 0
        try:
            x, y = key(a), key(b)
        except (ArithmeticError, ValueError):
            # A value that is none of the type is ordered as text; the type check on the way in refuses it anyway.
            x, y = a, b
        return 1 if x > y else -1 if x < y else 0

    return compare


def _keys() -> dict[str, Key]:
    found: dict[str, Key] = {
        sqlite_collation("Latin1_General_BIN2", wide=True): _code_units,
        sqlite_collation("Latin1_General_BIN2", wide=False): _code_page,
        "emulator_decimal": _decimal_of,
        "emulator_guid": _guid_order,
        "emulator_instant": _instant_of,
    }
    for family in ("SQL_Latin1_General_CP1", "Latin1_General"):
        for case in ("CI", "CS"):
            for accent in ("AI", "AS"):
                name = f"{family}_{case}_{accent}"
                found[sqlite_collation(name, wide=True)] = _text_key(
                    cases=case == "CS", accents=accent == "AS", words=not family.startswith("SQL_")
                )
    return found


_COMPARISONS = {name: _ordering(key) for name, key in _keys().items()}
compare_texts = _COMPARISONS[DEFAULT_COLLATION]
"""Case-insensitive, accent-sensitive, blind to trailing blanks: the database's own collation."""


def register_collations(connection: sqlite3.Connection) -> None:
    """Make a connection order texts, decimals, guids and instants as SQL Server does."""
    for name, comparison in _COMPARISONS.items():
        connection.create_collation(name, comparison)
