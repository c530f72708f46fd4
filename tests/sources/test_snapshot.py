"""Rule.

Chunks tile a table without gap or overlap, a batch's chunks follow from its end offset, and edges are marked.
"""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.changes.position import Position
from headrace.sources.offset import Offset, TableProgress
from headrace.sources.snapshots.chunks import (
    FIRST,
    FIRST_OF_TABLE,
    LAST,
    LAST_OF_TABLE,
    Chunk,
    end_position,
    mark,
    plan_chunks,
    unmarked_end,
)
from headrace.sources.snapshots.requests import Request

C = "00000027:00000758:0005"


def offset(initial=True, **tables):
    return Offset("s", C, initial=initial, known=tuple(tables), tables=tables)


def test_the_chunks_of_a_batch_are_those_of_its_end():
    start = offset(a=TableProgress(C, bounds=(("10",), ("20",))))
    end = offset(
        a=TableProgress(C, 2, ("20",), bounds=(("30",), None), done=True), b=TableProgress(C, bounds=(("5",),))
    )
    chunks = plan_chunks(start, end)
    assert [(c.table, c.number, c.lower, c.upper) for c in chunks] == [
        ("a", 2, ("20",), ("30",)),
        ("a", 3, ("30",), None),
        ("b", 0, None, ("5",)),
    ]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_chunks_over_batches_tile_the_table(sizes):
    """However bounds fall into batches, every key is in exactly one chunk."""
    bounds = [(str(n),) for n in range(sum(sizes))]
    progress = TableProgress(C)
    start = Offset.nothing()
    seen = []
    for number, size in enumerate(sizes):
        taken, bounds = bounds[:size], bounds[size:]
        last = number == len(sizes) - 1
        progress = replace(progress.advanced(), bounds=(*taken, None) if last else tuple(taken), done=last)
        end = offset(initial=not last, t=progress)
        seen += plan_chunks(start, end)
        start = end
    assert [c.number for c in seen] == list(range(len(seen)))
    assert seen[0].lower is None
    assert seen[-1].upper is None
    for one, two in itertools.pairwise(seen):
        assert one.upper == two.lower


def test_a_finished_snapshot_is_not_planned_again():
    done = TableProgress(C, bounds=(None,), done=True)
    assert plan_chunks(offset(a=done), offset(initial=False, a=done.advanced())) == []


@pytest.mark.parametrize(
    ("rows", "marks"),
    [
        (
            {"a": 3, "b": 2, "c": 1},
            ["first", "true", "last_in_data_collection", "first_in_data_collection", "last_in_data_collection", "last"],
        ),
        ({"a": 1}, ["last"]),
        ({"a": 0, "b": 2}, ["first", "last"]),
        ({"a": 1, "b": 1}, ["first", "last"]),
        ({"a": 2, "b": 0}, ["first", "last"]),
    ],
)
def test_the_edges_of_a_snapshot_are_marked(rows, marks):
    tables = {n: TableProgress(C, bounds=(None,) if count else (), done=True) for n, count in rows.items()}
    found = []
    for chunk in plan_chunks(Offset.nothing(), offset(initial=False, **tables)):
        count = rows[chunk.table]
        found += [mark(chunk, first=i == 0, last=i == count - 1) for i in range(count)]
    assert found == marks


def test_positions_of_read_rows_follow_tables_chunks_and_rows_after_the_commit():
    end = offset(a=TableProgress(C, bounds=(("1",), None), done=True), b=TableProgress(C, bounds=(None,), done=True))
    positions = [c.position(row) for c in plan_chunks(Offset.nothing(), end) for row in (0, 1, 300)]
    assert positions == sorted(positions)
    assert len(set(positions)) == len(positions)
    assert min(positions) > Position(C, "ffffffff:ffffffff:ffffffff:ffff", "4")


def test_a_later_read_of_the_same_commit_is_after_all_that_earlier_ones_brought():
    def read(number, **rows):
        end = offset(**{name: TableProgress(C, bounds=(None,), done=True, read=number) for name in ("a", "b")})
        return [chunk.position(row) for chunk in plan_chunks(Offset.nothing(), end) for row in (0, 70000)]

    beside = [Request("a", 9, bounds=(("1",),)).chunks(number) for number in (0, 1, 2)]
    asked = [[chunk.position(C) for chunk in chunks] for chunks in beside]
    found = [*read(0), *asked[0], *read(1), end_position(C, 1, 1), *asked[1], *read(2), *asked[2]]
    assert found == sorted(found)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("opening", "closing", "count", "told"),
    [
        (FIRST, LAST_OF_TABLE, 1, LAST_OF_TABLE),
        (FIRST, LAST_OF_TABLE, 0, LAST_OF_TABLE),
        (FIRST, LAST_OF_TABLE, 2, None),
        (FIRST, LAST, 1, None),
        (FIRST_OF_TABLE, LAST_OF_TABLE, 1, None),
        (FIRST, None, 1, None),
        (None, LAST, 0, LAST),
        (None, None, 0, None),
    ],
)
def test_the_end_of_a_table_is_told_by_itself_where_no_row_says_it(opening, closing, count, told):
    chunk = Chunk("a", 0, 0, None, None, C, opening, closing)
    assert unmarked_end(chunk, count) == told
    marked = [mark(chunk, first=n == 0, last=n == count - 1) for n in range(count)]
    assert closing is None or closing in [*marked, told]
