"""What is written is JSON in the one spelling that key texts have."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.smoke import examples

from headrace.changes.texts import key_text
from headrace.wire.arrays import offsets_of
from headrace.wire.json_writer import Entries, Part, are_numbers, members, messages, objects, string_lists

TEXTS = st.text(max_size=12) | st.sampled_from(["", '"\\/', "\x00\x1f\x7f", "é日😀", "\b\f\n\r\t"])


def written(text: str | None) -> str:
    return key_text([text])[1:-1]


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.none() | st.lists(st.tuples(TEXTS, TEXTS | st.none()), max_size=4), min_size=1, max_size=5))
def test_objects(rows: list[list[tuple[str, str | None]] | None]) -> None:
    pairs = [pair for row in rows for pair in row or []]
    numbers = np.arange(len(pairs), dtype=np.int32)
    entries = Entries(
        offsets_of([len(row or []) for row in rows]), numbers, numbers, np.array([r is not None for r in rows])
    )
    names, values = pa.array([p[0] for p in pairs], pa.string()), pa.array([p[1] for p in pairs], pa.string())
    wanted = [None if r is None else "{" + ",".join(f"{written(n)}:{written(v)}" for n, v in r) + "}" for r in rows]
    assert objects(entries, names, values).to_pylist() == wanted


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.none() | st.lists(TEXTS | st.none(), max_size=4), min_size=1, max_size=5))
def test_lists_of_strings_are_key_texts(rows: list[list[str | None] | None]) -> None:
    values = pa.array([text for row in rows for text in row or []], pa.string())
    found = string_lists(offsets_of([len(row or []) for row in rows]), values, np.array([r is not None for r in rows]))
    assert found.to_pylist() == [None if row is None else key_text(row) for row in rows]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(TEXTS | st.none(), TEXTS | st.none()), min_size=1, max_size=5))
def test_messages_are_constants_and_columns(rows: list[tuple[str | None, str | None]]) -> None:
    # A slice, so that the columns do not begin at their buffers' beginning.
    columns = [pa.array(["before", *column], pa.string()).slice(1) for column in zip(*rows, strict=True)]
    found = messages(['{"a":', Part(columns[0], quoted=True), ',"é":', Part(columns[1]), "}"], len(rows))
    wanted = [f'{{"a":{written(a)},"é":{"null" if b is None else b}}}' for a, b in rows]
    assert found.to_pylist() == wanted


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(TEXTS | st.none(), TEXTS | st.none()), min_size=1, max_size=5))
def test_members_that_are_null_are_left_out(rows: list[tuple[str | None, str | None]]) -> None:
    columns = [pa.array(["before", *column], pa.string()).slice(1) for column in zip(*rows, strict=True)]
    found = members({"a": Part(columns[0], quoted=True), 'é"': Part(columns[1])}, len(rows))
    pairs = [
        [written(n) + ":" + v for n, v in (("a", None if a is None else written(a)), ('é"', b)) if v is not None]
        for a, b in rows
    ]
    assert found.to_pylist() == ["{" + ",".join(pair) + "}" for pair in pairs]


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.text("0123456789-+.eE ", max_size=6), max_size=9))
def test_what_is_a_number_of_json(texts: list[str]) -> None:
    def is_number(text: str) -> bool:
        try:
            return isinstance(json.loads(text), (int, float)) and text == text.strip()
        except ValueError:
            return False

    column = pa.array(texts, pa.string())
    assert are_numbers(column, np.ones(len(texts), bool)).tolist() == [is_number(text) for text in texts]
    assert not are_numbers(column, np.zeros(len(texts), bool)).any()


def test_plain_values_stand_as_they_are() -> None:
    values, plain = pa.array(["1.50", "1.50", None], pa.string()), np.array([True, False, True])
    numbers, offsets, present = np.arange(3, dtype=np.int32), np.array([0, 3], np.int32), np.array([True])
    found = objects(Entries(offsets, numbers, numbers, present), pa.array(["a", "b", "c"]), values, plain)
    assert found.to_pylist() == ['{"a":1.50,"b":"1.50","c":null}']
    assert string_lists(offsets, values, present, plain).to_pylist() == ['[1.50,"1.50",null]']
