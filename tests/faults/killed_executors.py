"""Batches of a topic on two executors, while their processes are killed at random and slow tasks run twice.

    python -m tests.faults.killed_executors FOLDER --seed 1 --batches 9

It ends with 0 where both Delta tables, the one of files that the decoding tasks write and the one of change rows, equal
the feed after each third batch. It prints what was killed.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.support.topic_feed import Feed, Message, Mirror

from headrace.errors import HeadraceError
from headrace.sinks.lake import collected, decoded_files
from headrace.spark.jars import DELTA
from headrace.spark.session import spark_session

CHANGES = 700
WARM = 2
"""Batches before the first kill: the tables are made, and the executors have started Python."""
ATTEMPTS = 60
"""A batch fails where each attempt of a task was killed. The next run of a pipeline takes it again."""
CONF = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.executor.memory": "1g",
    "spark.task.maxFailures": "12",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "10ms",
    "spark.executorEnv.PYTHONPATH": os.pathsep.join(sys.path),
    "spark.sql.shuffle.partitions": "3",
}


class Killer(threading.Thread):
    """Kills a Python worker every few seconds, and now and then an executor, while `may_kill` is set."""

    def __init__(self, seed: int) -> None:
        super().__init__(daemon=True)
        self.random = random.Random(seed)
        self.may_kill = threading.Event()
        self.killed: collections.Counter[str] = collections.Counter()

    def run(self) -> None:
        pause = threading.Event()
        while not pause.wait(self.random.uniform(0.3, 4)):
            kind = "executor" if self.random.random() < 0.08 else "worker"
            pids = list(_executors() if kind == "executor" else _workers())
            if pids and self.may_kill.is_set():
                try:
                    os.kill(self.random.choice(pids), signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self.killed[kind] += 1


def _executors() -> Iterator[int]:
    yield from (pid for pid, _, command in _descendants() if "CoarseGrainedExecutorBackend" in command)


def _workers() -> Iterator[int]:
    """The forks of the executors' Python daemons."""
    every = list(_descendants())
    executors = {pid for pid, _, command in every if "CoarseGrainedExecutorBackend" in command}
    daemons = {pid for pid, parent, _ in every if parent in executors}
    yield from (pid for pid, parent, _ in every if parent in daemons)


def _descendants() -> Iterator[tuple[int, int, str]]:
    """The processes that this one started, and those that they started: pid, parent and command."""
    lines = subprocess.run(["ps", "-eo", "pid,ppid,args", "ww"], capture_output=True, text=True, check=True).stdout
    every = [line.split(None, 2) for line in lines.splitlines()[1:]]
    ours = {os.getpid()}
    while more := {int(pid) for pid, parent, _ in every if int(parent) in ours} - ours:
        ours |= more
    yield from ((int(pid), int(parent), command) for pid, parent, command in every if int(pid) in ours)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batches", type=int, default=18)
    given = parser.parse_args()
    # Tables of hundreds of rows take the ways of big ones.
    decoded_files.LEAST = 100
    collected.MOST_OF_TABLE = 100
    spark = spark_session("killed executors", jars=(DELTA,), conf=CONF)
    spark.sparkContext.setLogLevel("OFF")
    feed = Feed(given.seed, {"connector": "postgresql"}, keys=900)
    mirrors = [Mirror(spark, given.folder / kind, "delta", by_decoders=kind == "files") for kind in ("files", "rows")]
    killer = Killer(given.seed)
    killer.start()
    again = 0
    for number in range(given.batches):
        messages: list[Message] = feed.changes(CHANGES)
        if number == WARM:
            killer.may_kill.set()
        for mirror in mirrors:
            again += _taken(mirror, messages)
        if number % 3 == 2:
            killer.may_kill.clear()
            expected = sorted(feed.rows)
            for mirror in mirrors:
                rows = sorted((row[:3] for row in mirror.rows()), key=lambda row: row[0])
                assert rows == [(key, feed.rows[key]["n"], feed.rows[key]["a"]) for key in expected], mirror.folder
            killer.may_kill.set()
            print(f"{number + 1} batches equal; killed {dict(killer.killed)}, {again} batches again", flush=True)
    killer.may_kill.clear()
    assert killer.killed["worker"] > 0, "nothing was killed"
    spark.stop()


def _taken(mirror: Mirror, messages: list[Message]) -> int:
    for attempt in range(ATTEMPTS):
        try:
            mirror.take(messages)
        except HeadraceError as error:
            print(f"again: {error}", flush=True)
        else:
            return attempt
    raise AssertionError(f"a batch failed {ATTEMPTS} times")


if __name__ == "__main__":
    main()
