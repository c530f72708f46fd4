"""Named points in the program where tests make it fail.

A call to `reach("sink.delta.after_commit")` does nothing unless the environment variable `HEADRACE_FAULTPOINTS` arms
that name; `headrace.testing.faults` says how, and carries it out. So tests kill, fail or hold the program at an exact
place instead of sleeping and hoping.
"""

from __future__ import annotations

import importlib
import os


def reach(name: str) -> None:
    """Fail here if a test armed this name; otherwise do nothing."""
    armed = os.environ.get("HEADRACE_FAULTPOINTS")
    if armed:
        importlib.import_module("headrace.testing.faults").carry_out(name, armed)
