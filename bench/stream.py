"""The shop of the demo, streamed: CPU per change by part when warm, and the wall time of `headrace run --once`, cold.

11,000 transactions (about 123,000 changes of 5 tables) wait in the emulated SQL Server behind a snapshot that was
taken. Warm: a pipeline writes them as messages to files, several times in one Spark session, each time from a copy of
the same checkpoint. CPU is user and system time of the whole process tree, ended processes included; the share of the
emulator's own fetch, which a real server would not take here, is measured apart. Cold: `headrace run --once` in a new
process, to files and to Delta, and once more with nothing to do.

    python bench/stream.py [--transactions 11000] [--runs 4] [--format debezium_json] [--warm] [--cold]
"""

from __future__ import annotations

import argparse
import ctypes
import datetime as dt
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.sources.base import Slice, Source

TICK = os.sysconf("SC_CLK_TCK")
_SET_CHILD_SUBREAPER = 36
"""Of Linux's prctl."""


@dataclass(frozen=True)
class Cost:
    """Seconds of CPU by part, and of the clock."""

    driver: float
    jvm: float
    python: float
    wall: float

    def __sub__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, name) - getattr(other, name) for name in ("driver", "jvm", "python", "wall")))

    @property
    def cpu(self) -> float:
        """All parts."""
        return self.driver + self.jvm + self.python


def shares(costs: Sequence[Cost]) -> str:
    """Where the CPU of several runs went, in medians."""
    parts = ((name, statistics.median(getattr(cost, name) for cost in costs)) for name in ("driver", "jvm", "python"))
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts)


def main() -> None:
    """Set up, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transactions", type=int, default=11_000)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--format", default="debezium_json")
    parser.add_argument("--warm", action="store_true", help="only the warm part")
    parser.add_argument("--cold", action="store_true", help="only the cold part")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="headrace-stream-"))
    try:
        both = arguments.warm == arguments.cold
        measure(folder, arguments, warm=both or arguments.warm, cold=both or arguments.cold)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(folder: Path, arguments: argparse.Namespace, *, warm: bool, cold: bool) -> None:
    """All of it in one folder."""
    kinds = ["files", "delta"] if cold else ["files"]
    aside(filled, folder, kinds, arguments.format, arguments.transactions)
    if cold:
        for kind in kinds:
            copy = copied(folder / kind, folder / "cold")
            seconds = [once(copy), once(copy)]
            print(f"cold, to {kind}: {seconds[0]:.1f} s; with nothing to do {seconds[1]:.1f} s", flush=True)
    if warm:
        fetch, read, changes = apart(folder)
        print(
            f"{changes:,} changes; CPU per change of the emulator's own fetch {fetch / changes * 1e6:.1f} us, "
            f"with change rows {read / changes * 1e6:.1f} us",
            flush=True,
        )
        warmed(folder, arguments.runs, changes)


def aside(work: Callable[..., None], *arguments: object) -> None:
    """Do it in a process of its own, whose time does not count."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"{work.__name__} ended with {process.exitcode}")


def filled(folder: Path, kinds: list[str], format: str, transactions: int) -> None:
    """The shop with a pipeline of each kind, whose checkpoints stand at the snapshot, and then its traffic."""
    from headrace_emulators.sqlserver import EmulatedServer
    from headrace_emulators.sqlserver.shop import Shop

    shop = Shop.create(EmulatedServer(folder / "server"))
    for kind in kinds:
        pipeline(folder / kind, folder / "server", kind, format)
        with shop.database.capturing():
            once(folder / kind)
    shop.replay(transactions=transactions)
    shop.database.capture()


def pipeline(folder: Path, server: Path, kind: str, format: str) -> None:
    """A pipeline file that writes the shop to a folder beside it."""
    folder.mkdir(parents=True)
    text = {
        "source": {
            "type": "sqlserver",
            "driver": "emulator",
            "hostname": str(server),
            "database": "shop",
            "tables": ["dbo.*"],
        },
        "sinks": [{"type": kind, "path": "./out"}],
        "pipeline": {"name": "bench", "checkpoint": "./checkpoint", "trigger": "100ms"},
    }
    if kind == "files":
        prefix = {"topic.prefix": "bench"} if format.startswith("debezium") else {}
        text["format"] = {"type": format, **prefix}
    (folder / "pipeline.yaml").write_text(json.dumps(text))


