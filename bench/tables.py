"""What wide tables and many tables cost on the way from images to rows of a table.

Columns: the same number of values in rows of 10, 50, 200 and 500 columns, from cached maps of texts to typed rows by
`apply.fold`, to `noop`: images that are whole, and images with every other column. Microseconds of CPU per value.

Tables: the same number of changes spread over 1, 10, 50 and 200 tables of 10 columns, written to Delta tables that are
there; milliseconds of the clock and of CPU per batch, and Spark jobs per table. CPU is that of the whole process tree.

Wide tables: batches of 1,000 changes of a table of 25, 100 and 200 columns into its Delta table, from whole images and
from such with every other column; milliseconds of CPU per batch, planning included.

Small batches: what decoding and encoding add to a batch of 100 messages of 1 and 50 tables in a warm session, in
milliseconds of the clock, planning included.

    python bench/tables.py [--columns 10 50 200 500] [--tables 1 10 50 200] [--small 1 50] [--formats canal_json]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stream import Cost, spent

from headrace.apply import fold, profile
from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.row import spark_schema
from headrace.changes.typed import literal
from headrace.formats.convert import decode, encode
from headrace.sinks.base import BatchId
from headrace.sinks.lake.delta.sink import DeltaSink
from headrace.spark.jars import DELTA
from headrace.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TEXTS = (
    ("int64", "cast(id * 7 as string)"),
    ("int32", "cast(id % 1000000 as string)"),
    ("string", "concat('name ', id)"),
    ("string", "concat('a longer piece of text, with quotes and more ', id % 1000)"),
    ("decimal(12,2)", "concat(id % 100000, '.50')"),
    ("float64", "concat(id % 1000, '.25')"),
    ("boolean", "if(id % 2 = 0, 'true', 'false')"),
    ("date", "cast(date_add(date'2020-01-01', cast(id % 1000 as int)) as string)"),
    ("timestamp(6)", "concat('2017-07-14 02:40:', lpad(id % 60, 2, '0'), '.123456')"),
    ("string", "concat('x', id % 97)"),
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--columns", type=int, nargs="*", default=[10, 50, 200, 500])
    parser.add_argument("--tables", type=int, nargs="*", default=[1, 10, 50, 200])
    parser.add_argument("--wide", type=int, nargs="*", default=[25, 100, 200])
    parser.add_argument("--small", type=int, nargs="*", default=[1, 50])
    parser.add_argument("--formats", nargs="*", default=["canal_json", "debezium_json"])
    parser.add_argument("--values", type=int, default=2_000_000)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=4)
    given = parser.parse_args()
    spark = spark_session("bench-tables", jars=(DELTA,), conf={"spark.driver.memory": "5g"})
    spark.sparkContext.setLogLevel("ERROR")
    for width in given.columns:
        columns(spark, width, given.values, given.runs)
    for count in given.tables:
        tables(spark, count, given.rows, given.runs)
    for width in given.wide:
        wide(spark, width, given.runs)
    for format in given.formats:
        for count in given.small:
            small(spark, format, count, given.runs)


def columns(spark: SparkSession, width: int, values: int, runs: int) -> None:
    """One width: whole images and partial ones."""
    line = [f"{width:4} columns:"]
    for what, share in (("whole", 1), ("partial", 2)):
        batch = changes(spark, 1, width, values // width, 0, share).cache()
        batch.count()
        (table,) = profile(batch)
        assert table.partial == (share == 2)
        folded = fold(batch, table)
        cost = measured(lambda frame=folded: frame.write.format("noop").mode("overwrite").save(), runs)  # type: ignore[misc]
        line.append(f"{what} {cost.cpu / values * share * 1e6:.2f} us of CPU per value ({cost.wall:.1f} s);")
        batch.unpersist()
    print(*line, flush=True)


def tables(spark: SparkSession, count: int, rows: int, runs: int) -> None:
    """One number of tables: batches into a Delta folder, after the one that makes the tables."""
    folder = Path(tempfile.mkdtemp(prefix="bench-tables-"))
    try:
        sink = DeltaSink.of({"path": str(folder)})
        batches = [changes(spark, count, 10, rows, number, 1).cache() for number in range(runs + 2)]
        for batch in batches:
            batch.count()
        number = iter(range(len(batches)))

        def write() -> None:
            n = next(number)
            sink.write(batches[n], BatchId("bench", str(count), n))

        write()
        before = jobs(spark)
        cost = measured(write, runs)
        ran = (jobs(spark) - before) / (runs + 1) / count
        print(
            f"{count:4} tables: {cost.wall * 1000:,.0f} ms a batch, {cost.cpu / rows * 1e6:,.0f} us of CPU per change, "
            f"{cost.cpu / count * 1000:,.0f} ms of CPU and {ran:.1f} jobs per table",
            flush=True,
        )
        for batch in batches:
            batch.unpersist()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wide(spark: SparkSession, width: int, runs: int, rows: int = 1_000) -> None:
    """One width: batches into a Delta table that is there."""
    line = [f"{width:4} columns, {rows} changes:"]
    for what, share in (("whole", 1), ("partial", 2)):
        folder = Path(tempfile.mkdtemp(prefix="bench-tables-"))
        try:
            sink = DeltaSink.of({"path": str(folder)})
            # The first one has whole rows, which are there to be changed.
            batches = [changes(spark, 1, width, rows, n, 1 if n == 0 else share).cache() for n in range(runs + 2)]
            for batch in batches:
                batch.count()
            number = iter(range(len(batches)))

            def write(sink: DeltaSink = sink, batches: list[DataFrame] = batches, number: Any = number) -> None:
                n = next(number)
                sink.write(batches[n], BatchId("bench", "wide", n))

            write()
            line.append(f"{what} {measured(write, runs).cpu * 1000:,.0f} ms of CPU;")
            for batch in batches:
                batch.unpersist()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print(*line, flush=True)


def small(spark: SparkSession, format: str, count: int, runs: int) -> None:
    """What a format adds to a batch of 100 messages."""
    rows = changes(spark, count, 10, 100, 0, 1).cache()
    structures = [schema(number, 10) for number in range(count)]
    options = {"topic_prefix": "server"} if format.startswith("debezium") else {}
    sent = encode(rows, format=format, schema=structures, **options).where("value is not null")
    messages = sent.selectExpr(
        "topic", "0 as partition", "monotonically_increasing_id() as offset",
        "timestamp'2026-01-01 00:00:02Z' as timestamp", "key", "value", "headers",
    ).cache()  # fmt: skip
    subjects: dict[str, Callable[[], DataFrame]] = {
        "messages": lambda: messages.select("*"),
        "decode": lambda: decode(messages, format=format),
        "rows": lambda: rows.select("*"),
        "encode": lambda: encode(rows, format=format, schema=structures, **options),
    }
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for run in range(3 * runs + 3):
        for name, subject in subjects.items():
            started = time.perf_counter()
            subject().write.format("noop").mode("overwrite").save()
            if run > 2:
                times[name].append(time.perf_counter() - started)
    of = {name: statistics.median(found) * 1000 for name, found in times.items()}
    print(
        f"{format}, 100 messages of {count} table(s): decode adds {of['decode'] - of['messages']:.0f} ms, "
        f"encode {of['encode'] - of['rows']:.0f} ms",
        flush=True,
    )


def measured(work: Callable[[], object], runs: int) -> Cost:
    """The run of the median, by CPU, after one to warm up."""
    found = []
    for run in range(runs + 1):
        before = spent()
        work()
        if run:
            found.append(spent() - before)
    middle = statistics.median_low(cost.cpu for cost in found)
    return next(cost for cost in found if cost.cpu == middle)


def jobs(spark: SparkSession) -> int:
    """How many jobs there have been: the number of the next one."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().nextJobId())


