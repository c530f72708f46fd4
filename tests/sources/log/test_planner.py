"""Where the next batch of a log ends: what every planner of a log does, whatever the log is."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from tests.sources.log.toy_log import CLOCK, ToyLog, ToyPlanner, ToyState, place

from headrace.errors import DataLossError, PositionMismatch
from headrace.sources.base import Limit
from headrace.sources.offset import Offset
from headrace.sources.signal_files import write_file
from headrace.sources.signals import Signal
from headrace.sources.snapshots.ad_hoc import AdHoc

NOW = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
LATER = NOW + dt.timedelta(minutes=6)


class Run:
    """Batches one after another, of processes that may end in between."""

    def __init__(self, log: ToyLog, **options: Any) -> None:
        self.log, self.options = log, options
        self.offset = Offset.nothing()
        self.planner = ToyPlanner(log, **options)

    def batch(self, limit: Limit | None = None, now: dt.datetime = NOW) -> Offset | None:
        """The end of the next batch; null when nothing is new."""
        end = self.planner.advance(self.offset, limit or Limit(), now)
        assert Offset.from_json(end.to_json()) == end
        if end is self.offset:
            return None
        self.offset = end
        return end

    def settled(self) -> Run:
        """All that is there has been delivered."""
        for _ in range(20):
            if self.batch() is None:
                return self
        raise AssertionError("the log has no end")

    def restarted(self, **options: Any) -> Run:
        """The same place in a new process."""
        self.options |= options
        self.planner = ToyPlanner(self.log, **self.options)
        return self


def reading(offset: Offset | None) -> dict[str, tuple[int, bool]]:
    """The tables that a batch reads: how many chunks, and whether they are the last."""
    assert offset is not None
    return {path: (len(p.bounds), p.done) for path, p in offset.tables.items() if p.bounds}


def blocking(table: str) -> Signal:
    return Signal("1", "execute-snapshot", json.dumps({"data-collections": [table], "type": "blocking"}))


def test_tables_are_read_in_chunks_and_the_stream_follows_from_where_the_log_was_at_the_beginning() -> None:
    log = ToyLog()
    log.write("s.a")
    run = Run(log)
    first = run.batch()
    assert first is not None
    assert (first.commit, first.initial, reading(first)) == (place(2), True, {"s.a": (2, False)})
    assert {path: progress.rows for path, progress in first.tables.items()} == log.tables
    log.write("s.a")
    second = run.batch()
    assert second is not None
    assert (second.commit, second.initial, reading(second)) == (place(2), False, {"s.a": (1, True), "s.b": (1, True)})
    stream = run.batch()
    assert stream is not None
    assert (stream.commit, stream.tables, ToyState.of(stream).reads) == (place(3), {}, True)
    assert run.batch() is None


def test_who_waits_for_a_place_in_the_log_gets_there_at_once() -> None:
    log = ToyLog()
    run = Run(log).settled()
    assert run.batch(Limit(follows=True)) is None
    log.write("other.t")
    moved = run.batch(Limit(follows=True))
    assert moved is not None
    assert (moved.commit, ToyState.of(moved).reads) == (log.head, False)
    assert run.batch(Limit(follows=True)) is None


def test_commits_of_other_tables_make_no_batch_until_the_offset_is_far_behind() -> None:
    log = ToyLog()
    run = Run(log).settled()
    log.write("other.t")
    assert run.batch() is None
    moved = run.batch(now=LATER)
    assert moved is not None
    assert (moved.commit, ToyState.of(moved).reads) == (log.head, False)
    log.write("other.t", size=100 * 1024 * 1024)
    assert run.batch(now=LATER) is not None


def test_a_batch_ends_at_the_commit_that_a_run_should_reach_and_after_so_many_commits() -> None:
    log = ToyLog()
    run = Run(log).settled()
    goal = [log.write("s.a") for _ in range(3)][1]
    log.write("s.a")
    ends = [run.batch(Limit(commits=1, upto=goal)) for _ in range(3)]
    assert [end and end.commit for end in ends] == [place(2), goal, None]
    # A run that should end goes to its goal also where the log has nothing for it.
    run.settled()
    goal = log.write("other.t")
    reached = run.batch(Limit(upto=goal))
    assert reached is not None
    assert reached.commit == goal


def test_a_batch_that_reaches_the_head_has_the_servers_clock_and_another_the_time_of_its_last_commit() -> None:
    log = ToyLog()
    run = Run(log).settled()
    log.write("s.a")
    log.write("s.a")
    times = [end.commit_time for end in (run.batch(Limit(commits=1)), run.batch()) if end is not None]
    assert times == [CLOCK - dt.timedelta(hours=1), CLOCK]


def test_a_heartbeat_comes_without_any_change() -> None:
    run = Run(ToyLog(), heartbeat_interval_ms=1000).settled()
    assert run.batch(now=NOW + dt.timedelta(milliseconds=999)) is None
    beat = run.batch(now=NOW + dt.timedelta(seconds=1))
    assert beat is not None
    assert beat.heartbeat == NOW + dt.timedelta(seconds=1)


@pytest.mark.parametrize(("mode", "tables"), [("no_data", 0), ("recovery", 0), ("initial", 2), ("when_needed", 2)])
def test_the_mode_says_whether_tables_are_read_at_the_beginning(mode: str, tables: int) -> None:
    run = Run(ToyLog(tables={"s.a": 1, "s.b": 1}), snapshot_mode=mode)
    end = run.batch()
    assert end is not None
    assert (len(end.tables), end.initial) == (tables, False)


def test_a_snapshot_alone_ends_with_the_tables() -> None:
    log = ToyLog(keyless=("s.b",))
    run = Run(log, snapshot_mode="initial_only")
    run.settled()
    log.write("s.a")
    assert run.batch() is None
    # Another process does not read the table without a key again.
    assert run.restarted().batch() is None


def test_mode_always_reads_each_table_again_once_per_process_when_the_stream_has_caught_up() -> None:
    log = ToyLog(tables={"s.a": 1})
    run = Run(log, snapshot_mode="always").settled()
    log.write("s.a")
    end = run.restarted().batch()
    assert end is not None
    assert (end.commit, end.initial, end.tables["s.a"].read, end.tables["s.a"].done) == (log.head, True, 1, False)
    run.settled()
    assert run.offset.reads == 1
    assert run.batch() is None


def test_a_table_without_a_key_is_read_again_at_a_new_moment_where_the_old_one_is_gone() -> None:
    log = ToyLog(tables={"s.a": 3, "s.k": 5}, keyless=("s.k",))
    run = Run(log)
    run.batch()
    assert reading(run.batch()) == {"s.a": (1, True), "s.k": (5, True)}
    log.write("s.k")
    again = run.restarted().batch()
    assert again is not None
    assert (again.tables["s.k"].commit, again.tables["s.k"].read, reading(again)) == (log.head, 1, {"s.k": (5, True)})
    assert again.tables["s.a"].commit == place(1)


def test_changes_of_a_table_whose_snapshot_is_newer_than_the_stream_are_left_out_until_it_is_reached() -> None:
    log = ToyLog(tables={"s.a": 1})
    run = Run(log).settled()
    log.write(signals=(blocking("s.a"),))
    end = run.batch()
    assert end is not None
    log.write("s.a")
    log.write("s.a")
    # The moment was behind all that was committed when it was made.
    assert (end.commit, end.tables["s.a"].commit, end.tables["s.a"].read) == (place(2), place(2), 1)
    run.batch()
    caught = run.batch(Limit(commits=1))
    assert caught is not None
    assert (caught.commit, caught.tables) == (place(3), {})


def test_a_blocking_snapshot_waits_for_a_moment_and_the_stream_goes_on() -> None:
    log = ToyLog(point_waits="a transaction is open.")
    run = Run(log).settled()
    log.write("s.a", signals=(blocking("s.b"),))
    end = run.batch()
    assert end is not None
    assert (end.tables, AdHoc.from_json(end.ad_hoc).blocking) == ({}, ("s.b",))
    log.point_waits = ""
    begun = run.batch()
    assert begun is not None
    assert list(begun.tables) == ["s.b"]
    assert not AdHoc.from_json(begun.ad_hoc).blocking


def test_a_new_table_is_read_before_its_changes_are_streamed() -> None:
    log = ToyLog(point_waits="a transaction is open.")
    run = Run(log).settled()
    log.tables["s.new"] = 1
    log.write("s.new")
    waiting = run.batch()
    assert waiting is not None
    assert (waiting.known, ToyState.of(waiting).waiting) == (("s.a", "s.b", "s.new"), ("s.new",))
    log.point_waits = ""
    begun = run.batch()
    assert begun is not None
    assert (list(begun.tables), ToyState.of(begun).waiting) == (["s.new"], ())


def test_another_databases_checkpoint_is_refused() -> None:
    run = Run(ToyLog()).settled()
    run.offset = Offset.from_json({**run.offset.to_json(), "source": "toy:other"})
    with pytest.raises(PositionMismatch, match="belongs to 'toy:other', not to 'toy:db'"):
        run.batch()


@pytest.mark.parametrize("new_process", [False, True])
class TestWhatIsLost:
    """The log forgot what follows the offset, seen by the process that read it or by a new one."""

    @staticmethod
    def advanced(new_process: bool, **options: Any) -> Run:
        log = ToyLog()
        run = Run(log, **options).settled()
        for _ in range(4):
            log.write("s.a")
        log.forgotten = 3
        return run.restarted() if new_process else run

    def test_stops_the_run(self, new_process: bool) -> None:
        run = self.advanced(new_process)
        for _ in range(2):
            with pytest.raises(DataLossError, match="forgot"):
                run.batch()

    def test_is_said_table_by_table_and_the_rest_is_read(self, new_process: bool) -> None:
        run = self.advanced(new_process, fail_on_data_loss=False)
        gap = run.batch()
        assert gap is not None
        assert gap.gaps == dict.fromkeys(("s.a", "s.b"), (place(1), place(3)))
        rest = run.batch()
        assert rest is not None
        assert (rest.commit, rest.gaps, ToyState.of(rest).reads) == (place(5), {}, True)

    def test_reaches_to_the_logs_end_where_it_can_not_be_read_on(self, new_process: bool) -> None:
        run = self.advanced(new_process, fail_on_data_loss=False)
        run.log.resumes = False
        gap = run.batch()
        assert gap is not None
        assert (gap.commit, gap.gaps["s.a"], gap.tables) == (place(5), (place(1), place(5)), {})
        assert run.batch() is None or run.offset.commit == place(5)

    def test_makes_tables_read_again_where_the_mode_says_so(self, new_process: bool) -> None:
        run = self.advanced(new_process, snapshot_mode="when_needed")
        gap = run.batch()
        assert gap is not None
        assert (gap.gaps["s.b"], gap.tables["s.b"].commit) == ((place(1), place(5)), place(5))
        run.settled()
        assert (run.offset.reads, run.offset.commit, run.offset.is_level) == (1, place(5), True)


def test_a_preview_shows_the_next_batch_and_does_nothing() -> None:
    log = ToyLog()
    run = Run(log)
    first = run.planner.preview(run.offset, restarted=True)
    assert reading(first) == {"s.a": (1, False)}
    assert run.planner.kept == {}
    run.settled()
    assert run.planner.preview(run.offset, restarted=False) is run.offset
    again = run.restarted(snapshot_mode="always").planner.preview(run.offset, restarted=True)
    assert (list(again.tables), again.initial) == (["s.a", "s.b"], True)


# Changes of one table that are left out.


def skip(table: str, upto: str) -> Signal:
    return Signal("1", "skip-changes", json.dumps({"data-collections": [table], "position": upto}))


def test_a_signal_file_leaves_out_changes_before_the_log_is_read_on(tmp_path: Path) -> None:
    run = Run(ToyLog(), signal_path=str(tmp_path)).settled()
    at = run.offset.commit
    run.log.write("s.a")
    upto = run.log.write("s.a", "s.b")
    run.log.write("s.a")
    write_file(tmp_path, skip("s.a", upto))
    first = run.restarted().batch()
    assert first is not None
    # The batch that says so has nothing of the log, so none of the changes is in the sinks when the next one leaves
    # them out.
    assert (first.commit, ToyState.of(first).reads) == (at, False)
    assert (first.tables["s.a"].commit, first.tables["s.a"].done) == (upto, True)
    assert (first.gaps, first.skipped) == ({"s.a": (at, upto)}, {"s.a": (at, upto)})
    second = run.batch()
    assert second is not None
    assert (second.commit, dict(second.tables), second.gaps) == (run.log.head, {}, {})
    assert second.skipped == {"s.a": (at, upto)}


def test_a_signal_in_the_log_leaves_out_changes_behind_its_batch() -> None:
    run = Run(ToyLog()).settled()
    ahead = place(len(run.log.commits) + 3)
    at = run.log.write("s.a", signals=(skip("s.a", ahead),))
    end = run.batch()
    assert end is not None
    assert (end.tables["s.a"].commit, end.skipped) == (ahead, {"s.a": (at, ahead)})
    for _ in range(4):
        run.log.write("s.a")
    assert run.settled().offset.is_level


@pytest.mark.parametrize(
    ("table", "upto", "sentence"),
    [
        ("s.a", place(1), "are delivered up to 000001 already, so none is left out up to 000001"),
        ("s.a", "7", "'7' is no place in this log"),
        ("s.c", place(9), "names 's.c', which no captured table matches"),
    ],
)
def test_what_can_not_be_left_out_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, table: str, upto: str, sentence: str
) -> None:
    run = Run(ToyLog(), signal_path=str(tmp_path)).settled()
    write_file(tmp_path, skip(table, upto))
    end = run.batch()
    assert end is not None
    assert (dict(end.tables), dict(end.skipped)) == ({}, {})
    assert sentence in caplog.text


def test_a_rewind_is_not_followed_because_a_log_is_read_once(caplog: pytest.LogCaptureFixture) -> None:
    run = Run(ToyLog()).settled()
    wanted = Signal("1", "rewind-changes", json.dumps({"data-collections": ["s.a"], "position": place(1)}))
    run.log.write("s.a", signals=(wanted,))
    end = run.batch()
    assert end is not None
    assert dict(end.tables) == {}
    assert "this source can't rewind a table. Read it again instead." in caplog.text


def test_a_table_is_read_again_where_the_mode_reads_none_by_itself(tmp_path: Path) -> None:
    run = Run(ToyLog(), snapshot_mode="no_data", signal_path=str(tmp_path)).settled()
    write_file(tmp_path, blocking("s.b"))
    run.batch()
    assert reading(run.batch()) == {"s.b": (1, True)}
