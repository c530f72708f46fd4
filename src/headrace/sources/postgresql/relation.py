"""What the log says of a table before its rows: a RELATION message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.changes import TableId
from headrace.errors import OptionError
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.table_rules import INDEX, FoundColumn, ReplicaIdentity, Storage, postgres_table
from headrace.sources.postgresql.types import TypeCatalog
from headrace.sources.tables.keys import UniqueKey
from headrace.sources.tables.table_rules import TableRules


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


def table_of(
    relation: Relation, known: PostgresTable | None, types: TypeCatalog, settings: PostgresSettings, database: str
) -> PostgresTable:
    """The table whose rows follow a RELATION message.

    Names, order and types of the columns are those of the message. The catalog, which may be newer, adds the key and
    whether a column may be NULL, its default and its comment, where it has a column of that name and type.

    Args:
        relation: the message.
        known: the table as the catalog showed it; null where it did not.
        types: what is known of types.
        settings: the source's options.
        database: its name.

    Raises:
        CaptureError: the key can't be as the options say.
        OptionError: no column is left, a mask can't be applied, or a column may be one that options keep back or
            change, under another name.
    """
    stated = frozenset(column.name for column in relation.columns if column.key)
    same = _same(relation, known, types)
    identity = ReplicaIdentity(relation.identity, stated if relation.identity in ("d", "i") else frozenset())
    if known is not None and known.leaves not in ((), (known.oid,)):
        # The message has the identity of the partitioned table, and changes have that of their partition.
        identity = replace(identity, kind=known.identity)
    columns = [
        same.get(column.name)
        or FoundColumn(column.name, types.resolve(column.oid, column.typmod), column.name not in identity.columns)
        for column in relation.columns
    ]
    order = [column.name for column in relation.columns]
    keys = []
    if identity.columns:
        own = _own_key(known)
        key = own if set(own) == identity.columns else tuple(name for name in order if name in identity.columns)
        keys.append(UniqueKey(key, primary=identity.kind != INDEX))
    elif known is not None and set(_own_key(known)) <= set(order):
        keys.append(UniqueKey(_own_key(known), primary=True))
    keys = [key for key in keys if key.columns]
    chunk_key = () if known is None or not set(known.chunk_key) <= same.keys() else known.chunk_key
    table = postgres_table(
        TableRules.of(settings),
        TableId(database, relation.schema, relation.name),
        columns,
        keys,
        Storage(relation.oid, (relation.oid,) if known is None else known.leaves, identity),
        comment=None if known is None else known.schema.comment,
        last=0 if known is None else known.last,
    )
    if known is not None:
        _require_protected(table, known, order)
    return replace(table, chunk_key=chunk_key)


def _require_protected(table: PostgresTable, known: PostgresTable, names: Sequence[str]) -> None:
    """See that no protected column comes in clear because it had or has another name.

    The catalog was read at some moments only, and a column may have been renamed in between.

    Args:
        table: as the log has it.
        known: as the catalog showed it.
        names: all columns that the log has.
    """
    gone = next((name for name in known.protected if name not in names), None)
    bare = [column.name for column in table.schema.columns if column.name not in table.protected]
    fresh = next((name for name in bare if name not in known.names), None)
    if gone is not None and fresh is not None:
        raise OptionError(
            f"Changes of table '{table.id.path}' have a column '{fresh}', which may be column '{gone}' under another "
            "name, and no option keeps its values back.",
            remedy=f"Name it in the option that names '{gone}' too, with 'optional:' before it, until those changes "
            "are read.",
        )


def _same(relation: Relation, known: PostgresTable | None, types: TypeCatalog) -> dict[str, FoundColumn]:
    """The columns that the catalog has as well, by name and with their types."""
    if known is None:
        return {}
    found = {}
    stated = {column.name: types.resolve(column.oid, column.typmod) for column in relation.columns}
    for column, native, number in known.numbered:
        now = stated.get(column.name)
        if now is None or (now.oid, now.typmod) != (native.oid, native.typmod):
            continue
        found[column.name] = FoundColumn(
            column.name,
            now,
            column.nullable,
            column.default,
            column.default_expression,
            column.identity,
            column.generated,
            column.comment,
            number,
        )
    return found


def _own_key(known: PostgresTable | None) -> tuple[str, ...]:
    """The table's own key, whatever the key of its change rows is."""
    if known is None:
        return ()
    return known.schema.key if known.schema.primary_key is None else known.schema.primary_key
