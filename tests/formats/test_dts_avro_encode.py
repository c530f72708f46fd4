"""DTS Avro, encoding: what decodes from it is what was encoded, for maps and structs, and the records' own form."""

from __future__ import annotations

import datetime as dt
import json
import random
import re
from decimal import Decimal
from typing import Any

import pytest
from codec_rows import change_batch, sent
from column_values import EVERY_TYPE, changes_of, comparable, random_changes
from dts_records import date_time, decoded, integer, read, record, rows_without_spark
from pyspark.sql import SparkSession
from samples import samples_of

import headrace
from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.row import spark_schema
from headrace.errors import FormatError, OptionError

_NUMBERS = ("c float32's", "c float64's")


def meaning(image: dict[str, str | None] | None) -> dict[str, Any] | None:
    """An image by what its texts mean: zeros at the end of a fraction, and the sign before a zone, are lost."""
    if image is None:
        return None
    found: dict[str, Any] = {}
    for name, text in image.items():
        value: Any = text
        if text is not None and name in _NUMBERS:
            value = repr(float(text))
        elif text is not None and re.match(r"c (time|timestamp|instant|zoned)", name):
            value = re.sub(r"(\.\d*?)0+(?=Z|[+-]|$)", r"\1", text.replace("T", " "))
            value = re.sub(r"\.(?=Z|[+-]|$)", "", value)
        found[name] = value
    return found


@pytest.mark.parametrize("connector", ["mysql", "postgresql", "sqlserver"])
def test_decode_of_encode_is_identity(connector: str, rng: random.Random) -> None:
    data = random_changes(rng, ops="rcud", absent_before=True)
    for row in data:
        row["source"] = {"connector": connector, "id": row["source"]["id"]}
    rows = rows_without_spark(records_of([announced(EVERY_TYPE), *data]))
    got = sorted((row for row in rows if not row.table_schema), key=lambda row: int(row.source["id"]))
    assert [row.error for row in got if row.op == "error"] == []
    assert len(got) == len(data)
    names = ("op", "key", "key_text", "snapshot")
    for row, want in zip(got, data, strict=True):
        have = row.asDict(recursive=True)
        assert comparable(have, names) == comparable(want, names)
        assert (meaning(have["before"]), meaning(have["after"])) == (meaning(want["before"]), meaning(want["after"]))
        assert have["event_time"].timestamp() == int(want["event_time"].timestamp())
        assert have["table"] == {"database": "db", "schema": None, "name": "every `type`"}
        assert (row.source["connector"], row.source["id"]) == (connector, want["source"]["id"])
    structures = [TableSchema.from_text(row.table_schema) for row in rows if row.table_schema]
    assert {s.key for s in structures} == {("id",)}
    kinds = {c.logical.kind for s in structures for c in s.columns if c.name == "c bytes's"}
    # A column of bytes is known by its values.
    assert kinds <= {"bytes", "string"}


def test_struct_images_are_encoded_as_maps_are(spark: SparkSession) -> None:
    data, frame = changes_of(spark, random.Random(3), ops="rcud", absent_before=True)
    typed = headrace.typed(frame, EVERY_TYPE)
    for options in ({"format": "dts_avro", "schema": EVERY_TYPE, "message_key": "primary_key"},):
        maps = {row.position: row for row in headrace.encode(frame.where("op <> 'schema'"), **options).collect()}
        structs = {row.position: row for row in headrace.encode(typed, **options).collect()}
        assert set(structs) == set(maps) and len(structs) == len(data)
        for position, row in structs.items():
            ours, theirs = read(bytes(row.value)), read(bytes(maps[position].value))
            for name in ("beforeImages", "afterImages"):
                pairs = zip(EVERY_TYPE.columns, ours.pop(name) or (), theirs.pop(name) or (), strict=False)
                for column, one, other in pairs:
                    assert _plain(one, column.logical) == _plain(other, column.logical), column.name
            assert ours == theirs
            assert (row.key, row.topic, row.partition) == (maps[position].key, "dts", None)


def _plain(value: Any, logical: LogicalType) -> Any:
    """A value without what a typed column does not keep: its offset, and a fraction's zeros."""
    if not isinstance(value, tuple):
        return value
    name, data = value
    kind = name.rsplit(".", 1)[-1]
    if kind == "DateTime":
        return (kind, {part: number or 0 for part, number in data.items()})
    if kind == "TimestampWithTimeZone":
        parts = data["value"]
        offset = data["timezone"].replace("Z", "+00:00")
        clock = dt.datetime(*(parts[p] for p in ("year", "month", "day", "hour", "minute", "second")), tzinfo=dt.UTC)
        shift = dt.timedelta(hours=int(offset[1:3]), minutes=int(offset[4:6])) * (-1 if offset[0] == "-" else 1)
        return (kind, clock - shift, parts["millis"] or 0)
    if kind == "Decimal":
        return (kind, Decimal(data["value"]) if data["value"] not in ("NaN",) else "NaN", data["precision"])
    if kind == "Float":
        return (kind, repr(data["value"]))
    return value


