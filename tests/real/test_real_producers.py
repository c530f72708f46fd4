"""Debezium Server captures a real MariaDB and a real PostgreSQL into a real Kafka broker, in three forms at once.

What it writes is read from Kafka by Spark, decoded, and replayed by key: the rows must be those of the databases, type
by type, at the end of the snapshot and at the end. tests/real/losses.py has what the producer itself loses.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.real.comparison import Comparison, compared
from tests.real.database_texts import same
from tests.real.debezium_server import DebeziumServer
from tests.real.losses import MARIADB, POSTGRES, UNTOLD
from tests.real.mariadb import MariaDb
from tests.real.postgres import Postgres
from tests.real.recording import Natives, Truth, write_records, write_truth
from tests.real.told_tables import told_tables

import headrace
from headrace.changes import Column
from headrace_emulators.kafka.broker import KafkaBroker
from headrace_emulators.schema_registry.server import SchemaRegistryServer

pytestmark = pytest.mark.real

SQL = Path(__file__).parent / "sql"
FORMS = ("schema", "plain", "avro")
LOSSES = {"mariadb": MARIADB, "postgres": POSTGRES}


@dataclass
class Captured:
    """What one database held at each moment, and what Debezium Server made of it in each form."""

    database: str
    natives: dict[str, Natives]
    truth: dict[str, Truth]
    messages: dict[str, Any]
    registry: SchemaRegistryServer
    decoded: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def rows(self, form: str) -> list[dict[str, Any]]:
        """The change rows of a form, decoded once."""
        if form not in self.decoded:
            if form == "avro":
                rows = headrace.decode(self.messages[form], format="debezium_avro", registry=self.registry.url)
            elif form == "plain":
                # Such messages say nothing of types: the reader has to know the tables.
                tables = told_tables(self.rows("schema"))
                rows = headrace.decode(self.messages[form], format="debezium_json", schema=tables)
            else:
                rows = headrace.decode(self.messages[form], format="debezium_json")
            self.decoded[form] = [row.asDict(recursive=True) for row in rows.collect()]
        return self.decoded[form]


@pytest.fixture(scope="module")
def folder(installed: None) -> Iterator[Path]:
    """A folder with a short path, as sockets need, that another user may enter."""
    with tempfile.TemporaryDirectory(prefix="headrace-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[KafkaBroker]:
    with KafkaBroker(folder / "kafka") as running:
        yield running


@pytest.fixture(scope="module", params=[MariaDb, Postgres], ids=["mariadb", "postgres"])
def captured(request: Any, spark: Any, folder: Path, broker: KafkaBroker) -> Iterator[Captured]:
    """One database's life, captured in all forms at the same time, so that all tell the same story."""
    work = folder / request.param.__name__.lower()
    work.mkdir()
    with SchemaRegistryServer() as registry:
        with contextlib.ExitStack() as running:
            database = running.enter_context(request.param(work))
            print(f"Debezium Server captures {database.name} {database.version}")
            database.run((SQL / f"{database.name}_tables.sql").read_text(encoding="utf-8"))
            natives, truth = {"snapshot": database.natives()}, {"snapshot": held(database)}
            servers = []
            for number, form in enumerate(FORMS):
                prefix = f"{database.name}_{form}"
                settings = database.connector(number)
                server = DebeziumServer(work / form, prefix, broker.bootstrap, settings, form, registry.url)
                servers.append(running.enter_context(server))
            for server in servers:
                marked(server, broker, database, 1)
            database.run((SQL / f"{database.name}_changes.sql").read_text(encoding="utf-8"))
            for server in servers:
                marked(server, broker, database, 2)
            natives["final"], truth["final"] = database.natives(), held(database)
        # From here on only Kafka and the registry are needed.
        messages = {form: written(spark, broker, f"{database.name}_{form}") for form in FORMS}
        found = Captured(database.name, natives, truth, messages, registry)
        if os.environ.get("HEADRACE_RECORD"):
            record(Path(os.environ["HEADRACE_RECORD"]), found)
        yield found


