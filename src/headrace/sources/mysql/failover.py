"""Where a pipeline goes on when another server took over: at the position of its log that has the same transactions
before it.

Files and bytes of two servers have nothing in common, and GTIDs have. The other server is followed only where it has
all that was read, in the same order, and nothing of what follows was purged.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import closing

from headrace.errors import DataLossError, FormatError, PositionMismatch
from headrace.sources.mysql.binlog_position import FIRST, BinlogPosition, file_name
from headrace.sources.mysql.connection import MARIADB, Connection, connect_binlog
from headrace.sources.mysql.events import EventType, Frames, events_in
from headrace.sources.mysql.gtid import GtidSet, read_gtid_list, read_previous_gtids
from headrace.sources.mysql.guards import AFTER_LOSS, NEW_CHECKPOINT, ServerState, gtid_set
from headrace.sources.mysql.log_read import log_up_to, mark_of
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.stream_state import LogState, StreamState
from headrace.sources.mysql.transactions import TransactionEnd, TransactionReader
from headrace.sources.mysql.visibility import Snapshots

_BEGINNING = (EventType.ROTATE, EventType.FORMAT_DESCRIPTION, EventType.START_ENCRYPTION)


def is_another(now: ServerState, before: LogState) -> bool:
    """Whether a server is not the one that an offset was reached with, and may have taken over from it."""
    same_kind = (now.kind == MARIADB) == (before.kind == MARIADB)
    return now.server != before.server and same_kind and bool(before.gtids and now.gtids)


def taken_over(
    session: Connection, settings: MysqlSettings, now: ServerState, before: StreamState
) -> tuple[BinlogPosition, LogState]:
    """The boundary at which another server's log goes on after an offset, and what the offset keeps of that log.

    Reads the file of the boundary and what follows. Runs in the driver.

    Args:
        session: of the other server.
        settings: the source's options.
        now: the other server.
        before: what the offset keeps of the log.

    Raises:
        PositionMismatch: the other server lacks transactions that were read, or has them in another order.
        DataLossError: transactions that follow were purged there.
    """
    ours = gtid_set(now.kind, before.log.gtids)
    if not gtid_set(now.kind, now.gtids).continues(ours):
        raise PositionMismatch(
            f"The server '{now.address}' does not have all transactions that were read from another one.",
            remedy=f"If it is a replica that lags behind, wait until it has them. Otherwise: {NEW_CHECKPOINT}",
        )
    if now.kind == MARIADB and session.variables("gtid_strict_mode").get("gtid_strict_mode") != "ON":
        raise PositionMismatch(
            f"The server '{now.address}' is another one than the checkpoint was written with, and its GTIDs may be out "
            "of order.",
            remedy=f"Run SET GLOBAL gtid_strict_mode = ON on all servers before one takes over. {NEW_CHECKPOINT}",
        )
    # The last file before which nothing is new.
    known = bisect_left(
        now.files, True, key=lambda file: not ours.contains(_transactions_before(settings, now.kind, file.name))
    )
    if not known:
        raise DataLossError(
            f"The server '{now.address}' took over, and transactions behind those that were read are not in its log "
            f"any more: the oldest file is '{now.files[0].name}'.",
            remedy=AFTER_LOSS,
        )
    epoch, file = before.log.epoch + 1, now.files[known - 1]
    head = Snapshots(session.server, epoch).head(session)
    position = _boundary_after_known(ours, settings, now, BinlogPosition(epoch, file.number, FIRST), head)
    mark = mark_of(settings, file_name(now.base, position.file))
    folds = session.server.folds_names
    return position, LogState(now.kind, now.server, now.base, mark, epoch, before.log.gtids, folds)


def _boundary_after_known(
    ours: GtidSet, settings: MysqlSettings, now: ServerState, begin: BinlogPosition, head: BinlogPosition
) -> BinlogPosition:
    """The boundary after the transactions that are known; what follows has none of them."""
    boundary, is_after = begin, False
    transactions = TransactionReader(begin, head, ())
    with closing(log_up_to(settings, now.base, begin, lambda: transactions.boundary, server=now.server)) as blocks:
        while not transactions.finished:
            block = next(blocks, None)
            if block is None:
                transactions.finish()
                break
            for data in events_in(block):
                for step in transactions.read(data):
                    if not isinstance(step, TransactionEnd):
                        continue
                    if step.transaction.gtid is None or not ours.has(step.transaction.gtid):
                        is_after = True
                    elif is_after:
                        raise PositionMismatch(
                            f"The server '{now.address}' took over, and has transaction {step.transaction.gtid}, which "
                            "was read, after others that were not.",
                            remedy=f"Let replicas commit in the order of the log. {NEW_CHECKPOINT}",
                        )
                    else:
                        boundary = step.end
    return boundary


def _transactions_before(settings: MysqlSettings, kind: str, file: str) -> GtidSet:
    frames = Frames()
    unknown = FormatError(f"File '{file}' of the binary log does not say which transactions are before it.")
    with connect_binlog(settings) as reader:
        reader.dump(file, FIRST)
        while block := reader.receive():
            for data in events_in(block):
                event = frames.event(data)
                if event.kind == EventType.PREVIOUS_GTIDS:
                    return read_previous_gtids(event.body)
                if event.kind == EventType.GTID_LIST:
                    return read_gtid_list(event.body)
                if event.kind not in _BEGINNING:
                    raise unknown
    raise unknown
