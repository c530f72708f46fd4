"""Rows with PostgreSQL's types in every format: what is decoded is what was encoded, but for what stands here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from codec_rows import as_kafka, change_batch, change_rows, sent
from debezium_recordings import instant
from postgresql_recordings import column_of

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.texts import key_text
from headrace.errors import FormatError
from headrace_emulators.schema_registry.server import SchemaRegistryServer

VALUES = {
    "smallint": "7", "integer": "-5", "bigint": "9223372036854775807", "oid": "4294967295",
    "numeric": "123456789012345678901234567890.1250", "numeric(10,2)": "-12.30", "numeric(5,-2)": "1234500",
    "numeric(2,4)": "0.0012", "real": "0.1", "double precision": "1e+22", "money": "-1234567.50", "boolean": "true",
    "character(5)": "ab   ", "character varying(9)": "é", "text": 'a"b', "bytea": "AP8=", "date": "2026-11-22",
    "time without time zone": "24:00:00.000000", "time with time zone": "01:02:03.5-15:59:59",
    "timestamp without time zone": "2026-01-02 03:04:05.100000",
    "timestamp(3) without time zone": "2026-01-02 03:04:05.100",
    "timestamp with time zone": "2026-01-01T21:34:05.100000Z", "interval": "10 mons 3 days -04:05:06.7",
    "uuid": "123e4567-e89b-12d3-a456-426655440000", "json": '{"b": 1.10,  "a": 2}', "jsonb": '{"a": 2}', "xml": "<a/>",
    "public.mood": "x,y", "public.pair": '{"a":1,"b":"x"}', "integer[]": "[1,null,3]",
    "numeric(10,3)[]": '["1.500",null]', "text[]": '["a",null,"b\\"c"]', "date[]": '["2026-01-02"]',
    "timestamp with time zone[]": '["2023-12-31T22:00:00.123456Z"]', "bytea[]": '["AP8=",null]',
    "boolean[]": "[true,null]", "double precision[]": '[1.5,"NaN"]', "public.mood[]": '["sad"]',
    "public.hstore": '{"a":"1","b":null}', "int4range": "[1,6)", "int4multirange": "{[1,3),[5,8)}",
    "public.ltree": "a.b", "inet": "10.0.0.1", "bit(1)": "1", "bit(10)": "0000000101", "bit varying": "0101",
    "point": "(1.5,-2)", "box": "(1,1),(0,0)", "tsvector": "'a'", "pg_lsn": "16/B374D848",
    "xid8": "18446744073709551615",
}  # fmt: skip
TABLE = TableSchema(
    TableId("db", "public", "t"),
    (
        Column("id", 1, LogicalType("int32"), "int4", nullable=False),
        *(replace(column_of("", n, kind)[0], name=kind) for n, kind in enumerate(VALUES, 2)),
    ),
    ("id",),
)
DEBEZIUM = {
    "numeric": "123456789012345678901234567890.125",
    "time without time zone": "24:00:00",
    "time with time zone": "17:02:02.5Z",
    "interval": "P0Y10M3DT-4H-5M-6.7S",
    "bit(1)": "true",
    "bit(10)": "BQ==",
    "bit varying": "BQ==",
    "point": '{"x":1.5,"y":-2.0,"wkb":"AQEAAAAAAAAAAAD4PwAAAAAAAADA","srid":null}',
}
"""Of Debezium's types the decoder gives what the message says: bytes for bits, UTC for a time with an offset."""
OTHERWISE: dict[str, dict[str, str]] = {
    "debezium_json": DEBEZIUM,
    "debezium_avro": DEBEZIUM,
    "canal_json": {"timestamp with time zone": "2026-01-01 21:34:05.100000"},
    "maxwell_json": {},
    "dts_avro": {
        "time without time zone": "24:00:00",
        "timestamp(3) without time zone": "2026-01-02 03:04:05.100000",
    },
    "ogg_json": {},
    "qlik_json": {"timestamp with time zone": "2026-01-01 21:34:05.100000"},
    "qlik_avro": {"timestamp(3) without time zone": "2026-01-02 03:04:05.100000"},
    "shareplex_json": {
        "bytea": "00FF",
        "timestamp without time zone": "2026-01-02T03:04:05.100000",
        "timestamp(3) without time zone": "2026-01-02T03:04:05.100",
    },
}
"""By format the columns that come back as another text: as what the format's messages say of the same value."""


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with SchemaRegistryServer() as running:
        yield running.url