def record(folder: Path, found: Captured) -> None:
    """Keep everything that the decoders' tests need, so that they need no producer."""
    folder.mkdir(parents=True, exist_ok=True)
    for form, messages in found.messages.items():
        write_records(folder / f"{found.database}_{form}.jsonl.gz", messages)
    for moment, truth in found.truth.items():
        write_truth(folder / f"{found.database}_truth_{moment}", truth, found.natives[moment])
    schemas = json.dumps(found.registry.store.contents, indent=1)
    (folder / f"{found.database}_avro.registry.json").write_text(schemas + "\n", encoding="utf-8")


def held(database: MariaDb | Postgres) -> Truth:
    """What all tables hold now, as the database's client prints it."""
    return {table: database.rows(table, columns) for table, columns in database.natives().items()}


def marked(server: DebeziumServer, broker: KafkaBroker, database: MariaDb | Postgres, count: int) -> None:
    """Wait until so many rows of the table `marker`, the last of each part, are in Kafka."""
    schema = "public" if database.name == "postgres" else database.database
    topic = f"{server.prefix}.{schema}.marker"
    server.server.wait_until(lambda: records(broker.bootstrap, topic) >= count, f"{count} records were in {topic}")


def records(bootstrap: str, topic: str) -> int:
    """How many records the topic's one partition holds."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "gate", "allow.auto.create.topics": False})
    try:
        if topic not in consumer.list_topics(timeout=10).topics:
            return 0
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        return int(high - low)
    finally:
        consumer.close()


def written(spark: Any, broker: KafkaBroker, prefix: str) -> Any:
    """All messages of one Debezium Server, as Spark reads them from Kafka."""
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribePattern", f"{prefix}([.].*)?")
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )


@pytest.mark.parametrize("moment", ["snapshot", "final"])
@pytest.mark.parametrize("form", FORMS)
def test_the_decoded_changes_are_the_database(captured: Captured, form: str, moment: str) -> None:
    rows = [row for row in captured.rows(form) if moment == "final" or row["op"] == "r"]
    losses = LOSSES[captured.database] + (UNTOLD[captured.database] if form == "plain" else [])
    comparison = Comparison(captured.database, losses)
    compared(comparison, rows, captured.truth[moment], captured.natives[moment])
    assert comparison.differences == []
    assert comparison.values > 150


@pytest.mark.parametrize("form", FORMS)
def test_no_message_is_an_error(captured: Captured, form: str) -> None:
    assert [row["error"] for row in captured.rows(form) if row["op"] == "error"] == []
    operations = {row["op"] for row in captured.rows(form)}
    assert {"r", "c", "u", "d", "t", "tombstone", "begin", "end", "schema"} <= operations


def test_typed_columns_hold_the_same_values(captured: Captured, spark: Any) -> None:
    """`headrace.typed` with the structure that the messages told gives Spark values that mean what the texts mean."""
    rows = [row for row in captured.rows("schema") if (row["table"] or {}).get("name") == "all_types"]
    schema = next(table for table in told_tables(rows) if table.id.name == "all_types")
    changes = headrace.decode(captured.messages["schema"], format="debezium_json")
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        columns = [_written(column) for column in schema.columns]
        found = headrace.typed(changes, schema).where("after is not null").selectExpr("position", *columns).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    texts = {row["position"]: row["after"] for row in rows if row["after"] is not None}
    assert len(found) == len(texts) > 5
    for row in found:
        for column in schema.columns:
            wanted, got = texts[row.position][column.name], row[column.name]
            if wanted is not None and column.logical.kind in ("float32", "float64"):
                wanted, got = str(float(wanted)), str(float(got))
            if (
                wanted is not None
                and column.logical.kind == "zoned_timestamp"
                and column.logical.spark_type == "timestamp"
            ):
                wanted = wanted.replace("T", " ").removesuffix("Z")
            assert same(wanted, got), (column.name, str(column.logical), wanted, got)


def _written(column: Column) -> str:
    """SQL for a typed column as text; text of a float is read again, as Spark spells it its own way."""
    name = f"after.`{column.name}`"
    return f"{'base64' if column.logical.kind == 'bytes' else 'string'}({name}) as `{column.name}`"
