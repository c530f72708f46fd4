"""A captured table: what the options make of it, and what the offset and slices have of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from headrace.changes import Column, TableId
from headrace.sources.postgresql.types import NativeType
from headrace.sources.tables.keys import UniqueKey
from headrace.sources.tables.table_rules import KeptTables, SourceTable, TableRules

FULL, INDEX = "f", "i"


@dataclass(frozen=True)
class ReplicaIdentity:
    """What updates and deletes say of the old row.

    Args:
        kind: d (key), i (index), f (all) or n (nothing).
        columns: those of the key or the index.
    """

    kind: str = "d"
    columns: frozenset[str] = frozenset()

    def may_lack(self, column: str) -> bool:
        """Whether a change that leaves a large value of a column as it is does not have it."""
        return self.kind != FULL and column not in self.columns

    def preferred(self, keys: Sequence[UniqueKey]) -> list[UniqueKey]:
        """A table's keys in the order in which they may be the key of its change rows.

        An index that is the replica identity goes before the primary key, which deletes then don't say.
        """
        if self.kind != INDEX or any(key.primary and self.columns == set(key.columns) for key in keys):
            return sorted(keys, key=lambda key: not key.primary)
        ordered = sorted(keys, key=lambda key: (self.columns != set(key.columns), not key.primary))
        return [UniqueKey(key.columns) for key in ordered]


@dataclass(frozen=True)
class FoundColumn:
    """A column as the catalog or the log shows it.

    Args:
        name: its name.
        native: its type.
        nullable: whether it may be NULL.
        default: its default as canonical text, where it is a constant.
        default_expression: its default as the server writes it.
        identity: whether the server numbers it.
        generated: whether the server computes it.
        comment: its comment.
        number: by what the catalog identifies it, whatever it is called; 0 where that is not known.
    """

    name: str
    native: NativeType
    nullable: bool = True
    default: str | None = None
    default_expression: str | None = None
    identity: bool = False
    generated: bool = False
    comment: str | None = None
    number: int = 0

    def column(self, position: int, *, large: bool) -> Column:
        return Column(
            name=self.name,
            position=position,
            logical=self.native.logical,
            native_type=self.native.name,
            length=self.native.length,
            scale=self.native.scale,
            nullable=self.nullable,
            default=self.default,
            default_expression=self.default_expression,
            identity=self.identity,
            generated=self.generated,
            large=large,
            comment=self.comment,
            enum_values=self.native.enum_values,
        )


@dataclass(frozen=True)
class Storage:
    """Where a table's rows are, and what the log says of them.

    Args:
        oid: as `PostgresTable.oid`.
        leaves: as `PostgresTable.leaves`.
        identity: the replica identity.
    """

    oid: int
    leaves: tuple[int, ...]
    identity: ReplicaIdentity


def postgres_table(
    rules: TableRules,
    id: TableId,
    columns: Sequence[FoundColumn],
    keys: Sequence[UniqueKey],
    storage: Storage,
    *,
    comment: str | None = None,
    names: Collection[str] = (),
    last: int = 0,
) -> PostgresTable:
    """A captured table.

    Args:
        rules: what the options say.
        id: where it lives.
        columns: its columns that are published, in its order.
        keys: primary key and unique indexes of columns that are never NULL.
        storage: where its rows are.
        comment: what the catalog says of the table.
        names: all its columns, published or not; those of `columns` without it.
        last: as `PostgresTable.last`.

    Raises:
        CaptureError: the key can't be as the options say.
        OptionError: no column is left, or a mask can't be applied.
    """
    captured = [
        (column.column(position, large=column.native.large and storage.identity.may_lack(column.name)), column.native)
        for position, column in enumerate(columns, 1)
    ]
    table = rules.chosen(id, captured, storage.identity.preferred(keys), comment)
    numbers = {column.name: column.number for column in columns if column.number}
    return PostgresTable(
        table.schema,
        table.natives,
        table.chunk_key,
        table.protected,
        storage.oid,
        storage.identity.kind,
        storage.leaves,
        tuple(numbers.get(column.name, 0) for column in table.schema.columns) if numbers else (),
        last,
        columns=tuple(names) or tuple(column.name for column in columns),
    )


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
        lacking: the columns that the server computes and does not send, where the table comes from the catalog.
    """

    own_parts: ClassVar = ("oid", "identity", "leaves", "numbers", "last")
    oid: int = 0
    identity: str = "d"
    leaves: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    last: int = 0
    lacking: Mapping[str, Computed] = field(default_factory=dict, compare=False)

    @property
    def numbered(self) -> Iterator[tuple[Column, NativeType, int]]:
        columns = self.schema.columns
        return zip(columns, self.natives, self.numbers or (0,) * len(columns), strict=True)

    def can_cut(self, column: str) -> bool:
        """Yes: what changes may leave out is whole in the table, and the server refuses types without an order."""
        return True

    def _own_json(self) -> Mapping[str, Any]:
        numbers = {"numbers": _runs(self.numbers), "last": self.last} if self.numbers else {}
        return {"oid": self.oid, "identity": self.identity, "leaves": list(self.leaves), **numbers}

    @classmethod
    def _own_fields(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        runs = data.get("numbers", ())
        return {
            "oid": data["oid"],
            "identity": data["identity"],
            "leaves": tuple(data["leaves"]),
            "numbers": tuple(number for first, count in runs for number in range(first, first + count)),
            "last": data.get("last", 0),
        }


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    """Numbers as first ones and how many follow each, because most tables have all from 1 on."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == sum(runs[-1]):
            runs[-1][1] += 1
        else:
            runs.append([number, 1])
    return runs


tables_of = KeptTables(PostgresTable, NativeType.from_json)
