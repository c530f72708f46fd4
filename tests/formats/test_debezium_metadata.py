"""Schema changes, transaction edges and heartbeats: written as recorded, and read back."""

from __future__ import annotations

import json
from typing import Any

import debezium_recordings as recordings
import pytest
from pyspark.sql import Row

from headrace.changes import TableSchema
from headrace.formats.convert import format_named
from headrace.formats.debezium.connectors import SHAPES
from headrace.formats.debezium.topics import topics

SECOND = 1_559_729_470_000_000
NAMES = ("connector", "change_lsn", "commit_lsn", "event_serial_no")


def table_change(event: dict[str, Any], number: int) -> dict[str, Any]:
    """The row of a recorded schema change; in a snapshot `number` is its place in the include list."""
    payload = event["value"]["payload"]
    source, change = payload["source"], payload["tableChanges"][0]
    schema = recordings.tables()[source["table"], change["type"]]
    streamed = source["snapshot"] == "false"
    facts = {name: str(source[name]) for name in NAMES if source[name] is not None}
    return {
        "op": "schema",
        "table": {"database": source["db"], "schema": source["schema"], "name": source["table"]},
        "position": f"{source['commit_lsn']}/{'s' if streamed else 'q'}/{number:05x}",
        "event_time": recordings.instant(source["ts_ms"] * 1000) if streamed else None,
        "capture_time": recordings.instant(payload.get("ts_ms", source["ts_ms"]) * 1000),
        "snapshot": None if streamed else "true",
        "source": facts | {"change": change["type"]} | ({"ddl": payload["ddl"]} if streamed else {}),
        "schema_id": schema.fingerprint,
        "table_schema": schema.to_text(),
    }


def edge(event: dict[str, Any]) -> dict[str, Any]:
    payload = event["value"]["payload"]
    ending = payload["status"] == "END"
    facts = {"connector": "sqlserver", "commit_lsn": payload["id"]}
    if ending:
        facts["data_collections"] = json.dumps(payload["data_collections"])
    return {
        "op": payload["status"].lower(),
        "position": f"{payload['id']}/{'e' if ending else ''}/",
        "event_time": recordings.instant(payload.get("ts_ms", 1) * 1000),
        "transaction": {"id": payload["id"], "total_order": payload["event_count"], "data_collection_order": None},
        "source": facts,
    }


INCLUDED = ("customers", "all_types", "composite", "keyless", "orders", "debezium_signal")


def rows_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    payloads = [(event, event["value"]["payload"]) for event in events]
    return [
        edge(event) if "status" in payload else table_change(event, INCLUDED.index(payload["source"]["table"]))
        for event, payload in payloads
    ]


def messages(rows: list[dict[str, Any]], *schemas: TableSchema, **options: Any) -> list[dict[str, Any]]:
    options = {"topic_prefix": "server1", "schemas_enable": True, "context_headers": True} | options
    found = recordings.encoded(rows, schemas, **options)
    return [
        {
            "topic": row.topic,
            "partition": row.partition,
            "key": row.key and json.loads(row.key),
            "value": row.value and json.loads(row.value),
            "headers": [{"name": h.key, "value": json.loads(h.value)} for h in row.headers or ()],
        }
        for row in found
    ]


