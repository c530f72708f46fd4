"""Commit times: local times of the server without a zone become instants, by the zone that its clock shows.

Servers keep commit times as local times without a zone. When the clock is set back it shows an hour twice; which of
the two is meant follows from the order of the commits alone, so a batch that is read again, or cut into other slices,
has the same instants.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.options import ChangeTableSettings

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
    repeated: list[RepeatedHour] = []
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
        repeated.append(hour)
        left = left.filter(_since(left, hour.end))
    return repeated


def _ambiguous(local: pa.Array, zone: str) -> pa.Array:
    first, second = readings(local, zone)
    return local.filter(pc.fill_null(pc.not_equal(first, second), False))


def _since(local: pa.Array, time: dt.datetime) -> pa.Array:
    return pc.greater_equal(local, pa.scalar(time, _LOCAL))


_LOG = logging.getLogger("headrace.sources")
_LOCAL_TEXT = pa.timestamp("us")


@lru_cache(maxsize=256)
def _say_once(sentence: str) -> None:
    _LOG.warning("%s", sentence)


class ServerZone:
    """Which time zone a server's clock shows. Asks the server once; where it can't say, for its offset every time.

    Args:
        settings: the source's options.
    """

    def __init__(self, settings: ChangeTableSettings) -> None:
        self._database = settings.database
        self._known: str | None = settings.server_timezone or None
        self._queried = False

    def now(self, connection: Connection) -> tuple[str, dt.datetime]:
        local, minutes = self._time(connection)
        (instant,) = to_instants(pa.array([local], _LOCAL_TEXT), offset_text(minutes)).to_pylist()
        return self._zone(connection, local, minutes), instant

    def of(self, connection: Connection) -> str:
        """The zone's IANA name, or the present offset from UTC (`+02:00`) of a server that can't say its zone."""
        if self._known is not None:
            return self._known
        return self._zone(connection, *self._time(connection))

    def known(self, connection: Connection) -> str | None:
        """The zone's IANA name, or the offset that the user says; None for a server that can't say its zone."""
        if self._known is None and not self._queried:
            self._zone(connection, *self._time(connection))
        return self._known

    def _time(self, connection: Connection) -> tuple[dt.datetime, int]:
        ((local, minutes),) = connection.rows(connection.statements.TIME_AND_CLOCK)
        return local, int(minutes or 0)

    def _zone(self, connection: Connection, local: dt.datetime, minutes: int) -> str:
        if self._known is None and not self._queried:
            self._known = connection.dialect.zone(connection, local, minutes)
            self._queried = True
            if self._known is None:
                _say_once(
                    f"The server of database '{self._database}' does not say its time zone, so its present offset from "
                    "UTC is taken: commit times around a clock change, or from before one, may be an hour off. Set "
                    "'server_timezone'."
                )
        return self._known or offset_text(minutes)


class CommitClock:
    """Makes instants of commit times. Only times of a repeated hour cost a question.

    Args:
        connection: to the database.
        zone: the zone of the server's clock, or its offset.
    """

    def __init__(self, connection: Connection, zone: str) -> None:
        self._connection = connection
        self._zone = zone
        self._turns: dict[RepeatedHour, Turn | None] = {}

    def ends(self, commits: pa.Array, local: pa.Array) -> pa.Array:
        """When transactions ended, by their LSNs and what the clock showed."""
        turns = [self._turn(hour) for hour in repeated_hours(local, self._zone)]
        return to_instants(local, self._zone, commits, tuple(turn for turn in turns if turn is not None))

    def begins(self, local: pa.Array, ended: pa.Array) -> pa.Array:
        """When transactions began that ended at these instants."""
        return begin_instants(local, self._zone, ended)

    def end(self, commit: str, local: dt.datetime | None) -> dt.datetime | None:
        instant: dt.datetime | None = self.ends(pa.array([commit]), pa.array([local], _LOCAL_TEXT))[0].as_py()
        return instant

    def begin(self, local: dt.datetime | None, ended: dt.datetime | None) -> dt.datetime | None:
        begun = self.begins(pa.array([local], _LOCAL_TEXT), pa.array([ended], pa.timestamp("us", tz="UTC")))
        instant: dt.datetime | None = begun[0].as_py()
        return instant

    def can_be(self, local: dt.datetime | None) -> Sequence[dt.datetime | None]:
        """The instants that a local time can mean."""
        return [reading[0].as_py() for reading in readings(pa.array([local], _LOCAL_TEXT), self._zone)]

    def _turn(self, hour: RepeatedHour) -> Turn | None:
        if hour not in self._turns:
            self._turns[hour] = self._found(hour)
        return self._turns[hour]

    def _found(self, hour: RepeatedHour) -> Turn | None:
        """Where the clock was set back; None when no commit shows that it was.

        It is the first commit of the hour whose time is a minute before an earlier commit's, or that comes after one
        of the next hour. Commits that come later change nothing of that.
        """
        begin, end = hour.begin, hour.end
        turn = self._connection.row(self._connection.statements.FIRST_REPEATED, (begin, end + MINUTE, end, end))
        if turn is None:
            return None
        first, peak = turn
        commit = lsn.read(first)
        if peak >= end:
            return Turn(hour, commit, commit)
        parameters = (lsn.to_bytes(commit), begin + MINUTE, end - MINUTE, end)
        settled = self._connection.value(self._connection.statements.FIRST_SETTLED, parameters)
        return Turn(hour, commit, None if settled is None else lsn.read(settled))
