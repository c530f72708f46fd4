"""The rows of a batch, table by table, without a look at every row for each table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.apply.profile import TableProfile
from headrace.changes.table import TableId
from headrace.changes.typed import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FEW_TABLES = 16
"""Up to how many tables looking through all rows for each of them costs less than sorting the rows."""
FEW_ROWS = 100_000
"""Up to how many rows looking through them is nothing beside the commit of a table."""
_PART = 250_000

_TABLE = "_headrace_table"
_BETWEEN = "\x1f"


@contextmanager
def parted(rows: DataFrame, tables: Sequence[TableProfile]) -> Iterator[Callable[[TableProfile], DataFrame]]:
    """Give for each table of a batch change rows among which are all data rows of it, in no order.

    Where there are many rows of many tables, they are kept once more, sorted by table (`MEMORY_AND_DISK`), until the
    context ends. Spark knows the least and the greatest table of each 10,000 kept rows and skips the others; looked
    through for each table, a batch costs as much as all tables of it together, times their number.

    Args:
        rows: the batch's change rows, persisted if they are expensive to compute.
        tables: their profiles.
    """
    size = sum(table.size for table in tables)
    if len([table for table in tables if table.size]) <= FEW_TABLES or size <= FEW_ROWS:
        yield lambda table: rows
        return
    from pyspark import StorageLevel

    parts = max(size // _PART, 2)
    names = ", ".join(f"coalesce(table.{part}, '')" for part in ("database", "schema", "name"))
    kept = (
        rows.where("op in ('r', 'c', 'u', 'd', 't')")
        .selectExpr("*", f"concat_ws('\\u001f', {names}) as {_TABLE}")
        # By position too, so that a large table is not one task.
        .repartitionByRange(parts, _TABLE, "position")
        .sortWithinPartitions(_TABLE)
        .persist(StorageLevel.MEMORY_AND_DISK)
    )
    try:
        yield lambda table: kept.where(f"{_TABLE} = {literal(_name(table.id))}").drop(_TABLE)
    finally:
        kept.unpersist()


def _name(id: TableId) -> str:
    return _BETWEEN.join((id.database, id.schema, id.name))
