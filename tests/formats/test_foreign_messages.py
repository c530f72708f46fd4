"""What a message says of itself: control messages are passed over, and messages of producers whose rows can't be read
right are error rows that name the producer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from codec_rows import change_rows


def op_and_error(format: str, value: Any, **options: Any) -> tuple[str | None, str | None]:
    """What one message becomes, alone of its form in a batch of two."""
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    messages = [("s.d.t", 0, n, None, None, text, None) for n in range(2)]
    first, second = (
        (row["op"], row["error"]) for row in change_rows(format, messages, **options) if not row["table_schema"]
    )
    assert first == second
    return first


def event(after: Any, connector: str = "postgresql", op: str = "u") -> dict[str, Any]:
    return {"op": op, "after": after, "source": {"connector": connector, "db": "d", "table": "t"}}


CELL = {"value": 5, "set": True}
CLOUD_EVENT = {
    "id": "name:d;lsn:29274832;txId:565", "source": "/debezium/postgresql/s", "specversion": "1.0",
    "type": "io.debezium.connector.postgresql.DataChangeEvent", "time": "2020-01-13T13:55:39.738Z",
    "datacontenttype": "application/json", "iodebeziumop": "r", "iodebeziumconnector": "postgresql",
    "data": {"before": None, "after": {"id": 1}},
}  # fmt: skip
TICDC = {
    "id": 0, "database": "d", "table": "t", "pkNames": ["id"], "isDdl": False, "type": "UPDATE", "es": 1, "ts": 2,
    "sql": "", "sqlType": {"id": 4}, "mysqlType": {"id": "int"}, "old": [{"id": "1"}], "data": [{"id": "1"}],
}  # fmt: skip
WATERMARK = TICDC | {"type": "TIDB_WATERMARK", "data": None, "old": None, "_tidb": {"watermarkTs": 429918007904436226}}
GOLDENGATE = {"table": "GG.TCUSTORD", "op_type": "I", "op_ts": "2015-11-05 18:45:36.000000", "pos": "1"}
TYPED = {"schema": "n string, m string"}


@pytest.mark.parametrize(
    ("format", "value", "options", "names"),
    [
        ("debezium_json", event({"n": CELL, "m": None}), {}, "YugabyteDB"),
        ("debezium_json", event({"n": CELL, "m": None}), TYPED, "YugabyteDB"),
        ("debezium_json", event({"n": {"value": None, "set": False}}), {}, "cell with a mark"),
        ("debezium_json", event({"n": CELL, "m": None}, "yugabytedb"), {}, "YugabyteDB"),
        ("debezium_json", event({"n": None}, "yugabytedb"), {}, "YugabyteDB"),
        ("debezium_json", event({"n": CELL | {"deletion_ts": None}}, "cassandra"), {}, "Cassandra"),
        ("debezium_json", event({"n": 1, "m": {"value": 7}}, "scylla"), TYPED, "ScyllaDB"),
        ("debezium_json", {"n": CELL, "__op": "u"}, {"unwrapped": True}, "cell with a mark"),
        ("debezium_json", event('{"_id": {"$oid": "a"}}', "mongodb"), {}, "MongoDB"),
        ("debezium_json", event('{"_id": {"$oid": "a"}}', "mongodb"), TYPED, "MongoDB"),
        ("debezium_json", CLOUD_EVENT, {}, "CloudEvent"),
        ("debezium_json", CLOUD_EVENT, {"unwrapped": True}, "CloudEvent"),
        ("debezium_json", {"schemaId": 7, "payload": event({"n": 1})}, {}, "Apicurio"),
        ("debezium_json", {"schemaId": 7, "payload": {"n": 1}}, {"unwrapped": True}, "Apicurio"),
        ("ogg_json", GOLDENGATE | {"CUST_CODE": "WILL"}, {}, "format=json_row"),
        ("ogg_json", GOLDENGATE | {"op_type": "D", "CUST_CODE": "WILL"}, {}, "format=json_row"),
        ("ogg_json", b'{"table":"A.B","op_type":"I","after":{"a":1}}{"table":"A.B","op_type":"I"}', {}, "mode=tx"),
        ("ogg_json", GOLDENGATE, {}, "no image after the change"),
        ("canal_json", TICDC | {"_tidb": {"commitTs": 1, "onlyHandleKey": True}}, {}, "TiCDC left out all columns"),
        ("canal_json", TICDC | {"_tidb": {"commitTs": 1, "onlyHandleKey": True}}, {"schema": "id int"}, "TiCDC"),
        ("canal_json", TICDC | {"data": None, "_tidb": {"claimCheckLocation": "s3:/b/1.json"}}, {}, "claim check"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_read_right_are_errors_that_name_their_producer(
    format: str, value: Any, options: dict[str, Any], names: str
) -> None:
    op, error = op_and_error(format, value, **options)
    assert op == "error"
    assert names in str(error)


BOM, HALF, PAIR = b"\xef\xbb\xbf", b'"\\ud83d"', b'"\\ud83d\\ude00"'


@pytest.mark.parametrize("format", ["debezium_json", "maxwell_json", "ogg_json", "canal_json", "shareplex_json"])
@pytest.mark.parametrize(
    ("value", "names"),
    [
        (BOM + b'{"a":1}', "begins with a byte order mark"),
        (b'{"a":' + HALF + b"}", "has one half of a surrogate pair"),
        (b'{"a":"\\udc00"}', "has one half of a surrogate pair"),
        (b'{"a":' + PAIR + b"}{", None),
        (b'{"a":', None),
    ],
)
def test_text_that_looks_like_json_and_is_none_says_why(format: str, value: bytes, names: str | None) -> None:
    op, error = op_and_error(format, value)
    assert op == "error"
    assert ("half" in str(error) or "mark" in str(error)) is (names is not None)
    assert names is None or names in str(error)


@pytest.mark.parametrize(
    ("format", "value", "op"),
    [
        ("canal_json", TICDC | {"_tidb": {"commitTs": 1}}, "u"),
        ("canal_json", TICDC | {"_tidb": {"commitTs": 1, "onlyHandleKey": False, "claimCheckLocation": None}}, "u"),
        ("canal_json", WATERMARK, None),
        ("canal_json", {"type": "TRANSACTIONBEGIN", "data": None}, None),
        ("canal_json", {"type": "TRANSACTIONEND"}, None),
        ("canal_json", {"type": "HEARTBEAT"}, "heartbeat"),
        ("maxwell_json", {"type": "heartbeat", "ts": 1}, "heartbeat"),
        ("debezium_json", event({"g": {"wkb": "AQE=", "srid": None}, "n": {"scale": 1, "value": "AQ=="}}), "u"),
        ("debezium_json", event({"set": True, "value": 5}), "u"),
        ("debezium_json", event({"j": {"value": 5, "set": "x"}}), "u"),
        ("debezium_json", event({"schemaId": 1, "payload": "x"}), "u"),
        ("debezium_json", event({"n": 1}, "vitess"), "u"),
    ],
)  # fmt: skip
def test_control_messages_are_passed_over_and_rows_beside_them_are_read(
    format: str, value: Any, op: str | None
) -> None:
    assert op_and_error(format, value) == (op, None)
