"""Rule: every bench can be started: what it takes of the code and of other benches is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.mark.system
def test_every_bench_finds_what_it_imports() -> None:
    names = sorted(file.stem for file in BENCH.glob("*.py") if file.stem != "__main__")
    done = subprocess.run(
        [sys.executable, "-c", f"import {', '.join(names)}"], cwd=BENCH, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
