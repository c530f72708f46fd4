"""The columns of JSON objects: what they are called and how their texts are written, as kernels take it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headrace.wire.names import Names, as_data
from headrace.wire.spans import Array

ABSENT, NULL = -2, -1
"""Numbers of texts that say that there is none."""

AS_IS, QUOTED, WHOLE, BOOLEAN, FLOAT, DECIMAL, DAY, TIME, MOMENT, ZONED, CAPITALS, ODD = range(12)
"""How a column's texts are written: as they are; as strings, of which the caller writes those that begin with `first`
zeros, where that is not 0; as integers of `first` bits; as true or false; as Java writes binary numbers of at most
`first` digits; as the bytes of a decimal with the scale `first`, in base64; as days since 1970; as units of a time,
with `first` fraction digits and of `second` bits; the same of a timestamp since 1970; as strings without the zeros that
end a fraction before a zone; as strings in capitals; one by one, by the caller."""


class JsonColumn(NamedTuple):
    """A column of a structure.

    Args:
        column: its name in the rows.
        name: its name in the objects.
        code: how its texts are written.
        first: see the codes.
        second: see the codes.
        null: the JSON that stands for NULL; None where it is left out of the object.
        absent: the JSON that stands where a row does not carry it; None where it is left out of the object.
    """

    column: str
    name: str
    code: int
    first: int = 0
    second: int = 0
    null: str | None = "null"
    absent: str | None = "null"


class ColumnLayout(NamedTuple):
    """All columns of all structures as kernels take them; pieces of text are indexes in `data`, -1 for none."""

    data: Array
    first: Array
    count: Array
    opening: Array
    closing: Array
    name: Array
    null: Array
    absent: Array
    code: Array
    one: Array
    two: Array


class JsonColumns:
    """The columns of some structures.

    Args:
        structures: the columns of each, with the texts that open and close its objects.
    """

    def __init__(self, structures: Sequence[tuple[str, Sequence[JsonColumn], str]]) -> None:
        pieces: list[bytes] = []
        size = 0

        def piece(text: str | None) -> tuple[int, int]:
            nonlocal size
            if text is None:
                return 0, -1
            pieces.append(text.encode())
            size += len(pieces[-1])
            return size - len(pieces[-1]), size

        columns = [column for _, group, _ in structures for column in group]
        count = np.array([len(group) for _, group, _ in structures], np.int64)
        openings = [piece(opening) for opening, _, _ in structures]
        closings = [piece(closing) for _, _, closing in structures]
        names = [piece(column.name) for column in columns]
        nulls, absent = [piece(c.null) for c in columns], [piece(c.absent) for c in columns]
        indexes = (np.array(group, np.int64).reshape(-1, 2) for group in (openings, closings, names, nulls, absent))
        numbers = (np.array([c[n] for c in columns], np.int64) for n in (2, 3, 4))
        self.layout = ColumnLayout(as_data(b"".join(pieces)), np.cumsum(count) - count, count, *indexes, *numbers)
        self.names = Names([[column.column for column in group] for _, group, _ in structures])
