"""Flat records of ExtractNewRecordState."""

from __future__ import annotations

import json
from typing import Any

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
