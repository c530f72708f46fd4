"""How a pipeline stands to a server's binary log: how much waits, and how long until a needed file may be purged.

What is committed is in the log at once, so nothing is late on the server's side.
"""

from __future__ import annotations

import datetime as dt
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from headrace.errors import DataLossError, HeadraceError, PositionMismatch
from headrace.sources.health import CaptureState, Health, size_text, span_text
from headrace.sources.mysql.binlog_position import FIRST, BinlogPosition, boundary, file_name, file_of
from headrace.sources.mysql.connection import Connection, connect, connect_binlog
from headrace.sources.mysql.failover import is_another
from headrace.sources.mysql.guards import ServerState, require_same_file, require_there
from headrace.sources.mysql.log_read import mark_of
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.permissions import NAMES, retention_seconds, wrong_settings
from headrace.sources.mysql.refusals import KEEP_LONGER
from headrace.sources.mysql.stream_state import StreamState
from headrace.sources.offset import Offset

Means = Callable[[str], bool]
"""Whether the options mean a table (`database.name`)."""
_LOOK_BYTES = 64 * 2**20
"""How much log is read at the most to see what waits."""
_LOOK_SECONDS = 1.0
_HEADER = 19
_FORMAT, _TABLE_MAP, _PAYLOAD = 15, 19, 40


class HealthProbe:
    """Examines the log of a pipeline's server. Runs in the driver.

    Args:
        settings: the source's options.
        means: whether they mean a table.
    """

    def __init__(self, settings: MysqlSettings, means: Means) -> None:
        self._settings = settings
        self._means = means

    def ask(self, offset: Offset | None) -> Health:
        """How it is now; `offset` says what is in all sinks. Raises nothing that a server may answer."""
        try:
            with connect(self._settings) as connection:
                return _Examination(connection, self._settings, self._means).health(offset)
        except HeadraceError as error:
            return Health(CaptureState.UNKNOWN, f"The source can't be asked: {error.message}", error.remedy)


@dataclass(frozen=True)
class _LogFile:
    name: str
    number: int
    size: int


@dataclass(frozen=True)
class _Examination:
    connection: Connection
    settings: MysqlSettings
    means: Means

    def health(self, offset: Offset | None) -> Health:
        now = self.connection.value("SELECT UTC_TIMESTAMP(6)").replace(tzinfo=dt.UTC)
        server, variables = self.connection.server, self.connection.variables(*NAMES)
        wrong = next((setting for setting in wrong_settings(server, variables) if setting.required), None)
        if wrong is not None:
            return Health(CaptureState.NOT_CAPTURING, wrong.sentence, wrong.remedy, checked=now)
        files = [
            _LogFile(name, file_of(name)[1], int(size)) for name, size, *_ in self.connection.rows("SHOW BINARY LOGS")
        ]
        kept = retention_seconds(variables)
        well = Health(
            CaptureState.CAPTURING,
            "The server logs rows.",
            checked=now,
            captured_until=now,
            retention_seconds=kept,
            headroom_seconds=kept,
        )
        if offset is None or offset.is_nothing:
            return well
        position = boundary(offset.commit)
        refused = self._refused(well, offset, position)
        if refused is not None:
            return refused
        ours = next((file for file in files if file.number == position.file), None)
        if ours is None or ours.size < position.position:
            # Another server took over, whose log has other positions.
            return well
        after = [file for file in files if file.number > position.file]
        waiting = ours.size - position.position + sum(file.size for file in after)
        since, scan = self._first_change(ours, position, waiting) if waiting else (None, True)
        left = kept
        if kept is not None and after:
            # A file is purged so long after its last event, which is about when the next one was begun.
            begun = self._begun(after[0])
            left = kept - (now - begun).total_seconds()
        sentence = f"{size_text(waiting)} of log wait"
        if left is not None:
            sentence += f"; file '{ours.name}' may be purged in {span_text(left)}"
        return replace(
            well,
            sentence=f"{sentence}.",
            remedy="" if left is None or left > 0 else KEEP_LONGER,
            waiting_since=since,
            quiet_until=now if scan and since is None else None,
            headroom_seconds=left,
            retained_bytes=waiting,
        )

    def _refused(self, well: Health, offset: Offset, position: BinlogPosition) -> Health | None:
        """What a run would stop with, because the log is another one or lacks what follows; None where it goes on."""
        now, state = ServerState.of(self.connection), StreamState.of(offset)
        stopped = replace(well, state=CaptureState.NOT_CAPTURING, captured_until=None, headroom_seconds=None)
        try:
            if is_another(now, state.log):
                # Reading both logs says whether it took over, which the run does.
                return None
            require_there(now, state, position)
            file = file_name(state.log.base, position.file)
            require_same_file(mark_of(self.settings, file), state.log.mark, file, str(self.connection.endpoint))
        except DataLossError as error:
            known = tuple(offset.known)
            return replace(stopped, sentence=error.message, remedy=error.remedy, headroom_seconds=0.0, lost=known)
        except PositionMismatch as error:
            return replace(stopped, sentence=error.message, remedy=error.remedy)
        return None

    def _begun(self, file: _LogFile) -> dt.datetime:
        with connect_binlog(self.settings) as reader:
            reader.dump(file.name, FIRST)
            while block := reader.receive():
                at = 0
                while at + _HEADER <= len(block):
                    moment, kind, _, size = struct.unpack_from("<IBII", block, at)
                    if kind == _FORMAT:
                        return dt.datetime.fromtimestamp(moment, dt.UTC)
                    at += max(size, _HEADER)
        raise HeadraceError(f"File '{file.name}' of the log has no beginning.")

    def _first_change(self, file: _LogFile, position: BinlogPosition, waiting: int) -> tuple[dt.datetime | None, bool]:
        """When the first statement on a captured table began that waits; and whether that is known, null being none.

        What is compressed counts as such a change.
        """
        if position.position >= 2**32:
            return None, False
        read, deadline = 0, time.monotonic() + _LOOK_SECONDS
        with connect_binlog(self.settings) as reader:
            reader.dump(file.name, position.position)
            while block := reader.receive():
                at = 0
                while at + _HEADER <= len(block):
                    moment, kind, _, size = struct.unpack_from("<IBII", block, at)
                    if kind == _PAYLOAD or (kind == _TABLE_MAP and self.means(_table(bytes(block[at : at + size])))):
                        return dt.datetime.fromtimestamp(moment, dt.UTC), True
                    at += max(size, _HEADER)
                read += len(block)
                if read > _LOOK_BYTES or time.monotonic() > deadline:
                    return None, False
        return None, True


def _table(event: bytes) -> str:
    """The table of a TABLE_MAP, as `database.name`."""
    at = _HEADER + 8
    database = event[at + 1 : at + 1 + event[at]]
    at += 2 + event[at]
    return f"{database.decode(errors='replace')}.{event[at + 1 : at + 1 + event[at]].decode(errors='replace')}"
