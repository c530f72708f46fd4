"""Values that the columns of a target have no place for: what is done with them, and how many there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.apply import TableProfile, as_newest
from headrace.changes.refusal import refused
from headrace.changes.table import Column, TableId, TableSchema
from headrace.changes.typed import is_misfit, literal
from headrace.changes.types import LogicalType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOMENTS = ("date", "timestamp", "instant", "zoned_timestamp")
_GO_ON = "Set the sink's option 'unrepresentable' to null, which writes NULL, or to text, which keeps such columns as "
_GO_ON += "texts in a new target."
_GO_ON_IN_KEY = "NULL can't stand in a key: set the sink's option 'unrepresentable' to text, which keeps such columns "
_GO_ON_IN_KEY += "as texts, with a new target."


@dataclass(frozen=True)
class KeptValues:
    """How a sink's tables keep values.

    Args:
        unrepresentable: the sink's option.
        target: what its tables are in, where that has no place for more values than Spark's types have none for.
        lacks: regular expressions of their texts, by kind of logical type.
    """

    unrepresentable: str
    target: str = ""
    lacks: Mapping[str, str] = field(default_factory=dict)

    def profile(self, table: TableProfile) -> TableProfile:
        """The table as a target keeps it: how values that it has no place for are met."""
        null, remedies = self.unrepresentable == "null", (_GO_ON_IN_KEY, _GO_ON)
        schema = self.schema(table.schema)
        return replace(table, schema=schema, null_misfits=null, remedies=remedies, lacks=self.lacks, target=self.target)

    def schema(self, schema: TableSchema) -> TableSchema:
        """The structure as a target keeps it: with `text`, columns that may have values without a place are strings."""
        if self.unrepresentable != "text" or not any(map(self._may_misfit, schema.columns)):
            return schema
        text = LogicalType("string")
        columns = (replace(c, logical=text) if self._may_misfit(c) else c for c in schema.columns)
        return replace(schema, columns=tuple(columns))

    def nulled(self, rows: DataFrame, tables: Iterable[TableProfile]) -> dict[TableId, dict[str, int]]:
        """How many values of a batch are NULL in the target instead, by table and column; only those with some.

        With `null` it runs a small Spark job for each table that has columns of such types.

        Args:
            rows: change rows with images as maps.
            tables: the profiles of the tables.
        """
        found = {}
        for table in tables if self.unrepresentable == "null" else ():
            columns = [column for column in table.schema.columns if self._may_misfit(column)]
            if not columns or not table.size:
                continue
            misfits = (is_misfit(f"after[{literal(c.name)}]", c, self.lacks.get(c.logical.kind, "")) for c in columns)
            counts = (f"count_if({is_one}) as c{number}" for number, is_one in enumerate(misfits))
            line = as_newest(rows, table).where(table.where).selectExpr(*counts).collect()[0]
            if some := {column.name: n for column, n in zip(columns, line, strict=True) if n}:
                found[table.id] = some
        return found

    def _may_misfit(self, column: Column) -> bool:
        kind = column.logical.kind
        # Only PostgreSQL has numbers that are none, and it calls their type so.
        of_postgresql = kind == "decimal" and column.native_type.startswith("numeric")
        return kind in _MOMENTS or kind in self.lacks or of_postgresql


def refuse_misfit(failure: Exception) -> None:
    """Raise what a query says of a value that it was stopped for.

    Raises:
        HeadraceError: the sentence, if the failure has one.
    """
    found = refused(str(failure))
    if found is not None:
        raise found from failure
