"""Avro schemas as others than Connect's converters write them: references, unions, recursion, logical types."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from codec_rows import change_rows
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from headrace.formats.registry.references import with_references
from headrace_emulators.schema_registry.server import SchemaRegistryServer


def field(name: str, kind: Any, **beside: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **beside}


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


SOURCE = record("io.debezium.Source", *(field(name, "string") for name in ("connector", "db", "schema", "table")))


def envelope(*columns: dict[str, Any], table: str = "t", source: Any = SOURCE, more: Sequence[Any] = ()) -> Any:
    value = record(f"x.s.{table}.Value", *columns)
    return record(
        f"x.s.{table}.Envelope",
        field("before", ["null", value]),
        field("after", ["null", value["name"]]),
        field("source", source),
        field("op", "string"),
        *more,
    )


def created(row: Mapping[str, Any], table: str = "t", **more: Any) -> dict[str, Any]:
    source = {"connector": "postgresql", "db": "d", "schema": "s", "table": table}
    return {"before": None, "after": row, "op": "c", "source": source, **more}


def datum(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def decoded(values: Sequence[tuple[int, bytes]], registry: Any, **options: Any) -> list[dict[str, Any]]:
    lines = [
        ("feed", 0, n, None, None, b"\0" + id.to_bytes(4, "big") + body, None) for n, (id, body) in enumerate(values)
    ]
    return change_rows("debezium_avro", lines, registry=registry, **options)


def types_of(row: Mapping[str, Any]) -> dict[str, str]:
    return {column["name"]: column["logicalType"] for column in json.loads(row["table_schema"])["columns"]}


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
NODE = record(
    "Node", field("v", "int"), field("next", ["null", "Node"]), field("more", {"type": "array", "items": "Node"})
)
PAIR = [record("P", field("p", "int")), record("Q", field("q", "string"))]


@pytest.mark.parametrize(
    ("kind", "value", "logical", "text"),
    [
        (["int", "long"], 2**40, "int64", str(2**40)),
        (["null", "long", "int"], None, "int64", None),
        (["null", "float", "double"], 0.1, "float64", "0.1"),
        (["null", "int", "string"], "x", "string", "x"),
        (["null", "int", "string"], 5, "string", "5"),
        (["boolean", "string"], True, "string", "true"),
        (["null", "string", ENUM], "B", "string", "B"),
        (["null", *PAIR], {"q": "x"}, "nested", '{"q":"x"}'),
        (["null", PAIR[0], {"type": "array", "items": "int"}], [1, 2], "nested", "[1,2]"),
        ({"type": "array", "items": ["null", "int", "string"]}, [1, "x", None], "nested", '[1,"x",null]'),
        ({"type": "map", "values": PAIR}, {"a": {"p": 1}}, "nested", '{"a":{"p":1}}'),
        (
            ["null", NODE],
            {"v": 1, "next": {"v": 2, "next": None, "more": []}, "more": [{"v": 3, "next": None, "more": []}]},
            "nested",
            '{"v":1,"next":{"v":2,"next":null,"more":[]},"more":[{"v":3,"next":null,"more":[]}]}',
        ),
    ],
)
def test_columns_of_several_types_and_types_that_hold_themselves_are_read(
    kind: Any, value: Any, logical: str, text: str | None
) -> None:
    schema = envelope(field("id", "int"), field("u", kind), field("z", "string"))
    row = {"id": 1, "u": value, "z": "end"}
    structure, found = decoded([(7, datum(schema, created(row)))], {7: schema})
    assert types_of(structure)["u"] == logical
    assert found["after"] == {"id": "1", "u": text, "z": "end"}


DATE = {"type": "int", "logicalType": "date"}


@pytest.mark.parametrize("kind", [["null", "string", DATE], ["string", "bytes"], ["string", PAIR[0]]])
def test_a_column_whose_text_would_not_say_its_type_is_an_error_that_names_it(kind: Any) -> None:
    schema, other = envelope(field("id", "int"), field("u", kind)), envelope(field("id", "int"), table="v")
    values = [(7, datum(schema, created({"id": 1, "u": "x"}))), (8, datum(other, created({"id": 1}, "v")))]
    found = [row for row in decoded(values, {7: schema, 8: other}) if row["op"] != "schema"]
    assert [row["op"] for row in found] == ["error", "c"]
    assert found[0]["error"].startswith("Column 'u' has values of several Avro types")


@pytest.mark.parametrize("kind", [["null", "string", DATE], ["null", NODE], PAIR])
def test_unions_and_recursion_outside_of_the_row_change_nothing(kind: Any) -> None:
    schema = envelope(field("id", "int"), more=[field("meta", kind), field("ts_ms", "long")])
    meta = {"q": "x"} if kind is PAIR else None
    (found,) = (
        r for r in decoded([(7, datum(schema, created({"id": 1}, meta=meta, ts_ms=5)))], {7: schema}) if r["after"]
    )
    assert (found["op"], found["after"]) == ("c", {"id": "1"})


def test_a_value_that_holds_itself_too_often_is_an_error_row() -> None:
    schema = envelope(field("n", ["null", NODE]))
    value: Any = None
    for _ in range(150):
        value = {"v": 1, "next": value, "more": []}
    rows = decoded([(7, datum(schema, created({"n": value}))), (7, datum(schema, created({"n": None})))], {7: schema})
    assert [row["op"] for row in rows if row["op"] != "schema"] == ["error", "c"]


DECIMAL = {"logicalType": "decimal", "precision": 5, "scale": 2}
MICROS = {"logicalType": "timestamp-micros"}


@pytest.mark.parametrize(
    ("column", "value", "logical", "text"),
    [
        (field("c", DATE), 19_000, "date", "2022-01-08"),
        (field("c", "int", logicalType="date"), 19_000, "date", "2022-01-08"),
        (field("c", {"type": "long"}, **MICROS), 10**15, "timestamp(6)", "2001-09-09 01:46:40.000000"),
        (field("c", ["null", "long"], **MICROS), 10**15, "timestamp(6)", "2001-09-09 01:46:40.000000"),
        (field("c", "bytes", **DECIMAL), b"\x00\x96", "decimal(5,2)", "1.50"),
        (field("c", {"type": "bytes", **DECIMAL}), Decimal("1.50"), "decimal(5,2)", "1.50"),
        (field("c", "int", **{"connect.name": "io.debezium.time.Date"}), 19_000, "date", "2022-01-08"),
        (field("c", "int", **{"connect.type": "int16"}), 7, "int16", "7"),
        # Avro: what a type can't have counts for nothing.
        (field("c", {"type": "string", "logicalType": "date"}), "x", "string", "x"),
        (field("c", "int", logicalType="timestamp-micros"), 7, "int32", "7"),
        (field("c", {"type": "int", "logicalType": "mine"}), 7, "int32", "7"),
        # What the type itself says outranks what stands beside it.
        (field("c", DATE, logicalType="time-millis"), 19_000, "date", "2022-01-08"),
    ],
)
def test_logical_types_are_known_without_connects_names_and_beside_the_type(
    column: dict[str, Any], value: Any, logical: str, text: str
) -> None:
    schema = envelope(column)
    structure, found = decoded([(7, datum(schema, created({"c": value})))], {7: schema})
    assert types_of(structure) == {"c": logical}
    assert found["after"] == {"c": text}


TABLES = {
    table: envelope(field("id", "int"), field(table, "string"), table=table, source="io.debezium.Source")
    for table in "ab"
}


@pytest.fixture
def registered() -> Iterator[tuple[SchemaRegistryServer, int]]:
    """A registry whose schema for one topic is the union of two tables' envelopes, which share the source block."""
    with SchemaRegistryServer() as server:
        client = SchemaRegistryClient({"url": server.url})
        client.register_schema("source", Schema(json.dumps(SOURCE), "AVRO"))
        block = SchemaReference("io.debezium.Source", "source", 1)
        for table, schema in TABLES.items():
            client.register_schema(table, Schema(json.dumps(schema), "AVRO", [block]))
        both = [SchemaReference(f"x.s.{table}.Envelope", table, 1) for table in TABLES]
        union = json.dumps([one.name for one in both])
        yield server, client.register_schema("feed-value", Schema(union, "AVRO", both))


