"""Messages of a Kafka topic into a Delta or Iceberg table that stays equal to the source: CPU of all client processes
(driver, JVM, workers) from the start of a run to the commit of its last batch.

A topic of four partitions holds changes of one table of 10 columns to random keys, a fifth of them inserts, a tenth
deletes. Three ways read them in batches of equal size, alternately in one warm session: Headrace as it is, Headrace
with MERGE alone, and by hand: `from_json` and a MERGE in `foreachBatch`. What a run of few messages costs, which is
the start, is measured beside and taken off. All tables end with the same rows, which is checked.

    python bench/lake_kafka.py [--messages 600000] [--batch 200000] [--runs 3] [--format canal_json] [--lake iceberg]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apply
from confluent_kafka.admin import AdminClient, NewTopic
from lake import HAND, INDEX, MERGE
from stream import Cost, adopt_orphans, shares, spent

from headrace.changes import TableId
from headrace.formats.convert import encode
from headrace.pipeline import load_pipeline
from headrace.spark.jars import DELTA, ICEBERG, KAFKA
from headrace.spark.session import spark_session
from headrace_emulators.kafka.broker import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FEW = 2_000
_KEYS = 1_000_000
_DECIMALS = {"decimal_handling_mode": "string"}
_WRITTEN = {"date": "int", "timestamp_ntz": "bigint", "decimal(12,2)": "string"}
_TYPED = {"date": "date_from_unix_date({})", "timestamp_ntz": "to_timestamp_ntz(timestamp_millis({}))"}
"""How Debezium writes what JSON has no type for, and what becomes of it by hand, in a session whose zone is UTC."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=600_000)
    parser.add_argument("--batch", type=int, default=200_000, help="messages of a batch")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--format", choices=("debezium_json", "canal_json"), default="debezium_json")
    parser.add_argument("--lake", choices=("delta", "iceberg"), default="delta")
    given = parser.parse_args()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="bench-kafka-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        spark = spark_session(
            "bench",
            jars=(DELTA, ICEBERG, KAFKA),
            conf={**apply.settings(folder, "4g"), "spark.sql.session.timeZone": "UTC"},
        )
        spark.sparkContext.setLogLevel("ERROR")
        with KafkaBroker(folder / "kafka") as broker:
            bench = Bench(spark, folder, broker.bootstrap, given)
            sizes = {"few": _FEW, "many": given.messages}
            for topic, size in sizes.items():
                bench.fill(topic, size)
            found: dict[tuple[str, str], list[Cost]] = {}
            for number in range(-1, given.runs):
                for way in (INDEX, MERGE, HAND) if number % 2 else (HAND, MERGE, INDEX):
                    for topic in sizes:
                        cost = bench.run(way, topic, f"{number + 1}_{topic}")
                        if number >= 0:
                            found.setdefault((way, topic), []).append(cost)
                bench.check(f"{number + 1}_many")
        for way in (INDEX, MERGE, HAND):
            whole, start = (statistics.median(one.cpu for one in found[way, topic]) for topic in ("many", "few"))
            wall = statistics.median(one.wall for one in found[way, "many"])
            print(
                f"{given.format} to {given.lake}, {given.messages:,} messages in batches of {given.batch:,}, {way:9}: "
                f"{given.messages / (whole - start):,.0f} messages per second of CPU without the start "
                f"({start:.1f} s), {given.messages / whole:,.0f} with it ({whole:.1f} s: "
                f"{shares(found[way, 'many'])}), {wall:.1f} s",
                flush=True,
            )


