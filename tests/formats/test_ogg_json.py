"""GoldenGate's JSON: what each kind of message means, what is refused, and that encoding and decoding are each other's
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
from headrace.changes import TableId, TableSchema
from headrace.errors import OptionError
from headrace.formats.codec import KAFKA_COLUMNS
from headrace.spark.local_rows import local_rows

DDL = ", ".join(f"{name} {kind}" for name, kind in KAFKA_COLUMNS.items())
SCHEMA = "id bigint, name string, amount decimal(9,2)"
TABLE = TableSchema(TableId("pdb", "own", "every `type`"), EVERY_TYPE.columns, EVERY_TYPE.key)
SAMPLES = [
    sample.message[5].decode()
    for sample in samples_of("ogg_json")
    if sample.message[5] and not sample.data.get("expect_error")
]


def kafka(values: list[Any]) -> list[tuple[Any, ...]]:
    texts = [v if isinstance(v, (bytes, str)) or v is None else json.dumps(v) for v in values]
    return [("t", 0, n, None, None, t.encode() if isinstance(t, str) else t, None) for n, t in enumerate(texts)]


def decoded(values: list[Any], **options: Any) -> list[Any]:
    return rows_of("ogg_json", kafka(values), **options)


def message(kind: str, **fields: Any) -> dict[str, Any]:
    return {"table": "OWN.T", "op_type": kind, "op_ts": "2020-05-13 17:32:10.904123", "pos": "01", **fields}


REFUSED = [
    (b"\xff{}", "The value is not UTF-8."),
    (b"", "The value is not a JSON object of GoldenGate's form."),
    ("[]", "The value is not a JSON object of GoldenGate's form."),
    ('{"op_type":"I","after":[1]}', "The value is not a JSON object of GoldenGate's form."),
    ('{"op_type":"I","after":{"id":1}} 1', "Unexpected data after the JSON object."),
    (
        '{"op_type":"I","after":{"id":1}}{"op_type":"I","after":{"id":2}}',
        "The value holds several JSON objects, as GoldenGate writes whole transactions (mode=tx). Headrace does not "
        "read that form: set gg.handler.name.mode=op.",
    ),
    ('{"after":{"id":1}}', "The message has no op_type."),
    (message("X", after={"id": 1}), "Unknown operation X."),
    (message("I"), "The message has no image after the change."),
    (message("U", before={"id": 1}), "The message has no image after the change."),
    (message("D", after={"id": 1}), "The message has no image before the change."),
    (message("D", before={}), "The message has no image before the change."),
]


@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_what_cannot_be_read_is_an_error_row_that_keeps_the_message(schema: str | None) -> None:
    rows = decoded([value for value, _ in REFUSED], schema=schema)
    assert [(row.op, row.error) for row in rows] == [("error", why) for _, why in REFUSED]
    assert all(row.message.value is not None for row in rows)


def test_kinds_of_messages() -> None:
    rows = decoded(
        [
            message("I", after={"id": 1, "n": 1}, primary_keys=["n", "id"], csn="9", xid="0.1.2", tokens={"a": "b"}),
            message("U", after={"id": 1}, table="T", op_ts="2020-05-13T17:32:10"),
            '{"op_type":"D","before":{"id":1,"d":12.50,"e":1e2,"j":{"a":1.0}},"table":"a.b.c.d","op_ts":"soon"}',
            None,
        ],
        keys="id",
    )
    insert, update, delete, tombstone = rows
    assert (insert.key, insert.key_text, insert.transaction.id) == ({"n": "1", "id": "1"}, '["1","1"]', "0.1.2")
    assert insert.source == {
        "connector": "oracle", "pos": "01", "csn": "9", "xid": "0.1.2", "tokens": '{"a":"b"}',
    }  # fmt: skip
    assert insert.event_time.timestamp() == 1589391130.904123
    assert (tuple(update.table), update.before, update.key) == (("", "", "T"), None, {"id": "1"})
    assert update.event_time.timestamp() == 1589391130
    assert delete.before == {"id": "1", "d": "12.50", "e": "1e2", "j": '{"a":1.0}'}
    assert (tuple(delete.table), delete.event_time, delete.source["op_ts"]) == (("a.b", "c", "d"), None, "soon")
    assert (tombstone.op, tombstone.source) == ("tombstone", None)


@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_an_image_without_columns_is_none(schema: str | None) -> None:
    insert, update = decoded(
        [message("I", before={}, after={"id": 1}), message("U", before={}, after={"id": 1})], schema=schema
    )
    assert (insert.before, update.before, update.before_absent) == (None, None, None)


STRUCTS = [
    message("I", after={"id": 1, "name": None, "amount": 1.5}),
    message("I", after={"id": 1}),
    message("U", before={"id": 1}, after={"id": 1, "name": None, "amount": 1}),
    message("U", before={"id": 1, "name": None, "amount": 2}, after={"id": 1, "name": None, "amount": "1.25"}),
    message("U", after={"id": 1, "name": "x"}),
    message("D", before={"id": 1, "name": "x", "amount": "1.50"}),
]


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_struct_images_are_the_maps_typed(separators: tuple[str, str]) -> None:
    values = [json.dumps(value, separators=separators) for value in STRUCTS]
    maps = decoded(values, keys="id")
    structs = decoded(values, schema=SCHEMA, keys="id")
    names = ["id", "name", "amount"]
    for row, struct in zip(maps, structs, strict=True):
        assert (row.op, row.key, row.source, row.table) == (struct.op, struct.key, struct.source, struct.table)
        for image in ("before", "after"):
            have, want = getattr(struct, image), getattr(row, image)
            assert (have is None) == (want is None)
            if want is not None:
                assert (getattr(struct, f"{image}_absent") or []) == [name for name in names if name not in want]
                assert [None if v is None else float(v) for v in (have.id, have.amount)] == [
                    None if want.get(n) is None else float(want[n]) for n in ("id", "amount")
                ]
                assert have.name == want.get("name")
    misfit = decoded([message("I", after={"id": "x"})], schema=SCHEMA)
    assert misfit[0].error == "Column 'id' can't hold x exactly: it is bigint."


def test_decode_of_encode_is_identity(rng: random.Random) -> None:
    transaction = {"id": "1.2.3", "total_order": None, "data_collection_order": None}
    data = random_changes(rng, ops="cud", absent_before=True, id=TABLE.id, transaction=transaction)
    rows = rows_of("ogg_json", as_kafka(sent("ogg_json", change_batch(data), [TABLE])))
    assert [row.error for row in rows if row.op == "error"] == []
    names = (*(name for name in COMPARED if name not in ("source", "changed")), "transaction")
    for row, want in zip(rows, data, strict=True):
        assert comparable(row.asDict(recursive=True), names) == comparable(want, names)


def test_structs_both_ways(rng: random.Random) -> None:
    data = random_changes(rng, ops="cud", absent_before=True, id=TABLE.id)
    maps = sent("ogg_json", change_batch(data), [TABLE])
    structs = changes_of_messages("ogg_json", as_kafka(maps), schema=TABLE)
    for ours, theirs in zip(sent("ogg_json", structs, [TABLE]), maps, strict=True):
        values = [json.loads(m["value"], parse_int=str, parse_float=str) for m in (ours, theirs)]
        # When a message was written is not in it twice.
        for value in values:
            value.pop("current_ts", None)
        assert values[0] == values[1]
        assert ours["key"] == theirs["key"]


def test_a_stream_is_decoded_and_messages_are_goldengates(spark: SparkSession, tmp_path: Any) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    local_rows(spark, kafka(SAMPLES), DDL).coalesce(1).write.parquet(str(source))
    rows = headrace.decode(spark.readStream.schema(DDL).parquet(str(source)), format="ogg_json")
    query = (
        rows.writeStream.format("memory").queryName("ogg_stream").option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    streamed = spark.table("ogg_stream")
    assert sorted((r.position, r.op) for r in streamed.collect()) == [(r.position, r.op) for r in decoded(SAMPLES)]
    messages = sorted(headrace.encode(streamed, format="ogg_json", keys="id").collect(), key=lambda m: m.position)
    for value, m in zip(SAMPLES, messages, strict=True):
        want, got = json.loads(value), json.loads(m.value)
        # Nothing said that the key was a number, and the message's own clock is not kept.
        for image in ("before", "after"):
            if image in want:
                want[image] = {k: v if v is None else str(v) for k, v in want[image].items()}
        want.pop("current_ts")
        assert got == want
        assert m.key == (None if want["op_type"] == "T" else b"1")
    with pytest.raises(OptionError, match="needs the option 'schema' to encode a streaming DataFrame"):
        headrace.encode(rows, format="ogg_json")
