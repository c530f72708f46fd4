"""Rows with MySQL's types in every format: what is decoded is what was encoded, but for what stands here."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from codec_rows import as_kafka, change_batch, change_rows, sent
from debezium_recordings import instant
from mariadb_recordings import column_of

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.texts import key_text
from headrace.errors import FormatError
from headrace_emulators.schema_registry.server import SchemaRegistryServer

POINT = "AQEAAAAAAAAAAAD4PwAAAAAAAADA"
VALUES = {
    "tinyint(4)": "-128", "tinyint(3) unsigned": "255", "smallint(6)": "-7", "smallint(5) unsigned": "65535",
    "mediumint(9)": "-8388608", "int(10) unsigned": "4294967295", "bigint(20)": "-5",
    "bigint(20) unsigned": "18446744073709551615", "bit(1)": "true", "bit(10)": "AQI=",
    "decimal(65,30)": "-0." + "1" * 30, "decimal(10,0) unsigned": "12", "float": "0.1", "double": "1e+22",
    "date": "2026-11-22", "time": "-838:59:59", "time(6)": "25:00:00.000001", "datetime": "2026-01-02 03:04:05",
    "datetime(6)": "2026-01-02 03:04:05.100000", "timestamp(3)": "2026-01-02T03:04:05.100Z", "year(4)": "2155",
    "char(5)": "é", "varchar(9)": 'a"b', "longtext": "日本", "binary(2)": "AP8=", "blob": "",
    "enum('small','x,y')": "x,y", "set('a','b c')": "a,b c", "uuid": "123e4567-e89b-12d3-a456-426655440000",
    "inet6": "::1", "json": '{"a": 1.10, "b": [null]}', "point": f'{{"wkb": "{POINT}", "srid": 4326}}',
    "geometry": f'{{"wkb": "{POINT}", "srid": 0}}', "vector(2)": "[1.5,-0.1]",
}  # fmt: skip
MORE_TYPES = {"uuid": "uuid", "vector(2)": "nested"}
"""Types that the recorded tables do not have."""


def native(declared: str) -> Column:
    """A column by its declaration."""
    found = column_of("c", 2, declared)
    return replace(found, logical=LogicalType(MORE_TYPES[declared])) if declared in MORE_TYPES else found


TABLE = TableSchema(
    TableId("db", "", "t"),
    (
        Column("id", 1, LogicalType("int32"), "int", nullable=False),
        *(replace(native(kind), name=kind, position=n) for n, kind in enumerate(VALUES, 2)),
    ),
    ("id",),
)
DEBEZIUM = {
    "datetime": "2026-01-02 03:04:05.000",
    "point": f'{{"x":1.5,"y":-2.0,"wkb":"{POINT}","srid":4326}}',
    "geometry": f'{{"wkb":"{POINT}","srid":null}}',
}
OTHERWISE: dict[str, dict[str, str]] = {
    "debezium_json": DEBEZIUM,
    "debezium_avro": DEBEZIUM,
    "canal_json": {
        "timestamp(3)": "2026-01-02 03:04:05.100",
        "bit(10)": "513",
        "point": base64.b64encode(b"\xe6\x10\0\0" + base64.b64decode(POINT)).decode(),
        "geometry": base64.b64encode(b"\0\0\0\0" + base64.b64decode(POINT)).decode(),
    },
    "maxwell_json": {},
    "dts_avro": {"timestamp(3)": "2026-01-02T03:04:05.100000Z"},
    "ogg_json": {},
    "qlik_json": {"timestamp(3)": "2026-01-02 03:04:05.100"},
    "qlik_avro": {"datetime": "2026-01-02 03:04:05.000000", "timestamp(3)": "2026-01-02T03:04:05.100000Z"},
    "shareplex_json": {
        "bit(10)": "0102",
        "binary(2)": "00FF",
        "datetime": "2026-01-02T03:04:05",
        "datetime(6)": "2026-01-02T03:04:05.100000",
    },
}
"""By format the columns that come back as another text: as what the format's messages say of the same value."""


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with SchemaRegistryServer() as running:
        yield running.url


