"""How fast change rows become Debezium JSON, beside what a user would write by hand from typed columns.

    python bench/formats.py [--rows 1000000] [--tables 1 10 50] [--repeat 3]

One run, one process, medians; both sides write to Spark's `noop` sink from the same cached rows.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.row import spark_schema
from headrace.formats.convert import encode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {
    "id": ("int32", "id"),
    "customer": ("int64", "id * 7"),
    "name": ("string", "concat('name ', id)"),
    "note": ("string", "concat('a longer piece of text, with é and \"quotes\" ', id % 1000)"),
    "amount": ("decimal(12,2)", "cast(id / 100 as decimal(12,2))"),
    "price": ("float64", "cast(id as double) / 3"),
    "active": ("boolean", "id % 2 = 0"),
    "day": ("date", "date_add(date'2020-01-01', cast(id % 1000 as int))"),
    "made": ("timestamp(3)", "timestamp_millis(1500000000000 + id)"),
    "code": ("string", "concat('x', id % 97)"),
}
CREATED = "date_format({}, 'yyyy-MM-dd HH:mm:ss.SSS')"


def schema_of(number: int) -> TableSchema:
    columns = tuple(
        Column(name, place, LogicalType.parse(kind), nullable=name != "id")
        for place, (name, (kind, _)) in enumerate(COLUMNS.items(), 1)
    )
    return TableSchema(TableId("db", "dbo", f"table_{number}"), columns, ("id",))


def typed_rows(spark: SparkSession, rows: int, tables: int) -> DataFrame:
    """What the user of a hand-written encode would have: one typed struct per row."""
    fields = ", ".join(f"{expression} as {name}" for name, (_, expression) in COLUMNS.items())
    return spark.range(rows).selectExpr(f"struct({fields}) as after", f"cast(id % {tables} as int) as table_number")


def change_rows(typed: DataFrame, schemas: list[TableSchema]) -> DataFrame:
    """The same rows as change rows, with images as maps of canonical text."""
    texts = {name: f"cast(after.{name} as string)" for name in COLUMNS} | {"made": CREATED.format("after.made")}
    image = ", ".join(f"'{name}', {text}" for name, text in texts.items())
    ids = ", ".join(f"'{schema.fingerprint}'" for schema in schemas)
    given = {
        "op": "'c'",
        "table": "named_struct('database', 'db', 'schema', 'dbo', 'name', concat('table_', table_number))",
        "key": "map('id', cast(after.id as string))",
        "key_text": "concat('[\"', after.id, '\"]')",
        "after": f"map({image})",
        "position": "lpad(after.id, 12, '0')",
        "event_time": "timestamp'2026-01-01 00:00:00'",
        "capture_time": "timestamp'2026-01-01 00:00:01'",
        "source": "map('connector', 'sqlserver', 'change_lsn', '00000027:00000758:0003', "
        "'commit_lsn', '00000027:00000758:0005', 'event_serial_no', '1')",
        "schema_id": f"array({ids})[table_number]",
    }
    kind = spark_schema()
    return typed.selectExpr(
        *(f"cast({given.get(f.name, 'null')} as {f.dataType.simpleString()}) as {f.name}" for f in kind)
    )


def by_hand(typed: DataFrame) -> DataFrame:
    """An encode of one known table as a user would write it, with every field of the event."""
    from pyspark.sql import functions as F  # noqa: N812

    milliseconds = "unix_millis(timestamp'2026-01-01 00:00:00')"
    after = F.expr(
        "named_struct('id', after.id, 'customer', after.customer, 'name', after.name, 'note', after.note, "
        "'amount', cast(after.amount as string), 'price', after.price, 'active', after.active, "
        "'day', unix_date(after.day), 'made', unix_millis(after.made), 'code', after.code)"
    )
    source = F.expr(
        "named_struct('version', '3.6.1.Final', 'connector', 'sqlserver', 'name', 'server1', "
        f"'ts_ms', {milliseconds}, 'snapshot', 'false', 'db', 'db', 'sequence', cast(null as string), "
        f"'ts_us', {milliseconds} * 1000, 'ts_ns', {milliseconds} * 1000000, 'schema', 'dbo', "
        "'table', concat('table_', table_number), 'change_lsn', '00000027:00000758:0003', "
        "'commit_lsn', '00000027:00000758:0005', 'event_serial_no', 1)"
    )
    event = F.struct(
        F.lit(None).cast("string").alias("before"),
        after.alias("after"),
        source.alias("source"),
        F.lit(None).cast("string").alias("transaction"),
        F.lit("c").alias("op"),
        F.expr(milliseconds).alias("ts_ms"),
        F.expr(f"{milliseconds} * 1000").alias("ts_us"),
        F.expr(f"{milliseconds} * 1000000").alias("ts_ns"),
    )
    return typed.select(
        F.expr("concat('server1.db.dbo.table_', table_number)").alias("topic"),
        F.to_json(F.struct("after.id")).cast("binary").alias("key"),
        F.to_json(event, {"ignoreNullFields": "false"}).cast("binary").alias("value"),
    )


def median_rate(frame: DataFrame, rows: int, repeat: int) -> float:
    def once() -> float:
        start = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - start

    once()
    return rows / statistics.median(once() for _ in range(repeat))


def main() -> None:
    from pyspark.sql import SparkSession

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--tables", type=int, nargs="*", default=[1, 10, 50])
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .getOrCreate()
    )
    print(f"{'':34}{'rows/s':>12}")
    for tables in given.tables:
        schemas = [schema_of(number) for number in range(tables)]
        typed = typed_rows(spark, given.rows, tables).cache()
        if tables == 1:
            typed.count()
            rate = median_rate(by_hand(typed), given.rows, given.repeat)
            print(f"{'by hand, typed struct, 1 table':34}{rate:12,.0f}")
        changes = change_rows(typed, schemas).cache()
        changes.count()
        typed.unpersist()
        for with_schemas in (False, True) if tables == 1 else (False,):
            messages = encode(
                changes, format="debezium_json", topic_prefix="server1", schema=schemas, schemas_enable=with_schemas
            )
            name = f"encode, {tables} table{'s' * (tables > 1)}{', with schemas' * with_schemas}"
            print(f"{name:34}{median_rate(messages, given.rows, given.repeat):12,.0f}", flush=True)
        changes.unpersist()
    spark.stop()


if __name__ == "__main__":
    main()
