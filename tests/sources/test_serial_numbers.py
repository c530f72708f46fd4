"""Rule: sorting the changes of a table by their serial numbers gives the order of the source, over restarts."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.changes import arrow_schema
from headrace.errors import CaptureError
from headrace.sources.base import Slice
from headrace.sources.databases import Offsets
from headrace.sources.serial_numbers import next_batch, numbered, shares

BEGIN = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)
TABLES = st.one_of(st.none(), st.lists(st.sampled_from("abc"), unique=True).map(tuple))
SLICES = st.lists(st.tuples(st.sampled_from(["shop", "other"]), TABLES), max_size=40)
CLOCK = st.lists(st.integers(-10_000, 10_000), max_size=20)


def planned(given: list[tuple[str, tuple[str, ...] | None]]) -> list[tuple[str, Slice]]:
    return [(database, Slice("x", {}, tables=tables)) for database, tables in given]


def rows(count: int) -> pa.RecordBatch:
    nothing = dict.fromkeys(arrow_schema().names)
    facts: list[list[tuple[str, str]] | None] = [[], [("connector", "db2")], None]
    return pa.RecordBatch.from_pylist([{**nothing, "source": facts[n % 3]} for n in range(count)], arrow_schema())


@given(SLICES, st.integers(0, 2**31 - 1))
def test_slices_of_a_table_have_numbers_one_behind_the_other(
    given: list[tuple[str, tuple[str, ...] | None]], batch: int
) -> None:
    found = shares(planned(given), batch)
    assert len(found) == len(given)
    for numbers in found:
        assert batch << 32 <= numbers.start < numbers.stop <= (batch + 1) << 32 <= 2**63
        assert len(numbers) >= 2**31 // len(found)
    for later, (database, tables) in enumerate(given):
        for earlier, (another, others) in enumerate(given[:later]):
            meets = tables is None or others is None or (database == another and set(tables) & set(others))
            if meets:
                assert found[earlier].stop <= found[later].start
    assert len({numbers.start for numbers in found}) == len(found)


@given(CLOCK)
def test_numbers_of_batches_grow_where_the_clock_is_set_back(seconds: list[int]) -> None:
    number, found = 0, []
    for moved in seconds:
        number = next_batch(number, BEGIN + dt.timedelta(seconds=moved))
        found.append(number)
    assert found == sorted(set(found))


def test_a_new_checkpoint_goes_on_with_greater_numbers() -> None:
    assert next_batch(0, BEGIN) == 217_555_200
    assert next_batch(0, BEGIN + dt.timedelta(seconds=9)) > next_batch(0, BEGIN)


def test_the_offset_keeps_the_number_and_an_older_one_has_none() -> None:
    assert Offsets.from_json(Offsets({}, 7).to_json()).batch == 7
    assert Offsets.from_json({"version": 2, "databases": {}}).batch == 0


def test_rows_have_their_numbers_in_order_behind_their_facts_however_they_are_cut() -> None:
    whole, numbers = rows(7), range(2**62, 2**63)
    cut = [whole.slice(0, 2), whole.slice(2, 0), whole.slice(2, 5)]
    for batches in ([whole], cut):
        found = pa.Table.from_batches(numbered(batches, numbers), whole.schema)
        assert found.column("source").to_pylist() == [
            [*(facts or []), ("id", str(2**62 + n))] for n, facts in enumerate(whole.column("source").to_pylist())
        ]
    assert found.drop(["source"]) == pa.Table.from_batches([whole]).drop(["source"])


def test_more_rows_than_numbers_are_refused() -> None:
    with pytest.raises(CaptureError, match="commits_per_slice"):
        list(numbered([rows(2), rows(2)], range(3)))
