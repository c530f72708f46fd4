"""Maxwell's JSON: what each kind of message means, what is refused, and that encoding and decoding are each other's
inverse."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from codec_rows import as_kafka, change_batch, changes_of_messages, rows_of, sent
from column_values import COMPARED, EVERY_TYPE, comparable, random_changes
from pyspark.sql import SparkSession
from samples import samples_of

import headrace
from headrace.errors import OptionError
from headrace.formats.codec import KAFKA_COLUMNS
from headrace.spark.local_rows import local_rows

DDL = ", ".join(f"{name} {kind}" for name, kind in KAFKA_COLUMNS.items())
SCHEMA = "id bigint, name string, amount decimal(9,2)"
KEY = '{"database":"d","table":"t","pk.id":7,"pk.n":1.50}'


def kafka(messages: list[tuple[str | None, Any]]) -> list[tuple[Any, ...]]:
    def raw(given: Any) -> bytes | None:
        if given is None or isinstance(given, bytes):
            return given
        return (given if isinstance(given, str) else json.dumps(given)).encode()

    return [("t", 0, n, None, raw(key), raw(value), None) for n, (key, value) in enumerate(messages)]


def decoded(messages: list[tuple[str | None, Any]], **options: Any) -> list[Any]:
    return [row for row in rows_of("maxwell_json", kafka(messages), **options) if row.op is not None]


SAMPLES = [(None, sample.message[5].decode()) for sample in samples_of("maxwell_json") if sample.message[5]]


def message(kind: str, **fields: Any) -> dict[str, Any]:
    return {"database": "d", "table": "t", "type": kind, "ts": 1477053217, **fields}


HALF_A_PAIR = "The value has one half of a surrogate pair, which is not a character. Let its writer drop it."
REFUSED = [
    (b"\xff{}", "The value is not UTF-8."),
    (b"", "The value is not a JSON object of Maxwell's form."),
    ("[]", "The value is not a JSON object of Maxwell's form."),
    ('{"type":"insert","data":[]}', "The value is not a JSON object of Maxwell's form."),
    ('{"type":"insert","data":{"id":1}}]', "Unexpected data after the JSON object."),
    (
        '{"type":"insert","data":{"id":1}} {"type":"insert"}',
        "Unexpected data after the JSON object.",
    ),
    ('{"type":"insert","data":{"id":"\\ud800"}}', HALF_A_PAIR),
    ('{"data":{"id":1}}', "The message has no type."),
    (message("replace", data={"id": 1}), "Unknown type replace."),
    (message("insert"), "The message has no data."),
]


@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_what_cannot_be_read_is_an_error_row_that_keeps_the_message(schema: str | None) -> None:
    rows = decoded([("k", value) for value, _ in REFUSED], schema=schema)
    assert [(row.op, row.error) for row in rows] == [("error", why) for _, why in REFUSED]
    assert all(bytes(row.message.key) == b"k" and row.message.value is not None for row in rows)


def test_kinds_of_messages() -> None:
    rows = decoded(
        [
            (None, message("bootstrap-start", data={})),
            (None, message("insert", data={"id": 1}, xid=5, xoffset=2, position="m.1:4", server_id=9)),
            (None, message("insert", data={"id": 1}, xid=5, commit=True, gtid="g:1")),
            (KEY, message("delete", data={"id": 7, "n": "x"})),
            (KEY, None),
            (None, None),
            (None, message("update", data={"id": 1, "a": None}, primary_key_columns=["id"])),
            (None, message("table-alter", sql="alter table t add b int", ts=1477053217123)),
            (
                None,
                '{"type":"insert","table":"t","data":{"id":1,"d":12.50,"j":{"a":[1.0,"x"]},"s":["p","q"]},"ts":"x"}',
            ),
        ],
    )
    insert, last, delete, tombstone, unknown, update, alter, exact = rows
    assert (insert.transaction.id, insert.transaction.total_order) == ("5", 3)
    assert insert.source == {"connector": "mysql", "position": "m.1:4", "server_id": "9"}
    assert (last.transaction.total_order, last.source["commit"], last.source["gtid"]) == (None, "true", "g:1")
    assert (delete.key, delete.before, delete.after) == ({"id": "7", "n": "x"}, {"id": "7", "n": "x"}, None)
    assert (tombstone.op, tombstone.key, tombstone.table.name) == ("tombstone", {"id": "7", "n": "1.50"}, "t")
    assert (unknown.op, unknown.key) == ("tombstone", None)
    assert (update.before, update.changed, update.key, update.key_text) == (None, None, {"id": "1"}, '["1"]')
    assert (alter.op, alter.source["ddl"], alter.source["type"]) == ("schema", "alter table t add b int", "table-alter")
    assert alter.event_time.timestamp() == 1477053217.123
    assert exact.after == {"id": "1", "d": "12.50", "j": '{"a":[1.0,"x"]}', "s": '["p","q"]'}
    assert (exact.event_time, exact.source["ts"], exact.transaction) == (None, "x", None)


def test_of_a_name_that_an_object_repeats_the_last_counts() -> None:
    key = '{"database":"d","table":"t","pk.id":1,"pk.id":2}'
    value = '{"data":{"id":1,"id":2},"old":{"id":0,"id":9,"x":1,"x":3},"type":"update"}'
    update, tombstone = decoded([(key, value), (key, None)])
    assert (update.before, update.after, update.key) == ({"id": "9", "x": "3"}, {"id": "2"}, {"id": "2"})
    assert tombstone.key == {"id": "2"}


STRUCTS = [
    message("insert", data={"id": 1, "name": None, "amount": 1.5}),
    message("insert", data={"id": 1}),
    message("update", data={"id": 1, "name": None, "amount": 1}, old={"name": None}),
    message("update", data={"id": 1, "name": None, "amount": 1}, old={"amount": 2.25}),
    message("update", data={"id": 1, "amount": 1}, old={"name": "x"}),
    message("delete", data={"id": 1, "name": "x", "amount": "1.50"}),
]


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_struct_images_are_the_maps_typed(separators: tuple[str, str]) -> None:
    values = [(None, json.dumps(value, separators=separators)) for value in STRUCTS]
    maps = decoded(values, keys="id")
    structs = decoded(values, schema=SCHEMA, keys="id")
    names = ["id", "name", "amount"]
    for row, struct in zip(maps, structs, strict=True):
        assert (row.op, row.changed, row.key, row.source) == (struct.op, struct.changed, struct.key, struct.source)
        for image in ("before", "after"):
            have, want = getattr(struct, image), getattr(row, image)
            assert (have is None) == (want is None)
            if want is not None:
                assert (getattr(struct, f"{image}_absent") or []) == [name for name in names if name not in want]
                assert [None if v is None else float(v) for v in (have.id, have.amount)] == [
                    None if want.get(n) is None else float(want[n]) for n in ("id", "amount")
                ]
                assert have.name == want.get("name")
    misfit = decoded([(None, message("insert", data={"id": 1, "amount": 1.555}))], schema=SCHEMA)
    assert misfit[0].error == "Column 'amount' can't hold 1.555 exactly: it is decimal(9,2)."


def test_decode_of_encode_is_identity(rng: random.Random) -> None:
    transaction = {"id": "77", "total_order": 5, "data_collection_order": None}
    data = random_changes(rng, ops="rcud", absent_before=False, transaction=transaction)
    messages = as_kafka(sent("maxwell_json", change_batch(data), [EVERY_TYPE]))
    rows = rows_of("maxwell_json", messages)
    assert [row.error for row in rows if row.op == "error"] == []
    names = (*(name for name in COMPARED if name not in ("source", "event_time")), "transaction")
    for row, want in zip(rows, data, strict=True):
        assert comparable(row.asDict(recursive=True), names) == comparable(want, names)
        assert row.event_time.timestamp() == int(want["event_time"].timestamp())


def test_structs_both_ways(rng: random.Random) -> None:
    data = random_changes(rng, ops="rcud", absent_before=False)
    maps = sent("maxwell_json", change_batch(data), [EVERY_TYPE])
    structs = changes_of_messages("maxwell_json", as_kafka(maps), schema=EVERY_TYPE)
    again = sent("maxwell_json", structs, [EVERY_TYPE])
    assert [m["value"] for m in again] == [m["value"] for m in maps]
    assert [m["key"] for m in again] == [m["key"] for m in maps]


def test_messages_are_maxwells() -> None:
    keyed = message("update", data={"id": 2, "n": "x"}, old={"id": 1}, primary_key_columns=["id", "n"])
    values = [*SAMPLES, (None, keyed), (KEY, None)]
    messages = sent("maxwell_json", changes_of_messages("maxwell_json", kafka(values), schema=[EVERY_TYPE]))
    update, tombstone = messages[-2:]
    assert json.loads(update["value"]) == {
        **keyed, "data": {"id": "2", "n": "x"}, "old": {"id": "1"}, "primary_key": ["2", "x"],
    }  # fmt: skip
    assert update["key"].decode() == '{"database":"d","table":"t","pk.id":"2","pk.n":"x"}'
    assert (update["topic"], tombstone["value"]) == ("maxwell", None)
    assert tombstone["key"].decode() == '{"database":"d","table":"t","pk.id":"7","pk.n":"1.50"}'


def test_statements_say_their_kind() -> None:
    def kind(ddl: str, **facts: str) -> str:
        row = {"op": "schema", "table": {"database": "d", "name": "t"}, "source": {"ddl": ddl, **facts}}
        return str(json.loads(sent("maxwell_json", change_batch([row]))[0]["value"])["type"])

    assert kind("/* a */ -- b\n create temporary table t (a int)") == "table-create"
    assert kind("rename table t to u") == "table-alter"
    assert kind("drop schema d") == "database-drop"
    assert kind("alter table t add b int", type="database-alter") == "database-alter"


def test_streaming(spark: SparkSession, tmp_path: Any) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    local_rows(spark, kafka(SAMPLES), DDL).coalesce(1).write.parquet(str(source))
    rows = headrace.decode(spark.readStream.schema(DDL).parquet(str(source)), format="maxwell_json")
    query = (
        rows.writeStream.format("memory").queryName("maxwell_stream").option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    streamed = spark.table("maxwell_stream")
    assert sorted((r.position, r.op) for r in streamed.collect()) == [(r.position, r.op) for r in decoded(SAMPLES)]
    messages = headrace.encode(streamed, format="maxwell_json").collect()
    assert len(messages) == streamed.count()
    with pytest.raises(OptionError, match="needs the option 'schema' to encode a streaming DataFrame"):
        headrace.encode(rows, format="maxwell_json")
