"""Words in messages: those of fixed text form (operations, types) in one case and as numbers, SQL's, empty ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.wire.spans import Array

BLANK = r"(?:\s++|/\*(?:[^*]|\*(?!/))*+\*/|--[^\n]*+\n|#[^\n]*+\n)"
"""A pattern of what may stand between the words of a statement: blanks, or a comment."""
_CAPITALS = {ord("a") + n: ord("A") + n for n in range(26)}
_SMALL = {capital: small for small, capital in _CAPITALS.items()}


def upper(text: str) -> str:
    """A word in capitals; other letters than a to z stay as they are."""
    return text.translate(_CAPITALS)


def lower(text: str) -> str:
    """A word in small letters; other letters than A to Z stay as they are."""
    return text.translate(_SMALL)


def numbered(texts: pa.StringArray, numbers: Mapping[str, int], written: Callable[[str], str]) -> Array:
    """The number of each word as `written` gives it; -1 where it has none, or is null."""
    found = texts.dictionary_encode()
    codes = [numbers.get(written(word), -1) for word in found.dictionary.to_pylist()]
    return np.array([*codes, -1])[found.indices.fill_null(len(codes)).to_numpy(zero_copy_only=False)]


def empty_as_null(texts: pa.StringArray) -> pa.StringArray:
    """Texts that are not empty; null for the others."""
    if not len(texts.buffers()[2] or b"") or texts.null_count == len(texts):
        return pa.nulls(len(texts), pa.string())
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
