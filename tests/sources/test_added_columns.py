"""Rule: where all rows from before have one value in a column that was added, batches tell it until the stream has
passed the change, and only the first one to rows that are there; any doubt leads to a read.
"""

from __future__ import annotations

import json

import pytest

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.position import ADDED_COLUMNS
from headrace.changes.table_pattern import table_patterns
from headrace.sources.offset import Offset
from headrace.sources.snapshots.ad_hoc import AddedColumn, AdHoc
from headrace.sources.snapshots.ends_equal import added_column_markers
from headrace.sources.tables.rewrites import AddedColumnSettings, Rewrite, RewriteSettings, follow_rewrites
from headrace.sources.tables.table_rules import SourceTable

NOTHING = AdHoc()
TELLS = AddedColumnSettings(reread_added_columns=())


def table(*names: str) -> SourceTable:
    columns = tuple(Column(name, n, LogicalType("string")) for n, name in enumerate(names, 1))
    return SourceTable(TableSchema(TableId("d", "s", "t"), columns, ("id",)), (), ("id",))


ADDED = Rewrite("s.t", "column 'c' was added with a default", {"c": "5"})
TABLES = {"s.t": table("id", "c", "d")}


def followed(rewrites, ad_hoc=NOTHING, settings=TELLS, tables=TABLES, **more):
    found = {"read": ["s.t"], "since": "10", "rows": lambda _: {"s.t": 10**9}, **more}
    return follow_rewrites(rewrites, ad_hoc, tables, settings, **found)


def test_a_value_is_told_and_no_row_is_read_however_many_there_are():
    state = followed([ADDED, Rewrite("s.t", "again", {"d": None})], after="15", read=[])
    assert state == AdHoc(added=(AddedColumn("s.t", "c", "5", "10", "15"), AddedColumn("s.t", "d", None, "10", "15")))
    assert AdHoc.from_json(json.loads(json.dumps(state.to_json()))) == state


@pytest.mark.parametrize(
    ("rewrite", "ad_hoc", "settings", "more"),
    [
        (Rewrite("s.t", "no constant"), AdHoc(), TELLS, {}),
        (ADDED, AdHoc(blocking=("s.t",)), TELLS, {}),
        (ADDED, AdHoc().reading("s.t", keyed=True), TELLS, {}),
        (ADDED, AdHoc(unequal={"s.t": ("", "")}), TELLS, {}),
        (ADDED, AdHoc(), TELLS, {"under_way": ["s.t"]}),
        (ADDED, AdHoc(), AddedColumnSettings(), {}),
        (ADDED, AdHoc(), AddedColumnSettings(reread_added_columns=table_patterns("S.T")), {}),
        # Another source, which does not know of each row whether it is from before.
        (ADDED, AdHoc(), RewriteSettings(), {}),
        (ADDED, AdHoc(), AddedColumnSettings(reread_added_columns=(), on_rewrite="warn"), {}),
    ],
)
def test_otherwise_the_table_is_read_or_that_is_said(rewrite, ad_hoc, settings, more):
    state = followed([rewrite], ad_hoc, settings, rows=lambda _: {}, **more)
    assert state.added == () and "s.t" in state.unequal
    assert state.reads_again("s.t") is (settings.on_rewrite == "reread")


def test_a_column_that_got_another_name_before_all_changes_from_before_came_lets_the_table_be_read():
    state = followed([], followed([ADDED], after="15"), tables={"s.t": table("id", "e")}, rows=lambda _: {})
    assert state.added == () and state.reads_again("s.t")


def test_values_are_told_until_the_stream_has_passed_the_change():
    state = followed([ADDED], after="15")
    assert [state.after_added(commit).added != () for commit in ("10", "14", "15")] == [True, True, False]
    assert [followed([ADDED]).after_added(commit).added != () for commit in ("10", "11")] == [True, False]


def test_only_the_first_batch_tells_them_to_rows_that_are_there():
    ad_hoc = followed([ADDED, Rewrite("s.t", "again", {"d": None})], after="15").to_json()
    first, second, third = Offset(commit="10"), Offset(commit="14", ad_hoc=ad_hoc), Offset(commit="20", ad_hoc=ad_hoc)
    for start, end, before in ((first, second, "100"), (second, third, "")):
        (marker,) = added_column_markers(start, end, "mysql", TABLES)
        assert json.loads(marker.source[ADDED_COLUMNS]) == {"c": ["5", before], "d": [None, before]}
        assert marker.schema == TABLES["s.t"].schema
        assert end.commit + "/f" < marker.position.text
    # Later than every position of the commit at which the first batch begins, and earlier than the next one's.
    assert "10/rr000001/~" < "100" < "11/"