def without_run(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for event in events:
        for header in event["headers"]:
            if header["name"].endswith(".runId"):
                header["value"]["payload"] = "a run"
    return events


@pytest.mark.parametrize(
    ("release", "shape", "schemas"), [("1.7.2", "1.7", True), ("3.6.1", "3", True), ("3.6.1", "3", False)]
)
def test_recorded_metadata_is_written_again(release: str, shape: str, schemas: bool) -> None:
    recorded = recordings.events(f"{release}_metadata")
    got = without_run(messages(rows_of(recorded), shape=shape, schemas_enable=schemas))
    # The change of a table comes behind the END of the transaction before it: END comes with its transaction.
    want = sorted(without_run(recorded), key=lambda e: e["topic"])
    got.sort(key=lambda e: e["topic"])
    for event in want:
        payload = event["value"]["payload"]
        if shape == "3" and payload.get("source", {}).get("snapshot") == "true":
            # One row has one clock; the connector looked at it twice.
            now = payload["ts_ms"]
            payload["source"] |= {"ts_ms": now, "ts_us": now * 1000, "ts_ns": now * 1_000_000}
        if not schemas:
            event["key"], event["value"] = event["key"]["payload"], event["value"]["payload"]
    assert len(got) == len(want)
    assert recordings.differences(got, want) == []


CUSTOMERS = recordings.tables()["customers", "CREATE"]


def dropped() -> dict[str, Any]:
    return {
        "op": "schema",
        "table": {"database": "testDB", "schema": "dbo", "name": "customers"},
        "position": "00000027:00000758:0005/s/00000",
        "event_time": recordings.instant(SECOND),
        "capture_time": recordings.instant(SECOND + 5_000),
        "source": {"connector": "sqlserver", "commit_lsn": "c", "change": "DROP", "ddl": "N/A"},
        "schema_id": CUSTOMERS.fingerprint,
        "table_schema": CUSTOMERS.to_text(),
    }


HEARTBEAT = {
    "op": "heartbeat",
    "position": "00000027:00000758:0005/z/",
    "event_time": recordings.instant(SECOND),
    "capture_time": recordings.instant(SECOND + 5_000),
    "source": {"connector": "sqlserver", "commit_lsn": "00000027:00000758:0005"},
}
SILENT = [
    {"op": "gap", "table": {"database": "d", "schema": "s", "name": "t"}, "error": "lost", "source": {}},
    {"op": "tombstone", "key": {"id": "1"}},
    {"op": "message"},
    {"op": "error", "error": "no JSON"},
    {**dropped(), "source": {"connector": "sqlserver"}},
]


@pytest.mark.parametrize("shape", ["1.7", "3"])
def test_drops_and_heartbeats_and_rows_without_a_message(shape: str) -> None:
    version = {"version": 1} if shape == "3" else {}
    drop, heartbeat = messages([*SILENT, dropped(), HEARTBEAT], CUSTOMERS, shape=shape)
    (change,) = drop["value"]["payload"]["tableChanges"]
    assert (change["type"], change["id"]) == ("DROP", '"testDB"."dbo"."customers"')
    assert (change["table"] is None) == (shape == "3")
    assert heartbeat == {
        "topic": "__debezium-heartbeat.server1",
        "partition": 0,
        "key": {
            "schema": {
                "type": "struct",
                "fields": [{"type": "string", "optional": False, "field": "serverName"}],
                "optional": False,
                "name": "io.debezium.connector.common.ServerNameKey",
                **version,
            },
            "payload": {"serverName": "server1"},
        },
        "value": {
            "schema": {
                "type": "struct",
                "fields": [{"type": "int64", "optional": False, "field": "ts_ms"}],
                "optional": False,
                "name": "io.debezium.connector.common.Heartbeat",
                **version,
            },
            "payload": {"ts_ms": SECOND // 1000 + 5},
        },
        "headers": [],
    }


NOTIFICATION = {
    "op": "message",
    "position": "00000027:00000758:0005/zz/0000",
    "capture_time": recordings.instant(SECOND),
    "source": {
        "topic": "notes",
        "id": "mine",
        "type": "IN_PROGRESS",
        "aggregate_type": "Incremental Snapshot",
        "additional_data": '{"data_collections":"dbo.a,dbo.b","current_collection_in_progress":"dbo.a"}',
        "timestamp": "1559729470000",
    },
}


def test_notifications_go_to_the_topic_that_they_name() -> None:
    [found] = messages([NOTIFICATION])
    assert (found["topic"], found["partition"], found["headers"]) == ("notes", None, [])
    assert found["key"]["schema"]["name"] == "io.debezium.connector.common.NotificationKey"
    assert found["key"]["payload"] == {"id": "mine"}
    assert found["value"]["schema"]["name"] == "io.debezium.connector.common.Notification"
    assert [(field["field"], field["type"]) for field in found["value"]["schema"]["fields"]] == [
        ("id", "string"), ("type", "string"), ("aggregate_type", "string"), ("additional_data", "map"),
        ("timestamp", "int64"),
    ]  # fmt: skip
    assert found["value"]["payload"] == {
        "id": "mine",
        "type": "IN_PROGRESS",
        "aggregate_type": "Incremental Snapshot",
        "additional_data": {
            "connector_name": "server1",
            "data_collections": "dbo.a,dbo.b",
            "current_collection_in_progress": "dbo.a",
        },
        "timestamp": 1_559_729_470_000,
    }


def test_schema_changes_can_be_left_out() -> None:
    found = messages([dropped(), HEARTBEAT], **{"include.schema.changes": "false"})
    assert [message["topic"] for message in found] == ["__debezium-heartbeat.server1"]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ("s-1", "s-1.transaction", "__debezium-heartbeat.s-1")),
        (
            {"topic.delimiter": "_", "topic.transaction": "tx", "topic.heartbeat.prefix": "hb"},
            ("s-1", "s-1_tx", "hb_s-1"),
        ),
        (
            {"database.transaction.topic": "${database.server.name}.edges", "heartbeat.topics.prefix": "hb"},
            ("s-1", "s-1.edges", "hb.s-1"),
        ),
    ],
)
def test_topics_have_the_names_that_options_give(options: dict[str, Any], names: tuple[str, ...]) -> None:
    format = format_named("debezium_json", {"topic.prefix": "s-1"} | options)
    found = topics(format.settings, SHAPES["3"])
    assert (found.schema_changes, found.transaction, found.heartbeat) == names


