"""What each option of the encode changes, and what is refused with a clear message."""

from __future__ import annotations

import json
from typing import Any

import debezium_recordings as recordings
import pytest

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.errors import OptionError
from headrace.formats.convert import encode, format_named

CUSTOMERS = recordings.tables()["customers", "CREATE"]
ALL_TYPES = recordings.tables()["all_types", "CREATE"]
JOHN = {"id": "1", "first_name": "John", "last_name": "Doe", "email": "j@x.org"}


def change(op: str, schema: TableSchema = CUSTOMERS, **given: Any) -> dict[str, Any]:
    image = given.get("after") or given.get("before") or {}
    return {
        "op": op,
        "table": {"database": schema.id.database, "schema": schema.id.schema, "name": schema.id.name},
        "key": {name: image.get(name) for name in schema.key} or None,
        "event_time": recordings.instant(10**15),
        "capture_time": recordings.instant(10**15),
        "source": {"connector": "sqlserver"},
        "schema_id": schema.fingerprint,
        **given,
    }


def written(changes: list[dict[str, Any]], *schemas: TableSchema, **options: Any) -> list[Any]:
    return recordings.encoded(changes, schemas or [CUSTOMERS], **{"topic_prefix": "server1"} | options)


def events(rows: list[Any]) -> list[tuple[Any, Any]]:
    """(key, op) of each message; op is null for a tombstone."""
    return [
        (json.loads(row.key)["id"] if row.key else None, json.loads(row.value)["op"] if row.value else None)
        for row in rows
    ]


CHANGES = [
    change("c", after=JOHN),
    change("u", before=JOHN, after=JOHN | {"email": "new"}),
    change("u", before=JOHN, after=JOHN | {"id": "2"}),
    change("d", before=JOHN),
    change("t"),
]
WITHOUT_TOMBSTONES = [(1, "c"), (1, "u"), (1, "d"), (2, "c"), (1, "d")]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [(1, "c"), (1, "u"), (1, "d"), (1, None), (2, "c"), (1, "d"), (1, None)]),
        ({"tombstones.on.delete": "false"}, WITHOUT_TOMBSTONES),
        ({"skipped_operations": "d,t"}, [(1, "c"), (1, "u"), (2, "c")]),
        ({"skipped_operations": "c,u,t"}, [(1, "d"), (1, None)]),
        ({"skippedOperations": "none", "tombstonesOnDelete": "no"}, [*WITHOUT_TOMBSTONES, (None, "t")]),
    ],
)
def test_messages_per_operation(options: dict[str, Any], expected: list[Any]) -> None:
    rows = written(CHANGES, **options)
    assert events(rows) == expected
    assert len({row.position for row in rows}) == len(rows)


MODES = {
    ("decimal_handling_mode", "string"): [
        ("c_decimal", ("string", None, "1.50000"), "-1234567890123.12345", "1.10000"),
        ("nn_money", ("string", None, "0.0000"), "5.3230", "5.3230"),
    ],
    ("decimal_handling_mode", "double"): [
        ("c_decimal38", ("double", None, None), 1e28, 0.0),
    ],
    ("time_precision_mode", "connect"): [
        ("c_date", ("int32", "Date", 17930), -719162, 17725),
        ("c_time7", ("int32", "Time", 3723123), 86399999, 37425123),
        ("c_dt2_7", ("int64", "Timestamp", 1549155723123), 9223372036854, 1531488225456),
    ],
    ("time_precision_mode", "isostring"): [
        ("c_date", ("string", "IsoDate", "2019-02-03Z"), "0001-01-01Z", "2018-07-13Z"),
        ("c_time3", ("string", "IsoTime", "01:02:03.123Z"), "23:59:59.999Z", "10:23:45.123Z"),
        ("c_time0", ("string", "IsoTime", "01:02:03Z"), "23:59:59Z", "10:23:45Z"),
        ("c_dt2_0", ("string", "IsoTimestamp", "2019-02-03T01:02:03Z"), "0001-01-01T00:00:00Z", "2018-07-13T11:23:45Z"),
        ("nn_dt2", ("string", "IsoTimestamp", "2000-01-01T00:00:00Z"), "1969-12-31T23:59:59.999Z", None),
    ],
    ("time_precision_mode", "microseconds"): [
        ("c_time7", ("int64", "MicroTime", 3723123457), 86399999999, 37425123456),
        ("c_datetime", ("int64", "MicroTimestamp", 1549155723123000), -6847804800000000, 1531484625997000),
    ],
    ("time_precision_mode", "adaptive_time_microseconds"): [
        ("c_time0", ("int64", "MicroTime", 3723000000), 86399000000, 37425000000),
        ("c_dt2_7", ("int64", "NanoTimestamp", 1549155723123457000), 9223372036854775000, 1531488225456789000),
    ],
    ("binary_handling_mode", "hex"): [
        ("c_binary", ("string", None, "01020304"), "ff000000", "00000000"),
    ],
    ("binary_handling_mode", "base64-url-safe"): [
        ("c_binary", ("string", None, "AQIDBA=="), "_wAAAA==", "AAAAAA=="),
    ],
}
"""Option to (column, (type, name, default), value of row 1, value of row 4), as recorded; null where not looked at.

A default that is text has the digits of its column's scale, as values have.
"""


