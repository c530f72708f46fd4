"""Messages of one known table: what the fast reading gives, and that all it is not sure of is read rightly too."""

from __future__ import annotations

import base64
import datetime as dt
import json
import random
from decimal import Decimal
from typing import Any

import debezium_recordings as recordings
import pytest
from codec_rows import change_rows
from tests.support.debezium_cells import DECIMAL, TIME, WORD, message, named, unscaled
from tests.support.debezium_round_trips import NAMES, TABLE, as_kafka, comparable, random_change

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.texts import text_image
from headrace.formats.codec import KAFKA_COLUMNS
from headrace.formats.convert import decode
from headrace.spark.local_rows import local_rows

DDL = (
    "id int, name string, amount decimal(10,2), big decimal(38,4), day date, made timestamp_ntz, seen timestamp, "
    "price double, data binary, ok boolean"
)
MADE = dt.datetime(2023, 11, 14, 22, 13, 20, 123456)
SEEN = MADE.replace(microsecond=500_000, tzinfo=dt.UTC)
ROW: dict[str, Any] = {
    "id": 1, "name": "né\"w", "amount": unscaled(-1250), "big": unscaled(10**30), "day": -1,
    "made": 1_700_000_000_123_456, "seen": "2023-11-14T22:13:20.5Z", "price": 0.1, "data": "AAH/", "ok": True,
}  # fmt: skip
TYPED: dict[str, Any] = {
    "id": 1, "name": "né\"w", "amount": Decimal("-12.50"), "big": Decimal(10**30).scaleb(-4),
    "day": dt.date(1969, 12, 31), "made": MADE, "seen": SEEN, "price": 0.1, "ok": True,
    "data": bytearray(b"\x00\x01\xff"),
}  # fmt: skip
SOURCE = {
    "version": "3", "connector": "sqlserver", "name": "s", "ts_ms": 1_700_000_000_123, "snapshot": "false", "db": "d",
    "sequence": None, "schema": "dbo", "table": "t", "change_lsn": "a", "commit_lsn": "b", "event_serial_no": 2,
}  # fmt: skip


def event(op: str = "c", before: Any = None, after: Any = None, **source: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "source": SOURCE | source, "op": op, "ts_ms": 5, "transaction": None}


