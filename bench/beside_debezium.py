"""A database to Kafka: Headrace beside Debezium Server 3.0.8, the same server and the same changes in one run.

Both tools run as a user runs them (`headrace run` with a pipeline file; Debezium Server with its own JVM settings) and
write JSON without schemas to one broker. What counts is the CPU of the client side: user and system time of all
processes of the tool, ended ones included, and not of the database, the broker or the workload.

- `small`: transactions of 3 rows over ten tables. `large`: transactions of 100,000 rows in one table of 10 columns.
  A tool runs and is warm. It is held (SIGSTOP) while the changes are made, so that both tools find the same log, and
  let go until Kafka has all messages.
- `snapshot`: the table of 10 columns is read by a tool that was not running; a start with an empty table stands beside
  it, so that what starting costs can be told apart.
- `--memory`: one transaction of so many million rows, and the largest memory that each tool had.

    python bench/postgresql.py [--runs 3] [--changes 300000] [--rows 1000000] [--only debezium] [--memory 10]
    python bench/mysql.py      with the same options: MariaDB
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml
from confluent_kafka import Consumer, KafkaException, TopicPartition
from memory import below
from stream import Cost, shares, spent

from headrace_emulators.kafka.broker import KafkaBroker

# Debezium Server is started as the tests start it.
sys.path.insert(0, str(Path(__file__).parents[1]))

TABLES = 10
ROWS_OF_TRANSACTION = 3
"""In the workload of small ones."""
LARGE_TRANSACTION = 100_000
SECONDS = 1200
"""How long a tool may take for one workload."""


class Database(ABC):
    """The server of a bench, with the tables `wide` of 10 columns, `empty` of one row, and `small_0` to `small_9`."""

    @abstractmethod
    def started(self, folder: Path) -> AbstractContextManager[object]:
        """It runs, and has the tables."""

    @abstractmethod
    def run(self, sql: str) -> Any:
        """Run statements."""

    @abstractmethod
    def count(self, table: str) -> int:
        """How many rows a table has."""

    @abstractmethod
    def transact(self, first: int, last: int) -> None:
        """Transactions with these numbers, of three rows each in three of the small tables."""

    @abstractmethod
    def fill(self, first: int, last: int) -> None:
        """One transaction that inserts rows with these keys into `wide`."""

    @abstractmethod
    def clear(self) -> None:
        """Empty `wide` but for one row with the key -1."""

    @abstractmethod
    def debezium(self, name: str, tables: Sequence[str]) -> dict[str, str]:
        """The connector's settings for a tool of a name."""

    @abstractmethod
    def headrace(self, name: str, tables: Sequence[str]) -> dict[str, object]:
        """The source's options for a tool of a name."""

    @abstractmethod
    def url(self) -> tuple[str, str]:
        """What SQLAlchemy connects to, and the schema of the tables."""

    @abstractmethod
    def forget(self, name: str) -> None:
        """A tool is done; what the server keeps for it goes."""


class Tool:
    """One of the two, as one process tree.

    Args:
        number: part of what it is called, and the first part of its topics.
        folder: for its settings and state.
        tables: what it captures.
    """

    kind = ""

    def __init__(self, folder: Path, database: Database, bootstrap: str, number: int, tables: list[str]) -> None:
        self.name = f"{self.kind}_{number}"
        self.folder = folder / self.name
        self.database = database
        self.bootstrap = bootstrap
        self.tables = tables

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()
        self.stop()
        self.database.forget(self.name)

    @property
    def pid(self) -> int:
        """The process at the root of the tool's tree."""
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def hold(self) -> None:
        """Stop all its processes where they are."""
        self._tell(signal.SIGSTOP)

    def let_go(self) -> None:
        """Let them go on."""
        self._tell(signal.SIGCONT)

    def kill(self) -> None:
        """End all its processes at once, as a machine that loses power does."""
        self._tell(signal.SIGKILL)

    def _tell(self, what: signal.Signals) -> None:
        for pid in (self.pid, *below(self.pid)):
            # Workers come and go.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, what)

    def messages(self, consumer: Consumer) -> int:
        """How many messages it has written."""
        topics = consumer.list_topics(timeout=10).topics
        found = 0
        for name, topic in topics.items():
            if name.startswith(f"{self.name}."):
                for number in topic.partitions:
                    # A topic that was made just now may have no leader yet, and then has nothing.
                    with contextlib.suppress(KafkaException):
                        low, high = consumer.get_watermark_offsets(TopicPartition(name, number), timeout=10)
                        found += high - low
        return found


