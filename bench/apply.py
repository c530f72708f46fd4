"""Changes per second into a big Delta table: the Delta sink beside a MERGE that a user would write by hand.

Both get the same batches of change rows, in one run and one JVM, alternately, and end with the same rows, which is
checked. By hand is: the last change per key by a window, casts, MERGE with deletes and upserts. It keeps no batch
number, no position and no absent columns. Deletion vectors are on in both targets. Seven of ten changes are updates,
two inserts, one a delete; one key in five comes twice.

    python bench/apply.py [--rows 10000000] [--changes 10000,100000,1000000] [--runs 3] [--spread uniform]

With `--tables 1,10,100` the rows and the changes are spread over so many tables in one stream; by hand is a loop of
MERGEs over the tables, each on its part of the batch.

    python bench/apply.py --rows 1000000 --changes 10000 --tables 1,10,100

Other work on the machine falls on both sides alike only in the long run: look at the range beside the ratio.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.row import CHANGE_ROW_DDL
from headrace.changes.typed import literal, typed_value
from headrace.sinks.base import BatchId
from headrace.sinks.lake.delta.sink import DeltaSink
from headrace.spark.jars import DELTA
from headrace.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TYPES = {
    "id": "int64",
    "customer": "int32",
    "name": "string",
    "city": "string",
    "price": "decimal(12,2)",
    "ordered_at": "timestamp(3)",
    "paid": "boolean",
    "quantity": "int16",
}
SCHEMA = TableSchema(
    TableId("shop", "dbo", "orders"),
    tuple(Column(n, i, LogicalType.parse(t), nullable=n != "id") for i, (n, t) in enumerate(TYPES.items(), 1)),
    ("id",),
)
TEXTS = {
    "id": "cast(id as string)",
    "customer": "cast(id % 100000 as string)",
    "name": "concat('customer number ', id % 100000, ' of us')",
    "city": "concat('city ', hash(id, salt) % 1000)",
    "price": "cast(cast(abs(hash(id, salt)) % 1000000 / 100 as decimal(12,2)) as string)",
    "ordered_at": "concat('2026-01-', lpad(1 + id % 28, 2, '0'), ' 10:20:30.', lpad(abs(hash(salt)) % 1000, 3, '0'))",
    "paid": "if(hash(id, salt) % 2 = 0, 'true', 'false')",
    "quantity": "cast(abs(hash(salt)) % 100 as string)",
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--changes", default="10000,100000,1000000")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--spread", choices=("uniform", "recent"), default="uniform")
    parser.add_argument("--tables", default="1")
    parser.add_argument("--memory", default="6g")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-apply-"))
    try:
        spark = spark_session("bench-apply", jars=(DELTA,), conf={"spark.driver.memory": arguments.memory})
        for tables in map(int, arguments.tables.split(",")):
            place = folder / str(tables)
            base(spark, place, arguments.rows // tables, tables)
            print(
                f"{arguments.rows:,} rows in {tables} table(s), keys {arguments.spread}, "
                f"medians of {arguments.runs} batches",
                flush=True,
            )
            for size in map(int, arguments.changes.split(",")):
                measure(spark, place, arguments.rows // tables, size, arguments.runs, arguments.spread, tables)
            shutil.rmtree(place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def base(spark: SparkSession, folder: Path, rows: int, tables: int) -> None:
    """The targets, equal but for our column, each file a range of keys as an initial load leaves them."""
    typed = [f"{typed_value(text, SCHEMA.column(name))} as {name}" for name, text in TEXTS.items()]
    made = spark.range(rows).selectExpr("id", "0 as salt").selectExpr(*typed)
    for name, extra in (("hand", []), ("ours", ["'00000000000000000000//' as _headrace_position"])):
        properties = {"delta.enableDeletionVectors": "true"}
        for table in names(tables):
            place = folder / name / "dbo" / table
            made.selectExpr("*", *extra).write.format("delta").options(**properties).save(str(place))


def names(tables: int) -> list[str]:
    """The tables' names."""
    return [f"orders_{number}" for number in range(tables)]


def measure(spark: SparkSession, folder: Path, rows: int, size: int, runs: int, spread: str, tables: int) -> None:
    """One size of batch: a warm-up and so many runs, alternately."""
    sink = DeltaSink.of({"path": str(folder / "ours"), "deletion_vectors": "true", "takeover": "true"})
    subjects: dict[str, Callable[[DataFrame, int], None]] = {
        "headrace": lambda batch, number: sink.write(batch, BatchId("bench", str(size), number)),
        "by hand": lambda batch, number: by_hand(batch, folder / "hand" / "dbo", tables),
    }
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for run in range(runs + 1):
        batch = changes(spark, rows, size, size * 100 + run, spread, tables).persist()
        batch.count()
        order = list(subjects) if run % 2 else list(reversed(subjects))
        for name in order:
            started = time.perf_counter()
            subjects[name](batch, run)
            if run:
                times[name].append(time.perf_counter() - started)
        batch.unpersist()
    check(spark, folder, tables)
    ratios = [hand / ours for ours, hand in zip(times["headrace"], times["by hand"], strict=True)]
    ours, hand = (statistics.median(times[name]) for name in ("headrace", "by hand"))
    print(
        f"{size:>10,} changes: headrace {ours:7.2f} s, {size / ours:10,.0f}/s; by hand {hand:7.2f} s, "
        f"{size / hand:10,.0f}/s; ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        flush=True,
    )