def messages_of(rows: list[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
    """The messages of change rows, whose structures are among them."""
    structures = [TableSchema.from_text(row["table_schema"]) for row in rows if row.get("table_schema")]
    return sent("dts_avro", change_batch(rows), structures, **options)


def records_of(rows: list[dict[str, Any]], **options: Any) -> list[bytes]:
    """The same, only the records."""
    return [message["value"] for message in messages_of(rows, **options)]


def announced(schema: TableSchema) -> dict[str, Any]:
    return row_of("schema", schema_id=schema.fingerprint, table_schema=schema.to_text())


def row_of(op: str, **columns: Any) -> dict[str, Any]:
    return {"op": op, "position": "00000000000000000009/1/", **columns}


def test_control_records_and_facts() -> None:
    table = {"database": "d.b", "schema": "s", "name": "t"}
    at = dt.datetime(2024, 2, 29, 12, 0, 0, 999_999, dt.UTC)
    facts = {"connector": "mariadb", "version": "11", "server_id": "5", "sourcePosition": "p", "gone": None}
    rows = [
        row_of("begin", transaction={"id": "77"}, source={"connector": "mysql"}),
        row_of("end", transaction={"id": "77"}, source={"connector": "mysql"}),
        row_of("heartbeat", event_time=at, source={"operation": "CHECKPOINT"}),
        row_of("t", table=table, source=facts, capture_time=at),
        row_of("t", table={"database": None, "schema": None, "name": "alone"}),
        row_of("schema", table={"database": "d"}, source={"ddl": "create table x", "connector": "mongodb"}),
        row_of("schema", table=table, schema_id="x", table_schema=EVERY_TYPE.to_text()),
        row_of("error", error="why"),
        row_of("tombstone"),
        row_of("message"),
    ]
    messages = messages_of(rows, topic="${database}.x")
    records = [read(message["value"]) for message in messages]
    assert [(r["operation"], r["objectName"], r["sourceTxid"], r["afterImages"]) for r in records] == [
        ("BEGIN", None, "77", None),
        ("COMMIT", None, "77", None),
        ("CHECKPOINT", None, "0", None),
        ("DDL", r"d\u002Eb.s.t", "0", "TRUNCATE TABLE `t`"),
        ("DDL", ".alone", "0", 'TRUNCATE TABLE "alone"'),
        ("COMMAND", "d", "0", "create table x"),
    ]
    assert records[3]["tags"] == {"server_id": "5", "connector": "mariadb"}
    assert records[3]["source"] == {"sourceType": "MySQL", "version": "11"}
    assert (records[3]["sourcePosition"], records[3]["bornTimestamp"]) == ("p", 1709208000999)
    assert (records[2]["sourceTimestamp"], records[0]["sourceTimestamp"], records[0]["id"]) == (1709208000, 0, 9)
    first = messages[0]
    assert (first["topic"], messages[3]["topic"], first["partition"], first["key"]) == (".x", "d.b.x", 0, None)
    back = decoded([message["value"] for message in messages])
    got = [(row.op, *(row.table or [None] * 3), row.source.get("connector")) for row in back]
    assert got == [
        ("begin", None, None, None, "mysql"),
        ("end", None, None, None, "mysql"),
        ("heartbeat", None, None, None, ""),
        ("t", "d.b", "s", "t", "mariadb"),
        ("t", None, None, "alone", ""),
        ("schema", "d", None, None, "mongodb"),
    ]


def test_samples_come_back() -> None:
    values = [s.message[5] for s in samples_of("dts_avro") if s.data["expect"]]
    rows = [row.asDict(recursive=True) for row in rows_without_spark(values)]
    written = records_of(rows)
    by_id = {read(value)["id"]: read(value) for value in written}
    assert len(written) == len(values)
    again = decoded(written)
    first = decoded(values)
    for old, new in zip(first, again, strict=True):
        for name in ("op", "table", "key", "key_text", "event_time", "snapshot", "transaction", "source"):
            assert getattr(old, name) == getattr(new, name), name
        assert (meaning(old.before), meaning(old.after)) == (meaning(new.before), meaning(new.after))
    for value in values:
        old_record = read(value)
        new_record = by_id[old_record["id"]]
        same = ("id", "sourceTimestamp", "sourcePosition", "source", "operation", "objectName", "tags", "bornTimestamp")
        assert {name: old_record[name] for name in same} == {name: new_record[name] for name in same}
        assert list(old_record["tags"]) == list(new_record["tags"])
    deletes = decoded(records_of([row for row in rows if row["op"] in ("d", "schema")], born_timestamp=False))
    assert {row.op for row in deletes} == {"d", "schema"}
    assert not any("bornTimestamp" in row.source for row in deletes)


def test_times_that_a_record_has_no_place_for() -> None:
    columns = {
        "t": ("time(9)", ["-838:59:59.5", "10:00:00.123456789", "838:59:59"]),
        "l": ("timestamp(9)", ["2024-01-01 00:00:00.123456789", "0000-00-00 00:00:00", "2024-01-01 00:00:00.1"]),
        "d": ("date", ["0000-00-00", "2024-02-30", "infinity"]),
        "z": ("zoned_timestamp(9)", ["2024-01-01 00:00:00+08:00", "2024-01-01 00:00:00.123456789Z", "later"]),
        "i": ("instant(9)", ["2024-01-01T00:00:00.1Z", "2024-01-01T00:00:00.123456789Z", "infinity"]),
        "n": ("int32", ["7", "seven", "7.0"]),
        "e": ("decimal(9,2)", ["1.50", "NaN", "1,5"]),
        "f": ("float64", ["0.1", "1e999", "x"]),
        "b": ("bytes", ["AP8=", "no base 64!", ""]),
    }
    schema = TableSchema(
        TableId("d", "", "t"),
        tuple(Column(name, n, LogicalType.parse(kind)) for n, (name, (kind, _)) in enumerate(columns.items(), 1)),
    )
    images = [{name: texts[n] for name, (_, texts) in columns.items()} for n in range(3)]
    table = {"database": "d", "schema": None, "name": "t"}
    rows = [
        row_of(
            "c", table=table, after=image, source={"connector": connector, "id": str(n)}, schema_id=schema.fingerprint
        )
        for connector in ("mysql", "oracle")
        for n, image in enumerate(images)
    ]
    back = decoded(records_of([announced(schema), *rows]))
    assert len(back) == len(rows)
    for row in back:
        want = images[int(row.source["id"])]
        got = {name: re.sub(r"0+(?=Z|$)", "", text) if "." in text else text for name, text in row.after.items()}
        have = {name: re.sub(r"0+(?=Z|$)", "", text) if "." in text else text for name, text in want.items()}
        assert got == have


def test_years_are_years() -> None:
    rows = rows_without_spark([record("INSERT", None, [date_time(1999), integer(3)], fields=[("y", 13), ("n", 3)])])
    (value,) = records_of([row.asDict(recursive=True) for row in rows])
    year, number = read(value)["afterImages"]
    assert (year[1]["year"], year[1]["month"], number[1]["value"]) == (1999, None, "3")
    assert [f["dataTypeNumber"] for f in read(value)["fields"]] == [13, 3]


def test_a_stream_needs_a_schema(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load().selectExpr(
        *(f"cast(null as {f.dataType.simpleString()}) as {f.name}" for f in spark_schema())
    )  # fmt: skip
    with pytest.raises(OptionError, match="needs the option 'schema' to encode a streaming DataFrame"):
        headrace.encode(stream, format="dts_avro")


@pytest.mark.parametrize("id", ["unknown", None])
@pytest.mark.parametrize("op", ["c", "r", "d"])
def test_a_row_needs_a_known_structure(op: str, id: str | None) -> None:
    with pytest.raises(FormatError, match="follow a schema that no schema row describes"):
        records_of([row_of("begin"), row_of(op, after={"a": "1"}, before={"a": "1"}, schema_id=id)])


def test_no_record_is_as_long_as_a_filler() -> None:
    written = records_of([{"op": "begin", "position": f"{n:020}//", "transaction": {"id": "x" * n}} for n in range(30)])
    lengths = {len(value) for value in written}
    assert 48 not in lengths and {47, 49} <= lengths
    assert [(row.op, row.transaction and row.transaction.id) for row in decoded(written)] == [
        ("begin", "x" * n or None) for n in range(30)
    ]


def test_tags_that_a_record_had_come_back_and_others_are_the_sources_facts() -> None:
    tags = {"a": "b", "operation": "q", "connector": "mysql"}
    rows = [
        row_of("begin", source={"connector": "mysql", "k": "v", "gone": None}),
        row_of("begin", source={"connector": "my own", "tags": "no JSON", "k": "v"}),
        row_of("begin", source={"connector": "mysql", "tags": json.dumps(tags), "k": "v"}),
        row_of("begin", source={"connector": "my own", "tags": '{"n":1,"none":null,"connector":"q"}'}),
        row_of("c", key={'a"': "1"}, after={'a"': "1"}, schema_id=EVERY_TYPE.fingerprint),
        row_of("c", key={"a": "1"}, after={}, source={"pk_uk_info": "own"}, schema_id=EVERY_TYPE.fingerprint),
        row_of("c", after={}, schema_id=EVERY_TYPE.fingerprint),
    ]
    assert [read(value)["tags"] for value in records_of([announced(EVERY_TYPE), *rows])] == [
        {"k": "v"},
        {"k": "v", "connector": "my own"},
        tags,
        {"n": "1", "connector": "q"},
        {"pk_uk_info": '{"PRIMARY":["a\\""]}'},
        {"pk_uk_info": "own"},
        {"pk_uk_info": '{"PRIMARY":["id"]}'},
    ]