def create(bootstrap: str, topic: str) -> None:
    """A topic of four partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=4, replication_factor=1)])[topic].result()


class Bench:
    """The topics, and the ways to read them."""

    def __init__(self, spark: SparkSession, folder: Path, bootstrap: str, given: argparse.Namespace) -> None:
        self.spark, self.folder, self.bootstrap, self.given = spark, folder, bootstrap, given
        self.columns = apply.columns(10)
        self.schema = replace(apply.table_schema(self.columns), id=TableId("shop", "dbo", "orders_0"))
        self.topics: dict[str, str] = {}

    def fill(self, topic: str, size: int) -> None:
        """Messages of the format, each key in one partition, in the order of the changes."""
        made = apply.changes(self.spark, self.schema, self.columns, ["orders_0"], _KEYS, size, 7, "uniform")
        made = (
            made.where("op <> 'schema'")
            .unionByName(made.where("op = 'schema'"))
            .coalesce(1)
            .sortWithinPartitions("position")
        )
        prefix = {"topic_prefix": topic, **_DECIMALS} if self.given.format == "debezium_json" else {}
        messages = encode(made, format=self.given.format, **prefix).coalesce(1).persist()
        # Debezium's topics say which table's they are.
        found = str(messages.first()["topic"]) if prefix else topic  # type: ignore[index]
        create(self.bootstrap, found)
        self.topics[topic] = found
        messages = messages.selectExpr(f"'{found}' as topic", "key", "value")
        messages.write.format("kafka").option("kafka.bootstrap.servers", self.bootstrap).save()

    def run(self, way: str, topic: str, name: str) -> Cost:
        """All messages of a topic into a new table."""
        before = spent()
        if way == HAND:
            self._by_hand(topic, name)
            return spent() - before
        sink: dict[str, Any] = {"type": self.given.lake, **({"index_memory": 0} if way == MERGE else {})}
        if self.given.lake == "delta":
            sink["path"] = str(self.folder / way / name)
        else:
            sink |= {"catalog": "lake", "namespace": f"{way}_{name}"}
        format: dict[str, Any] = {"type": self.given.format}
        if self.given.format == "debezium_json":
            format |= {"topic.prefix": topic, **_DECIMALS}
            format["schema"] = [json.loads(self.schema.to_text())]
        pipeline = {
            "source": {
                "type": "kafka",
                "bootstrap.servers": self.bootstrap,
                "topics": [self.topics[topic]],
                "max.offsets.per.trigger": self.given.batch,
                "format": format,
            },
            "sinks": [sink],
            "pipeline": {"name": f"{way}_{name}", "checkpoint": str(self.folder / "state" / way / name)},
        }
        file = self.folder / f"{way}_{name}.yaml"
        file.write_text(json.dumps(pipeline))
        running = load_pipeline(file).start(self.spark, once=True)
        try:
            running.wait(1200)
            return spent() - before
        finally:
            running.stop()

    def _by_hand(self, topic: str, name: str) -> None:
        target = self._target(HAND, name)
        kinds = {column.name: column.logical.spark_type for column in self.schema.columns}
        fields = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
        self.spark.sql(f"create table {target} ({fields}) using {self.given.lake}")
        debezium = self.given.format == "debezium_json"
        written = {name: _WRITTEN.get(kind, kind) if debezium else "string" for name, kind in kinds.items()}
        fields = ", ".join(f"{name} {kind}" for name, kind in written.items())
        typed = [
            f"{_TYPED[kind].format(f'row.{name}') if debezium and kind in _TYPED else f'cast(row.{name} as {kind})'} "
            f"as {name}"
            for name, kind in kinds.items()
        ]
        if self.given.format == "debezium_json":
            rows = (
                f"from_json(cast(value as string), 'before struct<{fields}>, after struct<{fields}>, op string') as m"
            )
            shown = ("m.op <> 'd' as comes", "coalesce(m.after, m.before) as row")
        else:
            rows = f"from_json(cast(value as string), 'data array<struct<{fields}>>, type string') as m"
            shown = ("m.type <> 'DELETE' as comes", "m.data[0] as row")
        names = [column.name for column in self.schema.columns]

        def merge(batch: DataFrame, _: int) -> None:
            latest = batch.selectExpr(rows, "offset").where("m is not null").selectExpr(*shown, "offset")
            latest = latest.selectExpr(*typed, "comes", "offset")
            latest.createOrReplaceTempView("bench_messages")
            batch.sparkSession.sql(
                f"merge into {target} t using (select * from (select *, row_number() over (partition by "
                "id order by offset desc) as nth from bench_messages) where nth = 1) s on t.id = s.id "
                "when matched and not comes then delete when matched then update set "
                f"{', '.join(f'{n} = s.{n}' for n in names)} when not matched and comes then insert "
                f"({', '.join(names)}) values ({', '.join(f's.{n}' for n in names)})"
            )

        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        reader = reader.option("subscribe", self.topics[topic]).option("startingOffsets", "earliest")
        stream = reader.option("maxOffsetsPerTrigger", self.given.batch).load().writeStream.foreachBatch(merge)
        state = str(self.folder / "state" / HAND / name)
        stream.option("checkpointLocation", state).trigger(availableNow=True).start().awaitTermination()

    def _target(self, way: str, name: str) -> str:
        if self.given.lake == "delta":
            inner = "" if way == HAND else "/dbo"
            return f"delta.`{self.folder / way / name}{inner}/orders_0`"
        if way == HAND:
            self.spark.sql(f"create namespace if not exists lake.{way}_{name}")
        return f"lake.{way}_{name}.orders_0"

    def check(self, name: str) -> None:
        """All ways have left the same rows."""
        hashed = f"cast(xxhash64({', '.join(self.columns)}) as decimal(38,0)) as h"
        sums = [
            self.spark.table(self._target(way, name)).selectExpr(hashed).selectExpr("count(*)", "sum(h)").collect()
            for way in (INDEX, MERGE, HAND)
        ]
        if any(found != sums[0] for found in sums):
            raise SystemExit(f"the tables differ: {sums}")


if __name__ == "__main__":
    main()
