"""The recorded run: the T-SQL that filled the change tables, and what Debezium's own connector wrote from them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[1] / "golden" / "sqlserver"

# These belong to the stand-in that the recording was made with.
_STAND_IN = re.compile(r"\s*create\s+(function|trigger|sequence)\b", re.IGNORECASE)


def statements(name: str) -> list[str]:
    """The statements of one input script, without those for the stand-in only."""
    text = (GOLDEN / "input" / name).read_text(encoding="utf-8")
    return [s for s in re.split(r"(?im)^\s*go\s*$", text) if s.strip() and not _STAND_IN.match(s)]


def events(name: str, topic: str) -> list[dict[str, Any]]:
    """The recorded events of a topic in order of arrival."""
    lines = (GOLDEN / name).read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["topic"] == topic]
