"""Changes per second into a big lake table: the Delta (or Iceberg) sink beside a MERGE that a user would write by hand.

Both get the same batches of change rows, in one run and one JVM, alternately, and end with the same rows, which is
checked. By hand is: the last change per key by a window, casts, MERGE with deletes and upserts. It keeps no batch
number, no position and no absent columns. Both targets mark deleted rows; with `--rewrite` both write the files that
have some again. Seven of ten changes are updates, two inserts, one a delete; one key in five comes twice. Seconds of
the clock, seconds of CPU of the whole process tree, and Spark jobs, medians; the ratio is what by hand takes over what
Headrace takes.

    python bench/apply.py [--rows 10000000] [--changes 10000,100000,1000000] [--runs 3] [--columns 10] [--format delta]

With `--tables 1,10,100` the rows and the changes are spread over so many tables in one stream; by hand is a loop of
MERGEs over the tables, each on its part of the batch.

    python bench/apply.py --rows 1000000 --changes 10000 --tables 1,10,100
    python bench/apply.py --rows 1000000 --changes 10000 --columns 200

Does the cost of young keys grow with the table? Several sizes, and the last line says the largest over the smallest:

    python bench/apply.py --rows 5000000,50000000 --changes 10000 --spread recent --sides headrace

Other work on the machine falls on both sides alike only in the long run: look at the range beside the ratio, and at CPU
and jobs.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stream import spent
from tables import jobs

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.row import CHANGE_ROW_DDL
from headrace.changes.typed import literal, typed_value
from headrace.sinks.base import BatchId
from headrace.sinks.lake.delta.sink import DeltaSink
from headrace.sinks.lake.iceberg.sink import IcebergSink
from headrace.sinks.lake.sink import LakeSink
from headrace.spark.jars import DELTA, ICEBERG
from headrace.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {
    "id": ("int64", "cast(id as string)"),
    "customer": ("int32", "cast(id % 100000 as string)"),
    "name": ("string", "concat('customer number ', id % 100000, ' of us')"),
    "city": ("string", "concat('city ', hash(id, salt) % 1000)"),
    "price": ("decimal(12,2)", "cast(cast(abs(hash(id, salt)) % 1000000 / 100 as decimal(12,2)) as string)"),
    "ordered_at": (
        "timestamp(3)",
        "concat('2026-01-', lpad(1 + id % 28, 2, '0'), ' 10:20:30.', lpad(abs(hash(salt)) % 1000, 3, '0'))",
    ),
    "paid": ("boolean", "if(hash(id, salt) % 2 = 0, 'true', 'false')"),
    "quantity": ("int16", "cast(abs(hash(salt)) % 100 as string)"),
    "day": ("date", "cast(date_add(date'2020-01-01', cast(id % 1000 as int)) as string)"),
    "weight": ("float64", "concat(id % 1000, '.25')"),
}
ROWS_PER_FILE = 250_000
OWN = "_headrace_position"


def columns(width: int) -> dict[str, tuple[str, str]]:
    """So many columns with their types and texts: those above, over and over under other names."""
    given = list(COLUMNS.items())
    return {
        (name if n < len(given) else f"{name}_{n}"): of
        for n in range(width)
        for name, of in [given[n if n < len(given) else 1 + n % (len(given) - 1)]]
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="10000000")
    parser.add_argument("--changes", default="10000,100000,1000000")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--warm", type=int, default=2, help="batches before those that count")
    parser.add_argument("--spread", choices=("uniform", "recent"), default="uniform")
    parser.add_argument("--tables", default="1")
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--format", choices=("delta", "iceberg"), default="delta")
    parser.add_argument("--rewrite", action="store_true", help="files are written again; no deleted rows are marked")
    parser.add_argument("--sides", choices=("both", "headrace"), default="both")
    parser.add_argument("--memory", default="6g")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-apply-"))
    try:
        spark = spark_session("bench-apply", jars=(DELTA, ICEBERG), conf=settings(folder, arguments.memory))
        spark.sparkContext.setLogLevel("ERROR")
        for tables in map(int, arguments.tables.split(",")):
            compared(spark, folder, arguments, tables)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def settings(folder: Path, memory: str) -> dict[str, str]:
    """A session that has Iceberg's catalogue as well."""
    return {
        "spark.driver.memory": memory,
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(folder / "warehouse"),
        "spark.sql.catalog.lake.cache-enabled": "false",
    }


