"""`headrace ui`: a page of several pipelines, whether they run or not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headrace.cli.failure import errors_reported
from headrace.cli.run import Debug, session_for


def ui(
    pipelines: Annotated[list[Path], typer.Argument(help="The pipelines' YAML files.", show_default=False)],
    port: Annotated[int, typer.Option(help="The page's port; 0 picks a free one.", min=0, max=65535)] = 8480,
    debug: Debug = False,
) -> None:
    """Show pipelines in a browser, whether they run or not, on a page that only this machine can open.

    Looks at their checkpoints, and at the sources of those that don't run. Disturbs no run. Ctrl-C ends it.
    """
    out = Console(highlight=False, markup=False, soft_wrap=True)
    with errors_reported(debug) as shown:
        from headrace.observe.checkpoint import local_path
        from headrace.observe.server import LOOPBACK, ListenAddress
        from headrace.pipeline import load_pipeline
        from headrace.pipeline.pipeline import hiding, serve_pages

        loaded = [load_pipeline(file) for file in pipelines]
        shown.hide = hiding(loaded)
        elsewhere = [one for one in loaded if local_path(one.checkpoint) is None]
        spark = session_for(elsewhere, debug) if elsewhere else None
        with serve_pages(loaded, ListenAddress(LOOPBACK, port), spark=spark) as server:
            out.print(f"Watch {'it' if len(loaded) == 1 else 'them'} at {server.url} until Ctrl-C.")
            try:
                server.join()
            except KeyboardInterrupt:
                return
