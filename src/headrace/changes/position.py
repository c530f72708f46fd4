"""Positions: the position of a change in its source's order, as text that sorts in that order.

A position is commit / order inside the commit / sub-order. Each part is text that its source writes so that it compares
byte by byte; parts are joined by `/`, which sorts before every character allowed in a part, so the text of the whole
compares like the tuple of its parts. Positions of different databases or Kafka partitions are never compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering

_PART = re.compile(r"[0-9:a-z]*")


@total_ordering
@dataclass(frozen=True)
class Position:
    """One position in a source's order.

    Args:
        commit: the commit (an LSN, an SCN, a Kafka offset), fixed width per source.
        order: the order inside the commit.
        sub: what remains (the operation of a change, the row of a snapshot chunk).

    Raises:
        ValueError: a part holds a character that would break the order of the text.
    """

    commit: str
    order: str = ""
    sub: str = ""

    def __post_init__(self) -> None:
        for part in (self.commit, self.order, self.sub):
            if not _PART.fullmatch(part):
                raise ValueError(f"a position's part may hold 0-9, a-z and ':' only, not {part!r}")

    @property
    def text(self) -> str:
        """The text in change rows, checkpoints and Kafka headers."""
        return f"{self.commit}/{self.order}/{self.sub}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read the text form back.

        Raises:
            ValueError: it is not three parts.
        """
        commit, order, sub = text.split("/")
        return cls(commit, order, sub)

    def __lt__(self, other: Position) -> bool:
        return self.text < other.text

    def __str__(self) -> str:
        return self.text


SNAPSHOT_ORDER = "r"
"""First letter of the order of a row read at a commit.

It sorts after every streamed change of that commit (hex digits).
"""

READ_AGAIN = f"{SNAPSHOT_ORDER}{SNAPSHOT_ORDER}[0-9a-f]{{6}}"
"""The beginning of the order of a row that a later read brought, as a regular expression."""

READ_AGAIN_FROM = "read_again_from"
"""The fact of a `schema` row (in `source`) that ends a read beside the stream: the position from which it began.

The source has no row that is older in a target.
"""

ADDED_COLUMNS = "added_columns"
"""The fact of a `schema` row (in `source`) that reports the one value that older rows have in added columns:
JSON, by column `[value, before]`, a canonical text or null, and a position.

Those rows are the ones of a target that are older than the position (none where it is empty), and the ones of the batch
whose structure lacks the column. The first come before the changes of the batch, which are newer.
"""


def order_of_read(read: int) -> str:
    """How the order of a row begins that was read at a commit.

    A log may stand still while a table changes (capture was switched off), so a later read of the same commit is after
    all that an earlier one brought.

    Args:
        read: 0 for a table's first snapshot, a higher number for each time that it is read again.
    """
    return f"{SNAPSHOT_ORDER}{SNAPSHOT_ORDER}{read:06x}" if read else SNAPSHOT_ORDER
