"""What decoding makes of recorded events, and of messages that are no data change event."""

from __future__ import annotations

import json
import re
from typing import Any

import debezium_recordings as recordings
import pytest
from codec_rows import change_rows


def text(value: Any, spaced: bool = False) -> bytes | None:
    if value is None:
        return None
    return json.dumps(value, ensure_ascii=False, separators=None if spaced else (",", ":")).encode()


def kafka(messages: list[tuple[str, Any, Any]], spaced: bool = False) -> list[tuple[Any, ...]]:
    return [(t, 0, n, None, text(k, spaced), text(v, spaced), None) for n, (t, k, v) in enumerate(messages)]


def decoded(messages: list[tuple[Any, ...]], **options: Any) -> list[dict[str, Any]]:
    return change_rows("debezium_json", messages, **options)


@pytest.mark.parametrize(("release", "spaced"), [("1.7.2", False), ("3.6.1", False), ("3.6.1", True)])
def test_recorded_events_become_the_rows_they_came_from(release: str, spaced: bool) -> None:
    events = recordings.events(release)
    rows = decoded(kafka([(e["topic"], e["key"], e["value"]) for e in events], spaced))
    assert [row["error"] for row in rows if row["op"] == "error"] == []
    data = [row for row in rows if row["op"] != "schema"]
    assert len(data) == len(events)
    structures = recordings.tables()
    for row, event in zip(data, events, strict=True):
        if event["value"] is None:
            assert row["op"] == "tombstone"
            continue
        payload = event["value"]["payload"]
        schema = recordings.structure(event)
        assert (row["op"], row["table"]["name"]) == (payload["op"], schema.id.name)
        assert row["transaction"] == payload["transaction"]
        assert list(row["key"] or {}) == list(schema.key)
        for image in ("before", "after"):
            want = recordings.image(payload[image], schema)
            got = row[image]
            assert (got is None) == (want is None)
            if want is not None:
                assert list(got) == list(want)
                for name, value in want.items():
                    kind = schema.column(name).logical
                    assert equal(got[name], value, kind.kind), (name, got[name], value)
    assert {row["table"]["name"] for row in rows if row["op"] == "schema"} == {
        name for name, _ in structures if name != "debezium_signal"
    }
    names = [row["table"]["name"] for row in rows if row["op"] == "schema"]
    assert names.count("orders") == 2


def equal(ours: str | None, theirs: str | None, kind: str) -> bool:
    """Times come with the digits of their unit: more zeros, or fewer where the wire has dropped them."""
    if ours is None or theirs is None or kind not in ("time", "timestamp", "zoned_timestamp"):
        return ours == theirs or (kind.startswith("float") and ours is not None and float(ours) == float(theirs or ""))
    if kind == "zoned_timestamp":
        return ours == re.sub(r"\.?0+(?=Z|[+-]\d\d:\d\d$)", "", theirs) if "." in theirs else ours == theirs
    return ours.rstrip("0.") == theirs.rstrip("0.")


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (b"{", None, "The key is not JSON."),
        (b"[1]", b'{"before":null,"after":{"id":1},"op":"c"}', "The key is not a JSON object."),
        (None, b"no json", "The value is not JSON."),
        (None, b"\xff\xfe", "The value is not UTF-8 text."),
        (None, b"[1]", "The value does not have the form of a Debezium event."),
        (None, b'{"before":null,"after":{"id":1},"op":"c"}{"op":"d"}', "The value is not JSON."),
        (None, b'{"before":null,"after":{"id":1},"op":"x"}', "The operation is not one of r, c, u, d, t, m."),
        (None, b'{"before":null,"after":{"id":1,"id":2},"op":"c"}', "The value has a field twice."),
        (None, b'{"before":null,"after":5,"op":"c"}', "The value does not have the form of a Debezium event."),
        (None, b'{"before":{"id":1},"after":null,"op":"u"}', "The event has no new row."),
        (
            None,
            b'{"before":null,"after":null,"source":{},"op":"d"}',
            "The event has neither an old row nor a key.",
        ),
        (None, b'{"id":1}', "The value is not a data change event."),
        (
            None,
            b'{"schema":{"type":"struct","fields":[]},"payload":{"ts_ms":1}}',
            "The value is not a data change event.",
        ),
    ],
)
def test_what_is_no_data_change_becomes_an_error_row(key: bytes | None, value: bytes | None, error: str) -> None:
    good = next(e for e in recordings.events("3.6.1") if e["value"] is not None)
    rows = decoded(
        [
            (good["topic"], 0, 0, None, text(good["key"]), text(good["value"]), None),
            ("other", 0, 1, None, key, value, None),
        ]
    )
    assert [row["op"] for row in rows] == ["schema", "r", "error"]
    assert error in rows[2]["error"]
    assert (rows[2]["message"]["key"], rows[2]["message"]["value"]) == (key, value)
    assert rows[1]["message"]["value"] is None


def test_a_value_that_breaks_its_schema_is_an_error_row() -> None:
    events = [e for e in recordings.events("3.6.1") if "customers" in e["topic"] and e["value"] is not None][:2]
    events[1]["value"]["payload"]["after"]["id"] = "not a number"
    rows = decoded(kafka([(e["topic"], e["key"], e["value"]) for e in events]))
    assert [row["op"] for row in rows] == ["schema", "r", "error"]
    assert rows[2]["error"] == "The value does not follow its schema."


def test_a_schema_and_a_payload_that_are_null_are_a_tombstone() -> None:
    empty = b'{"schema":null,"payload":null}'
    bare = b'{"schema":{"type":"struct","fields":[]},"payload":null}'
    rows = decoded([("s.d.t", 0, n, None, b'{"id":1}', value, None) for n, value in enumerate((empty, bare, b"null"))])
    assert [(row["op"], row["key"], row["table"]["name"]) for row in rows] == [("tombstone", {"id": "1"}, "t")] * 3


def test_what_stands_in_front_of_payloads_is_cut_off_and_every_other_text_is_read_as_it_is() -> None:
    """A hundred messages teach a task what its messages open with; what comes behind is read with and without that."""
    good = next(e for e in recordings.events("3.6.1") if e["value"] is not None)
    value, key = text(good["value"]), text(good["key"])
    assert value is not None
    payload = text(good["value"]["payload"])
    others = [
        value + b" ",
        value[:-1],
        value + b"}",
        value[:-1] + b',"more":1}',
        value.replace(b'"payload":{', b'"payload": {'),
        value.replace(b'"op":', b'"op":1,"op":'),
        b" " + value,
        payload,
    ]
    learned = [(good["topic"], 0, n, None, key, value, None) for n in range(100)]
    ends = [(good["topic"], 0, 100 + n, None, key, other, None) for n, other in enumerate(others)]
    after = [row for row in decoded(learned + ends) if row["op"] != "schema"][100:]
    alone = [row for row in decoded(ends) if row["op"] != "schema"]
    assert after == alone
    same = [row["op"] for row in after]
    assert same == ["r", "error", "error", "error", "r", "r", "r", "r"]
