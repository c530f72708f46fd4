"""What small batches into tables of a lake cost: by an index of keys, by Headrace's MERGE, and by a MERGE by hand.

All get the same batches, in one run and one JVM, alternately, and end with the same rows, which is checked. Seconds of
CPU are those of all processes (driver, JVM, workers). The targets mark deleted rows. The other two ways take part with
so many of the tables as `--beside` says: with all of them a batch of 100 tables would take minutes.

    python bench/lake.py                                          # 100 tables x 20 changes, 1,000 changes into 1 M rows
    python bench/lake.py --tables 1 --rows 10000000 --changes 1000 --runs 5
    python bench/lake.py --format iceberg
    python bench/lake.py --aged 1000                              # what 1,000 batches leave behind
    python bench/lake.py --tables 30 --aged 60 --interval 10      # checkpoints of the log as Delta has them by default

The figures of a table are medians of the batches after those that warm up. `--aged` says how much later batches cost
than earlier ones, and how long readers take beside a table of the same rows that was written at once.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import apply
import deltalake
from stream import spent
from tables import jobs

from headrace.sinks.base import BatchId
from headrace.sinks.lake.sink import LakeSink
from headrace.spark.jars import DELTA, ICEBERG
from headrace.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INDEX, MERGE, HAND = "index", "headrace", "hand"
WORK = ((100, 20_000, 20), (1, 1_000_000, 1_000))
"""How many tables, rows in each, and changes in each."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=1_000, help="of each table in a batch")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--warm", type=int, default=3)
    parser.add_argument("--beside", type=int, default=5, help="with how many of the tables the other ways take part")
    parser.add_argument("--memory", default="3g")
    parser.add_argument("--aged", type=int, default=0, help="so many batches, by the index alone")
    parser.add_argument("--interval", type=int, default=100, help="commits between checkpoints of Delta's logs")
    parser.add_argument("--format", choices=("delta", "iceberg"), default="delta")
    arguments = parser.parse_args()
    tables = arguments.tables or (1 if arguments.aged else None)
    work = WORK if tables is None else ((tables, arguments.rows, arguments.changes),)
    folder = Path(tempfile.mkdtemp(prefix="bench-lake-"))
    try:
        spark = spark_session("bench-lake", jars=(DELTA, ICEBERG), conf=apply.settings(folder, arguments.memory))
        spark.sparkContext.setLogLevel("ERROR")
        spark.conf.set("spark.databricks.delta.properties.defaults.checkpointInterval", str(arguments.interval))
        for tables, rows, changes in work:
            bench = Ways(spark, folder, arguments, tables, rows)
            if arguments.aged:
                bench.age(changes, arguments.aged)
            else:
                bench.compare(changes, min(arguments.beside, tables))
            bench.drop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Ways(apply.Bench):
    """Tables of one size, three times over."""

    def __init__(
        self, spark: SparkSession, folder: Path, arguments: argparse.Namespace, tables: int, rows: int
    ) -> None:
        given = {"rewrite": False, "spread": "uniform", "sides": "both", "columns": 10}
        super().__init__(spark, folder, argparse.Namespace(**{**vars(arguments), **given}), tables, rows)

    def compare(self, changes: int, beside: int) -> None:
        """Batches by each way, and what they cost."""
        sinks = {side: self.sink(side, index_memory=memory) for side, memory in ((INDEX, 512), (MERGE, 0))}
        ways: dict[str, Callable[[DataFrame, int], None]] = {
            side: partial(_write, sink) for side, sink in sinks.items()
        }
        ways[HAND] = lambda batch, _: self.by_hand(batch)
        every, self.sides = self.tables, (INDEX,)
        self.base()
        self.tables, self.sides = every[:beside], (MERGE, HAND)
        self.base()
        self.sides = (INDEX, MERGE, HAND)
        costs: dict[str, list[tuple[float, float, float]]] = {side: [] for side in self.sides}
        some = ", ".join(f"'{name}'" for name in self.tables)
        for run in range(self.warm + self.runs):
            size = changes * len(every)
            made = apply.changes(
                self.spark, self.schema, self.columns, every, self.rows, size, size * 100 + run, "uniform"
            )
            batch = made.persist()
            batch.count()
            part = batch.where(f"table.name in ({some})").persist()
            part.count()
            for side in self.sides if run % 2 else reversed(self.sides):
                started, cpu, before = time.perf_counter(), spent(), jobs(self.spark)
                ways[side](batch if side == INDEX else part, run)
                used = time.perf_counter() - started, (spent() - cpu).cpu, float(jobs(self.spark) - before)
                if run >= self.warm:
                    costs[side].append(used)
            part.unpersist()
            batch.unpersist()
        self.check()
        print(
            f"{self.format}: {len(every)} table(s) of {self.rows:,} rows, {changes:,} changes in each, "
            f"{self.runs} batches",
            flush=True,
        )
        for side, found in costs.items():
            tables = len(every) if side == INDEX else beside
            wall, cpu, ran = (statistics.median(values) for values in zip(*found, strict=True))
            ends = f"{min(one[1] for one in found):.2f} to {max(one[1] for one in found):.2f}"
            print(
                f"  {side:9} {tables:4} table(s): {wall:7.2f} s, CPU {cpu:7.2f} s ({ends}), "
                f"{cpu / tables:.3f} s a table, {ran:.0f} jobs",
                flush=True,
            )

    def age(self, changes: int, batches: int) -> None:
        """Many batches by the index: what later ones cost beside earlier ones, and what readers then pay."""
        sink, self.sides = self.sink(INDEX), (INDEX,)
        self.base()
        costs, size = [], changes * len(self.tables)
        for run in range(batches):
            made = apply.changes(
                self.spark, self.schema, self.columns, self.tables, self.rows, size, run, "uniform"
            ).persist()
            made.count()
            started, cpu = time.perf_counter(), spent()
            _write(sink, made, run)
            costs.append((time.perf_counter() - started, (spent() - cpu).cpu))
            made.unpersist()
        print(
            f"{self.format}: {len(self.tables)} table(s) of {self.rows:,} rows, {changes:,} changes in each, "
            f"{batches:,} batches",
            flush=True,
        )
        later = sorted(cpu for _, cpu in costs[batches // 3 :])
        print(
            f"  the last two thirds: CPU mean {statistics.mean(later):.2f} s, median {statistics.median(later):.2f} s, "
            f"95th percentile {later[int(len(later) * 0.95)]:.2f} s",
            flush=True,
        )
        for end in sorted({min(60, batches), batches}):
            wall, cpu = (statistics.median(values) for values in zip(*costs[max(0, end - 20) : end], strict=True))
            print(f"  the 20 batches up to {end:,}: {wall:.2f} s, CPU {cpu:.2f} s", flush=True)
        aged, new = self.name(INDEX, self.tables[0]), self.name("new", self.tables[0])
        if self.format == "iceberg":
            self.spark.sql("create namespace if not exists lake.new")
        self.spark.sql(f"create table {new} using {self.format} as select * from {aged}")
        readers = {"Spark": self._by_spark} | ({"deltalake": self._by_deltalake} if self.format == "delta" else {})
        for reader, scan in readers.items():
            seconds: dict[str, list[float]] = {"aged": [], "new": []}
            for _ in range(1 + self.runs):
                for kind, side in (("aged", INDEX), ("new", "new")):
                    started = time.perf_counter()
                    scan(side)
                    seconds[kind].append(time.perf_counter() - started)
            old, fresh = (statistics.median(found[1:]) for found in seconds.values())
            print(
                f"  read by {reader}: {old:.2f} s, written at once {fresh:.2f} s, {old / fresh:.2f} times", flush=True
            )

    def _by_spark(self, side: str) -> None:
        self.spark.sql(f"select {self._greatest} from {self.name(side, self.tables[0])}").collect()

    def _by_deltalake(self, side: str) -> None:
        table = deltalake.DeltaTable(str(self.folder / side / "dbo" / self.tables[0]))
        deltalake.QueryBuilder().register("t", table).execute(f"select {self._greatest} from t").read_all()

    @property
    def _greatest(self) -> str:
        """Of every column, so that all of them are read."""
        return ", ".join(f"max({name})" for name in self.columns)


def _write(sink: LakeSink, batch: DataFrame, number: int) -> None:
    sink.write(batch, BatchId("bench", "checkpoint", number))


if __name__ == "__main__":
    main()
