"""A table without a key that was read later than the commit its rows are stamped with, taken back to that commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa

Row = tuple[str | None, ...]
"""The canonical texts of a row, in the order of its columns."""


def rewound(batches: Iterable[list[pa.Array]], came: Counter[Row], gone: Counter[Row]) -> Iterator[list[pa.Array]]:
    """The rows without those that came since, and with those that went.

    Per-row Python, only when the table changed meanwhile.

    Args:
        batches: the rows as they were read.
        came: what changes since the commit wrote.
        gone: what they took away.
    """
    both = came & gone
    came, gone = came - both, gone - both
    for texts in batches:
        if not came:
            yield texts
            continue
        keep = []
        for number, row in enumerate(zip(*(t.to_pylist() for t in texts), strict=True)):
            if came[row] > 0:
                came[row] -= 1
            else:
                keep.append(number)
        yield [t.take(pa.array(keep, pa.int64())) for t in texts]
    rest = list(gone.elements())
    if rest:
        yield [pa.array(column, pa.string()) for column in zip(*rest, strict=True)]