@pytest.mark.parametrize("option", MODES)
def test_handling_modes_write_what_was_recorded(option: tuple[str, str]) -> None:
    names = [column for column, *_ in MODES[option]]
    snapshot = [e for e in recordings.events("3.6.1") if "all_types" in e["topic"]][:4]
    table = TableSchema(ALL_TYPES.id, tuple(c for c in ALL_TYPES.columns if c.name in ("id", *names)), ("id",))
    rows = []
    for row, _ in recordings.changes([snapshot[0], snapshot[3]]):
        after = {name: text for name, text in row["after"].items() if name in ("id", *names)}
        rows.append(row | {"after": after, "schema_id": table.fingerprint})
    one, four = written(rows, table, **{"schemas_enable": True, option[0]: option[1]})
    one, four = json.loads(one.value), json.loads(four.value)
    fields = {field["field"]: field for field in one["schema"]["fields"][1]["fields"]}
    for column, (connect, name, default), first, fourth in MODES[option]:
        field = fields[column]
        semantic = field.get("name")
        assert (field["type"], semantic and semantic.rpartition(".")[2]) == (connect, name)
        assert field.get("default") == default
        assert one["payload"]["after"][column] == first
        assert fourth is None or four["payload"]["after"][column] == fourth


NANOS = TableSchema(
    TableId("db", "dbo", "n"),
    (
        Column("id", 1, LogicalType("int32"), nullable=False),
        Column("far", 2, LogicalType("timestamp", 7), "datetime2"),
        Column("amount", 3, LogicalType("decimal", 5, 2), "decimal"),
    ),
    ("id",),
)


@pytest.mark.parametrize(
    ("column", "text", "message"),
    [
        (
            "far",
            "9999-12-31 23:59:59.9999999",
            r"table db.dbo.n, column 'far', key \[\"1\"\], can't be written as io.debezium.time.NanoTimestamp. Write",
        ),
        ("id", "12x", "table db.dbo.n, column 'id', can't be written as int32: it is not of the type int32"),
        ("id", "3000000000", "column 'id', can't be written as int32"),
        ("amount", "1.2", "column 'amount', can't be written as org.apache.kafka.connect.data.Decimal"),
    ],
)
def test_a_value_that_does_not_fit_stops_the_query_without_showing_it(column: str, text: str, message: str) -> None:
    mode = "event_converting_failure_handling_mode"
    row = change("c", NANOS, after={"id": "1", "far": None, "amount": None} | {column: text}, key={"id": "1"})
    with pytest.raises(Exception, match=message) as caught:
        written([row], NANOS, **{mode: "fail"})
    assert text not in str(caught.value)
    if column == "far":
        (message_row,) = written([row], NANOS)
        assert json.loads(message_row.value)["after"][column] is None
    else:
        # What is not of its column's type is never left out.
        with pytest.raises(Exception, match=message):
            written([row], NANOS, **{mode: "warn"})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "__debezium_unavailable_value"),
        ({"unavailable.value.placeholder": "gone"}, "gone"),
        ({"shape": "1.7"}, None),
    ],
)
def test_an_absent_column_is_told_from_null_where_the_shape_can(options: dict[str, Any], expected: str | None) -> None:
    after = {name: text for name, text in JOHN.items() if name != "email"} | {"last_name": None}
    (row,) = written([change("c", after=after)], **options)
    assert json.loads(row.value)["after"] == {"id": 1, "first_name": "John", "last_name": None, "email": expected}


