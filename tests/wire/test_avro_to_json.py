"""Avro of several schemas is read as the JSON that says the same."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.smoke import examples
from tests.wire.avro_records import LONGS, RECORDS, SCHEMA, as_json, written

from headrace.wire.avro_schema import AvroSchema
from headrace.wire.avro_to_json import AvroJson
from headrace.wire.json_exact import BROKEN, READ
from headrace.wire.names import Names


def tape_of(values: list[bytes | None], which: list[int], head: int = 0) -> AvroJson:
    schema = AvroSchema("string", SCHEMA, {"type": "array", "items": "long"})
    return AvroJson(pa.array(values, pa.binary()), np.full(len(values), head), schema, np.array(which))


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=4), st.text(max_size=8), st.lists(LONGS, max_size=4))
def test_the_text_is_the_same_as_json(records: list[dict[str, Any]], text: str, numbers: list[int]) -> None:
    expected = [as_json(record) for record in records]
    for record in expected:
        # The shortest digits that tell a number of 4 bytes.
        if isinstance(record["float"], float):
            record["float"] = float(str(np.float32(record["float"])))
    data = [b"head" + written(SCHEMA, record) for record in records]
    data += [b"head" + written("string", text), b"head" + written({"type": "array", "items": "long"}, numbers)]
    tape = tape_of([*data, None], [1] * len(records) + [0, 2, -1], head=4)
    *texts, bare, listed, missing = tape.texts(tape.root).to_pylist()
    assert [json.loads(found) for found in texts] == expected
    assert (bare, json.loads(listed), missing) == (text, numbers, None)
    roots = tape.root[: len(records)]
    number, after = tape.fields(roots, Names([("number", "after")]))
    assert [int(found) for found in tape.texts(number).to_pylist()] == [record["number"] for record in records]
    assert [json.loads(found) for found in tape.texts(after).to_pylist()] == [record["after"] for record in expected]


def test_a_nested_value_is_found_by_its_json() -> None:
    inner = {"a": 1, "b": b"", "list": ["x", None]}
    record = {
        "number": 1, "text": None, "double": 0.5, "float": 0.5, "ok": True, "word": "A", "tags": {"k": 'q"'},
        "before": None, "after": inner, "fixed": b"abc",
    }  # fmt: skip
    tape = tape_of([written(SCHEMA, record)], [1])
    indexes = tape.fields(tape.root, Names([("after", "tags", "ok")]))
    texts = Names([('{"a":1,"b":"","list":["x",null]}', '{"k":"q\\""}', "true")])
    assert tape.among(indexes.reshape(-1), texts).all()


@settings(max_examples=examples(150), deadline=None)
@given(RECORDS, st.data())
def test_what_is_cut_or_goes_on_is_broken_and_the_next_one_is_read(record: dict[str, Any], data: st.DataObject) -> None:
    whole = written(SCHEMA, record)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    tape = tape_of([cut, whole + b"\0", whole], [1, 1, 1])
    assert tape.verdict.tolist() == [BROKEN, BROKEN, READ]
    assert json.loads(tape.texts(tape.root)[2].as_py())["number"] == record["number"]


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=40)), min_size=1, max_size=8))
def test_any_bytes_are_read_or_broken(values: list[tuple[int, bytes]]) -> None:
    tape = tape_of([value for _, value in values], [which for which, _ in values])
    for found in tape.texts(tape.root).to_pylist():
        assert found is None or found == found.encode().decode()


@pytest.mark.parametrize(("schema", "data"), [("string", b"\2\xff"), ("boolean", b"\2"), ("int", b"")])
def test_what_no_writer_writes_is_broken(schema: str, data: bytes) -> None:
    tape = AvroJson(pa.array([data], pa.binary()), np.zeros(1, np.int64), AvroSchema(schema), np.zeros(1, np.int64))
    assert tape.verdict.tolist() == [BROKEN]
