"""The stand-ins of the pipeline's tests on the path, as an installed package would be."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "pipeline" / "plugin"))
