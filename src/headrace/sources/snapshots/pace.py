"""How many rows a chunk has of a table that is read again: few at first, more while batches stay quick.

What a batch may take is not known before it is done, and the time between two batches has the pause of the trigger in
it. So a chunk also grows while its size is not what takes the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FIRST_ROWS = 4096
"""Rows of the first chunks."""
MOST_ROWS = 100_000
"""Rows of the largest chunks where the options give no size."""
_QUICK_SECONDS = 10
_SLOW_SECONDS = 30
_MUCH = 1.5


@dataclass(frozen=True)
class Pace:
    """The size of the next chunks.

    Args:
        rows: how many rows each has.
        seconds: how long the last batch took that had some; 0 where that is not known.
    """

    rows: int = FIRST_ROWS
    seconds: float = 0.0

    def after(self, seconds: float, most: int) -> Pace:
        """The size after a batch that had chunks of this one.

        Args:
            seconds: from its plan to the next one.
            most: how many rows a chunk may have; 0 where the options give no size.
        """
        most = most or MOST_ROWS
        slower = self.seconds > 0 and seconds > _MUCH * self.seconds
        rows = self.rows
        if seconds <= _QUICK_SECONDS:
            rows = 4 * self.rows
        elif self.seconds and not slower:
            rows = 2 * self.rows
        elif slower and seconds > _SLOW_SECONDS:
            rows = max(self.rows // 2, FIRST_ROWS)
        return Pace(min(rows, most), round(seconds, 1))

    def to_json(self) -> list[Any]:
        """JSON values."""
        return [self.rows, self.seconds]
