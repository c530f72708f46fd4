"""Commands of the documentation, typed as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from headrace.testing.waiting import PATIENCE


def typed(commands: str, folder: Path) -> str:
    """Run commands in a shell in which `headrace` is the one that is tested; what they printed."""
    (folder / "bin").mkdir(exist_ok=True)
    command = folder / "bin" / "headrace"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m headrace "$@"\n')
    command.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(part for part in sys.path if part),
    }
    done = subprocess.run(
        ["sh", "-e", "-c", commands], cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
