"""What a PostgreSQL 15 sent for statements that are known; see tests/golden/postgresql."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "golden" / "postgresql"


@dataclass(frozen=True)
class Recording:
    """Payloads of CopyData, and what led to them.

    Args:
        payloads: in their order.
        bounds: the places in the log before the first step and behind each.
        steps: the names of the steps.
        oids: of the tables, by name.
    """

    payloads: list[bytes]
    bounds: list[int]
    steps: list[str]
    oids: dict[str, int]

    def window(self, step: str) -> tuple[int, int]:
        """The boundaries of a step."""
        number = self.steps.index(step)
        return self.bounds[number], self.bounds[number + 1]


def recorded(name: str) -> Recording:
    """One of the recordings."""
    head, *lines = (_FOLDER / f"{name}.txt").read_text().splitlines()
    said = json.loads(head)
    return Recording([bytes.fromhex(line) for line in lines], said["bounds"], list(said["steps"]), said["oids"])
