"""`headrace convert`: converts a Debezium connector's configuration to a pipeline file."""

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
        Path | None, typer.Option("--output", "-o", help="Write the pipeline to this file instead of printing it.")
    ] = None,
    bootstrap_servers: Annotated[
        str,
        typer.Option(help="The Kafka brokers, as host:port separated by commas; Connect's configuration lacks them."),
    ] = "",
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Write the pipeline even if properties are lost, and replace the output file if it exists."
        ),
    ] = False,
    debug: Debug = False,
) -> None:
    """Convert a Debezium connector's configuration to a pipeline file.

    Writes nothing if the pipeline can't do what a property asks for, unless you use --force. Lists on stderr and at the
    end of the file what it leaves out, with the reason, and the defaults that differ from Debezium's. Passwords become
    references to environment variables. Connects to nothing.
    """
    with errors_reported(debug):
        from headrace.convert.config import convert as converted
        from headrace.errors import OptionError

        if output is not None and output.exists() and not force:
            raise OptionError(f"'{output}' already exists.", remedy="Choose another file, or use --force.")
        conversion = converted(file, bootstrap_servers=bootstrap_servers)
        if conversion.lost and not force:
            for left in conversion.lost:
                typer.echo(f"  {left}", err=True)
            things = f"{len(conversion.lost)} {'thing' if len(conversion.lost) == 1 else 'things'}"
            raise OptionError(
                f"'{file}' asks for {things} that the pipeline can't do, so nothing was written.",
                remedy="Correct or remove these properties, or write the pipeline without them with --force.",
            )
        if output is None:
            sys.stdout.write(conversion.text)
        else:
            try:
                output.write_text(conversion.text, encoding="utf-8")
            except OSError as error:
                raise OptionError(f"Can't write '{output}': {error.strerror}.", remedy="Check the path.") from None
        report = [f"{conversion.carried} of {conversion.carried + len(conversion.left)} properties were converted."]
        report += [f"  {left}" for left in conversion.lost]
        needless = sum(left.why == "not needed" for left in conversion.left)
        if needless:
            report.append(f"Not needed: {needless}; the end of the file says why.")
        if conversion.differences:
            report += [
                "Defaults that differ from Debezium's:",
                *(f"  {difference}." for difference in conversion.differences),
            ]
        if conversion.environment:
            report.append(f"Before a run, set: {', '.join(conversion.environment)}.")
        sys.stderr.write("\n".join(report) + "\n")
