"""What the log says of a table before its rows: a RELATION message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from headrace.changes import TableId
from headrace.errors import OptionError
from headrace.sources.postgresql.captured_table import (
    INDEX,
    FoundColumn,
    PostgresTable,
    ReplicaIdentity,
    Storage,
    postgres_table,
)
from headrace.sources.postgresql.options import PostgresSettings
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


def under_known_names(
    relation: Relation, states: Sequence[PostgresTable], newest: PostgresTable, types: TypeCatalog
) -> Relation:
    """A message with the newest names of the columns whose names the catalog never showed.

    A batch knows only what the offset says, and the next one would not know such a name.

    Args:
        relation: the message.
        states: the table as the catalog showed it.
        newest: the last of them.
        types: what is known of types.
    """
    shown = {name for state in states for name in state.columns or state.names}
    now = {number: column.name for column, _, number in newest.numbered if number}
    there = {stated.name for stated in relation.columns}
    columns = []
    for stated, matched in zip(relation.columns, _columns(relation, states, types), strict=True):
        name = stated.name if stated.name in shown else now.get(matched.number, stated.name)
        columns.append(stated if name in there else replace(stated, name=name))
    return replace(relation, columns=tuple(columns))


def table_of(
    relation: Relation,
    states: Sequence[PostgresTable],
    types: TypeCatalog,
    settings: PostgresSettings,
    database: str,
) -> PostgresTable:
    """The table whose rows follow a RELATION message.

    Names, order and types of the columns are those of the message. The catalog adds the key and whether a column may be
    NULL, its default and its comment, where it had a column of that name and type at one of the times at which it was
    read.

    Args:
        relation: the message.
        states: the table as the catalog showed it, at the time that is nearest to the message first.
        types: what is known of types.
        settings: the source's options.
        database: its name.

    Raises:
        CaptureError: the key can't be as the options say.
        OptionError: no column is left, a mask can't be applied, or a column may be one that options keep back or
            change, under another name.
    """
    stated = frozenset(column.name for column in relation.columns if column.key)
    columns = _columns(relation, states, types)
    known = next(iter(states), None)
    identity = ReplicaIdentity(relation.identity, stated if relation.identity in ("d", "i") else frozenset())
    if known is not None and known.leaves not in ((), (known.oid,)):
        # The message has the identity of the partitioned table, and changes have that of their partition.
        identity = replace(identity, kind=known.identity)
    columns = [replace(c, nullable=c.nullable and c.name not in identity.columns) for c in columns]
    order = [column.name for column in columns]
    chosen_key = next((key for key in (_own_key(state, columns) for state in states) if key), ())
    keys = []
    if identity.columns:
        key = (
            chosen_key
            if set(chosen_key) == identity.columns
            else tuple(name for name in order if name in identity.columns)
        )
        keys.append(UniqueKey(key, primary=identity.kind != INDEX))
    elif chosen_key:
        keys.append(UniqueKey(chosen_key, primary=True))
    chunk_key = () if known is None else _under_names(known, known.chunk_key, columns)
    table = postgres_table(
        TableRules.of(settings),
        TableId(database, relation.schema, relation.name),
        columns,
        keys,
        Storage(relation.oid, (relation.oid,) if known is None else known.leaves, identity),
        comment=None if known is None else known.schema.comment,
        last=max([min((state.last for state in states), default=0), *(column.number for column in columns)]),
    )
    for state in states:
        _require_protected(table, state, columns)
    return replace(table, chunk_key=chunk_key)


def _require_protected(table: PostgresTable, known: PostgresTable, columns: Sequence[FoundColumn]) -> None:
    """See that no protected column comes in clear because it had or has another name.

    The catalog was read at some moments only, and a column may have been renamed in between.

    Args:
        table: as the log has it.
        known: as the catalog showed it.
        columns: all columns that the log has.
    """
    names = {column.name for column in columns}
    # What has a greater number than all columns of a table was added to it later.
    added = {column.name for column in columns if 0 < known.last < column.number}
    gone = next((name for name in known.protected if name not in names), None)
    bare = [column.name for column in table.schema.columns if column.name not in table.protected]
    fresh = next((name for name in bare if name not in known.names and name not in added), None)
    if gone is not None and fresh is not None:
        raise OptionError(
            f"Changes of table '{table.id.path}' have a column '{fresh}', which may be column '{gone}' under another "
            "name, and no option keeps its values back.",
            remedy=f"Name it in the option that names '{gone}' too, with 'optional:' before it, until those changes "
            "are read.",
        )


def _columns(relation: Relation, states: Sequence[PostgresTable], types: TypeCatalog) -> list[FoundColumn]:
    by_name = [{column.name: (column, native, number) for column, native, number in s.numbered} for s in states]
    columns = []
    for stated in relation.columns:
        native = types.resolve(stated.oid, stated.typmod)
        shown = (state[stated.name] for state in by_name if stated.name in state)
        same = (one for one in shown if (one[1].oid, one[1].typmod) == (native.oid, native.typmod))
        column, _, number = next(same, (None, None, 0))
        if column is None:
            numbers = {state[stated.name][2] for state in by_name if stated.name in state}
            # A name that belonged to one column only at all times that are known.
            number = numbers.pop() if len(numbers) == 1 else 0
            columns.append(FoundColumn(stated.name, native, number=number))
        else:
            columns.append(
                FoundColumn(
                    column.name,
                    native,
                    column.nullable,
                    column.default,
                    column.default_expression,
                    column.identity,
                    column.generated,
                    column.comment,
                    number,
                )
            )
    return _numbered(columns, states)


def _numbered(columns: Sequence[FoundColumn], states: Sequence[PostgresTable]) -> list[FoundColumn]:
    """The columns with the numbers of those whose names no state has, as far as only one number is possible.

    Columns stand in the order of their numbers, and one that was there before and is there after was there in between.
    """
    numbers = [{number for *_, number in state.numbered if number} for state in states]
    always = sorted(set.intersection(*numbers)) if len(numbers) > 1 else []
    numbered = list(columns)
    first = 0
    for is_numbered, run in groupby(columns, key=lambda column: column.number > 0):
        upto = first + len(list(run))
        if not is_numbered:
            low = numbered[first - 1].number if first else 0
            high = numbered[upto].number if upto < len(numbered) else 0
            between = [number for number in always if low < number and (number < high or not high)]
            possible = range(low + 1, high)
            for sure in (between, possible):
                if len(sure) == upto - first:
                    numbered[first:upto] = (
                        replace(c, number=n) for c, n in zip(numbered[first:upto], sure, strict=True)
                    )
                    break
        first = upto
    return numbered


def _own_key(known: PostgresTable, columns: Sequence[FoundColumn]) -> tuple[str, ...]:
    """The table's own key, whatever the key of its change rows is, under the names of the log."""
    return _under_names(
        known, known.schema.key if known.schema.primary_key is None else known.schema.primary_key, columns
    )


def _under_names(known: PostgresTable, names: Sequence[str], columns: Sequence[FoundColumn]) -> tuple[str, ...]:
    """What columns of a table as the catalog showed it are called in the log; empty where one is not there."""
    numbers = {column.name: number for column, _, number in known.numbered if number}
    called = {column.number: column.name for column in columns if column.number}
    there = {column.name for column in columns if not (column.number and column.name in numbers)}
    known_names = [called.get(numbers[name]) if name in numbers else name if name in there else None for name in names]
    return tuple(name for name in known_names if name is not None) if None not in known_names else ()
