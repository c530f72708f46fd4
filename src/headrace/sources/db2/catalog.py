"""What Db2's catalog and SQL Replication's registrations say: captured tables and their schemas.

One query per kind of fact for the whole database, never one per table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from headrace.changes import Column, TableId
from headrace.errors import CaptureError
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.captured_table import CapturedTable, CaptureInstance, CatalogTable, captured_table
from headrace.sources.change_tables.connection import Connection
from headrace.sources.db2.advice import ADVICE
from headrace.sources.db2.statements import ZOS, Statements
from headrace.sources.db2.types import NativeType, constant_default
from headrace.sources.tables.columns import say_left_out
from headrace.sources.tables.keys import UniqueKey
from headrace.sources.tables.selection import FoundTable, TableSelection
from headrace.sources.tables.table_rules import TableRules

Place = tuple[str, str]
Row = TypeVar("Row")
_ACTIVE = "A"
_UNIQUE_WHERE_NOT_NULL = "N"
_OURS = ("IBMSNAP_", "IBMQREP_")
"""SQL Replication's and Q Replication's own tables are never captured."""


class ColumnFacts(NamedTuple):
    """A row of `Statements.COLUMNS` or `CHANGE_COLUMNS`, without the table's name."""

    name: str
    type: str
    length: int
    scale: int
    bits: str
    nullable: str
    identity: str | None
    default: str | None
    comment: str | None


class KeyColumn(NamedTuple):
    """A row of `Statements.KEYS`, without the table's name: a column of an index, in the index's order."""

    index_name: str
    rule: str
    column: str


def captured_tables(
    connection: Connection, statements: Statements, selection: TableSelection, rules: TableRules
) -> list[CatalogTable]:
    """The selected tables, in the include list's order, with their schema and change table.

    A table counts as captured while its registration is active: what happens while it is not is in no change table.

    Args:
        connection: to the database.
        statements: for its platform.
        selection: which tables.
        rules: what the options make of each table.

    Raises:
        CaptureError: a named table does not exist or is not registered, or a pattern matches nothing.
        OptionError: an option can't be applied to a table.
    """
    registered = _registered(connection, statements)
    names = [(str(s).rstrip(), str(t)) for s, t in connection.rows(statements.TABLES)]
    names = sorted(name for name in names if not name[1].startswith(_OURS))
    numbers = {name: number for number, name in enumerate(names)}
    tables = [FoundTable(*name, number, name in registered) for name, number in numbers.items()]
    chosen = selection.among(tables, _not_captured, ADVICE.capture)
    columns = _grouped(connection.rows(statements.COLUMNS), ColumnFacts._make)
    changes = _grouped(connection.rows(statements.CHANGE_COLUMNS), ColumnFacts._make)
    keys = _grouped(connection.rows(statements.KEYS), KeyColumn._make)
    comments = {(str(s).rstrip(), str(t)): comment for s, t, comment in connection.rows(statements.COMMENTS) if comment}
    altered = {(str(s).rstrip(), str(t)): str(at) for s, t, at in connection.rows(statements.ALTERED) if at is not None}
    captured = []
    for schema, name, _, _ in chosen:
        change_table, instance, prefix = registered[schema, name]
        id = TableId(selection.database, schema, name)
        table_columns, changed = columns.get((schema, name), []), changes.get(change_table, [])
        instance = _with_columns(instance, table_columns, changed, prefix)
        key, comment = keys.get((schema, name), []), comments.get((schema, name))
        table = _captured(id, table_columns, changed, key, instance, comment, rules, statements.platform)
        table = replace(table, altered=max(altered.get((schema, name), ""), altered.get(change_table, "")))
        captured.append(CatalogTable(id, (table,), tuple(str(column.name) for column in table_columns)))
    return captured


def _registered(connection: Connection, statements: Statements) -> dict[Place, tuple[Place, CaptureInstance, str]]:
    """Change table and prefix of the columns that hold images before, of each table that is captured."""
    registered = {}
    for owner, table, cd_owner, cd_table, state, oldest, number, prefix in connection.rows(statements.REGISTRATIONS):
        if str(state).strip() != _ACTIVE:
            continue
        change_table = (str(cd_owner).rstrip(), str(cd_table))
        name = '"."'.join(change_table)
        instance = CaptureInstance(name, None if oldest is None else lsn.read(oldest), (), False, int(number))
        registered[str(owner).rstrip(), str(table)] = (change_table, instance, str(prefix or "").strip())
    return registered


