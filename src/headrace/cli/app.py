"""The program `headrace`: its commands and its version."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headrace import __version__
from headrace.cli.check import check
from headrace.cli.convert import convert
from headrace.cli.decode import decode
from headrace.cli.init import init
from headrace.cli.plan import plan
from headrace.cli.run import run
from headrace.cli.signal import signal
from headrace.cli.status import status
from headrace.cli.verify import verify
from headrace_emulators.demo.command import demo

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
app.command()(verify)
app.command()(signal)
app.command()(decode)
app.command()(convert)
app.command()(demo)


def _version(asked: bool) -> None:
    if asked:
        print(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def headrace(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Change data capture for Apache Spark."""


def main() -> None:
    """Run the program and exit."""
    app()
    sys.exit(0)


if __name__ == "__main__":
    main()
