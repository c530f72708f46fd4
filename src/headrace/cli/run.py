"""`headrace run`: runs a pipeline until Ctrl-C, or with `--once` until the sinks have what the source has now."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from headrace.cli.failure import Interruption, errors_reported, interruption, program
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
        bool, typer.Option("--once", help="Stop when the sinks have everything that the source has now.")
    ] = False,
    ui: Annotated[
        bool,
        typer.Option("--ui", help="Show lag and throughput in a browser, on a page that only this machine can open."),
    ] = False,
    ui_port: Annotated[int, typer.Option(help="The port of that page; 0 picks a free one.", min=0, max=65535)] = 8480,
    break_lock: Annotated[
        bool,
        typer.Option(
            "--break-lock",
            help="Take a checkpoint that is not on this machine from a run that seems to hold it; that one stops "
            "before its next batch.",
        ),
    ] = False,
    debug: Debug = False,
) -> None:
    """Run a pipeline. It continues where it stopped. Ctrl-C ends it after the current batch."""
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
            with interruption() as interrupt:
                running = loaded.start(spark, once=once, break_lock=break_lock)
                running.watch.follow()
                if ui:
                    show_page(running, out, ui_port)
                show_until(running, out, loaded.name, interrupt, lambda: running.wait(_SHOW_SECONDS))
    except KeyboardInterrupt:
        # Before the first batch, or at the second Ctrl-C: the next run repeats what is not finished.
        print_stopped(out, pipeline, once)
        sys.stdout.flush()
        raise typer.Exit(0) from None
    if interrupt.requested.is_set():
        print_stopped(out, pipeline, once)
    elif once:
        out.print("The sinks have everything that the source had.")


def show_page(running: RunningPipeline, out: Console, port: int) -> None:
    """Serve the page of a run and print its address. Stops the run if the page can't be served."""
    from headrace.observe.server import LOOPBACK, ListenAddress

    try:
        page = running.watch.serve_page(ListenAddress(LOOPBACK, port))
    except BaseException:
        running.stop(STOP_SECONDS)
        raise
    out.print(f"Watch it at {page.url}", soft_wrap=True)


def session_for(pipelines: Sequence[Pipeline], debug: bool, *, short_lived: bool = False) -> SparkSession:
    """Spark on this machine with what the sources and sinks of these pipelines need."""
    from headrace.spark.session import silence, spark_session

    # By default, an idle stream reports its progress only every ten seconds.
    conf = {"spark.sql.streaming.noDataProgressEventInterval": "1000"}
    for pipeline in pipelines:
        conf |= pipeline.session_settings
    formats = sorted({name for pipeline in pipelines for name in pipeline.formats})
    spark = spark_session(
        f"headrace {pipelines[0].name}",
        jars=sorted({jar for pipeline in pipelines for jar in pipeline.jars}),
        conf=conf | ({f"spark.executorEnv.{FORMATS}": ",".join(formats)} if formats else {}),
        short_lived=short_lived,
    )
    if not debug:
        # An error is one sentence; Spark would print its stack traces around it.
        silence(spark)
    return spark


def show_until(
    running: RunningPipeline, out: Console, title: str, interrupt: Interruption, ended: Callable[[], bool]
) -> None:
    """Show the progress until `ended` is true, or until the user interrupts the run; then stop it in order."""
    from headrace.observe.live import LiveView

    with LiveView(out, title) as view:
        try:
            while not ended():
                view.update(running.progress())
                if interrupt.requested.is_set():
                    running.stop(STOP_SECONDS)
                    break
            view.update(running.progress(), last=True)
        except BaseException:
            # End a run that nobody watches any more, but raise the first error.
            if running.active:
                running.stop(0)
            raise


def print_stopped(out: Console, pipeline: Path, once: bool) -> None:
    again = f"{program('headrace')} run {shlex.quote(str(pipeline))}{' --once' if once else ''}"
    out.print(f"Stopped. To continue where it stopped, run: {again}", soft_wrap=True)
