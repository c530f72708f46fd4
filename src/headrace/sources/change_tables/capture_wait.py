"""Waiting until the capture job has read the log beyond a read of a live table.

Servers keep commit times as what their clock showed, and a clock that is set back shows an hour twice. So times are
never compared alone: what was captured before the read came before it, whatever its time; what is captured after it is
looked at in the order of the log, in which a time that goes back is where the clock was set.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import CaptureError
from headrace.sources.change_tables import clock, lsn
from headrace.sources.change_tables.captured_table import CapturedTable
from headrace.sources.change_tables.clock import MINUTE, CommitClock, ServerZone
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.options import ChangeTableSettings

ROUNDING = dt.timedelta(milliseconds=10)
"""Commit times are kept to a three-hundredth of a second, so they are compared with this much to spare."""
_POLL_SECONDS = 0.2
_LOCAL = pa.timestamp("us")


@dataclass(frozen=True)
class Clock:
    """What a server's clock shows.

    Args:
        local: the time.
        minutes: how far that is from UTC.
    """

    local: dt.datetime
    minutes: int

    @property
    def instant(self) -> dt.datetime:
        return self.local.replace(tzinfo=dt.UTC) - dt.timedelta(minutes=self.minutes)


@dataclass(frozen=True)
class CaptureMoment:
    """When a table was read.

    Args:
        at: what the clock showed, with some time to spare for rounded commit times.
        captured: the commit up to which everything was captured then.
        mark: how far the log had been read, and what the clock had shown there; None when that was not known.
        scan: the newest scan of the log that had found nothing; None where it can't be seen.
    """

    at: Clock
    captured: str
    mark: tuple[str, dt.datetime] | None = None
    scan: tuple[Any, ...] | None = None


def after(
    read: CaptureMoment, times: Sequence[dt.datetime], now: Clock, readings: tuple[np.ndarray, np.ndarray] | None = None
) -> np.ndarray:
    """Which commits that were captured since a read came after it.

    Args:
        read: the read.
        times: what the clock showed at each of them, in the order of the log.
        now: the clock when they were found.
        readings: the instants that the times are by what is known of the zone, and those that they are where the clock
            was set back since the read's `mark`; None where the zone is not known. Then a commit that was captured an
            hour or more after it was made, around a clock change, may be taken for a later one.
    """
    local = np.array(times, "datetime64[us]")
    shown = local[0] if read.mark is None else np.datetime64(read.mark[1], "us")
    peaks = np.maximum.accumulate(np.concatenate([[shown], local]))[:-1]
    set_back = local < peaks - np.timedelta64(MINUTE)
    after = np.logical_or.accumulate(set_back)
    if readings is not None:
        instants, again = readings
        is_after: np.ndarray = np.where(after, again, instants) > _naive(read.at.instant)
        return is_after
    later = local > np.datetime64(read.at.local, "us")
    if now.minutes < read.at.minutes:
        # It was set back since the read.
        return np.asarray(after | later)
    ahead = np.append(np.logical_or.accumulate(set_back[::-1])[::-1][1:], False)
    return np.asarray(later & ~ahead & (local <= np.datetime64(now.local + MINUTE, "us")))


def _naive(instant: dt.datetime) -> np.datetime64:
    return np.datetime64(instant.astimezone(dt.UTC).replace(tzinfo=None), "us")


class CaptureWait:
    """Waits for the capture job of one database. Runs in the task that read the table.

    Args:
        connection: to the database.
        settings: the source's options.
    """

    def __init__(self, connection: Connection, settings: ChangeTableSettings) -> None:
        self._connection = connection
        self._statements = connection.statements
        self._timeout: int = settings.capture_timeout_seconds
        self._zone = ServerZone(settings)
        self._sees_scans = bool(connection.statements.NEWEST_EMPTY_SCAN)

    def moment(self) -> CaptureMoment:
        """Now. To be asked after a read, or under its lock."""
        head, mark, scan = self._head(), self._mark(), self._scan()
        now = self._now()
        return CaptureMoment(Clock(now.local + ROUNDING, now.minutes), head, mark, scan)

    def until_passed(self, table: CapturedTable, read: CaptureMoment) -> str:
        """Wait until everything that was committed before a read is captured; give the last commit before it.

        A login that may not see the job's scans learns of it by commits, and by the mark that an idle job makes every
        five minutes.

        Raises:
            CaptureError: it was not captured in time.
        """
        deadline = time.monotonic() + self._timeout
        marks: list[tuple[str, dt.datetime]] = []
        captured, last = read.captured, read.mark
        while True:
            # Asked first: what the scan found is then among the commits.
            scan = self._scan()
            head, mark = self._head(), self._mark()
            if head > captured:
                edges = (lsn.to_bytes(captured), lsn.to_bytes(head))
                clock_times = self._connection.rows(self._statements.COMMIT_TIMES["end"], edges)
                marks += [(lsn.read(commit), shown) for commit, shown in clock_times if shown is not None]
            scanned = scan is not None and scan != read.scan
            if scanned or head > captured or mark != last:
                captured, last = head, mark
                # Where an idle job says how far it is by a time alone, that is the newest.
                newest = [mark] if mark is not None and mark != read.mark and mark[0] >= captured else []
                passed = self._after(read, [*marks, *newest])
                if scanned or passed.any():
                    before = [commit for (commit, _), later in zip(marks, passed, strict=False) if not later]
                    return max([read.captured, *before])
            if time.monotonic() > deadline:
                raise self._late(table)
            time.sleep(_POLL_SECONDS)

    def _after(self, read: CaptureMoment, marks: Sequence[tuple[str, dt.datetime]]) -> np.ndarray:
        if not marks:
            return np.zeros(0, bool)
        now = self._now()
        commits, times = zip(*marks, strict=True)
        zone = self._zone.known(self._connection)
        if zone is None:
            return after(read, times, now)
        local = pa.array(times, _LOCAL)
        ends = CommitClock(self._connection, zone).ends(pa.array(commits), local)
        readings = tuple(
            np.asarray(reading.cast(pa.timestamp("us"))) for reading in (ends, clock.readings(local, zone)[1])
        )
        return after(read, times, now, (readings[0], readings[1]))

    def _now(self) -> Clock:
        ((local, minutes),) = self._connection.rows(self._statements.TIME_AND_CLOCK)
        return Clock(local, int(minutes or 0))

    def _head(self) -> str:
        head = self._connection.value(self._statements.MAX_LSN)
        return self._connection.dialect.zero if head is None else lsn.read(head)

    def _mark(self) -> tuple[str, dt.datetime] | None:
        commit, time = self._connection.row(self._statements.NEWEST_MARK) or (None, None)
        return None if commit is None or time is None else (lsn.read(commit), time)

    def _scan(self) -> tuple[Any, ...] | None:
        if not self._sees_scans:
            return None
        try:
            rows = self._connection.rows(self._statements.NEWEST_EMPTY_SCAN)
        except CaptureError:
            # A broken connection fails at the next question too.
            self._sees_scans = False
            return None
        return rows[0] if rows else ()

    def _late(self, table: CapturedTable) -> CaptureError:
        advice = self._connection.dialect.advice
        remedy = f"See that {advice.watch}, or raise 'capture_timeout_seconds'."
        if self._statements.NEWEST_EMPTY_SCAN and not self._sees_scans:
            remedy = (
                f"Let the login see when an idle database was captured ({advice.see}), see that {advice.watch}, "
                "or raise 'capture_timeout_seconds'."
            )
        return CaptureError(
            f"The capture job did not pass the snapshot of table '{table.id.path}' within {self._timeout} seconds.",
            remedy=remedy,
        )
