"""The snapshot of a table without a key: read at once, then taken back to the snapshot's commit.

Rows of a keyed table may be read later than the commit they are stamped with, because the stream brings the changes in
between again and the key absorbs them. Without a key a repeated insert would be a second row. So the table is read
under a shared lock, the reader waits (bounded) until the capture job has passed the read, and undoes the changes in
between: what is left is the table as it was at the commit, byte for byte again on a replay.
"""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Collection, Iterator

import pyarrow as pa

from headrace.errors import CaptureError
from headrace.options import Options
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.structure import CapturedTable, Window, column_texts
from headrace.sources.change_tables.windows import change_images

ROUNDING = dt.timedelta(milliseconds=10)
"""Commit times are kept to a three-hundredth of a second, so they are compared with this much to spare."""
_POLL_SECONDS = 0.2


def settled_rows(
    connection: Connection,
    table: CapturedTable,
    commit: str,
    settings: Options,
    *,
    present: Collection[str],
) -> Iterator[list[pa.Array]]:
    """The rows of a table without a key as they were at a commit, as columns of canonical text.

    Args:
        connection: to the database.
        table: the table.
        commit: the commit.
        settings: the source's options.
        present: the columns that the table still has.

    Raises:
        CaptureError: the capture job did not pass the read in time, or a change in between does not carry whole images.
    """
    batches, read_at = _read_locked(connection, table, present)
    wait_until_captured(connection, table, read_at, settings["capture_timeout_seconds"])
    last = connection.value(connection.statements.LAST_LSN_AT, (read_at,))
    upto = commit if last is None else max(commit, lsn.read(last))
    undo = _changes_between(connection, Window(table, commit, upto)) if upto > commit else None
    if undo is None or not (undo[0] or undo[1]):
        yield from batches
        return
    yield from _undone(batches, *undo)


def _read_locked(
    connection: Connection, table: CapturedTable, present: Collection[str]
) -> tuple[list[list[pa.Array]], object]:
    """All rows, and the server's time while no one could write to the table."""
    sql, _ = connection.statements.rows_in_range(table, (), None, None, present=present, locked=True)
    connection.begin()
    try:
        rows = connection.batches(sql, rows=table.batch_rows, patient=True)
        batches = [column_texts(table.schema, table.natives, batch) for batch in rows]
        read = connection.value(connection.statements.LOCAL_TIME)
        # Nobody commits to the table in this pause, so that rounded commit times are clearly on one side of its middle.
        time.sleep(2 * ROUNDING.total_seconds())
        return batches, read + ROUNDING
    finally:
        connection.end()


def wait_until_captured(connection: Connection, table: CapturedTable, read_at: object, timeout: int) -> None:
    """Wait until the capture job has read the log beyond a time of the server.

    A login that may not see the job's scans learns of it by commits, and by the mark that an idle job makes every five
    minutes.

    Raises:
        CaptureError: it did not in time.
    """
    deadline = time.monotonic() + timeout
    advice = connection.dialect.advice
    remedy = f"See that {advice.watch}, or raise 'capture_timeout_seconds'."
    visible = bool(connection.statements.EMPTY_SCANS_SINCE)
    while not connection.value(connection.statements.CAPTURED_SINCE, (read_at,)):
        if visible:
            try:
                if connection.value(connection.statements.EMPTY_SCANS_SINCE, (read_at,)):
                    return
            except CaptureError:
                # A broken connection fails at the next question too.
                visible = False
                remedy = (
                    f"Let the login see when an idle database was captured ({advice.see}), see that {advice.watch}, "
                    "or raise 'capture_timeout_seconds'."
                )
        if time.monotonic() > deadline:
            raise CaptureError(
                f"The capture job did not pass the snapshot of table '{table.id.path}' within {timeout} seconds.",
                remedy=remedy,
            )
        time.sleep(_POLL_SECONDS)


def _changes_between(
    connection: Connection, window: Window
) -> tuple[Counter[tuple[str | None, ...]], Counter[tuple[str | None, ...]]]:
    """The images that came (to be taken out) and went (to be put back) after a commit."""
    came: Counter[tuple[str | None, ...]] = Counter()
    gone: Counter[tuple[str | None, ...]] = Counter()
    table = window.table
    names = [column.name for column in table.schema.columns]
    for op, before, image in change_images(connection, window):
        if op == "u" and before is None:
            raise CaptureError(
                f"Table '{table.id.path}' has no key, and was updated while it was read by an update that does not say "
                "the row before.",
                remedy="Capture it with images before updates, or take the snapshot while nobody writes to it.",
            )
        for found, counter in ((before, gone), (image, came)):
            if found is None:
                continue
            if len(found) != len(names):
                raise CaptureError(
                    f"Table '{table.id.path}' has no key, and was changed while it was read by a change without whole "
                    "images.",
                    remedy="Take the snapshot while nobody writes to the table, or give it a key.",
                )
            counter[tuple(found[name] for name in names)] += 1
    both = came & gone
    return came - both, gone - both


def _undone(
    batches: list[list[pa.Array]], came: Counter[tuple[str | None, ...]], gone: Counter[tuple[str | None, ...]]
) -> Iterator[list[pa.Array]]:
    """The rows without those that came and with those that went.

    Per-row Python, only when the table changed meanwhile.
    """
    for texts in batches:
        keep = []
        for number, row in enumerate(zip(*(t.to_pylist() for t in texts), strict=True)):
            if came[row] > 0:
                came[row] -= 1
            else:
                keep.append(number)
        yield [t.take(pa.array(keep, pa.int64())) for t in texts]
    rest = list(gone.elements())
    if rest:
        yield [pa.array(column, pa.string()) for column in zip(*rest, strict=True)]
