"""Reading windows of the log: a dump from the window's start to its end. Runs in executors.

Nothing is kept on the server, so the same window can be read again, byte for byte, by a retry or a second copy of the
task.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing

import pyarrow as pa

from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.connection import BinlogConnection
from headrace.sources.mysql.decode import Window, WindowDecoder
from headrace.sources.mysql.groups import Prepared
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.place import FIRST, Place, file_name
from headrace.sources.mysql.snapshot_read import Changes

_LARGEST_POSITION = (1 << 32) - 1


def read_window(window: Window, settings: MysqlSettings, capture_time: dt.datetime | None) -> Iterator[pa.RecordBatch]:
    """The change rows of a window, in position order.

    Raises:
        DataLossError: a file of the window is not there any more.
        LostConnection: the server went away; nothing is lost, and the window can be read again.
        CaptureError: the log has what can't be read.
    """
    decoder = WindowDecoder(window, settings, capture_time, lambda place: _dumped(settings, window.log, place))
    with closing(_dumped(settings, window.log, window.start)) as log:
        while not decoder.finished:
            data = next(log, b"")
            if not data:
                break
            yield from decoder.feed(data)
    yield from decoder.finish()


def changes_of(settings: MysqlSettings, connector: str, log: str, prepared: Iterable[Prepared] = ()) -> Changes:
    """What reads the changes of one table between two boundaries, for snapshots: all of them, with values as they are.

    Args:
        settings: the source's options.
        connector: `mysql` or `mariadb`.
        log: the base name of the log's files.
        prepared: the distributed transactions that were prepared before, and may be decided in between.
    """
    whole = settings.replaced(
        column_mask_with=None,
        column_mask_hash=None,
        column_truncate_to=None,
        skipped_operations=(),
        skip_messages_without_change=False,
        provide_transaction_metadata=False,
        include_query=False,
    )
    held = tuple(prepared)

    def changes(table: MysqlTable, low: Place, high: Place) -> Iterable[pa.RecordBatch]:
        return read_window(Window(low, high, log, connector, {table.path: table}, prepared=held), whole, None)

    return changes


def _dumped(settings: MysqlSettings, log: str, place: Place) -> Generator[memoryview, None, None]:
    """The log from a boundary to where it ends."""
    # A file may be larger than a dump can name a place of: what comes before is passed over.
    position = place.position if FIRST <= place.position <= _LARGEST_POSITION else FIRST
    with closing(BinlogConnection(settings)) as connection:
        # Without the statements of rows MariaDB leaves their events out, and places can't be counted.
        connection.dump(file_name(log, place.file), position, statements=True)
        while data := connection.receive():
            yield data
