"""Changes with a value that can't be converted: they stop the run, or become `error` rows at their position."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from headrace.changes import Operation, TableId
from headrace.sources.change_tables.captured_table import UnreadableValue
from headrace.sources.rows import change_batch, repeat, table_column
from headrace.sources.table_errors import FAIL, WARN

_LOG = logging.getLogger("headrace.sources")
Convert = Callable[[pa.RecordBatch], pa.RecordBatch]


def around_unreadable(
    rows: pa.RecordBatch,
    mode: str,
    *,
    convert: Convert,
    cuts: Callable[[pa.RecordBatch], np.ndarray],
    refused: Callable[[pa.RecordBatch, str], pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Raw rows as change rows, in their order; those that can't be converted as `error` rows.

    Rows are halved until what can't be converted stands alone, so the others cost a few more conversions and no row
    is looked at by itself where all can be read.

    Args:
        rows: of a change table.
        mode: what is done with them (`unreadable_changes`).
        convert: makes change rows.
        cuts: says before which rows a batch may be cut: never inside of one update.
        refused: makes `error` rows of rows that can't be cut further, with the reason.

    Raises:
        UnreadableValue: a value can't be converted, and the mode is to stop.
    """
    try:
        yield convert(rows)
        return
    except UnreadableValue as error:
        if mode == FAIL:
            raise
        reason = error.message
    indexes = cuts(rows)
    if len(indexes):
        middle = int(indexes[np.argmin(np.abs(indexes - rows.num_rows // 2))])
        for part in (rows.slice(0, middle), rows.slice(middle)):
            yield from around_unreadable(part, mode, convert=convert, cuts=cuts, refused=refused)
        return
    errors = refused(rows, reason)
    if mode == WARN:
        for position in errors.column("position").to_pylist():
            _LOG.warning("A change is left out, at position %s. %s", position, reason)
    yield errors


def error_rows(table: TableId, reason: str, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """The rows of changes that can't be read.

    Args:
        table: their table.
        reason: why, without a value.
        columns: what is known of them all the same, their positions among that.
    """
    count = len(columns["position"])
    return change_batch(
        count,
        {
            **columns,
            "op": repeat(Operation.ERROR.value, pa.string(), count),
            "table": table_column(table, count),
            "error": repeat(reason, pa.string(), count),
        },
    )