def text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("shape", "schemas", "known"), [("1.7", True, {}), ("3", True, {}), ("3", False, {"schema": [CUSTOMERS]})]
)
def test_metadata_is_read_back(shape: str, schemas: bool, known: dict[str, Any]) -> None:
    recorded = recordings.events("1.7.2_metadata" if shape == "1.7" else "3.6.1_metadata")
    rows = [*rows_of(recorded), dropped(), HEARTBEAT]
    written = messages(rows, shape=shape, schemas_enable=schemas)
    lines = [Row(topic=m["topic"], key=text(m["key"]), value=text(m["value"]), headers=None) for m in written]
    lines.append(Row(topic="server1.other", key=None, value=b'{"ts_ms":1}', headers=None))
    rows_found = recordings.decoded(lines, **known)
    *found, other = (row for row in rows_found if row["op"] != "schema" or row["source"])
    assert other["op"] == "error"
    originals = sorted(rows, key=lambda row: row["position"])
    if shape == "3":
        snapshot = sorted((r for r in originals if r.get("snapshot")), key=lambda row: row["table"]["name"])
        originals = snapshot + [r for r in originals if not r.get("snapshot")]
    assert [row["error"] for row in found] == [None] * len(originals)
    for got, original in zip(found, originals, strict=True):
        expected = {
            "op": original["op"],
            "table": original.get("table"),
            "transaction": original.get("transaction"),
            "snapshot": original.get("snapshot"),
            "key": None,
        }
        assert {name: got[name] for name in expected} == expected
        assert (got["message"]["topic"], got["message"]["value"]) == (written[got["message"]["offset"]]["topic"], None)
        if original["op"] == "schema":
            assert got["source"] == original["source"] | {"version": got["source"]["version"], "name": "server1"}
            check_structure(got, original, shape)
        elif original["op"] == "end":
            assert json.loads(got["source"]["data_collections"]) == json.loads(original["source"]["data_collections"])
        elif original["op"] == "heartbeat":
            assert not got["source"]
            assert got["capture_time"].timestamp() == (SECOND + 5_000) / 1_000_000


def check_structure(got: dict[str, Any], original: dict[str, Any], shape: str) -> None:
    if got["table_schema"] is None:
        assert (original["source"]["change"], shape) == ("DROP", "3")
        return
    ours, theirs = TableSchema.from_text(got["table_schema"]), TableSchema.from_text(original["table_schema"])
    assert got["schema_id"] == ours.fingerprint
    assert (ours.id, ours.key) == (theirs.id, theirs.key)
    for mine, column in zip(ours.columns, theirs.columns, strict=True):
        for name in ("name", "position", "logical", "native_type", "length", "scale", "nullable", "jdbc_type"):
            assert getattr(mine, name) == getattr(column, name), (column.name, name)
        if shape == "3":
            assert (mine.default_expression, mine.identity) == (column.default_expression, column.identity)