def _with_columns(
    instance: CaptureInstance, columns: list[ColumnFacts], changes: list[ColumnFacts], prefix: str
) -> CaptureInstance:
    names = [str(column.name) for column in columns]
    there = {str(column.name) for column in changes}
    # A column of the table that is called so itself holds what it is called.
    holders = [(name, prefix + name) for name in names if prefix and prefix + name not in names]
    return replace(
        instance,
        columns=tuple((str(column.name), number) for number, column in enumerate(changes, 1)),
        before_images=tuple(pair for pair in holders if {*pair} <= there),
    )


def _captured(
    id: TableId,
    columns: list[ColumnFacts],
    changes: list[ColumnFacts],
    keys: list[KeyColumn],
    instance: CaptureInstance,
    comment: str | None,
    rules: TableRules,
    platform: str,
) -> CapturedTable:
    types = {str(facts.name): _native(facts, platform) for facts in changes}
    described: list[tuple[Column, NativeType]] = []
    foreign: list[tuple[str, str]] = []
    for facts in columns:
        name, native = str(facts.name), _native(facts, platform)
        # Values are read from the change table, whose column may lag behind the table's.
        native = types.get(name, native)
        if name not in types:
            continue
        if not native.supported:
            foreign.append((name, native.name))
            continue
        described.append((_column(facts, len(described) + 1, native), native))
    if foreign:
        say_left_out(id.full_path, tuple(foreign), "values of such types are not captured")
    return captured_table(
        rules,
        id,
        described,
        unique_keys(keys, {column.name for column, _ in described if column.nullable}),
        instance,
        comment,
    )


def _native(facts: ColumnFacts, platform: str) -> NativeType:
    name, is_bits = str(facts.type).strip().upper(), str(facts.bits).strip() == "Y"
    length, scale = int(facts.length), int(facts.scale)
    if platform == ZOS:
        return NativeType.of_zos(name, length, scale, is_bits)
    return NativeType(name, length, scale, is_bits and name in ("CHARACTER", "VARCHAR", "LONG VARCHAR"))


def _column(facts: ColumnFacts, position: int, native: NativeType) -> Column:
    return Column(
        name=str(facts.name),
        position=position,
        logical=native.logical,
        native_type=native.shown_name,
        length=native.length,
        scale=native.shown_scale,
        nullable=str(facts.nullable).strip() == "Y",
        default=constant_default(facts.default, native),
        default_expression=facts.default,
        identity=str(facts.identity or "").strip() == "Y",
        jdbc_type=native.jdbc_type,
        large=native.large,
        comment=facts.comment,
    )


def unique_keys(rows: Iterable[KeyColumn], nullable: Collection[str]) -> list[UniqueKey]:
    """Primary key and unique indexes, the primary key first; none in which rows may share NULL."""
    indexes: dict[str, tuple[str, list[str]]] = {}
    for index, rule, column in rows:
        indexes.setdefault(str(index), (str(rule).strip(), []))[1].append(str(column))
    keys = [
        UniqueKey(tuple(columns), rule == "P")
        for rule, columns in indexes.values()
        if rule != _UNIQUE_WHERE_NOT_NULL or not any(column in nullable for column in columns)
    ]
    return sorted(keys, key=lambda key: not key.primary)


def _grouped(rows: Iterable[tuple[Any, ...]], row_of: Callable[[Iterable[Any]], Row]) -> dict[Place, list[Row]]:
    groups: dict[Place, list[Row]] = defaultdict(list)
    for schema, table, *rest in rows:
        groups[str(schema).rstrip(), str(table)].append(row_of(rest))
    return groups


def _not_captured(table: FoundTable, database: str) -> CaptureError:
    owner, name = table.schema.replace("'", "''"), table.name.replace("'", "''")
    return CaptureError(
        f"Table '{table.path}' of database '{database}' is not registered for capture, or its registration is not "
        "active.",
        remedy=f"Call ASNCDC.ADDTABLE('{owner}', '{name}'), set STATE to 'A' in its row of IBMSNAP_REGISTER, and let "
        "the Capture program read it (ASNCDCSERVICES, reinit).",
    )
