"""Avro is read as its own library reads it, and bytes that are no record cost nothing but themselves."""

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
from tests.support.avro_records import _PARSED, RECORDS, SCHEMA, written

from headrace.wire.avro_schema import AvroSchema
from headrace.wire.avro_tape import AvroTape
from headrace.wire.json_exact import BROKEN, NULL, READ


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=5), st.binary(max_size=3))
def test_what_was_written_is_read(records: list[dict[str, Any]], after: bytes) -> None:
    tape = AvroTape(pa.array([written(record) + after for record in records], pa.binary()), AvroSchema(SCHEMA))
    assert (tape.verdict == READ).all()
    fields = tape.records(tape.root, 7)
    assert tape.numbers(fields[0]).tolist() == [record["number"] for record in records]
    assert tape.doubles(fields[2]).tolist() == [record["ratio"] for record in records]
    for index, name in ((3, "word"), (6, "last")):
        assert ["ABC"[symbol] for symbol in tape.numbers(fields[index])] == [record[name] for record in records]
    for row, record in enumerate(records):
        text = fields[1, row : row + 1]
        if isinstance(record["text"], list):
            assert tape.branch[text[0]] == 2
            assert tape.numbers(tape.items(text)[1]).tolist() == record["text"]
        else:
            assert tape.texts(text).to_pylist() == [record["text"]]
        members = tape.members(fields[4, row : row + 1])
        pairs = zip(tape.texts(members.names).to_pylist(), tape.texts(members.values).to_pylist(), strict=True)
        assert dict(pairs) == record["tags"]
        rows = tape.records(tape.items(fields[5, row : row + 1])[1], 2)
        numbers = np.where(tape.kinds(rows[0]) == NULL, None, tape.numbers(rows[0]).astype(object)).tolist()
        assert numbers == [line["a"] for line in record["rows"]]
        assert tape.bytes(rows[1]).to_pylist() == [line["b"] for line in record["rows"]]


@settings(max_examples=examples(150), deadline=None)
@given(RECORDS, st.data())
def test_a_record_that_is_cut_is_broken_and_the_next_one_is_read(record: dict[str, Any], data: st.DataObject) -> None:
    whole = written(record)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    tape = AvroTape(pa.array([cut, whole, None], pa.binary()), AvroSchema(SCHEMA))
    assert tape.verdict.tolist()[:2] == [BROKEN, READ]
    assert (tape.root >= 0).tolist() == [False, True, False]
    assert tape.numbers(tape.records(tape.root, 1)[0])[1] == record["number"]


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=8))
def test_any_bytes_are_read_or_broken(values: list[bytes]) -> None:
    tape = AvroTape(pa.array(values, pa.binary()), AvroSchema(SCHEMA))
    for row, value in enumerate(values):
        try:
            fastavro.schemaless_reader(io.BytesIO(value), _PARSED, None)
            fine = True
        except UnicodeDecodeError:
            # Whether texts are UTF-8 is asked for where they are used.
            fine = tape.verdict[row] == READ
        except Exception:
            fine = False
        if tape.verdict[row] == READ and not fine:
            # fastavro reads numbers of more than 64 bits, and refuses what it can't convert; never the other way round.
            raise AssertionError(value)


@pytest.mark.parametrize("count", [b"\xfe\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x80" * 12])
def test_a_length_that_is_not_there_is_broken(count: bytes) -> None:
    for kind in ("string", "bytes", {"type": "array", "items": "null"}, {"type": "map", "values": "long"}):
        tape = AvroTape(pa.array([count + b"\x00\x00"], pa.binary()), AvroSchema({"type": kind}))
        assert tape.verdict.tolist() == [BROKEN]
