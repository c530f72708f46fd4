"""Rule: whichever processes of a cluster die, and whichever tasks run twice, a table gets each row once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2])
def test_kills_of_workers_and_executors_leave_tables_equal_to_the_feed(tmp_path: Path, seed: int) -> None:
    program = [sys.executable, "-m", "tests.faults.killed_executors", str(tmp_path), "--seed", str(seed)]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
