"""How the rows of a batch are partitioned: few in one partition, many by table."""

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
_ONE_TASK = 4 << 20
_UNKNOWN = 1 << 62

_TABLE = "_headrace_table"
_BETWEEN = "\x1f"


def kept_bytes(rows: DataFrame) -> int | None:
    """About how many bytes Spark keeps rows in, which it knows of persisted ones that are computed.

    None where that is not known, as for rows that come from Python, or over Spark Connect.
    """
    if not hasattr(rows.sparkSession, "_jsparkSession"):
        return None
    size = int(rows._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())
    return None if size >= _UNKNOWN else size


def in_one_task(rows: DataFrame) -> DataFrame:
    """The rows; in one partition where they are so few that several tasks and a shuffle cost more than they save.

    Args:
        rows: a batch's change rows, persisted; where nothing is known of their number they stay as they are.
    """
    size = kept_bytes(rows)
    return rows if size is None or size > _ONE_TASK else rows.coalesce(1)


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
