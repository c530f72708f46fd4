"""Columns of a tape are what Python's dictionaries and lists of the same messages hold."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from json_texts import VALUES
from tests.smoke import examples

from headrace.wire.arrays import map_array, map_of, text_view
from headrace.wire.names import Names
from headrace.wire.tape import Tape

NAMES = st.sampled_from(["a", "b", "", "é", "longer than a word", 'with "quotes"', "line\nbreak", "x" * 40])
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=6)


def text_of(value: Any) -> Any:
    """What a tape gives as the text of a value."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def tape_of(values: list[Any]) -> Tape:
    return Tape(pa.array([json.dumps(value).encode() for value in values], pa.binary()))


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(OBJECTS, min_size=1, max_size=6))
def test_fields_are_found_by_name_in_the_set_of_their_row(objects: list[dict[str, Any]]) -> None:
    sets = [["a", 'with "quotes"', "missing"], [], ["x" * 40, "é", "", "line\nbreak"]]
    group = np.arange(len(objects), dtype=np.int32) % 3
    tape = tape_of(objects)
    at = tape.fields(tape.root, Names(sets), group)
    for row, value in enumerate(objects):
        for index in range(4):
            name = sets[group[row]][index] if index < len(sets[group[row]]) else None
            assert (at[index, row] >= 0) == (name in value)
            if name in value:
                assert tape.text(at[index, row]) == text_of(value[name])


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(OBJECTS, OBJECTS), min_size=1, max_size=5))
def test_an_object_laid_over_another_is_a_dictionary_updated(pairs: list[tuple[Any, Any]]) -> None:
    tape = tape_of([value for pair in pairs for value in pair])
    members = tape.members(np.ascontiguousarray(tape.root[::2]), np.ascontiguousarray(tape.root[1::2]))
    found = map_array(members.offsets, tape.texts(members.names), tape.texts(members.values))
    found.validate(full=True)
    for row, (value, over) in zip(found.to_pylist(), pairs, strict=True):
        assert row == [(name, text_of(v)) for name, v in {**value, **over}.items()]


def test_of_a_name_that_an_object_repeats_the_last_value_counts() -> None:
    tape = Tape(pa.array([b'{"a":1,"b":2,"\\u0061":3,"a":"4"}'], pa.binary()))
    members = tape.members(tape.root)
    assert tape.texts(members.names).to_pylist() == ["a", "b"]
    assert tape.texts(members.values).to_pylist() == ["4", "2"]
    assert tape.texts(tape.fields(tape.root, Names([["a"]]))[0]).to_pylist() == ["4"]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.lists(VALUES, max_size=4) | st.none() | OBJECTS, min_size=1, max_size=6))
def test_items_of_arrays(values: list[Any]) -> None:
    tape = tape_of(values)
    offsets, at = tape.items(tape.root)
    texts = tape.texts(at).to_pylist()
    for row, value in enumerate(values):
        wanted = [text_of(item) for item in value] if isinstance(value, list) else []
        assert texts[offsets[row] : offsets[row + 1]] == wanted


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=12))
def test_rows_of_one_text_are_one_group(pairs: list[Any]) -> None:
    tape = tape_of([{"a": a, "b": b} for a, b in pairs])
    groups = tape.groups(tape.fields(tape.root, Names([["a", "b"]])))
    texts = [json.dumps(pair) for pair in pairs]
    for row, text in enumerate(texts):
        assert texts[groups.first[groups.of[row]]] == text
    assert len(groups.first) == len(set(texts))


def test_a_value_that_is_replaced_has_its_new_text_everywhere() -> None:
    tape = tape_of([{"a": "1", "b": {"a": 2}}, {"a": None}, {"a": "x\ny"}])
    at = tape.fields(tape.root, Names([["a"]]))[0]
    tape.replace(at, pa.array(["one", "nothing", 'th"ree']))
    assert tape.texts(at).to_pylist() == ["one", "nothing", 'th"ree']
    members = tape.members(tape.root)
    assert tape.texts(members.values).to_pylist() == ["one", '{"a": 2}', "nothing", 'th"ree']


def test_maps_of_columns_leave_out_what_is_null() -> None:
    found = map_of(
        [("a", pa.array(["1", None])), ("b", pa.array([None, "2"]).cast(pa.string()))], np.array([True, True])
    )
    assert found.to_pylist() == [[("a", "1")], [("b", "2")]]
    assert map_of([("a", pa.array(["1"]))], np.array([False])).to_pylist() == [None]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=6))
def test_compact_values_have_no_blanks(values: list[Any]) -> None:
    tape = tape_of(values)
    tape.compact(tape.root)
    wanted = [json.dumps(v, separators=(",", ":")) if isinstance(v, (dict, list)) else text_of(v) for v in values]
    assert tape.texts(tape.root).to_pylist() == wanted


def test_what_kernels_read_is_of_one_type_whoever_made_it() -> None:
    tape = tape_of(["a", None])
    for column in (tape.texts(tape.root), pa.array(["a", None]), pa.array([], pa.string())):
        view = text_view(column)
        assert not any(part.flags.writeable for part in (view.data, view.offsets, view.valid))
