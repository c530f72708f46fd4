"""Rule: what signals ask for is kept in order, read once, and survives a restart."""

from __future__ import annotations

import json
import re

import pytest

from headrace.changes import Column, Position, TableId, TableSchema
from headrace.changes.position import SNAPSHOT_ORDER
from headrace.changes.types import LogicalType
from headrace.sources.signal_files import TakenFiles
from headrace.sources.signals import Signal
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.requests import Request, RequestEnds, cut_for_request
from headrace.sources.tables.table_rules import SourceTable


def table(name, columns, key=(), named=None, protected=()):
    """A table with columns `x` (not null), `x?` (nullable) and `x!` (large), a key of its own, or one that is named."""
    found = [
        Column(
            text.rstrip("?!"),
            place,
            LogicalType("string"),
            "varchar",
            nullable=text.endswith("?"),
            large=text[-1] == "!",
        )
        for place, text in enumerate(columns.split(), 1)
    ]
    schema = TableSchema(TableId("shop", "dbo", name), tuple(found), named or key, primary_key=key if named else None)
    return SourceTable(schema, (), key, protected)


TABLES = [table("a", "id n", ("id",)), table("b", "x y", ("x", "y")), table("log", "n")]


def take(state, *signals):
    said = []
    sent = [Signal(f"s{n}", type, None if data is None else json.dumps(data)) for n, (type, data) in enumerate(signals)]
    return state.take(sent, TABLES, said.append, at="c1"), said


def execute(*tables, **more):
    return ("execute-snapshot", {"data-collections": list(tables), **more})


def test_tables_are_read_in_the_order_in_which_they_were_asked_for():
    state, said = take(AdHoc(), execute("dbo.b", "shop.dbo.a"))
    assert [(request.table, request.number) for request in state.requests] == [("dbo.b", 0), ("dbo.a", 1)]
    assert said == []
    assert state.running


def test_an_empty_list_does_nothing():
    assert take(AdHoc(), execute()) == (AdHoc(), [])


def test_tables_that_can_not_be_read_are_said_and_the_others_are_taken():
    state, said = take(AdHoc(), execute("dbo.none", "dbo.log", "dbo.a"))
    assert [request.table for request in state.requests] == ["dbo.a"]
    assert len(said) == 2
    assert "'dbo.none'" in said[0]
    assert "'dbo.log'" in said[1]
    assert "no key" in said[1]


def test_a_table_that_waits_is_not_asked_for_twice_but_one_that_is_begun_is_read_again():
    state, _ = take(AdHoc(), execute("dbo.a"), execute("dbo.*"))
    assert [request.table for request in state.requests] == ["dbo.a", "dbo.b"]
    begun = Request("dbo.a", 0, key=("id",), last=("9",), bounds=(("3",),))
    state, _ = take(AdHoc(requests=(begun,), numbers=1), execute("dbo.a"))
    assert [(request.number, request.key) for request in state.requests] == [(0, ("id",)), (1, ())]


def test_filters_belong_to_the_tables_that_they_name():
    condition = {"data-collection": r".*\.a", "filter": "id > 1"}
    state, _ = take(AdHoc(), execute("dbo.a", "dbo.b", **{"additional-conditions": [condition]}))
    assert [request.filter for request in state.requests] == ["id > 1", None]


def test_chunks_tile_the_table_batch_by_batch():
    request = Request("dbo.a", 4, key=("id",), last=("9",), bounds=(("3",), ("6",)))
    chunks = list(request.chunks())
    assert [(c.number, c.lower, c.upper, c.opening) for c in chunks] == [
        (0, None, ("3",), True),
        (1, ("3",), ("6",), False),
    ]
    after = request.advanced()
    assert (after.chunk, after.lower, after.bounds) == (2, ("6",), ())
    assert after.advanced() == after
    state = AdHoc(requests=(Request("dbo.a", 4, done=True), request))
    assert state.advanced().requests == (after,)
    assert state.advanced().advanced() == state.advanced()


def test_rows_stand_after_the_changes_of_their_commit_and_after_earlier_chunks():
    first, second = Request("dbo.a", 0, bounds=(("1",), ("2",))).chunks()
    (later,) = Request("dbo.a", 1, bounds=(("1",),)).chunks()
    commit = "0000002b:000004e8:0001"
    order = [
        Position(commit, "ffffffff:0000002b:000004e8:0001", "4"),
        Position(commit, f"{SNAPSHOT_ORDER}fffff:ffffffff", "ffffffff"),
        first.schema_position(commit),
        first.position(commit),
        second.position(commit),
        later.position(commit),
        # The schema that the next window begins with.
        Position(commit, "s"),
        Position("0000002b:000004e8:0002"),
    ]
    assert order == sorted(order)


def test_pause_resume_and_stop():
    state, _ = take(AdHoc(), execute("dbo.*"), ("pause-snapshot", None))
    assert state.paused
    assert not state.running
    resumed, _ = take(state, ("resume-snapshot", {}))
    assert resumed.running
    without, said = take(state, ("stop-snapshot", {"data-collections": ["dbo.a", "dbo.none"]}))
    assert [request.table for request in without.requests] == ["dbo.b"]
    assert without.paused
    assert len(said) == 1
    assert "'dbo.none'" in said[0]
    stopped, said = take(state, ("stop-snapshot", None))
    assert (stopped.requests, stopped.paused, said) == ((), False, [])
    # A later request is not held up by a pause of something that is over.
    later, _ = take(stopped, execute("dbo.a"))
    assert later.running


