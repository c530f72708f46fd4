"""Counts, snapshot states and the lag, with a clock of our own."""

from __future__ import annotations

import datetime as dt
import io

import pytest
from rich.console import Console

from headrace.observe.completeness import Completeness, completeness
from headrace.observe.live import LiveView, health_text, line, now_text, screen
from headrace.observe.metrics import metrics
from headrace.observe.progress import BatchCount, Delays, PipelineProgress, ProgressBoard, TableState
from headrace.sources.databases import Offsets
from headrace.sources.health import CaptureState, Health
from headrace.sources.offset import Offset, TableProgress

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def board(self) -> ProgressBoard:
        return ProgressBoard(lambda: self.seconds, lambda: NOON + dt.timedelta(seconds=self.seconds))


def offset(commit_time: dt.datetime | None = NOON, **tables: TableProgress) -> Offset:
    return Offset(source="s", commit="01", commit_time=commit_time, initial=bool(tables), tables=tables)


def test_rows_by_table_and_operation() -> None:
    board = Clock().board()
    board.add([BatchCount("dbo.a", "c", 2), BatchCount("dbo.a", "schema", 1), BatchCount("dbo.b", "d", 1)])
    board.add([BatchCount("dbo.a", "c", 3)])
    progress = board.progress(offset(), True)
    assert [(t.table, t.rows) for t in progress.tables] == [("dbo.a", {"c": 5}), ("dbo.b", {"d": 1})]
    assert (progress.rows, progress.batches, progress.position) == (6, 2, "01")


def test_a_snapshot_from_its_first_chunk_to_its_end() -> None:
    board = Clock().board()
    board.add([BatchCount("dbo.a", "r", 50)])
    running = board.progress(offset(**{"dbo.a": TableProgress("01", 1, rows=200)}), False)
    assert running.snapshotting
    assert (running.tables[0].snapshot, running.tables[0].estimate) == ("running", 200)
    assert "50 of about 200 (25%)" in line(running)
    catching_up = board.progress(offset(**{"dbo.a": TableProgress("00", 4, rows=200, done=True)}), False)
    assert catching_up.tables[0].snapshot == "catching up"
    board.add([BatchCount("dbo.a", "r", 150)])
    done = board.progress(offset(), True)
    assert (done.tables[0].snapshot, done.snapshotting) == ("done", False)


def test_a_resumed_snapshot_counts_what_earlier_runs_read() -> None:
    clock = Clock()
    board = ProgressBoard(lambda: clock.seconds, lambda: NOON, chunk_rows=40)
    lagging = TableProgress("01", 2, bounds=(("9",),), rows=200)
    state = board.progress(offset(**{"dbo.a": lagging}), False).tables[0]
    assert (state.read, state.snapshot_left) == (120, 80)
    board.add([BatchCount("dbo.a", "r", 150)])
    state = board.progress(offset(**{"dbo.a": lagging}), False).tables[0]
    assert (state.read, state.snapshot_left) == (150, 50)
    # An estimate that was too small leaves nothing, and less than nothing is never left.
    many = TableProgress("01", 9, rows=200)
    assert board.progress(offset(**{"dbo.a": many}), False).tables[0].snapshot_left == 0
    unknown = TableProgress("01", 9, rows=-1)
    assert board.progress(offset(**{"dbo.b": unknown}), False).tables[1].snapshot_left is None


def test_an_idle_run_shows_the_tables_that_it_has_taken_in() -> None:
    idle = Offset(
        source="s",
        commit="05",
        known=("dbo.a", "dbo.b", "dbo.c"),
        uncaptured={"dbo.gone": "03"},
        gaps={"dbo.b": ("01", "02")},
        tables={"dbo.c": TableProgress("01", rows=200)},
        ad_hoc={"unequal": {"dbo.a": ["04", ""], "dbo.c": ["04", ""]}},
    )
    complete = Completeness({"dbo.a": NOON, "dbo.b": None, "dbo.c": None, "dbo.gone": None})
    tables = Clock().board().progress(idle, True, complete=complete).tables
    assert [(t.table, t.state, t.complete_until) for t in tables] == [
        ("dbo.a", "not equal", NOON),
        ("dbo.b", "changes lost", None),
        ("dbo.c", "in its snapshot", None),
        ("dbo.gone", "not captured", None),
    ]