@pytest.mark.parametrize(
    ("kind", "default", "mode"),
    [("decimal(9,3)", "1.500", "string"), ("decimal(9,3)", "1.500", "precise"), ("float64", "1e+22", "precise")],
)
def test_a_default_in_place_of_null_is_written_as_its_schema_writes_it(kind: str, default: str, mode: str) -> None:
    amount = Column("amount", 2, LogicalType.parse(kind), "x", default=default)
    table = TableSchema(CUSTOMERS.id, (CUSTOMERS.columns[0], amount), ("id",))
    options = {"null_as_default": True, "schemas_enable": True, "decimal_handling_mode": mode}
    (row,) = written([change("c", table, after={"id": "1", "amount": None})], table, **options)
    event = json.loads(row.value)
    assert event["payload"]["after"]["amount"] == event["schema"]["fields"][1]["fields"][1]["default"]


def test_an_update_that_says_no_key_has_that_of_its_new_image() -> None:
    rows = [
        change("u", before=JOHN, after=JOHN | {"email": "new"}) | {"key": None},
        change("u", before=JOHN, after=JOHN | {"id": "2"}) | {"key": None},
    ]
    assert events(written(rows)) == [(1, "u"), (1, "d"), (1, None), (2, "c")]


def test_images_in_another_order_are_written_in_the_table_s_order() -> None:
    (row,) = written([change("c", after=dict(reversed(JOHN.items())))])
    assert list(json.loads(row.value)["after"]) == list(JOHN)


@pytest.mark.parametrize(
    ("shape", "topic", "name"),
    [
        ("1.7", "my-server.dbo.odd__name", "my_server.dbo.odd__name.Value"),
        ("3", "my-server.d_b.dbo.odd__name", "my-server.d_b.dbo.odd__name.Value"),
    ],
)
def test_names_are_made_fit_for_kafka_and_avro(shape: str, topic: str, name: str) -> None:
    odd = TableSchema(TableId("d b", "dbo", "odd ñname"), CUSTOMERS.columns, ("id",))
    (row,) = written([change("c", odd, after=JOHN)], odd, shape=shape, topic_prefix="my-server", schemas_enable=True)
    assert row.topic == topic
    assert json.loads(row.value)["schema"]["fields"][0]["name"] == name


def test_rows_of_an_unknown_structure_are_refused_by_name() -> None:
    with pytest.raises(Exception, match=r"table testDB\.dbo\.customers follow a schema that no schema row .*feed"):
        written([change("c", after=JOHN) | {"schema_id": "feed"}])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic_prefix": None}, "'topic_prefix' of format 'debezium_json' is missing"),
        ({"shape": "2"}, "'shape' can't be '2'"),
        ({"shape": "1.7", "time_precision_mode": "isostring"}, "can't be 'isostring' in shape 1.7"),
        ({"skipped_operations": "x"}, "it must be none, or a list of c, u, d and t"),
        ({"schema": "{}"}, "its JSON lacks 'tableId'"),
        ({"tombstone_on_delete": "true"}, "Did you mean 'tombstones_on_delete'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        written([], **options)


def test_streaming_encode_needs_the_schema(spark: Any, tmp_path: Any) -> None:
    frame = recordings.rows(spark, [change("c", after=JOHN)])
    frame.write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "rows"))
    with pytest.raises(OptionError, match="needs the option 'schema' to encode a streaming DataFrame"):
        encode(stream, format="debezium_json", topic_prefix="server1")
    messages = encode(stream, format="debezium_json", topic_prefix="server1", schema=CUSTOMERS.to_text())
    query = messages.writeStream.format("memory").queryName("streamed").trigger(availableNow=True).start()
    query.awaitTermination()
    assert spark.table("streamed").count() == 1


@pytest.mark.parametrize(
    ("options", "columns", "named"),
    [
        ({}, [("id", "uint64"), ("n", "int64")], "'t.id'"),
        ({}, [("id", "int64")], ""),
        ({"bigint.unsigned.handling.mode": "long"}, [("id", "uint64")], ""),
        ({}, [(f"c{n}", "uint64") for n in range(7)], "and 2 more"),
    ],
)
def test_unsigned_numbers_that_are_written_as_bytes_are_named(
    options: dict[str, str], columns: list[tuple[str, str]], named: str
) -> None:
    found = tuple(Column(name, n, LogicalType(kind)) for n, (name, kind) in enumerate(columns, 1))
    format = format_named("debezium_json", {"topic.prefix": "s", **options})
    remarks = format.remarks([TableSchema(TableId("", "", "t"), found)])
    assert [named in remark for remark in remarks] == ([True] if named else [])