@pytest.mark.parametrize("interface", ["confluent", "apicurio8"])
def test_a_topic_of_several_tables_is_a_union_of_schemas_that_the_registry_refers_to(
    registered: tuple[SchemaRegistryServer, int], interface: str
) -> None:
    server, id = registered
    whole = [SOURCE, *TABLES.values()]
    rows = [created({"id": n, table: "x"}, table) for n, table in enumerate("abba")]
    # The union in the registry lacks the source block, which is in front here.
    bodies = [
        bytes([body[0] - 2]) + body[1:]
        for body in (datum(whole, (f"x.s.{r['source']['table']}.Envelope", r)) for r in rows)
    ]
    if interface == "confluent":
        found = decoded([(id, body) for body in bodies], server.url)
    else:
        values = [b"\0" + id.to_bytes(8, "big") + body for body in bodies]
        lines = [("feed", 0, n, None, None, value, None) for n, value in enumerate(values)]
        found = change_rows("debezium_avro", lines, registry=server.apicurio_url, framing="apicurio8")
    assert [(row["table"]["name"], row["after"]) for row in found if row["op"] == "c"] == [
        (table, {"id": str(n), table: "x"}) for n, table in enumerate("abba")
    ]


def test_a_mapping_of_schemas_may_refer_to_each_other() -> None:
    registry = {1: SOURCE, 2: TABLES["a"]}
    whole = envelope(field("id", "int"), field("a", "string"), table="a")
    (found,) = (
        row for row in decoded([(2, datum(whole, created({"id": 1, "a": "x"}, "a")))], registry) if row["after"]
    )
    assert found["after"] == {"id": "1", "a": "x"}


def test_a_branch_that_a_union_does_not_have_is_an_error_row() -> None:
    union = [SOURCE, "string"]
    rows = decoded([(7, b"\x04"), (7, b""), (7, b"\xff\xff\xff\xff\xff\xff")], {7: union})
    assert [row["op"] for row in rows] == ["error"] * 3


@pytest.mark.parametrize(
    ("schema", "others", "names"),
    [
        (["a.B", "a.B"], [record("a.B", field("c", "int"))], [{"name": "a.B"}, "a.B"]),
        ({"type": "array", "items": "B"}, [record("B", field("c", "int"))], {"items": {"name": "B", "namespace": ""}}),
        ("string", [record("B", field("c", "int"))], "string"),
        (["nobody.Knows"], [record("B", field("c", "int"))], ["nobody.Knows"]),
    ],
)
def test_types_of_other_schemas_are_defined_where_they_are_named_first(schema: Any, others: Any, names: Any) -> None:
    found = json.loads(with_references(json.dumps(schema), map(json.dumps, others)))
    assert _holds(found, names)


def _holds(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return all(_holds(found[name], part) for name, part in wanted.items())
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(_holds, found, wanted))
    return bool(found == wanted)
