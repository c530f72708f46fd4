"""Values that the columns of a target have no place for: what is done with them, and how many there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.apply import TableProfile, as_newest
from headrace.changes.refusal import refusal, refused
from headrace.changes.table import Column, TableId, TableSchema
from headrace.changes.typed import is_misfit, literal, typed_value
from headrace.changes.types import LogicalType
from headrace.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOMENTS = ("date", "timestamp", "instant", "zoned_timestamp")
_GO_ON = "Set the sink's option 'unrepresentable' to null, which writes NULL, or to text, which keeps such columns as "
_GO_ON += "texts in a new target."
_GO_ON_IN_KEY = "NULL can't stand in a key: set the sink's option 'unrepresentable' to text, which keeps such columns "
_GO_ON_IN_KEY += "as texts, with a new target."


_BY_HAND = "Set the sink's option 'unrepresentable' to null, which writes NULL, or change the target's column yourself."
_MOST_SHOWN = 100


@dataclass(frozen=True)
class KeptType:
    """A column whose type the target keeps although the source has another one (`try_evolve`, `ignore`).

    Args:
        table: the source's table, as messages name it.
        column: the column's name.
        kind: the Spark type of the source's values.
        kept: that of the target's column.
        nulls: whether null stands for a value that the target's column can't hold.
    """

    table: str
    column: str
    kind: str
    kept: str
    nulls: bool

    def fitting(self, value: str) -> str:
        """Spark SQL for a value, which is SQL, as the target's type; null where that is not the same value."""
        cast = f"try_cast({value} as {self.kept})"
        # A text has many text forms of a value, and of a double a float is the nearest.
        if self.kind == "string" or self.kept == "string" or (self.kind, self.kept) == ("double", "float"):
            return cast
        return f"if(try_cast({cast} as {self.kind}) = {value}, {cast}, null)"

    def is_misfit(self, value: str) -> str:
        """Spark SQL: is a value one that the target's type does not have? Never null."""
        return f"({value} is not null and {self.fitting(value)} is null)"

    def written(self, value: str, row: str = "") -> str:
        """Spark SQL for what is written for a value.

        Args:
            value: SQL for it.
            row: SQL for a text that names the row; empty where nothing does.
        """
        if self.nulls:
            return self.fitting(value)
        begin = literal(f"Column '{self.column}' of table {self.table} has the value ")
        where = f", ' in the row ', {row}" if row else ""
        end = literal(f", which the target's type {self.kept} can't hold. {_BY_HAND}")
        stop = refusal(f"concat({begin}, left(cast({value} as string), {_MOST_SHOWN}){where}, {end})", SchemaError)
        return f"coalesce({self.fitting(value)}, if({value} is null, null, {stop}))"


def kept_types(
    casts: Mapping[str, str] | None, kinds: Mapping[str, str], table: str, *, nulls: bool
) -> dict[str, KeptType]:
    """The columns whose types a target keeps, by name.

    Args:
        casts: the target's types of them.
        kinds: the Spark types of the source's values.
        table: the source's table, as messages name it.
        nulls: whether null stands for values that they can't hold.
    """
    return {name: KeptType(table, name, kinds[name], kept, nulls) for name, kept in (casts or {}).items()}


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
        remedies = (_GO_ON_IN_KEY, _GO_ON)
        schema = self.schema(table.schema)
        lacks = {c.name: self.lacks[c.logical.kind] for c in schema.columns if c.logical.kind in self.lacks}
        return replace(
            table, schema=schema, null_misfits=self.nulls, remedies=remedies, lacks=lacks, target=self.target
        )

    def schema(self, schema: TableSchema) -> TableSchema:
        """The structure as a target keeps it: with `text`, columns that may have values without a place are strings."""
        if self.unrepresentable != "text" or not any(map(self._may_misfit, schema.columns)):
            return schema
        text = LogicalType("string")
        columns = (replace(c, logical=text) if self._may_misfit(c) else c for c in schema.columns)
        return replace(schema, columns=tuple(columns))

    @property
    def nulls(self) -> bool:
        """Whether null stands for values without a place."""
        return self.unrepresentable == "null"

    def nulled(
        self,
        rows: DataFrame,
        tables: Iterable[TableProfile],
        kept: Mapping[TableId, Mapping[str, KeptType]] | None = None,
    ) -> dict[TableId, dict[str, int]]:
        """How many values of a batch are NULL in the target instead, by table and column; only those with some.

        With `null` it runs a small Spark job for each table that has columns of such types.

        Args:
            rows: change rows with images as maps.
            tables: the profiles of the tables.
            kept: the columns whose types targets keep, by table and name.
        """
        by_table = {}
        for table in tables if self.nulls else ():
            types = (kept or {}).get(table.id, {})
            columns = [c for c in table.schema.columns if self._may_misfit(c) or c.name in {*types, *table.lacks}]
            if not columns or not table.size:
                continue
            misfits = []
            for column in columns:
                text = f"after[{literal(column.name)}]"
                ways = [is_misfit(text, column, table.lacks.get(column.name, ""))]
                if column.name in types:
                    ways.append(types[column.name].is_misfit(typed_value(text, column, table.misfit(column))))
                misfits.append(f"({' or '.join(ways)})")
            counts = (f"count_if({is_one}) as c{number}" for number, is_one in enumerate(misfits))
            line = as_newest(rows, table).where(table.where).selectExpr(*counts).collect()[0]
            if some := {column.name: n for column, n in zip(columns, line, strict=True) if n}:
                by_table[table.id] = some
        return by_table

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
    misfit = refused(str(failure))
    if misfit is not None:
        raise misfit from failure