def batch(table: TableSchema, image: dict[str, str | None], connector: str = "mysql", **more: str) -> pa.RecordBatch:
    """A create of the table, behind the row that says its structure."""
    of_table = {"database": "db", "schema": "", "name": "t"}
    times = {"event_time": instant(10**15), "capture_time": instant(10**15 + 5)}
    facts = {"connector": connector, "server_id": "1", "gtid": "0-1-7", "file": "binlog.000001", "pos": "9", "row": "0"}
    common = {"table": of_table, "schema_id": table.fingerprint, "source": facts | more, **times}
    create = {
        "op": "c",
        "key": {"id": "1"},
        "key_text": key_text(["1"]),
        "after": image,
        "transaction": {"id": "0-1-7", "total_order": 1, "data_collection_order": 1},
        "position": "1//",
        **common,
    }
    return change_batch([{"op": "schema", "table_schema": table.to_text(), "position": "0//", **common}, create])


def options(format: str, registry: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What encoding and decoding need."""
    prefix = {"topic_prefix": "s", "schemas_enable": True} if format == "debezium_json" else {}
    prefix |= {"topic_prefix": "s"} if format == "debezium_avro" else {}
    asked = {"registry": registry} if format.endswith("_avro") and format != "dts_avro" else {}
    return prefix | asked, asked


@pytest.mark.parametrize("format", OTHERWISE)
def test_values_come_back_as_they_were_or_as_the_format_says_them(format: str, registry: str) -> None:
    image: dict[str, str | None] = {"id": "1"} | VALUES
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
    image: dict[str, str | None] = {"id": "1"} | VALUES
    messages = sent("debezium_json", batch(TABLE, dict(image)), [TABLE], topic_prefix="s")
    rows = change_rows("debezium_json", as_kafka(messages), schema=[TABLE], topic_prefix="s")
    (row,) = (row for row in rows if row["op"] not in ("schema", None))
    assert row["error"] is None
    # A structure says more than a message: how many digits a timestamp has.
    wanted = {name: text for name, text in DEBEZIUM.items() if name != "datetime"}
    assert {name: text for name, text in dict(row["after"]).items() if text != image[name]} == wanted


def debezium_value(column: Column, text: str | None, **options: Any) -> tuple[dict[str, Any], Any]:
    """The field and the value that Debezium's event has for a column."""
    table = replace(TABLE, columns=(TABLE.columns[0], replace(column, name="c")))
    connector = options.pop("connector", "mysql")
    options = {"topic_prefix": "s", "include_schema_changes": False, "schemas_enable": True} | options
    (message,) = sent("debezium_json", batch(table, {"id": "1", "c": text}, connector), [table], **options)
    event = json.loads(message["value"])
    field = event["schema"]["fields"][1]["fields"][1]
    return field, event["payload"]["after"]["c"]


CHOSEN: list[tuple[str, str, dict[str, Any], str, Any]] = [
    # a type, its text, options; what the field's type means, the value
    ("bigint(20) unsigned", "18446744073709551615", {}, "org.apache.kafka.connect.data.Decimal", "AP//////////"),
    ("bigint(20) unsigned", "18446744073709551615", {"bigint.unsigned.handling.mode": "long"}, "int64", -1),
    ("bigint(20) unsigned", "5", {"decimal.handling.mode": "string"}, "org.apache.kafka.connect.data.Decimal", "BQ=="),
    ("float", "0.1", {}, "float", 0.1),
    ("float(7,3)", "0.1", {}, "double", 0.1),
    ("time(6)", "-25:00:00.500000", {}, "io.debezium.time.MicroTime", -90000500000),
    ("time", "24:00:00", {"time.precision.mode": "connect"}, "org.apache.kafka.connect.data.Time", 86400000),
    ("time", "25:00:00", {"time.precision.mode": "connect"}, "org.apache.kafka.connect.data.Time", None),
    ("time", "-00:00:01", {"time.precision.mode": "connect"}, "org.apache.kafka.connect.data.Time", None),
    ("datetime(3)", "2026-01-02 03:04:05.100", {}, "io.debezium.time.Timestamp", 1767323045100),
    ("datetime(6)", "0044-01-02 00:00:00.000000", {"enable.time.adjuster": True}, "io.debezium.time.MicroTimestamp",
     2335305600000000),
    ("date", "0070-01-01", {"enable.time.adjuster": True}, "io.debezium.time.Date", 0),
    ("date", "0070-01-01", {}, "io.debezium.time.Date", -693960),
    ("date", "0000-00-00", {}, "io.debezium.time.Date", None),
    ("datetime", "2024-02-00 00:00:00", {"enable.time.adjuster": True}, "io.debezium.time.Timestamp", None),
    ("timestamp(3)", "2026-01-02T03:04:05.100Z", {}, "io.debezium.time.ZonedTimestamp", "2026-01-02T03:04:05.100Z"),
    ("year(4)", "0", {}, "io.debezium.time.Year", 0),
    ("varbinary(3)", "AP8=", {"binary.handling.mode": "hex"}, "string", "00ff"),
    ("bit(10)", "AQI=", {"binary.handling.mode": "hex"}, "io.debezium.data.Bits", "AQI="),
    ("json", "[1, 2]", {}, "io.debezium.data.Json", "[1, 2]"),
    ("json", "[1, 2]", {"connector": "mariadb"}, "string", "[1, 2]"),
    ("set('a','b,c')", "a,b,c", {}, "io.debezium.data.EnumSet", "a,b,c"),
    ("vector(2)", "[1.5,-0.1]", {}, "io.debezium.data.FloatVector", [1.5, -0.1]),
    ("point", json.dumps({"wkb": POINT, "srid": 0}), {}, "io.debezium.data.geometry.Point",
     {"x": 1.5, "y": -2.0, "wkb": POINT, "srid": None}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "options", "meaning", "wanted"), CHOSEN)
def test_a_value_is_what_the_connector_writes_by_its_options(
    kind: str, text: str, options: dict[str, Any], meaning: str, wanted: Any
) -> None:
    field, value = debezium_value(native(kind), text, **options)
    assert (field.get("name", field["type"]), value) == (meaning, wanted)


@pytest.mark.parametrize(
    ("kind", "text"), [("date", "2024-00-10"), ("time", "25:00:00"), ("point", '{"wkb":"AQID","srid":0}')]
)
def test_a_value_that_no_type_of_the_wire_holds_stops_where_the_user_wants_it_so(kind: str, text: str) -> None:
    with pytest.raises(FormatError, match="column 'c'"):
        debezium_value(native(kind), text, event_converting_failure_handling_mode="fail", time_precision_mode="connect")


REQUIRED = [
    # a declaration; what stands for a date that is none, which is NULL in a change row
    ("date NOT NULL", 0),
    ("datetime(6) NOT NULL", 0),
    ("timestamp NOT NULL", "1970-01-01T00:00:00Z"),
    ("date NOT NULL DEFAULT '2020-01-01'", 18262),
    ("datetime NOT NULL DEFAULT '0000-00-00 00:00:00'", 0),
    ("date DEFAULT '2020-01-01'", None),
]


@pytest.mark.parametrize(("declared", "wanted"), REQUIRED)
def test_a_date_that_is_none_is_the_default_or_1970_where_a_column_has_no_null(declared: str, wanted: Any) -> None:
    assert debezium_value(native(declared), None)[1] == wanted


@pytest.mark.parametrize(("declared", "wanted"), [*REQUIRED, ("timestamp NULL", None), ("timestamp(6) NULL", None)])
def test_so_it_is_where_it_stands_in_the_row_as_its_text(declared: str, wanted: Any) -> None:
    text = "0000-00-00T00:00:00Z" if declared.startswith("timestamp") else "0000-00-00"
    assert debezium_value(native(declared), text)[1] == wanted


DEFAULTS: list[tuple[str, Any]] = [
    ("timestamp NOT NULL DEFAULT current_timestamp() ON UPDATE current_timestamp()", "1970-01-01T00:00:00Z"),
    ("datetime NOT NULL DEFAULT CURRENT_TIMESTAMP", 0),
    ("datetime DEFAULT '0000-00-00 00:00:00'", None),
    ("timestamp NOT NULL DEFAULT '0000-00-00 00:00:00'", "1970-01-01T00:00:00Z"),
    ("bit(1) DEFAULT b'1'", None),
    ("year(4) DEFAULT 2001", 2001),
    ("enum('p','q') DEFAULT 'p'", "p"),
    ("int(11)", None),
]


@pytest.mark.parametrize(("declared", "wanted"), DEFAULTS)
def test_a_schema_tells_the_defaults_that_the_connector_tells(declared: str, wanted: Any) -> None:
    column = native(declared)
    if "urrent" in declared.lower() or declared.startswith("bit"):
        column = replace(column, default=None)
    assert debezium_value(column, "1970-01-01 00:00:00" if "time" in declared else None)[0].get("default") == wanted


CANAL = {
    # a column: what Canal says its type is, its number, and its value
    "tinyint(3) unsigned": ("tinyint unsigned", 5, "255"),
    "bigint(20) unsigned": ("bigint unsigned", 3, "18446744073709551615"),
    "decimal(10,0) unsigned": ("decimal(10,0) unsigned", 3, "12"),
    "bit(10)": ("bit(10)", -7, "513"),
    "time(6)": ("time(6)", 92, "25:00:00.000001"),
    "datetime(6)": ("datetime(6)", 93, "2026-01-02 03:04:05.100000"),
    "timestamp(3)": ("timestamp(3)", 93, "2026-01-02 03:04:05.100"),
    "year(4)": ("year", 12, "2155"),
    "varchar(9)": ("varchar(9)", 12, 'a"b'),
    "binary(2)": ("binary(2)", 2004, "\0ÿ"),
    "enum('small','x,y')": ("enum('small','x,y')", 4, "2"),
    "set('a','b c')": ("set('a','b c')", -7, "3"),
    "json": ("json", 12, '{"a": 1.10, "b": [null]}'),
    "point": ("point", 2004, "\xe6\x10\0\0" + base64.b64decode(POINT).decode("latin-1")),
}


def test_canal_writes_types_and_values_as_the_product_does() -> None:
    (message,) = sent("canal_json", batch(TABLE, {"id": "1"} | VALUES), [TABLE])
    event = json.loads(message["value"])
    found = {name: (event["mysqlType"][name], event["sqlType"][name], event["data"][0][name]) for name in CANAL}
    assert found == CANAL
    assert (event["gtid"], event["pkNames"], event["es"], event["old"]) == ("0-1-7", ["id"], 10**12, None)


def test_canal_s_values_are_read_by_the_structure_of_the_source() -> None:
    image: dict[str, str | None] = {"id": "1"} | VALUES
    messages = sent("canal_json", batch(TABLE, dict(image)), [TABLE])
    rows = change_rows("canal_json", as_kafka(messages), schema=[TABLE])
    (row,) = (row for row in rows if row["op"] not in ("schema", None))
    assert row["error"] is None
    assert {name: text for name, text in dict(row["after"]).items() if text != image[name]} == {}


def test_maxwell_s_messages_say_the_place_in_the_log() -> None:
    (message,) = sent("maxwell_json", batch(TABLE, {"id": "1"} | VALUES), [TABLE])
    event = json.loads(message["value"])
    event.pop("data")
    assert list(event.items()) == [
        ("database", "db"), ("table", "t"), ("type", "insert"), ("ts", 10**9), ("xid", "0-1-7"), ("xoffset", 0),
        ("position", "binlog.000001:9"), ("gtid", "0-1-7"), ("server_id", 1), ("primary_key", [1]),
        ("primary_key_columns", ["id"]),
    ]  # fmt: skip


def test_the_records_of_dts_say_the_place_in_the_log() -> None:
    (message,) = sent("dts_avro", batch(TABLE, {"id": "1"} | VALUES), [TABLE])
    (row,) = (row for row in change_rows("dts_avro", as_kafka([message])) if row["op"] == "c")
    facts = dict(row["source"])
    assert (facts["sourcePosition"], facts["GTID"], facts["server_id"]) == ("9@1", "0-1-7", "1")


@pytest.mark.parametrize("connector", ["mysql", "mariadb"])
def test_the_source_block_says_the_place_in_the_log_and_what_was_asked_for(connector: str) -> None:
    table = replace(TABLE, columns=TABLE.columns[:1])
    changes = batch(table, {"id": "1"}, connector, thread="11", query="insert into t values (1)")
    options = {"topic_prefix": "s", "include_schema_changes": False, "schemas_enable": True}
    (message,) = sent("debezium_json", changes, [table], **options)
    event = json.loads(message["value"])
    assert list(event["payload"]["source"].items()) == [
        ("version", "3.6.1.Final"), ("connector", connector), ("name", "s"), ("ts_ms", 10**12), ("snapshot", "false"),
        ("db", "db"), ("sequence", None), ("ts_us", 10**15), ("ts_ns", 10**18), ("table", "t"), ("server_id", 1),
        ("gtid", "0-1-7"), ("file", "binlog.000001"), ("pos", 9), ("row", 0), ("thread", 11),
        ("query", "insert into t values (1)"),
    ]  # fmt: skip
    (block,) = (field for field in event["schema"]["fields"] if field["field"] == "source")
    assert block["name"] == f"io.debezium.connector.{connector}.Source"
    assert message["topic"] == "s.db.t"
