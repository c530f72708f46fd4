"""Rule: a commit is after a read only if it was made after it, also in the hour that a clock shows twice and around the
one that it leaves out; and a later commit is seen to be one."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.change_tables import clock
from headrace.sources.change_tables.capture_wait import CaptureMoment, Clock, after

VIENNA = "Europe/Vienna"
BACK, FORTH = dt.datetime(2026, 10, 25, 1, tzinfo=dt.UTC), dt.datetime(2026, 3, 29, 1, tzinfo=dt.UTC)
"""When the clock is set."""
SECOND = dt.timedelta(seconds=1)


def shown(instant):
    """What the server's clock shows."""
    local = instant.astimezone(ZoneInfo(VIENNA))
    return Clock(local.replace(tzinfo=None), int(local.utcoffset().total_seconds()) // 60)


def times(instants):
    return [shown(instant).local for instant in instants]


@st.composite
def courses(draw):
    """A turn of the clock, commits around it, how many of them were captured at the read, the read, and now.

    An idle job leaves a mark every five minutes, so no two commits are further apart than that.
    """
    turn = draw(st.sampled_from([BACK, FORTH]))
    gaps = draw(st.lists(st.integers(2, 300), min_size=40, max_size=60))
    begin = turn - draw(st.integers(0, 5000)) * SECOND
    commits = [begin + sum(gaps[:n]) * SECOND for n in range(1, len(gaps))]
    captured = draw(st.integers(1, 20))
    # Between two commits, so that which one is after it is not a matter of rounding.
    place = draw(st.integers(captured, len(commits) - 2))
    read = commits[place - 1] + SECOND
    found = draw(st.integers(max(place, captured + 1), len(commits)))
    return turn, commits, captured, read, commits[:found]


def known(turn, commits, marks):
    """What `CommitClock` makes of the marks: second readings from the first commit that shows the turn."""
    local = pa.array(times(marks), pa.timestamp("us"))
    first, second = clock.readings(local, VIENNA)
    turned = turn == BACK and marks[-1] >= turn and commits[0] < turn
    readings = [s if turned and mark >= turn else f for mark, f, s in zip(marks, first, second, strict=True)]
    return tuple(
        np.array([reading.as_py().replace(tzinfo=None) for reading in found], "datetime64[us]")
        for found in (readings, second)
    )


@given(course=courses(), zone=st.booleans())
def test_no_commit_is_taken_for_a_later_one_and_the_newest_is_known_as_such(course, zone):
    turn, commits, captured, read, found = course
    marks = found[captured:]
    if not zone and read - commits[captured - 1] >= dt.timedelta(minutes=50):
        return
    moment = CaptureMoment(shown(read), "0", ("0", shown(commits[captured - 1]).local))
    later = after(moment, times(marks), shown(marks[-1] + SECOND), known(turn, commits, marks) if zone else None)
    true = [mark > read for mark in marks]
    assert not [mark for mark, is_later, was in zip(marks, later, true, strict=True) if is_later and not was]
    # Whose log begins in the hour that repeats can't know which of the two it is: the wait ends with an error.
    begins_before = commits[0] < turn - (dt.timedelta() if zone else dt.timedelta(minutes=10))
    if true[-1] and (begins_before or (zone and turn == FORTH)):
        assert later[-1]


@pytest.mark.parametrize(
    ("mark", "read", "commits", "later"),
    [
        # What an uncaptured hour left behind shows later times than the read.
        ("00:30", "01:10", ["00:50", "00:59", "01:02", "01:11"], [False, False, False, True]),
        ("00:30", "01:10", ["00:50", "00:59"], [False, False]),
        ("00:30", "00:50", ["00:45", "00:55", "01:05"], [False, True, True]),
        ("00:55", "00:58", ["01:01"], [True]),
    ],
)
@pytest.mark.parametrize("zone", [True, False])
def test_in_the_hour_that_repeats(mark, read, commits, later, zone):
    def at(text):
        return dt.datetime.fromisoformat(f"2026-10-25T{text}:00+00:00")

    marks = [at(text) for text in commits]
    moment = CaptureMoment(shown(at(read)), "0", ("0", shown(at(mark)).local))
    readings = known(BACK, [at(mark), *marks], marks) if zone else None
    now = max(at(read), marks[-1]) + SECOND
    assert list(after(moment, times(marks), shown(now), readings)) == later
