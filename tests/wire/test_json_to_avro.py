"""JSON is written as the Avro that its own library writes of the same values."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.smoke import examples
from tests.wire.avro_records import RECORDS, SCHEMA, as_json, written

from headrace.wire.avro_schema import AvroSchema
from headrace.wire.json_to_avro import json_to_avro
from headrace.wire.tape import Tape

_LONGS = {"type": "array", "items": "long"}


def avro(texts: list[str | None], which: list[int], *schemas: Any) -> list[bytes | None]:
    tape = Tape(pa.array([None if text is None else text.encode() for text in texts], pa.binary()))
    made = json_to_avro(tape, tape.root, AvroSchema(*schemas), np.array(which))
    made.validate(full=True)
    return list(made.to_pylist())


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=4), st.text(max_size=8), st.booleans(), st.randoms())
def test_the_bytes_are_those_of_avros_library(
    records: list[dict[str, Any]], text: str, escaped: bool, rng: Any
) -> None:
    for record in records:
        del record["fixed"], record["word"]
    schema = {**SCHEMA, "fields": [f for f in SCHEMA["fields"] if f["name"] not in ("fixed", "word")]}
    lines = [as_json(record) for record in records]
    # Members that are null may be left out, and their order is free.
    for line in lines:
        names = [name for name in line if line[name] is not None]
        rng.shuffle(names)
        line |= {name: line.pop(name) for name in names}
        if line["text"] is None:
            del line["text"]
    texts = [json.dumps(line, ensure_ascii=escaped) for line in lines]
    found = avro([*texts, None, json.dumps(text)], [0] * len(texts) + [0, 1], schema, "string")
    assert found == [*(written(schema, record) for record in records), None, written("string", text)]


@pytest.mark.parametrize("number", [0, 63, -64, 64, 2**63 - 1, -(2**63)])
def test_whole_numbers(number: int) -> None:
    assert avro([f"[{number}]", "[]"], [0, 0], _LONGS) == [written(_LONGS, [number]), b"\0"]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("long", "9223372036854775808"), ("long", "-9223372036854775809"), ("long", "1.0"), ("long", '"1"'),
        ("bytes", '"abc"'), ("bytes", '"ab$="'), ("string", "1"), ("boolean", "0"), ("double", '"x"'), ("double", "{}"),
        ("null", "1"), (["null", "long"], '"x"'), (_LONGS, "{}"), (_LONGS, "[null]"),
        ({"type": "record", "name": "R", "fields": [{"name": "x", "type": "long"}]}, "{}"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(schema: Any, text: str) -> None:
    with pytest.raises(ValueError, match="match its Avro schema"):
        avro([text], [0], schema)


def test_what_does_not_fit_is_named() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "float"}, {"name": "k", "type": "int"}]}
    outer = {"type": "record", "name": "O", "fields": [{"name": "one", "type": inner}, {"name": "two", "type": "I"}]}
    for text, field in (
        ('{"one":{"n":1,"k":1},"two":{"n":1}}', "k"),
        ('{"one":{"n":1,"k":1},"two":{"n":"1e39","k":1}}', "n"),
        ('{"one":{"n":"x","k":1},"two":{"n":1,"k":1}}', "n"),
        ('{"one":{"n":1,"k":1}}', "two"),
    ):
        with pytest.raises(ValueError, match=f"^field '{field}' does not match its Avro schema$"):
            avro([text], [0], outer)


@pytest.mark.parametrize("text", ["Infinity", "-Infinity", "inf", "1e38"])
def test_numbers_as_texts(text: str) -> None:
    assert avro([json.dumps(text)], [0], "float") == [written("float", float(text))]


def test_what_is_longer_as_avro_finds_room() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": f"f{n}", "type": ["null", "int"]} for n in range(200)]}
    assert avro(["{}"] * 50, [0] * 50, schema) == [bytes(200)] * 50