def changes(spark: SparkSession, rows: int, size: int, seed: int, spread: str, tables: int) -> DataFrame:
    """A batch as a source would give it, evenly over the tables."""
    scattered = f"abs(xxhash64(n, {seed}))"
    old = f"{scattered} % {rows}" if spread == "uniform" else f"{rows} - 1 - {scattered} % {size * 4}"
    what = f"abs(hash(n, {seed}, 'what')) % 10"
    # Every fifth change is to the key of the one before it.
    made = spark.range(size).selectExpr("id as at", "if(id % 5 = 4, id - 1, id) as n")
    made = made.selectExpr("*", f"{what} as what", f"at + {seed} as salt")
    made = made.selectExpr("*", f"if(what < 2, {rows} + {seed} * 10000000L + n, {old}) as id")
    image = "map(" + ", ".join(f"{literal(name)}, {text}" for name, text in TEXTS.items()) + ")"
    columns = {
        "op": "case when what < 2 then 'c' when what < 9 then 'u' else 'd' end",
        "table": f"named_struct('database', 'shop', 'schema', 'dbo', 'name', concat('orders_', pmod(n, {tables})))",
        "key": "map('id', cast(id as string))",
        "key_text": "concat('[\"', id, '\"]')",
        "before": f"if(what < 2, null, {image})",
        "after": f"if(what = 9, null, {image})",
        "position": f"concat(lpad({seed}, 10, '0'), lpad(at, 10, '0'), '//')",
        "schema_id": literal(SCHEMA.fingerprint),
    }
    structures = [
        {
            "op": "schema",
            "table": {"database": "shop", "schema": "dbo", "name": table},
            "position": "",
            "schema_id": SCHEMA.fingerprint,
            "table_schema": SCHEMA.to_text(),
        }
        for table in names(tables)
    ]
    fields = spark.createDataFrame([], CHANGE_ROW_DDL).columns
    told = spark.createDataFrame([tuple(one.get(name) for name in fields) for one in structures], CHANGE_ROW_DDL)
    rows_of = [
        f"{columns[field.name]} as {field.name}"
        if field.name in columns
        else f"cast(null as {field.dataType.simpleString()}) as {field.name}"
        for field in told.schema
    ]
    return made.selectExpr(*rows_of).unionByName(told)


def by_hand(batch: DataFrame, folder: Path, tables: int) -> None:
    """What a user would write."""
    for table in names(tables):
        rows = batch if tables == 1 else batch.where(f"table.name = '{table}'")
        merge(rows, str(folder / table))


def merge(batch: DataFrame, path: str) -> None:
    """One table's last change per key, merged."""
    from delta.tables import DeltaTable
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    spark = batch.sparkSession
    latest = (
        batch.where("op in ('r', 'c', 'u', 'd')")
        .withColumn("nth", sf.row_number().over(Window.partitionBy(sf.expr("key['id']")).orderBy(sf.desc("position"))))
        .where("nth = 1")
        .selectExpr(
            "op",
            "cast(key['id'] as bigint) as id",
            *(
                f"cast(after['{name}'] as {column.logical.spark_type}) as {name}"
                for name, column in ((c.name, c) for c in SCHEMA.columns)
                if name != "id"
            ),
        )
    )
    values = {name: f"s.{name}" for name in TYPES}
    (
        DeltaTable.forPath(spark, path)
        .alias("t")
        .merge(latest.alias("s"), "t.id = s.id")
        .whenMatchedDelete("s.op = 'd'")
        .whenMatchedUpdate("s.op <> 'd'", set=values)
        .whenNotMatchedInsert("s.op <> 'd'", values=values)
        .execute()
    )


def check(spark: SparkSession, folder: Path, tables: int) -> None:
    """Both targets must hold the same rows."""
    for table in names(tables):
        sums = []
        for name in ("ours", "hand"):
            rows = spark.read.format("delta").load(str(folder / name / "dbo" / table))
            hashed = rows.selectExpr(f"cast(xxhash64({', '.join(TYPES)}) as decimal(38,0)) as h")
            sums.append(hashed.selectExpr("count(*)", "sum(h)").collect())
        if sums[0] != sums[1]:
            raise SystemExit(f"the targets of {table} differ: {sums}")


if __name__ == "__main__":
    main()