def once(folder: Path) -> float:
    """`headrace run --once` in a new process; seconds."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "run", "--once", str(folder / "pipeline.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\n{done.stderr}")
    return time.perf_counter() - started


def copied(folder: Path, place: Path) -> Path:
    """A copy of a pipeline with its checkpoint and what it wrote."""
    shutil.rmtree(place, ignore_errors=True)
    return Path(shutil.copytree(folder, place))


def apart(folder: Path) -> tuple[float, float, int]:
    """Seconds of CPU for the fetch of the emulator's driver, and for the same with change rows; how many changes."""
    from headrace.pipeline.checkpoint import known_offsets
    from headrace.pipeline.model import read_model
    from headrace.sources.base import Limit
    from headrace.sources.databases import Databases

    model = read_model(folder / "files" / "pipeline.yaml")
    databases = Databases(model.source)
    start = known_offsets(model.checkpoint, None)
    slices = databases.plan(start, databases.advance(start, Limit(), dt.datetime.now(dt.UTC)))
    times = [time.process_time()]
    fetched(model.source, [piece for _, piece in slices])
    times.append(time.process_time())
    changes = sum(b.num_rows for name, piece in slices for b in databases.read(name, piece))
    times.append(time.process_time())
    return times[1] - times[0], times[2] - times[1], changes


def fetched(source: Source, slices: Sequence[Slice]) -> int:
    """The rows of the statements of a batch, as the emulator's driver gives them."""
    from headrace.sources.change_tables.captured_table import ARROW_ROWS
    from headrace.sources.change_tables.slices import SnapshotSlice, StreamSlice, slice_of

    count = 0
    with source._connect() as connection:
        dialect = connection.dialect
        for planned in slices:
            piece = slice_of(planned, dialect)
            if isinstance(piece, StreamSlice):
                batches = dialect.changes(connection, piece.window, source.settings, rows=ARROW_ROWS)
            elif isinstance(piece, SnapshotSlice):
                table, chunk = piece.table, piece.chunk
                sql = connection.statements.rows_in_range(table, table.chunk_key, chunk.lower, chunk.upper)
                batches = connection.batches(*sql)
            else:
                continue
            count += sum(batch.num_rows for batch in batches)
    return count


def warmed(folder: Path, runs: int, changes: int) -> None:
    """Run the same batch in one session, each time from a copy of the checkpoint."""
    from headrace.pipeline import load_pipeline
    from headrace.spark.session import spark_session

    spark = spark_session("bench-stream")
    costs = []
    for number in range(runs):
        copy = copied(folder / "files", folder / f"warm{number}")
        loaded = load_pipeline(copy / "pipeline.yaml")
        before = spent()
        loaded.start(spark, once=True).wait()
        cost = spent() - before
        if number:
            costs.append(cost)
        parts = ", ".join(f"{n} {getattr(cost, n) / changes * 1e6:.1f}" for n in ("jvm", "python", "driver"))
        print(
            f"  run {number}: {cost.cpu / changes * 1e6:.1f} us of CPU per change ({parts}), {cost.wall:.1f} s",
            flush=True,
        )
    cpu = [cost.cpu / changes * 1e6 for cost in costs]
    print(f"warm, to files: {statistics.median(cpu):.1f} us of CPU per change ({min(cpu):.1f} to {max(cpu):.1f})")


def adopt_orphans() -> None:
    """What descendants of this process leave behind when they end becomes its own, so that `spent` counts it on.

    Spark ends its Python workers together with the process that forked them, and nobody asks for their times.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


SERVERS = ("mariadbd", "mysqld", "postgres")
"""Databases that a bench starts; what they spend is not the tool's."""


def spent(root: int | None = None) -> Cost:
    """What a process (this one) and all its descendants spent so far, ended ones included."""
    own = os.getpid() if root is None else root
    found: dict[int, tuple[str, int, float, float]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue
        name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        times = [int(value) / TICK for value in rest[11:15]]
        found[int(entry.name)] = (name, int(rest[1]), times[0] + times[1], times[2] + times[3])
    driver, todo = found[own][2], [own]
    jvm = python = 0.0
    while todo:
        pid = todo.pop()
        name, _, lived, ended = found[pid]
        if pid != own:
            jvm += lived if name == "java" else 0.0
            python += (0.0 if name == "java" or name in SERVERS else lived) + ended
        todo += [child for child, facts in found.items() if facts[1] == pid]
    return Cost(driver, jvm, python, time.perf_counter())


if __name__ == "__main__":
    main()
