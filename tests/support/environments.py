"""Environments of their own for programs of others, whose packages need not agree with ours."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from headrace.spark.java import cache_folder


def environment(name: str, packages: Sequence[str]) -> Path:
    """The `bin` folder of a kept environment, installed where it is not.

    Args:
        name: of the environment; another set of packages needs another one.
        packages: pinned.
    """
    folder = cache_folder() / name
    installed = folder / "installed"
    if not installed.exists():
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "--quiet", "--clear", str(folder)], check=True)
        index = subprocess.run(
            [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True
        ).stdout.strip()
        given = ["--default-index", index] if index else []
        install = ["pip", "install", "--quiet", "--native-tls", "--python", str(folder / "bin" / "python")]
        subprocess.run([*uv, *install, *given, *packages], check=True)
        installed.touch()
    return folder / "bin"
