"""Rule: what is told of a snapshot follows from the two offsets of a batch, in Debezium's words."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from headrace.errors import OptionError
from headrace.settings import Settings
from headrace.sources.notifications import Notifications, NotificationSettings, notifications
from headrace.sources.offset import Offset, TableProgress
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.requests import Request

AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
NOTHING = Offset.nothing()
END = Offset(source="sqlserver:shop", commit="c1", capture_time=AT, known=("dbo.a", "dbo.b"))
WHOLE = TableProgress("c1", bounds=(None,), done=True)
FIRST = TableProgress("c1", bounds=(("5",),))
LATER = TableProgress("c1", chunk=1, lower=("5",))


def told(start, end):
    found = []
    for one in notifications(start, end):
        of = one.additional_data.get("current_collection_in_progress") or one.additional_data.get("scanned_collection")
        status = one.additional_data.get("status")
        found.append(" ".join(filter(None, (one.type, of, status))))
    return found


def at(tables, *, initial=True, commit="c1"):
    return replace(END, tables=tables, initial=initial, commit=commit)


@pytest.mark.parametrize(
    ("start", "end", "types"),
    [
        (NOTHING, at({}, initial=False), ["SKIPPED"]),
        (
            NOTHING,
            at({"dbo.a": WHOLE, "dbo.b": TableProgress("c1", done=True, empty=True)}, initial=False),
            [
                "STARTED",
                "IN_PROGRESS dbo.a",
                "TABLE_SCAN_COMPLETED dbo.a SUCCEEDED",
                "IN_PROGRESS dbo.b",
                "TABLE_SCAN_COMPLETED dbo.b EMPTY",
                "COMPLETED",
            ],
        ),
        (NOTHING, at({"dbo.a": FIRST}), ["STARTED", "IN_PROGRESS dbo.a"]),
        (at({"dbo.a": FIRST}), at({"dbo.a": LATER}), []),
        (
            at({"dbo.a": LATER}),
            at({"dbo.a": replace(LATER, bounds=(None,), done=True)}, initial=False),
            ["TABLE_SCAN_COMPLETED dbo.a SUCCEEDED", "COMPLETED"],
        ),
        (at({"dbo.a": FIRST}), at({}, initial=False, commit="c9"), ["ABORTED"]),
        # A table that comes later, or is read again, while the others are streamed.
        (
            at({}, initial=False),
            at({"dbo.b": replace(WHOLE, commit="c2", read=1)}, initial=False, commit="c2"),
            ["IN_PROGRESS dbo.b", "TABLE_SCAN_COMPLETED dbo.b SUCCEEDED"],
        ),
        # One that is only streamed was not read.
        (at({}, initial=False), at({"dbo.b": TableProgress("c2", done=True)}, initial=False), []),
    ],
)
def test_what_a_batch_does_with_snapshots_of_whole_tables(start, end, types):
    assert told(start, end) == types


A, B = Request("dbo.a", 0, signal="s1"), Request("dbo.b", 1, signal="s1")
READ = replace(A, key=("id",), last=("9",), bounds=(("5",),))
DONE = replace(READ, bounds=(("9",),), done=True)


def asked(*requests, paused=False, commit="c1"):
    return replace(END, initial=False, commit=commit, ad_hoc=AdHoc(requests, paused=paused, numbers=2).to_json())


@pytest.mark.parametrize(
    ("start", "end", "types"),
    [
        (asked(), asked(A, B), ["STARTED"]),
        (asked(), asked(READ, B), ["STARTED", "IN_PROGRESS dbo.a"]),
        (asked(READ, B), asked(DONE, B), ["IN_PROGRESS dbo.a", "TABLE_SCAN_COMPLETED dbo.a SUCCEEDED"]),
        (asked(DONE, B), asked(replace(B, key=("id",), done=True)), ["TABLE_SCAN_COMPLETED dbo.b EMPTY", "COMPLETED"]),
        (asked(A, B), asked(A, B, paused=True), ["PAUSED"]),
        (asked(A, B, paused=True), asked(A, B), ["RESUMED"]),
        (asked(A, B), asked(B), ["ABORTED"]),
        (asked(DONE), asked(), []),
    ],
)
def test_what_a_batch_does_with_snapshots_beside_the_stream(start, end, types):
    assert told(start, end) == types
    assert {one.id for one in notifications(start, end)} <= {"s1"}


def test_a_replay_says_the_same_and_no_two_have_one_id():
    end = at({"dbo.a": WHOLE, "dbo.b": WHOLE}, initial=False)
    found = list(notifications(NOTHING, end))
    assert found == list(notifications(NOTHING, Offset.from_json(end.to_json())))
    assert len({one.id for one in found}) == len(found)
    assert {one.timestamp for one in found} == {1_767_225_600_000}
    assert found[1].to_json("shop") == {
        "id": found[1].id,
        "type": "IN_PROGRESS",
        "aggregate_type": "Initial Snapshot",
        "additional_data": {
            "connector_name": "shop",
            "data_collections": "dbo.a,dbo.b",
            "current_collection_in_progress": "dbo.a",
        },
        "timestamp": 1_767_225_600_000,
    }


def test_the_channel_sink_needs_a_topic_and_without_channels_nothing_is_said(caplog):
    given = NotificationSettings.parse({"notification.enabled.channels": "sink"}, owner="a source")
    with pytest.raises(OptionError, match="needs a topic") as error:
        Notifications(given)
    assert error.value.remedy == "Set 'notification_sink_topic_name'."
    silent = Notifications(Settings())
    assert silent.planned("shop", NOTHING, at({"dbo.a": WHOLE})) == []
    assert caplog.records == []
