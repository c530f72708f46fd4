"""Snapshot and stream rows per second end to end on the emulated SQL Server, with the share of each stage.

A table of 10 columns is read as a pipeline reads it, each stage added to the one before: the driver's Arrow fetch, the
conversion to change rows, Spark's streaming query around it (written to `noop`), and the encoding as Debezium JSON.
Beside it, in the same run, what a user would write by hand for the snapshot: `fetchall`, one dict per row,
`createDataFrame`, `to_json`. The first two stages run in one process, Spark's on all cores. Medians of the runs.

    python bench/sqlserver.py [--rows 200000] [--runs 3]
"""

from __future__ import annotations

import argparse
import datetime as dt
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions
from stream import fetched

import headrace
from headrace.sources.base import Limit
from headrace.sources.databases import Offsets
from headrace.sources.offset import Offset
from headrace.sources.reader import source_named
from headrace.spark.session import spark_session
from headrace_emulators.sqlserver import EmulatedServer

TABLE = """
CREATE TABLE dbo.orders (
    id bigint NOT NULL PRIMARY KEY, customer int NOT NULL, name nvarchar(100), city varchar(50), price decimal(12,2),
    weight float, ordered_at datetime2(3), paid bit, due date, quantity smallint)
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        measure(folder, arguments.rows, arguments.runs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(folder: Path, rows: int, runs: int) -> None:
    """Set up, run every stage in turn, print medians and shares."""
    database = EmulatedServer(folder / "server").create_database("bench")
    database.execute(TABLE)
    database.load("dbo.orders", table(0, rows))
    database.execute("EXEC sys.sp_cdc_enable_table @source_schema = 'dbo', @source_name = 'orders', @role_name = NULL")
    database.capture()
    options = {
        "driver": "emulator",
        "hostname": str(folder / "server"),
        "database": "bench",
        "snapshot_chunk_rows": str(max(rows // 4, 1)),
    }
    source = source_named("sqlserver", options)
    start = Offset.nothing()
    snapshot = source.advance(start, Limit(), dt.datetime.now(dt.UTC))
    # The stream: as many inserts as there were rows, in commits of a hundred.
    for first in range(rows, 2 * rows, 100):
        database.load("dbo.orders", table(first, min(100, 2 * rows - first)))
    database.capture()
    stream = source.advance(snapshot, Limit(), dt.datetime.now(dt.UTC))
    spark = spark_session("bench", conf={"spark.driver.memory": "4g"})
    headrace.register(spark)
    for name, low, high in (("snapshot", start, snapshot), ("stream", snapshot, stream)):
        slices = source.plan(low, high)
        stages: dict[str, Callable[[], int]] = {
            "driver's Arrow fetch": lambda s=slices: fetched(source, s),
            "change rows": lambda s=slices: sum(b.num_rows for piece in s for b in source.read(piece)),
            "Spark stream to noop": lambda o=low: streamed(spark, folder, options, o, None),
            "Spark stream, Debezium JSON": lambda o=low: streamed(spark, folder, options, o, "debezium_json"),
        }
        if name == "snapshot":
            stages["by hand, to_json"] = lambda: by_hand(spark, database)
        report(name, rows, stages, runs)


def report(name: str, rows: int, stages: dict[str, Callable[[], int]], runs: int) -> None:
    """Run the stages in turn, several times, and print medians and what each adds."""
    times: dict[str, list[float]] = {stage: [] for stage in stages}
    for _ in range(runs + 1):
        for stage, run in stages.items():
            began = time.perf_counter()
            run()
            times[stage].append(time.perf_counter() - began)
    medians = {stage: statistics.median(found[1:]) for stage, found in times.items()}
    print(f"{name}: {rows:,} rows of 10 columns, median of {runs} runs after one to warm up")
    total = medians["Spark stream, Debezium JSON"]
    before = 0.0
    for stage, seconds in medians.items():
        share = "" if stage.startswith("by hand") else f"{max(seconds - before, 0) / total:6.0%} of the whole"
        print(f"  {stage:30} {seconds:7.2f} s {rows / seconds:12,.0f} rows/s  {share}")
        before = seconds


def table(first: int, count: int) -> pa.Table:
    """Rows of `dbo.orders` as the loader takes them."""
    numbers = range(first, first + count)
    day = dt.datetime(2024, 1, 1)
    return pa.table(
        {
            "id": list(numbers),
            "customer": [n % 50_000 for n in numbers],
            "name": [f"customer {n % 50_000}" for n in numbers],
            "city": ["Vienna" if n % 3 else "Gr\u00e4z" for n in numbers],
            "price": [f"{n % 10**7}.{n % 100:02}" for n in numbers],
            "weight": [n / 7 for n in numbers],
            "ordered_at": [(day + dt.timedelta(seconds=n)).strftime("%Y-%m-%d %H:%M:%S.000") for n in numbers],
            "paid": [n % 2 for n in numbers],
            "due": [(day + dt.timedelta(days=n % 3000)).strftime("%Y-%m-%d") for n in numbers],
            "quantity": [n % 100 for n in numbers],
        }
    )


def streamed(spark: SparkSession, folder: Path, options: dict[str, str], start: Offset, encode: str | None) -> int:
    """One batch through a streaming query; a stream starts after the snapshot by a checkpoint that says so."""
    checkpoint = Path(tempfile.mkdtemp(dir=folder))

    def write(batch: DataFrame, number: int) -> None:
        rows = batch
        if encode:
            rows = headrace.encode(batch.persist(), format=encode, topic_prefix="bench")
        rows.write.format("noop").mode("overwrite").save()
        batch.unpersist()

    if not start.is_nothing:
        seed(spark, checkpoint, start)
    stream = spark.readStream.format("sqlserver_cdc").options(**options, maxCommitsPerTrigger=0).load()
    query = (
        stream.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    batches = 0 if start.is_nothing else 1
    while not (checkpoint / "commits" / str(batches)).exists():
        if query.exception():
            raise query.exception()
        time.sleep(0.02)
    query.stop()
    return 0


def seed(spark: SparkSession, checkpoint: Path, offset: Offset) -> None:
    """A checkpoint whose first batch ended at an offset, in the form that Spark writes."""
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir()
    head = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{},"sourceMetadataInfo":{}}'
    (checkpoint / "offsets" / "0").write_text(f"v1\n{head}\n{Offsets({'bench': offset}).to_text()}")
    (checkpoint / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')


def by_hand(spark: SparkSession, database: object) -> int:
    """What a user would write without Headrace."""
    with database.connect() as connection:
        cursor = connection.cursor().execute("SELECT * FROM dbo.orders")
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    frame = spark.createDataFrame(rows)
    frame.select(functions.to_json(functions.struct("*")).alias("value")).write.format("noop").mode("overwrite").save()
    return len(rows)


if __name__ == "__main__":
    main()
