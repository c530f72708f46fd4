"""`headrace signal`: requests an ad-hoc snapshot from a running pipeline, or stops, pauses or resumes one."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headrace.cli.failure import errors_reported
from headrace.cli.run import Debug
from headrace.sources.signals import SENT, Signal, signal_data


def signal(
    pipeline: Annotated[Path, typer.Argument(help="The pipeline's YAML file.", show_default=False)],
    requested: Annotated[
        str, typer.Argument(metavar="SIGNAL", help=f"The signal: {', '.join(SENT)}.", show_default=False)
    ],
    tables: Annotated[
        str,
        typer.Option(help="Names or regular expressions of schema.table, separated by commas.", show_default=False),
    ] = "",
    filter: Annotated[str, typer.Option(help="Read only rows that match this SQL predicate.", show_default=False)] = "",
    type: Annotated[
        str, typer.Option(help="incremental: while the stream continues; blocking: the table's stream waits.")
    ] = "incremental",
    surrogate_key: Annotated[
        str, typer.Option(help="Cut the tables into chunks by this column, in place of their key.", show_default=False)
    ] = "",
    message: Annotated[str, typer.Option(help="A message for the log.", show_default=False)] = "",
    position: Annotated[
        str, typer.Option(help="Where the changes of the tables go on, as checkpoints spell it.", show_default=False)
    ] = "",
    id: Annotated[
        str, typer.Option(help="The signal's id in the log. Default: a generated one.", show_default=False)
    ] = "",
    debug: Debug = False,
) -> None:
    """Send a signal to a running pipeline. A pipeline that isn't running reads it when it starts.

    The signal becomes a row of the source's signal table if it has one, else a file in its signal folder.
    """
    out = Console(highlight=False, markup=False, soft_wrap=True)
    with errors_reported(debug) as shown:
        from headrace.errors import ConnectError, OptionError
        from headrace.pipeline.checkpoint import check_sound
        from headrace.pipeline.model import read_model
        from headrace.sources.base import Source

        model = read_model(pipeline)
        shown.hide = model.hide
        if not isinstance(model.source, Source):
            raise OptionError(
                f"The source of '{model.name}' takes no signals.", remedy="Signal the pipeline that reads the database."
            )
        check_sound(model.checkpoint, model.source_type)
        # A comma in braces belongs to a regular expression.
        wanted = [name.strip() for name in re.split(r",(?![^{]*\})", tables) if name.strip()]
        data = signal_data(
            requested,
            wanted,
            kind=type,
            filter=filter,
            message=message,
            position=position,
            surrogate_key=surrogate_key,
        )
        sent = Signal(id or f"headrace-{uuid.uuid4().hex[:12]}", requested, data)
        try:
            model.source.check_signal(sent)
        except ConnectError as error:
            typer.echo(model.hide(f"Not checked, because the database can't be reached: {error}"), err=True)
        for location in model.source.signal(sent):
            out.print(model.hide(f"Signal '{sent.id}' ({sent.type}) is in {location}."))