def batch(table: TableSchema, image: dict[str, str | None]) -> Any:
    """A create of the table, behind the row that says its structure."""
    of_table = {"database": "db", "schema": "public", "name": "t"}
    times = {"event_time": instant(10**15), "capture_time": instant(10**15 + 5)}
    facts = {"connector": "postgresql", "txId": "7", "lsn": "9", "sequence": '["1","9"]'}
    common = {"table": of_table, "schema_id": table.fingerprint, "source": facts, **times}
    return change_batch(
        [
            {"op": "schema", "table_schema": table.to_text(), "position": "0//", **common},
            {
                "op": "c",
                "key": {"id": "1"},
                "key_text": key_text(["1"]),
                "after": image,
                "transaction": {"id": "7:9", "total_order": 1, "data_collection_order": 1},
                "position": "1//",
                **common,
            },
        ]
    )


def options(format: str, registry: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What encoding and decoding need."""
    prefix = {"topic_prefix": "s", "schemas_enable": True} if format == "debezium_json" else {}
    prefix |= {"topic_prefix": "s"} if format == "debezium_avro" else {}
    asked = {"registry": registry} if format.endswith("_avro") and format != "dts_avro" else {}
    return prefix | asked, asked


@pytest.mark.parametrize("format", OTHERWISE)
def test_values_come_back_as_they_were_or_as_the_format_says_them(format: str, registry: str) -> None:
    image = {"id": "1"} | VALUES
    writing, reading = options(format, registry)
    messages = sent(format, batch(TABLE, dict(image)), [TABLE], **writing)
    rows = [row for row in change_rows(format, as_kafka(messages), **reading) if row["op"] not in ("schema", None)]
    assert [row["error"] for row in rows if row["op"] == "error"] == []
    (row,) = rows
    names = {re.sub(r"[^A-Za-z0-9_]", "_", name) if format == "debezium_avro" else name: name for name in image}
    found = {names[name]: text for name, text in dict(row["after"]).items()}
    assert {name: text for name, text in found.items() if text != image[name]} == OTHERWISE[format]
    assert set(found) == set(image)


def test_messages_without_schemas_are_read_by_the_structure_of_the_source() -> None:
    image = {"id": "1"} | VALUES
    other = replace(TABLE, id=TableId("db", "public", "other"))
    messages = sent("debezium_json", batch(TABLE, dict(image)), [TABLE], topic_prefix="s")
    given = [TABLE, other]
    (row,) = (
        row
        for row in change_rows("debezium_json", as_kafka(messages), schema=given, topic_prefix="s")
        if row["op"] not in ("schema", None)
    )
    assert row["error"] is None
    # A structure says more than a message: how many digits a time has.
    wanted = {name: text for name, text in DEBEZIUM.items() if name != "time without time zone"}
    assert {n: t for n, t in dict(row["after"]).items() if t != image[n]} == wanted


SPECIAL = [
    # a type, its text, Debezium's value
    ("numeric", "NaN", None),
    ("numeric(10,2)", "NaN", None),
    ("date", "0044-03-15 BC", -735160),
    ("date", "-infinity", -2147472691),
    ("timestamp without time zone", "infinity", 9223372036825200000),
    ("timestamp without time zone", "294276-12-31 23:59:59.999999", None),
    ("timestamp with time zone", "0044-03-15 10:00:00+00 BC", "-0043-03-15T10:00:00.000000Z"),
    ("timestamp with time zone", "infinity", "infinity"),
    ("integer[]", "[0:2]={1,NULL,3}", [1, None, 3]),
    ("integer[]", "[[1,2],[3,4]]", None),
    ("text[]", '["a,b","NULL"]', ["a,b", "NULL"]),
    ("interval", "178000000 years", None),
    ("time with time zone", "24:00:00+00", "00:00:00Z"),
    ("bit varying", "", ""),
]


@pytest.mark.parametrize(("kind", "text", "wanted"), SPECIAL)
def test_what_no_type_of_the_wire_holds_is_null_and_counted_or_stops(kind: str, text: str, wanted: Any) -> None:
    table = replace(TABLE, columns=(TABLE.columns[0], replace(column_of("", 2, kind)[0], name="c")))
    rows = batch(table, {"id": "1", "c": text})
    options = {"topic_prefix": "s", "interval_handling_mode": "numeric", "include_schema_changes": False}
    (message,) = sent("debezium_json", rows, [table], **options)
    assert json.loads(message["value"])["after"]["c"] == wanted
    if wanted is None:
        with pytest.raises(FormatError, match="column 'c', key \\[\"1\"\\], can't be written as"):
            sent("debezium_json", rows, [table], event_converting_failure_handling_mode="fail", **options)


UNSAID: list[tuple[str, Any, Any]] = [
    # a type; what stands for a value that the log leaves out, absent where nothing does; for one that an old row of a
    # column without NULL does not say
    ("text", "gone", ""),
    ("json", "gone", ""),
    ("bytea", "Z29uZQ==", ""),
    ("text[]", ["gone"], []),
    ("bytea[]", ["Z29uZQ=="], []),
    ("integer[]", [103, 111, 110, 101], []),
    ("date[]", [103, 111, 110, 101], []),
    ("uuid[]", ["50c1f58b-e7f5-347e-8f53-d64c094783c2"], []),
    ("double precision[]", "absent", []),
    ("public.hstore", '{"gone":"gone"}', ""),
    ("numeric", "absent", {"scale": 0, "value": "AA=="}),
    ("numeric(12,2)", "absent", "AA=="),
    ("bigint", "absent", 0),
    ("real", "absent", 0.0),
    ("boolean", "absent", False),
    ("date", "absent", 0),
    ("timestamp with time zone", "gone", "1970-01-01T00:00:00Z"),
    ("time with time zone", "absent", "00:00:00Z"),
    ("uuid", "gone", ""),
    ("bit(10)", "Z29uZQ==", ""),
    ("point", "absent", {"x": 0.0, "y": 0.0, "wkb": "AQEAAAAAAAAAAAAAAAAAAAAAAAAA", "srid": None}),
]


@pytest.mark.parametrize(("kind", "left_out", "unsaid"), UNSAID)
def test_what_a_row_does_not_say_has_the_connector_s_stand_in(kind: str, left_out: Any, unsaid: Any) -> None:
    columns = (TABLE.columns[0], replace(column_of("", 2, kind)[0], name="c"))
    nullable = replace(TABLE, columns=columns)
    required = replace(TABLE, columns=(columns[0], replace(columns[1], nullable=False)))
    options = {"topic_prefix": "s", "include_schema_changes": False, "unavailable_value_placeholder": "gone"}
    (created,) = sent("debezium_json", batch(nullable, {"id": "1"}), [nullable], **options)

    assert json.loads(created["value"])["after"].get("c", "absent") == left_out
    for table, wanted in ((nullable, None), (required, unsaid)):
        rows = batch(table, {"id": "1"}).to_pylist()
        rows[1] |= {"op": "d", "before": {"id": "1"}, "after": None, "key": {"id": "1"}}
        changes = change_batch([{**row, "source": dict(row["source"])} for row in rows])
        deleted, _ = sent("debezium_json", changes, [table], **options)
        assert json.loads(deleted["value"])["before"] == {"id": 1, "c": wanted}


DEFAULTS: list[tuple[str, Any]] = [
    ("timestamp with time zone DEFAULT now()", "1970-01-01T00:00:00.000000Z"),
    ("timestamp without time zone DEFAULT CURRENT_TIMESTAMP", 0),
    ("date DEFAULT CURRENT_DATE", 0),
    ("uuid DEFAULT gen_random_uuid()", "00000000-0000-0000-0000-000000000000"),
    ("character varying(20) DEFAULT lower('ABC'::text)", ""),
    ("integer DEFAULT (1 + 2)", None),
    ("integer[] DEFAULT '{1,2}'::integer[]", None),
    ("numeric DEFAULT 2.50", None),
    ("real DEFAULT 0.1", 0.1),
    ("bytea DEFAULT '00ff'::bytea", None),
    ("public.mood DEFAULT 'ok'::public.mood", "ok"),
    ("interval DEFAULT '1 day'::interval", "P0Y0M1DT0H0M0S"),
]


@pytest.mark.parametrize(("declared", "wanted"), DEFAULTS)
def test_a_schema_tells_the_defaults_that_the_connector_tells(declared: str, wanted: Any) -> None:
    column = replace(column_of("", 2, declared)[0], name="c")
    if "(" in declared.partition(" DEFAULT ")[2] or "CURRENT" in declared:
        column = replace(column, default=None)
    table = replace(TABLE, columns=(TABLE.columns[0], column))
    options = {"topic_prefix": "s", "include_schema_changes": False, "schemas_enable": True}
    (message,) = sent("debezium_json", batch(table, {"id": "1", "c": None}), [table], **options)
    fields = json.loads(message["value"])["schema"]["fields"][1]["fields"]
    assert fields[1].get("default") == wanted
