"""What is made once of each thing that messages tell, and then goes by its number."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from headrace.wire.spans import Array

Told = TypeVar("Told", bound=Hashable)
Made = TypeVar("Made")


class Numbered(Generic[Told, Made]):
    """What was made of all that was told, in the order in which it was told first.

    Args:
        make: what is made of it.
    """

    def __init__(self, make: Callable[[Told], Made]) -> None:
        self._make = make
        self._numbers: dict[Told, int] = {}
        self.all: list[Made] = []

    def number(self, told: Told) -> int:
        """The number in `all` of what was made of it."""
        found = self._numbers.get(told)
        if found is None:
            self.all.append(self._make(told))
            found = self._numbers[told] = len(self.all) - 1
        return found


def numbers_of(numbered: Numbered[tuple[str | None, ...], Made], columns: Sequence[pa.StringArray]) -> Array:
    """The number of what was made of each row's texts; each distinct row is looked at once."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        found = column.dictionary_encode()
        code = code * (len(found.dictionary) + 1) + found.indices.fill_null(len(found.dictionary)).to_numpy()
    _, first, of = np.unique(code, return_index=True, return_inverse=True)
    numbers = np.array([numbered.number(tuple(column[int(row)].as_py() for column in columns)) for row in first])
    return numbers[of] if numbers.size else np.zeros(0, np.int64)
