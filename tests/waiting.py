"""Waiting for what another thread or process does, where it gives no gate to wait at."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

PATIENCE = 600.0
"""Seconds after which something hangs, however busy the machine is. No test takes so long, so none fails by a clock."""


def within(condition: Callable[[], object], seconds: float) -> bool:
    """Ask until it is so, or the time is over; whether it is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def until(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Ask until it is so; what is waited for is observed and not guessed."""
    assert within(condition, seconds), f"not within {seconds} seconds: {what}"


def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources ask an emulator again at once: it has no one else to serve, and nothing mends itself meanwhile."""
    # How long a log that is gone is waited for.
    monkeypatch.setattr("headrace.sources.oracle.mining._BACK_OFF_SECONDS", 0)
    monkeypatch.setattr("headrace.sources.change_tables.capture_wait._POLL_SECONDS", 0.01)
