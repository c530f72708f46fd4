"""From a commit to where it rests: how long each change takes at a steady rate, and whether memory stays flat.

Transactions of three rows over ten tables are committed at a fixed rate on a real database. Each row says when it was
written, by the clock of this machine. Its latency ends where a reader can have it: for Kafka when a consumer that
polls all the time gets the message, for Delta when the commit's file is in the table's log. The first changes warm the
tool up and do not count. Tools run one after the other, each alone with the server, the broker and the consumer.

    python bench/latency.py [--source postgresql] [--sink kafka] [--rate 1000] [--warm 120] [--minutes 5]
    python bench/latency.py --source mariadb --beside        Debezium Server too (Kafka only)
    python bench/latency.py --sink delta --kill-every 180    Headrace is killed and started again

At the end all changes must be there: in Kafka each at least once, those of a row in their order; for Delta
`headrace verify` compares the tables with the database. `--plot FILE` draws latency and memory over time (`pip install
matplotlib`), `--json FILE` keeps the figures.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from beside_debezium import TABLES, Debezium, Headrace, Tool, proportional
from confluent_kafka import Consumer
from memory import below, kind_of
from stream import Cost, spent
from timed import SOURCES, Timed

from headrace_emulators.kafka.broker import KafkaBroker

ROWS_OF_TRANSACTION = 3
TICK_SECONDS = 0.05
"""How often transactions are committed: those of a tick follow each other at once."""
_MOST_TICKS = 20
"""How far the workload may fall behind before the run stops: then the server is the bottleneck, not the tool."""
_EDGES = (0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 15, 30, 60, float("inf"))


class Commits(threading.Thread):
    """Commits transactions at a steady rate until it is told to end.

    Args:
        timed: where.
        rate: changes per second.
        first: the number of the first transaction.
    """

    def __init__(self, timed: Timed, rate: int, first: int) -> None:
        super().__init__(daemon=True)
        self._cursor = timed.connect()
        self._of_tick = rate * TICK_SECONDS / ROWS_OF_TRANSACTION
        self._first = first
        self._ending = threading.Event()
        self.transactions = 0
        self.failure: Exception | None = None

    def run(self) -> None:
        began, done = time.monotonic(), 0
        try:
            while not self._ending.is_set():
                ticks = int((time.monotonic() - began) / TICK_SECONDS)
                if ticks - done > _MOST_TICKS:
                    raise RuntimeError(f"the server does not take {self._of_tick / TICK_SECONDS:.0f} transactions/s")
                due = round(ticks * self._of_tick)
                if due > self.transactions:
                    self._cursor.execute("call timed(%s, %s)", (self._first + self.transactions, self._first + due - 1))
                    self.transactions = due
                done = int((time.monotonic() - began) / TICK_SECONDS) if ticks == done else ticks
                self._ending.wait(max(0.0, began + (done + 1) * TICK_SECONDS - time.monotonic()))
        except Exception as failure:
            self.failure = failure

    def end(self) -> int:
        """No more; how many changes were made."""
        self._ending.set()
        self.join()
        if self.failure is not None:
            sys.exit(f"The workload stopped: {self.failure}")
        return self.transactions * ROWS_OF_TRANSACTION


class Arrivals(ABC):
    """When changes came to rest the first time: when they were made and when they were there, in microseconds."""

    @abstractmethod
    def count(self) -> int:
        """How many timed changes are there so far."""

    @abstractmethod
    def end(self) -> np.ndarray:
        """No more are waited for; an array of (made, there)."""


class KafkaArrivals(Arrivals, threading.Thread):
    """What a consumer of all topics of a tool gets of the changes that are made from now on.

    A snapshot has those that were made for the tool before.
    """

    def __init__(self, bootstrap: str, prefix: str) -> None:
        threading.Thread.__init__(self, daemon=True)
        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"latency-{prefix}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1000,
                "fetch.wait.max.ms": 10,
            }
        )
        self._consumer.subscribe([rf"^{prefix}\..*timed_[0-9]"])
        self._begun = time.time_ns() // 1000
        self._found: dict[tuple[str, int, int], int] = {}
        self._newest: dict[tuple[str, int], int] = {}
        self._ending = threading.Event()
        self.repeated = 0
        self.disordered = 0
        self.start()

    def run(self) -> None:
        while not self._ending.is_set():
            messages = self._consumer.consume(1000, 0.05)
            there = time.time_ns() // 1000
            for message in messages:
                if message.error() or message.value() is None:
                    continue
                row = json.loads(message.value())["after"]
                if row["made"] >= self._begun:
                    self._take((message.topic(), row["id"]), row["made"], there)
        self._consumer.close()

    def _take(self, row: tuple[str, int], made: int, there: int) -> None:
        if (*row, made) in self._found:
            self.repeated += 1
            return
        self._found[*row, made] = there
        if made < self._newest.get(row, 0):
            self.disordered += 1
        self._newest[row] = made

    def count(self) -> int:
        return len(self._found)

    def end(self) -> np.ndarray:
        self._ending.set()
        self.join()
        made = (key[2] for key in self._found)
        return np.array(list(zip(made, self._found.values(), strict=True)), dtype=np.int64).reshape(-1, 2)


class DeltaArrivals(Arrivals, threading.Thread):
    """What is in the commits of a tool's Delta tables, by the time at which a commit's file was written."""

    def __init__(self, lake: Path) -> None:
        threading.Thread.__init__(self, daemon=True)
        self._lake = lake
        self._newest: dict[Path, int] = {}
        self._found: list[np.ndarray] = []
        self._seen: set[Path] = set()
        self._ending = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._ending.wait(0.2):
            self._look()

    def _look(self) -> None:
        for commit in sorted(self._lake.glob("*/timed_*/_delta_log/*.json")):
            if commit in self._seen:
                continue
            self._seen.add(commit)
            table = commit.parents[1]
            there = int(commit.stat().st_mtime_ns // 1000)
            actions = [json.loads(line) for line in commit.read_text().splitlines()]
            made = [
                pq.read_table(table / action["add"]["path"], columns=["made"])["made"].to_numpy()
                for action in actions
                if action.get("add", {}).get("dataChange")
            ]
            if not made:
                continue
            # A file that is written again holds older rows too; of those the newest commit before tells.
            before = self._newest.get(table, 0)
            values = np.unique(np.concatenate(made))
            values = values[values > before]
            if len(values):
                self._newest[table] = int(values[-1])
                self._found.append(np.stack([values, np.full(len(values), there)], axis=1))

    def count(self) -> int:
        return sum(map(len, self._found))

    def end(self) -> np.ndarray:
        self._ending.set()
        self.join()
        self._look()
        return np.concatenate(self._found) if self._found else np.empty((0, 2), dtype=np.int64)


class HeadraceToDelta(Headrace):
    """`headrace run` with a pipeline file whose sink is Delta."""

    def sections(self) -> dict[str, object]:
        return {"sinks": [{"type": "delta", "path": "./lake"}]}


@dataclass
class Watch(threading.Thread):
    """The memory of a tool over time."""

    tool: Tool
    samples: list[tuple[float, int, int]] = field(default_factory=list)
    """Seconds since the epoch, megabytes of its JVMs, megabytes of its Python processes; proportional set sizes."""

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self._ending = threading.Event()

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        while not self._ending.wait(5):
            jvm = python = 0
            for pid in (self.tool.pid, *below(self.tool.pid)):
                size = proportional(pid) // 1024
                if _is_java(pid):
                    jvm += size
                else:
                    python += size
            self.samples.append((time.time(), jvm, python))

    def end(self) -> None:
        """Look no more."""
        self._ending.set()
        self.join()


def _is_java(pid: int) -> bool:
    if kind_of(pid) == "driver JVM":
        return True
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    except OSError:
        return False


@dataclass(frozen=True)
class Measured:
    """What one tool did.

    Args:
        tool: its kind.
        arrivals: (made, there) of each change that counts, in microseconds.
        memory: as `Watch.samples`.
        cost: CPU of all its processes while it was measured; None where it was killed.
        seconds: how long that was.
        kills: how often it was killed and started again.
    """

    tool: str
    arrivals: np.ndarray
    memory: list[tuple[float, int, int]]
    cost: Cost | None
    seconds: float
    kills: int = 0

    @property
    def latencies(self) -> np.ndarray:
        """In seconds."""
        return np.asarray((self.arrivals[:, 1] - self.arrivals[:, 0]) / 1e6)

    def report(self) -> str:
        """Quantiles, a histogram, and memory at the beginning, in the middle and at the end."""
        late = self.latencies
        quantiles = ", ".join(f"p{q:g} {np.percentile(late, q):.2f} s" for q in (50, 90, 99, 99.9))
        lines = [
            f"{self.tool}: {len(late):,} changes in {self.seconds / 60:.1f} min; {quantiles}, most {late.max():.2f} s"
            + (f"; killed {self.kills} times" if self.kills else "")
        ]
        if self.cost is not None:
            parts = ", ".join(f"{name} {getattr(self.cost, name) / self.seconds:.2f}" for name in ("jvm", "python"))
            lines.append(f"  CPU {self.cost.cpu / self.seconds:.2f} cores ({parts})")
        counts, _ = np.histogram(late, bins=(0, *_EDGES))
        for edge, count in zip(_EDGES, counts, strict=True):
            if count:
                lines.append(f"  up to {edge:>5} s {count:>10,} {'#' * max(1, round(50 * count / len(late)))}")
        if self.memory:
            shown = [self.memory[round(part * (len(self.memory) - 1))] for part in (0, 0.25, 0.5, 0.75, 1)]
            told = "; ".join(f"{jvm} + {python}" for _, jvm, python in shown)
            most = max(jvm + python for _, jvm, python in self.memory)
            lines.append(f"  memory, JVM + Python, from beginning to end, MB: {told}; at most {most}")
        by_minute = self.by_minute()
        lines.append("  p99 of each minute, s: " + " ".join(f"{p99:.1f}" for _, _, p99 in by_minute))
        return "\n".join(lines)

    def by_minute(self) -> list[tuple[int, float, float]]:
        """Minute, median and 99th percentile, by when changes were made."""
        minutes = (self.arrivals[:, 0] - self.arrivals[0, 0]) // 60_000_000
        late = self.latencies
        return [
            (int(m), float(np.percentile(late[minutes == m], 50)), float(np.percentile(late[minutes == m], 99)))
            for m in np.unique(minutes)
        ]


class Bench:
    """A database and a broker, and tools that are measured one after the other."""

    def __init__(self, folder: Path, timed: Timed, bootstrap: str, arguments: argparse.Namespace) -> None:
        self._folder = folder
        self._timed = timed
        self._bootstrap = bootstrap
        self._arguments = arguments
        self._number = 0

    def measure(self, kind: type[Tool], sink: str) -> Measured:
        """One tool at the steady rate: warmed up, then measured."""
        self._number += 1
        tool = kind(self._folder, self._timed.database, self._bootstrap, self._number, self._timed.tables)
        arguments = self._arguments
        with tool:
            lake = tool.folder / "lake"
            arrivals = KafkaArrivals(self._bootstrap, tool.name) if sink == "kafka" else DeltaArrivals(lake)
            self._snapshot_done(tool, sink)
            commits = Commits(self._timed, arguments.rate, first=self._number * 10**9)
            commits.start()
            self._sleep(tool, commits, arguments.warm)
            watch, before, first = Watch(tool), spent(tool.pid), time.time_ns() // 1000
            watch.start()
            kills = self._sleep(tool, commits, arguments.minutes * 60, arguments.kill_every)
            # What a process that was killed had spent is not known.
            cost = None if kills else spent(tool.pid) - before
            last = time.time_ns() // 1000
            watch.end()
            changes = commits.end()
            self._drain(tool, arrivals, changes, sink)
            found = arrivals.end()
            if sink == "delta":
                self._verify(tool)
        if isinstance(arrivals, KafkaArrivals):
            if len(found) != changes or arrivals.disordered:
                sys.exit(f"{tool.name} wrote {len(found):,} of {changes:,}, {arrivals.disordered:,} out of order.")
            print(f"{tool.name}: all {changes:,} changes in order, {arrivals.repeated:,} came again", flush=True)
        counted = found[(found[:, 0] >= first) & (found[:, 0] < last)]
        return Measured(type(tool).__name__, counted, watch.samples, cost, (last - first) / 1e6, kills)

    def _verify(self, tool: Tool) -> None:
        """Let the pipeline come to the end, and compare its tables with the database."""
        tool.stop()
        for command in (("run", "--once"), ("verify",)):
            file = str(tool.folder / "pipeline.yaml")
            done = subprocess.run(
                [sys.executable, "-m", "headrace", *command, file], capture_output=True, text=True, check=False
            )
            if done.returncode:
                sys.exit(f"headrace {' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        print(done.stdout.strip().splitlines()[-1], flush=True)

    def _snapshot_done(self, tool: Tool, sink: str) -> None:
        """Wait until all rows that were there are in the sink, so that changes are streamed from now on."""
        rows = sum(map(self._timed.database.count, self._timed.tables))
        end = time.monotonic() + 300
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "snapshot"})
        try:
            while True:
                if sink == "kafka":
                    done = tool.messages(consumer) >= rows
                else:
                    logs = list((tool.folder / "lake").glob("*/timed_*/_delta_log/*.json"))
                    done = len({log.parent for log in logs if '"add"' in log.read_text()}) == TABLES
                if done:
                    return
                _alive(tool)
                if time.monotonic() > end:
                    sys.exit(f"{tool.name} did not finish its snapshot. See {tool.folder}.")
                time.sleep(0.2)
        finally:
            consumer.close()

    def _sleep(self, tool: Tool, commits: Commits, seconds: float, kill_every: float = 0) -> int:
        """Let it work so long; how often it was killed and started again meanwhile."""
        end, kills = time.monotonic() + seconds, 0
        kill_at = time.monotonic() + kill_every if kill_every else float("inf")
        while (left := end - time.monotonic()) > 0:
            _alive(tool)
            if commits.failure is not None:
                commits.end()
            if time.monotonic() >= kill_at:
                tool.kill()
                tool.start()
                kills, kill_at = kills + 1, time.monotonic() + kill_every
            time.sleep(min(0.5, left))
        return kills

    def _drain(self, tool: Tool, arrivals: Arrivals, changes: int, sink: str) -> None:
        """Wait until nothing more comes."""
        before, since = -1, time.monotonic()
        while time.monotonic() - since < 20 and not (sink == "kafka" and arrivals.count() >= changes):
            _alive(tool)
            now = arrivals.count()
            if now != before:
                before, since = now, time.monotonic()
            time.sleep(0.2)


def _alive(tool: Tool) -> None:
    if not Path(f"/proc/{tool.pid}").exists():
        sys.exit(f"{tool.name} ended. See {tool.folder}.")


def plot(found: Sequence[Measured], file: Path) -> None:
    """Latency by minute and memory over time, one line for each tool."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below_) = pyplot.subplots(2, 1, figsize=(9, 6), sharex=True)
    for one in found:
        minutes = one.by_minute()
        above.plot([m for m, _, _ in minutes], [p50 for _, p50, _ in minutes], label=f"{one.tool} p50")
        above.plot([m for m, _, _ in minutes], [p99 for _, _, p99 in minutes], "--", label=f"{one.tool} p99")
        start = one.memory[0][0]
        below_.plot([(at - start) / 60 for at, _, _ in one.memory], [j + p for _, j, p in one.memory], label=one.tool)
    above.set_ylabel("seconds from commit")
    below_.set_ylabel("MB, all processes")
    below_.set_xlabel("minutes")
    for axes in (above, below_):
        axes.set_ylim(bottom=0)
        axes.legend()
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(file)


