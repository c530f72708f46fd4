"""What the log says of a table before its rows: a RELATION message."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RelationColumn:
    """A column as the log has it.

    Args:
        name: its name when the change was made.
        oid: its type's number, or a domain's.
        typmod: its modifier.
        key: whether it is part of the replica identity.
    """

    name: str
    oid: int
    typmod: int = -1
    key: bool = False


@dataclass(frozen=True)
class Relation:
    """A table as the log has it: as it was when the changes that follow were made.

    Args:
        oid: the table's number.
        schema: where it lived.
        name: what it was called.
        identity: what updates and deletes say of the old row: d (key), i (index), f (all) or n (nothing).
        columns: in the order of a row's values.
    """

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]