def compared(spark: SparkSession, folder: Path, arguments: argparse.Namespace, tables: int) -> None:
    """One number of tables: all sizes of them, with all sizes of batches."""
    sizes = [int(size) // tables for size in arguments.rows.split(",")]
    costs: dict[str, list[tuple[float, float]]] = {}
    for rows in sizes:
        bench = Bench(spark, folder, arguments, tables, rows)
        bench.base()
        print(
            f"{arguments.format}: {rows:,} rows of {arguments.columns} columns in each of {tables} table(s), "
            f"keys {arguments.spread}, {'files written again' if arguments.rewrite else 'deleted rows marked'}, "
            f"medians of {arguments.runs} batches",
            flush=True,
        )
        for size in arguments.changes.split(","):
            costs.setdefault(size, []).append(bench.measure(int(size)))
        bench.drop()
    for size, found in costs.items():
        if len(found) > 1:
            (_, least), (_, most) = min(zip(sizes, found, strict=True)), max(zip(sizes, found, strict=True))
            wall, cpu = (most[n] / least[n] for n in (0, 1))
            print(
                f"{int(size):>10,} changes: {max(sizes):,} rows take {wall:.2f} times as long and {cpu:.2f} times as "
                f"much CPU as {min(sizes):,} rows",
                flush=True,
            )


def table_schema(columns: Mapping[str, tuple[str, str]]) -> TableSchema:
    """The structure of a table of these columns."""
    typed = enumerate(columns.items(), 1)
    made = (Column(name, n, LogicalType.parse(kind), nullable=name != "id") for n, (name, (kind, _)) in typed)
    return TableSchema(TableId("shop", "dbo", "orders"), tuple(made), ("id",))


def changes(
    spark: SparkSession,
    schema: TableSchema,
    columns: Mapping[str, tuple[str, str]],
    names: Sequence[str],
    rows: int,
    size: int,
    seed: int,
    spread: str,
) -> DataFrame:
    """A batch as a source would give it, evenly over the tables.

    Args:
        spark: the session.
        schema: of each table.
        columns: type and expression of each column, from `id` and `salt`.
        names: the tables.
        rows: how many rows each table has.
        size: how many changes.
        seed: other changes for another one, which are behind those of a lower one.
        spread: whether they are to all rows (`uniform`) or to young ones (`recent`).
    """
    tables = len(names)
    scattered = f"abs(xxhash64(n, {seed}))"
    old = f"{scattered} % {rows}" if spread == "uniform" else f"{rows} - 1 - {scattered} % {size * 4}"
    what = f"abs(hash(n, {seed}, 'what')) % 10"
    # Every fifth change is to the key of the one before it.
    made = spark.range(size).selectExpr("id as at", "if(id % 5 = 4, id - 1, id) as n")
    made = made.selectExpr("*", f"{what} as what", f"at + {seed} as salt")
    made = made.selectExpr("*", f"if(what < 2, {rows} + {seed} * 10000000L + n, {old}) as id")
    image = "map(" + ", ".join(f"{literal(name)}, {text}" for name, (_, text) in columns.items()) + ")"
    values = {
        "op": "case when what < 2 then 'c' when what < 9 then 'u' else 'd' end",
        # Of five numbers `n` has four: all tables get changes.
        "table": "named_struct('database', 'shop', 'schema', 'dbo', 'name', "
        f"concat('orders_', pmod(n - n div 5, {tables})))",
        "key": "map('id', cast(id as string))",
        "key_text": "concat('[\"', id, '\"]')",
        "before": f"if(what < 2, null, {image})",
        "after": f"if(what = 9, null, {image})",
        "position": f"concat(lpad({seed}, 10, '0'), lpad(at, 10, '0'), '//')",
        "schema_id": literal(schema.fingerprint),
    }
    structures = [
        {
            "op": "schema",
            "table": {"database": "shop", "schema": "dbo", "name": table},
            "position": "",
            "schema_id": schema.fingerprint,
            "table_schema": schema.to_text(),
        }
        for table in names
    ]
    fields = spark.createDataFrame([], CHANGE_ROW_DDL).columns
    structure_rows = [tuple(one.get(name) for name in fields) for one in structures]
    told = spark.createDataFrame(structure_rows, CHANGE_ROW_DDL)
    rows_of = [
        f"{values[field.name]} as {field.name}"
        if field.name in values
        else f"cast(null as {field.dataType.simpleString()}) as {field.name}"
        for field in told.schema
    ]
    return made.selectExpr(*rows_of).unionByName(told)


class Bench:
    """Targets of one size, and what is done to them."""

    def __init__(
        self, spark: SparkSession, folder: Path, arguments: argparse.Namespace, tables: int, rows: int
    ) -> None:
        self.spark = spark
        self.folder = folder
        self.format = arguments.format
        self.marked = not arguments.rewrite
        self.runs = arguments.runs
        self.warm = arguments.warm
        self.spread = arguments.spread
        self.rows = rows
        self.sides = ("headrace", "hand") if arguments.sides == "both" else ("headrace",)
        self.columns = columns(arguments.columns)
        self.schema = table_schema(self.columns)
        self.tables = [f"orders_{number}" for number in range(tables)]

    def name(self, side: str, table: str) -> str:
        """A target as SQL names it."""
        if self.format == "delta":
            return f"delta.`{self.folder / side / 'dbo' / table}`"
        return f"lake.{side}.{table}"

    def sink(self, side: str = "headrace", **options: object) -> LakeSink:
        """Headrace's, for one of the sides."""
        if self.format == "iceberg":
            return IcebergSink.of({"catalog": "lake", "namespace": side, "takeover": "true", **options})
        return DeltaSink.of({"path": str(self.folder / side), "takeover": "true", **options})

    def base(self) -> None:
        """The targets, equal but for our column, each file a range of keys as an initial load leaves them."""
        typed = [f"{typed_value(text, self.schema.column(name))} as {name}" for name, (_, text) in self.columns.items()]
        made = self.spark.range(0, self.rows, 1, max(2, self.rows // ROWS_PER_FILE))
        made = made.selectExpr("id", "0 as salt").selectExpr(*typed)
        modes = [f"write.{what}.mode" for what in ("merge", "update", "delete")]
        properties = (
            {"delta.enableDeletionVectors": str(self.marked).lower()}
            if self.format == "delta"
            else {"format-version": "2"} | dict.fromkeys(modes, "merge-on-read" if self.marked else "copy-on-write")
        )
        pairs = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        for side in self.sides:
            if self.format == "iceberg":
                self.spark.sql(f"create namespace if not exists lake.{side}")
            for table in self.tables:
                rows = made.selectExpr("*", *([f"'{'0' * 20}//' as {OWN}"] if side != "hand" else []))
                rows.createOrReplaceTempView("bench_base")
                self.spark.sql(
                    f"create table {self.name(side, table)} using {self.format} tblproperties ({pairs}) "
                    "as select * from bench_base"
                )

    def drop(self) -> None:
        """Make room for the next ones."""
        for side in self.sides:
            for table in self.tables if self.format == "iceberg" else ():
                self.spark.sql(f"drop table {self.name(side, table)} purge")
            shutil.rmtree(self.folder / side, ignore_errors=True)

    def measure(self, size: int) -> tuple[float, float]:
        """One size of batch, both sides alternately. Headrace's seconds of the clock and of CPU."""
        sink = self.sink()
        subjects: dict[str, Callable[[DataFrame, int], None]] = {
            "headrace": lambda batch, number: sink.write(batch, BatchId("bench", str(size), number)),
            "hand": lambda batch, number: self.by_hand(batch),
        }
        costs: dict[str, list[tuple[float, float, float]]] = {side: [] for side in self.sides}
        for run in range(self.warm + self.runs):
            batch = self.changes(size, size * 100 + run).persist()
            batch.count()
            for side in self.sides if run % 2 else reversed(self.sides):
                started, cpu, before = time.perf_counter(), spent(), jobs(self.spark)
                subjects[side](batch, run)
                used = (time.perf_counter() - started, (spent() - cpu).cpu, float(jobs(self.spark) - before))
                if run >= self.warm:
                    costs[side].append(used)
            batch.unpersist()
        middle = {side: [statistics.median(of) for of in zip(*found, strict=True)] for side, found in costs.items()}
        told = [
            f"{side} {wall:.2f} s, {size / wall:,.0f}/s, CPU {cpu:.2f} s, {ran:.0f} jobs"
            for side, (wall, cpu, ran) in middle.items()
        ]
        if len(self.sides) > 1:
            self.check()
            for place, what in enumerate(("clock", "CPU")):
                ratios = [hand[place] / ours[place] for ours, hand in zip(*costs.values(), strict=True)]
                told.append(f"by {what} {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
        print(f"{size:>10,} changes: {'; '.join(told)}", flush=True)
        return middle["headrace"][0], middle["headrace"][1]

    def changes(self, size: int, seed: int) -> DataFrame:
        """A batch as a source would give it, evenly over the tables."""
        return changes(self.spark, self.schema, self.columns, self.tables, self.rows, size, seed, self.spread)

    def by_hand(self, batch: DataFrame) -> None:
        """What a user would write: one MERGE for each table."""
        for table in self.tables:
            rows = batch if len(self.tables) == 1 else batch.where(f"table.name = '{table}'")
            self.merge(rows, self.name("hand", table))

    def merge(self, batch: DataFrame, target: str) -> None:
        """One table's last change per key, merged."""
        from pyspark.sql import Window
        from pyspark.sql import functions as sf

        newest_first = Window.partitionBy(sf.expr("key['id']")).orderBy(sf.desc("position"))
        latest = (
            batch.where("op in ('r', 'c', 'u', 'd')")
            .withColumn("nth", sf.row_number().over(newest_first))
            .where("nth = 1")
            .selectExpr(
                "op",
                "cast(key['id'] as bigint) as id",
                *(
                    f"cast(after['{column.name}'] as {column.logical.spark_type}) as {column.name}"
                    for column in self.schema.columns
                    if column.name != "id"
                ),
            )
        )
        latest.createOrReplaceTempView("bench_latest")
        names = list(self.columns)
        self.spark.sql(
            f"merge into {target} t using bench_latest s on t.id = s.id "
            "when matched and s.op = 'd' then delete "
            f"when matched and s.op <> 'd' then update set {', '.join(f'{name} = s.{name}' for name in names)} "
            f"when not matched and s.op <> 'd' then insert ({', '.join(names)}) "
            f"values ({', '.join(f's.{name}' for name in names)})"
        )

    def check(self) -> None:
        """Both targets must hold the same rows."""
        for table in self.tables:
            hashed = f"cast(xxhash64({', '.join(self.columns)}) as decimal(38,0)) as h"
            sums = [
                self.spark.table(self.name(side, table)).selectExpr(hashed).selectExpr("count(*)", "sum(h)").collect()
                for side in self.sides
            ]
            if any(found != sums[0] for found in sums):
                raise SystemExit(f"the targets of {table} differ: {sums}")


if __name__ == "__main__":
    main()
