"""Rule: OpenLineage is told what a run reads and writes, by the names that its rules give: at its beginning, when
something changes, and at its end, with the reason where it failed. Nothing of it disturbs a run."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from openlineage.client import OpenLineageClient

from headrace import registry
from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.dataset import Dataset
from headrace.observe.history import Reading
from headrace.observe.open_lineage import Lineage, LineageEvents, Touched
from headrace.observe.progress import PipelineProgress
from headrace.observe.troubles import Trouble, Troubles
from headrace.pipeline.model import Model, read_model
from headrace.pipeline.watch import Watch
from headrace.pipeline.written_tables import lineage_of_database, lineage_of_topics
from headrace.sinks.base import Sink
from headrace.sources.base import Source
from headrace.sources.reader import source_named
from headrace.testing.waiting import until

NOON = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
LOOK = Reading(0.0, PipelineProgress())
ORDERS = TableSchema(
    TableId("shop", "dbo", "orders"),
    (
        Column("id", 1, LogicalType.parse("int32"), "int"),
        Column("note", 2, LogicalType.parse("string"), "nvarchar"),
    ),
    ("id",),
)
ITEMS = TableSchema(TableId("shop", "dbo", "items"), ORDERS.columns, ("id",))


@pytest.mark.parametrize(
    ("source", "options", "table", "dataset"),
    [
        (
            "sqlserver",
            {"hostname": "db", "database": "shop"},
            TableId("shop", "dbo", "t"),
            Dataset("mssql://db:1433", "shop.dbo.t"),
        ),
        ("sqlserver", {"hostname": "db", "database": "shop", "instance": "A"}, TableId("shop", "dbo", "t"), None),
        (
            "sqlserver",
            {"hostname": "db", "database": "shop", "instance": "A", "port": "1500"},
            TableId("shop", "dbo", "t"),
            Dataset("mssql://db:1500", "shop.dbo.t"),
        ),
        (
            "db2",
            {"hostname": "db", "database": "SALES"},
            TableId("SALES", "SHOP", "T"),
            Dataset("db2://db:50000", "SALES.SHOP.T"),
        ),
        (
            "oracle",
            {"hostname": "db", "database": "ORCL", "user": "u", "staging_location": "/tmp/x"},
            TableId("ORCL", "SHOP", "T"),
            Dataset("oracle://db:1521", "ORCL.SHOP.T"),
        ),
        (
            "oracle",
            {"dsn": "db:1521/ORCL", "database": "ORCL", "user": "u", "staging_location": "/tmp/x"},
            TableId("ORCL", "SHOP", "T"),
            None,
        ),
        (
            "postgresql",
            {"hostname": "db", "database": "shop", "user": "u"},
            TableId("shop", "public", "t"),
            Dataset("postgres://db:5432", "shop.public.t"),
        ),
        (
            "mysql",
            {"hostname": "db", "databases": "shop", "user": "u", "port": "3307"},
            TableId("shop", "", "t"),
            Dataset("mysql://db:3307", "shop.t"),
        ),
    ],
)
def test_a_table_of_a_source_is_named_by_its_server(
    source: str, options: dict[str, Any], table: TableId, dataset: Dataset | None
) -> None:
    made: Source = source_named(source, options)
    assert made.dataset(table) == dataset


@pytest.mark.parametrize(
    ("sink", "options", "dataset"),
    [
        ("kafka", {"bootstrap.servers": "k1:9092,k2:9092"}, Dataset("kafka://k1:9092", "topic")),
        ("files", {"path": "/data/out"}, Dataset("file", "/data/out")),
        ("memory", {}, None),
        ("delta", {"path": "/lake"}, Dataset("file", "/lake/dbo/orders")),
        ("delta", {"path": "s3a://bucket/lake/"}, Dataset("s3://bucket", "lake/dbo/orders")),
        ("delta", {"catalog": "main"}, None),
        ("iceberg", {"warehouse": "s3://bucket/lake"}, Dataset("s3://bucket", "lake/dbo/orders")),
        (
            "iceberg",
            {"catalog_type": "hive", "uri": "thrift://m:9083", "warehouse": "/w"},
            Dataset("hive://m:9083", "dbo.orders"),
        ),
        ("iceberg", {"catalog_type": "rest", "uri": "https://c/api"}, None),
        ("jdbc", {"url": "postgresql://p/shop"}, Dataset("postgres://p:5432", "shop.dbo.orders")),
        ("jdbc", {"url": "mariadb://m:3307/shop"}, Dataset("mysql://m:3307", "shop.orders")),
    ],
)
def test_a_table_of_a_sink_is_named_by_where_it_lies(
    sink: str, options: dict[str, Any], dataset: Dataset | None
) -> None:
    made: Sink = registry.find("sink", sink).of(options)
    assert made.dataset(ORDERS.id, "topic") == dataset


def model(folder: Path, sinks: Sequence[dict[str, Any]], **more: Any) -> Model:
    source = {"type": "sqlserver", "hostname": "db", "database": "shop", "user": "u", "password": "hunter2"}
    text = {"source": source, "sinks": sinks, "pipeline": {"name": "shop", "checkpoint": "state"}, **more}
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps(text))
    return read_model(file)


def test_what_flows_from_a_database_follows_routes_and_formats(tmp_path: Path) -> None:
    routes = [{"tables": "dbo.items", "to": "lines.{table}"}]
    made = model(
        tmp_path,
        [
            {"type": "delta", "path": "/lake", "routes": routes, "unrouted_tables": "leave_out"},
            {
                "type": "kafka",
                "bootstrap.servers": "k:9092",
                "format": {"type": "debezium_json", "topic.prefix": "s"},
            },
        ],
    )
    found = lineage_of_database(made, made.source, [ORDERS, ITEMS])
    assert [one.dataset.name for one in found.inputs] == ["shop.dbo.items", "shop.dbo.orders"]
    assert found.inputs[1].schema == ORDERS
    assert [(one.dataset.namespace, one.dataset.name, one.schema is None) for one in found.outputs] == [
        ("file", "/lake/lines/items", False),
        ("kafka://k:9092", "s.shop.dbo.items", True),
        ("kafka://k:9092", "s.shop.dbo.orders", True),
    ]


def test_tables_that_go_to_one_place_are_one_dataset_without_columns(tmp_path: Path) -> None:
    made = model(tmp_path, [{"type": "files", "path": "/out", "format": {"type": "canal_json", "topic": "t"}}])
    found = lineage_of_database(made, made.source, [ORDERS, ITEMS])
    assert found.outputs == (Touched(Dataset("file", "/out")),)


def test_what_flows_from_topics_are_topics_and_the_tables_of_their_messages(tmp_path: Path) -> None:
    source = {"type": "kafka", "bootstrap.servers": "k:9092", "topics": ["a"], "format": {"type": "canal_json"}}
    made = model(tmp_path, [{"type": "jdbc", "url": "postgresql://p/shop"}], source=source)
    found = lineage_of_topics(
        made, made.source, ["a"], [TableId("crm", "", "orders"), TableId("crm", "sales", "items")]
    )
    assert found.inputs == (Touched(Dataset("kafka://k:9092", "a")),)
    assert [one.dataset.name for one in found.outputs] == ["shop.public.orders", "shop.sales.items"]


class Told:
    """What a client writes to a file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "events.json"
        transport = {"type": "file", "log_file_path": str(self.file), "append": True}
        self.client = OpenLineageClient(config={"transport": transport})
        self.seconds = 0.0
        self.asked = 0
        self.flows = Lineage((Touched(Dataset("mssql://db:1433", "shop.dbo.orders"), ORDERS),))

    def events(self, **more: Any) -> LineageEvents:
        given = {"clock": lambda: self.seconds, **more}
        return LineageEvents("prod", "shop", self._ask, self.client, **given)

    def _ask(self) -> Lineage:
        self.asked += 1
        return self.flows

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []

    def states(self) -> list[str]:
        return [line["eventType"] for line in self.lines()]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_a_run_begins_goes_on_and_ends_as_one_run_of_one_job(told: Told) -> None:
    events = told.events()
    for second in range(0, 700, 10):
        told.seconds = float(second)
        events.observed(LOOK)
    assert told.states() == ["START", "RUNNING", "RUNNING"]
    told.flows = Lineage((*told.flows.inputs, Touched(Dataset("mssql://db:1433", "shop.dbo.items"))))
    told.seconds += 30
    events.observed(LOOK)
    events.ended(LOOK)
    assert told.states()[3:] == ["RUNNING", "COMPLETE"]
    lines = told.lines()
    assert len({line["run"]["runId"] for line in lines}) == 1
    assert {(line["job"]["namespace"], line["job"]["name"]) for line in lines} == {("prod", "shop")}
    assert lines[0]["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    [first] = lines[0]["inputs"]
    assert (first["namespace"], first["name"]) == ("mssql://db:1433", "shop.dbo.orders")
    assert [(f["name"], f["type"]) for f in first["facets"]["schema"]["fields"]] == [
        ("id", "int"),
        ("note", "nvarchar"),
    ]
    assert len(lines[-1]["inputs"]) == 2


def test_what_flows_is_not_asked_at_every_look(told: Told) -> None:
    events = told.events()
    for second in range(100):
        told.seconds = float(second)
        events.observed(LOOK)
    assert told.asked == 4


def test_a_run_that_fails_says_why_without_secrets_and_one_that_ends_at_once_has_begun(told: Told) -> None:
    events = told.events(once=True, hide=lambda text: text.replace("hunter2", "***"))
    events.ended(
        Reading(0.0, PipelineProgress(troubles=(Trouble("The login hunter2 is wrong.", "", NOON, fatal=True),)))
    )
    begin, end = told.lines()
    assert (begin["eventType"], end["eventType"]) == ("START", "FAIL")
    assert end["run"]["facets"]["errorMessage"]["message"] == "The login *** is wrong."
    assert begin["job"]["facets"]["jobType"]["processingType"] == "BATCH"


@pytest.mark.parametrize(("fatal", "state"), [(False, "COMPLETE"), (True, "FAIL")])
def test_a_run_tells_its_end_by_what_ended_it(told: Told, fatal: bool, state: str) -> None:
    watch = Watch("shop", PipelineProgress, str)
    watch.follow(told.events())
    watch.begin()
    until(lambda: watch.figures() is not None, "the first look")
    troubles = Troubles()
    troubles.add(ValueError("no"), fatal=fatal)
    watch.close(troubles.recent())
    watch.close()
    assert told.states() == ["START", state]


def test_events_that_can_not_be_sent_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def emit(self, event: object) -> None:
            raise OSError("nobody listens")

    client: Any = Broken()
    events = LineageEvents("prod", "shop", Lineage, client)
    events.observed(LOOK)
    events.ended(LOOK)
    assert [record.getMessage() for record in caplog.records] == [
        "An event for OpenLineage was not sent (OSError): nobody listens"
    ]
