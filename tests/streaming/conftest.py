"""The recorded run on the path, as a module of these tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
