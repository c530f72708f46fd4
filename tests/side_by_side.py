"""Run tests in three processes: those that start no JVM, those of sinks with a JVM, and all others with a JVM.

    python -m tests.side_by_side "not system and not soak" tests/sinks -k delta

The first word says which, as pytest's `-m` takes it; the rest goes to pytest as it is. Tests with a JVM wait for much,
so that two cores have time for all three. The first one collects everything, and tells the last one in which files its
tests are.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

_SHOWN = "not jvm"
_BESIDE = {"sinks": "jvm and sinks", "the others": "jvm and not sinks"}
FILES = "HEADRACE_TESTS_OF_OTHERS"
"""The variable that says into which pipe the process without a JVM writes in which files the tests of the others are.
"""
_NOTHING_CHOSEN = int(pytest.ExitCode.NO_TESTS_COLLECTED)
_WORDS = {0: "all passed", _NOTHING_CHOSEN: "none was chosen"}


def exit_code(codes: Iterable[int]) -> int:
    """Of all together: no failure is one whose tests were all chosen away, unless all of them were."""
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
    """Run them: what the one without a JVM prints is shown as it comes, then what the others printed meanwhile."""
    marks, *arguments = words
    is_chosen = any(Path(one).exists() for one in arguments)

    def command(which: str, where: Sequence[str] = ()) -> list[str]:
        # Each remembers its own failures, for `--lf`.
        cache = f"cache_dir=.pytest_cache/{which.replace(' ', '-')}"
        # The one that has most to do and waits least goes first.
        first = [] if which == _SHOWN else ["nice", "-n", "3"]
        return [*first, sys.executable, "-m", "pytest", "-o", cache, "-m", f"{which} and ({marks})", *where, *arguments]

    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        beside: dict[str, tuple[Path, subprocess.Popen[bytes]]] = {}

        def start(name: str, where: Sequence[str]) -> None:
            printed = folder / f"{name}.log"
            log = running.enter_context(printed.open("wb"))
            process = subprocess.Popen(command(_BESIDE[name], where), stdout=log, stderr=log)
            beside[name] = printed, running.enter_context(process)

        # To collect what is chosen away takes ten seconds.
        start("sinks", [] if is_chosen else ["tests/sinks"])
        told, tells = os.pipe()
        files = running.enter_context(os.fdopen(told, encoding="utf-8"))
        own = {**os.environ, FILES: str(tells)}
        shown = running.enter_context(subprocess.Popen(command(_SHOWN), env=own, pass_fds=[tells]))
        os.close(tells)
        try:
            print("Tests without a JVM. Those with one run beside them, and are shown afterwards.", flush=True)
            # What ends before it has told closes the pipe, too, and then the others collect everything themselves.
            start("the others", [] if is_chosen else files.read().splitlines())
            codes = [shown.wait()]
            for name, (printed, process) in beside.items():
                print(f"\nWith a JVM: {name}.", flush=True)
                _follow(printed, process)
                codes.append(process.returncode)
        except KeyboardInterrupt:
            shown.wait()
            for _, process in beside.values():
                process.wait()
            return 130
        summaries = [f"{name}: {_last_line(printed)}." for name, (printed, _) in beside.items()]
    print("\n" + "\n".join((f"Without a JVM: {_WORDS.get(codes[0], 'failed, see above')}.", *summaries)))
    return exit_code(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
