"""`headrace convert`: a Debezium connector's configuration as a pipeline file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.failure import errors_reported
from headrace.cli.run import Debug


def convert(
    file: Annotated[
        Path,
        typer.Argument(
            help="Properties of Debezium Server or Kafka Connect, or Kafka Connect's JSON.", show_default=False
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the pipeline here; else it is printed.")
    ] = None,
    bootstrap_servers: Annotated[
        str,
        typer.Option(help="The Kafka brokers, host:port with commas between, which Connect's configuration lacks."),
    ] = "",
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Write the pipeline even if properties are lost, and replace the output file if it exists."
        ),
    ] = False,
    debug: Debug = False,
) -> None:
    """Make a pipeline file of a Debezium connector's configuration.

    Nothing is written where a property asks for something that the pipeline would not do, unless --force is given.
    What is not carried over is listed on stderr and at the end of the file, with the reason, and so are defaults that
    differ from Debezium's. Passwords become references to environment variables. Nothing is connected to.
    """
    with errors_reported(debug):
        from headrace.convert.config import convert as converted
        from headrace.errors import OptionError

        if output is not None and output.exists() and not force:
            raise OptionError(f"'{output}' exists.", remedy="Choose another file, or use --force.")
        made = converted(file, bootstrap_servers=bootstrap_servers)
        if made.lost and not force:
            for left in made.lost:
                typer.echo(f"  {left}", err=True)
            things = f"{len(made.lost)} {'thing' if len(made.lost) == 1 else 'things'}"
            raise OptionError(
                f"'{file}' asks for {things} that the pipeline would not do, so nothing is written.",
                remedy="Correct or remove these properties, or write the pipeline without them with --force.",
            )
        if output is None:
            sys.stdout.write(made.text)
        else:
            try:
                output.write_text(made.text, encoding="utf-8")
            except OSError as error:
                raise OptionError(f"'{output}' can't be written: {error.strerror}.", remedy="Check the path.") from None
        said = [f"{made.carried} of {made.carried + len(made.left)} properties are carried over."]
        said += [f"  {left}" for left in made.lost]
        needless = sum(left.why == "not needed" for left in made.left)
        if needless:
            said.append(f"Not needed: {needless}; the end of the file says why.")
        if made.differences:
            said += ["Defaults that differ from Debezium's:", *(f"  {difference}." for difference in made.differences)]
        if made.environment:
            said.append(f"Set before a run: {', '.join(made.environment)}.")
        sys.stderr.write("\n".join(said) + "\n")
