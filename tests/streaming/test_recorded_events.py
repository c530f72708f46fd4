"""Rule: the events of the seed's customers table equal those that Debezium 1.7.2 wrote from the same change-table rows.

Key, value, schema, headers and order; but for clocks, and the `transaction` block, which was on in the recording.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import Any

import pyarrow as pa
import pytest
import recorded

import headrace
from headrace.emulators.sqlserver import EmulatedServer
from headrace.sources.base import Limit
from headrace.sources.offset import Offset
from headrace.sources.reader import source_named

NOW = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)


def as_it_was(text: str) -> str:
    return text


def renamed_and_shifted(text: str) -> str:
    """The same rows in a table of another name, with a column before the others that is not captured."""
    text = text.replace("create table dbo.customers([id]", "create table dbo.customers([padding] int null, [id]")
    shifted = re.compile(r"(object_id\('cdc\.dbo_customers_CT'\),'\w+',)(\d+),")
    text = shifted.sub(lambda m: f"{m[1]}{int(m[2]) + (0 if 'index_columns' in text else 1)},", text)
    if "index_columns" in text:
        text = re.sub(r"(object_id\('cdc\.dbo_customers_CT'\),'id',1,)1", r"\g<1>2", text)
    return text.replace("customers", "clients")


@pytest.fixture(params=[(as_it_was, "customers"), (renamed_and_shifted, "clients")], ids=["seed", "renamed-shifted"])
def captured(request, tmp_path, spark):
    """The messages that Headrace makes of the recorded run, and the table's name."""
    change, table = request.param
    server = EmulatedServer(tmp_path / "server")
    database = server.create_database("testDB", enable_cdc=False)

    def run(*scripts: str) -> None:
        for script in scripts:
            for statement in recorded.statements(script):
                database.execute(change(statement))

    run("01_tables.sql", "02_cdc_catalog.sql", "03_base_rows.sql")
    source = source_named(
        "sqlserver",
        {
            "driver": "emulator",
            "hostname": str(server.directory),
            "database": "testDB",
            "tables": f"dbo.{table},dbo.composite,dbo.orders",
        },
    )
    batches: list[pa.RecordBatch] = []
    offset = Offset.nothing()
    for scripts in ((), ("04_changes.sql",), ("05_schema_change.sql", "06_last.sql")):
        run(*scripts)
        end = source.advance(offset, Limit(), NOW)
        for slice in source.plan(offset, end):
            batches += source.read(slice)
        offset = end
    changes = spark.createDataFrame(pa.Table.from_batches(batches))
    messages = headrace.encode(
        changes, format="debezium_json", shape="1.7", topic_prefix="server1", schemas_enable=True
    )
    of_table = messages.where(f"topic = 'server1.dbo.{table}'").orderBy("position")
    rows = [row.asDict(recursive=True) for row in of_table.collect()]
    return rows, table


# 1.7.2 sorts a bulk deferred update by operation (d, d, c, c); we keep the server's command order (d, c, d, c).
BULK_UPDATE = "0000002b:00000010:0030"


def test_the_customers_events_equal_the_recorded_ones(captured):
    rows, table = captured
    expected = []
    for event in recorded.events("events_1.7.2.jsonl", "server1.dbo.customers"):
        event = json.loads(json.dumps(event).replace("customers", table))
        expected.append({name: event[name] for name in ("topic", "key", "value", "headers")})
    got = [
        {
            "topic": row["topic"],
            "key": None if row["key"] is None else json.loads(row["key"]),
            "value": None if row["value"] is None else json.loads(row["value"]),
            "headers": row["headers"] or [],
        }
        for row in rows
    ]
    mine, theirs = comparable(got), comparable(expected)
    assert len(mine) == len(theirs)
    assert [e for e in mine if BULK_UPDATE not in e] == [e for e in theirs if BULK_UPDATE not in e]
    assert bulk(mine) == bulk(theirs)
    assert len(bulk(mine)) == 4


def comparable(events: list[dict[str, Any]]) -> list[str]:
    """The events as text, in which the order of fields counts too; a tombstone stands with its delete."""
    texts: list[str] = []
    for event in events:
        text = json.dumps({**event, "value": without_clocks(event["value"])}, ensure_ascii=False)
        if event["value"] is None:
            texts[-1] += text
        else:
            texts.append(text)
    return texts


def bulk(events: list[str]) -> list[str]:
    """The events of the bulk update, in whatever order, without the number that says their order."""
    return sorted(re.sub(r'"event_serial_no": \d', "", e) for e in events if BULK_UPDATE in e)


def without_clocks(value: Any) -> Any:
    """The value without what no two runs have in common."""
    if value is None:
        return None
    payload = json.loads(json.dumps(value["payload"]))
    payload["ts_ms"] = "clock"
    payload["transaction"] = "off here"
    if payload["op"] == "r":
        payload["source"]["ts_ms"] = "clock"
    return {"schema": value["schema"], "payload": payload}
