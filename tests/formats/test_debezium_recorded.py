"""Encoded change rows equal the events that Debezium's own connector wrote, key order included.

Left out on purpose: the nanoseconds of the envelope's clock (ours are microseconds), and
the recorded defects of 1.7.2 (defaults cut to milliseconds or not unescaped).
"""

from __future__ import annotations

import json
from typing import Any

import debezium_recordings as recordings
import pytest

VALUE_DEFECTS = {
    "1.7.2": {"c_varchar": "it's", "c_nvarchar": "日本", "c_time6": 3723123456, "c_time7": 3723123457000},
    "3.6.1": {"c_varchar": "it's"},
}
SHAPES = [("1.7.2", "1.7"), ("1.7.2_incremental", "1.7"), ("3.6.1", "3")]


def corrected(event: dict[str, Any], release: str) -> dict[str, Any]:
    """The recorded event without the release's defects and with the clock cut to microseconds."""
    value = event["value"]
    if value is None:
        return event
    right = VALUE_DEFECTS[release[:5]]
    for struct in value["schema"]["fields"][:2]:
        for field in struct["fields"]:
            if field["field"] in right:
                field["default"] = right[field["field"]]
    payload = value["payload"]
    if "c_time6" in (payload["after"] or payload["before"]) and (payload["after"] or payload["before"])["id"] in (
        2,
        12,
    ):
        payload["after"].update(right)
    if "ts_ns" in payload:
        payload["ts_ns"] = payload["ts_us"] * 1000
    return event


def written(row: Any) -> dict[str, Any]:
    def parsed(data: bytearray | None) -> Any:
        return None if data is None else json.loads(data.decode())

    return {
        "topic": row.topic,
        "key": parsed(row.key),
        "value": parsed(row.value),
        "headers": [{"name": h.key, "value": parsed(h.value)} for h in row.headers or ()],
    }


def expected_and_written(release: str, shape: str, **options: Any) -> tuple[list[Any], list[Any]]:
    recorded = [corrected(event, release) for event in recordings.events(release)]
    pairs = list(recordings.changes(recorded))
    for _, group in pairs:
        if len(group) == 3:
            # One change row has one clock; the connector made these two events one after the other.
            clock = {k: v for k, v in group[0]["value"]["payload"].items() if k.startswith("ts_")}
            group[2]["value"]["payload"].update(clock)
    options = {"schemas_enable": True, "null_as_default": True, "context_headers": True} | options
    changes, structures = [row for row, _ in pairs], recordings.tables().values()
    messages = recordings.encoded(changes, structures, topic_prefix="server1", shape=shape, **options)
    got = [written(row) for row in messages]
    want = [event for _, group in pairs for event in group]
    assert len(want) == len(recorded)
    return want, got


@pytest.mark.parametrize(("release", "shape"), SHAPES)
def test_every_recorded_event_is_written_again(release: str, shape: str) -> None:
    want, got = expected_and_written(release, shape)
    assert len(got) == len(want)
    found = []
    for number, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        for headers in (ours["headers"], theirs["headers"]):
            for header in headers:
                if header["name"].endswith(".runId"):
                    header["value"]["payload"] = "a run"
        found += recordings.differences(ours, theirs, str(number))
    assert found == []


@pytest.mark.parametrize(("release", "shape"), SHAPES[1:])
def test_without_schemas_only_the_payloads_are_written(release: str, shape: str) -> None:
    want, got = expected_and_written(release, shape, schemas_enable=False)
    found = []
    for number, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        for part in ("key", "value"):
            payload = None if theirs[part] is None else theirs[part]["payload"]
            found += recordings.differences(ours[part], payload, f"{number}.{part}")
    assert found == []
