"""`headrace signal`: ask a running pipeline for an ad-hoc snapshot, or to stop, pause or resume one."""

from __future__ import annotations

import uuid
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headrace.cli.failure import failures_told
from headrace.cli.run import Debug


class Asked(StrEnum):
    """What can be asked."""

    EXECUTE = "execute-snapshot"
    STOP = "stop-snapshot"
    PAUSE = "pause-snapshot"
    RESUME = "resume-snapshot"
    LOG = "log"


class Kind(StrEnum):
    """How tables are read again."""

    INCREMENTAL = "incremental"
    BLOCKING = "blocking"


def signal(
    pipeline: Annotated[Path, typer.Argument(help="The pipeline's YAML file.", show_default=False)],
    asked: Annotated[Asked, typer.Argument(metavar="SIGNAL", help="What to ask for.", show_default=False)],
    tables: Annotated[
        str,
        typer.Option(
            help="Tables, with commas between: names or regular expressions of schema.table.", show_default=False
        ),
    ] = "",
    filter: Annotated[str, typer.Option(help="Read only rows that meet this SQL predicate.", show_default=False)] = "",
    type: Annotated[
        Kind, typer.Option(help="incremental: beside the stream; blocking: the table's own stream waits.")
    ] = Kind.INCREMENTAL,
    message: Annotated[str, typer.Option(help="What to write into the log.", show_default=False)] = "",
    id: Annotated[str, typer.Option(help="How the log calls the signal; by default made up.", show_default=False)] = "",
    debug: Debug = False,
) -> None:
    """Ask a pipeline for something while it runs; one that does not run does it when it is started.

    The signal becomes a row of the source's signal table where it has one, else a file in its signal folder.
    """
    out = Console(highlight=False, markup=False, soft_wrap=True)
    with failures_told(debug) as shown:
        from headrace.errors import OptionError
        from headrace.pipeline.model import read_model
        from headrace.sources.base import Source
        from headrace.sources.signals import Signal, signal_data

        model = read_model(pipeline)
        shown.hide = model.hide
        if not isinstance(model.source, Source):
            raise OptionError(
                f"The source of '{model.name}' takes no signals.", remedy="Ask the pipeline that reads the database."
            )
        wanted = [name.strip() for name in tables.split(",") if name.strip()]
        if asked is not Asked.EXECUTE and (filter or type is not Kind.INCREMENTAL):
            raise OptionError("Only execute-snapshot has '--filter' and '--type'.", remedy="Leave them out.")
        data = signal_data(asked.value, wanted, kind=type.value, filter=filter, message=message)
        sent = Signal(id or f"headrace-{uuid.uuid4().hex[:12]}", asked.value, data)
        for place in model.source.signal(sent):
            out.print(model.hide(f"Signal '{sent.id}' ({sent.type}) is in {place}."))
