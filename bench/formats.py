"""How fast each wire format is read and written, beside what a user would write by hand.

    python bench/formats.py [--rows 300000] [--repeat 5] [--formats canal_json dts_avro]
    python bench/formats.py --scale        # one format, 10 thousand to 10 million messages
    python bench/formats.py --structs      # decoding to structs only
    python bench/formats.py --tables       # decoding to maps, 1 to 200 tables in one topic

One run, one process, two cores, the same cached messages for both sides, written to Spark's `noop` sink; the sides
take turns, and the figures are medians: microseconds of CPU per message of the whole process tree (user and system
time of JVM and Python), and in brackets those of the clock. By hand means: `from_json` or `from_avro` with the same
schema for the images and the block of facts beside them, nothing else; no key, position, table, types or errors, which
a decode also gives. Written by hand: `to_json` or `to_avro` of one struct of the same shape.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stream import Cost, spent

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.row import spark_schema
from headrace.changes.texts import text_image
from headrace.formats.convert import decode, encode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {
    "id": ("int32", "cast(id as int)"),
    "customer": ("int64", "id * 7"),
    "name": ("string", "concat('name ', id)"),
    "note": ("string", "concat('a longer piece of text, with é and \"quotes\" ', id % 1000)"),
    "amount": ("decimal(12,2)", "cast(id / 100 as decimal(12,2))"),
    "price": ("float64", "cast(id as double) / 3"),
    "active": ("boolean", "id % 2 = 0"),
    "day": ("date", "date_add(date'2020-01-01', cast(id % 1000 as int))"),
    "made": ("timestamp(6)", "timestamp_ntz'2017-07-14 02:40:00' + make_dt_interval(0, 0, 0, id / 1000)"),
    "code": ("string", "concat('x', id % 97)"),
}
NATIVE = {
    "int32": "int",
    "int64": "bigint",
    "string": "varchar(100)",
    "decimal(12,2)": "decimal(12,2)",
    "float64": "double",
    "boolean": "tinyint(1)",
    "date": "date",
    "timestamp(6)": "datetime(6)",
}
WIRE = (
    "id int, customer bigint, name string, note string, amount {}, price double, active boolean, day {}, made {}, "
    "code string"
)
MYSQL_TYPES = ", ".join(f"'{name}', '{NATIVE[kind]}'" for name, (kind, _) in COLUMNS.items())
JDBC_TYPES = ", ".join(f"'{name}', 12" for name in COLUMNS)
TEXTS = ", ".join(f"{name} string" for name in COLUMNS)
DDL = ", ".join(f"{name} {LogicalType.parse(kind).spark_type}" for name, (kind, _) in COLUMNS.items())


def struct(ddl: str) -> str:
    return f"struct<{ddl.replace(' ', ':').replace(',:', ',')}>"


@dataclass(frozen=True)
class Contest:
    """One format: how it is asked, and what a user would write instead.

    Args:
        format: its name.
        by_hand: from the cached messages (and the registry's schemas) to what a user would parse.
        written: from rows with struct images to what a user would write.
        encoding, decoding: options.
        needs_registry: whether the format's Avro schemas stand in a registry.
    """

    format: str
    by_hand: Callable[[DataFrame, dict[str, Any]], DataFrame]
    written: Callable[[DataFrame, dict[str, Any]], DataFrame]
    encoding: dict[str, Any] = field(default_factory=dict)
    decoding: dict[str, Any] = field(default_factory=dict)
    needs_registry: bool = False


def from_json(ddl: str) -> Callable[[DataFrame, dict[str, Any]], DataFrame]:
    return lambda messages, _: messages.selectExpr(f"from_json(cast(value as string), '{ddl}') as row")


def to_json(sql: str) -> Callable[[DataFrame, dict[str, Any]], DataFrame]:
    def written(rows: DataFrame, _: dict[str, Any]) -> DataFrame:
        return rows.selectExpr(
            "'a.topic' as topic",
            "cast(key_text as binary) as key",
            f"cast(to_json({sql}, map('ignoreNullFields', 'false')) as binary) as value",
        )

    return written


DEBEZIUM_SOURCE = (
    "struct<version:string,connector:string,name:string,ts_ms:bigint,snapshot:string,db:string,sequence:string,"
    "ts_us:bigint,ts_ns:bigint,schema:string,table:string,change_lsn:string,commit_lsn:string,event_serial_no:bigint>"
)


def debezium_image(image: str) -> str:
    values = {"amount": "cast({} as string)", "day": "unix_date({})", "made": "unix_micros(cast({} as timestamp))"}
    fields = ", ".join(f"'{name}', {values.get(name, '{}').format(f'{image}.{name}')}" for name in COLUMNS)
    return f"if({image} is null, null, named_struct({fields}))"


DEBEZIUM_ENVELOPE = (
    f"named_struct('before', {debezium_image('before')}, 'after', {debezium_image('after')}, 'source', "
    "named_struct('version', '3.6.1.Final', 'connector', 'sqlserver', 'name', 'server1', 'ts_ms', "
    "unix_millis(event_time), 'snapshot', 'false', 'db', table.database, 'sequence', cast(null as string), 'ts_us', "
    "unix_micros(event_time), 'ts_ns', unix_micros(event_time) * 1000, 'schema', table.schema, 'table', table.name, "
    "'change_lsn', source['change_lsn'], 'commit_lsn', source['commit_lsn'], 'event_serial_no', 1L), 'transaction', "
    "cast(null as string), 'op', op, 'ts_ms', unix_millis(capture_time), 'ts_us', unix_micros(capture_time), 'ts_ns', "
    "unix_micros(capture_time) * 1000)"
)


def text_struct(image: str) -> str:
    fields = ", ".join(f"'{name}', cast({image}.{name} as string)" for name in COLUMNS)
    return f"if({image} is null, null, named_struct({fields}))"


def avro_by_hand(messages: DataFrame, registry: dict[str, Any]) -> DataFrame:
    from pyspark.sql.avro.functions import from_avro
    from pyspark.sql.functions import expr

    first = messages.selectExpr("cast(conv(hex(substr(value, 2, 4)), 16, 10) as int) as id").first()
    assert first is not None
    row = from_avro(expr("substr(value, 6)"), registry["schemas"][first.id], {"mode": "PERMISSIVE"})
    return messages.select(row.alias("row")).selectExpr("row.before", "row.after", "row.source", "row.op", "row.ts_ms")


def avro_written(rows: DataFrame, registry: dict[str, Any]) -> DataFrame:
    from pyspark.sql.avro.functions import to_avro
    from pyspark.sql.functions import expr

    envelope = rows.select(expr(DEBEZIUM_ENVELOPE).alias("row"))
    return envelope.select(to_avro("row").alias("value"))


def dts_by_hand(messages: DataFrame, registry: dict[str, Any]) -> DataFrame:
    import json

    from pyspark.sql.avro.functions import from_avro

    from headrace.formats.dts.schemas import record_schema

    return messages.select(from_avro("value", json.dumps(record_schema()), {"mode": "PERMISSIVE"}).alias("row"))


def dts_written(rows: DataFrame, registry: dict[str, Any]) -> DataFrame:
    from pyspark.sql.avro.functions import to_avro
    from pyspark.sql.functions import expr

    simple = f"named_struct('before', {text_struct('before')}, 'after', {text_struct('after')}, 'operation', op)"
    return rows.select(expr(simple).alias("row")).select(to_avro("row").alias("value"))


CONTESTS = (
    Contest(
        "debezium_json",
        from_json(
            "before struct<{0}>, after struct<{0}>, source {1}, op string, ts_ms bigint".format(
                WIRE.format("string", "int", "bigint").replace(", ", ",").replace(" ", ":"), DEBEZIUM_SOURCE
            )
        ),
        to_json(DEBEZIUM_ENVELOPE),
        encoding={"topic_prefix": "server1"},
    ),
    Contest(
        "canal_json",
        from_json(
            f"data array<{struct(TEXTS)}>, old array<{struct(TEXTS)}>, `database` string, `table` string, type string, "
            "es bigint, ts bigint, id bigint, isDdl boolean, sql string, pkNames array<string>, "
            "mysqlType map<string,string>, sqlType map<string,int>"
        ),
        to_json(
            f"named_struct('data', array({text_struct('coalesce(after, before)')}), 'database', table.database, 'es', "
            "unix_millis(event_time), 'id', 1, 'isDdl', false, 'mysqlType', "
            f"map({MYSQL_TYPES}),"
            f" 'old', if(op = 'u', array({text_struct('before')}), null), 'pkNames', array('id'), 'sql', '', "
            f"'sqlType', map({JDBC_TYPES}), 'table', table.name, 'ts', "
            "unix_millis(capture_time), 'type', op)"
        ),
    ),
    Contest(
        "shareplex_json",
        from_json(
            f"meta struct<time:string,userid:bigint,op:string,scn:string,rowid:string,trans:string,seq:bigint,"
            f"size:bigint,table:string,idx:string,posttime:string>, data {struct(TEXTS)}, key {struct(TEXTS)}"
        ),
        to_json(
            "named_struct('meta', named_struct('time', cast(event_time as string), 'op', op, 'scn', "
            f"source['commit_lsn'], 'table', table.name), 'data', {text_struct('coalesce(after, before)')}, 'key', "
            f"{text_struct('before')})"
        ),
    ),
    Contest(
        "debezium_avro",
        avro_by_hand,
        avro_written,
        encoding={"topic_prefix": "server1"},
        decoding={"framing": "confluent"},
        needs_registry=True,
    ),
    Contest("dts_avro", dts_by_hand, dts_written),
    Contest(
        "qlik_json",
        from_json(
            f"message struct<data:{struct(TEXTS)},beforeData:{struct(TEXTS)},headers:struct<operation:string,"
            "changeSequence:string,timestamp:string,streamPosition:string,transactionId:string,changeMask:string,"
            "columnMask:string,transactionEventCounter:bigint,transactionLastEvent:boolean>>"
        ),
        to_json(
            f"named_struct('data', {text_struct('coalesce(after, before)')}, 'beforeData', {text_struct('before')}, "
            "'headers', named_struct('operation', op, 'timestamp', cast(event_time as string)))"
        ),
    ),
    Contest(
        "maxwell_json",
        from_json(
            f"`database` string, `table` string, type string, ts bigint, xid bigint, data {struct(TEXTS)}, "
            f"old {struct(TEXTS)}"
        ),
        to_json(
            "named_struct('database', table.database, 'table', table.name, 'type', op, 'ts', "
            f"unix_seconds(event_time), 'data', {text_struct('coalesce(after, before)')}, 'old', "
            f"{text_struct('before')})"
        ),
    ),
    Contest(
        "ogg_json",
        from_json(
            f"`table` string, op_type string, op_ts string, current_ts string, pos string, before {struct(TEXTS)}, "
            f"after {struct(TEXTS)}, primary_keys array<string>"
        ),
        to_json(
            "named_struct('table', table.name, 'op_type', op, 'op_ts', cast(event_time as string), 'before', "
            f"{text_struct('before')}, 'after', {text_struct('after')})"
        ),
    ),
)


def schema_of(number: int) -> TableSchema:
    columns = tuple(
        Column(name, place, LogicalType.parse(kind), native_type=NATIVE[kind], nullable=name != "id")
        for place, (name, (kind, _)) in enumerate(COLUMNS.items(), 1)
    )
    return TableSchema(TableId("db", "dbo", f"table_{number}"), columns, ("id",))


def struct_rows(spark: SparkSession, rows: int, tables: int = 1) -> DataFrame:
    """Change rows with struct images: half of them creates, a quarter updates and a quarter deletes."""
    ids = ", ".join(repr(schema_of(n).fingerprint) for n in range(tables))
    image = f"struct({', '.join(f'{expression} as {name}' for name, (_, expression) in COLUMNS.items())})"
    old = image.replace("concat('x', id % 97)", "concat('y', id % 97)")
    kind = "case id % 4 when 0 then 'u' when 1 then 'd' else 'c' end"
    base = spark.range(rows).selectExpr("id", f"{kind} as op", f"{image} as new", f"{old} as old")
    given = {
        "op": "op",
        "table": f"named_struct('database', 'db', 'schema', 'dbo', 'name', concat('table_', id % {tables}))",
        "key": "map('id', cast(id as string))",
        "key_text": "concat('[\"', id, '\"]')",
        "before": "if(op = 'c', null, old)",
        "after": "if(op = 'd', null, new)",
        "position": "lpad(id, 20, '0')",
        "event_time": "timestamp'2026-01-01 00:00:00Z'",
        "capture_time": "timestamp'2026-01-01 00:00:01Z'",
        "source": "map('connector', 'sqlserver', 'change_lsn', '00000027:00000758:0003', "
        "'commit_lsn', '00000027:00000758:0005', 'event_serial_no', '1')",
        "schema_id": f"array({ids})[cast(id % {tables} as int)]",
    }
    return base.selectExpr(
        *(
            f"{given[f.name]} as {f.name}"
            if f.name in ("before", "after")
            else f"cast({given.get(f.name, 'null')} as {f.dataType.simpleString()}) as {f.name}"
            for f in spark_schema()
        )
    )


def map_rows(rows: DataFrame) -> DataFrame:
    """The same rows with maps of canonical texts."""
    from pyspark.sql.functions import expr

    schema = schema_of(0)
    return rows.withColumns({name: expr(text_image(name, schema)) for name in ("before", "after")})


@dataclass(frozen=True)
class Rate:
    """Medians of one side, per message: microseconds of CPU and of the clock."""

    cpu: float
    wall: float

    def __str__(self) -> str:
        return f"{self.cpu:.1f} ({self.wall:.1f})"

    def of(self, hand: Rate) -> str:
        """How many messages this side makes while the other makes one, by CPU and by the clock."""
        return f"{hand.cpu / self.cpu:.2f} ({hand.wall / self.wall:.2f})"


def cost(frame: DataFrame) -> Cost:
    before = spent()
    frame.write.format("noop").mode("overwrite").save()
    return spent() - before


def rates(frames: dict[str, DataFrame], rows: int, repeat: int) -> dict[str, Rate]:
    """What each frame costs: the sides take turns, one turn to warm up, medians."""
    taken: dict[str, list[Cost]] = {name: [] for name in frames}
    for turn in range(repeat + 1):
        for name, frame in frames.items():
            once = cost(frame)
            if turn:
                taken[name].append(once)

    def median(times: Iterable[float]) -> float:
        return statistics.median(times) / rows * 1e6

    return {name: Rate(median(c.cpu for c in costs), median(c.wall for c in costs)) for name, costs in taken.items()}


class Bench:
    """One session with its registry; the messages of a contest are encoded once and cached."""

    def __init__(self, spark: SparkSession, rows: int, repeat: int, registry_url: str | None) -> None:
        self.spark, self.rows, self.repeat, self.registry_url = spark, rows, repeat, registry_url

    def messages(self, contest: Contest, rows: DataFrame, schemas: list[TableSchema]) -> DataFrame:
        """Encoded messages as Kafka would give them."""
        options = dict(contest.encoding)
        if contest.needs_registry:
            options["registry"] = self.registry_url
        made = encode(rows, format=contest.format, schema=schemas[0] if len(schemas) == 1 else schemas, **options)
        made = made.where("value is not null").selectExpr(
            "topic", "0 as partition", "cast(monotonically_increasing_id() as bigint) as offset",
            "timestamp'2026-01-01 00:00:02Z' as timestamp", "key", "value", "headers",
        )  # fmt: skip
        return made.cache()

    def registry(self) -> dict[str, Any]:
        """The schemas by id that the registry holds, as texts."""
        from confluent_kafka.schema_registry import SchemaRegistryClient

        client = SchemaRegistryClient({"url": self.registry_url})
        found = {}
        for subject in client.get_subjects():
            for version in client.get_versions(subject):
                registered = client.get_version(subject, version)
                found[registered.schema_id] = registered.schema.schema_str
        return {"schemas": found}

    def contest(self, contest: Contest) -> None:
        """Decode and encode of one format beside hand-written ones."""
        schema = schema_of(0)
        rows = struct_rows(self.spark, self.rows).cache()
        rows.count()
        messages = self.messages(contest, rows, [schema])
        count = messages.count()
        registry = self.registry() if contest.needs_registry else {}
        options = dict(contest.decoding) | ({"registry": self.registry_url} if contest.needs_registry else {})
        encoding = dict(contest.encoding) | ({"registry": self.registry_url} if contest.needs_registry else {})
        maps = map_rows(rows).cache()
        maps.count()
        read = rates(
            {
                "hand": contest.by_hand(messages, registry),
                "schema": decode(messages, format=contest.format, schema=schema, **options),
                "maps": decode(messages, format=contest.format, **options),
            },
            count,
            self.repeat,
        )
        messages.unpersist()
        write = rates(
            {
                "hand": contest.written(rows, registry),
                "structs": encode(rows, format=contest.format, schema=schema, **encoding),
                "maps": encode(maps, format=contest.format, schema=schema, **encoding),
            },
            self.rows,
            self.repeat,
        )
        rows.unpersist()
        maps.unpersist()
        print(
            f"| `{contest.format}` | {read['hand']} | {read['schema']} | {read['schema'].of(read['hand'])} | "
            f"{read['maps']} | {write['hand']} | {write['structs']} | {write['structs'].of(write['hand'])} | "
            f"{write['maps']} |",
            flush=True,
        )

    def structs(self, contest: Contest) -> None:
        """Decoding to structs beside what is written by hand, and nothing else: for millions of messages."""
        messages = self.messages(contest, struct_rows(self.spark, self.rows), [schema_of(0)])
        count = messages.count()
        registry = self.registry() if contest.needs_registry else {}
        options = dict(contest.decoding) | ({"registry": self.registry_url} if contest.needs_registry else {})
        frames = {
            "hand": contest.by_hand(messages, registry),
            "schema": decode(messages, format=contest.format, schema=schema_of(0), **options),
        }
        found = rates(frames, count, self.repeat)
        messages.unpersist()
        ours, hand = found["schema"], found["hand"]
        print(f"| `{contest.format}` | {count:,} | {hand} | {ours} | {ours.of(hand)} |", flush=True)

    def scale(self, contest: Contest, largest: int) -> None:
        """Cost per message from ten thousand messages to `largest`, from files, so that memory does not count."""
        folder = Path(self.spark.conf.get("spark.sql.warehouse.dir", "/tmp").removeprefix("file:")) / "bench_messages"
        count = 10_000
        while count <= largest:
            made = self.messages(contest, struct_rows(self.spark, count), [schema_of(0)])
            made.write.mode("overwrite").parquet(str(folder))
            made.unpersist()
            messages = self.spark.read.parquet(str(folder))
            total = messages.count()
            frames = {
                "schema": decode(messages, format=contest.format, schema=schema_of(0), **contest.decoding),
                "maps": decode(messages, format=contest.format, **contest.decoding),
            }
            found = rates(frames, total, min(self.repeat, 3))
            print(f"| `{contest.format}` | {total:,} | {found['schema']} | {found['maps']} |", flush=True)
            count *= 10

    def tables(self, contest: Contest) -> None:
        """Decoding to maps with more and more tables in one topic."""
        line = [f"| `{contest.format}` "]
        for tables in (1, 10, 50, 200):
            schemas = [schema_of(number) for number in range(tables)]
            rows = map_rows(struct_rows(self.spark, self.rows, tables))
            messages = self.messages(contest, rows, schemas)
            count = messages.count()
            options = dict(contest.decoding) | ({"registry": self.registry_url} if contest.needs_registry else {})
            found = rates({"maps": decode(messages, format=contest.format, **options)}, count, min(self.repeat, 3))
            line.append(f"| {found['maps']} ")
            messages.unpersist()
        print("".join(line) + "|", flush=True)


def session() -> SparkSession:
    from headrace.spark.jars import AVRO, KAFKA
    from headrace.spark.session import spark_session

    spark = spark_session(
        "bench", jars=(KAFKA, AVRO), master="local[2]", conf={"spark.driver.memory": "6g", "spark.ui.enabled": "false"}
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main() -> None:
    from headrace_emulators.schema_registry.server import SchemaRegistryServer

    names = [contest.format for contest in CONTESTS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--formats", nargs="*", choices=names, default=names)
    parser.add_argument("--scale", action="store_true")
    parser.add_argument("--structs", action="store_true")
    parser.add_argument("--largest", type=int, default=10_000_000)
    parser.add_argument("--tables", action="store_true")
    given = parser.parse_args()
    chosen = [contest for contest in CONTESTS if contest.format in given.formats]
    with SchemaRegistryServer() as registry:
        bench = Bench(session(), given.rows, given.repeat, registry.url)
        if given.scale:
            print("| format | messages | to structs | to maps |\n|---|---|---|---|")
            for contest in chosen:
                bench.scale(contest, given.largest)
        elif given.structs:
            print("| format | messages | by hand | with schema | ratio |\n|---|---|---|---|---|")
            for contest in chosen:
                bench.structs(contest)
        elif given.tables:
            print("| format | 1 table | 10 | 50 | 200 |\n|---|---|---|---|---|")
            for contest in chosen:
                bench.tables(contest)
        else:
            print(
                "| format | by hand, decode | with schema | ratio | to maps | by hand, encode | from structs | ratio | "
                "from maps |\n|---|---|---|---|---|---|---|---|---|"
            )
            for contest in chosen:
                bench.contest(contest)


if __name__ == "__main__":
    main()
