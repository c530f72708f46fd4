"""The recorded runs: the T-SQL that filled the change tables, and what Debezium's own connector wrote from them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[1] / "golden" / "sqlserver"

# These belong to the stand-in that the recording was made with.
_STAND_IN = re.compile(r"\s*create\s+(function|trigger|sequence)\b", re.IGNORECASE)

STEPS = (
    ("01_tables.sql", "02_cdc_catalog.sql", "03_base_rows.sql"),
    ("04_changes.sql",),
    ("05_schema_change.sql",),
    ("06_last.sql",),
)
"""The scripts that ran before each look at the database; the first look is the snapshot."""
TABLES = ("customers", "all_types", "composite", "keyless", "orders", "debezium_signal")


def statements(name: str) -> list[str]:
    """The statements of one input script, without those for the stand-in only."""
    text = (GOLDEN / "input" / name).read_text(encoding="utf-8")
    return [s for s in re.split(r"(?im)^\s*go\s*$", text) if s.strip() and not _STAND_IN.match(s)]


def events(recording: str) -> list[dict[str, Any]]:
    """The recorded events of all topics in order of arrival."""
    return [json.loads(line) for line in (GOLDEN / f"{recording}.jsonl").read_text(encoding="utf-8").splitlines()]
