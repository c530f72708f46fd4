"""The contract's databases on the path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.waiting import without_pauses

sys.path.append(str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def emulators_are_asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)