def test_tables_of_several_databases_are_named_with_theirs() -> None:
    offsets = Offsets(
        {
            "crm": Offset(source="s", commit="05", known=("dbo.a",), skipped={"dbo.a": ("01", "02")}),
            "erp": Offset(source="s", commit="07", known=("dbo.a",), tables={"dbo.a": TableProgress("01", rows=9)}),
        }
    )
    board = Clock().board()
    board.add([BatchCount("erp.dbo.a", "r", 3)])
    tables = board.progress(offsets.merged(), True, complete=completeness([offsets], 0)).tables
    assert [(t.table, t.state, t.rows) for t in tables] == [
        ("crm.dbo.a", "changes lost", {}),
        ("erp.dbo.a", "in its snapshot", {"r": 3}),
    ]


def test_a_snapshot_says_how_fast_it_reads_and_how_long_it_will_take() -> None:
    clock = Clock()
    board = clock.board()
    lagging = offset(**{"dbo.a": TableProgress("01", 1, rows=1000)})
    clock.seconds = 10
    # The batch took ten seconds, so its rows are the first ten seconds' rows.
    board.add([BatchCount("dbo.a", "r", 200)], seconds=10)
    state = board.progress(lagging, False).tables[0]
    assert (state.read_per_second, state.snapshot_seconds_left) == (20, 40)
    clock.seconds = 200
    assert board.progress(lagging, False).tables[0].snapshot_seconds_left is None
    assert board.progress(offset(), True).tables[0].read_per_second == 0


def test_the_delay_of_a_batch_is_the_age_of_its_oldest_change_when_it_is_in_all_sinks() -> None:
    clock = Clock()
    board = clock.board()
    assert board.progress(offset(), True).delays is None
    for number in range(1, 101):
        clock.seconds = 1000.0 * number
        newest = NOON + dt.timedelta(seconds=clock.seconds - 0.5)
        oldest = NOON + dt.timedelta(seconds=clock.seconds - number)
        long_ago = NOON - dt.timedelta(days=9)
        counts = [BatchCount("dbo.a", "c", 2, newest, oldest), BatchCount("dbo.a", "r", 1, long_ago, long_ago)]
        board.add([*counts, BatchCount("dbo.a", "d", 1, newest, newest)], number=number)
    assert board.progress(offset(), True).delays == Delays(50, 90, 99, 100)
    # A clock of the source that is ahead gives no delay below nothing, and a snapshot gives none at all.
    board = Clock().board()
    ahead = NOON + dt.timedelta(hours=1)
    board.add([BatchCount("dbo.a", "c", 1, ahead, ahead)])
    board.add([BatchCount("dbo.a", "r", 1, ahead, ahead)])
    assert [batch.delay for batch in board.progress(offset(), True).recent] == [0, None]


def test_where_the_time_of_a_batch_goes_and_what_was_needed_around_it() -> None:
    board = Clock().board()
    board.add([BatchCount("dbo.a", "c", 1)], number=7, seconds=2.0, stages={"read": 0.5, "sink (delta)": 1.5})
    board.planned(7, 0.25)
    board.planned(8, 9.0)
    [batch] = board.progress(offset(), True).recent
    assert list(batch.stages.items()) == [("plan", 0.25), ("read", 0.5), ("sink (delta)", 1.5)]


def test_lag_is_zero_at_the_head_however_old_the_last_commit() -> None:
    clock = Clock()
    board = clock.board()
    clock.seconds = 3600
    assert board.progress(offset(), True).lag_seconds == 0


def test_lag_after_an_idle_hour_counts_from_when_we_were_level() -> None:
    clock = Clock()
    board = clock.board()
    clock.seconds = 3600
    board.progress(offset(), True)
    clock.seconds = 3602
    assert board.progress(offset(), False).lag_seconds == 2