class Debezium(Tool):
    """Debezium Server with the settings of its own that concern no speed, and its own JVM's defaults."""

    kind = "debezium"

    def start(self) -> None:
        from tests.real.debezium_server import DebeziumServer

        connector = {**self.database.debezium(self.name, self.tables), "provide.transaction.metadata": "false"}
        self.server = DebeziumServer(self.folder, self.name, self.bootstrap, connector, "plain", java=("-Xmx1g",))
        self.server.__enter__()

    @property
    def pid(self) -> int:
        return self.server.server.pid

    def stop(self) -> None:
        self.server.__exit__()


class Headrace(Tool):
    """`headrace run` with a pipeline file."""

    kind = "headrace"

    def sections(self) -> dict[str, object]:
        """How messages are made, and where they go."""
        return {
            "format": {"type": "debezium_json", "topic.prefix": self.name, "schemas.enable": False},
            "sinks": [{"type": "kafka", "bootstrap.servers": self.bootstrap}],
        }

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        pipeline = {
            "source": self.database.headrace(self.name, self.tables),
            **self.sections(),
            "pipeline": {"name": self.name, "checkpoint": "./checkpoint", "trigger": "1s"},
        }
        file = self.folder / "pipeline.yaml"
        file.write_text(yaml.safe_dump(pipeline))
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace", "run", str(file)], stdout=log, stderr=subprocess.STDOUT
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)


@dataclass
class Result:
    """What one tool needed for one workload, by run."""

    changes: int
    costs: list[Cost] = field(default_factory=list)

    def line(self) -> str:
        """The rate per second of CPU with its range, and where the CPU went."""
        rates = [self.changes / cost.cpu for cost in self.costs]
        return (
            f"{statistics.median(rates):10,.0f} per second of CPU ({min(rates):,.0f} to {max(rates):,.0f}); "
            f"{shares(self.costs)}; {statistics.median(cost.wall for cost in self.costs):.1f} s by the clock"
        )


