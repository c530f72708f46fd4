"""Rows of any connector and any logical type have a Debezium form, from maps and from structs alike."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import debezium_recordings as recordings
import pytest
from pyspark.sql.functions import expr

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.typed import literal, texts_in_order, typed_struct
from headrace.errors import OptionError
from headrace.formats.convert import encode

REAL = Path(__file__).parents[1] / "golden" / "real_debezium"
COMMON = ("ts_ms", "ts_us", "ts_ns", "snapshot", "db", "schema", "table", "sequence")


def messages(rows: list[dict[str, Any]], schemas: list[TableSchema], **options: Any) -> list[Any]:
    given = {"topic_prefix": "s", "skipped_operations": "none"} | options
    return recordings.encoded(rows, schemas, **given)


def written(frame: Any, **options: Any) -> list[Any]:
    given = {"topic_prefix": "s", "skipped_operations": "none"} | options
    return sorted(encode(frame, format="debezium_json", **given).collect(), key=lambda row: row.position)


def change(op: str, schema: TableSchema | None = None, **given: Any) -> dict[str, Any]:
    id = schema.id if schema is not None else TableId("db", "dbo", "t")
    return {
        "op": op,
        "table": {"database": id.database, "schema": id.schema, "name": id.name},
        "event_time": recordings.instant(10**15),
        "capture_time": recordings.instant(10**15 + 7),
        "source": {},
        "schema_id": schema.fingerprint if schema is not None else None,
        **given,
    }


# ------------------------------------------------------------------------------------------------ recorded connectors


def recorded(form: str, topic: str) -> list[dict[str, Any]]:
    """The recorded events of a table whose columns are numbers and texts, without tombstones."""
    with gzip.open(REAL / f"{form}.jsonl.gz", "rt", encoding="utf-8") as lines:
        found = [record for record in map(json.loads, lines) if record["topic"] == topic and record["value"]]
    plain = []
    for record in found:
        value = json.loads(record["value"])
        fields = value["schema"]["fields"][0]["fields"]
        if all(field["type"] in ("int32", "string") and "name" not in field for field in fields):
            plain.append(record | {"value": value, "key": json.loads(record["key"])})
    return plain


def structure(event: dict[str, Any], schema: str) -> TableSchema:
    block = event["value"]["payload"]["source"]
    columns = tuple(
        Column(
            field["field"], n, LogicalType(field["type"]), nullable=field["optional"],
            default=None if "default" not in field else str(field["default"]),
        )
        for n, field in enumerate(event["value"]["schema"]["fields"][0]["fields"], 1)
    )  # fmt: skip
    return TableSchema(TableId(block["db"], schema, block["table"]), columns, tuple(event["key"]["payload"]))


def row_of(event: dict[str, Any], schema: TableSchema) -> dict[str, Any]:
    payload = event["value"]["payload"]
    block = payload["source"]
    facts = {name: str(value) for name, value in block.items() if name not in COMMON and value is not None}
    if block["sequence"] is not None:
        facts["sequence"] = block["sequence"]
    return change(
        payload["op"],
        schema,
        key={name: str(value) for name, value in event["key"]["payload"].items()},
        before=payload["before"] and {n: v if v is None else str(v) for n, v in payload["before"].items()},
        after=payload["after"] and {n: v if v is None else str(v) for n, v in payload["after"].items()},
        event_time=recordings.instant(block["ts_us"]),
        capture_time=recordings.instant(payload["ts_us"]),
        snapshot=None if block["snapshot"] == "false" else block["snapshot"],
        transaction=payload["transaction"],
        source=facts,
    )


@pytest.mark.parametrize(
    ("form", "topic", "schema"),
    [("mariadb_a", "mdb_a.gold.customers", ""), ("postgres_a", "pg_a.public.customers", "public")],
)
def test_recorded_events_of_other_connectors_are_written_again(form: str, topic: str, schema: str) -> None:
    events = [e for e in recorded(form, topic) if not e["headers"]]
    assert {e["value"]["payload"]["op"] for e in events} > {"r", "u"}
    structures = {s.fingerprint: s for s in (structure(event, schema) for event in events)}
    rows = [row_of(event, structure(event, schema)) for event in events]
    found = messages(
        rows, list(structures.values()),
        topic_prefix=topic.partition(".")[0], shape="3.0", schemas_enable=True, tombstones_on_delete=False,
    )  # fmt: skip
    assert [row.topic for row in found] == [topic] * len(events)
    wrong = []
    for number, (row, event) in enumerate(zip(found, events, strict=True)):
        # One row's clock has microseconds.
        event["value"]["payload"]["ts_ns"] = event["value"]["payload"]["ts_us"] * 1000
        wrong += recordings.differences(json.loads(row.value), event["value"], f"{number}.value")
        wrong += recordings.differences(json.loads(row.key), event["key"], f"{number}.key")
    assert wrong == []


def test_oracle_and_db2_have_their_facts_in_shape_3() -> None:
    table = TableSchema(TableId("PDB", "S", "T"), (Column("ID", 1, LogicalType("int32"), nullable=False),), ("ID",))
    oracle = {"connector": "oracle", "txId": "0a", "scn": "12", "ssn": "3", "redo_thread": "1", "commit_ts_ms": "9"}
    rows = [
        change("c", table, after={"ID": "1"}, source=oracle),
        change("c", table, after={"ID": "1"}, source={"connector": "db2", "commit_lsn": "c"}),
    ]
    found = [(m.topic, json.loads(m.value)["source"]) for m in messages(rows, [table])]
    assert [topic for topic, _ in found] == ["s.S.T", "s.S.T"]
    facts = list(found[0][1])
    assert facts[:11] == [
        "version", "connector", "name", "ts_ms", "snapshot", "db", "sequence", "ts_us", "ts_ns", "schema", "table",
    ]  # fmt: skip
    assert facts[11:] == [
        "txId", "scn", "commit_scn", "lcr_position", "rs_id", "ssn", "redo_thread", "user_name", "redo_sql", "row_id",
        "commit_ts_ms", "start_scn", "start_ts_ms", "txSeq",
    ]  # fmt: skip
    assert (found[0][1]["ssn"], found[0][1]["redo_thread"], found[0][1]["commit_ts_ms"]) == (3, 1, 9)
    assert list(found[1][1])[11:] == ["change_lsn", "commit_lsn"]


def test_rows_that_say_no_connector_or_types_are_written_without_inventing(spark: Any) -> None:
    rows = [
        change("c", after={"id": "1", "n": None}, key={"id": "1"}),
        change("u", before={"id": "1", "n": "a"}, after={"id": "2", "n": "a"}, key={"id": "2"}),
        change("c", after={"id": "5", "n": "x"}, key={"id": "5"}, source={"connector": 'vi"tess'}),
        change("c", after={"id": "6", "n": "x"}, key={"id": "6"}, source={"connector": "mysql"}),
    ]
    found = written(recordings.rows(spark, rows), schemas_enable=True)
    assert [m.topic for m in found] == ["s.db.dbo.t"] * 6
    assert [json.loads(m.key)["payload"] for m in found] == [{"id": n} for n in ("1", "1", "1", "2", "5", "6")]
    events = [json.loads(m.value) for m in found if m.value]
    first = events[0]["payload"]["source"]
    assert list(first) == [
        "version", "connector", "name", "ts_ms", "snapshot", "db", "sequence", "ts_us", "ts_ns", "schema", "table",
    ]  # fmt: skip
    assert (first["connector"], first["name"], first["schema"]) == (None, "s", "dbo")
    assert events[-2]["payload"]["source"]["connector"] == 'vi"tess'
    # MySQL has no schemas, but a row that names one keeps it.
    mysql = events[-1]["payload"]["source"]
    assert [mysql[name] for name in ("schema", "table", "server_id", "file", "pos", "row", "gtid")] == [
        "dbo", "t", 0, "", 0, 0, None,
    ]  # fmt: skip
    for event in events:
        fields = {field["field"]: field for field in event["schema"]["fields"]}
        assert [field["field"] for field in fields["source"]["fields"]] == list(event["payload"]["source"])


@pytest.mark.parametrize("shape", ["1.7", "2.3", "3"])
def test_rows_that_say_nothing_of_their_source_have_a_whole_block(shape: str) -> None:
    table = TableSchema(TableId("db", "dbo", "t"), (Column("id", 1, LogicalType("int32"), nullable=False),), ("id",))
    rows = [
        change("c", table, after={"id": "1"}, key={"id": "1"}, source=source)
        for source in ({"connector": "sqlserver"}, None, {}, {"connector": "sqlserver", "change_lsn": "1"})
    ]
    found = [json.loads(m.value)["source"] for m in messages(rows, [table], shape=shape)]
    assert [block["connector"] for block in found] == ["sqlserver", None, None, "sqlserver"]
    assert list(found[1]) == list(found[2])
    assert [block.get("change_lsn", "-") for block in found] == [None, "-", "-", "1"]


# -------------------------------------------------------------------------------------------------------- all types

WIDE = "-12345678901234567890123456789012345.123456789012345678901234567890"
SAME, ZONED = "0a0b0c0d-0000-0000-0000-00000000000f", "2018-07-13T11:23:45.34Z"
TYPES: list[tuple[str, str, str, Any, Any]] = [
    # logical type, native type, canonical text, (Connect type, semantic name), wire value
    ("uint64", "bigint unsigned", "18446744073709551615", ("bytes", "Decimal"), "AP//////////"),
    ("decimal(65,30)", "decimal(65,30)", WIDE, ("bytes", "Decimal"), 65),
    ("decimal", "number", "12.50", ("struct", "VariableScaleDecimal"), {"scale": 2, "value": "BOI="}),
    ("decimal", "number", "-128", ("struct", "VariableScaleDecimal"), {"scale": 0, "value": "gA=="}),
    ("decimal(2,0)", "NUMBER", "-99", ("int8", None), -99),
    ("decimal(4,0)", "NUMBER", "9999", ("int16", None), 9999),
    ("decimal(9,0)", "NUMBER(9)", "123456789", ("int32", None), 123456789),
    ("decimal(18,0)", "NUMBER", "-1", ("int64", None), -1),
    ("decimal(38,0)", "NUMBER", "255", ("bytes", "Decimal"), "AP8="),
    ("json", "json", '{"a": 1.10}', ("string", "Json"), '{"a": 1.10}'),
    ("nested", "array", "[1,null]", ("string", "Json"), "[1,null]"),
    ("uuid", "uuid", "0a0b0c0d-0000-0000-0000-00000000000f", ("string", "Uuid"), SAME),
    ("xml", "xmltype", "<a/>", ("string", "Xml"), "<a/>"),
    ("interval", "interval", "P1Y2M3DT4H5M6.78S", ("string", "Interval"), "P1Y2M3DT4H5M6.78S"),
    ("float32", "binary_float", "3.25", ("float", None), 3.25),
    ("bytes", "raw", "AP8=", ("bytes", None), "AP8="),
    ("instant(6)", "timestamptz", "2018-07-13T11:23:45.340000Z", ("string", "ZonedTimestamp"), ZONED),
    ("timestamp(0)", "date", "1969-12-31 23:59:59", ("int64", "Timestamp"), -1000),
    ("timestamp(6)", "timestamp", "infinity", ("int64", "MicroTimestamp"), 9223372036825200000),
    ("timestamp(6)", "timestamp", "-0044-03-15 00:00:00.000000", ("int64", "MicroTimestamp"), -63549360000000000),
    ("time(6)", "time", "-838:59:59.000001", ("int64", "MicroTime"), -3020399000001),
    ("time(0)", "time", "24:00:00", ("int32", "Time"), 86400000),
    ("time(9)", "time", "00:00:00.000000001", ("int64", "NanoTime"), 1),
]  # fmt: skip
EVERY = TableSchema(
    TableId("db", "s", "every"),
    tuple(Column(f"c{n}", n, LogicalType.parse(kind), native) for n, (kind, native, *_) in enumerate(TYPES, 1)),
)


def test_every_logical_type_has_a_wire_form() -> None:
    image = {f"c{n}": text for n, (_, _, text, _, _) in enumerate(TYPES, 1)}
    (found,) = messages([change("c", EVERY, after=image)], [EVERY], schemas_enable=True)
    event = json.loads(found.value)
    fields = event["schema"]["fields"][1]["fields"]
    for n, (kind, _, _, (connect, semantic), wire) in enumerate(TYPES):
        name = fields[n].get("name")
        assert (fields[n]["type"], name and name.rpartition(".")[2]) == (connect, semantic), kind
        value = event["payload"]["after"][f"c{n + 1}"]
        if wire == 65:
            number = int.from_bytes(base64.b64decode(value), "big", signed=True)
            assert number == int(WIDE.replace(".", ""))
        else:
            assert value == wire, kind
    assert fields[1]["parameters"] == {"scale": "30", "connect.decimal.precision": "65"}
    assert fields[2] == {
        "type": "struct",
        "fields": [
            {"type": "int32", "optional": False, "field": "scale"},
            {"type": "bytes", "optional": False, "field": "value"},
        ],
        "optional": True,
        "name": "io.debezium.data.VariableScaleDecimal",
        "version": 1,
        "doc": "Variable scaled decimal",
        "field": "c3",
    }


MONTH = 2_629_800_000_000
DURATIONS = {
    "P1Y2M3DT4H5M6.78S": 14 * MONTH + 3 * 86_400_000_000 + 14_706_780_000,
    "-P1D": -86_400_000_000,
    "PT-0.5S": -500_000,
    "P2W": 14 * 86_400_000_000,
    "+01-06": 18 * MONTH,
    "-00-01": -MONTH,
    "+03 04:05:06.789000": 3 * 86_400_000_000 + 14_706_789_000,
    "-0 00:00:01": -1_000_000,
    "1234567890123": 1234567890123,
    "P": 0,
}


def test_numeric_intervals_are_microseconds() -> None:
    table = TableSchema(
        TableId("db", "s", "i"), tuple(Column(f"i{n}", n, LogicalType("interval")) for n in range(len(DURATIONS)))
    )
    image = {f"i{n}": text for n, text in enumerate(DURATIONS)}
    (found,) = messages([change("c", table, after=image)], [table], **{"interval.handling.mode": "numeric"})
    assert list(json.loads(found.value)["after"].values()) == list(DURATIONS.values())


# ----------------------------------------------------------------------------------------------------------- structs

KINDS = [
    "int32", "string", "boolean", "int8", "int64", "uint64", "float32", "float64", "decimal(9,3)", "decimal(18,0)",
    "decimal(38,10)", "decimal(65,30)", "decimal", "bytes", "date", "time(3)", "time(9)", "timestamp(0)",
    "timestamp(3)", "timestamp(6)", "timestamp(9)", "instant(6)", "instant(9)", "zoned_timestamp(9)", "json", "uuid",
]  # fmt: skip
TYPED = TableSchema(
    TableId("db", "dbo", "Typed `'t"),
    tuple(Column(f"c {kind}'`", n, LogicalType.parse(kind), nullable=n > 2) for n, kind in enumerate(KINDS, 1)),
    ("c string'`", "c int32'`"),
)
ROWS = [
    ["1", "a", "true", "-128", "9223372036854775807", "18446744073709551615", "3.25", "-1.5", "-1.280", "0",
     "-0.0000000001", WIDE, "12.50", "", "1969-12-31", "23:59:59.999", "00:00:00.000000001", "2018-01-01 00:00:00",
     "1969-12-31 23:59:59.999", "0001-01-01 00:00:00.000001", "1969-12-31 23:59:59.999999999",
     "1969-12-31T23:59:59.100000Z", "2018-01-01T00:00:00.000000001Z", "2018-01-01T00:00:00+09:00", '{"a":1}', "u"],
    ["-1", 'é"\\\n日😀', "false", "127", "-1", "0", "NaN", "Infinity", "128.000", "999999999999999999",
     "1234567890123456789012345678.0123456789", "0." + "0" * 29 + "1", "-0.001", "AP8=", "9999-12-31", "00:00:00.000",
     "23:59:59.999999999", "1969-12-31 23:59:00", "2018-07-13 11:23:45.340", "9999-12-31 23:59:59.999999",
     "2262-04-11 23:47:16.854775807", "9999-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999999Z",
     "2018-01-01T00:00:00.120000000Z", "[]", ""],
    ["7", "n", *[None] * (len(KINDS) - 2)],
]  # fmt: skip


def whole_images() -> list[dict[str, str | None]]:
    return [dict(zip((column.name for column in TYPED.columns), row, strict=True)) for row in ROWS]


def typed_changes() -> list[dict[str, Any]]:
    one, two, three = whole_images()
    gone = [f"c {kind}'`" for kind in ("int64", "json", "bytes")]
    partial = {name: text for name, text in two.items() if name not in gone}
    key = TYPED.key
    changes = [
        change("r", TYPED, after=one, snapshot="first"),
        change("c", TYPED, after=three),
        change("u", TYPED, before=one, after=one | {"c boolean'`": None}),
        change(
            "u", TYPED, before=one, after=two, transaction={"id": "x", "total_order": 1, "data_collection_order": 1}
        ),
        change("u", TYPED, before=partial, after=partial),
        change("d", TYPED, before=two),
        change("t", TYPED),
    ]
    for row in changes:
        image = row.get("after") or row.get("before")
        row["source"] = {"connector": "sqlserver", "commit_lsn": "c", "event_serial_no": "2"}
        row["key"] = image and {name: image[name] for name in key}
    return changes


def structs(frame: Any) -> Any:
    """The same rows with struct images."""
    names = f"array({', '.join(literal(column.name) for column in TYPED.columns)})"
    columns = {}
    for image in ("before", "after"):
        absent = f"array_except({names}, map_keys({image}))"
        columns[image] = expr(typed_struct(texts_in_order(image, TYPED.columns), TYPED.columns))
        columns[f"{image}_absent"] = expr(f"if(size({absent}) > 0, {absent}, null)")
    return frame.where("op <> 'schema'").withColumns(columns)


@pytest.mark.parametrize(
    "options",
    [
        {"schemas_enable": True},
        {"shape": "1.7", "decimal_handling_mode": "string", "time_precision_mode": "connect"},
        {"shape": "2.3", "binary_handling_mode": "hex", "decimal_handling_mode": "double", "keys": ["c int32'`"]},
        {"time_precision_mode": "isostring", "binary_handling_mode": "base64-url-safe"},
        {"event_converting_failure_handling_mode": "warn", "time_precision_mode": "nanoseconds"},
    ],
    ids=["schemas", "1.7", "2.3", "iso", "nanoseconds"],
)
def test_structs_give_the_messages_that_maps_give(spark: Any, options: dict[str, Any]) -> None:
    frame = recordings.rows(spark, typed_changes(), [TYPED]).cache()
    of_maps = written(frame, schema=TYPED, **options)
    of_structs = written(structs(frame), schema=TYPED, **options)
    assert len(of_maps) == 10
    for ours, theirs in zip(of_structs, of_maps, strict=True):
        assert ours == theirs


def test_what_an_image_does_not_carry_is_left_out_where_no_placeholder_fits(spark: Any) -> None:
    update = json.loads(written(recordings.rows(spark, typed_changes()[4:5], [TYPED]))[0].value)
    for image in (update["before"], update["after"]):
        assert image["c json'`"] == "__debezium_unavailable_value"
        assert image["c bytes'`"] == "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
        assert "c int64'`" not in image
        assert list(image) == [column.name for column in TYPED.columns if str(column.logical) != "int64"]


def test_structs_of_a_ddl_are_named_by_their_rows(spark: Any) -> None:
    ddl = "id int, name string, amount decimal(5,2)"
    row = change("c", key={"id": "1"}, source={"connector": "mysql"}, position="1")
    frame = recordings.rows(spark, [row])
    frame = frame.withColumn("after", expr("struct(1 as id, 'a' as name, cast(1.5 as decimal(5,2)) as amount)"))
    frame = frame.withColumn("before", expr("cast(null as struct<id:int,name:string,amount:decimal(5,2)>)"))
    one, two, three = (
        written(frame, schemas_enable=True, **options)[0]
        for options in ({}, {"schema": ddl}, {"schema": ddl, "keys": ["id"]})
    )
    assert [m.topic for m in (one, two, three)] == ["s.db.dbo.t"] * 3
    for message in (one, two, three):
        event, key = json.loads(message.value), json.loads(message.key)
        assert event["schema"]["name"] == "s.db.dbo.t.Envelope"
        assert event["payload"]["after"] == {"id": 1, "name": "a", "amount": "AJY="}
        assert key["payload"] == {"id": 1}
        assert [(f["field"], f["type"]) for f in key["schema"]["fields"]] == [("id", "int32")]
        assert key["schema"]["name"] == "s.db.dbo.t.Key"
    with pytest.raises(OptionError, match="needs the names of the tables"):
        written(frame, topic_route_regex=".*", topic_route_replacement="all")


def test_many_tables_are_told_apart(spark: Any) -> None:
    tables = [
        TableSchema(
            TableId("db", "s", f"t{n}"),
            (
                Column("id", 1, LogicalType("int32"), nullable=False),
                Column(f"c{n}", 2, LogicalType("decimal", 9, n % 4)),
            ),
            ("id",),
        )
        for n in range(23)
    ]
    rows = [
        change("c", table, key={"id": str(n)}, after={"id": str(n), f"c{n}": f"{n}.{'0' * (n % 4)}".rstrip(".")})
        for n, table in enumerate(tables)
    ]
    options = {"schemas_enable": True, "decimal_handling_mode": "string"}
    found = messages(rows, tables, **options)
    for n, message in enumerate(found):
        event = json.loads(message.value)
        assert message.topic == f"s.db.s.t{n}"
        assert event["schema"]["fields"][0]["name"] == f"s.db.s.t{n}.Value"
        assert list(event["payload"]["after"]) == ["id", f"c{n}"]
    # Given as a list, rows without a structure's id are told by their table.
    nameless = [row | {"schema_id": None} for row in rows]
    again = written(recordings.rows(spark, nameless), schema=tables, **options)
    assert [(m.topic, m.key, m.value) for m in again] == [(m.topic, m.key, m.value) for m in found]