def test_nothing_to_pause_or_stop_is_said():
    for type in ("pause-snapshot", "stop-snapshot"):
        state, said = take(AdHoc(), (type, None))
        assert state == AdHoc()
        assert "none is running" in said[0]


def test_blocking_snapshots_take_tables_without_a_key_but_no_filter():
    state, said = take(AdHoc(), execute("dbo.log", "dbo.a", type="BLOCKING"))
    assert (state.blocking, state.requests, said) == (("dbo.log", "dbo.a"), (), [])
    state, said = take(AdHoc(), execute("dbo.a", type="blocking", **{"additional-condition": "id > 1"}))
    assert state == AdHoc()
    assert "filter" in said[0]
    state, _ = take(AdHoc(blocking=("dbo.a", "dbo.b")), ("stop-snapshot", {"data-collections": ["dbo.a"]}))
    assert state.blocking == ("dbo.b",)


def test_one_bad_signal_does_not_hold_up_the_next():
    type, data = execute("dbo.a")
    sent = [
        Signal("s1", "execute-snapshot", "{"),
        Signal("s2", "nothing", None),
        Signal("s3", type, json.dumps(data)),
        Signal("s4", "execute-snapshot", "[" * 100_000),
    ]
    said = []
    state = AdHoc().take(sent, TABLES, said.append)
    assert [request.table for request in state.requests] == ["dbo.a"]
    assert [line.split()[1] for line in said] == ["'s1'", "'s2'", "'s4'"]


def test_what_needs_no_answer_changes_nothing():
    state, said = take(
        AdHoc(), ("snapshot-window-open", None), ("log", {"message": "at {}"}), ("schema-changes", {"changes": "[]"})
    )
    assert state == AdHoc()
    assert said[0] == "Signal 's1': at c1"
    assert "not needed" in said[1]


def test_a_surrogate_key_is_kept_with_the_request_and_is_another_request_than_one_without_it():
    state, said = take(AdHoc(), execute("dbo.a", **{"surrogate-key": "n"}), execute("dbo.a"))
    assert [(request.table, request.surrogate) for request in state.requests] == [("dbo.a", "n"), ("dbo.a", None)]
    assert AdHoc.from_json(json.loads(json.dumps(state.to_json()))) == state
    assert said == []


@pytest.mark.parametrize(
    ("given", "surrogate", "cut"),
    [
        (table("t", "id n", ("id",)), None, ("id",)),
        (table("t", "id n", ("id",)), "n", ("n",)),
        (table("t", "id n", ("id",)), "N", ("n",)),
        # A unique index may hold NULL: the server gives it a place among keys.
        (table("t", "id? n", ("id",)), None, ("id",)),
        (table("t", "n m", named=("m", "n")), None, ("m", "n")),
        (table("t", "n m", named=("m",)), "n", ("n",)),
        (table("t", "id n", ("id",), named=("n",)), None, ("id",)),
    ],
)
def test_a_table_is_cut_by_its_own_key_the_one_that_it_was_given_or_the_column_of_the_signal(given, surrogate, cut):
    found = cut_for_request(given, surrogate)
    assert found.chunk_key == cut
    # Rows are known by the same columns whatever cuts the table.
    assert given.row_key == given.cut_by(()).row_key


@pytest.mark.parametrize(
    ("given", "surrogate", "why"),
    [
        (table("t", "n"), None, "it has no key"),
        (table("t", "n"), "n", "it has no key"),
        (table("t", "n?", named=("n",)), None, "column 'n', by which it would be cut, may be NULL"),
        (table("t", "id n?", ("id",)), "n", "column 'n', by which it would be cut, may be NULL"),
        (table("t", "id n", ("id",)), "m", "it has no captured column 'm' to cut it by"),
        (table("t", "id n!", ("id",)), "n", "column 'n' (varchar) can't cut it, because of its type"),
        (table("t", "id n", ("id",), protected=("n",)), "n", "column 'n' can't cut it, because bounds would show"),
    ],
)
def test_what_can_not_cut_a_table_is_said(given, surrogate, why):
    with pytest.raises(RequestEnds, match=re.escape(why)):
        cut_for_request(given, surrogate)


@pytest.mark.parametrize(
    "state",
    [
        AdHoc(),
        AdHoc(
            requests=(
                Request("dbo.a", 1, ("id", "x"), "n > 1", 3, ("1", None), ("9", "z"), (("2", None), ("3", "y")), False),
                Request("dbo.b", 2),
            ),
            blocking=("dbo.log",),
            paused=True,
            stalled=True,
            files=TakenFiles("20261121T120000.000000Z-00000000.json", ("9999.json",)),
            numbers=3,
        ),
    ],
)
def test_the_offset_keeps_it_all(state):
    assert AdHoc.from_json(json.loads(json.dumps(state.to_json()))) == state


def test_nothing_asked_for_takes_no_place_in_the_offset():
    assert AdHoc().to_json() == {}
