"""Waiting for what another thread or process does, where it gives no gate to wait at."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 600.0
"""Seconds after which something hangs, however busy the machine is. No test takes so long, so none fails by a clock."""


def within(condition: Callable[[], object], seconds: float) -> bool:
    """Poll until the condition holds or the time is over; whether it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def until(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Poll until the condition holds.

    Raises:
        AssertionError: it does not hold in time.
    """
    assert within(condition, seconds), f"not within {seconds} seconds: {what}"
