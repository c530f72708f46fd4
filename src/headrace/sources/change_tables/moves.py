"""Where the changes of one table can go on, of those that a change table holds."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping

from headrace.errors import OptionError
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.captured_table import CatalogTable
from headrace.sources.change_tables.clock import CommitClock, ServerZone
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.guards import Retention, oldest_needed
from headrace.sources.change_tables.schema_history import SchemaHistory
from headrace.sources.offset import Offset
from headrace.sources.signals import signal_table
from headrace.sources.table_versions import NOW, MovePlan, TableMove, time_of_text

_DIGITS = re.compile(r"(?:0x)?([0-9a-f]{20}|[0-9a-f]{32})")
_REREAD = "Read the table again instead: headrace repair reread."


class TableMoves:
    """Looks whether changes of a table can go on elsewhere. Runs in the driver, and where the command does.

    Args:
        connection: to the database.
        catalog: the tables as the server shows them now, by path.
        histories: how each table is read.
        signals: the option that names the signal table.
        database: the database.
    """

    def __init__(
        self,
        connection: Connection,
        catalog: Mapping[str, CatalogTable],
        histories: Mapping[str, SchemaHistory],
        signals: str,
        database: str,
    ) -> None:
        self._connection = connection
        self._statements = connection.statements
        self._catalog = catalog
        self._histories = histories
        self._signals = signals
        self._database = database

    def position(self, to: str, zone: ServerZone) -> str:
        """The commit that a user names: an LSN, a time, or `now`.

        A time means everything that was committed before it. Where the server's clock shows it twice, the first.

        Raises:
            OptionError: it is none of them.
        """
        if to.strip().lower() == NOW:
            return self._head()
        digits = _DIGITS.fullmatch(to.strip().lower().replace(":", ""))
        if digits is not None:
            return lsn.read(digits[1])
        time = time_of_text(to)
        if time is None:
            raise OptionError(
                f"'{to}' is neither an LSN nor a time with its zone.",
                remedy="Write an LSN such as 0x0000002b000004e80001, a time such as 2024-05-01T12:00:00Z, or now.",
            )
        name, now = zone.now(self._connection)
        if time > now:
            raise OptionError(f"{to} is in the future.", remedy="Write now for everything that is captured.")
        first = self._connection.value(self._statements.FIRST_SINCE, (_local(time, name),))
        return self._head() if first is None else lsn.before(lsn.read(first))

    def checked(self, move: TableMove, offset: Offset) -> MovePlan:
        """The move, if it can be done.

        Args:
            move: with an LSN.
            offset: up to where all is delivered.

        Raises:
            OptionError: it can't; the sentence says why.
        """
        path, to = move.table, move.to
        at = self._delivered(path, offset)
        if len(to) != len(at):
            raise OptionError(f"'{to}' is no LSN of this server.", remedy=f"They look like {at}.")
        if move.kind == "skip":
            self._check_skip(path, to, at)
        else:
            self._check_rewind(path, to, at)
        return MovePlan(move, at)

    def described(self, plan: MovePlan, zone: str) -> MovePlan:
        """With how many changes there are between the two positions, and when the commit was made."""
        move = plan.move
        edges = (lsn.to_bytes(min(move.to, plan.at)), lsn.to_bytes(max(move.to, plan.at)))
        sql = self._statements.count_changes(self._histories[move.table].newest.instance.name)
        local = self._connection.value(self._statements.COMMIT_TIME, (lsn.to_bytes(move.to),))
        time = None if local is None else CommitClock(self._connection, zone).end(move.to, local)
        return MovePlan(move, plan.at, int(self._connection.value(sql, edges)), time)

    def _delivered(self, path: str, offset: Offset) -> str:
        if path not in offset.known or path not in self._catalog or path not in self._histories:
            raise OptionError(f"Table '{path}' is not captured yet.", remedy="Wait until the pipeline has taken it in.")
        progress = offset.tables.get(path)
        if offset.initial or (progress is not None and not progress.done):
            raise OptionError(
                f"Table '{path}' is in its snapshot, so none of its changes is delivered.",
                remedy="Wait until the snapshot is complete.",
            )
        if path == signal_table(self._signals, self._database, self._catalog):
            raise OptionError(
                f"Table '{path}' is the signal table: its signals would be followed twice, or not at all.",
                remedy="Name another table.",
            )
        return offset.commit if progress is None else progress.commit

    def _check_skip(self, path: str, to: str, at: str) -> None:
        if to <= at:
            raise OptionError(
                f"Changes of table '{path}' are delivered up to LSN {at} already, so none is left out up to LSN {to}.",
                remedy="Name a later place, or now.",
            )
        head = self._head()
        if to > head:
            raise OptionError(
                f"LSN {to} is not captured yet; the server has captured up to LSN {head}.",
                remedy="Name that, or now.",
            )

    def _check_rewind(self, path: str, to: str, at: str) -> None:
        if to >= at:
            raise OptionError(
                f"Changes of table '{path}' are delivered up to LSN {at} only, which is not after LSN {to}.",
                remedy="Name an earlier place.",
            )
        history = self._histories[path]
        window = next(iter(history.windows(to, lsn.after(to))), None)
        oldest = oldest_needed(self._catalog[path], window)
        if oldest is None or not Retention(self._connection).holds(to, oldest):
            kept = "none" if oldest is None else f"only those from LSN {oldest}"
            raise OptionError(
                f"Changes of table '{path}' after LSN {to} are not all kept: its change table holds {kept}.",
                remedy=_REREAD,
            )
        altered = self._altered(history, to)
        if altered is not None and altered <= at:
            raise OptionError(
                f"Table '{path}' was altered at LSN {altered}, so the changes before that have another structure.",
                remedy=f"Rewind to that LSN, or to a later one. {_REREAD}",
            )

    def _altered(self, history: SchemaHistory, after: str) -> str | None:
        since = [version.since for version in history.versions if version.since > lsn.after(after)]
        if since:
            return lsn.before(since[-1])
        if not self._statements.LAST_DDL:
            return None
        instance = history.newest.instance.object_id
        ddl = self._connection.value(self._statements.LAST_DDL, (instance, lsn.to_bytes(after)))
        return None if ddl is None else lsn.read(ddl)

    def _head(self) -> str:
        head = self._connection.value(self._statements.MAX_LSN)
        return self._connection.dialect.zero if head is None else lsn.read(head)


def _local(time: dt.datetime, zone: str) -> dt.datetime:
    """What a server's clock shows at an instant, cut to the second."""
    from zoneinfo import ZoneInfo

    if zone[:1] in "+-":
        sign = -1 if zone[0] == "-" else 1
        shift = dt.timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6])) * sign
        local = time.astimezone(dt.timezone(shift))
    else:
        local = time.astimezone(ZoneInfo(zone))
    return local.replace(tzinfo=None, microsecond=0)
