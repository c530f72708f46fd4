"""`headrace run`: run a pipeline file until Ctrl-C, or with `--once` until everything is there."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from headrace.cli.failure import errors_reported
from headrace.cli.interruption import Interruption, interruption
from headrace.cli.invocation import program
from headrace.spark.daemon import FORMATS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipeline import Pipeline, RunningPipeline

STOP_SECONDS = 30.0
_SHOW_SECONDS = 0.5

Debug = Annotated[bool, typer.Option("--debug", help="Show stack traces.")]


def run(
    pipeline: Annotated[Path, typer.Argument(help="The pipeline's YAML file.", show_default=False)],
    once: Annotated[
        bool, typer.Option("--once", help="End when everything is there that the source offers now.")
    ] = False,
    ui: Annotated[
        bool,
        typer.Option("--ui", help="Show lag and throughput in a browser, on a page that only this machine reaches."),
    ] = False,
    ui_port: Annotated[int, typer.Option(help="The port of that page; 0 for any free one.", min=0, max=65535)] = 8480,
    debug: Debug = False,
) -> None:
    """Run a pipeline. It goes on where it stopped; Ctrl-C ends it after the batch that is being written."""
    out = Console(highlight=False, markup=False)
    try:
        with errors_reported(debug) as shown:
            from headrace.pipeline import load_pipeline

            loaded = load_pipeline(pipeline)
            shown.hide = loaded.hide
            tables = loaded.check()
            if tables:
                names = ", ".join(table.id.path for table in tables[:8]) + (", ..." if len(tables) > 8 else "")
                out.print(f"{loaded.name}: {len(tables)} table{'s' if len(tables) > 1 else ''} ({names})")
            spark = session_for([loaded], debug)
            with interruption() as asked:
                running = loaded.start(spark, once=once)
                if ui:
                    show_page(running, out, ui_port)
                show_until(running, out, loaded.name, asked, lambda: running.wait(_SHOW_SECONDS))
    except KeyboardInterrupt:
        # Before the first batch, or at the second Ctrl-C: what was not finished comes again.
        print_stopped(out, pipeline, once)
        sys.stdout.flush()
        raise typer.Exit(0) from None
    if asked.asked.is_set():
        print_stopped(out, pipeline, once)
    elif once:
        out.print("Everything that the source offered is in the sinks.")


def show_page(running: RunningPipeline, out: Console, port: int) -> None:
    """Serve the page of a run, and say where; a run whose page can't be served is ended."""
    from headrace.observe.server import LOOPBACK, ListenAddress

    try:
        page = running.watch.serve_page(ListenAddress(LOOPBACK, port))
    except BaseException:
        running.stop(STOP_SECONDS)
        raise
    out.print(f"Watch it at {page.url}", soft_wrap=True)


def session_for(pipelines: Sequence[Pipeline], debug: bool, *, short_lived: bool = False) -> SparkSession:
    """Spark on this machine with what the sources and sinks of these pipelines need."""
    from headrace.spark.session import spark_session

    # Progress of an idle stream is otherwise told every ten seconds only.
    conf = {"spark.sql.streaming.noDataProgressEventInterval": "1000"}
    formats = sorted({name for pipeline in pipelines for name in pipeline.formats})
    spark = spark_session(
        f"headrace {pipelines[0].name}",
        jars=sorted({jar for pipeline in pipelines for jar in pipeline.jars}),
        conf=conf | ({f"spark.executorEnv.{FORMATS}": ",".join(formats)} if formats else {}),
        short_lived=short_lived,
    )
    if not debug:
        # What goes wrong is told in one sentence; Spark would print its traces around it.
        spark.sparkContext.setLogLevel("OFF")
    return spark


def show_until(
    running: RunningPipeline, out: Console, title: str, asked: Interruption, ended: Callable[[], bool]
) -> None:
    """Show the progress until `ended` says so, or until the user asks for the end, and then stop it in order."""
    from headrace.observe.live import LiveView

    with LiveView(out, title) as view:
        try:
            while not ended():
                view.update(running.progress())
                if asked.asked.is_set():
                    running.stop(STOP_SECONDS)
                    break
            view.update(running.progress(), last=True)
        except BaseException:
            # A run that nobody watches any more is ended, but the error that came first is the one to tell.
            if running.active:
                running.stop(0)
            raise


def print_stopped(out: Console, pipeline: Path, once: bool) -> None:
    """Say how to go on."""
    again = f"{program('headrace')} run {shlex.quote(str(pipeline))}{' --once' if once else ''}"
    out.print(f"Stopped. To go on where it stopped, run: {again}", soft_wrap=True)