def schema(number: int, width: int) -> TableSchema:
    """A table whose key is its first column."""
    kinds = [LogicalType.parse(TEXTS[n % len(TEXTS)][0]) for n in range(width)]
    named = tuple(Column(f"column_{n}", n + 1, kind, nullable=n > 0) for n, kind in enumerate(kinds))
    return TableSchema(TableId("shop", "dbo", f"table_{number}"), named, ("column_0",))


def changes(spark: SparkSession, count: int, width: int, rows: int, seed: int, share: int) -> DataFrame:
    """Updates of so many tables, evenly, with every column or every second one, and the tables' structures."""
    at = [(f"column_{n}", TEXTS[n % len(TEXTS)][1]) for n in range(0, width, share)]
    image = ", ".join(f"{literal(name)}, {text}" for name, text in at)
    ids = ", ".join(literal(schema(n, width).fingerprint) for n in range(count))
    given = {
        "op": "'u'" if share > 1 else "if(id % 2 = 0, 'c', 'u')",
        "table": f"named_struct('database', 'shop', 'schema', 'dbo', 'name', concat('table_', id % {count}))",
        "key": "map('column_0', cast(id * 7 as string))",
        "after": f"map({image})",
        "position": f"concat(lpad({seed}, 10, '0'), lpad(id, 10, '0'))",
        "schema_id": f"array({ids})[cast(id % {count} as int)]",
    }
    structures = ", ".join(literal(schema(n, width).to_text()) for n in range(count))
    told = {
        "op": "'schema'",
        "table": f"named_struct('database', 'shop', 'schema', 'dbo', 'name', concat('table_', id % {count}))",
        "position": "'0'",
        "schema_id": f"array({ids})[cast(id as int)]",
        "table_schema": f"array({structures})[cast(id as int)]",
    }
    kinds = {field.name: field.dataType.simpleString() for field in spark_schema()}

    def made(frame: DataFrame, values: dict[str, str]) -> DataFrame:
        return frame.selectExpr(*(f"cast({values.get(n, 'null')} as {kind}) as {n}" for n, kind in kinds.items()))

    return made(spark.range(rows), given).unionByName(made(spark.range(count), told)).coalesce(2)


if __name__ == "__main__":
    main()
