"""Words of fixed spelling in messages (operations, types): in one case, and as numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from headrace.wire.spans import Array

_CAPITALS = {ord("a") + n: ord("A") + n for n in range(26)}
_SMALL = {capital: small for small, capital in _CAPITALS.items()}


def upper(text: str) -> str:
    """A word in capitals; other letters than a to z stay as they are."""
    return text.translate(_CAPITALS)


def lower(text: str) -> str:
    """A word in small letters; other letters than A to Z stay as they are."""
    return text.translate(_SMALL)


def numbered(texts: pa.StringArray, numbers: Mapping[str, int], spelled: Callable[[str], str]) -> Array:
    """The number of each word as `spelled` gives it; -1 where it has none, or is null."""
    found = texts.dictionary_encode()
    codes = [numbers.get(spelled(word), -1) for word in found.dictionary.to_pylist()]
    return np.array([*codes, -1])[found.indices.fill_null(len(codes)).to_numpy(zero_copy_only=False)]
