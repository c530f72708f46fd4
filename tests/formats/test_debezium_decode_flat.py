"""Flat records of ExtractNewRecordState."""

from __future__ import annotations

import json
from typing import Any

import pytest
from codec_rows import change_rows


def decoded(values: list[Any], key: Any = None, **options: Any) -> list[dict[str, Any]]:
    rows = [
        ("s.d.t", 0, n, None, key and json.dumps(key).encode(), None if v is None else json.dumps(v).encode(), None)
        for n, v in enumerate(values)
    ]
    return change_rows("debezium_json", rows, unwrapped=True, **options)


ADDED = {
    "__op": "u", "__table": "t2", "__db": "d2", "__source_ts_ms": 1_700_000_000_123, "__source_lsn": 7,
    "__transaction_id": "x", "__transaction_total_order": 3, "__deleted": "false",
}  # fmt: skip


def test_added_fields_say_what_happened_where() -> None:
    row = {"id": 1, "n": 1.50}
    values = [row | ADDED, row | ADDED | {"__deleted": "true", "__op": "d"}, row, row | {"__deleted": "true"}, None]
    update, delete, plain, deleted, empty = decoded(values, {"id": 1})
    image = {"id": "1", "n": "1.5"}
    assert (update["op"], update["before"], update["after"]) == ("u", None, image)
    assert (delete["op"], delete["before"], delete["after"]) == ("d", image, None)
    assert (plain["op"], plain["after"], plain["table"]["name"]) == ("c", image, "t")
    assert not plain["source"]
    assert (deleted["op"], deleted["before"]) == ("d", image)
    assert (empty["op"], empty["key"], empty["before"]) == ("tombstone", {"id": "1"}, None)
    assert update["table"] == {"database": "d2", "schema": "", "name": "t2"}
    assert update["event_time"].timestamp() == 1_700_000_000.123
    assert update["source"] == {"lsn": "7", "transaction_id": "x", "transaction_total_order": "3"}
    assert update["transaction"] == {"id": "x", "total_order": 3, "data_collection_order": None}


D = b"d"
ROW = b'{"id":1,"n":2}'
BEHIND_A_SCHEMA = b'{"schema":{"type":"string","optional":false},"payload":"u"}'


@pytest.mark.parametrize(
    ("headers", "value", "op"),
    [
        ([("__op", b"u")], ROW, "u"),
        ([("__op", b'"u"')], ROW, "u"),
        ([("__op", BEHIND_A_SCHEMA)], ROW, "u"),
        ([("__op", b"r"), ("other", None)], ROW, "r"),
        ([("__op", b"c"), ("__op", b"u")], ROW, "u"),
        ([("__op", b"c")], b'{"id":1,"__op":"u"}', "u"),
        ([("__op", b"c")], b'{"id":1,"__deleted":"true"}', "d"),
        ([("__op", D)], ROW, "d"),
        ([("__op", D)], None, "d"),
        ([("__op", D)], b'{"schema":null,"payload":null}', "d"),
        ([("__op", b"c")], None, "tombstone"),
        ([("op", D)], None, "tombstone"),
        ([], None, "tombstone"),
        (None, None, "tombstone"),
        ([("__op", b"x")], ROW, "error"),
    ],
)  # fmt: skip
def test_a_header_may_say_the_operation_where_the_row_does_not(headers: Any, value: Any, op: str) -> None:
    # Rows without headers beside it, so that lists of headers are counted past them.
    messages = [("s.d.t", 0, n, None, b'{"id":1}', ROW, None) for n in range(3)]
    messages.insert(1, ("s.d.t", 0, 9, None, b'{"id":1}', value, headers))
    rows = change_rows("debezium_json", messages, unwrapped=True)
    (row,) = (row for row in rows if row["message"]["offset"] == 9)
    assert [other["op"] for other in rows if other is not row] == ["c"] * 3
    assert row["op"] == op
    if op != "error":
        assert row["key_text"] == '["1"]'
    if op == "d":
        assert row["before"]["id"] == "1"
        assert row["after"] is None


def test_a_delete_in_a_header_needs_a_key() -> None:
    (row,) = change_rows("debezium_json", [("t", 0, 0, None, None, None, [("__op", D)])], unwrapped=True)
    assert row["error"] == "The event has neither an old row nor a key."


def test_a_header_of_a_row_that_is_not_flat_is_no_operation() -> None:
    (row,) = change_rows("debezium_json", [("t", 0, 0, None, b'{"id":1}', None, [("__op", D)])])
    assert row["op"] == "tombstone"


def test_messages_that_the_transform_passes_are_read_as_they_are() -> None:
    values = [
        {"status": "END", "id": "7", "event_count": 1, "data_collections": None, "ts_ms": 5},
        {"source": {"db": "d", "ts_ms": 5}, "databaseName": "d", "ddl": "DROP TABLE a", "tableChanges": []},
        {"ts_ms": 5},
        {"ts_ms": 5, "id": 1},
    ]
    rows = decoded(values, {"serverName": "s"})
    assert [row["op"] for row in rows] == ["end", "schema", "heartbeat", "c"]
    assert rows[1]["source"]["ddl"] == "DROP TABLE a"


def test_a_key_without_a_value_may_be_the_delete() -> None:
    (row,) = decoded([None], {"id": 1}, tombstone_as_delete=True)
    assert (row["op"], row["key_text"], row["before"], row["after"]) == ("d", '["1"]', {"id": "1"}, None)


def test_flat_rows_come_as_structs_and_with_another_prefix() -> None:
    value = {"id": 1, "made": 1_700_000_000_000_000, "+op": "r", "__x": "column"}
    options = {"unwrapped_prefix": "+", "schema": "id int, made timestamp_ntz, `__x` string"}
    (row,) = decoded([value], **options)
    assert (row["op"], row["after"]["__x"], row["after"]["made"].year) == ("r", "column", 2023)


def test_bad_flat_rows_are_errors() -> None:
    (row,) = decoded([[1]])
    assert row["error"] == "The value does not have the form of a Debezium event."
