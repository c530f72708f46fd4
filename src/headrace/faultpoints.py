"""Named points in the program where tests make it fail.

A call to `reach("sink.delta.after_commit")` does nothing unless the environment variable `HEADRACE_FAULTPOINTS` arms
that name. It exists so that tests can kill, fail or hold the program at an exact place instead of sleeping and hoping
(reliability.md section 4).

Arming: `HEADRACE_FAULTPOINTS="name=action[@n][;name=action...]"`, where action is

- `raise`: raise `InjectedFault`;
- `kill`: SIGKILL this process and, in a Python worker, the driver whose pid stands in `HEADRACE_FAULT_PID`;
- `hold:PATH`: write `PATH.reached`, then wait until the file PATH exists (at most 120 seconds, then raise).

`@n` means the n-th time that the name is reached (counted over all processes through files in `HEADRACE_FAULT_DIR`).
Each action is carried out once: it leaves the file `<name>.hit` in that folder, which is the proof for the test.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_HOLD_SECONDS = 120.0


class InjectedFault(RuntimeError):
    """What an armed point with the action `raise` throws."""


def reach(name: str) -> None:
    """Fail here if a test armed this name; otherwise do nothing."""
    armed = os.environ.get("HEADRACE_FAULTPOINTS")
    if armed:
        _reach_armed(name, armed)


def _reach_armed(name: str, armed: str) -> None:
    for part in armed.split(";"):
        point, _, action = part.partition("=")
        if point.strip() != name:
            continue
        action, _, count = action.strip().partition("@")
        folder = Path(os.environ["HEADRACE_FAULT_DIR"])
        if _count(folder, name) == int(count or 1):
            (folder / f"{name}.hit").touch()
            _act(name, action)


def _count(folder: Path, name: str) -> int:
    """One more for this name, over all processes: files created exclusively are the counter."""
    n = 1
    while True:
        try:
            (folder / f"{name}.{n}").touch(exist_ok=False)
        except FileExistsError:
            n += 1
        else:
            return n


def _act(name: str, action: str) -> None:
    if action == "raise":
        raise InjectedFault(f"fault injected at {name}")
    if action == "kill":
        driver = os.environ.get("HEADRACE_FAULT_PID")
        if driver:
            os.kill(int(driver), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    if action.startswith("hold:"):
        gate = Path(action.removeprefix("hold:"))
        gate.with_name(gate.name + ".reached").touch()
        deadline = time.monotonic() + _HOLD_SECONDS
        while not gate.exists():
            if time.monotonic() > deadline:
                raise InjectedFault(f"nobody opened the gate {gate} at {name}")
            time.sleep(0.01)
        return
    raise ValueError(f"unknown fault action {action!r} for {name}")
