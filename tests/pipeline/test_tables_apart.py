"""Rule: no two tables have messages that a consumer can't tell apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.changes import TableId
from headrace.errors import OptionError
from headrace.pipeline.kafka_source import KafkaTopics
from headrace.pipeline.model import Model, read_model
from headrace.pipeline.shared_places import refuse_tables_alike

KAFKA = {"type": "kafka", "bootstrap.servers": "one:9092"}
APART = {"routes": [{"tables": "*", "to": "{database}_{schema}_{table}"}]}
OLD = {"type": "debezium_json", "topic.prefix": "p", "shape": "1.7"}
ROUTED = {
    **OLD,
    "topic.route.regex": "p[.].*",
    "topic.route.replacement": "all",
}


def model(folder: Path, format: dict[str, Any], databases: str | list[str] = "north,south", **sink: Any) -> Model:
    file = folder / "pipeline.yaml"
    source = {"type": "sqlserver", "driver": "emulator", "hostname": str(folder / "server"), "database": databases}
    text = {
        "source": source,
        "sinks": [{**KAFKA, "format": format, **sink}],
        "pipeline": {"name": "p", "checkpoint": "./checkpoint"},
    }
    file.write_text(json.dumps(text))
    return read_model(file)


SEVERAL_DATABASES = [
    (OLD, False),
    (ROUTED, False),
    ({**OLD, "shape": "2.3"}, True),
    ({**OLD, "shape": "3.0"}, True),
    ({**OLD, "shape": "3"}, True),
    ({**OLD, "type": "debezium_avro", "framing": "none"}, False),
    ({"type": "canal_json"}, True),
    ({"type": "canal_json", "topic": "all"}, True),
    ({"type": "qlik_json"}, True),
    ({"type": "qlik_json", "topic": "all"}, False),
    ({"type": "shareplex_json", "topic": "all"}, True),
    ({"type": "shareplex_json", "topic": "all", "table_parts": 2}, False),
    ({"type": "dts_avro", "topic": "all"}, True),
    ({"type": "ogg_json", "topic": "all"}, True),
    ({"type": "maxwell_json", "topic": "all"}, True),
]


@pytest.mark.parametrize(("format", "are_apart"), SEVERAL_DATABASES, ids=lambda one: json.dumps(one))
def test_several_databases_need_messages_that_name_the_database(
    tmp_path: Path, format: dict[str, Any], are_apart: bool
) -> None:
    model(tmp_path, format, databases="north")
    # A route that names the database does as well as a format.
    routed = model(tmp_path, format, **APART)
    same = [TableId("north", "dbo", "t"), TableId("south", "dbo", "t")]
    refuse_tables_alike(routed.targets, same, "sqlserver")
    if are_apart:
        refuse_tables_alike(model(tmp_path, format).targets, same, "sqlserver")
        return
    with pytest.raises(OptionError, match=r"line \d+: Sink 1 \(kafka\) would write tables north\..* and south\..*"):
        model(tmp_path, format)


TABLES = [
    (OLD, "dbo.a", "dbo.b", True),
    (OLD, "dbo.a b", "dbo.a_b", False),
    ({**OLD, "shape": "3"}, "dbo.größe", "dbo.gr__e", False),
    ({**OLD, "shape": "3"}, "dbo.größe", "dbo.größen", True),
    ({**OLD, "shape": "3"}, "dbo.größe", "dbo.gräße", False),
    ({"type": "canal_json"}, "dbo.a", "sales.a", True),
    ({"type": "canal_json", "topic": "all"}, "dbo.a", "sales.a", False),
    ({"type": "maxwell_json", "topic": "all"}, "dbo.a", "sales.a", False),
    ({"type": "qlik_json", "topic": "all"}, "dbo.a", "sales.a", True),
    ({"type": "shareplex_json", "topic": "all", "table_parts": 1}, "dbo.a", "sales.a", False),
]


@pytest.mark.parametrize(("format", "one", "other", "are_apart"), TABLES, ids=lambda one: json.dumps(one))
def test_tables_whose_names_a_format_writes_alike_are_refused_with_both_names(
    tmp_path: Path, format: dict[str, Any], one: str, other: str, are_apart: bool
) -> None:
    tables = [TableId("north", *name.split(".")) for name in (one, other)]
    found = model(tmp_path, format, databases="north")
    if are_apart:
        refuse_tables_alike(found.targets, tables, "sqlserver")
        return
    with pytest.raises(OptionError, match=f"tables north.{one} and north.{other} to topic"):
        refuse_tables_alike(found.targets, tables, "sqlserver")


def test_tables_that_a_route_makes_one_are_one(tmp_path: Path) -> None:
    merged = {"routes": [{"tables": "*", "to": "dbo.all", "merge": True}]}
    tables = [TableId("north", "dbo", "a"), TableId("north", "dbo", "b")]
    refuse_tables_alike(model(tmp_path, OLD, databases="north", **merged).targets, tables, "sqlserver")


def test_databases_are_a_list_or_a_text_with_commas(tmp_path: Path) -> None:
    for databases in ("north, south", ["north", "south"]):
        found = model(tmp_path, {**OLD, "shape": "3"}, databases=databases)
        assert not isinstance(found.source, KafkaTopics) and list(found.source.databases()) == ["north", "south"]


def test_a_prefix_that_leaves_no_room_for_tables_is_refused_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"The topic of table database\.schema\.table would have \d+ characters"):
        model(tmp_path, {"type": "debezium_json", "topic.prefix": "p" * 240}, databases="north")
