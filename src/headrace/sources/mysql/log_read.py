"""Reading the binary log from a place on: what a window has, the rows of a window, and which file is which.

Nothing is kept on the server, so the same window can be read again, byte for byte, by a retry or a second copy of the
task, for as long as the files are there.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from headrace.errors import PositionMismatch
from headrace.sources.mysql.connection import BinlogConnection, Connection, connect_binlog
from headrace.sources.mysql.events import HEADER_SIZE, EventType
from headrace.sources.mysql.groups import Prepared
from headrace.sources.mysql.log_state import LogState
from headrace.sources.mysql.look import Look, Seen
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.place import FIRST, Place, file_name

_U32 = 2**32
_LENGTH_PLACE, _KIND_PLACE, _FLAGS_PLACE = 9, 4, 17
_CHECKSUM_SIZE = 4
_BEFORE = (EventType.PREVIOUS_GTIDS, EventType.GTID_LIST)
"""Which groups are in the files before: in the first events of a file, and never changed."""
_FIRST_EVENTS = 4


def events_in(block: memoryview) -> Iterator[bytes]:
    """The events of a block that the server sent."""
    at = 0
    while at < len(block):
        (size,) = struct.unpack_from("<I", block, at + _LENGTH_PLACE)
        yield bytes(block[at : at + max(size, HEADER_SIZE)])
        at += max(size, HEADER_SIZE)


@contextmanager
def log_from(settings: MysqlSettings, log: LogState, place: Place) -> Iterator[BinlogConnection]:
    """A session that reads the log from a boundary on; in a file above 4 GiB perhaps from the file's beginning.

    Raises:
        PositionMismatch: another server answers than the log is of.
        MysqlError: the login may not read the log.
    """
    with connect_binlog(settings) as reader:
        require_server(reader, log)
        position = place.position if place.position < _U32 else FIRST
        # Places are counted by the lengths of events, so none of a file is left out.
        reader.dump(file_name(log.base, place.file), max(position, FIRST), statements=True)
        yield reader


def require_server(session: Connection, log: LogState) -> None:
    """See that a session is of the server that a log is of, and not of another one behind the same name.

    Raises:
        PositionMismatch: it is not.
    """
    found = session.server
    if found.uuid and found.uuid != log.server:
        raise PositionMismatch(
            f"The server has the id '{found.uuid}', and the batch was planned with '{log.server}'.",
            remedy="Set 'hostname' and 'port' to one server, and not to a proxy in front of several.",
        )


def looked(
    settings: MysqlSettings,
    log: LogState,
    begin: Place,
    end: Place,
    tables: Collection[tuple[str, str]],
    *,
    commits: int,
    cut_bytes: int,
    prepared: Collection[Prepared],
) -> Seen:
    """What the log has between two boundaries, as far as a batch may go. Runs in the driver.

    Args:
        settings: the source's options; a window ends at the first edge of a group behind `max_log_per_batch`.
        log: whose it is.
        begin, end, tables, commits, cut_bytes, prepared: as of `Look`.

    Raises:
        DataLossError: the file is not there any more.
        FormatError: the log is damaged, or ends before the window.
        CaptureError: it has what can't be read.
    """
    look = Look(begin, end, tables, commits=commits, cut_bytes=cut_bytes, prepared=prepared)
    taken = 0
    with log_from(settings, log, begin) as reader:
        while not look.finished:
            block = reader.receive()
            if not block:
                look.finish()
            for data in events_in(block):
                look.take(data)
            taken += len(block)
            if taken >= settings.max_log_per_batch and look.seen.until > begin:
                break
    return look.seen


def mark_of(settings: MysqlSettings, file: str) -> str:
    """What tells a file of the log from another one with its name: what stands at its beginning for good.

    Raises:
        DataLossError: the file is not there.
    """
    found = hashlib.sha256()
    count = 0
    with connect_binlog(settings) as reader:
        reader.dump(file, FIRST)
        while count < _FIRST_EVENTS and (block := reader.receive()):
            for data in events_in(block):
                kind = data[_KIND_PLACE]
                if kind == EventType.ROTATE:
                    continue
                count += 1
                if kind == EventType.FORMAT_DESCRIPTION:
                    # The flags say whether it is still written, and no checksum is over them.
                    found.update(data[:_FLAGS_PLACE] + data[HEADER_SIZE:-_CHECKSUM_SIZE])
                elif kind in _BEFORE:
                    found.update(data[HEADER_SIZE:])
                    count = _FIRST_EVENTS
                if count >= _FIRST_EVENTS:
                    break
    return found.hexdigest()[:32]
