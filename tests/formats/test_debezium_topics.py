"""Routing of tables to other topics, and how columns become fields."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import debezium_recordings as recordings
import pytest

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.errors import OptionError
from headrace.formats.convert import format_named
from headrace.formats.debezium.options import pattern
from headrace.formats.debezium.topics import Substitution

ID = Column("id", 1, LogicalType("int32"), "int identity", 10, 0, nullable=False, identity=True)
TABLES = [
    TableSchema(
        TableId("testDB", "dbo", f"orders_{n}"), (ID, Column("item", 2, LogicalType("string"), "varchar", 20)), ("id",)
    )
    for n in (1, 2)
]
LOG = TableSchema(TableId("testDB", "dbo", "log"), (Column("line", 1, LogicalType("string"), "text"),))
ROUTE = {"topic.regex": r"(?<server>\w+)\.testDB\.dbo\.(orders|log)(_\d)?", "topic.replacement": "${server}.all_$2"}


def change(op: str, schema: TableSchema, before: Any = None, after: Any = None) -> dict[str, Any]:
    image = after or before
    return {
        "op": op,
        "table": {"database": schema.id.database, "schema": schema.id.schema, "name": schema.id.name},
        "key": {name: image[name] for name in schema.key} or None,
        "before": before,
        "after": after,
        "event_time": recordings.instant(10**15),
        "capture_time": recordings.instant(10**15),
        "source": {"connector": "sqlserver"},
        "schema_id": schema.fingerprint,
    }


def messages(rows: list[dict[str, Any]], schemas: list[TableSchema], **options: Any) -> list[Any]:
    return recordings.encoded(rows, **{"topic_prefix": "server1", "schemas_enable": True, "schema": schemas} | options)


def parsed(data: Any) -> Any:
    return None if data is None else json.loads(bytes(data))


@pytest.mark.parametrize(
    ("regex", "replacement", "text", "result"),
    [
        ("(.*)orders_(.*)", "$1orders", "s.dbo.orders_7", "s.dbo.orders"),
        ("(.*)orders_(.*)", "$1orders", "s.dbo.customers", None),
        ("s[.](?<table>.+)", "${table}.s", "s.a", "a.s"),
        ("(a)(b)?", "$1$2x", "a", "ax"),
        ("(a)", "$12", "a", "a2"),
        ("(a)", r"\$1\\", "a", "$1\\"),
        ("b|bc", "x", "bc", "xc"),
        (r"\w+", "x", "é", None),
    ],
)
def test_replacements_are_those_of_java(regex: str, replacement: str, text: str, result: str | None) -> None:
    assert Substitution(pattern(regex), replacement, "o").apply(text) == result


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic.regex": "(", "topic.replacement": "x"}, "it is not a regular expression"),
        ({"topic.regex": "(a)"}, "'topic_route_replacement' of format 'debezium_json' is missing"),
        ({"topic.regex": "(a)", "topic.replacement": "$2"}, "refers to group 2, but the pattern has 1"),
        ({"topic.regex": "(a)", "topic.replacement": "${b}"}, "names the group 'b', which the pattern does not have"),
        ({"topic.regex": "(a)", "topic.replacement": "a$"}, r"holds a '\$' or '\\' by itself"),
        ({"key.field.regex": "(a)", "key.field.replacement": "b"}, "needs 'topic_route_regex'"),
        ({"topic.regex": ".*", "topic.replacement": "all tables"}, "would be routed to 'all tables'"),
        ({"topic.regex": ".*", "topic.replacement": "all", "key.field.name": "id"}, "has a column 'id' already"),
        ({"transaction.topic": "a", "topic.transaction": "b"}, "can't both be given"),
        ({"field.name.adjustment.mode": "upper"}, "'field_name_adjustment_mode' can't be 'upper'"),
        ({"column.propagate.source.type": "dbo[.*"}, "it is not a regular expression"),
    ],
)
def test_routes_that_can_t_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        messages([], TABLES, **options)


def test_tables_of_one_topic_are_told_apart_by_their_keys() -> None:
    one, two = TABLES
    rows = [
        change("c", one, after={"id": "1", "item": "a"}),
        change("u", two, {"id": "1", "item": "a"}, {"id": "2", "item": "a"}),
        change("c", LOG, after={"line": "x"}),
    ]
    found = messages(rows, [one, two, LOG], **ROUTE)
    assert [row.topic for row in found] == ["server1.all_orders"] * 4 + ["server1.all_log"]
    field = "__dbz__physicalTableIdentifier"
    keys = [parsed(row.key) for row in found]
    assert [key and key["payload"] for key in keys] == [
        {"id": 1, field: "server1.testDB.dbo.orders_1"},
        {"id": 1, field: "server1.testDB.dbo.orders_2"},
        {"id": 1, field: "server1.testDB.dbo.orders_2"},
        {"id": 2, field: "server1.testDB.dbo.orders_2"},
        None,
    ]
    schema = keys[0]["schema"]
    assert schema["name"] == "server1.all_orders.Key"
    assert schema["fields"][1] == {"type": "string", "optional": False, "field": field}
    value = parsed(found[0].value)["schema"]
    assert value["name"] == "server1.all_orders.Envelope"
    assert [part["name"] for part in value["fields"][:2]] == ["server1.all_orders.Value"] * 2
    # The connector had written the headers before the router came.
    header, *context = found[1].headers
    assert all(h["key"].startswith("__debezium.context.") for h in context)
    assert parsed(header.value)["payload"] == {"id": 2}
    assert parsed(header.value)["schema"]["name"] == "server1.testDB.dbo.orders_2.Key"

    back = [row for row in recordings.decoded(found) if row["op"] != "schema"]
    assert [(row["op"], row["table"]["name"], row["key"]) for row in back if row["op"] != "tombstone"] == [
        ("c", "orders_1", {"id": "1"}),
        ("d", "orders_2", {"id": "1"}),
        ("c", "orders_2", {"id": "2"}),
        ("c", "log", None),
    ]


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"key.enforce.uniqueness": "no", "topic.replacement": "x"}, {"id": 1}),
        ({"key.field.name": "of", "key.field.regex": r".*_(\d)", "key.field.replacement": "n$1"},
         {"id": 1, "of": "n1"}),
        ({"topic.regex": "other", "topic.replacement": "x"}, {"id": 1}),
    ],
)  # fmt: skip
def test_the_key_s_field_is_as_options_say(options: dict[str, Any], key: dict[str, Any]) -> None:
    (row,) = messages([change("c", TABLES[0], after={"id": "1", "item": "a"})], TABLES, **ROUTE | options)
    assert parsed(row.key)["payload"] == key


TYPED = TableSchema(
    TableId("testDB", "dbo", "typed"),
    (
        ID,
        Column("first name", 2, LogicalType("string"), "varchar", 255),
        Column("amount", 3, LogicalType("decimal", 9, 2), "decimal", 9, 2),
        Column("2nd", 4, LogicalType("string"), "ntext", 0x3FFFFFFF),
    ),
    ("id",),
)
ROW = {"id": "1", "first name": "Ann", "amount": "1.50", "2nd": "x"}
ABOUT = "__debezium.source.column"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"column.propagate.source.type": "dbo.typed.id"},
         {"id": {"type": "INT IDENTITY", "length": "10", "scale": "0", "name": "id"}}),
        ({"column.propagate.source.type": r"TESTDB\.dbo\.typed\.(id|AMOUNT),none", "shape": "1.7"},
         {"id": {"type": "INT IDENTITY", "length": "10", "scale": "0"},
          "amount": {"type": "DECIMAL", "length": "9", "scale": "2"}}),
        ({"datatype.propagate.source.type": r"dbo\.typed\.varchar"},
         {"first name": {"type": "VARCHAR", "length": "255", "name": "first name"}}),
        ({"datatype.propagate.source.type": r".*\.varchar", "sanitize.field.names": "true"},
         {"first_name": {"type": "VARCHAR", "length": "255", "name": "first name"}}),
        ({"column.propagate.source.type": "typed.id"}, {}),
    ],
)  # fmt: skip
def test_source_types_stand_in_the_parameters_of_chosen_columns(
    options: dict[str, Any], expected: dict[str, Any]
) -> None:
    (row,) = messages([change("c", TYPED, after=ROW)], [TYPED], **options)
    schema = parsed(row.value)["schema"]
    found = {}
    for field in schema["fields"][1]["fields"]:
        parameters = dict(field.get("parameters", {}))
        if field["field"] == "amount":
            assert list(parameters)[:2] == ["scale", "connect.decimal.precision"]
        about = {k.removeprefix(f"{ABOUT}."): v for k, v in parameters.items() if k.startswith(ABOUT)}
        if about:
            found[field["field"]] = about
    assert found == expected
    assert all("parameters" not in field for field in parsed(row.key)["schema"]["fields"])


def test_a_masked_column_says_that_and_no_source_type() -> None:
    masked, cut = replace(TYPED.columns[1], masked=True), replace(TYPED.columns[3], truncated_to=20)
    table = replace(TYPED, columns=(TYPED.columns[0], masked, TYPED.columns[2], cut))
    (row,) = messages([change("c", table, after=ROW)], [table], **{"column.propagate.source.type": "dbo.typed.[^i].*"})
    fields = parsed(row.value)["schema"]["fields"][1]["fields"]
    found = {field["field"]: field.get("parameters") for field in fields}
    assert (found["id"], found["first name"], found["2nd"]) == (None, {"masked": "true"}, {"truncateLength": "20"})
    assert found["amount"][f"{ABOUT}.type"] == "DECIMAL"


def test_field_names_are_made_fit_for_avro_and_read_back() -> None:
    key = TableSchema(TYPED.id, TYPED.columns, ("2nd",))
    (row,) = messages([change("c", key, after=ROW)], [key], field_name_adjustment_mode="avro")
    value = parsed(row.value)
    names = ["id", "first_name", "amount", "_2nd"]
    assert list(value["payload"]["after"]) == names
    assert [field["field"] for field in value["schema"]["fields"][1]["fields"]] == names
    assert parsed(row.key)["payload"] == {"_2nd": "x"}
    options = {"schema": [key], "topic_prefix": "server1", "field_name_adjustment_mode": "avro"}
    back = recordings.decoded([row], **options)[-1]
    assert (back["op"], back["key"], back["after"]) == ("c", {"2nd": "x"}, ROW)


def test_names_that_would_become_one_are_refused() -> None:
    table = TableSchema(TYPED.id, (*TYPED.columns, Column("first-name", 5, LogicalType("string"))), ("id",))
    with pytest.raises(OptionError, match=re.escape("'first name' and 'first-name' of table testDB.dbo.typed both")):
        messages([], [table], sanitize_field_names="true")
    messages([], [table])


@pytest.mark.parametrize(
    ("as_null", "placeholders"), [(True, {"u": ["t"]}), (False, {"u": ["m", "t"], "d": ["m", "t"]})]
)
def test_values_that_a_change_leaves_out_are_as_chosen(as_null: bool, placeholders: dict[str, list[str]]) -> None:
    large = TableSchema(
        TableId("testDB", "dbo", "large"),
        (
            ID,
            Column("m", 2, LogicalType("string"), "varchar", 0x7FFFFFFF, large=True),
            Column("t", 3, LogicalType("string"), "text", 0x7FFFFFFF, large=True),
        ),
        ("id",),
    )
    rows = [change("u", large, {"id": "1"}, {"id": "1"}), change("d", large, {"id": "1"})]
    found = messages(rows, [large], unavailable_max_as_null=as_null, schemas_enable=False)
    values = [parsed(row.value) for row in found[:2]]
    assert {
        value["op"]: sorted(k for k, v in value["before"].items() if v == "__debezium_unavailable_value")
        for value in values
        if any(v == "__debezium_unavailable_value" for v in value["before"].values())
    } == placeholders


def test_options_are_checked_without_spark() -> None:
    with pytest.raises(OptionError, match="'topic_delimiter' can't be '/'"):
        format_named("debezium_json", {"topic.delimiter": "/"})
