"""What is known of a captured table, as the offset keeps it and slices carry it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace.changes import Column, TableSchema
from headrace.sources.offset import Recent
from headrace.sources.postgresql.types import NativeType
from headrace.sources.tables.source_table import SourceTable, known_table
from headrace.sources.tables.unmatched import TableColumns


class Computed(NamedTuple):
    """How the server computes a column.

    Args:
        kind: `s` where it stores the values, `v` where it does not.
        expression: SQL over the row's other columns, as the server prints it.
        type: what the server casts the result to.
    """

    kind: str
    expression: str
    type: NativeType


@dataclass(frozen=True)
class PostgresTable(SourceTable[NativeType]):
    """A captured table, as the catalog shows it.

    Args:
        oid: the table's oid; a partitioned table's is that of its root where changes are published by that.
        identity: what updates and deletes say of the old row: d (key), i (index), f (all) or n (nothing).
        leaves: the oids of the tables that hold its rows; itself where it is not partitioned.
        numbers: the catalog's number of each column, which no other column of the table ever has; empty where an
            earlier release wrote the table, or the log describes it.
        last: the greatest number of a column, captured or not; columns that are added later have greater ones.
        columns: all columns of the table, where it comes from the catalog.
        lacking: the columns that the server computes and does not send, where the table comes from the catalog.
    """

    oid: int = 0
    identity: str = "d"
    leaves: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    last: int = 0
    columns: tuple[str, ...] = field(default=(), compare=False)
    lacking: Mapping[str, Computed] = field(default_factory=dict, compare=False)

    @property
    def numbered(self) -> Iterator[tuple[Column, NativeType, int]]:
        columns = self.schema.columns
        return zip(columns, self.natives, self.numbers or (0,) * len(columns), strict=True)

    def can_cut(self, column: str) -> bool:
        """Yes: what changes may leave out is whole in the table, and the server refuses types without an order."""
        return True

    def to_json(self) -> dict[str, Any]:
        """JSON values, as an offset keeps them."""
        return {
            "schema": self.schema.to_json(),
            "natives": [native.to_json() for native in self.natives],
            "chunk_key": list(self.chunk_key),
            "oid": self.oid,
            "identity": self.identity,
            "leaves": list(self.leaves),
            **({"numbers": _runs(self.numbers), "last": self.last} if self.numbers else {}),
            **({"protected": list(self.protected)} if self.protected else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PostgresTable:
        """Read `to_json`'s form back."""
        return cls(
            TableSchema.from_json(data["schema"]),
            tuple(map(NativeType.from_json, data["natives"])),
            tuple(data["chunk_key"]),
            tuple(data.get("protected", ())),
            data["oid"],
            data["identity"],
            tuple(data["leaves"]),
            tuple(number for first, count in data.get("numbers", ()) for number in range(first, first + count)),
            data.get("last", 0),
        )


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    """Numbers as first ones and how many follow each, because most tables have all from 1 on."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == sum(runs[-1]):
            runs[-1][1] += 1
        else:
            runs.append([number, 1])
    return runs


_TABLES: Recent[dict[str, PostgresTable]] = Recent()


def tables_of(schemas: Mapping[str, Any]) -> dict[str, PostgresTable]:
    """The tables of an offset by path; not to be changed, because it is cached.

    Raises:
        NewerRelease: a later release wrote one of them.
    """
    return _TABLES.of(
        schemas,
        lambda: {
            path: PostgresTable.from_json(known_table(data, "oid", "identity", "leaves", "numbers", "last"))
            for path, data in schemas.items()
        },
    )


def columns_of(table: PostgresTable) -> TableColumns:
    """A table as names and patterns of the options are held against it."""
    return TableColumns(table.id, table.columns or table.names, table.names)
