"""A table as a source reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.sources.offset import all_known
from headrace.sources.tables.masks import Declared

Native = TypeVar("Native", bound=Declared)

_PARTS = frozenset(["schema", "natives", "chunk_key", "protected"])
_SCHEMA_PARTS = TableSchema(TableId("", "", ""), (), primary_key=()).to_json().keys()
_COLUMN_PARTS = Column("", 0, LogicalType("string"), masked=True, truncated_to=0).to_json().keys()


@dataclass(frozen=True)
class SourceTable(Generic[Native]):
    """A captured table.

    Args:
        schema: its columns and key.
        natives: the declared type per column.
        chunk_key: the columns by which a snapshot is cut into key ranges; empty for a table that is read in one piece.
        protected: the columns whose values the options keep back or change.
    """

    schema: TableSchema
    natives: tuple[Native, ...]
    chunk_key: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()

    @property
    def id(self) -> TableId:
        """Where the table lives."""
        return self.schema.id

    @property
    def names(self) -> tuple[str, ...]:
        """Its columns that are captured, those too whose values the options keep back."""
        return tuple(dict.fromkeys([*(column.name for column in self.schema.columns), *self.protected]))

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns by which rows are known again: a key of the table's own, else the one that the user named for it.

        Empty where neither is there.
        """
        named = self.schema.key if self.schema.primary_key is not None else ()
        return self.chunk_key or named

    def cut_by(self, columns: Sequence[str]) -> Self:
        """The same table, cut into ranges of other columns; none means its own."""
        return replace(self, chunk_key=tuple(columns)) if columns else self

    def can_cut(self, column: str) -> bool:
        """Whether the server compares and orders the values of a column as they are kept in a bound."""
        return not self.schema.column(column).large

    def native(self, name: str) -> Native:
        """A column's declared type."""
        return self.natives[[column.name for column in self.schema.columns].index(name)]


def known_table(data: Mapping[str, Any], *fields: str) -> Mapping[str, Any]:
    """A table as an offset keeps it, after a look at whether this release knows all that it says.

    Args:
        data: JSON values of a `SourceTable`.
        fields: the names of what the source adds to its parts.

    Raises:
        NewerRelease: a later release wrote it.
    """
    all_known(data, _PARTS.union(fields))
    all_known(data["schema"], _SCHEMA_PARTS)
    for column in data["schema"]["columns"]:
        all_known(column, _COLUMN_PARTS)
    return data
