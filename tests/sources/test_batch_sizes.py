"""Rule: batches are bounded by bytes as well as by rows, whatever a driver gives; a row is never divided."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources import rows as change_rows
from headrace.sources.rows import Spool, rows_per_fetch, sized


def batch_of(lengths):
    return pa.record_batch([pa.array([length * "x" for length in lengths])], names=["v"])


@given(
    lengths=st.lists(st.lists(st.integers(0, 300), max_size=12), max_size=8),
    rows=st.integers(1, 10),
    most=st.integers(50, 1000),
    fetched=st.sampled_from([16, 32_768]),
)
def test_rows_keep_their_order_and_a_batch_its_bounds(lengths, rows, most, fetched):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(change_rows, "BATCH_BYTES", most)
        found = list(sized(map(batch_of, lengths), rows, fetched=fetched))
    assert [len(value.as_py()) for batch in found for value in batch.column(0)] == [n for some in lengths for n in some]
    for batch in found:
        assert 0 < batch.num_rows <= rows
        assert batch.num_rows == 1 or batch.nbytes <= most


def test_of_a_driver_no_more_is_taken_than_a_batch_needs():
    taken = []

    def fetched():
        for number in range(10):
            taken.append(number)
            yield batch_of([6 * 1024 * 1024])

    next(sized(fetched(), 1000, fetched=16))
    assert len(taken) == 3


@pytest.mark.parametrize(
    ("width", "large", "rows"),
    [(8, False, 32_768), (8_000, False, 8_388), (10**9, False, 1), (8, True, 16), (0, False, 32_768)],
)
def test_rows_per_fetch_follow_from_the_width_of_a_row(width, large, rows):
    assert rows_per_fetch(width, large=large, most=32_768) == rows


@pytest.mark.parametrize("in_memory", [10, 10**6])
def test_what_waits_comes_back_as_it_was(in_memory, monkeypatch):
    monkeypatch.setattr(change_rows, "_IN_MEMORY", in_memory)
    spool = Spool()
    given = [[pa.array(["a", None]), pa.array(["ä" * 50, ""])], [pa.array(["b"]), pa.nulls(1, pa.string())]]
    for texts in given:
        spool.add(texts)
    assert [[column.to_pylist() for column in texts] for texts in spool] == [[c.to_pylist() for c in t] for t in given]
    assert list(Spool()) == []
