"""What is made once of each thing that messages tell, and then goes by its number."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

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
