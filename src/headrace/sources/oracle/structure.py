"""What is known of a captured table, as the offset keeps it and slices carry it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.changes import TableId, TableSchema
from headrace.sources.offset import Recent
from headrace.sources.oracle.types import NativeType


@dataclass(frozen=True)
class OracleTable:
    """A captured table.

    Args:
        schema: the structure.
        natives: the declared type per column.
        chunk_key: the columns by which a snapshot is cut into key ranges; empty for a table that is read in one piece.
    """

    schema: TableSchema
    natives: tuple[NativeType, ...]
    chunk_key: tuple[str, ...] = ()

    @property
    def id(self) -> TableId:
        """Where the table lives."""
        return self.schema.id

    def native(self, name: str) -> NativeType:
        """A column's declared type."""
        return self.natives[[c.name for c in self.schema.columns].index(name)]

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "schema": self.schema.to_json(),
            "natives": [[n.name, n.length, n.precision, n.scale] for n in self.natives],
            "chunk_key": list(self.chunk_key),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OracleTable:
        """Read `to_json`'s form back."""
        return cls(
            TableSchema.from_json(data["schema"]),
            tuple(NativeType(*native) for native in data["natives"]),
            tuple(data["chunk_key"]),
        )


_TABLES: Recent[dict[str, OracleTable]] = Recent()


def tables_of(structures: Mapping[str, Any]) -> dict[str, OracleTable]:
    """The tables of an offset by path; not to be changed, because it is kept for the next who asks."""
    return _TABLES.of(structures, lambda: {path: OracleTable.from_json(data) for path, data in structures.items()})
