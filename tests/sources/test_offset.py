"""Rule.

An offset is readable JSON that comes back the same, grows with tables in snapshot only, and is refused when it is
foreign.
"""

import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import NewerRelease
from headrace.sources.offset import Offset, TableProgress

keys = st.tuples(st.none() | st.text(max_size=4), st.none() | st.text(max_size=4))
progresses = st.builds(
    TableProgress,
    commit=st.sampled_from(["00000027:00000758:0005", "00000028:00000001:0001"]),
    chunk=st.integers(0, 10**6),
    lower=st.none() | keys,
    last=st.none() | keys,
    bounds=st.lists(st.none() | keys, max_size=4).map(tuple),
    rows=st.integers(-1, 10**12),
    done=st.booleans(),
)
times = st.none() | st.datetimes(timezones=st.just(dt.UTC))
offsets = st.builds(
    Offset,
    source=st.text(max_size=5),
    commit=st.text("0123456789abcdef:", max_size=22),
    commit_time=times,
    capture_time=times,
    clock=st.sampled_from(["", "+02:00", "Europe/Berlin"]),
    initial=st.booleans(),
    known=st.lists(st.text(max_size=5), unique=True, max_size=3).map(tuple),
    tables=st.dictionaries(st.text(max_size=5), progresses, max_size=3),
)


@given(offsets)
def test_an_offset_comes_back_from_its_json(offset):
    assert Offset.from_json(json.loads(offset.to_text())) == offset


@given(offsets)
def test_the_same_offset_has_the_same_text(offset):
    shuffled = dict(reversed(list(offset.tables.items())))
    assert Offset.from_json({**offset.to_json()}).to_text() == offset.to_text()
    assert Offset(**{**offset.__dict__, "tables": shuffled}).to_text() == offset.to_text()


def test_an_offset_of_a_later_release_is_refused():
    with pytest.raises(NewerRelease, match="version 99"):
        Offset.from_json({**Offset().to_json(), "version": 99})


def test_a_table_without_a_chunk_in_the_next_batch_goes_on_where_it_stopped():
    progress = TableProgress("c", chunk=4, lower=("10",), bounds=(("20",), ("30",)))
    assert progress.advanced() == TableProgress("c", chunk=6, lower=("30",), bounds=())
    assert progress.advanced().advanced() == progress.advanced()


@pytest.mark.parametrize(
    ("initial", "table", "level"),
    [
        (True, TableProgress("c5", done=True), False),
        (False, TableProgress("c5", done=True), True),
        (False, TableProgress("c6", done=True), True),
        (False, TableProgress("c4", done=True), False),
        (False, TableProgress("c5"), False),
    ],
)
def test_an_offset_is_level_when_no_table_lags_behind_its_commit(initial, table, level):
    assert Offset("s", "c5", initial=initial, tables={"t": table}).is_level is level
