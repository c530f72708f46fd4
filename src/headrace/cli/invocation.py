"""How the user can call Headrace's programs from the current folder, for commands to copy."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path


def program(name: str) -> str:
    """A program of this Python's environment as it can be typed: its name where the shell finds it, else its path.

    Args:
        name: `python`, `headrace`.
    """
    own = Path(sys.executable).parent / name
    found = shutil.which(name)
    # The folders are compared: a virtual environment's python is a link to the one it was made with.
    if found is not None and (not own.exists() or Path(found).parent.samefile(own.parent)):
        return name
    near = os.path.relpath(own)
    return shlex.quote(str(own) if near.startswith("..") else near)
