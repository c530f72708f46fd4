"""Rule: the line of a message is a JSON object with its texts, or with base64 where bytes are no text."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.codec import MESSAGES
from headrace.wire.lines import lines

BYTES = st.none() | st.binary(max_size=8) | st.text(max_size=8).map(str.encode)
HEADERS = st.none() | st.lists(st.fixed_dictionaries({"key": st.text(max_size=3), "value": BYTES}), max_size=3)
MESSAGE = st.fixed_dictionaries(
    {
        "topic": st.none() | st.text(max_size=5),
        "key": BYTES,
        "value": BYTES,
        "headers": HEADERS,
        "position": st.text(max_size=5),
    }
)


def is_text(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False


def written(name: str, value: bytes | None, *, text: bool) -> dict[str, Any]:
    if text:
        return {name: None if value is None else value.decode()}
    return {f"{name}_base64": None if value is None else base64.b64encode(value).decode()}


def expected(message: dict[str, Any]) -> dict[str, Any]:
    whole = is_text(message["key"]) and is_text(message["value"])
    headers = message["headers"]
    if headers is not None:
        plain = all(is_text(header["value"]) for header in headers)
        headers = [{"key": h["key"], **written("value", h["value"], text=plain)} for h in headers]
    key, value = (written(name, message[name], text=whole) for name in ("key", "value"))
    return {"topic": message["topic"], **key, **value, "headers": headers, "position": message["position"]}


@given(st.lists(MESSAGE, max_size=6), st.integers(0, 2))
def test_a_line_says_what_the_message_holds(messages: list[dict[str, Any]], skipped: int) -> None:
    batch = pa.RecordBatch.from_pylist([{"partition": None, **one} for one in messages], MESSAGES)[skipped:]
    made = lines(batch).to_pylist()
    assert not any("\n" in line for line in made)
    assert [json.loads(line) for line in made] == [expected(one) for one in messages[skipped:]]
    assert [list(json.loads(line)) for line in made] == [list(expected(one)) for one in messages[skipped:]]
