"""`headrace demo`: a database with history and live changes, a real pipeline, and proof that the mirror is right."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from headrace.cli.failure import UNEXPECTED, Interruption, errors_reported, interruption
from headrace.cli.run import Debug, print_stopped, session_for
from headrace.errors import ConnectError, OptionError
from headrace_emulators.demo.folder import BROKER, LAKE, SERVER, make_folder, next_commands, write_pipelines
from headrace_emulators.demo.real_server import RealServer, real_server, to_download
from headrace_emulators.engine.archives import Archive

if TYPE_CHECKING:
    from headrace.pipeline import RunningPipeline
    from headrace_emulators.demo.workload import Workload

_LOOK_SECONDS = 0.25


class Database(StrEnum):
    FLIGHTS = "flights"
    SHOP = "shop"


class Source(StrEnum):
    """The kinds of database that a demo can have; PostgreSQL and MariaDB are real servers, the others are emulated."""

    POSTGRESQL = "postgresql"
    MARIADB = "mariadb"
    SQLSERVER = "sqlserver"
    DB2 = "db2"
    ORACLE = "oracle"


class Interrupted(Exception):
    """The user interrupted the demo."""


class Steps:
    """Says what is done, each step in a sentence with the time that it took.

    Args:
        out: where to; a terminal that can show it gets a check mark before each.
    """

    def __init__(self, out: Console) -> None:
        self._out = out
        self._mark = "\N{CHECK MARK} " if out.is_terminal and "utf" in out.encoding.lower() else ""
        self._last = time.monotonic()

    def done(self, sentence: str, style: str = "") -> None:
        """The step that began when the one before it ended is done."""
        now = time.monotonic()
        self._out.print(Text(f"{self._mark}{sentence} ({now - self._last:.1f} s)", style=style))
        self._last = now


def demo(
    source: Annotated[Source, typer.Option(help="Which kind of database is captured.")] = Source.POSTGRESQL,
    database: Annotated[
        Database | None,
        typer.Option(help="shop: several small tables; flights: a big one (SQL Server only, and its default)."),
    ] = None,
    dir: Annotated[
        Path | None, typer.Option("--dir", help="Where everything goes; by default a new folder here.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0, help="How long changes go on after the snapshot.")] = 30,
    seed: Annotated[int, typer.Option(help="The same seed makes the same changes.")] = 1,
    rate: Annotated[float, typer.Option(min=0.1, help="Transactions per second.")] = 20,
    kafka: Annotated[bool, typer.Option("--kafka", help="Go through a real Kafka broker on this machine.")] = False,
    debug: Debug = False,
) -> None:
    """Capture a database with history while it is changed, and prove that the mirror equals it."""
    out = Console(highlight=False, markup=False, soft_wrap=True)
    with errors_reported(debug), ExitStack() as cleanup:
        chosen = database or (Database.FLIGHTS if source is Source.SQLSERVER else Database.SHOP)
        if source is not Source.SQLSERVER and chosen is not Database.SHOP:
            raise OptionError(f"There is no demo '{chosen.value}' of {source.value}.", remedy="Use --database shop.")
        # To find out at once whether it can be started.
        archive = _to_download(source)
        folder = make_folder(dir)
        if archive is not None:
            out.print(f"{archive} comes from Maven ({archive.megabytes} MB)")
        server = real_server(source.value, folder / SERVER)
        out.print(f"Everything goes into {folder}")
        if server is not None and server.folder.parent != folder.absolute():
            out.print(f"but for the database, which can't be reached there: it is in {server.folder}")
        try:
            equal = _play(out, cleanup, folder, source.value, chosen.value, server, seconds, seed, rate, kafka, debug)
        except (Interrupted, KeyboardInterrupt):
            file = folder / "pipeline.yaml"
            if file.exists():
                print_stopped(out, file, once=True)
            else:
                out.print("Stopped.")
            return
        if not equal:
            raise typer.Exit(UNEXPECTED)


def _to_download(source: Source) -> Archive | None:
    try:
        return to_download(source.value)
    except ConnectError as error:
        other = f"use --source {Source.SQLSERVER.value}, which is emulated."
        remedy = f"{error.remedy.rstrip('.')}, or {other}" if error.remedy else f"Or {other}"
        raise ConnectError(error.message, remedy=remedy) from error


def _play(
    out: Console,
    cleanup: ExitStack,
    folder: Path,
    source: str,
    database: str,
    server: RealServer | None,
    seconds: float,
    seed: int,
    rate: float,
    kafka: bool,
    debug: bool,
) -> bool:
    from headrace.pipeline import load_pipeline
    from headrace_emulators.demo.workload import Workload

    steps = Steps(out)
    # The database is made in its own process while Spark starts in this one.
    workload = cleanup.enter_context(
        Workload(server.folder if server else folder / SERVER, database, seed, rate, source, server)
    )
    bootstrap = None
    if kafka:
        from headrace_emulators.kafka.broker import KafkaBroker

        bootstrap = cleanup.enter_context(KafkaBroker(folder / BROKER)).bootstrap
        out.print(f"Kafka listens on {bootstrap}")
    files = write_pipelines(folder, database, bootstrap, source, server)
    pipelines = [load_pipeline(file) for file in files]
    spark = session_for(pipelines, debug, short_lived=True)
    with interruption() as interrupted:
        while not workload.ready:
            _look(interrupted)
        steps.done(f"Spark runs, and database {database} is ready; from now on it changes {rate:g} times a second")
        workload.change()
        runs: list[RunningPipeline] = []
        cleanup.callback(lambda: [run.stop(0) for run in runs if run.active])
        for pipeline in pipelines:
            runs.append(pipeline.start(spark))
        _stream(out, runs, workload, interrupted, steps, seconds)
    from headrace_emulators.demo.comparison import compare

    found = compare(workload.file, folder / LAKE)
    if found.equal:
        steps.done(str(found), "green")
        out.print("\nTry now:")
        for word, command in next_commands(folder, files, workload.file, found.tables[0].table, server):
            out.print(f"  {word}:\n    {command}")
    else:
        out.print(Text(str(found), style="red"))
    return found.equal


def _stream(
    out: Console,
    runs: list[RunningPipeline],
    workload: Workload,
    interrupted: Interruption,
    steps: Steps,
    seconds: float,
) -> None:
    """Snapshot, then changes for some seconds, then everything that was captured meanwhile."""
    from headrace.observe.live import LiveView

    database, mirror = runs[0], runs[-1]
    # The demo makes its changes at a pace of its own, and its tables may be small.
    with LiveView(out, "What is in the mirror, with changes going on", rate=False) as view:

        def until(ended: Callable[[], bool]) -> None:
            while not ended():
                _look(interrupted)
                for run in runs:
                    # An error of any of them is raised here.
                    run.wait(0)
                workload.check()
                view.update(mirror.progress())

        until(lambda: database.progress().position != "" and not database.progress().snapshotting)
        steps.done("The snapshot is in the mirror, made while changes went on")
        end = time.monotonic() + seconds
        until(lambda: time.monotonic() >= end)
        workload.stop()
        steps.done("Changes followed the snapshot")
        until(lambda: workload.captured)
        for run in runs:
            # In this order: what the first has put into Kafka is what the second has to reach.
            run.finish_at_head()
            until(lambda run=run: run.wait(_LOOK_SECONDS))  # type: ignore[misc]
        view.update(mirror.progress(), last=True)
    steps.done(f"All {workload.transactions:,} transactions are in the mirror")


def _look(interrupted: Interruption) -> None:
    """Let a moment pass, or stop the demo when the user wants that."""
    if interrupted.requested.wait(_LOOK_SECONDS):
        raise Interrupted
