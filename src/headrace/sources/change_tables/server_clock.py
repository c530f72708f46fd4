"""The clock of a server: which zone it shows, and the instants of the commit times that a database holds.

Servers keep commit times as local times without a zone. When the clock is set back it shows an hour twice; which of
the two is meant follows from the order of the commits alone, so a batch that is read again, or cut into other slices,
has the same instants.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from headrace.sources.change_tables import clock, lsn
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.options import ChangeTableSettings

_LOG = logging.getLogger("headrace.sources")
_LOCAL = pa.timestamp("us")


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
        """The zone, and the server's time as an instant."""
        local, minutes = self._time(connection)
        (instant,) = clock.to_instants(pa.array([local], _LOCAL), clock.offset_text(minutes)).to_pylist()
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
        return self._known or clock.offset_text(minutes)


class CommitClock:
    """Makes instants of commit times. Only times of a repeated hour cost a question.

    Args:
        connection: to the database.
        zone: the zone of the server's clock, or its offset.
    """

    def __init__(self, connection: Connection, zone: str) -> None:
        self._connection = connection
        self._zone = zone
        self._turns: dict[clock.RepeatedHour, clock.Turn | None] = {}

    def ends(self, commits: pa.Array, local: pa.Array) -> pa.Array:
        """When transactions ended, by their LSNs and what the clock showed."""
        turns = [self._turn(hour) for hour in clock.repeated_hours(local, self._zone)]
        return clock.to_instants(local, self._zone, commits, tuple(turn for turn in turns if turn is not None))

    def begins(self, local: pa.Array, ended: pa.Array) -> pa.Array:
        """When transactions began that ended at these instants."""
        return clock.begin_instants(local, self._zone, ended)

    def end(self, commit: str, local: dt.datetime | None) -> dt.datetime | None:
        """When one transaction ended."""
        instant: dt.datetime | None = self.ends(pa.array([commit]), pa.array([local], _LOCAL))[0].as_py()
        return instant

    def begin(self, local: dt.datetime | None, ended: dt.datetime | None) -> dt.datetime | None:
        """When one transaction began."""
        begun = self.begins(pa.array([local], _LOCAL), pa.array([ended], pa.timestamp("us", tz="UTC")))
        instant: dt.datetime | None = begun[0].as_py()
        return instant

    def can_be(self, local: dt.datetime | None) -> Sequence[dt.datetime | None]:
        """The instants that a local time can mean."""
        return [reading[0].as_py() for reading in clock.readings(pa.array([local], _LOCAL), self._zone)]

    def _turn(self, hour: clock.RepeatedHour) -> clock.Turn | None:
        if hour not in self._turns:
            self._turns[hour] = self._found(hour)
        return self._turns[hour]

    def _found(self, hour: clock.RepeatedHour) -> clock.Turn | None:
        """Where the clock was set back; None when no commit shows that it was.

        It is the first commit of the hour whose time is a minute before an earlier commit's, or that comes after one
        of the next hour. Commits that come later change nothing of that.
        """
        begin, end = hour.begin, hour.end
        found = self._connection.row(self._connection.statements.FIRST_REPEATED, (begin, end + clock.MINUTE, end, end))
        if found is None:
            return None
        first, peak = found
        commit = lsn.read(first)
        if peak >= end:
            return clock.Turn(hour, commit, commit)
        parameters = (lsn.to_bytes(commit), begin + clock.MINUTE, end - clock.MINUTE, end)
        settled = self._connection.value(self._connection.statements.FIRST_SETTLED, parameters)
        return clock.Turn(hour, commit, None if settled is None else lsn.read(settled))
