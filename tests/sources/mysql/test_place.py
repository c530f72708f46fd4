"""Places in the binary log sort as the log goes on, as values and as texts; an offset ends before a boundary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.mysql import place
from headrace.sources.mysql.place import Place

PLACES = st.builds(Place, st.integers(0, 10**4 - 1), st.integers(0, 10**10 - 1), st.integers(0, 2**64 - 1))


@given(PLACES, PLACES)
def test_texts_sort_as_places_do(one: Place, other: Place) -> None:
    assert (one < other) == (one.text < other.text)
    assert Place.of(one.text) == one


def test_the_epoch_goes_before_the_file_and_the_file_before_the_position() -> None:
    assert Place(0, 9, 900) < Place(0, 10, 4) < Place(1, 1, 4)
    assert Place(1, 42, 5_000_000_000).text == "0001:0000000042:00000000005000000000"


def test_a_transaction_is_in_the_batch_whose_end_is_behind_its_beginning() -> None:
    edges = [Place(0, 1, 4), Place(0, 1, 330), Place(0, 2, 4)]
    commits = [place.commit_before(edge) for edge in edges]
    assert [place.boundary(commit) for commit in commits] == edges
    assert commits[0] < edges[0].text <= commits[1] < edges[1].text <= commits[2] < edges[2].text


def test_nothing_is_before_the_first_byte() -> None:
    assert place.commit_before(Place(0, 1, place.FIRST)) > place.ZERO
    with pytest.raises(ValueError, match="not a place"):
        place.commit_before(Place(0, 1, 0))


@pytest.mark.parametrize("text", ["", "0:1:4", "0000:0000000001:4", "0000:000000000a:00000000000000000004"])
def test_another_text_is_no_place(text: str) -> None:
    with pytest.raises(ValueError, match="not a place"):
        Place.of(text)


@pytest.mark.parametrize(
    ("name", "base", "number"),
    [("mysql-bin.000042", "mysql-bin", 42), ("a.b.000001", "a.b", 1), ("binlog.1234567", "binlog", 1_234_567)],
)
def test_files_are_known_by_base_name_and_number(name: str, base: str, number: int) -> None:
    assert place.file_of(name) == (base, number)
    assert place.file_name(base, number) == name


@pytest.mark.parametrize("name", ["", "mysql-bin", "mysql-bin.", "mysql-bin.index", ".000001"])
def test_a_name_without_a_number_is_no_file_of_the_log(name: str) -> None:
    with pytest.raises(ValueError, match="not a file"):
        place.file_of(name)
