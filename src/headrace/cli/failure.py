"""How a command ends: after an error with one sentence and an exit code, a stack trace only with `--debug`.

The first Ctrl-C or SIGTERM stops the program in order, the second at once. Commands that a remedy prints are written as
the user can call them from the current folder.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import typer

from headrace.pipeline.components import missing_package
from headrace.pipeline.recover import one_line, recover

USER_ERROR = 2
UNEXPECTED = 1


class SecretMask:
    """Removes a pipeline's secrets from what a command prints, once they are known."""

    def __init__(self) -> None:
        self.hide: Callable[[str], str] = lambda text: text


@contextlib.contextmanager
def errors_reported(debug: bool) -> Iterator[SecretMask]:
    """Turn any error of the block into one sentence on stderr and an exit code.

    Args:
        debug: print the stack trace before the sentence, without secrets.

    On a terminal a second line names the page of the documentation that explains such errors.
    """
    mask = SecretMask()
    try:
        yield mask
    except (typer.Exit, typer.Abort, KeyboardInterrupt):
        raise
    except Exception as error:
        if debug:
            sys.stderr.write(mask.hide("".join(traceback.format_exception(error))))
        sentence, code, page = sentence_of(error)
        hint = "" if debug or code == USER_ERROR else " Run it again with --debug for the stack trace."
        sys.stderr.write(f"{mask.hide(sentence)}{hint}\n")
        if page and sys.stderr.isatty():
            sys.stderr.write(f"More: docs/{page}\n")
        raise typer.Exit(code) from None


def sentence_of(error: BaseException) -> tuple[str, int, str]:
    """One sentence for an error, the exit code, and the page below `docs` that says more; empty where none does.

    Where other tables met errors too, each has a line of its own.
    """
    known = recover(error)
    if known is not None:
        return "\n".join(map(str, (known, *known.others))), USER_ERROR, known.page
    if isinstance(error, ModuleNotFoundError):
        missing = missing_package(error)
        if missing is not None:
            return str(missing), USER_ERROR, missing.page
    return f"An unexpected error stopped Headrace ({type(error).__name__}): {one_line(error)}", UNEXPECTED, ""


def program(name: str) -> str:
    """A program of this Python's environment as it can be typed: its name where the shell finds it, else its path.

    Args:
        name: `python`, `headrace`.
    """
    beside_python = Path(sys.executable).parent / name
    path = shutil.which(name)
    # The folders are compared: a virtual environment's python is a link to the one it was made with.
    if path is not None and (not beside_python.exists() or Path(path).parent.samefile(beside_python.parent)):
        return name
    near = os.path.relpath(beside_python)
    return shlex.quote(str(beside_python) if near.startswith("..") else near)


class Interruption:
    """Whether the user, or the system, wants the program to end."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        self.repeated = threading.Event()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.requested.is_set():
            self.repeated.set()
            raise KeyboardInterrupt
        self.requested.set()


@contextlib.contextmanager
def interruption() -> Iterator[Interruption]:
    """Take SIGINT and SIGTERM over while the block runs.

    Enter it after Spark has started: PySpark installs a handler of its own then, which cancels all jobs.
    """
    request = Interruption()
    before = {number: signal.signal(number, request._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
