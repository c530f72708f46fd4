"""The snapshot of a table without a key: read at once, then taken back to the snapshot's commit.

Rows of a keyed table may be read later than the commit they are stamped with, because the stream brings the changes in
between again and the key absorbs them. Without a key a repeated insert would be a second row. So the table is read
under a shared lock, the reader waits (bounded) until the capture job has passed the read, and undoes the changes in
between: what is left is the table as it was at the commit, byte for byte again on a replay.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator

import pyarrow as pa

from headrace.errors import CaptureError
from headrace.sources.batch_sizes import Spool
from headrace.sources.change_tables.capture_wait import ROUNDING, CaptureMoment, CaptureWait
from headrace.sources.change_tables.captured_table import CapturedTable, column_texts
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.options import ChangeTableSettings
from headrace.sources.change_tables.schema_history import Window
from headrace.sources.change_tables.windows import change_images
from headrace.sources.snapshots.rewound import Row, rewound


def settled_rows(
    connection: Connection,
    table: CapturedTable,
    commit: str,
    settings: ChangeTableSettings,
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
    wait = CaptureWait(connection, settings)
    batches, read = _read_locked(connection, table, present, wait)
    upto = max(commit, wait.until_passed(table, read))
    undo = _changes_between(connection, Window(table, commit, upto)) if upto > commit else None
    if undo is None or not (undo[0] or undo[1]):
        yield from batches
        return
    yield from rewound(batches, *undo)


def _read_locked(
    connection: Connection, table: CapturedTable, present: Collection[str], wait: CaptureWait
) -> tuple[Spool, CaptureMoment]:
    """All rows, and a moment at which no one could write to the table."""
    sql, _ = connection.statements.rows_in_range(table, (), None, None, present=present, locked=True)
    connection.begin()
    try:
        batches = Spool()
        for batch in connection.batches(sql, rows=table.batch_rows, patient=True):
            batches.add(column_texts(table.schema, table.natives, batch))
        read = wait.moment()
        # Nobody commits to the table in this pause, so that rounded commit times are clearly on one side of its middle.
        time.sleep(2 * ROUNDING.total_seconds())
        return batches, read
    finally:
        connection.end()


def _changes_between(connection: Connection, window: Window) -> tuple[Counter[Row], Counter[Row]]:
    """The images that came (to be taken out) and went (to be put back) after a commit."""
    came: Counter[Row] = Counter()
    gone: Counter[Row] = Counter()
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
    return came, gone
