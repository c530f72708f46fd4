"""One table's changes in a window of commits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.captured_table import ARROW_ROWS
from headrace.sources.change_tables.clock import CommitClock
from headrace.sources.change_tables.commit_times import CommitTimes
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.options import ChangeTableSettings
from headrace.sources.change_tables.schema_history import Window
from headrace.sources.images import Images, constant_map
from headrace.sources.rows import repeat

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


def differ(texts: list[pa.Array], absent: np.ndarray | None, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Whether anything differs between each old row and its new one; a cell that was left out differs from NULL."""
    is_different = np.zeros(len(old), dtype=bool)
    for i, column in enumerate(texts):
        is_different |= ~same(column.take(pa.array(old)), column.take(pa.array(new)))
        if absent is not None:
            is_different |= absent[old, i] != absent[new, i]
    return is_different


def same(before: pa.Array, after: pa.Array) -> np.ndarray:
    """Whether two columns hold the same, row by row; NULL is the same as NULL."""
    both_null = pc.and_(pc.is_null(before), pc.is_null(after))
    alike: np.ndarray = pc.or_(pc.fill_null(pc.equal(before, after), False), both_null).to_numpy(zero_copy_only=False)
    return alike


def weights(commits: pa.Array, key: list[tuple[pa.Array, pa.Array]], indexes: np.ndarray, events: int) -> pa.Array:
    """The column `transaction` of rows: each one's commit and, until it has a number, how many events it becomes.

    An update that changes the key becomes a delete and a create, as far as they are not skipped; all else is one.

    Args:
        commits: the commit of each row, as text.
        key: of each key column the values before and after the updates.
        indexes: which rows those updates are.
        events: for how many events an update counts that changes the key.
    """
    counts = np.ones(len(commits), dtype=np.int64)
    for before, after in key:
        counts[indexes[~same(before, after)]] = events
    return pa.StructArray.from_arrays(
        [commits, pa.array(counts), pa.nulls(len(commits), pa.int64())],
        names=["id", "total_order", "data_collection_order"],
    )


def no_events(commits: pa.Array) -> pa.Array:
    """The column `transaction` of rows that count for no event."""
    return pa.StructArray.from_arrays(
        [commits, pa.array(np.zeros(len(commits), dtype=np.int64)), pa.nulls(len(commits), pa.int64())],
        names=["id", "total_order", "data_collection_order"],
    )


def counted(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that count for an event, of those with `weights`."""
    counts = rows.column("transaction").field("total_order").to_numpy(zero_copy_only=False)
    return rows if counts.all() else rows.filter(pa.array(counts > 0))


def sources(connector: str, **facts: pa.Array) -> pa.Array:
    """The source's facts on changes: the connector's name, and a column of texts for each further fact."""
    count = len(next(iter(facts.values())))
    rows = np.arange(count)
    return Images(("connector", *facts), [repeat(connector, pa.string(), count), *facts.values()]).maps(
        rows, count, rows
    )


def snapshot_sources(connector: str, commit: str, length: int) -> pa.Array:
    return constant_map({"connector": connector, "commit_lsn": commit}, length)
