"""One LogMiner session: the logs of a range, its rows, statements put together, and what is kept of them.

Runs in the driver for a single range and in executors for several. Each range is mined by one session, which reads it
once, forward, and holds no more than one batch of rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace import faultpoints
from headrace.errors import CaptureError, DataLossError
from headrace.sources.oracle import statements
from headrace.sources.oracle.connection import Connection, OracleError
from headrace.sources.oracle.logs import IN_REDO, LogFile, chosen, destination, mined_from, require_whole, whole_after
from headrace.sources.oracle.options import OracleSettings
from headrace.sources.oracle.range_index import RangeIndex
from headrace.sources.oracle.scn import ScnRange
from headrace.sources.oracle.staging import ROWS, Staging

_TRIES = 5
_BACK_OFF_SECONDS = 1.0
# A log was archived, overwritten or reused between its choice and its reading: other files have the same records.
_LOGS_MOVED = frozenset((1291, 310, 1284, 334, 1289, 1292, 308))
_NOT_STARTED = 1307
_LONGEST_STATEMENT = 64 * 1024 * 1024
_BATCH = 5_000
_LOG = logging.getLogger("headrace.sources")


def mine(
    connect: Callable[[], Connection],
    scns: ScnRange,
    tables: Sequence[tuple[str, str]],
    settings: OracleSettings,
    staging: Staging,
) -> RangeIndex:
    """Mine a range, keep it, and give its index.

    Raises:
        DataLossError: logs of the range are gone.
        CaptureError: LogMiner refuses.
    """
    for attempt in attempts():
        try:
            with connect() as connection:
                index = RangeIndex(str(connection.value(statements.ZONE)))
                connection.run(statements.MINING_SESSION)
                with _session(connection, scns, settings):
                    staging.write(scns, _changes(_rows(connection, scns, tables, settings), index), index)
            faultpoints.reach("source.oracle.mined")
            return index
        except OracleError as error:
            if error.number not in _LOGS_MOVED or attempt == _TRIES:
                raise
            _LOG.warning("Logs moved while they were mined; they are chosen again (%s)", error)
        except DataLossError:
            # An archiver may be late.
            if attempt == _TRIES:
                raise
    raise AssertionError("unreachable")


def attempts() -> Iterator[int]:
    """Numbers of attempts, with growing pauses between them."""
    for attempt in np.arange(1, _TRIES + 1).tolist():
        if attempt > 1:
            time.sleep(_BACK_OFF_SECONDS * 2 ** (attempt - 2) / 4)
        yield attempt


def logs_of(connection: Connection, scns: ScnRange, settings: OracleSettings) -> list[LogFile]:
    """The logs of a range, with those since the dictionary where that is in the logs too.

    Raises:
        DataLossError: some are gone.
    """
    low = scns.low
    if settings.log_mining_strategy == IN_REDO:
        low = mined_from(archived(connection, settings), low)
    logs, threads, begun = _logs(connection, ScnRange(low, scns.high), settings)
    require_whole(logs, threads, low, scns.high, begun)
    return logs


def archived(connection: Connection, settings: OracleSettings, low: int = 0) -> list[LogFile]:
    """The archived logs that are there, of the destination that is read, with SCNs after another one."""
    wanted = destination(settings.archive_destination_name, connection.rows(statements.DESTINATIONS))
    return [log for log, dest in _archived(connection, low) if wanted is None or dest == wanted]


def _archived(connection: Connection, low: int) -> Iterator[tuple[LogFile, int]]:
    for name, thread, sequence, first, next, dest, begins, ends in connection.rows(statements.ARCHIVED_LOGS, low=low):
        log = LogFile(
            int(thread),
            int(sequence),
            int(first),
            int(next),
            str(name),
            begins_dictionary=begins == "YES",
            ends_dictionary=ends == "YES",
        )
        yield log, int(dest)


def require_logs(connect: Callable[[], Connection], scns: ScnRange, settings: OracleSettings) -> None:
    """See before a range is mined that its logs are there, with the patience that mining has.

    Raises:
        DataLossError: some are gone.
    """
    for attempt in attempts():
        try:
            with connect() as connection:
                logs_of(connection, scns, settings)
            return
        except DataLossError:
            if attempt == _TRIES:
                raise


def whole_since(connection: Connection, high: int, settings: OracleSettings) -> int:
    """The SCN after which no log is gone up to another SCN."""
    logs, threads, begun = _logs(connection, ScnRange(0, high), settings)
    return whole_after(logs, threads, high, begun)


def _logs(
    connection: Connection, scns: ScnRange, settings: OracleSettings
) -> tuple[list[LogFile], list[int], dict[int, int]]:
    """The logs of a range that are there, the open threads, and the SCN with which each thread's first log began."""
    online = []
    begun: dict[int, int] = {}
    for name, thread, sequence, first, next, status, archived in connection.rows(statements.ONLINE_LOGS):
        log = LogFile(int(thread), int(sequence), int(first), int(next), str(name), status == "CURRENT")
        if log.sequence == 1:
            begun[log.thread] = log.first
        if not settings.archive_log_only and (log.current or archived != "YES"):
            online.append(log)
    wanted = destination(settings.archive_destination_name, connection.rows(statements.DESTINATIONS))
    archives = []
    for log, dest in _archived(connection, scns.low):
        if log.sequence == 1:
            begun[log.thread] = log.first
        if wanted is None or dest == wanted:
            archives.append(log)
    logs = chosen(online, archives, scns.low, scns.high)
    return logs, [int(row[0]) for row in connection.rows(statements.THREADS)], begun


