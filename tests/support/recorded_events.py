"""Recorded events, and what ours are compared by."""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import recorded

import headrace

NOW = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)


CLOCK = "clock"


def as_it_was(text: str) -> str:
    return text


def encoded(spark: Any, changes: pa.Table, options: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The messages by topic, in order."""
    rows = spark.createDataFrame(changes)
    messages = headrace.encode(rows, format="debezium_json", topic_prefix="server1", schemas_enable=True, **options)
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in messages.orderBy("position").collect():
        message = {
            "partition": row["partition"],
            "key": None if row["key"] is None else json.loads(row["key"]),
            "value": None if row["value"] is None else json.loads(row["value"]),
            "headers": [[h["key"], json.loads(h["value"])] for h in row["headers"] or []],
        }
        found[row["topic"]].append(message)
    return found


def expected(recording: str, change: Any = as_it_was) -> dict[str, list[dict[str, Any]]]:
    """The recorded messages by topic, in order."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in recorded.events(recording):
        event = json.loads(change(json.dumps(event)))
        message = {name: event[name] for name in ("partition", "key", "value")}
        headers = [[h["name"], h["value"]] for h in event["headers"] or []]
        found[event["topic"]].append({**message, "headers": headers})
    return found


def comparable(message: dict[str, Any]) -> dict[str, Any]:
    """A message without what no two runs have in common."""
    message = json.loads(json.dumps(message))
    value = message["value"]
    if value is not None:
        payload = value["payload"]
        for name in ("ts_ms", "ts_us", "ts_ns"):
            if name in payload:
                payload[name] = CLOCK
        source = payload.get("source")
        if source is not None and source["change_lsn"] is None:
            for name in ("ts_ms", "ts_us", "ts_ns"):
                if name in source:
                    source[name] = CLOCK
    for header in message["headers"]:
        if header[0] == "__debezium.context.runId":
            header[1] = CLOCK
    return message


def differences(mine: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Where two messages differ; the order of fields counts too."""
    if isinstance(mine, dict) and isinstance(theirs, dict) and list(mine) == list(theirs):
        for name in mine:
            yield from differences(mine[name], theirs[name], f"{path}.{name}")
    elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for number, (left, right) in enumerate(zip(mine, theirs, strict=True)):
            name = left.get("field", number) if isinstance(left, dict) else number
            yield from differences(left, right, f"{path}[{name}]")
    elif mine != theirs or type(mine) is not type(theirs):
        yield path
