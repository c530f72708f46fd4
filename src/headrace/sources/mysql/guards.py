"""Whether a server still is where a pipeline left it, and still has all that follows.

A server that is asked for a place of another log with the same file names answers with other events. A set of GTIDs
that has nothing in common with its own it answers with all that it has. So all of that is looked at before a batch is
planned.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.errors import CaptureError, DataLossError, PositionMismatch
from headrace.sources.mysql.binlog_position import FIRST, BinlogPosition, file_name, file_of
from headrace.sources.mysql.connection import MARIADB, Connection
from headrace.sources.mysql.gtid import GtidSet, MariadbGtidSet, MysqlGtidSet
from headrace.sources.mysql.stream_state import LogState, StreamState

NEW_CHECKPOINT = "Use another checkpoint, which begins with a new snapshot."
_VARIABLES = ("server_id", "hostname", "port", "binlog_expire_logs_seconds", "gtid_executed", "gtid_binlog_state")
FILES = "SHOW BINARY LOGS"
_IN_USE = "SELECT @@GLOBAL.gtid_owned"
_THREAD = re.compile(r"#\d+", re.ASCII)


@dataclass(frozen=True)
class LogFile:
    """A file of the log.

    Args:
        name: its name.
        size: how many bytes it has.
    """

    name: str
    size: int

    @property
    def number(self) -> int:
        return file_of(self.name)[1]


@dataclass(frozen=True)
class ServerState:
    """What a server says of itself and of its log.

    Args:
        kind: `mysql`, `percona` or `mariadb`.
        server: what tells it from other servers.
        address: host and port, for sentences.
        files: the files of its log, oldest first.
        gtids: the transactions that its log has or had, as it writes them.
        expires: after how many seconds a file may go; 0 for never, None where that is not known.
        in_use: those that MySQL's log may have, and that are not done: they wait for the engine, or for a replica.
    """

    kind: str
    server: str
    address: str
    files: tuple[LogFile, ...]
    gtids: str = ""
    expires: int | None = None
    in_use: str = ""

    @classmethod
    def of(cls, connection: Connection) -> ServerState:
        """As it is now.

        Raises:
            CaptureError: it writes no binary log, or the login may not ask for it.
        """
        server = connection.server
        # Before those that are done, so that none is missed that goes over in between.
        in_use = "" if server.is_mariadb else _THREAD.sub("", str(connection.value(_IN_USE) or ""))
        variables = connection.variables(*_VARIABLES)
        address = f"{variables.get('hostname', '')}:{variables.get('port', '')}"
        expires = variables.get("binlog_expire_logs_seconds", "")
        return cls(
            server.name,
            # Old servers of MariaDB have no name of their own.
            server.uuid or f"{address}/{variables.get('server_id', '')}",
            address,
            files_of(connection.rows(FILES)),
            variables.get("gtid_binlog_state" if server.is_mariadb else "gtid_executed", "").replace("\n", ""),
            int(expires) if expires.isdecimal() else None,
            in_use.replace("\n", ""),
        )

    @property
    def base(self) -> str:
        """The base name of the newest file."""
        return file_of(self.files[-1].name)[0]

    def bytes_between(self, begin: BinlogPosition, end: BinlogPosition) -> int:
        """How many bytes of the log lie between two positions."""
        sizes = sum(file.size for file in self.files if begin.file <= file.number < end.file)
        return sizes + end.position - begin.position


def files_of(rows: Sequence[Sequence[object]]) -> tuple[LogFile, ...]:
    """The files of the log, oldest first, of what SHOW BINARY LOGS says.

    Raises:
        CaptureError: there is none.
    """
    if not rows:
        raise CaptureError("The server writes no binary log.", remedy="Start it with --log-bin.")
    return tuple(LogFile(str(name), int(str(size))) for name, size, *_ in rows)


def gtid_set(kind: str, text: str) -> GtidSet:
    return MariadbGtidSet.of(text) if kind == MARIADB else MysqlGtidSet.of(text)


def require_there(now: ServerState, state: StreamState, begin: BinlogPosition) -> None:
    """See that a server still has all that follows an offset, and what is held for distributed transactions.

    Raises:
        PositionMismatch, DataLossError: as `require_same_log`.
    """
    for position in (begin, *(one.start for one in state.prepared if one.captured)):
        require_same_log(now, state.log, position)


def require_same_log(now: ServerState, before: LogState, boundary: BinlogPosition) -> None:
    """See that a server still has everything that follows an offset; makes no request.

    What the offset's file says of itself is not asked here: `require_same_file`.

    Args:
        now: the server as it is.
        before: what the offset keeps of the log.
        boundary: where the next read begins.

    Raises:
        PositionMismatch: it is another server, or one whose log went back or was reset.
        DataLossError: the file is not there any more.
    """
    if now.server != before.server or (now.kind == MARIADB) != (before.kind == MARIADB):
        raise PositionMismatch(
            f"The checkpoint was written with another server than '{now.address}': that had the id "
            f"'{before.server}', and this one has '{now.server}'.",
            remedy=f"Set 'hostname' and 'port' to the server that it belongs to. {NEW_CHECKPOINT}",
        )
    where = f"byte {boundary.position} of '{file_name(before.base, boundary.file)}'"
    if now.base != before.base:
        raise PositionMismatch(
            f"Changes were read up to {where}, and the files of the log of '{now.address}' are now called "
            f"'{now.base}'.",
            remedy=f"Set log_bin back to '{before.base}'. {NEW_CHECKPOINT}",
        )
    held = {file.number: file for file in now.files}
    if boundary.file < now.files[0].number:
        raise purged(now, file_name(before.base, boundary.file))
    newest = now.files[-1]
    if boundary.file > newest.number or (boundary.file == newest.number and boundary.position > newest.size):
        raise PositionMismatch(
            f"Changes were read up to {where}, but the log of '{now.address}' ends at byte {newest.size} of "
            f"'{newest.name}': it was begun anew, restored from a backup, or lost its end in a crash.",
            remedy=NEW_CHECKPOINT,
        )
    file = held.get(boundary.file)
    if file is None:
        raise DataLossError(
            f"File '{file_name(before.base, boundary.file)}' of the log of '{now.address}' is missing between files "
            "that are there, so changes after the last batch are lost.",
            remedy=AFTER_LOSS,
        )
    if max(boundary.position, FIRST) > file.size:
        raise PositionMismatch(
            f"Changes were read up to {where}, but that file has {file.size} bytes: the server lost the end of it in a "
            "crash, or was restored from a backup.",
            remedy=NEW_CHECKPOINT,
        )
    logged = gtid_set(now.kind, f"{now.gtids},{now.in_use}")
    if before.gtids and not logged.continues(gtid_set(before.kind, before.gtids)):
        raise PositionMismatch(
            f"The log of '{now.address}' does not have all transactions that were read from it: it was begun anew, or "
            "restored from a backup.",
            remedy=NEW_CHECKPOINT,
        )


AFTER_LOSS = "Set 'snapshot_mode' to when_needed, so that the tables are read again, or use another checkpoint."


def purged(now: ServerState, file: str) -> DataLossError:
    kept = "binlog_expire_logs_seconds"
    if now.expires:
        kept = f"{kept}, which is {now.expires} now,"
    return DataLossError(
        f"File '{file}' of the log of '{now.address}' is gone, and the oldest one is '{now.files[0].name}', so changes "
        "after the last batch are lost.",
        remedy=f"{AFTER_LOSS} Let {kept} be longer than the pipeline ever stands still.",
    )


def require_same_file(now: str, before: str, file: str, address: str) -> None:
    """See that a file of the log is the one that an offset ended in.

    Args:
        now: what the file says of itself.
        before: what it said of itself when the batch before was planned.
        file: its name.
        address: the server's, for sentences.

    Raises:
        PositionMismatch: it is another one with the same name.
    """
    if now != before:
        raise PositionMismatch(
            f"File '{file}' of the log of {address} is not the one that was read: the log was begun anew, or "
            "restored from a backup.",
            remedy=NEW_CHECKPOINT,
        )
