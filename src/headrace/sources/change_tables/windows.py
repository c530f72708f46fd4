"""One table's changes in a window of commits, and when those commits were made."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.captured_table import ARROW_ROWS
from headrace.sources.change_tables.clock import CommitClock
from headrace.sources.change_tables.commit_times import CommitTimes
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.options import ChangeTableSettings
from headrace.sources.change_tables.schema_history import Window

Image = dict[str, str | None]


def commit_times(
    connection: Connection, after: str, upto: str, zone: str, settings: ChangeTableSettings
) -> CommitTimes:
    """When the commits of a window were made: read once, not joined to every row on the server.

    Args:
        connection: to the database.
        after: the commit before the window.
        upto: its last commit.
        zone: the zone of the server's clock, or its offset.
        settings: the source's options.
    """
    sql = connection.statements.COMMIT_TIMES[settings.get("commit_time", "end")]
    batches = list(connection.batches(sql, (lsn.to_bytes(after), lsn.to_bytes(upto))))
    if not batches:
        return CommitTimes.unknown()
    commits = pa.concat_arrays([lsn.to_texts(batch.column(0)) for batch in batches])
    server, columns = CommitClock(connection, zone), pa.Table.from_batches(batches).columns
    times = server.ends(commits, columns[1].combine_chunks())
    if settings.get("commit_time", "end") == "begin":
        times = server.begins(columns[2].combine_chunks(), times)
    return CommitTimes(commits, times)


def change_images(connection: Connection, window: Window) -> Iterator[tuple[str, Image | None, Image | None]]:
    """Operation, before and after image of each change of a window, for the few that are looked at one by one.

    As they are in the change table, whatever the options say.
    """
    no_times = CommitTimes.unknown()
    dialect = connection.dialect
    reader = dialect.change_reader(window.table, no_times, None, None)
    for batch in reader.read(dialect.changes(connection, window, None, rows=ARROW_ROWS)):
        columns = (batch.column(name).to_pylist() for name in ("op", "before", "after"))
        for op, old, new in zip(*columns, strict=True):
            yield op, (None if old is None else dict(old)), (None if new is None else dict(new))
