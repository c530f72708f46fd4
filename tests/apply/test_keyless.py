"""Tables without a key: rows are known by all their values and by how many there are."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.apply import fold_keyless, profile
from headrace.errors import SchemaError
from headrace.testing.change_history import Batch, pos, table

K = table(key=())
A = {"id": "1", "a": "x", "b": None}
B = {"id": "2", "a": "y", "b": "z"}


def folded(spark: Any, changes: Any) -> list[Any]:
    batch = Batch(K)
    for op, at, after, before in changes:
        batch.add(op, K, at, after, before)
    rows = batch.rows(spark)
    (found,) = profile(rows)
    out = fold_keyless(rows, found).collect()
    return sorted(
        (r["op"], r["row"]["id"], r["occurrences"], r["position"] if r["op"] == "insert" else None) for r in out
    )


CASES = {
    "equal rows are as many rows": (
        [("c", 1, A, None), ("c", 2, A, None)],
        [("insert", 1, 1, pos(1)), ("insert", 1, 1, pos(2))],
    ),
    "came and went": ([("c", 1, A, None), ("d", 2, None, A)], []),
    "went and came back": ([("d", 1, None, A), ("c", 2, A, None)], []),
    "two of three go": (
        [("c", 1, A, None), ("d", 2, None, A), ("c", 3, A, None), ("d", 4, None, A), ("c", 5, A, None)],
        [("insert", 1, 1, pos(5))],
    ),
    "more go than came": (
        [("d", 1, None, A), ("c", 2, A, None), ("d", 3, None, A), ("d", 4, None, A)],
        [("delete", 1, 2, None)],
    ),
    "an update is both": ([("u", 1, B, A)], [("delete", 1, 1, None), ("insert", 2, 1, pos(1))]),
    "an update that changes nothing": ([("u", 1, A, A)], []),
    "what came before a truncate is gone": (
        [("c", 1, A, None), ("t", 2, None, None), ("c", 3, B, None)],
        [("insert", 2, 1, pos(3))],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES.keys())
def test_changes_are_netted_per_row(spark: Any, changes: Any, expected: Any) -> None:
    assert folded(spark, changes) == expected


@pytest.mark.parametrize("before", [None, {"id": "1"}])
def test_an_image_that_is_not_whole_is_refused(spark: Any, before: Any) -> None:
    with pytest.raises(SchemaError, match="Until then, use a change log"):
        folded(spark, [("u", 1, A, before)])