def main() -> None:
    """Set up, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", choices=sorted(SOURCES), default="postgresql")
    parser.add_argument("--sink", choices=("kafka", "delta"), default="kafka")
    parser.add_argument("--rate", type=int, default=1000, help="changes per second")
    parser.add_argument("--warm", type=float, default=120, help="seconds that do not count")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--beside", action="store_true", help="Debezium Server too")
    parser.add_argument("--kill-every", type=float, default=0, metavar="SECONDS", help="kill -9 and start again")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", action="store_true", help="leave the folder, with logs and checkpoints")
    arguments = parser.parse_args()
    if arguments.beside and (arguments.sink != "kafka" or arguments.kill_every):
        parser.error("--beside measures without kills and to Kafka only.")
    kinds: list[type[Tool]] = [Debezium] if arguments.beside else []
    kinds.append(Headrace if arguments.sink == "kafka" else HeadraceToDelta)
    with running(arguments) as bench:
        found = []
        for kind in kinds:
            found.append(bench.measure(kind, arguments.sink))
            print(found[-1].report(), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps([_figures(one) for one in found], indent=1))
    if arguments.plot:
        plot(found, arguments.plot)


def _figures(one: Measured) -> dict[str, Any]:
    late = one.latencies
    return {
        "tool": one.tool,
        "changes": len(late),
        "quantiles": {str(q): round(float(np.percentile(late, q)), 3) for q in (50, 90, 99, 99.9, 100)},
        "minutes": one.by_minute(),
        "memory": one.memory,
        "cores": None if one.cost is None else round(one.cost.cpu / one.seconds, 3),
        "kills": one.kills,
    }


@contextlib.contextmanager
def running(arguments: argparse.Namespace) -> Iterator[Bench]:
    """The server with its tables, and a broker."""
    kind, tables = SOURCES[arguments.source]
    with contextlib.ExitStack() as cleanup:
        if arguments.keep:
            name = tempfile.mkdtemp(prefix="headrace-latency-")
            print(f"Everything is in {name}", flush=True)
        else:
            name = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="headrace-latency-"))
        folder = Path(name)
        # A server may run as a user of its own.
        folder.chmod(0o755)
        database = kind()
        cleanup.enter_context(database.started(folder / "database"))
        timed = tables(database)
        timed.prepare()
        broker = cleanup.enter_context(KafkaBroker(folder / "kafka"))
        yield Bench(folder, timed, broker.bootstrap, arguments)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
