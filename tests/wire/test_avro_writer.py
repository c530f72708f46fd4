"""What is written of columns is what Avro's own library writes of their values, and nothing else is written."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.smoke import examples
from tests.support.avro_records import RECORDS, SCHEMA, written

from headrace.wire import avro_writer
from headrace.wire.avro_schema import AvroSchema
from headrace.wire.avro_writer import write_avro

_ROWS = pa.list_(pa.struct([("a", pa.int32()), ("b", pa.binary())]))


def union_of(values: list[Any], branches: list[tuple[Any, pa.DataType]]) -> pa.UnionArray:
    """A column of null, or of values of these Python types."""
    indexes: list[list[Any]] = [[] for _ in range(len(branches) + 1)]
    codes, offsets = [], []
    for value in values:
        code = next((n for n, (kind, _) in enumerate(branches, 1) if isinstance(value, kind)), 0)
        codes.append(code)
        offsets.append(len(indexes[code]))
        indexes[code].append(value)
    children = [pa.nulls(len(indexes[0]))]
    children += [pa.array(held, kind) for held, (_, kind) in zip(indexes[1:], branches, strict=True)]
    return pa.UnionArray.from_dense(pa.array(codes, pa.int8()), pa.array(offsets, pa.int32()), children)


def column_of(records: list[dict[str, Any]]) -> pa.StructArray:
    parts = {name: [record[name] for record in records] for name in records[0]}
    columns = {
        "number": pa.array(parts["number"], pa.int64()),
        "text": union_of(parts["text"], [(str, pa.string()), (list, pa.list_(pa.int64()))]),
        "ratio": pa.array(parts["ratio"], pa.float64()),
        "word": pa.array(["ABC".index(word) for word in parts["word"]], pa.int8()),
        "tags": pa.array([list(tags.items()) for tags in parts["tags"]], pa.map_(pa.string(), pa.string())),
        "rows": pa.array(parts["rows"], _ROWS),
        "last": pa.array(["ABC".index(word) for word in parts["last"]], pa.int32()).dictionary_encode(),
    }
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=6), st.data())
def test_columns_are_written_as_avro_writes_their_values(records: list[dict[str, Any]], data: st.DataObject) -> None:
    expected = [written(record) for record in records]
    column = column_of(records)
    assert write_avro(AvroSchema(SCHEMA), column).to_pylist() == expected
    # A part of a column, and a column that says its values by their numbers.
    first = data.draw(st.integers(0, len(records)))
    rows = data.draw(st.lists(st.integers(0, len(records) - 1), max_size=8))
    if first == 0:
        taken = pa.DictionaryArray.from_arrays(pa.array(rows, pa.int32()), column)
        assert write_avro(AvroSchema(SCHEMA), taken).to_pylist() == [expected[row] for row in rows]
    tags = column.field("tags").slice(first)
    of_tags = AvroSchema({"type": "map", "values": "string"})
    assert write_avro(of_tags, tags).to_pylist() == [
        _written({"type": "map", "values": "string"}, record["tags"]) for record in records[first:]
    ]


def _written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ("boolean", pa.array([True, False])),
        ("float", pa.array([0.1, -1.0, float("inf")], pa.float32())),
        ("double", pa.array([0.1, 1e300, float("-inf")])),
        ("int", pa.array([0, -1, 63, -64, 64, 2**31 - 1, -(2**31)], pa.int32())),
        ("long", pa.array([2**63 - 1, -(2**63)])),
        ("null", pa.nulls(2)),
        ("bytes", pa.array([b"", bytes(range(256)) * 300])),
        ({"type": "fixed", "name": "F", "size": 3}, pa.array([b"abc", b"xyz"], pa.binary(3))),
        (["null", "string"], pa.array(["a", None, "é"])),
        (["string", "null"], pa.array([None, "b"])),
        (["null", "double"], pa.array([None, 0.5])),
        (["null", {"type": "array", "items": "long"}], pa.array([[1, 2], None, []])),
        ({"type": "array", "items": ["null", "boolean"]}, pa.array([[True, None], []])),
        ({"type": "map", "values": "long"}, pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64()))),
    ],
)
def test_each_type_is_written_as_avro_writes_it(schema: Any, column: pa.Array) -> None:
    values = [dict(v) if isinstance(v, list) and v and isinstance(v[0], tuple) else v for v in column.to_pylist()]
    if isinstance(schema, dict) and schema["type"] == "map":
        values = [dict(value) for value in values]
    assert write_avro(AvroSchema(schema), column).to_pylist() == [_written(schema, value) for value in values]


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ("long", pa.array([1, None])),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.array([0, 1])),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.array([-1])),
        (["null", "string"], pa.UnionArray.from_dense(pa.array([1], pa.int8()), pa.array([5], pa.int32()),
                                                      [pa.nulls(0), pa.array(["a"])])),
        (["null", "string", "long"], pa.array(["a"])),
        ({"type": "record", "name": "R", "fields": []}, pa.array([{"a": 1}])),
        ({"type": "array", "items": "string"}, pa.array([["a", None]])),
    ],
)  # fmt: skip
def test_what_is_not_as_the_schema_says_is_refused(schema: Any, column: pa.Array) -> None:
    with pytest.raises(ValueError, match=r"Avro schema|branch|record"):
        write_avro(AvroSchema(schema), column)


def test_nothing_is_written_behind_the_end_of_the_room() -> None:
    column = column_of([record for n in range(40) for record in (_record(n),)])
    layout = avro_writer._Layout(AvroSchema(SCHEMA))
    root = layout.add(AvroSchema(SCHEMA).root, column)
    columns, frames = layout.columns(), avro_writer.WriteFrames(*(np.zeros(9, np.int64) for _ in range(4)))
    whole = write_avro(AvroSchema(SCHEMA), column).to_pylist()
    for room in (*range(0, 60), 400):
        out, offsets = np.full(room + 16, 255, np.uint8), np.zeros(len(column) + 1, np.int32)
        row, reason = avro_writer.write_rows(columns, root, frames, 0, offsets, out[:room])
        assert reason < 0
        assert b"".join(whole[:row]) == out[: offsets[row]].tobytes()
        assert (out[room:] == 255).all()


def _record(n: int) -> dict[str, Any]:
    text = [None, "t" * n, [n, -n]][n % 3]
    rows = [{"a": None, "b": b"x" * n}, {"a": n, "b": b""}][: n % 3]
    return {"number": n, "text": text, "ratio": n / 3, "word": "A", "tags": {"k": "v" * n}, "rows": rows, "last": "B"}
