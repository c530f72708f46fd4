"""Random rows of every type, for the laws of round trips.

Hypothesis draws a few values of each column, and a seeded generator mixes them into rows: a whole batch drawn value by
value would be more than Hypothesis lets one example hold, and it would go on trying for a minute.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from headrace.changes import LogicalType

Pools = dict[str, list[str]]


def pools(values: Mapping[str, st.SearchStrategy[str]]) -> st.SearchStrategy[tuple[Pools, random.Random]]:
    """A few values for each column, and what mixes them."""
    drawn = st.tuples(*(st.lists(kind, min_size=4, max_size=6) for kind in values.values()))
    named = drawn.map(lambda lists: dict(zip(values, lists, strict=True)))
    seeds = st.integers(0, 2**32 - 1).map(random.Random)
    return st.tuples(named, seeds)


def row(rng: random.Random, found: Pools) -> dict[str, Any]:
    """A value or NULL for each column, in their order."""
    return {name: rng.choice([*values, None]) for name, values in found.items()}


def shortest(value: str | None) -> str | None:
    """A double's text with as few digits as tell it: Java before 19 sometimes writes more."""
    return value if value is None else LogicalType("float64").to_text(float(value))
