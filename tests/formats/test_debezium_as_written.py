"""Ways in which converters and transforms write Debezium's events: each is the same row."""

from __future__ import annotations

import json
from typing import Any

import pytest
from codec_rows import change_rows

from headrace.changes import Column, LogicalType, TableId, TableSchema

PAYLOAD = {"before": None, "after": {"id": 1}, "op": "c", "source": {"db": "d", "schema": "s", "table": "t"}}
FRAME = b"\0\0\0\0\7"


def data_rows(messages: list[tuple[bytes | None, Any]], topic: str = "x.s.t", **options: Any) -> list[dict[str, Any]]:
    lines = [
        (topic, 0, n, None, key, value if isinstance(value, bytes) else json.dumps(value).encode(), None)
        for n, (key, value) in enumerate(messages)
    ]
    return change_rows("debezium_json", lines, **options)


@pytest.mark.parametrize("value", [PAYLOAD, {"payload": PAYLOAD}, FRAME + json.dumps(PAYLOAD).encode()])
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b'{"id":1}', {"id": "1"}),
        (b'{"payload":{"id":1}}', {"id": "1"}),
        (FRAME + b'{"id":1}', {"id": "1"}),
        (b'{"payload":17}', {"payload": "17"}),
        (b"till-west", None),
        (b"17", None),
        (b'"17"', None),
        (b'{"schema":{"type":"string"},"payload":"till-west"}', None),
        (b"null", None),
        (None, None),
    ],
)
def test_keys_and_values_are_read_however_they_are_wrapped(value: Any, key: bytes | None, expected: Any) -> None:
    plain, keyed = data_rows([(key, value)]), data_rows([(key, value)], keys=("id",))
    assert [(row["op"], row["key"], row["after"]) for row in plain] == [("c", expected, {"id": "1"})]
    assert [(row["op"], row["key"]) for row in keyed] == [("c", expected or {"id": "1"})]


@pytest.mark.parametrize("count", [2, 3, 8])
def test_framed_messages_are_read_however_many_a_batch_has(count: int) -> None:
    found = data_rows([(None, FRAME + json.dumps(PAYLOAD).encode())] * count + [(None, None), (b"k", PAYLOAD)])
    assert [row["op"] for row in found] == ["c"] * count + ["tombstone", "c"]


@pytest.mark.parametrize("key", [b'{"id":', b"[1]", b"\xff\xfe"])
def test_a_key_that_is_neither_an_object_nor_a_plain_text_is_an_error(key: bytes) -> None:
    (row,) = data_rows([(key, PAYLOAD)], keys=("id",))
    assert row["error"].startswith("The key is not")


def test_key_columns_that_a_row_lacks_make_no_key() -> None:
    (row,) = data_rows([(None, PAYLOAD)], keys=("other",))
    assert (row["key"], row["key_text"]) == (None, None)


LONG = "123456789012345678901234567890123456789012.5"


@pytest.mark.parametrize(
    ("scale", "texts"),
    [
        (
            2,
            {
                "12.5": "12.50",
                "-0.07": "-0.07",
                "123456789012345678901234567890123456.78": "123456789012345678901234567890123456.78",
                "1E+3": "1000.00",
                LONG: f"{LONG}0",
                "null": None,
                '"BNI="': "12.34",
            },
        ),
        (8, {"1e-8": "0.00000001", "0": "0.00000000", "-0.0000001": "-0.00000010", "7": "7.00000000"}),
        (0, {"12": "12", "-7.0": "-7", LONG.replace(".5", "0"): LONG.replace(".5", "0")}),
        (40, {"0.1": "0.1" + 39 * "0"}),
    ],
)
def test_decimals_as_numbers_keep_every_digit_and_the_scale(scale: int, texts: dict[str, str | None]) -> None:
    decimal = {"field": "p", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1}
    fields = [decimal | {"parameters": {"scale": str(scale), "connect.decimal.precision": "38"}, "optional": True}]
    after = {"field": "after", "type": "struct", "optional": True, "fields": fields}
    schema = {"type": "struct", "name": "x.s.t.Envelope", "fields": [after, {"field": "op", "type": "string"}]}
    head = f'{{"schema":{json.dumps(schema)},"payload":{{"op":"c","after":{{"p":'
    found = data_rows([(None, f"{head}{number}}}}}}}".encode()) for number in (*texts, f"0.{'0' * scale}5")])
    *rows, misfit = (row for row in found if row["op"] != "schema")
    assert [row["after"]["p"] for row in rows] == list(texts.values())
    assert [row["error"] for row in rows] == [None] * len(texts)
    assert misfit["error"] == "The value does not follow its schema."


def test_tables_that_share_a_topic_are_found_by_the_source_block() -> None:
    def table(name: str, kind: str) -> TableSchema:
        return TableSchema(TableId("", "s", name), (Column("id", 1, LogicalType.parse(kind)),), ("id",))

    other = PAYLOAD | {"source": PAYLOAD["source"] | {"table": "u"}}
    third = PAYLOAD | {"source": PAYLOAD["source"] | {"table": "v"}}
    given = [table("t", "int32"), table("u", "int64")]
    for topic in ("everything", "x.s.t"):
        rows = [row for row in data_rows([(None, PAYLOAD), (None, other)], topic, schema=given) if row["op"] == "c"]
        assert [row["schema_id"] for row in rows] == [schema.fingerprint for schema in given]
    (row,) = data_rows([(None, third)], "everything", schema=given)
    assert row["error"] == "The value has no schema, and option 'schema' has none for its topic."


def test_a_flat_row_and_its_schema_are_of_one_table_behind_a_router() -> None:
    schema = {"type": "struct", "name": "x.s.t.Value", "fields": [{"field": "id", "type": "int32"}]}
    value = {"schema": schema, "payload": {"id": 1}}
    for topic in ("routed", "x.s.t", "a.b.c.d"):
        structure, row = data_rows([(None, value)], topic, unwrapped=True)
        assert structure["op"] == "schema"
        assert structure["table"] == row["table"]
        assert row["table"]["name"] == topic.split(".")[-1]
