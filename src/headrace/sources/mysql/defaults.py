"""Columns' defaults that are constants, as canonical texts."""

from __future__ import annotations

import re

import pyarrow as pa

from headrace.sources.mysql.types import NativeType

_QUOTED = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_CONTROLS = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}
_BITS = re.compile(r"b'([01]+)'")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]*)?(?:e[-+]?[0-9]+)?", re.IGNORECASE)
_UNSHOWN = "?"
"""What both catalogs show for a character of four bytes, and for a byte that is none of a text."""
_COMPUTED = "default_generated"


def constant_default(shown: str, extra: str, native: NativeType, *, is_mariadb: bool) -> str | None:
    """A default that is a constant, as a canonical text; None for an expression, and where the catalog can't show it.

    Args:
        shown: as the catalog has it: MariaDB's as SQL, MySQL's as its bare text.
        extra: what else the catalog says of the column, in lower case.
        native: the column's type.
        is_mariadb: whose catalog it is.
    """
    value = _literal(shown, native) if is_mariadb else None if _COMPUTED in extra else _bare(shown, native)
    if value is None:
        return None
    found: str | None = native.printed_texts(pa.array([value], pa.binary()))[0].as_py()
    return found


def _literal(shown: str, native: NativeType) -> bytes | None:
    """The bytes of a literal, as the server prints a value."""
    if native.kind == "bit":
        return _bits(shown, native)
    quoted = _QUOTED.fullmatch(shown)
    if quoted is not None:
        text = _ESCAPED.sub(lambda found: "'" if found[1] is None else _CONTROLS.get(found[1], found[1]), quoted[1])
        return None if _UNSHOWN in text else text.encode()
    return shown.encode() if _NUMBER.fullmatch(shown) else None


def _bare(shown: str, native: NativeType) -> bytes | None:
    if native.kind == "bit":
        return _bits(shown, native)
    # Bytes are shown up to the first that is zero.
    return None if _UNSHOWN in shown or native.logical.kind == "bytes" else shown.encode()


def _bits(shown: str, native: NativeType) -> bytes | None:
    found = _BITS.fullmatch(shown)
    return None if found is None else int(found[1], 2).to_bytes(((native.length or 1) + 7) // 8, "big")
