"""How a command ends when something is wrong: one sentence, an exit code, and no stack trace unless asked for."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator

import typer

from headrace.pipeline.components import missing_package
from headrace.pipeline.recover import one_line, recover

USER_ERROR = 2
UNEXPECTED = 1


class SecretMask:
    """What a command may print of a pipeline: everything but its secrets, once they are known."""

    def __init__(self) -> None:
        self.hide: Callable[[str], str] = lambda text: text


@contextlib.contextmanager
def errors_reported(debug: bool) -> Iterator[SecretMask]:
    """Turn any error of the block into one sentence on stderr and an exit code.

    Args:
        debug: print the stack trace before the sentence; secrets are left out of it too.
    """
    shown = SecretMask()
    try:
        yield shown
    except (typer.Exit, typer.Abort, KeyboardInterrupt):
        raise
    except Exception as error:
        if debug:
            sys.stderr.write(shown.hide("".join(traceback.format_exception(error))))
        sentence, code = told(error)
        hint = "" if debug or code == USER_ERROR else " Run it again with --debug for the whole story."
        sys.stderr.write(f"{shown.hide(sentence)}{hint}\n")
        raise typer.Exit(code) from None


def told(error: BaseException) -> tuple[str, int]:
    """One sentence for an error, and the exit code."""
    ours = recover(error)
    if ours is not None:
        return str(ours), USER_ERROR
    if isinstance(error, ModuleNotFoundError):
        missing = missing_package(error)
        if missing is not None:
            return str(missing), USER_ERROR
    return f"Headrace was stopped by an unexpected error ({type(error).__name__}): {one_line(error)}", UNEXPECTED