def dumped(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def decoded(values: list[Any], message_keys: list[Any] | None = None, **options: Any) -> list[dict[str, Any]]:
    lines = zip(message_keys or [None] * len(values), values, strict=True)
    rows = [("s.d.dbo.t", 0, n, None, dumped(k), dumped(v), None) for n, (k, v) in enumerate(lines)]
    found = change_rows("debezium_json", rows, **{"schema": DDL} | options)
    assert [row["message"]["offset"] for row in found] == list(range(len(values)))
    return found


def instant(value: dt.datetime | None) -> dt.datetime | None:
    return value and value.astimezone(dt.UTC)


def image(row: dict[str, Any] | None) -> dict[str, Any] | None:
    return row and {**row, "seen": instant(row["seen"])}


def varied(**values: Any) -> dict[str, Any]:
    return ROW | values


SAME = [
    ROW,
    varied(amount=-12.5),
    varied(amount="-12.50"),
    varied(day="1969-12-31", made="2023-11-14T22:13:20.123456"),
    varied(made="2023-11-14 22:13:20.123456", seen="2023-11-15T07:13:20.5+09:00"),
    varied(seen=1_700_000_000_500_000),
    varied(big="100000000000000000000000000.0000"),
]


def test_one_table_comes_in_spark_types_however_it_is_written() -> None:
    spaced = json.dumps(event(after=ROW)).encode()
    values = [event(after=row) for row in SAME] + [spaced, event("u", ROW, ROW), event("d", ROW)]
    rows = decoded(values, [{"id": 1}] * len(values))
    for number, row in enumerate(rows):
        assert row["error"] is None, (number, row["error"])
        want = (TYPED if number >= len(SAME) + 1 else None, None if number == len(values) - 1 else TYPED)
        assert (image(row["before"]), image(row["after"])) == want, number
        assert (row["before_absent"], row["after_absent"]) == (None, None)
        assert row["table"] == {"database": "d", "schema": "dbo", "name": "t"}
        assert (row["key"], row["key_text"]) == ({"id": "1"}, '["1"]')
        assert row["source"] == {
            "version": "3", "connector": "sqlserver", "name": "s", "change_lsn": "a", "commit_lsn": "b",
            "event_serial_no": "2",
        }  # fmt: skip
        assert row["event_time"].timestamp() == 1_700_000_000.123


def test_what_an_image_does_not_carry_is_named() -> None:
    part = {"id": 1, "name": None}
    held = varied(name=WORD, data=base64.b64encode(WORD.encode()).decode())
    rows = decoded([event(after=part), event("u", part, held), event(after=varied(name=None))])
    assert (rows[0]["after"]["id"], rows[0]["after"]["name"]) == (1, None)
    missing = ["amount", "big", "day", "made", "seen", "price", "data", "ok"]
    assert [row["after_absent"] for row in rows] == [missing, ["name", "data"], None]
    assert [row["before_absent"] for row in rows] == [None, missing, None]


def test_numbers_in_texts_and_digits_in_base64_keep_what_they_are() -> None:
    digits = next(text for n in range(10**6) if (text := unscaled(0xD76DF8 - 2**24 + n)).isdigit())
    texts: list[Any] = [1.50, {"a": 1.10}, "1.50", "12", 12, "x�y"]
    values = [dumped(event(after=varied(name="@"))).replace(b'"@"', json.dumps(t).encode()) for t in texts]  # type: ignore[union-attr]
    values[0] = values[0].replace(b'"name":1.5', b'"name":1.50')
    values[1] = values[1].replace(b'{"a": 1.1}', b'{"a":1.10}')
    rows = decoded([*values, event(after=varied(amount=digits)), event(after=varied(amount=1250))])
    assert [row["after"]["name"] for row in rows[:6]] == ["1.50", '{"a":1.10}', "1.50", "12", "12", "x�y"]
    unscaled_digits = int.from_bytes(base64.b64decode(digits), "big", signed=True)
    assert [row["after"]["amount"] for row in rows[6:]] == [Decimal(unscaled_digits).scaleb(-2), Decimal("1250.00")]


def test_the_schema_in_a_message_says_what_its_numbers_count() -> None:
    ddl = "id int, c timestamp_ntz"
    fields = ["Timestamp", "MicroTimestamp", "NanoTimestamp"]
    counts = [1_700_000_000_123, 1_700_000_000_123_000, 1_700_000_000_123_000_000]
    values = [message(named("int64", f"{TIME}{f}"), c) for f, c in zip(fields, counts, strict=True)]
    values.append(message(named("string", f"{TIME}IsoTimestamp"), "2023-11-14T22:13:20.123Z"))
    bare = event(after={"id": 1, "c": 1_700_000_000_123})
    rows = decoded([*values, json.dumps(values[0]).encode()], schema=ddl)
    assert [row["after"]["c"] for row in rows] == [MADE.replace(microsecond=123_000)] * 5
    (row,) = decoded([bare], schema=ddl, time_precision_mode="connect")
    assert row["after"]["c"] == MADE.replace(microsecond=123_000)
    scaled = message(named("bytes", DECIMAL, scale="3"), unscaled(1500))
    (row,) = decoded([scaled], schema="id int, c decimal(10,2)")
    assert row["after"]["c"] == Decimal("1.50")


def test_other_messages_of_the_topic() -> None:
    values = [
        None,
        {"ts_ms": 5},
        event("t"),
        {"status": "BEGIN", "id": "1", "ts_ms": 5},
        event("c", None, varied(id="x")),
        dumped(event(after=ROW))[:-1],  # type: ignore[index]
        dumped(event(after=ROW)) + b"{}",  # type: ignore[operator]
        dumped(event(after=ROW)).replace(b"n\xc3\xa9", b"n\xc3"),  # type: ignore[union-attr]
        event(after=varied(amount="12.505")),
        event(after=varied(seen="infinity")),
        event("x", None, ROW),
    ]
    rows = decoded(values, [{"id": 1}, {"serverName": "s"}] + [None] * (len(values) - 2))
    assert [row["op"] for row in rows[:4]] == ["tombstone", "heartbeat", "t", "begin"]
    assert rows[0]["key"] == {"id": "1"}
    assert [row["error"] for row in rows[4:]] == [
        "Column 'id' can't hold x exactly: it is int.",
        "The value is not JSON.",
        "The value is not JSON.",
        "The value is not UTF-8 text.",
        "Column 'amount' can't hold 12.505 exactly: it is decimal(10,2).",
        "Column 'seen' has the value infinity, for which Spark's timestamp has no place. Declare the column as string "
        "in the option 'schema', which keeps its text. Or set the format's option 'unrepresentable' to null, which has "
        "NULL there.",
        "The operation is not one of r, c, u, d, t, m.",
    ]
    assert all(row["message"]["value"] is not None for row in rows[4:])


def test_keys_are_those_of_the_options_the_structure_or_the_message() -> None:
    assert decoded([event(after=ROW)])[0]["key"] is None
    assert decoded([event(after=ROW)], keys="day,id")[0]["key_text"] == '["1969-12-31","1"]'
    assert decoded([event(after=ROW)], [{"day": -1}])[0]["key"] == {"day": "1969-12-31"}


@pytest.mark.parametrize("schemas", [False, True])
def test_encoded_rows_come_back_as_structs(spark: Any, schemas: bool) -> None:
    rng = random.Random(11)
    data = [random_change(rng, n) for n in range(100)]
    table = TableSchema(TableId("db", "dbo", "every `type`"), TABLE.columns, ("id",))
    messages = recordings.encoded(data, [table], topic_prefix="server1", schemas_enable=schemas)
    kinds = ", ".join(f"{name} {kind}" for name, kind in KAFKA_COLUMNS.items())
    sent = local_rows(spark, as_kafka(messages), kinds)
    rows = decode(sent, format="debezium_json", schema=table)
    texts = rows.where("op not in ('tombstone')").selectExpr(
        *(
            f"{text_image(n, table, f'{n}_absent')} as {n}" if n in ("before", "after") else f"`{n}`"
            for n in rows.columns
        )
    )
    found = recordings.collected(texts)
    assert [row["error"] for row in found if row["op"] == "error"] == []
    for ours, original in zip(found, data, strict=True):
        got, want = comparable(ours), comparable(original)
        for row in (got, want):
            for part in ("before", "after"):
                row[part] = row[part] and {k: row[part].get(k, "absent") for k in NAMES}
        assert recordings.differences(got, want) == []


def test_times_and_texts_of_a_structure() -> None:
    kinds = {
        "a": "time(6)",
        "b": "time(3)",
        "c": "timestamp(7)",
        "d": "timestamp(3)",
        "e": "uint64",
        "f": "decimal(65,30)",
    }
    columns = tuple(Column(name, n, LogicalType.parse(kind)) for n, (name, kind) in enumerate(kinds.items(), 1))
    table = TableSchema(TableId("d", "", "t"), columns)
    after = {"a": 3020399000000, "b": -1, "c": 1, "d": -1, "e": unscaled(2**64 - 1), "f": unscaled(-(10**64))}
    (row,) = decoded([event(after=after)], schema=table)
    assert row["error"] is None
    assert row["after"] == {
        "a": "838:59:59.000000", "b": "-00:00:00.001", "c": "1970-01-01 00:00:00.0000000",
        "d": dt.datetime(1969, 12, 31, 23, 59, 59, 999_000), "e": Decimal(2**64 - 1),
        "f": "-" + "1" + "0" * 34 + "." + "0" * 30,
    }  # fmt: skip
