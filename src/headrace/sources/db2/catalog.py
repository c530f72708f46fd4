"""What Db2's catalog and SQL Replication's registrations say: captured tables and their schemas.

One query per kind of fact for the whole database, never one per table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from headrace.changes import Column, TableId
from headrace.errors import CaptureError
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.captured_table import CapturedTable, CaptureInstance
from headrace.sources.change_tables.catalog import CatalogTable, choose
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.table_rules import TableRules
from headrace.sources.db2.advice import ADVICE
from headrace.sources.db2.statements import ZOS, Statements
from headrace.sources.db2.types import NativeType, constant_default
from headrace.sources.tables.columns import say_left_out
from headrace.sources.tables.keys import UniqueKey

Place = tuple[str, str]
Facts = tuple[Any, ...]
_ACTIVE = "A"
_UNIQUE_WHERE_NOT_NULL = "N"
_OURS = ("IBMSNAP_", "IBMQREP_")
"""SQL Replication's and Q Replication's own tables are never captured."""


def captured_tables(
    connection: Connection,
    statements: Statements,
    database: str,
    include: Sequence[str],
    rules: TableRules,
    *,
    exclude: Sequence[str] = (),
    databases: Sequence[str] = (),
    strict: bool = True,
    known: Collection[str] = (),
) -> list[CatalogTable]:
    """The tables that the include list names, in its order, with their schema and change table.

    A table counts as captured while its registration is active: what happens while it is not is in no change table.

    Args:
        connection: to the database.
        statements: for its platform.
        database: its name.
        include: `schema.table` patterns; empty means every captured table.
        rules: what the options make of each table.
        exclude: patterns of tables that are left out.
        databases: all databases of the same run.
        strict: whether it is an error that a named table is missing or not captured.
        known: tables that may be so all the same, because they were captured once.

    Raises:
        CaptureError: a named table does not exist or is not registered, or a pattern matches nothing.
        OptionError: an option can't be applied to a table.
    """
    registered = _registered(connection, statements)
    places = [(str(s).rstrip(), str(t)) for s, t in connection.rows(statements.TABLES)]
    places = sorted(place for place in places if not place[1].startswith(_OURS))
    numbers = {place: number for number, place in enumerate(places)}
    tables = [(*place, number, place in registered) for place, number in numbers.items()]
    refused = partial(_not_captured, database=database)
    chosen = choose(tables, include, exclude, database, databases, refused, ADVICE, strict=strict, known=known)
    columns = _grouped(connection.rows(statements.COLUMNS))
    changes = _grouped(connection.rows(statements.CHANGE_COLUMNS))
    keys = _grouped(connection.rows(statements.KEYS))
    comments = {(str(s).rstrip(), str(t)): comment for s, t, comment in connection.rows(statements.COMMENTS) if comment}
    captured = []
    for schema, name, _ in chosen:
        change_table, instance, prefix = registered[schema, name]
        id = TableId(database, schema, name)
        facts = (columns.get((schema, name), []), changes.get(change_table, []), keys.get((schema, name), []))
        instance = _with_columns(instance, facts[0], facts[1], prefix)
        table = _captured(id, *facts, instance, comments.get((schema, name)), rules, statements.platform)
        captured.append(CatalogTable(id, (table,), tuple(str(row[0]) for row in facts[0])))
    return captured


def _registered(connection: Connection, statements: Statements) -> dict[Place, tuple[Place, CaptureInstance, str]]:
    """Change table and prefix of the columns that hold images before, of each table that is captured."""
    found = {}
    for owner, table, cd_owner, cd_table, state, oldest, number, prefix in connection.rows(statements.REGISTRATIONS):
        if str(state).strip() != _ACTIVE:
            continue
        change_table = (str(cd_owner).rstrip(), str(cd_table))
        name = '"."'.join(change_table)
        instance = CaptureInstance(name, None if oldest is None else lsn.read(oldest), (), False, int(number))
        found[str(owner).rstrip(), str(table)] = (change_table, instance, str(prefix or "").strip())
    return found


def _with_columns(
    instance: CaptureInstance, columns: list[Facts], changes: list[Facts], prefix: str
) -> CaptureInstance:
    names = [str(row[0]) for row in columns]
    there = {str(row[0]) for row in changes}
    # A column of the table that is called so itself holds what it is called.
    holders = [(name, prefix + name) for name in names if prefix and prefix + name not in names]
    return replace(
        instance,
        columns=tuple((str(row[0]), number) for number, row in enumerate(changes, 1)),
        before_images=tuple(pair for pair in holders if {*pair} <= there),
    )


def _captured(
    id: TableId,
    columns: list[Facts],
    changes: list[Facts],
    keys: list[Facts],
    instance: CaptureInstance,
    comment: str | None,
    rules: TableRules,
    platform: str,
) -> CapturedTable:
    types = {str(row[0]): _native(row, platform) for row in changes}
    found: list[tuple[Column, NativeType]] = []
    foreign: list[tuple[str, str]] = []
    for row in columns:
        name, native = str(row[0]), _native(row, platform)
        # Values are read from the change table, whose column may lag behind the table's.
        native = types.get(name, native)
        if name not in types:
            continue
        if not native.supported:
            foreign.append((name, native.name))
            continue
        found.append((_column(row, len(found) + 1, native), native))
    if foreign:
        say_left_out(id.full_path, tuple(foreign), "values of such types are not captured")
    return rules.table(
        id, found, unique_keys(keys, {column.name for column, _ in found if column.nullable}), instance, comment
    )


def _native(row: Facts, platform: str) -> NativeType:
    _, kind, size, scale, bits, *_ = row
    name, is_bits = str(kind).strip().upper(), str(bits).strip() == "Y"
    if platform == ZOS:
        return NativeType.of_zos(name, int(size), int(scale), is_bits)
    return NativeType(name, int(size), int(scale), is_bits and name in ("CHARACTER", "VARCHAR", "LONG VARCHAR"))


def _column(row: Facts, position: int, native: NativeType) -> Column:
    name, _, _, _, _, nullable, identity, default, comment = row
    return Column(
        name=str(name),
        position=position,
        logical=native.logical,
        native_type=native.shown_name,
        length=native.length,
        scale=native.shown_scale,
        nullable=str(nullable).strip() == "Y",
        default=constant_default(default, native),
        default_expression=default,
        identity=str(identity or "").strip() == "Y",
        jdbc_type=native.jdbc_type,
        large=native.large,
        comment=comment,
    )


def unique_keys(rows: list[Facts], nullable: Collection[str]) -> list[UniqueKey]:
    """Primary key and unique indexes, the primary key first; none in which rows may share NULL."""
    indexes: dict[str, tuple[str, list[str]]] = {}
    for index, rule, column in rows:
        indexes.setdefault(str(index), (str(rule).strip(), []))[1].append(str(column))
    found = [
        UniqueKey(tuple(columns), rule == "P")
        for rule, columns in indexes.values()
        if rule != _UNIQUE_WHERE_NOT_NULL or not any(column in nullable for column in columns)
    ]
    return sorted(found, key=lambda key: not key.primary)


def _grouped(rows: Iterable[Facts]) -> dict[Place, list[Facts]]:
    groups: dict[Place, list[Facts]] = defaultdict(list)
    for schema, table, *rest in rows:
        groups[str(schema).rstrip(), str(table)].append(tuple(rest))
    return groups


def _not_captured(schema: str, table: str, database: str) -> CaptureError:
    owner, name = schema.replace("'", "''"), table.replace("'", "''")
    return CaptureError(
        f"Table '{schema}.{table}' of database '{database}' is not registered for capture, or its registration is not "
        "active.",
        remedy=f"Call ASNCDC.ADDTABLE('{owner}', '{name}'), set STATE to 'A' in its row of IBMSNAP_REGISTER, and let "
        "the Capture program read it (ASNCDCSERVICES, reinit).",
    )
