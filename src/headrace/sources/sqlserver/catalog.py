"""What the server's catalog says: captured tables, their schemas, their capture instances.

One query per kind of fact for the whole database, never one per table, so that a thousand tables cost as many round
trips as one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from headrace.changes import Column, TableId
from headrace.errors import CaptureError
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.captured_table import CapturedTable, CaptureInstance
from headrace.sources.change_tables.catalog import CatalogTable, choose
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.table_rules import TableRules
from headrace.sources.sqlserver import statements
from headrace.sources.sqlserver.advice import ADVICE
from headrace.sources.sqlserver.types import NativeType, constant_default
from headrace.sources.tables.columns import say_left_out
from headrace.sources.tables.keys import UniqueKey

ColumnIds = frozenset[tuple[str, int]]


def captured_tables(
    connection: Connection,
    database: str,
    include: Sequence[str],
    rules: TableRules,
    *,
    exclude: Sequence[str] = (),
    databases: Sequence[str] = (),
    strict: bool = True,
    known: Collection[str] = (),
) -> list[CatalogTable]:
    """The tables that the include list names, in its order, with their schema and capture instances.

    Args:
        connection: to the database.
        database: its name.
        include: `schema.table` patterns: shell globs, or regular expressions after `re:`; empty means every captured
            table.
        rules: what the options make of each table.
        exclude: patterns of tables that are left out.
        databases: all databases of the same run: what a pattern does not find here may be in another.
        strict: whether it is an error that a named table is missing or not captured; a run that goes on waits for it.
        known: tables that may be missing or not captured all the same, because they were captured once.

    Raises:
        CaptureError: capture is off for a named table, a named table does not exist, or a pattern matches nothing.
        OptionError: an option can't be applied to a table.
    """
    tables = [(str(s), str(t), o, bool(tracked)) for s, t, o, tracked in connection.rows(statements.TABLES)]
    refused = partial(_not_captured, database=database)
    chosen = choose(tables, include, exclude, database, databases, refused, ADVICE, strict=strict, known=known)
    columns = _grouped(connection.rows(statements.COLUMNS))
    keys = _grouped(connection.rows(statements.KEYS))
    instances = _instances(connection)
    comments = {row[0]: row[1] for row in connection.rows(statements.TABLE_COMMENTS)}
    captured = []
    for schema_name, table_name, object_id in chosen:
        id = TableId(database, schema_name, table_name)
        own = instances.get(object_id, ())
        if own:
            facts = (columns.get(object_id, []), keys.get(object_id, []))
            versions = (_captured(id, *facts, instance, ids, comments.get(object_id), rules) for instance, ids in own)
            captured.append(CatalogTable(id, tuple(versions), tuple(str(row[0]) for row in facts[0])))
        elif strict and id.path not in known:
            raise _not_captured(schema_name, table_name, database)
    return captured


def _captured(
    id: TableId,
    columns: list[tuple[Any, ...]],
    keys: list[tuple[Any, ...]],
    instance: CaptureInstance,
    captured: ColumnIds,
    comment: str | None,
    rules: TableRules,
) -> CapturedTable:
    found: list[tuple[Column, NativeType]] = []
    foreign: list[tuple[str, str]] = []
    names_by_id = {row[1]: str(row[0]) for row in columns}
    for name, number, base, *size, nullable, identity, computed, default, described, collation in columns:
        max_length, precision, scale = (int(part) for part in size)
        native = NativeType(str(base).lower(), max_length, precision, scale, str(collation or ""))
        # A column that was dropped and added again is another one: its changes are not captured.
        if (name, number) not in captured:
            continue
        if not native.supported:
            foreign.append((str(name), native.name))
            continue
        place = len(found) + 1
        column = _column(str(name), place, native, bool(nullable), bool(identity), bool(computed), default, described)
        found.append((column, native))
    if foreign:
        say_left_out(id.full_path, tuple(foreign), "values of such types are not captured")
    return rules.table(id, found, _unique_keys(keys, names_by_id), instance, comment)


def _column(
    name: str,
    position: int,
    native: NativeType,
    nullable: bool,
    identity: bool,
    computed: bool,
    default: str | None,
    comment: str | None,
) -> Column:
    return Column(
        name=name,
        position=position,
        logical=native.logical,
        native_type=f"{native.name} identity" if identity else native.name,
        length=native.length,
        scale=native.shown_scale,
        nullable=nullable,
        default=constant_default(default, native),
        default_expression=default,
        identity=identity,
        generated=computed,
        jdbc_type=native.jdbc_type,
        large=native.large,
        comment=comment,
    )


def _not_captured(schema: str, table: str, database: str) -> CaptureError:
    return CaptureError(
        f"Table '{schema}.{table}' of database '{database}' has no change data capture.",
        remedy=(
            f"Run: EXEC sys.sp_cdc_enable_table @source_schema = N'{schema}', "
            f"@source_name = N'{table}', @role_name = NULL."
        ),
    )


Instances = dict[int, tuple[tuple[CaptureInstance, ColumnIds], ...]]
"""The capture instances of each source table, each with the names and ids of the columns that it captures."""


def _instances(connection: Connection) -> Instances:
    columns: dict[int, list[tuple[str, int]]] = defaultdict(list)
    ids: dict[int, set[tuple[str, int]]] = defaultdict(set)
    for object_id, name, number, ordinal in connection.rows(statements.CAPTURED_COLUMNS):
        columns[object_id].append((str(name), int(ordinal)))
        ids[object_id].add((str(name), int(number)))
    with_command = {row[0] for row in connection.rows(statements.CHANGE_TABLES_WITH_COMMAND)}
    found: dict[int, list[CaptureInstance]] = defaultdict(list)
    for source, name, object_id, start, _ in connection.rows(statements.CAPTURE_INSTANCES):
        found[source].append(
            CaptureInstance(
                str(name),
                None if start is None else lsn.to_text(bytes(start)),
                tuple(columns[object_id]),
                object_id in with_command,
                int(object_id),
            )
        )
    # By start, oldest first, one that has not begun last; the order of creation decides where starts are equal.
    return {
        source: tuple(
            (instance, frozenset(ids[instance.object_id]))
            for instance in sorted(instances, key=lambda i: (i.start_lsn is None, i.start_lsn or ""))
        )
        for source, instances in found.items()
    }


def _grouped(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    groups: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        groups[row[0]].append(row[1:])
    return groups


def _unique_keys(keys: list[tuple[Any, ...]], names_by_id: Mapping[int, str]) -> list[UniqueKey]:
    """Primary key and unique indexes, in the order they are preferred."""
    indexes: dict[tuple[int, bool], list[str]] = {}
    for index_id, primary, column_id in keys:
        indexes.setdefault((index_id, bool(primary)), []).append(names_by_id[column_id])
    return [UniqueKey(tuple(columns), primary) for (_, primary), columns in indexes.items()]
