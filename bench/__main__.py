"""`make bench`: every benchmark, one after another, each against what a user would write by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run all benchmark files of this folder; the exit code is that of the first that failed."""
    for file in sorted(Path(__file__).parent.glob("*.py")):
        if file.name.startswith("__"):
            continue
        print(f"== {file.stem}", flush=True)
        code = subprocess.run([sys.executable, str(file)], check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
