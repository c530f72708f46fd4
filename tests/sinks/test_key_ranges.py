"""Ranges of keys hold every key of a batch, and leave out the widest gaps between them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sinks.lake.key_ranges import MOST, ceiling, constant, ranges, within

KEYS = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=60),
    st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=2), min_size=1, max_size=60),
    st.lists(st.text(), min_size=1, max_size=60),
)


@given(KEYS)
def test_every_key_is_in_one_of_few_ranges_whose_ends_are_keys(keys: list[Any]) -> None:
    found = ranges(keys)
    assert len(found) <= MOST
    assert all(sum(least <= key <= greatest for least, greatest in found) == 1 for key in keys)
    assert {end for span in found for end in span} <= {*keys}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([5], [(5, 5)]),
        ([7, 1, 4], [(1, 1), (4, 4), (7, 7)]),
        ([1_000_000, 1_000_001, 1_000_900, 3], [(3, 3), (1_000_000, 1_000_900)]),
        (["2024-07", "2024-08", "1999-01"], [("1999-01", "1999-01"), ("2024-07", "2024-08")]),
        ([Decimal("1.50"), Decimal("99.9")], [(Decimal("1.50"), Decimal("1.50")), (Decimal("99.9"), Decimal("99.9"))]),
        (range(1000), [(0, 999)]),
        ([*range(0, 1000, 20)], [(0, 980)]),
    ],
)
def test_keys_are_parted_where_they_lie_apart(keys: Any, expected: list[tuple[Any, Any]]) -> None:
    assert ranges(keys) == expected


@pytest.mark.parametrize(
    ("kind", "spans", "expected"),
    [
        ("bigint", [(5, 899)], "t.`k` >= 0 and t.`k` <= 1024"),
        ("bigint", [(8, 900)], "t.`k` >= 0 and t.`k` <= 1024"),
        ("tinyint", [(-120, 100)], "t.`k` >= -128 and t.`k` <= 127"),
        ("bigint", [(-(2**63), 2**63 - 1)], "t.`k` >= -9223372036854775808 and t.`k` <= 9223372036854775807"),
        ("string", [("o'x", "p")], "t.`k` >= 'o\\'x' and t.`k` <= 'p'"),
        ("decimal(20,2)", [(Decimal("1E+3"), Decimal("1000.50"))], "t.`k` >= 1000BD and t.`k` <= 1000.50BD"),
        ("date", [(-1, 0)], "t.`k` >= date'1969-12-31' and t.`k` <= date'1970-01-01'"),
        ("date", [(0, 10**7)], ""),
        ("bigint", [(1, 1), (8, 9)], "(t.`k` >= 1 and t.`k` <= 1 or t.`k` >= 8 and t.`k` <= 9)"),
    ],
)
def test_ranges_as_a_condition(kind: str, spans: list[tuple[Any, Any]], expected: str) -> None:
    assert within("t.`k`", kind, spans) == expected


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("timestamp", 1_500_000, "timestamp'1970-01-01 00:00:01.500000Z'"),
        ("timestamp_ntz", -62135596800000000, "timestamp_ntz'0001-01-01 00:00:00'"),
    ],
)
def test_moments_as_constants(kind: str, value: int, expected: str) -> None:
    assert constant(value, kind) == expected


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_a_condition_holds_for_the_ends_of_its_range(one: int, other: int) -> None:
    least, greatest = sorted((one, other))
    low, high = (int(part.split()[-1]) for part in within("k", "int", [(least, greatest)]).split(" and "))
    assert low <= least <= greatest <= high
    assert high - low <= 2 * (greatest - least)
    assert low >= -(2**31) and high < 2**31


@given(st.text(min_size=60, max_size=80))
def test_a_long_text_is_not_beyond_a_shorter_one(text: str) -> None:
    assert ceiling(text) >= text
    assert len(ceiling(text)) <= 65 or text[64] == chr(0x10FFFF)
