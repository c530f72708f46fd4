"""What happens at the named points of `headrace.faultpoints` that a test arms.

Arming: `HEADRACE_FAULTPOINTS="name=action[@n][;name=action...]"`, where action is

- `raise`: raise `InjectedFault`;
- `kill`: SIGKILL every process of this session at once (driver, JVM, Python workers), as a machine that loses power
  does. The test starts the program in a session of its own and names its own session in `HEADRACE_FAULT_SPARE`, which
  is never killed;
- `hold:PATH`: write `PATH.reached`, then wait until the file PATH exists (at most ten minutes, then raise).

`@n` means the n-th time that the name is reached (counted over all processes through files in `HEADRACE_FAULT_DIR`).
Each action is carried out once: it leaves the file `<name>.hit` in that folder, which is the proof for the test.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_HOLD_SECONDS = 600.0


class InjectedFault(RuntimeError):
    """What an armed point with the action `raise` throws."""


def arming(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """What arms points in this process and in those that it starts, until the test ends; each for its first time only.

    Args:
        folder: a folder of the test's own.
        monkeypatch: pytest's fixture.
    """
    kept = folder / "faults"
    kept.mkdir(exist_ok=True)

    def arm(points: str) -> None:
        monkeypatch.setenv("HEADRACE_FAULT_DIR", str(kept))
        monkeypatch.setenv("HEADRACE_FAULTPOINTS", points)

    return arm


def carry_out(name: str, armed: str) -> None:
    """Do what is armed for a point, if anything is.

    Args:
        name: the point that was reached.
        armed: the value of `HEADRACE_FAULTPOINTS`.
    """
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
        kill_session(os.getsid(0))
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


def kill_session(session: int) -> None:
    """SIGKILL every process of a session, the caller last if it belongs to it.

    Raises:
        RuntimeError: it is the session that `HEADRACE_FAULT_SPARE` protects, or none does.
    """
    spare = os.environ.get("HEADRACE_FAULT_SPARE")
    if spare is None or int(spare) == session:
        raise RuntimeError("refusing to kill the session of the tests themselves")
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    for pid in sorted(pids, key=lambda pid: pid == os.getpid()):
        try:
            if os.getsid(pid) == session:
                os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            # It ended meanwhile, or belongs to somebody else: nothing to kill.
            continue
