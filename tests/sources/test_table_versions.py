"""Rule: the version of a table grows by one with each schema that is not the one before."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.changes import Column, LogicalType, TableId, TableSchema, arrow_schema
from headrace.sources.offset import Offset
from headrace.sources.table_versions import Versions, next_versions, versions_of, with_versions


def schema(columns: int, table: str = "a") -> TableSchema:
    made = tuple(Column(f"c{n}", n, LogicalType("int32")) for n in range(1, columns + 1))
    return TableSchema(TableId("shop", "dbo", table), made, ())


@given(st.lists(st.lists(st.integers(1, 4), unique=True, max_size=3), min_size=1, max_size=8))
def test_each_schema_counts_once_over_batches_and_times_without_capture(batches: list[list[int]]) -> None:
    versions: Versions = {}
    start: list[TableSchema] = []
    seen: list[int] = []
    for columns in batches:
        # The oldest one that is still needed stands in front, as long as the table is captured.
        new = [schema(n) for n in columns]
        end = [*start[-1:], *(made for made in new if made not in start[-1:])] if columns else []
        versions = next_versions(versions, start, end)
        if columns:
            # Of a table that is captured again, the count begins with its newest schema.
            given_out = [len(made.columns) for made in end]
            seen += given_out if seen else given_out[-1:]
            expected = 1 + sum(one != other for one, other in pairwise(seen))
            found = versions_of(versions, end)
            assert found.get(end[-1].fingerprint, 1) == expected
        start = end
    again = Offset.from_json(Offset("x", "1", versions=versions).to_json()) if versions else Offset()
    assert dict(again.versions) == dict(versions)


def test_schemas_that_are_still_needed_keep_their_versions() -> None:
    old, newer, newest = map(schema, (1, 2, 3))
    versions = next_versions({}, [old], [old, newer, newest])
    assert versions_of(versions, [old, newer, newest]) == {newer.fingerprint: 2, newest.fingerprint: 3}
    assert versions_of(next_versions(versions, [newer, newest], [newest]), [newest]) == {newest.fingerprint: 3}


def test_only_rows_of_these_schemas_say_a_version() -> None:
    rows = [
        {"op": "schema", "schema_id": "x", "source": [("connector", "db2")]},
        {"op": "c", "schema_id": "x", "source": [("connector", "db2")]},
        {"op": "schema", "schema_id": "y", "source": None},
    ]
    nothing = dict.fromkeys(arrow_schema().names)
    batch = pa.RecordBatch.from_pylist([{**nothing, **row} for row in rows], arrow_schema())
    (found,) = with_versions([batch], {"x": 12})
    assert found.column("source").to_pylist() == [
        [("connector", "db2"), ("tableVersion", "12")],
        [("connector", "db2")],
        None,
    ]
