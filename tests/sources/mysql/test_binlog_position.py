"""Places in the binary log sort as the log goes on, as values and as texts; an offset ends before a boundary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.mysql import binlog_position
from headrace.sources.mysql.binlog_position import BinlogPosition

PLACES = st.builds(BinlogPosition, st.integers(0, 10**4 - 1), st.integers(0, 10**10 - 1), st.integers(0, 2**64 - 1))


@given(PLACES, PLACES)
def test_texts_sort_as_places_do(one: BinlogPosition, other: BinlogPosition) -> None:
    assert (one < other) == (one.text < other.text)
    assert BinlogPosition.of(one.text) == one


def test_the_epoch_goes_before_the_file_and_the_file_before_the_position() -> None:
    assert BinlogPosition(0, 9, 900) < BinlogPosition(0, 10, 4) < BinlogPosition(1, 1, 4)
    assert BinlogPosition(1, 42, 5_000_000_000).text == "0001:0000000042:00000000005000000000"


def test_a_transaction_is_in_the_batch_whose_end_is_behind_its_beginning() -> None:
    edges = [BinlogPosition(0, 1, 4), BinlogPosition(0, 1, 330), BinlogPosition(0, 2, 4)]
    commits = [binlog_position.commit_before(edge) for edge in edges]
    assert [binlog_position.boundary(commit) for commit in commits] == edges
    assert commits[0] < edges[0].text <= commits[1] < edges[1].text <= commits[2] < edges[2].text


def test_nothing_is_before_the_first_byte() -> None:
    assert binlog_position.commit_before(BinlogPosition(0, 1, binlog_position.FIRST)) > binlog_position.ZERO
    with pytest.raises(ValueError, match="not a place"):
        binlog_position.commit_before(BinlogPosition(0, 1, 0))


@pytest.mark.parametrize("text", ["", "0:1:4", "0000:0000000001:4", "0000:000000000a:00000000000000000004"])
def test_another_text_is_no_place(text: str) -> None:
    with pytest.raises(ValueError, match="not a place"):
        BinlogPosition.of(text)


@pytest.mark.parametrize(
    ("name", "base", "number"),
    [("mysql-bin.000042", "mysql-bin", 42), ("a.b.000001", "a.b", 1), ("binlog.1234567", "binlog", 1_234_567)],
)
def test_files_are_known_by_base_name_and_number(name: str, base: str, number: int) -> None:
    assert binlog_position.file_of(name) == (base, number)
    assert binlog_position.file_name(base, number) == name


@pytest.mark.parametrize("name", ["", "mysql-bin", "mysql-bin.", "mysql-bin.index", ".000001"])
def test_a_name_without_a_number_is_no_file_of_the_log(name: str) -> None:
    with pytest.raises(ValueError, match="not a file"):
        binlog_position.file_of(name)
