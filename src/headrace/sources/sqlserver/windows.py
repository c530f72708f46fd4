"""How a window of a change table is selected, and how it becomes change rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pyarrow as pa

from headrace.options import Options
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.captured_table import ARROW_ROWS, CapturedTable
from headrace.sources.change_tables.commit_times import CommitTimes
from headrace.sources.change_tables.schema_history import Window
from headrace.sources.change_tables.statements import Queries
from headrace.sources.sqlserver import statements
from headrace.sources.sqlserver.change_rows import ChangeReader
from headrace.sources.stream_options import events_of_key_change
from headrace.sources.tables.masks import NO_MASKS, Masks

CHANGE_OPERATIONS = {"c": (2,), "u": (3, 4), "d": (1,), "t": ()}
"""The values of `__$operation` that stand for an operation; tables under capture are never truncated."""


def changes(
    server: Queries, window: Window, settings: Options | None, *, rows: int = ARROW_ROWS
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
    return server.batches(
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
        key_change_events=events_of_key_change(() if settings is None else settings["skipped_operations"]),
    )


def _by_command(table: CapturedTable, settings: Options | None) -> bool:
    """Whether the rows of a commit are in the order of commands, or of sequence values and operations."""
    return table.instance.has_command_id and (settings is None or settings["order_in_commit"] == "command")
