"""Changes of rows that no log carries, as far as a catalog shows that they may come.

Nobody can bring such changes, so they are named, with the table and what to do. The page on faults lists what no
catalog shows.
"""

from __future__ import annotations

from dataclasses import dataclass

_READ_AGAIN = "Read the table again: headrace repair reread <pipeline> {}."


@dataclass(frozen=True)
class Unlogged:
    """A way by which a table's rows change, and no change records it.

    Args:
        table: `schema.name`.
        sentence: which way.
        remedy: what to do.
    """

    table: str
    sentence: str
    remedy: str


def read_again(path: str) -> str:
    """How a table is read again, as a sentence."""
    return _READ_AGAIN.format(path)
