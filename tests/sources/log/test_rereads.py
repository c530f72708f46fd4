"""Tables that are read again because a change of structure may have changed their rows: one queue for all of them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from tests.sources.log.toy_log import ROWS, ToyLog, ToyPlanner, ToyState

from headrace.errors import CaptureError
from headrace.sources.base import Limit
from headrace.sources.offset import Offset
from headrace.sources.snapshots.ad_hoc import AdHoc, with_reads_settled
from headrace.sources.snapshots.requests import FIRST_ROWS, MOST_ROWS, Pace, Request

NOW = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
FIRST_KEYS = FIRST_ROWS // ROWS


class Run:
    """Batches one after another, each a second after the one before."""

    def __init__(self, log: ToyLog, **options: Any) -> None:
        self.log, self.options, self.now = log, options, NOW
        self.offset = Offset.nothing()
        self.planner = ToyPlanner(log, **options)
        self.all()

    def batch(self, seconds: float = 1) -> Offset | None:
        """The end of the next batch; null when nothing is new."""
        self.now += dt.timedelta(seconds=seconds)
        self.log.asked.clear()
        end = with_reads_settled(self.offset, self.planner.advance(self.offset, Limit(), self.now))
        assert Offset.from_json(end.to_json()) == end
        if end is self.offset:
            return None
        self.offset = end
        return end

    def all(self) -> list[AdHoc]:
        """The ad-hoc snapshots of all batches until nothing is new."""
        found = []
        while self.batch() is not None:
            assert len(found) < 300, "the log has no end"
            found.append(self.reads)
        return found

    @property
    def reads(self) -> AdHoc:
        return AdHoc.from_json(self.offset.ad_hoc)

    def rewrite(self, *tables: str) -> None:
        """Statements change the rows of tables; the log has a commit for them."""
        self.log.rewritten += tables
        self.log.write("other.ddl")


def chunks(states: list[AdHoc]) -> list[tuple[str, str | None, str | None]]:
    """What was read: tables, and where chunks begin and end."""
    return [
        (chunk.table, chunk.lower and chunk.lower[0], chunk.upper and chunk.upper[0])
        for state in states
        for chunk in state.chunks()
    ]


def test_changes_of_structure_before_a_read_begins_make_one() -> None:
    log = ToyLog(tables={"s.a": 2, "s.b": 2})
    run = Run(log)
    run.rewrite("s.a", "s.b", "s.a", "s.a")
    assert chunks(run.all()) == [("s.a", None, "000002"), ("s.b", None, "000002")]


def test_one_during_a_read_begins_it_once_more_behind_what_was_read() -> None:
    log = ToyLog(tables={"s.a": 5 * FIRST_KEYS, "s.b": 1})
    run = Run(log, snapshot_chunk_rows=FIRST_ROWS)
    run.rewrite("s.a", "s.b")
    assert run.batch() is not None
    (first, *_) = run.reads.requests
    assert len(first.bounds) == 2
    run.rewrite("s.a")
    assert run.batch() is not None
    (again, *_) = run.reads.requests
    assert (again.table, again.chunk, again.lower, len(again.bounds)) == ("s.a", 0, None, 2)
    assert again.number > first.number
    assert [table for table, _, _ in chunks(run.all())] == ["s.a", "s.a", "s.a", "s.b"]


def test_a_table_whose_key_is_another_one_meanwhile_is_read_by_that() -> None:
    log = ToyLog(tables={"s.a": 5 * FIRST_KEYS})
    run = Run(log, snapshot_chunk_rows=FIRST_ROWS)
    run.rewrite("s.a")
    run.batch()
    log.keyless = ("s.a",)
    assert run.batch() is not None
    assert run.reads.requests == () and "s.a" in run.offset.tables


def test_many_tables_wait_in_one_queue_and_a_plan_asks_for_few() -> None:
    tables = {f"s.t{n:02}": n % 3 for n in range(50)}
    log = ToyLog(tables=tables)
    run = Run(log, snapshot_chunks_per_batch=4)
    run.rewrite(*tables)
    batches = 0
    while True:
        commit = log.write("s.t00")
        assert run.batch() is not None
        assert run.offset.commit == commit and ToyState.of(run.offset).reads, "the stream goes on"
        assert len(run.reads.chunks()) <= 4
        assert len(set(log.asked)) <= 4
        batches += 1
        if not run.reads.running:
            break
    # Two more until the stream has what the log had behind the last chunk.
    assert batches == 15
    assert run.reads.unequal == {}


def test_tables_without_a_key_are_read_one_at_a_time_and_the_stream_goes_on_between() -> None:
    log = ToyLog(tables={"s.a": 1, "s.b": 1, "s.c": 1}, keyless=("s.a", "s.b", "s.c"))
    run = Run(log)
    run.rewrite("s.a", "s.b", "s.c")
    begun = []
    for _ in range(12):
        commit = log.write("s.a")
        run.batch()
        begun.append((tuple(run.offset.tables), run.offset.commit == commit))
    assert [tables for tables, _ in begun if tables == ("s.b",)]
    assert all(len(tables) <= 1 for tables, _ in begun)
    assert begun[-1] == ((), True)


def test_a_table_is_not_equal_from_the_change_until_its_read_ended() -> None:
    log = ToyLog(tables={"s.a": 5, "s.b": 1})
    run = Run(log, snapshot_chunk_rows=FIRST_ROWS)
    before = run.offset
    assert before.commit_time is not None
    since = (before.commit, before.commit_time.isoformat())
    run.rewrite("s.a", "s.b")
    run.batch()
    assert run.reads.unequal == {"s.a": since, "s.b": since}
    run.rewrite("s.a")
    run.batch()
    assert run.reads.unequal["s.a"] == since, "the first change counts"
    run.all()
    assert run.reads.unequal == {}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"on_rewrite": "warn"}, "headrace repair reread <pipeline> s.a"),
        ({"on_rewrite_max_rows": 4}, "It has about 5 rows, more than 'on_rewrite_max_rows' (4)"),
        ({"snapshot_include_collection_list": ("s.b",)}, "headrace repair reread <pipeline> s.a"),
    ],
)
def test_a_table_that_is_not_read_by_itself_is_not_equal_until_somebody_reads_it(
    options: dict[str, Any], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(ToyLog(tables={"s.a": 5, "s.b": 1}), **options)
    run.rewrite("s.a")
    assert chunks(run.all()) == []
    assert says in caplog.text
    assert list(run.reads.unequal) == ["s.a"]
    asked = run.reads.reading("s.a", keyed=False)
    run.offset = Offset.from_json({**run.offset.to_json(), "ad_hoc": asked.to_json()})
    run.all()
    assert run.reads.unequal == {}


def test_a_run_stops_where_the_options_say_so() -> None:
    run = Run(ToyLog(), on_rewrite="fail")
    run.rewrite("s.a")
    with pytest.raises(CaptureError, match=r"s\.a.*its rows were changed"):
        run.batch()


def test_a_read_that_a_user_asked_for_begins_again_and_one_of_some_rows_goes_on() -> None:
    whole = Request("s.a", 0, key=("id",), chunk=3, lower=("3",), signal="x")
    some = Request("s.a", 1, key=("id",), chunk=3, lower=("3",), filter="id > 1")
    state = AdHoc(requests=(whole, some), numbers=2).rewritten("s.a", keyed=True, again=False)
    assert state.requests == (Request("s.a", 2, signal="x"), some)
    both = AdHoc(requests=(some,), numbers=2).rewritten("s.a", keyed=True, again=True)
    assert both.requests == (some, Request("s.a", 2, reread=True))


def test_a_change_between_the_last_chunk_and_the_end_of_a_read_begins_it_once_more() -> None:
    read = Request("s.a", 0, key=("id",), chunk=3, lower=("3",), done=True, reread=True, since="1", upto="9")
    state = AdHoc(ending=(read,), numbers=1, unequal={"s.a": ("1", "")})
    assert state.reads_again("s.a"), "until its end is announced"
    again = state.rewritten("s.a", keyed=True, again=True)
    assert (again.ending, again.requests) == ((), (Request("s.a", 1, reread=True),))
    assert again.unequal == state.unequal


@pytest.mark.parametrize(
    ("seconds", "sizes"),
    [
        pytest.param([1] * 6, [16_384, 65_536, 100_000, 100_000, 100_000, 100_000], id="quick batches"),
        pytest.param([60] * 6, [4_096, 8_192, 16_384, 32_768, 65_536, 100_000], id="a trigger each minute"),
        pytest.param([1, 1, 40, 65, 65, 20], [16_384, 65_536, 32_768, 16_384, 32_768, 65_536], id="slow large ones"),
        pytest.param([12, 20, 31], [4_096, 4_096, 4_096], id="slower and slower"),
    ],
)
def test_chunks_grow_while_batches_stay_quick(seconds: list[float], sizes: list[int]) -> None:
    pace, found = Pace(), []
    for each in seconds:
        pace = pace.after(each, 0)
        found.append(pace.rows)
    assert found == sizes
    assert max(found) <= MOST_ROWS


def test_the_size_of_chunks_stands_in_the_offset_while_a_table_is_read() -> None:
    run = Run(ToyLog(tables={"s.a": 500}))
    run.rewrite("s.a")
    sizes = [state.pace.rows for state in run.all()]
    # The last batch says that the read has ended.
    assert sizes == [4_096, 16_384, 65_536, *5 * [100_000], 4_096]
    assert run.reads.advanced() == AdHoc(numbers=1)
