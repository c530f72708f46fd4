"""Reading the binary log from a position on: what a window has, the rows of a window, and which file is which.

Nothing is kept on the server, so the same window can be read again, byte for byte, by a retry or a second copy of the
task, for as long as the files are there.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Generator
from contextlib import closing

from headrace.errors import CaptureError, FormatError, PositionMismatch
from headrace.sources.mysql.binlog_position import FIRST, BinlogPosition, file_name
from headrace.sources.mysql.connection import Connection, connect, connect_binlog
from headrace.sources.mysql.events import HEADER_SIZE, EventType, events_in
from headrace.sources.mysql.guards import FILES, NEW_CHECKPOINT, files_of, require_same_file
from headrace.sources.mysql.log_scan import LogScan, ScanResult
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.stream_state import LogState
from headrace.sources.mysql.transactions import Prepared

_U32 = 2**32
_KIND_PLACE = 4
_SERVER, _CREATED = slice(5, 9), slice(52, 56)
_CHECKSUM_SIZE = 4
_POLL_SECONDS, _PATIENCE_SECONDS = 0.01, 30.0


def log_from(
    settings: MysqlSettings, base: str, position: BinlogPosition, *, server: str = "", mark: str = ""
) -> Generator[memoryview, None, None]:
    """The log from a boundary to where it ends, whole events at a time; above 4 GiB from the beginning of the file.

    Args:
        settings: the source's options.
        base: the base name of its files.
        position: the boundary.
        server: whose log it is; empty where any server will do.
        mark: what the boundary's file says of itself; empty where that is not known.

    Raises:
        PositionMismatch: another server answers, or the file is another one with that name.
        DataLossError: the file is not there any more.
        MysqlError: the login may not read the log.
    """
    with connect_binlog(settings) as reader:
        require_server(reader, server)
        file = file_name(base, position.file)
        # Without the statements of rows MariaDB leaves their events out, and positions can't be counted.
        reader.dump(file, max(position.position if position.position < _U32 else FIRST, FIRST), statements=True)
        while block := reader.receive():
            first_mark = _mark_in(block) if mark else ""
            if first_mark:
                require_same_file(first_mark, mark, file, str(reader.endpoint))
                mark = ""
            yield block


def log_up_to(
    settings: MysqlSettings,
    base: str,
    position: BinlogPosition,
    reached: Callable[[], BinlogPosition | None],
    *,
    server: str = "",
    mark: str = "",
) -> Generator[memoryview, None, None]:
    """The log from a boundary on, for a reader who takes it until it has what it wants.

    MySQL says that the log ends after what is written, and sends only what is synced, which may be less for a moment.
    So where the log seems to end too early it is asked for again.

    Args:
        settings, base, position, server, mark: see `log_from`.
        reached: the boundary up to which the reader has it; null inside of a transaction.

    Raises:
        PositionMismatch, DataLossError, MysqlError: see `log_from`.
    """
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        yield from log_from(settings, base, position, server=server, mark=mark)
        here = reached()
        if here is None or here.position >= _U32 or (here <= position and time.monotonic() >= until):
            return
        if here > position:
            position, mark, until = here, "", time.monotonic() + _PATIENCE_SECONDS
        time.sleep(_POLL_SECONDS)


def require_server(session: Connection, server: str) -> None:
    """See that a session is of one server, and not of another one behind the same name.

    Args:
        session: whose server is looked at.
        server: as `LogState.server`; empty where any will do.

    Raises:
        PositionMismatch: it is of another one.
    """
    answering = session.server
    if server and answering.uuid and answering.uuid != server:
        raise PositionMismatch(
            f"The server has the id '{answering.uuid}', and the batch was planned with '{server}'.",
            remedy="Set 'hostname' and 'port' to one server, and not to a proxy in front of several.",
        )


class PreparedBefore:
    """Finds distributed transactions that were prepared before a boundary and are not decided there, by their names.

    Nothing keeps those that were prepared before a pipeline began. So when one is asked for, the log is read backwards
    from the boundary, a file at a time, up to where it was prepared; what was found on the way is known then.

    Args:
        settings, base, server: see `log_from`.
        position: the boundary.
    """

    def __init__(self, settings: MysqlSettings, base: str, position: BinlogPosition, *, server: str = "") -> None:
        self._settings, self._base, self._server = settings, base, server
        self._read_to = position
        self._found: dict[str, Prepared] = {}

    def __call__(self, xid: str) -> Prepared:
        """The transaction of a name; it may have rows of captured tables.

        Raises:
            CaptureError: the log does not have it any more.
            PositionMismatch: another server answers.
        """
        while xid not in self._found:
            begin = self._file_before()
            if begin is None:
                raise CaptureError(
                    f"The distributed transaction {xid} was prepared before this pipeline began and is committed now, "
                    "and the log does not have its rows any more.",
                    remedy=f"The copy would lack these rows. {NEW_CHECKPOINT}",
                )
            for undecided in self._undecided(begin):
                self._found.setdefault(undecided.xid, undecided._replace(captured=True))
            self._read_to = begin
        return self._found[xid]

    def _file_before(self) -> BinlogPosition | None:
        with connect(self._settings) as session:
            require_server(session, self._server)
            files = files_of(session.rows(FILES))
        begins = [BinlogPosition(self._read_to.epoch, file.number, FIRST) for file in files]
        return max((begin for begin in begins if begin < self._read_to), default=None)

    def _undecided(self, begin: BinlogPosition) -> Collection[Prepared]:
        log_scan = LogScan(begin, self._read_to, (), commits=0, cut_bytes=_U32)
        blocks = log_up_to(self._settings, self._base, begin, lambda: log_scan.boundary, server=self._server)
        with closing(blocks):
            while not log_scan.finished and (block := next(blocks, None)) is not None:
                log_scan.take(block)
        log_scan.finish()
        return log_scan.scan.prepared


def scan_window(
    settings: MysqlSettings,
    log: LogState,
    begin: BinlogPosition,
    end: BinlogPosition,
    tables: Collection[tuple[str, str]],
    *,
    commits: int,
    cut_bytes: int,
    prepared: Collection[Prepared],
    mark: str = "",
) -> ScanResult:
    """What the log has between two boundaries, as far as a batch may go. Runs in the driver.

    Args:
        settings: the source's options; a window ends at the first edge of a transaction after `max_log_per_batch`.
        log: whose it is.
        begin, end, tables, commits, cut_bytes, prepared: see `LogScan`.
        mark: see `log_from`.

    Raises:
        PositionMismatch: it is the log of another server, or was reset.
        DataLossError: the file is not there any more.
        FormatError: the log is damaged, or ends before the window.
        CaptureError: it has what can't be read.
    """
    log_scan = LogScan(
        begin,
        end,
        tables,
        commits=commits,
        cut_bytes=cut_bytes,
        prepared=prepared,
        earlier=PreparedBefore(settings, log.base, begin, server=log.server) if tables else None,
        folds_names=log.folds_names,
    )
    taken = 0
    blocks = log_up_to(settings, log.base, begin, lambda: log_scan.boundary, server=log.server, mark=mark)
    with closing(blocks):
        while not log_scan.finished:
            block = next(blocks, None)
            if block is None:
                log_scan.finish()
                break
            log_scan.take(block)
            taken += len(block)
            if taken >= settings.max_log_per_batch and log_scan.scan.until > begin:
                break
    return log_scan.scan


def mark_of(settings: MysqlSettings, file: str) -> str:
    """What tells a file of the log from another one with its name.

    Raises:
        DataLossError: the file is not there.
        FormatError: it does not say what it is.
    """
    with connect_binlog(settings) as reader:
        reader.dump(file, FIRST)
        while block := reader.receive():
            if mark := _mark_in(block):
                return mark
    raise FormatError(f"File '{file}' of the binary log does not begin with a description of itself.")


def _mark_in(block: memoryview) -> str:
    """What a file says of itself, whose beginning may be in a block; a dump from any position of it has that in
    front.
    """
    for data in events_in(block):
        if data[_KIND_PLACE] == EventType.FORMAT_DESCRIPTION:
            time, server, body = data[:_KIND_PLACE], data[_SERVER], data[HEADER_SIZE:-_CHECKSUM_SIZE]
            # When the server was started is left out where a dump begins in the middle of the file.
            return hashlib.sha256(time + server + body[: _CREATED.start] + body[_CREATED.stop :]).hexdigest()[:32]
    return ""
