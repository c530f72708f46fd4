"""Waiting for what another thread or process does, where it gives no gate to wait at."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Ask until it is so; what is waited for is observed and not guessed."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} seconds: {what}"
        time.sleep(0.02)
