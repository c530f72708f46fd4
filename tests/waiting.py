"""Waiting for what another thread or process does, where it gives no gate to wait at."""

from __future__ import annotations

import time
from collections.abc import Callable


def within(condition: Callable[[], object], seconds: float) -> bool:
    """Ask until it is so, or the time is over; whether it is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Ask until it is so; what is waited for is observed and not guessed."""
    assert within(condition, seconds), f"not within {seconds} seconds: {what}"
