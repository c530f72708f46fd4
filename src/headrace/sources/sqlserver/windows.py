"""One table's changes in a window of commits."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pyarrow as pa

from headrace.options import Options
from headrace.sources.sqlserver import lsn, statements
from headrace.sources.sqlserver.change_rows import ChangeReader, CommitTimes
from headrace.sources.sqlserver.column_masks import NO_MASKS, Masks
from headrace.sources.sqlserver.connection import ARROW_ROWS, Connection
from headrace.sources.sqlserver.server_clock import CommitClock
from headrace.sources.sqlserver.structure import CapturedTable, Window
from headrace.sources.sqlserver.table_rules import CHANGE_OPERATIONS

Image = dict[str, str | None]


def changes(
    connection: Connection, window: Window, settings: Options | None, *, rows: int = ARROW_ROWS
) -> Iterator[pa.RecordBatch]:
    """The raw rows of a window of a change table, in the server's order.

    Without the operations that the options skip; without options all of them.
    """
    skipped = () if settings is None else settings["skipped_operations"]
    table, instance = window.table, window.table.instance
    columns = list(zip([c.name for c in table.schema.columns], table.natives, strict=True))
    sql = statements.changes(
        instance.name,
        _by_command(table, settings),
        columns,
        skipped=[number for letter in skipped for number in CHANGE_OPERATIONS[letter]],
    )
    return connection.batches(
        sql, (lsn.to_bytes(window.after), lsn.to_bytes(window.upto)), rows=min(rows, table.batch_rows)
    )


def change_reader(
    table: CapturedTable,
    times: CommitTimes,
    capture_time: dt.datetime | None,
    settings: Options | None,
    *,
    weighted: bool = False,
) -> ChangeReader:
    """The converter for one table's change rows.

    With the masks that the options say, and without updates that they skip; without options, rows as they are.
    """
    ordinals = dict(table.instance.columns)
    return ChangeReader(
        table.schema,
        table.natives,
        [ordinals[column.name] for column in table.schema.columns],
        table.instance.name,
        times,
        capture_time,
        by_command=_by_command(table, settings),
        weighted=weighted,
        masks=NO_MASKS if settings is None else Masks.of(settings).of_table(table.schema, table.natives),
        skip_unchanged=settings is not None and settings["skip_messages_without_change"],
    )


def _by_command(table: CapturedTable, settings: Options | None) -> bool:
    """Whether the rows of a commit are in the order of commands, or of sequence values and operations."""
    return table.instance.has_command_id and (settings is None or settings["order_in_commit"] == "command")


def commit_times(connection: Connection, after: str, upto: str, zone: str, settings: Options) -> CommitTimes:
    """When the commits of a window were made: read once, not joined to every row on the server.

    Args:
        connection: to the database.
        after: the commit before the window.
        upto: its last commit.
        zone: the zone of the server's clock, or its offset.
        settings: the source's options.
    """
    sql = statements.COMMIT_TIMES[settings["commit_time"]]
    batches = list(connection.batches(sql, (lsn.to_bytes(after), lsn.to_bytes(upto))))
    if not batches:
        return CommitTimes(pa.array([], pa.string()), pa.array([], pa.timestamp("us", tz="UTC")))
    commits = pa.concat_arrays([lsn.to_texts(batch.column(0)) for batch in batches])
    server, columns = CommitClock(connection, zone), pa.Table.from_batches(batches).columns
    times = server.ends(commits, columns[1].combine_chunks())
    if settings["commit_time"] == "begin":
        times = server.begins(columns[2].combine_chunks(), times)
    return CommitTimes(commits, times)


def change_images(connection: Connection, window: Window) -> Iterator[tuple[Image | None, Image | None]]:
    """Before and after image of each change of a window, for the few changes that are looked at one by one.

    As they are in the change table, whatever the options say.
    """
    no_times = CommitTimes(pa.array([], pa.string()), pa.array([], pa.timestamp("us", tz="UTC")))
    reader = change_reader(window.table, no_times, None, None)
    for batch in reader.read(changes(connection, window, None)):
        before, image = batch.column("before").to_pylist(), batch.column("after").to_pylist()
        for old, new in zip(before, image, strict=True):
            yield (None if old is None else dict(old)), (None if new is None else dict(new))
