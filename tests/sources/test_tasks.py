"""Rule: neighbouring slices that are light are read by one task, in their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.base import Slice
from headrace.sources.reader import tasks


def slices(weights: list[float]) -> list[tuple[str, Slice]]:
    return [("shop", Slice("x", {"n": n}, weight)) for n, weight in enumerate(weights)]


@pytest.mark.parametrize(
    ("weights", "parallelism", "sizes"),
    [
        ([], 2, []),
        ([1, 1, 1], 2, [1, 1, 1]),
        ([0, 1, 1], 2, [2, 1]),
        ([1 / 5] * 5, 1, [5]),
        ([1 / 5] * 5, 2, [3, 2]),
        ([1 / 5] * 10, 2, [3, 2, 3, 2]),
        ([1 / 50] * 50, 4, [13, 12, 13, 12]),
        ([1 / 3] * 3, 100, [1, 1, 1]),
    ],
)
def test_light_slices_share_a_task(weights: list[float], parallelism: int, sizes: list[int]) -> None:
    assert [len(task) for task in tasks(slices(weights), parallelism)] == sizes


@given(st.integers(1, 400), st.integers(1, 3), st.integers(1, 16))
def test_tables_of_ranges_are_read_by_few_tasks_in_order(tables: int, ranges: int, parallelism: int) -> None:
    given = slices([1 / tables] * tables * ranges)
    found = tasks(given, parallelism)
    assert [piece for task in found for piece in task] == given
    assert len(found) <= ranges * parallelism
    assert max(map(len, found)) <= -(-tables // parallelism) + 1
