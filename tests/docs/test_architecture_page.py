"""Rule: the page on the architecture names all rooms and only files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "headrace"


def test_every_room_is_named() -> None:
    # What is left of rooms that moved only says where they are.
    rooms = {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").exists()} - {"emulators"}
    assert rooms - set(re.findall(r"`(\w+)`", PAGE)) == set()


def test_every_file_that_it_names_exists() -> None:
    named = re.findall(r"`([\w/]+\.py)`", PAGE)
    assert len(named) >= 10
    assert [name for name in named if not (PACKAGE / name).exists()] == []
