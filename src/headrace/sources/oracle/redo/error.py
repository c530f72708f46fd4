"""The one error of the redo parser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from headrace.errors import FormatError


class RedoSyntaxError(FormatError):
    """A redo text is not one of the statements that LogMiner prints.

    The message has the position and what was expected there, never the text itself: redo holds the values of rows.

    Args:
        position: characters before the position that could not be read; 0 is the start.
        expected: what should be there.
    """

    def __init__(self, position: int, expected: str) -> None:
        self.position = position
        self.expected = expected
        super().__init__(f"Redo SQL can't be read at character {position + 1}: expected {expected}.")

    def __reduce__(self) -> tuple[object, ...]:
        return (RedoSyntaxError, (self.position, self.expected))


class Unexpected(Exception):
    """A `RedoSyntaxError` of which only a text between two literals, and a position in it, are known."""

    def __init__(self, text: int, position: int, expected: str) -> None:
        super().__init__(expected)
        self.text, self.position, self.expected = text, position, expected


@contextmanager
def placed(parts: Sequence[str]) -> Iterator[None]:
    """Turn the errors of reading these parts of a statement into errors that know their position in the whole."""
    try:
        yield
    except Unexpected as error:
        before = parts[: 2 * error.text]
        raise RedoSyntaxError(sum(map(len, before)) + len(before) + error.position, error.expected) from None
