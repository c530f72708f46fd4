"""What a command shows before it changes something, and the question whether to do it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headrace.errors import OptionError

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]


def confirmed(yes: bool) -> bool:
    """Whether the user wants what was shown.

    Args:
        yes: whether the command line says so.

    Raises:
        OptionError: nobody can be asked.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise OptionError("Nothing was done, because nobody confirmed it.", remedy="Say --yes, or --dry-run to look.")
    return typer.confirm("Do this?")
