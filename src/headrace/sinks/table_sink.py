"""What all sinks share that keep tables equal to their source: their options, and tables written side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.apply import TableProfile, fold, fold_keyless, upserts
from headrace.apply.column_names import Step
from headrace.changes.one_table import in_turn, raise_together
from headrace.changes.table import Column, TableId
from headrace.changes.typed import literal, typed_value
from headrace.options import OTHER_NAMES, items
from headrace.settings import Settings, option
from headrace.sinks.evolution import BEHAVIORS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")


def column_renames(given: Any) -> tuple[tuple[str, str], ...]:
    """Old names of columns, with their table where it is given, and new names."""
    pairs = [tuple(part.strip() for part in text.rsplit("=", 1)) for text in items(given)]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise ValueError("an entry is no old=new")
    return tuple((old, new) for old, new in pairs)


class TableSettings(Settings):
    position_column: str = option(
        "The name of the column with the position of a row's last change.",
        default="_headrace_position",
    )
    takeover: bool = option(
        "Whether the sink may take over a target that belongs to another pipeline or checkpoint, or to none. A "
        "takeover does not find rows that the source has lost in the meantime.",
        default=False,
    )
    missing_row: str = option(
        "What to do with a change that does not carry all columns if the target has no row of its key: `fail` "
        "stops before anything of the batch is in that table; `insert` writes null for the unknown values.",
        default="fail",
        choices=("fail", "insert"),
    )
    sequence_by: str = option(
        "The order of changes of one row whose messages come from several partitions or topics, whose offsets "
        "don't give an order: Spark SQL over a change row, `cast(source['lsn'] as bigint)`. Without it such a "
        "batch stops. Captured changes have their own order.",
        default="",
    )
    schema_change_behavior: str = option(
        "How the target follows schema changes of the source. `add` adds columns, widens them, and stops at any "
        "other change; `exception` stops at every change; `evolve` follows every change (drops columns too) or "
        "stops if the target can't; `try_evolve` follows as far as the target can; `lenient` never drops a "
        "column; `ignore` leaves the target as it is. A stop comes before the first row.",
        default="add",
        choices=BEHAVIORS,
        aliases=("schema.change.behavior",),
    )
    renamed_columns: tuple[tuple[str, str], ...] = option(
        "Columns that have a new name in the source, if no DDL statement comes with the changes: a list of "
        "`table.old=new` (`old=new` counts in every table). With `evolve` and `try_evolve` the target's column "
        "gets the new name as soon as the source's schema has it; you can then remove the entry.",
        kind=column_renames,
        default=(),
        names=OTHER_NAMES,
    )
    dropped_columns: tuple[str, ...] = option(
        "Columns that the source has dropped, if no DDL statement comes with the changes: a list of `table.column` "
        "(`column` counts in every table). They say that a new column is not the same under another name, so that "
        "`evolve` and `try_evolve` drop the target's column and add the new one; you can then remove the entry.",
        kind=items,
        default=(),
        names=OTHER_NAMES,
    )
    unrepresentable: str = option(
        "What to do with a value that a column of the target has no place for: infinity and, in MySQL and MariaDB, "
        "days that no calendar has (`0000-00-00`) among dates and timestamps, NaN and infinity among numbers of "
        "PostgreSQL. `fail` stops before anything of the batch is in that table, and names the column, the row and "
        "the value; `null` writes NULL instead, but never in a key; `text` keeps all columns of these types as texts "
        "in new targets, keys as well.",
        default="fail",
        choices=("fail", "null", "text"),
    )
    max_parallel_tables: int = option(
        "How many tables of a batch are written in parallel.",
        default=2,
        minimum=1,
    )


WRONG_VALUE = ("CAST_INVALID_INPUT", "CAST_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE", "CONVERSION_INVALID_INPUT")
"""What stands in Spark's failure where a value does not fit its column."""


def given_steps(settings: TableSettings) -> Callable[[TableId], tuple[Step, ...]]:
    """What the user says of a table's column names (`renamed_columns`, `dropped_columns`)."""

    def of(id: TableId) -> tuple[Step, ...]:
        dropped = (_column_of(id, column) for column in settings.dropped_columns)
        renamed = ((_column_of(id, old), new) for old, new in settings.renamed_columns)
        return (
            *(Step("drop", name) for name in dropped if name is not None),
            *(Step("rename", old, new) for old, new in renamed if old is not None),
        )

    return of


def _column_of(id: TableId, given: str) -> str | None:
    """The column that the user means in a table, with or without the table's name; None where it is another table's."""
    table = next((name for name in (id.path, id.name) if name and given.startswith(f"{name}.")), "")
    return given.removeprefix(f"{table}.") if table or "." not in given else None


def old_value(text: str | None, column: Column, table: TableProfile) -> str:
    """Spark SQL for the value that rows from before have in a column that was added, typed as a change's value is."""
    if text is None:
        return f"cast(null as {column.logical.spark_type})"
    return typed_value(literal(text), column, table.misfit(column))


def rows_left_by(rows: DataFrame, table: TableProfile, *, ignore_nulls: bool = False) -> DataFrame:
    """The rows that changes leave in a table that was empty, in a column `row`. Lazy."""
    if not table.schema.key:
        return fold_keyless(rows, table).where("op = 'insert'")
    if table.initial:
        return upserts(rows, table)
    return fold(rows, table, ignore_nulls=ignore_nulls).where("op = 'upsert'")


def side_by_side(
    spark: SparkSession, items: Sequence[Item], do: Callable[[Item], Result], *, workers: int
) -> list[Result]:
    """Do it for all items, so many at a time. Runs in the driver.

    A failure that is one table's alone (`HeadraceError.table`) keeps no other from being tried; those of all tables are
    raised together at the end. One at a time, any other failure ends it at once.
    """
    if min(workers, len(items)) <= 1:
        return in_turn(items, do)
    from pyspark.util import inheritable_thread_target

    with ThreadPoolExecutor(min(workers, len(items)), thread_name_prefix="headrace-table") as pool:
        # Spark's job group goes along, so that stopping the query stops these jobs too. Each has a copy of its own:
        # Spark writes down there which statement a thread runs.
        running = [pool.submit(inheritable_thread_target(spark)(do), item) for item in items]
    failures = [error for error in (future.exception() for future in running) if error is not None]
    for error in failures:
        if not isinstance(error, Exception):
            raise error
    if failures:
        raise_together([error for error in failures if isinstance(error, Exception)])
    return [future.result() for future in running]
