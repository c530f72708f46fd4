"""Rule: routes with templates and merges, and transforms, give Iceberg, a database and Kafka what they give Delta.

One stream of two shards and a table beside them, with a snapshot, changes and a replay, into all three at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sinks.databases import KINDS, Running, fresh_database, serving

from headrace import registry
from headrace.changes import TableId, TableSchema
from headrace.changes.table_pattern import table_patterns
from headrace.observe.progress import ProgressBoard
from headrace.pipeline.batch import BatchWriter
from headrace.pipeline.batch_inputs import Delivery, RowInput
from headrace.pipeline.shaping.routes import Route, Routes
from headrace.pipeline.shaping.shape import Shaping
from headrace.pipeline.shaping.transforms import Transform
from headrace.pipeline.target import Target
from headrace.testing.change_history import Batch, schema_of

pytestmark = [pytest.mark.kafka, pytest.mark.system]


@pytest.fixture(scope="module", params=KINDS[:1])
def database(request: pytest.FixtureRequest) -> Iterator[Running]:
    with serving(request.param) as server:
        yield fresh_database(request.param, server)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from headrace_emulators.kafka.broker import KafkaBroker

    with KafkaBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.bootstrap


def shard(number: int) -> TableSchema:
    columns = {"id": "int32", "city": "string", "card": "string"}
    return schema_of(TableId("shop", f"shard_{number}", "orders"), columns, ("id",))


ITEMS = schema_of(TableId("shop", "dbo", "items"), {"id": "int32", "n": "int32"}, ("id",))
LOG = schema_of(TableId("shop", "dbo", "log"), {"id": "int32"}, ("id",))


def order(id: int, city: str) -> dict[str, str | None]:
    return {"id": str(id), "city": city, "card": "4111"}


def history() -> list[Batch]:
    one, two = shard(1), shard(2)
    first = Batch(one, two, ITEMS, LOG)
    first.add("r", one, 1, order(1, "Rome"), snapshot="last_in_data_collection")
    first.add("r", two, 1, order(2, "Oslo"), snapshot="last_in_data_collection")
    first.add("r", ITEMS, 1, {"id": "7", "n": "1"}, snapshot="last_in_data_collection")
    first.add("r", LOG, 1, {"id": "1"}, snapshot="last")
    then = Batch(one, two, ITEMS, LOG)
    then.add("u", one, 2, order(1, "Bonn"), order(1, "Rome")).add("c", two, 3, order(4, "Kiev"))
    # Leaves the filter, and comes into it.
    then.add("u", two, 4, order(2, "test"), order(2, "Oslo")).add("c", one, 5, order(9, "test"))
    then.add("u", one, 6, order(9, "Graz"), order(9, "test"))
    then.add("d", ITEMS, 7, None, {"id": "7", "n": "1"}).add("c", ITEMS, 8, {"id": "8", "n": "20"})
    then.add("d", two, 9, None, order(4, "Kiev")).add("c", LOG, 10, {"id": "2"})
    return [first, then]


def shaping(owner: str, takes: Any) -> Shaping:
    steps = (
        Transform(
            "transform 1",
            table_patterns("shard_*.orders"),
            filter="city <> 'test'",
            computed=(("upper_city", "upper(city)"),),
            exclude=("card",),
        ),
        Transform("transform 2", table_patterns("dbo.items"), computed=(("twice", "n * 2"),)),
    )
    routes = Routes(
        (
            Route(table_patterns("shard_*.orders"), "crm.all_orders", merge=True),
            Route(table_patterns("dbo.items"), "{database}.{schema}_{table}"),
        ),
        leave_out=True,
    )
    return Shaping(steps, routes, owner, takes)


def target(kind: str, **options: Any) -> Target:
    found = registry.find("sink", kind)
    sink = found.of(options)
    format = None
    if sink.takes == "messages":
        found = registry.find("format", "maxwell_json")
        format = found.of({"topic": "out.${schema}.${table}"})
    return Target(kind, sink, format, "", kind, shaping(kind, sink.takes))


def test_routes_and_transforms_reach_iceberg_a_database_and_kafka(
    spark: Any, tmp_path: Path, database: Running, bootstrap: str
) -> None:
    targets = [
        target("iceberg", warehouse=str(tmp_path / "lake"), catalog="routed"),
        target("jdbc", url=database.url, user="cdc", password="cdc"),
        target("kafka", **{"bootstrap.servers": bootstrap, "topic.creation.default.partitions": "1"}),
    ]
    writer = BatchWriter("p", RowInput(), Delivery(targets, ProgressBoard()))
    writer.begin("c")
    for number, batch in enumerate(history()):
        for _ in range(2):
            writer(batch.rows(spark), number)

    orders = [(1, "Bonn", "BONN"), (9, "Graz", "GRAZ")]
    items = [(8, 20, 40)]
    session = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
    session.conf.set("spark.sql.catalog.routed", "org.apache.iceberg.spark.SparkCatalog")
    session.conf.set("spark.sql.catalog.routed.type", "hadoop")
    session.conf.set("spark.sql.catalog.routed.warehouse", str(tmp_path / "lake"))

    def lake(name: str) -> list[tuple[Any, ...]]:
        return sorted(map(tuple, session.table(f"routed.{name}").drop("_headrace_position").collect()))

    assert (lake("crm.all_orders"), lake("shop.dbo_items")) == (orders, items)
    assert sorted(
        (row["namespace"], row["tableName"])
        for space in ("crm", "shop")
        for row in session.sql(f"show tables in routed.{space}").collect()
    ) == [("crm", "all_orders"), ("shop", "dbo_items")]

    def held(name: str, columns: str) -> list[tuple[Any, ...]]:
        return database.ask(f"SELECT {columns} FROM {name} ORDER BY id")

    assert held("crm.all_orders", "id, city, upper_city") == orders
    assert held("shop.dbo_items", "id, n, twice") == items
    assert database.ask("SELECT count(*) FROM information_schema.tables WHERE table_name = 'log'") == [(0,)]

    def left(topic: str) -> dict[int, dict[str, Any]]:
        """What a consumer of the topic has in the end."""
        messages = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
        rows: dict[int, dict[str, Any]] = {}
        for row in messages.load().orderBy("partition", "offset").collect():
            told = json.loads(row["value"])
            rows.pop(told["data"]["id"], None)
            if told["type"] != "delete":
                rows[told["data"]["id"]] = told["data"]
        return rows

    assert sorted(tuple(row.values()) for row in left("out.crm.all_orders").values()) == orders
    assert sorted(tuple(row.values()) for row in left("out.shop.dbo_items").values()) == items
    admin = spark._jvm.org.apache.kafka.clients.admin.AdminClient
    properties = spark._jvm.java.util.Properties()
    properties.setProperty("bootstrap.servers", bootstrap)
    client = admin.create(properties)
    try:
        assert {str(name) for name in client.listTopics().names().get()} == {"out.crm.all_orders", "out.shop.dbo_items"}
    finally:
        client.close()
