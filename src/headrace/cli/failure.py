"""How a command ends after an error: one sentence and an exit code; a stack trace only with `--debug`."""

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
