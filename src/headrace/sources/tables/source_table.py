"""A table as a source reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.changes import TableId, TableSchema
from headrace.sources.tables.masks import Declared

Native = TypeVar("Native", bound=Declared)


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

    def native(self, name: str) -> Native:
        """A column's declared type."""
        return self.natives[[column.name for column in self.schema.columns].index(name)]
