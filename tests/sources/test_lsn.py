"""Columns of log sequence numbers are spelled as single ones are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.change_tables import lsn


def columns() -> st.SearchStrategy[list[bytes | None]]:
    def of(size: int) -> st.SearchStrategy[list[bytes | None]]:
        return st.lists(st.none() | st.binary(min_size=size, max_size=size), max_size=20)

    return st.sampled_from((10, 16)).flatmap(of)


@given(values=columns(), skipped=st.integers(0, 3))
def test_a_column_is_spelled_as_its_values_are(values: list[bytes | None], skipped: int) -> None:
    written = [None if value is None else lsn.read(value) for value in values][skipped:]
    assert lsn.to_texts(pa.array(values, pa.binary())[skipped:]).to_pylist() == written
    digits = [None if value is None else value.hex().upper() for value in values]
    assert lsn.to_texts(pa.array(digits, pa.string())[skipped:]).to_pylist() == written


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([b"short"], "an LSN has 10 or 16 bytes, not 5"),
        ([bytes(10), bytes(16)], "the LSNs of a column have different lengths"),
        (["0" * 19 + "x"], "an LSN holds what is no hexadecimal digit"),
    ],
)
def test_what_is_no_column_of_lsns_is_refused(values: list[bytes] | list[str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        lsn.to_texts(pa.array(values))


@given(st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_numbers_are_spelled_with_eight_digits(numbers: list[int]) -> None:
    assert lsn.words(np.array(numbers, np.int64)).to_pylist() == [f"{number:08x}" for number in numbers]
