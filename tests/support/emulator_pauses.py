"""Sources ask an emulator again at once."""

from __future__ import annotations

import pytest


def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between two questions: an emulator has no one else to serve, and nothing mends itself meanwhile."""
    # How long a log that is gone is waited for.
    monkeypatch.setattr("headrace.sources.oracle.mining._BACK_OFF_SECONDS", 0)
    monkeypatch.setattr("headrace.sources.change_tables.capture_wait._POLL_SECONDS", 0.01)
