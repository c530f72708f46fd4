"""The last figures of a run, kept beside Spark's own files, so that others can see them without asking the run.

Nothing depends on them. The name begins with a point, so that an earlier release, which does not know the file, goes on
from the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FILE = ".headrace.progress.json"
_FORM = 1
_MISSED = 3
"""So many times in a row a run that works may be late."""


@dataclass(frozen=True)
class KeptFigures:
    """Figures of a moment.

    Args:
        figures: as `headrace.observe.page.figures` has them.
        every: seconds between two times that they are kept.
    """

    figures: Mapping[str, Any]
    every: float

    @property
    def time(self) -> float:
        """When they were so, in seconds since 1970."""
        return float(self.figures["time"])

    def are_fresh(self, now: float) -> bool:
        """Whether a run that still works may have kept them."""
        return now - self.time < _MISSED * self.every + 1

    def to_text(self) -> str:
        """As they are kept."""
        return json.dumps({"form": _FORM, "every": self.every, "figures": self.figures}, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str | None) -> KeptFigures | None:
        """Back from `to_text`; None where there are none, where they are half written, or of another form."""
        try:
            data = json.loads(text or "")
            made = cls(dict(data["figures"]), float(data["every"])) if data["form"] == _FORM else None
            return made if made is not None and made.time else None
        except (ValueError, KeyError, TypeError):
            return None