def test_lag_behind_from_the_start_counts_from_the_last_applied_commit() -> None:
    clock = Clock()
    board = clock.board()
    clock.seconds = 90
    assert board.progress(offset(), False).lag_seconds == 90
    assert board.progress(offset(None), False).lag_seconds is None
    assert board.progress(offset(), None).lag_seconds is None


def test_the_rate_forgets() -> None:
    clock = Clock()
    board = clock.board()
    clock.seconds = 2
    board.add([BatchCount("dbo.a", "c", 1000)])
    assert board.progress(offset(), True).rows_per_second == 500
    clock.seconds = 60
    assert board.progress(offset(), True).rows_per_second == 0


def test_a_log_gets_a_line_for_each_batch_and_the_sums_at_the_end() -> None:
    board = Clock().board()
    plain = Console(force_terminal=False, width=300, record=True)
    with LiveView(plain, "sales") as view:
        view.update(board.progress(offset(), True))
        board.add([BatchCount("dbo.a", "u", 1234), BatchCount("", "error", 2)], number=0, seconds=0.26)
        board.add([], number=1)
        board.add([BatchCount(f"dbo.t{n}", "c", n) for n in range(1, 6)], number=2, seconds=2)
        view.update(board.progress(offset(), True))
        view.update(board.progress(offset(), True))
        lagging = offset(**{"dbo.a": TableProgress("01", 1, rows=200)})
        board.add([BatchCount("dbo.a", "r", 50)], number=3, seconds=61)
        view.update(board.progress(lagging, None))
        view.update(board.progress(lagging, None), last=True)
    assert plain.export_text().splitlines() == [
        "batch 0: 1,234 updates, 2 unreadable in dbo.a; 0.3 s",
        "batch 2: 15 inserts in dbo.t5, dbo.t4, dbo.t3 and 2 more; 2.0 s; lag 0.0 s",
        "batch 3: 50 read in dbo.a; 61.0 s; snapshot of dbo.a 25%; lag unknown",
        line(board.progress(lagging, None)),
    ]


def test_a_log_says_every_few_seconds_what_is_done_before_and_while_a_batch_is_written() -> None:
    clock = Clock()
    board = clock.board()
    plain = Console(force_terminal=False, width=300, record=True)
    with LiveView(plain, "sales", lambda: clock.seconds) as view:

        def wait(seconds: int) -> None:
            for _ in range(seconds):
                clock.seconds += 1
                view.update(board.progress(offset(), True))

        wait(6)
        board.enter(0, "source")
        wait(18)
        board.add([BatchCount("dbo.a", "r", 5)], number=0, seconds=18)
        board.leave()
        wait(60)
        board.enter(1, "sink 1 (delta)")
        wait(9)
    assert plain.export_text().splitlines() == [
        "starting",
        "batch 0: source, 7.0 s",
        "batch 0: 5 read in dbo.a; 18.0 s; lag 0.0 s",
        "batch 1: sink 1 (delta), 1.0 s",
        "batch 1: sink 1 (delta), 9.0 s",
    ]


def test_of_very_many_batches_the_last_hundred_are_told() -> None:
    board = Clock().board()
    plain = Console(force_terminal=False, width=300, record=True)
    with LiveView(plain, "sales") as view:
        for number in range(250):
            board.add([BatchCount("dbo.a", "c", 1)], number=number)
        view.update(board.progress(offset(), True))
    lines = plain.export_text().splitlines()
    assert (lines[0], lines[1].startswith("batch 150: "), len(lines)) == ("150 batches more", True, 101)


