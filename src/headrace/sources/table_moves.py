"""One table whose changes go on elsewhere by command, while the other tables go on.

Back (`rewind`): changes that were delivered come again. Forward (`skip`): changes are left out, which loses them on
purpose; the offset keeps what was left out until the table is read again.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal

Kind = Literal["rewind", "skip"]
NOW = "now"
"""What users write for the newest commit of the source."""


@dataclass(frozen=True)
class TableMove:
    """What a user wants of a table.

    Args:
        table: `schema.name`.
        kind: back or forward.
        to: the commit after which the changes of the table go on, in the form of `Offset.commit`. Of a user's command
            also as the source's tools write it, a time (ISO 8601), or `now`.
    """

    table: str
    kind: Kind
    to: str


@dataclass(frozen=True)
class MovePlan:
    """What a move would do.

    Args:
        move: the move, with a commit in the form of `Offset.commit`.
        at: the commit up to which the changes of the table are delivered.
        changes: about how many changes come again, or are left out; None where the source can't say cheaply.
        time: when the commit `move.to` was made; None where that is not known.
    """

    move: TableMove
    at: str
    changes: int | None = None
    time: dt.datetime | None = None


def time_of_text(text: str) -> dt.datetime | None:
    """The instant that a text says in ISO 8601, with a zone; None for any other text.

    A time without a zone is none: which zone it is in would be a guess.
    """
    try:
        time = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return time if time.tzinfo is not None else None
