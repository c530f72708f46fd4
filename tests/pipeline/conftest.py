"""The stand-ins as an installed package: on this process's path and on that of all Python workers."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

_PLUGIN = str(Path(__file__).parent / "plugin")
sys.path.append(_PLUGIN)
# Set at import, which is before any test of this run starts a JVM.
os.environ["PYTHONPATH"] = os.pathsep.join(part for part in (_PLUGIN, os.environ.get("PYTHONPATH", "")) if part)


@pytest.fixture
def commits(tmp_path: Path) -> Path:
    """The stand-in source's folder."""
    folder = tmp_path / "commits"
    folder.mkdir()
    return folder
