"""Emulators answer at once."""

from __future__ import annotations

import pytest
from tests.support.emulator_pauses import without_pauses


@pytest.fixture(autouse=True)
def emulators_are_asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)
