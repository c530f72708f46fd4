"""Rule: the topic that a format says of a table is the one that its messages go to."""

from __future__ import annotations

from typing import Any

import pytest
from codec_rows import change_batch, sent
from tests.support.format_ways import ENCODING

from headrace import registry
from headrace.changes import TableId
from headrace.errors import OptionError
from headrace.formats.base import Format
from headrace.formats.change_messages import topics
from headrace.formats.encoding import topic_for
from headrace.testing.every_change import TABLE

CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("debezium_json", {"topic_prefix": "srv"}, "sqlserver", "srv.shop.dbo.orders"),
    ("debezium_json", {"topic_prefix": "srv", "shape": "1.7"}, "sqlserver", "srv.dbo.orders"),
    ("debezium_json", {"topic_prefix": "srv"}, "postgresql", "srv.dbo.orders"),
    (
        "debezium_json",
        {"topic_prefix": "srv", "topic_route_regex": r"(.*)\.orders", "topic_route_replacement": "$1.all"},
        "sqlserver",
        "srv.shop.dbo.all",
    ),
    ("canal_json", {}, "sqlserver", "shop.dbo.orders"),
    ("maxwell_json", {}, "sqlserver", "maxwell"),
    ("ogg_json", {"topic": "a-${schema}-${table}"}, "sqlserver", "a-dbo-orders"),
    ("qlik_json", {"topic": "${database}"}, "sqlserver", "shop"),
    ("shareplex_json", {}, "sqlserver", "shop.dbo.orders"),
    ("dts_avro", {}, "sqlserver", "dts"),
]


def made(name: str, options: dict[str, Any]) -> Format:
    kind = registry.find("format", name)
    given = {**ENCODING.get(name, {}), **options}
    found: Format = kind.of(given)
    return found


@pytest.mark.parametrize(("name", "options", "connector", "topic"), CASES)
def test_the_topic_of_a_table(name: str, options: dict[str, Any], connector: str, topic: str) -> None:
    assert made(name, options).topic_for(TABLE.id, connector) == topic


def test_templates_say_of_a_table_what_they_say_of_its_rows() -> None:
    templates = ["dts", "${path}", "x.${database}.${schema}.${table}.y", "${schema}", "it's ${table}"]
    tables = [TableId("shop", "dbo", "orders"), TableId("", "dbo", "o'x"), TableId("d", "", "t")]
    rows = change_batch(
        [{"op": "c", "table": {"database": t.database, "schema": t.schema, "name": t.name}} for t in tables]
    )
    for template in templates:
        assert topics(rows, template).to_pylist() == [topic_for(template, table) for table in tables]


def test_debeziums_topic_is_the_one_of_its_messages() -> None:
    format = made("debezium_json", {"topic_prefix": "srv"})
    id = TABLE.id
    row = {
        "op": "c", "table": {"database": id.database, "schema": id.schema, "name": id.name}, "position": "1",
        "key": {"id": "1"}, "after": {"id": "1"}, "source": {"connector": "sqlserver"}, "schema_id": TABLE.fingerprint,
    }  # fmt: skip
    (message,) = sent("debezium_json", change_batch([row]), [TABLE], topic_prefix="srv")
    assert message["topic"] == format.topic_for(id, "sqlserver")


def test_options_that_say_no_topic_are_refused_before_there_are_rows() -> None:
    table = TableId("shop", "dbo", "orders")
    with pytest.raises(OptionError, match="topic_prefix"):
        made("debezium_json", {"topic_prefix": ""}).topic_for(table)
    with pytest.raises(OptionError, match=r"can't hold '\$\{tabel\}'"):
        made("canal_json", {"topic": "${tabel}"}).topic_for(table)
    # Parts that a table does not have leave no point behind.
    assert made("canal_json", {}).topic_for(TableId("", "dbo", "orders")) == "dbo.orders"