def main(database: Database) -> None:
    """Set up, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--changes", type=int, default=300_000, help="of the workloads small and large, per run")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the snapshot")
    parser.add_argument("--only", choices=("debezium", "headrace"))
    parser.add_argument("--workload", choices=("small", "large", "snapshot"), action="append")
    parser.add_argument("--memory", type=float, metavar="MILLIONS", help="one transaction of so many rows, only that")
    arguments = parser.parse_args()
    # Whole transactions.
    arguments.changes -= arguments.changes % ROWS_OF_TRANSACTION
    tools = [tool for tool in (Debezium, Headrace) if arguments.only in (None, tool.kind)]
    with tempfile.TemporaryDirectory(prefix="headrace-") as name, contextlib.ExitStack() as running:
        folder = Path(name)
        # A server may run as a user of its own.
        folder.chmod(0o755)
        bench = running.enter_context(Bench.started(folder, database, tools))
        if arguments.memory:
            bench.memory(round(arguments.memory * 1_000_000))
            return
        wanted = arguments.workload or ["small", "large", "snapshot"]
        if "small" in wanted:
            bench.stream("small", [f"small_{n}" for n in range(TABLES)], arguments.changes, arguments.runs)
        if "large" in wanted:
            bench.stream("large", ["wide"], arguments.changes, arguments.runs)
        if "snapshot" in wanted:
            bench.snapshot(arguments.rows, arguments.runs)


class Bench:
    """The server, the broker and the tools."""

    def __init__(self, folder: Path, database: Database, bootstrap: str, tools: list[type[Tool]]) -> None:
        self.folder = folder
        self.database = database
        self.bootstrap = bootstrap
        self.tools = tools
        self.consumer: Any = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
        self._started = 0
        self._next = 0

    @classmethod
    @contextlib.contextmanager
    def started(cls, folder: Path, database: Database, tools: list[type[Tool]]) -> Iterator[Bench]:
        """With a server and a broker in a folder, and the tables of all workloads."""
        with database.started(folder / "database"), KafkaBroker(folder / "kafka") as broker:
            bench = cls(folder, database, broker.bootstrap, tools)
            try:
                yield bench
            finally:
                bench.consumer.close()

    def tool(self, kind: type[Tool], tables: list[str]) -> Tool:
        """A new tool with a state, a slot and topics of its own."""
        self._started += 1
        return kind(self.folder, self.database, self.bootstrap, self._started, tables)

    def until(self, tool: Tool, count: int) -> None:
        """Wait until the tool has written so many messages."""
        end = time.monotonic() + SECONDS
        while (found := tool.messages(self.consumer)) < count:
            if time.monotonic() > end:
                sys.exit(f"{tool.name} wrote {found:,} messages of {count:,} within {SECONDS} seconds.")
            if not Path(f"/proc/{tool.pid}").exists():
                sys.exit(f"{tool.name} ended. See {tool.folder}.")
            time.sleep(0.05)
        if found > count:
            sys.exit(f"{tool.name} wrote {found:,} messages, not {count:,}.")

    def stream(self, name: str, tables: list[str], changes: int, runs: int) -> None:
        """Run a workload several times through tools that are warm, and print what each needed for a change."""
        results = {kind: Result(changes) for kind in self.tools}
        rows = sum(map(self.database.count, tables))
        with contextlib.ExitStack() as running:
            tools = {kind: running.enter_context(self.tool(kind, tables)) for kind in self.tools}
            for tool in tools.values():
                self.until(tool, rows)
            written = rows
            for run in range(runs + 1):
                for tool in tools.values():
                    tool.hold()
                self.change(name, changes)
                written += changes
                # In turns, so that neither is always the first.
                for kind in self.tools if run % 2 else reversed(self.tools):
                    cost = self.measured(tools[kind], written)
                    # The first run warms up.
                    if run:
                        results[kind].costs.append(cost)
        self.report(f"{name}: {changes:,} changes", results)

    def measured(self, tool: Tool, written: int) -> Cost:
        """What a tool that was held needs until it has written so many messages; it is held again then."""
        before = spent(tool.pid)
        tool.let_go()
        self.until(tool, written)
        cost = spent(tool.pid) - before
        tool.hold()
        return cost

    def change(self, name: str, changes: int) -> None:
        """Make the changes of a workload."""
        first, self._next = self._next, self._next + changes
        if name == "small":
            self.database.transact(first, first + changes // ROWS_OF_TRANSACTION - 1)
            return
        for low in range(first, first + changes, 2 * LARGE_TRANSACTION):
            count = min(2 * LARGE_TRANSACTION, first + changes - low)
            inserted = count // 2
            self.database.fill(low, low + inserted - 1)
            last = low + count - inserted - 1
            self.database.run(f"update wide set price = price + 1, city = 'Linz' where id between {low} and {last}")

    def snapshot(self, rows: int, runs: int) -> None:
        """Read a table by tools that were not running, and print what each needed for a row."""
        whole, beyond = ({kind: Result(rows) for kind in self.tools} for _ in range(2))
        self.database.clear()
        self.database.fill(1, rows - 1)
        for run in range(runs):
            for kind in self.tools if run % 2 else reversed(self.tools):
                costs = []
                for table, count in (("empty", 1), ("wide", rows)):
                    began = time.perf_counter()
                    with self.tool(kind, [table]) as tool:
                        self.until(tool, count)
                        cost = spent(tool.pid)
                        costs.append(Cost(cost.driver, cost.jvm, cost.python, cost.wall - began))
                whole[kind].costs.append(costs[1])
                beyond[kind].costs.append(costs[1] - costs[0])
        self.report(f"snapshot: {rows:,} rows with what starting costs", whole)
        self.report(f"snapshot: {rows:,} rows without what starting costs", beyond)

    def report(self, name: str, results: dict[type[Tool], Result]) -> None:
        print(name, flush=True)
        for kind, result in results.items():
            print(f"  {kind.kind:9}{result.line()}", flush=True)

    def memory(self, rows: int) -> None:
        """Let one transaction through each tool, one tool after the other, and print the largest memory of each."""
        for kind in self.tools:
            self.database.clear()
            with self.tool(kind, ["wide"]) as tool:
                self.until(tool, 1)
                with largest(tool.pid) as told:
                    tool.hold()
                    self.database.fill(1, rows)
                    tool.let_go()
                    self.until(tool, rows + 1)
                print(f"one transaction of {rows:,} rows: {tool.kind} at most {told()} MB", flush=True)


@contextlib.contextmanager
def largest(root: int) -> Iterator[Callable[[], int]]:
    """Watch a process tree; gives what tells the largest sum of its proportional set sizes in megabytes."""
    most, ending = 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not ending.wait(0.25):
            most = max(most, sum(proportional(pid) for pid in (root, *below(root))))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: most // 1024
    finally:
        ending.set()
        watcher.join()


def proportional(pid: int) -> int:
    """The proportional set size of a process in kilobytes; pages that it shares count in parts."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)
