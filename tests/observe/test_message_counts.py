"""Messages that gave no change: counted by reason, once per batch, and shown where people and programs look."""

from __future__ import annotations

import datetime as dt
import io
from dataclasses import replace

from rich.console import Console

from headrace.cli.status import lines
from headrace.observe.live import line, messages_text, screen
from headrace.observe.messages import MOST_REASONS, OTHER_REASONS, KeptCounts, MessageCounts
from headrace.observe.metrics import metrics
from headrace.observe.progress import BatchCount, PipelineProgress, ProgressBoard
from headrace.observe.status import PipelineStatus

SOME = MessageCounts({"No JSON.": 2, "No type.": 1}, no_event=4, dead_letters=3)


def test_the_board_adds_up() -> None:
    board = ProgressBoard()
    board.add([BatchCount("t", "c", 5), BatchCount("", "error", 3), BatchCount("", "", 4)], SOME)
    board.add([BatchCount("t", "c", 1)], MessageCounts())
    board.add([BatchCount("", "error", 1)], MessageCounts({"No JSON.": 1}, dead_letters=1))
    progress = board.progress(None, True)
    assert progress.messages == MessageCounts({"No JSON.": 3, "No type.": 1}, 4, 4)
    assert [(t.table, t.rows) for t in progress.tables] == [("t", {"c": 6}), ("", {"error": 4})]
    assert not ProgressBoard().progress(None, True).messages


def test_reasons_without_end_are_counted_together() -> None:
    counts = MessageCounts()
    for number in range(MOST_REASONS + 30):
        counts = counts.plus(MessageCounts({f"Reason {number}.": 2}))
    assert len(counts.errors) == MOST_REASONS + 1
    assert (counts.errors[OTHER_REASONS], counts.unreadable) == (60, 2 * (MOST_REASONS + 30))


def test_a_repeated_batch_counts_once() -> None:
    one = MessageCounts({"No JSON.": 1}, no_event=1)
    kept = KeptCounts().counted(3, one).counted(3, one).counted(5, SOME).counted(5, SOME)
    assert KeptCounts.from_text(kept.to_text()) == kept
    assert kept.up_to(5) == one.plus(SOME)
    # Batch 5 is not committed yet: it comes again.
    assert kept.up_to(4) == one
    assert kept.up_to(None) == one
    assert KeptCounts().counted(0, one).up_to(None) == MessageCounts()


def test_counts_that_can_not_be_read_are_none() -> None:
    for text in (None, "", "{", "[]", '{"batch": 1}', '{"batch": null, "before": {}, "of_batch": {}}'):
        assert KeptCounts.from_text(text) == KeptCounts()


def test_counts_of_an_older_release_say_what_no_sink_has() -> None:
    counts = {"unreadable": 3, "reasons": {"No JSON.": 3}, "no_event": 4, "dead_letters": 2}
    assert MessageCounts.from_json(counts) == MessageCounts({"No JSON.": 3}, 4, 2, left_out=1)


def test_a_pipeline_that_left_messages_out_is_not_fine() -> None:
    assert PipelineStatus("p", "c", messages=SOME).is_fine
    left_out = PipelineStatus("p", "c", batch=7, messages=replace(SOME, left_out=1))
    assert not left_out.is_fine
    said = lines(left_out, dt.datetime.now(dt.UTC))[2]
    assert said.startswith("  left out   no sink has the messages or changes that could")


def test_metrics() -> None:
    found = metrics(PipelineProgress(messages=MessageCounts({'A "quoted" \\ one.': 2}, 4, 1, left_out=1, shortened=6)))
    assert (found["headrace_left_out_messages_total"], found["headrace_shortened_changes_total"]) == (1, 6)
    assert found['headrace_rejected_rows_total{reason="A \\"quoted\\" \\\\ one."}'] == 2
    assert found["headrace_no_event_messages_total"] == 4
    assert found["headrace_dead_letters_total"] == 1
    assert not [name for name in metrics(PipelineProgress()) if "messages" in name or "rejected" in name]


def test_in_words() -> None:
    assert messages_text(SOME) == ("3 unreadable (2 x No JSON.; 1 x No type.), all in dead letters; 4 are not events")
    assert messages_text(MessageCounts({"a": 9, "b": 8, "c": 7, "d": 1, "e": 1}, 1, 5)) == (
        "26 unreadable (9 x a; 8 x b; 7 x c; 2 more reasons), 5 in dead letters; 1 is not an event"
    )
    assert messages_text(MessageCounts({"a": 2}, left_out=2)) == "2 unreadable (2 x a), 2 left out"
    assert messages_text(MessageCounts(shortened=1)) == "1 change sent without large values"
    nulled = MessageCounts(nulled={"dbo.t": {"d": 2}, "dbo.u": {"n": 1}})
    assert messages_text(nulled) == "3 values written as NULL: 2 in dbo.t.d, 1 in dbo.u.n"
    assert MessageCounts.from_json(nulled.to_json()).plus(MessageCounts(nulled={"dbo.t": {"d": 1, "e": 1}})) == (
        MessageCounts(nulled={"dbo.t": {"d": 3, "e": 1}, "dbo.u": {"n": 1}})
    )
    beyond = MessageCounts(out_of_range={"dbo.t": {"valid_to": 2}, "dbo.u": {"at": 1}})
    assert messages_text(beyond) == "3 values beyond what the format holds: 2 in dbo.t.valid_to, 1 in dbo.u.at"
    assert beyond.to_json()["out_of_range"] == 3
    assert MessageCounts.from_json(beyond.to_json()).plus(MessageCounts(out_of_range={"dbo.t": {"valid_to": 1}})) == (
        MessageCounts(out_of_range={"dbo.t": {"valid_to": 3}, "dbo.u": {"at": 1}})
    )


def test_values_that_an_earlier_release_counted_have_no_names() -> None:
    without = {name: value for name, value in MessageCounts().to_json().items() if name != "out_of_range_columns"}
    earlier = MessageCounts.from_json(without | {"out_of_range": 2})
    assert messages_text(earlier) == "2 values beyond what the format holds"
    more = earlier.plus(MessageCounts(out_of_range={"dbo.t": {"valid_to": 1}}))
    assert messages_text(more) == "3 values beyond what the format holds: 1 in dbo.t.valid_to"
    assert more.to_json()["out_of_range"] == 3


def test_on_a_screen_and_in_a_log() -> None:
    board = ProgressBoard()
    odd = MessageCounts({"[bold]No JSON[/nothing].": 1})
    board.add([BatchCount("t", "c", 5), BatchCount("", "error", 1)], odd)
    progress = board.progress(None, True)
    assert "; 1 unreadable (1 x [bold]No JSON[/nothing].); " in line(progress)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(screen(progress, "title"))
    assert "1 unreadable (1 x [bold]No JSON[/nothing].)" in console.export_text()
