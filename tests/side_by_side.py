"""Run tests in two processes: those that start Spark or another JVM in one, the others beside it in the other.

    python -m tests.side_by_side "not system and not soak" tests/sinks -k delta

The first word says which, as pytest's `-m` takes it; the rest goes to pytest as it is. Two processes that each had a
JVM would take each other's cores.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

_NOTHING_CHOSEN = int(pytest.ExitCode.NO_TESTS_COLLECTED)
_WORDS = {0: "all passed", _NOTHING_CHOSEN: "none was chosen"}


def exit_code(codes: Iterable[int]) -> int:
    """Of both together: no failure is one whose tests were all chosen away, unless the other one's were, too."""
    return max((code for code in codes if code != _NOTHING_CHOSEN), key=abs, default=_NOTHING_CHOSEN)


def _follow(log: Path, process: subprocess.Popen[bytes]) -> None:
    """Print what is in a log and what comes into it, until its process ends."""
    with log.open("rb") as lines:
        while (running := process.poll() is None) or lines.peek():
            sys.stdout.buffer.write(lines.read())
            sys.stdout.buffer.flush()
            if running:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.5)


def _last_line(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2].strip("= ")


def main(words: Sequence[str]) -> int:
    """Run both: what the one without a JVM prints is shown as it comes, then what the other one printed meanwhile."""
    marks, *arguments = words

    def command(which: str) -> list[str]:
        # Each remembers its own failures, for `--lf`.
        cache = f"cache_dir=.pytest_cache/{which.replace(' ', '-')}"
        return [sys.executable, "-m", "pytest", "-o", cache, "-m", f"{which} and ({marks})", *arguments]

    with tempfile.TemporaryDirectory() as folder:
        printed = Path(folder) / "jvm.log"
        with printed.open("wb") as log, subprocess.Popen(command("jvm"), stdout=log, stderr=log) as spark:
            try:
                print("Tests without a JVM. Those with one run beside them, and are shown afterwards.", flush=True)
                others = subprocess.run(command("not jvm"), check=False).returncode
                print("\nTests with a JVM.", flush=True)
                _follow(printed, spark)
            except KeyboardInterrupt:
                spark.wait()
                return 130
        summary = _last_line(printed)
    print(f"\nWithout a JVM: {_WORDS.get(others, 'failed, see above')}. With one: {summary}.")
    return exit_code((others, spark.returncode))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