def test_a_terminal_gets_a_table_with_bars_for_snapshots() -> None:
    board = Clock().board()
    board.add([BatchCount("dbo.a", "r", 50), BatchCount("dbo.b", "u", 1234), BatchCount("", "error", 2)])
    progress = board.progress(offset(**{"dbo.a": TableProgress("01", 1, rows=200)}), True)
    drawn = Console(width=80, record=True)
    drawn.print(screen(progress, "sales"))
    text = drawn.export_text()
    row = next(found for found in text.splitlines() if "dbo.a" in found)
    assert row.split()[:2] == ["dbo.a", "50"]
    assert " 25% " in row
    # A quarter of the bar's ten places is drawn full.
    assert row.count("\N{BOX DRAWINGS HEAVY HORIZONTAL}") >= 2
    assert "1,234" in text
    assert "lag 0.0 s; 1 batch" in text


@pytest.mark.parametrize("width", [80, 60])
def test_a_narrow_terminal_folds_names_and_cuts_no_number(width: int) -> None:
    board = Clock().board()
    counted = {"r": 812_000, "c": 139_402, "u": 1_061_555, "d": 120_320}
    board.add([BatchCount("accounting.order_line_items", op, rows) for op, rows in counted.items()])
    lagging = offset(**{"accounting.order_line_items": TableProgress("01", 1, rows=2_400_000)})
    drawn = Console(width=width, record=True)
    drawn.print(screen(board.progress(lagging, True), "sales"))
    text = drawn.export_text()
    for number in ("812,000", "33%", "139,402", "1,061,555", "120,320"):
        assert number in text


def test_a_terminal_says_what_the_run_does_now() -> None:
    clock = Clock()
    board = clock.board()
    said = []

    def look(lag: bool | None = True) -> None:
        said.append(now_text(board.progress(offset(), lag)))

    look()
    board.enter(3, "read")
    clock.seconds += 2
    look()
    board.read(100_000)
    # A task that is run again says less.
    board.read(50_000)
    look()
    board.read(99_999, whole=True)
    board.enter(3, "sink 1 (delta)")
    clock.seconds += 1
    look()
    board.add([BatchCount("dbo.a", "c", 1)], number=3)
    board.leave()
    look()
    clock.seconds += 1
    look(False)
    assert said == [
        "starting",
        "batch 3: read, 2.0 s",
        "batch 3: read, 100,000 rows, 2.0 s",
        "batch 3: sink 1 (delta), 99,999 rows, 3.0 s",
        "everything is in the sinks; waiting for changes",
        "between two batches",
    ]


def test_rows_per_second_are_left_out_where_they_say_nothing() -> None:
    board = Clock().board()
    board.add([BatchCount("dbo.a", "c", 5)])
    plain, terminal = (Console(force_terminal=drawn, width=300, record=True) for drawn in (False, True))
    for console in (plain, terminal):
        with LiveView(console, "demo", rate=False) as view:
            view.update(board.progress(offset(), True), last=True)
        text = console.export_text()
        assert "lag 0.0 s; 1 batch" in text and "rows/s" not in text


def test_a_run_that_fails_leaves_no_spinner_on_the_screen() -> None:
    board = Clock().board()
    board.enter(0, "read")
    written = io.StringIO()
    terminal = Console(force_terminal=True, width=80, file=written)
    with pytest.raises(ValueError, match="broken"), LiveView(terminal, "sales") as view:
        view.update(board.progress(offset(), True))
        raise ValueError("broken")
    last = written.getvalue().rpartition("sales")[2]
    assert "batch 0: read" not in last and "0 batches" in last


def test_nothing_yet() -> None:
    assert line(PipelineProgress()) == "0 inserts, 0 updates, 0 deletes; 0 rows/s; lag unknown; 0 batches"


STOPPED = Health(
    CaptureState.NOT_CAPTURING,
    "SQL Server Agent is stopped.",
    checked=NOON + dt.timedelta(seconds=60),
    captured_until=NOON + dt.timedelta(seconds=20),
)