@contextmanager
def _session(connection: Connection, scns: ScnRange, settings: OracleSettings) -> Iterator[None]:
    for log in logs_of(connection, scns, settings):
        connection.run(statements.ADD_LOG, name=log.name)
    connection.run(statements.START[settings.log_mining_strategy], low=scns.low + 1, high=scns.high)
    try:
        yield
    finally:
        try:
            connection.run(statements.END)
        except OracleError as error:
            if error.number != _NOT_STARTED:
                _LOG.debug("A LogMiner session could not be ended in order: %s", error)


def _rows(
    connection: Connection, scns: ScnRange, tables: Sequence[tuple[str, str]], settings: OracleSettings
) -> Iterator[pa.RecordBatch]:
    sql = statements.contents(tables, settings.pdb, pieces=settings.lob_enabled)
    parameters: dict[str, Any] = {"low": scns.low, "high": scns.high}
    if settings.pdb:
        parameters["pdb"] = settings.pdb.upper()
    yield from _whole(connection.batches(sql, rows=_BATCH, **parameters))


def _whole(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows whose statements are put together again: all but the text is that of the first piece."""
    open_row: dict[str, Any] | None = None
    pieces: list[str] = []
    size = 0
    for mined in batches:
        batch = _columns(mined)
        continues = batch.column("csf").to_numpy(zero_copy_only=False).astype(bool)
        if open_row is None and not continues.any():
            yield batch.drop_columns(["csf"])
            continue
        texts = batch.column("sql").to_pylist()
        first, whole = [], []
        carried: tuple[dict[str, Any], str] | None = None
        start = -1 if open_row is not None else None
        for number, text in enumerate(texts):
            if start is None:
                start, pieces, size = number, [], 0
            pieces.append(text or "")
            size += len(text or "")
            if size > _LONGEST_STATEMENT:
                raise CaptureError(
                    "LogMiner prints a statement that does not end within 64 MB.", remedy="Report it with its SCN."
                )
            if continues[number]:
                continue
            if start == -1:
                assert open_row is not None
                carried = (open_row, "".join(pieces))
            else:
                first.append(start)
                whole.append("".join(pieces))
            start, open_row = None, None
        if carried is not None:
            yield pa.RecordBatch.from_pylist([{**carried[0], "sql": carried[1]}], schema=ROWS)
        if start is not None and start >= 0:
            open_row = batch.drop_columns(["csf"]).slice(start, 1).to_pylist()[0]
        if first:
            rows = batch.drop_columns(["csf"]).take(pa.array(first))
            yield rows.set_column(ROWS.get_field_index("sql"), ROWS.field("sql"), pa.array(whole, pa.string()))
    if open_row is not None:
        raise CaptureError("LogMiner's rows end in the middle of a statement.", remedy="Start again.")


def _columns(mined: pa.RecordBatch) -> pa.RecordBatch:
    """What LogMiner gave in the types that are kept, and the continuation flag."""
    scn_text, xid, thread, rs_id, ssn, code, owner, name, row_id, undo, when, user, sql, csf, status, info = (
        mined.columns
    )
    arrays = [
        pc.utf8_lower(pc.cast(xid, pa.string())),
        pc.cast(pc.cast(scn_text, pa.string()), pa.uint64()),
        *(_whole_numbers(column, kind) for column, kind in ((thread, pa.int32()),)),
        pc.utf8_trim_whitespace(pc.cast(rs_id, pa.string())),
        _whole_numbers(ssn, pa.int64()),
        _whole_numbers(code, pa.int32()),
        *(pc.cast(column, pa.string()) for column in (owner, name, row_id)),
        pc.equal(_whole_numbers(undo, pa.int32()), 1),
        pc.cast(when, pa.string()),
        pc.cast(user, pa.string()),
        _whole_numbers(status, pa.int32()),
        pc.cast(info, pa.string()),
        pc.cast(sql, pa.string()),
        _whole_numbers(csf, pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS.append(pa.field("csf", pa.int32())))


def _whole_numbers(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.nulls(len(column), kind) if pa.types.is_null(column.type) else pc.cast(column, kind)


def _changes(batches: Iterator[pa.RecordBatch], index: RangeIndex) -> Iterator[pa.RecordBatch]:
    """The rows that carry changes; the others go into the index."""
    for batch in batches:
        rows = index.take(batch)
        if rows.num_rows:
            yield rows
