"""Values that the columns of a target have no place for: what is done with them, and how many there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.apply import TableProfile, as_newest
from headrace.changes.refusal import refused
from headrace.changes.table import Column, TableId, TableSchema
from headrace.changes.typed import is_misfit, literal
from headrace.changes.types import LogicalType
from headrace.sinks.table_sink import TableSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOMENTS = ("date", "timestamp", "instant", "zoned_timestamp")
_GO_ON = "Set the sink's option 'unrepresentable' to null, which writes NULL, or to text, which keeps such columns as "
_GO_ON += "texts in a new target."
_GO_ON_IN_KEY = "NULL can't stand in a key: set the sink's option 'unrepresentable' to text, which keeps such columns "
_GO_ON_IN_KEY += "as texts, with a new target."


def kept_profile(settings: TableSettings, table: TableProfile) -> TableProfile:
    """The table as a target keeps it: how values that it has no place for are met."""
    schema = kept_schema(settings, table.schema)
    null = settings.unrepresentable == "null"
    return replace(table, schema=schema, null_misfits=null, remedies=(_GO_ON_IN_KEY, _GO_ON))


def kept_schema(settings: TableSettings, schema: TableSchema) -> TableSchema:
    """The structure as a target keeps it: with `text`, columns that may have values of no Spark type are strings."""
    if settings.unrepresentable != "text" or not any(map(_may_misfit, schema.columns)):
        return schema
    columns = (replace(c, logical=LogicalType("string")) if _may_misfit(c) else c for c in schema.columns)
    return replace(schema, columns=tuple(columns))


def count_misfits(rows: DataFrame, tables: Iterable[TableProfile]) -> dict[TableId, dict[str, int]]:
    """How many values of a batch's rows their columns have no place for, by table and column; only those with some.

    Runs a small Spark job for each table that has columns of such types.

    Args:
        rows: change rows with images as maps.
        tables: the profiles of the tables.
    """
    found = {}
    for table in tables:
        columns = [column for column in table.schema.columns if _may_misfit(column)]
        if not columns or not table.size:
            continue
        after = (f"after[{literal(column.name)}]" for column in columns)
        counts = (f"count_if({is_misfit(t, c)}) as c{n}" for n, (t, c) in enumerate(zip(after, columns, strict=True)))
        line = as_newest(rows, table).where(table.where).selectExpr(*counts).collect()[0]
        if some := {column.name: n for column, n in zip(columns, line, strict=True) if n}:
            found[table.id] = some
    return found


def _may_misfit(column: Column) -> bool:
    kind = column.logical.kind
    # Only PostgreSQL has numbers that are none, and it calls their type so.
    return kind in _MOMENTS or (kind == "decimal" and column.native_type.startswith("numeric"))


def refuse_misfit(failure: Exception) -> None:
    """Raise what a query says of a value that it was stopped for.

    Raises:
        HeadraceError: the sentence, if the failure has one.
    """
    found = refused(str(failure))
    if found is not None:
        raise found from failure
