"""The program `headrace`: its commands and its version."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from importlib.metadata import EntryPoints, entry_points
from typing import Annotated, Any

import typer

from headrace.cli.check import check
from headrace.cli.convert import convert
from headrace.cli.dead_letters import commands as dead_letters
from headrace.cli.decode import decode
from headrace.cli.failure import USER_ERROR
from headrace.cli.init import init
from headrace.cli.plan import plan
from headrace.cli.repair import commands as repair
from headrace.cli.run import run
from headrace.cli.signal import signal
from headrace.cli.status import status
from headrace.cli.tables import tables
from headrace.cli.ui import ui
from headrace.cli.verify import verify
from headrace.errors import HeadraceDeprecationWarning
from headrace.versions import __version__

app = typer.Typer(
    name="headrace",
    help="Change data capture for Apache Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(init)
app.command()(check)
app.command()(plan)
app.command()(run)
app.command()(status)
app.command()(ui)
app.command()(verify)
app.command()(tables)
app.command()(signal)
app.add_typer(repair)
app.add_typer(dead_letters)
app.command()(decode)
app.command()(convert)


def _no_demo() -> None:
    """Show Headrace in action. Needs the package headrace-emulators: pip install 'headrace\\[demo]'."""
    sys.stderr.write(
        "The demo is in the package headrace-emulators, which is not installed. Run pip install 'headrace[demo]'.\n"
    )
    raise typer.Exit(USER_ERROR)


def _add_commands(installed: EntryPoints) -> None:
    """Add the commands that other packages bring; the demo is one of them."""
    for entry in installed:
        app.command(entry.name)(entry.load())
    if "demo" not in installed.names:
        app.command("demo")(_no_demo)


def _version(requested: bool) -> None:
    if requested:
        print(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def headrace(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Change data capture for Apache Spark."""


def _show_as_a_sentence(show: Callable[..., None]) -> Callable[..., None]:
    """Like `warnings.showwarning`, but what Headrace says to its users is one line without a place in the code."""

    def shown(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, HeadraceDeprecationWarning):
            sys.stderr.write(f"Warning: {message}\n")
        else:
            show(message, category, *where, **more)

    return shown


def main() -> None:
    """Run the program and exit."""
    warnings.showwarning = _show_as_a_sentence(warnings.showwarning)
    # Here and not at import: commands of other packages import this one.
    _add_commands(entry_points(group="headrace.commands"))
    app()
    sys.exit(0)


if __name__ == "__main__":
    main()
