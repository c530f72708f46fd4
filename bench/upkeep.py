"""What marking deletes, compacting and Iceberg's formats cost and save: bytes, CPU of a batch, CPU of a read.

Each layout gets the same batches of change rows. Every so many batches the table is read whole (all columns are
hashed), and at the end it is compacted and read again. CPU is that of the JVM, which does all the work.

    python bench/upkeep.py [--rows 1000000] [--changes 2000] [--batches 40] [--spread uniform] [--only iceberg]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apply import changes, columns, table_schema
from stream import spent

from headrace.changes import TableId
from headrace.changes.typed import literal
from headrace.sinks.base import BatchId
from headrace.sinks.lake.delta.sink import DeltaSink
from headrace.sinks.lake.iceberg.sink import IcebergSink
from headrace.sinks.lake.sink import LakeSink, session_for
from headrace.spark.jars import DELTA, ICEBERG
from headrace.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = TableId("shop", "dbo", "orders_0")
COLUMNS = columns(10)
SCHEMA = table_schema(COLUMNS)
LAYOUTS: dict[str, dict[str, Any]] = {
    "delta, readers: other": {"readers": "other"},
    "delta": {},
    "delta, compact_every 20": {"compact_every": 20},
    "delta, soft deletes": {"delete_mode": "soft"},
    "iceberg 2, copy-on-write": {"merge_on_read": False},
    "iceberg 2, merge-on-read": {},
    "iceberg 2, merge-on-read, compact_every 20": {"compact_every": 20},
    "iceberg 3, merge-on-read": {"format_version": "3"},
    "iceberg 3, merge-on-read, compact_every 20": {"format_version": "3", "compact_every": 20},
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=2_000)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--spread", choices=("uniform", "recent"), default="uniform")
    parser.add_argument("--only", default="")
    parser.add_argument("--memory", default="3g")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-upkeep-"))
    try:
        spark = spark_session("bench-upkeep", jars=(DELTA, ICEBERG), conf={"spark.driver.memory": arguments.memory})
        print(f"{arguments.rows:,} rows, {arguments.batches} batches of {arguments.changes:,}, keys {arguments.spread}")
        for number, (name, options) in enumerate(LAYOUTS.items()):
            if name.startswith(arguments.only):
                place = folder / str(number)
                kind = DeltaSink if name.startswith("delta") else IcebergSink
                given = {"path": str(place), **({} if kind is DeltaSink else {"catalog": f"lake{number}"})}
                measure(spark, name, kind.of({**given, **options}), place, arguments)
                shutil.rmtree(place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(spark: SparkSession, name: str, sink: LakeSink, folder: Path, arguments: argparse.Namespace) -> None:
    """One layout: the load, the batches, and the compaction at the end."""
    rows = arguments.rows
    load(spark, sink, rows)
    begun, costs, reads = size(folder)[0], [], []
    for number in range(1, arguments.batches + 1):
        seed = number * 100_000
        batch = changes(spark, SCHEMA, COLUMNS, [TABLE.name], rows, arguments.changes, seed, arguments.spread).persist()
        batch.count()
        before = spent().jvm
        sink.write(batch, BatchId("bench", "c", number))
        costs.append(spent().jvm - before)
        batch.unpersist()
        if number % 10 == 0 or number == 1:
            reads.append(f"{read(spark, sink):.2f}")
    written, files = size(folder)
    target = sink.target(session_for(spark, 0), TABLE)
    before = spent().jvm
    target.compact()
    compacted = spent().jvm - before
    print(
        f"{name}: {(written - begun) / arguments.batches / 1e6:.2f} MB and {statistics.mean(costs[1:]):.2f} s of CPU a "
        f"batch (median {statistics.median(costs[1:]):.2f}); a read after 1, 10, .. batches {', '.join(reads)} s of "
        f"CPU; {files} files; compacting {compacted:.2f} s and {(size(folder)[0] - written) / 1e6:.1f} MB, "
        f"a read after it {read(spark, sink):.2f} s",
        flush=True,
    )


def load(spark: SparkSession, sink: LakeSink, rows: int) -> None:
    """The first snapshot, in one batch."""
    image = "map(" + ", ".join(f"{literal(name)}, {text}" for name, (_, text) in COLUMNS.items()) + ")"
    template = changes(spark, SCHEMA, COLUMNS, [TABLE.name], rows, 1, 0, "uniform")
    structure = template.where("op = 'schema'")
    given = {
        "op": "'r'",
        "table": "named_struct('database', 'shop', 'schema', 'dbo', 'name', 'orders_0')",
        "key": "map('id', cast(id as string))",
        "after": image,
        "position": "concat('0000000000/r/', lpad(id, 10, '0'))",
        "snapshot": "'true'",
        "schema_id": literal(SCHEMA.fingerprint),
    }
    made = spark.range(rows).selectExpr("id", "0 as salt")
    fields = [f"cast({given.get(f.name, 'null')} as {f.dataType.simpleString()}) as {f.name}" for f in template.schema]
    batch = made.selectExpr(*fields).unionByName(structure).persist()
    sink.write(batch, BatchId("bench", "c", 0))
    batch.unpersist()


def read(spark: SparkSession, sink: LakeSink) -> float:
    """The CPU of reading the table whole, the least of three times."""

    def once() -> float:
        target = sink.target(session_for(spark, 10**9), TABLE)
        before = spent().jvm
        target.read().selectExpr(f"sum(cast(xxhash64({', '.join(COLUMNS)}) as decimal(38,0)))").collect()
        return spent().jvm - before

    return min(once() for _ in range(3))


def size(folder: Path) -> tuple[int, int]:
    """How many bytes and files of data a folder has, of old versions too."""
    found = [file for file in folder.rglob("*") if file.is_file() and file.suffix in (".parquet", ".bin", ".puffin")]
    return sum(file.stat().st_size for file in found), len(found)


if __name__ == "__main__":
    main()
