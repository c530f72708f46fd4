"""Commit times: local times of the server without a zone, made instants. Pure functions."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MINUTE = dt.timedelta(minutes=1)
"""Commits stand in another order than their times by milliseconds; what goes back by more is the clock."""
_FIXED = re.compile(r"([+-])(\d\d):(\d\d)")
_LOCAL, _INSTANT = pa.timestamp("us"), pa.timestamp("us", tz="UTC")


def parse_timezone(text: str) -> str:
    """An IANA zone's name or an offset such as `+02:00` as it is, and the IANA name for one of Windows.

    Used as an option's kind.

    Raises:
        ValueError: it is none of them.
    """
    text = text.strip()
    if _FIXED.fullmatch(text):
        return text
    try:
        ZoneInfo(text)
        return text
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        iana = _windows_zones().get(text.casefold())
        if iana is None:
            raise ValueError(f"no time zone is called {text!r}, neither by IANA nor by Windows") from error
        return iana


@lru_cache(maxsize=1)
def _windows_zones() -> dict[str, str]:
    """IANA's names of the zones that Windows knows; none where the server's extra is not installed."""
    try:
        from tzlocal.windows_tz import win_tz
    except ImportError:
        return {}
    return {windows.casefold(): iana for windows, iana in win_tz.items()}


def offset_text(minutes: int) -> str:
    """`+02:00` for 120 minutes."""
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


@dataclass(frozen=True)
class RepeatedHour:
    """Local times that a zone's clock shows twice, because it is set back at their end.

    Args:
        begin: the first of them.
        end: the first after them.
    """

    begin: dt.datetime
    end: dt.datetime


@dataclass(frozen=True)
class Turn:
    """Where in the order of commits the clock was set back: it is found in their times, and stays where it is.

    Args:
        hour: the local times that were shown twice.
        commit: the first commit whose time is a second reading.
        settled: from this commit on every time is. Around the turn, commits of the same milliseconds may stand in
            another order than their times: there, times of the last minute are still first readings. Null when no
            such commit is known yet.
    """

    hour: RepeatedHour
    commit: str
    settled: str | None

    def second(self, commits: pa.Array, local: pa.Array) -> pa.Array:
        """Which times of the hour are second readings."""
        within = pc.and_(_since(local, self.hour.begin), pc.invert(_since(local, self.hour.end)))
        still = _since(local, self.hour.end - MINUTE)
        if self.settled is not None:
            still = pc.and_(still, pc.less(commits, self.settled))
        after = pc.greater_equal(commits, self.commit)
        return pc.fill_null(pc.and_(pc.and_(within, after), pc.invert(still)), False)


def readings(local: pa.Array, zone: str) -> tuple[pa.Array, pa.Array]:
    """What local times can mean as instants: first and second reading.

    They are the same but for what the clock repeats. What it skips is read as the first instant after that.
    """
    local = pc.cast(local, _LOCAL)
    fixed = _FIXED.fullmatch(zone)
    if fixed:
        minutes = (int(fixed[2]) * 60 + int(fixed[3])) * (-1 if fixed[1] == "-" else 1)
        shifted = pc.subtract(local, pa.scalar(dt.timedelta(minutes=minutes), pa.duration("us")))
        instants = pc.assume_timezone(shifted, "UTC")
        return instants, instants
    first, second = (
        pc.cast(pc.assume_timezone(local, zone, ambiguous=which, nonexistent="latest"), _INSTANT)
        for which in ("earliest", "latest")
    )
    return first, second


def to_instants(local: pa.Array, zone: str, commits: pa.Array | None = None, turns: tuple[Turn, ...] = ()) -> pa.Array:
    """Local times as instants.

    A time that the clock repeats is a second reading where a turn says so. Elsewhere it is a first one: nothing is
    taken to have happened later than it is known to.

    Args:
        local: the times.
        zone: the zone or the offset.
        commits: the LSN of each.
        turns: where the clock was set back.
    """
    first, second = readings(local, zone)
    if commits is not None:
        for turn in turns:
            first = pc.if_else(turn.second(commits, pc.cast(local, _LOCAL)), second, first)
    return first


def begin_instants(local: pa.Array, zone: str, ended: pa.Array) -> pa.Array:
    """Local times at which transactions began, as instants: the last reading that is not after their end."""
    first, second = readings(local, zone)
    return pc.if_else(pc.fill_null(pc.less_equal(second, ended), False), second, first)


def repeated_hours(local: pa.Array, zone: str) -> list[RepeatedHour]:
    """The repeated hours that any of these local times lies in."""
    found: list[RepeatedHour] = []
    left = _ambiguous(pc.cast(local, _LOCAL), zone)
    while len(left):
        time: dt.datetime = pc.min(left).as_py()
        first, second = readings(pa.array([time], _LOCAL), zone)
        length = second[0].as_py() - first[0].as_py()
        # Clocks are set at whole minutes.
        minutes = np.arange(-(length // MINUTE), length // MINUTE + 1).astype("timedelta64[m]")
        around = np.datetime64(time.replace(second=0, microsecond=0), "us") + minutes
        shown_twice = _ambiguous(pa.array(around, _LOCAL), zone)
        hour = RepeatedHour(pc.min(shown_twice).as_py(), pc.max(shown_twice).as_py() + MINUTE)
        found.append(hour)
        left = left.filter(_since(left, hour.end))
    return found


def _ambiguous(local: pa.Array, zone: str) -> pa.Array:
    first, second = readings(local, zone)
    return local.filter(pc.fill_null(pc.not_equal(first, second), False))


def _since(local: pa.Array, time: dt.datetime) -> pa.Array:
    return pc.greater_equal(local, pa.scalar(time, _LOCAL))
