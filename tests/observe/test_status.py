"""Rule: lag is the age of the oldest change that is not, or may not be, in the sinks; unknown when nobody can say."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from headrace.cli.status import lines
from headrace.observe.status import AdHocStatus, PipelineStatus, TableStatus, database_status
from headrace.sources.health import CaptureState, Health
from headrace.sources.offset import Offset, TableProgress
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.requests import Request

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
LEVEL = Offset(source="s", commit="05", commit_time=NOON - dt.timedelta(hours=1), initial=False, known=("dbo.a",))
WELL = Health(CaptureState.CAPTURING, checked=NOON, captured_until=NOON)
STOPPED = Health(CaptureState.NOT_CAPTURING, checked=NOON, captured_until=NOON - dt.timedelta(minutes=3))


def lag(offset: Offset, head: str | None, health: Health | None) -> float | None:
    return database_status("shop", offset, head, health, NOON).lag_seconds


def test_lag_is_zero_when_level_however_old_the_last_commit() -> None:
    assert lag(LEVEL, "05", WELL) == 0
    assert lag(LEVEL, "05", Health()) == 0


def test_lag_is_the_age_of_the_first_change_that_waits() -> None:
    waiting = Health(CaptureState.CAPTURING, checked=NOON, waiting_since=NOON - dt.timedelta(seconds=20))
    assert lag(LEVEL, "06", waiting) == 20
    # A source that does not say what waits: since the last commit that is there.
    assert lag(LEVEL, "06", WELL) == 3600


def test_lag_counts_from_where_it_is_known_that_nothing_waits() -> None:
    quiet = Health(CaptureState.CAPTURING, checked=NOON, quiet_until=NOON - dt.timedelta(seconds=5))
    assert lag(LEVEL, "06", quiet) == 5


def test_lag_of_a_snapshot_counts_from_where_it_began() -> None:
    begun = Offset(source="s", commit="05", commit_time=NOON - dt.timedelta(minutes=9), known=("dbo.a",))
    waiting = Health(CaptureState.CAPTURING, checked=NOON, waiting_since=NOON - dt.timedelta(seconds=20))
    assert lag(begun, "05", waiting) == 540


def test_lag_grows_while_capture_has_stopped() -> None:
    assert lag(LEVEL, "05", STOPPED) == 180
    assert not database_status("shop", LEVEL, "05", STOPPED, NOON).is_fine


@pytest.mark.parametrize(("again", "fine"), [(True, True), (False, False)])
def test_a_table_that_may_not_equal_the_source_says_since_when_and_is_fine_only_while_it_is_read_again(
    again: bool, fine: bool
) -> None:
    state = AdHoc().rewritten("dbo.a", keyed=True, again=again)
    since = replace(state, unequal={"dbo.a": ("05", (NOON - dt.timedelta(hours=1)).isoformat())})
    found = database_status("shop", replace(LEVEL, commit="09", ad_hoc=since.to_json()), "09", WELL, NOON)
    assert found.tables[0].unequal == ("05", NOON - dt.timedelta(hours=1))
    assert (found.tables[0].read_again, found.is_fine) == (again, fine)
    status = PipelineStatus("p", "c", databases=(found,))
    assert status.to_json()["databases"]["shop"]["tables"]["dbo.a"]["unequal"] == {
        "since": "2024-05-01T11:00:00+00:00",
        "position": "05",
        "read_again": again,
    }
    assert status.progress().tables[0].state == "not equal"
    text = "it is read again" if again else "headrace repair reread <pipeline> dbo.a"
    assert any("not equal since" in line and text in line for line in lines(status, NOON))


def test_lag_is_unknown_when_the_source_can_not_be_asked() -> None:
    found = database_status("shop", LEVEL, None, Health(sentence="The source can't be asked: no."), NOON)
    assert (found.lag_seconds, found.answered, found.is_fine) == (None, False, False)
    unasked = database_status("shop", LEVEL, None, None, NOON, asked=False)
    assert (unasked.lag_seconds, unasked.is_fine) == (None, True)


def test_changes_about_to_be_deleted_are_not_fine() -> None:
    tight = Health(CaptureState.CAPTURING, retention_seconds=100.0, headroom_seconds=10.0)
    spent = Health(CaptureState.CAPTURING, retention_seconds=100.0, headroom_seconds=-1.0)
    gone = Health(CaptureState.CAPTURING, lost=("dbo.a",))
    log_left = Health(CaptureState.CAPTURING, retained_bytes=100, headroom_bytes=1)
    log_spent = Health(CaptureState.CAPTURING, retained_bytes=100, headroom_bytes=0)
    healths = (tight, spent, gone, log_left, log_spent)
    assert [database_status("shop", LEVEL, "05", health, NOON).is_fine for health in healths] == [
        True,
        False,
        False,
        True,
        False,
    ]


def test_tables_in_snapshot_and_ad_hoc() -> None:
    asked = AdHoc(
        requests=(
            Request("dbo.a", 1, chunk=4, bounds=(("7",),)),
            Request("dbo.b", 2),
        ),
        blocking=("dbo.c",),
    )
    offset = Offset(
        source="s",
        commit="05",
        commit_time=NOON,
        known=("dbo.a", "dbo.b", "dbo.c"),
        tables={
            "dbo.a": TableProgress("05", 2, bounds=(("1",), ("2",)), rows=900),
            "dbo.b": TableProgress("04", 1, rows=5, done=True),
        },
        gaps={"dbo.c": ("01", "02")},
        ad_hoc=asked.to_json(),
    )
    found = database_status("shop", offset, "05", WELL, NOON)
    assert found.tables == (
        TableStatus("dbo.a", None, "running", 4, 900),
        TableStatus("dbo.b", None, "catching up", 1, 5),
        TableStatus("dbo.c", None, lost=True),
    )
    assert found.ad_hoc == (
        AdHocStatus("dbo.c", "waiting"),
        AdHocStatus("dbo.a", "running", 5),
        AdHocStatus("dbo.b", "waiting"),
    )


def test_a_pipeline_is_as_complete_as_its_last_table() -> None:
    later = Offset(source="s", commit="09", commit_time=NOON, initial=False, known=("dbo.b",))
    databases = tuple(
        database_status(name, o, None, None, NOON, asked=False) for name, o in (("a", LEVEL), ("b", later))
    )
    assert PipelineStatus("p", "c", 1, databases=databases).complete_until == NOON - dt.timedelta(hours=1)
    assert PipelineStatus("p", "c").complete_until is None