def test_lag_grows_when_all_that_was_captured_is_here_but_capture_has_stopped() -> None:
    clock = Clock()
    board = clock.board()
    clock.seconds = 30
    assert board.progress(offset(), True, Health(CaptureState.CAPTURING)).lag_seconds == 0
    clock.seconds = 60
    assert board.progress(offset(), True, STOPPED).lag_seconds == 40
    assert board.progress(offset(), False, STOPPED).lag_seconds == 40
    # Nobody says up to when it was captured: since we were last level with a source that captured.
    assert board.progress(offset(), True, Health(CaptureState.NOT_CAPTURING)).lag_seconds == 30
    assert board.progress(offset(), True, Health()).lag_seconds == 0


def test_the_line_says_when_the_source_does_not_capture() -> None:
    board = Clock().board()
    told = line(board.progress(offset(), True, STOPPED))
    assert told.endswith("lag 40.0 s; 0 batches; source not capturing: SQL Server Agent is stopped")
    assert line(board.progress(offset(), True, Health(CaptureState.CAPTURING, "The log was read 1 s ago."))).endswith(
        "0 batches"
    )


def test_a_change_of_health_is_told_before_the_next_line_is_due() -> None:
    board = Clock().board()
    plain = Console(force_terminal=False, width=200, record=True)
    with LiveView(plain, "sales") as view:
        for health in (Health(CaptureState.CAPTURING), Health(CaptureState.CAPTURING), STOPPED, STOPPED):
            view.update(board.progress(offset(), True, health))
    lines = plain.export_text().splitlines()
    assert len(lines) == 2
    assert lines[1].endswith("source not capturing: SQL Server Agent is stopped")


def test_what_clean_up_threatens_is_told() -> None:
    def health(**facts: object) -> Health:
        return Health(CaptureState.CAPTURING, retention_seconds=100_000.0, **facts)  # type: ignore[arg-type]

    assert health_text(None) == health_text(health(headroom_seconds=90_000.0)) == ""
    assert health_text(health(headroom_seconds=7_320.0)).endswith("not in the sinks in 2 h 2 min")
    assert health_text(health(headroom_seconds=-5.0)).endswith("at any moment")
    assert health_text(health(headroom_seconds=0.0, lost=("dbo.a",))) == "needed changes of dbo.a are deleted"
    assert health_text(Health(sentence="The source can't be asked: no.")) == "The source can't be asked: no"


def test_a_log_that_is_kept_up_to_a_bound_is_told_when_a_quarter_is_left() -> None:
    texts = {
        None: "",
        3 * 2**30: "",
        2**28: "changes that are not in the sinks are lost after 256 MB more of the log",
        0: "clean-up may delete changes that are not in the sinks at any moment",
    }
    for left, text in texts.items():
        assert health_text(Health(CaptureState.CAPTURING, retained_bytes=2**30, headroom_bytes=left)) == text


def test_metrics_have_stable_names_and_leave_out_what_is_unknown() -> None:
    assert metrics(PipelineProgress()) == {
        "headrace_batches_total": 0.0,
        "headrace_rows_per_second": 0.0,
        "headrace_parked_tables": 0.0,
        "headrace_warnings_total": 0.0,
    }
    tables = (TableState("dbo.a", {"r": 3, "u": 2, "error": 1}, 10, "running", read=4), TableState("dbo.b", {"c": 1}))
    found = metrics(PipelineProgress(tables=tables, behind_commits=7))
    assert found['headrace_rows_total{table="dbo.a",op="r"}'] == 3
    assert found['headrace_rows_total{table="dbo.b",op="c"}'] == 1
    assert found['headrace_snapshot_rows_remaining{table="dbo.a"}'] == 6
    assert found["headrace_behind_commits"] == 7
    assert not [name for name in found if "error" in name or ("remaining" in name and "dbo.b" in name)]
    found = metrics(PipelineProgress(batches=2, rows=5, lag_seconds=40.0, health=STOPPED, complete_until=NOON))
    assert found["headrace_capturing"] == 0
    assert found["headrace_capture_behind_seconds"] == found["headrace_lag_seconds"] == 40
    assert found["headrace_complete_until_seconds"] == NOON.timestamp()
    assert "headrace_retention_headroom_seconds" not in found
    assert "headrace_capturing" not in metrics(PipelineProgress(health=Health()))
