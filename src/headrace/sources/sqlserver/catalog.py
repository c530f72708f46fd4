"""What the server's catalog says: captured tables, their schemas, their capture instances.

One query per kind of fact for the whole database, never one per table, so that a thousand tables cost as many round
trips as one.

A server whose release is too old for these queries is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from headrace.changes import Column, TableId
from headrace.errors import CaptureError
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.captured_table import CapturedTable, CaptureInstance, CatalogTable, captured_table
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.statements import Queries
from headrace.sources.sqlserver import statements
from headrace.sources.sqlserver.checks import ADVICE
from headrace.sources.sqlserver.types import NativeType, constant_default
from headrace.sources.tables.columns import say_left_out
from headrace.sources.tables.keys import UniqueKey
from headrace.sources.tables.selection import FoundTable, TableSelection
from headrace.sources.tables.table_rules import TableRules

ColumnIds = frozenset[tuple[str, int]]
Row = TypeVar("Row")


class ColumnFacts(NamedTuple):
    """A row of `statements.COLUMNS`, without the table's number."""

    name: str
    number: int
    type: str
    max_length: int
    precision: int
    scale: int
    nullable: bool
    identity: bool
    computed: bool
    default: str | None
    comment: str | None
    collation: str | None
    encryption: int | None


class KeyColumn(NamedTuple):
    """A row of `statements.KEYS`, without the table's number: a column of an index, in the index's order."""

    index_id: int
    primary: bool
    column: int


def captured_tables(connection: Connection, selection: TableSelection, rules: TableRules) -> list[CatalogTable]:
    """The selected tables, in the include list's order, with their schema and capture instances.

    Args:
        connection: to the database.
        selection: which tables.
        rules: what the options make of each table.

    Raises:
        CaptureError: capture is off for a named table, a named table does not exist, or a pattern matches nothing.
        OptionError: an option can't be applied to a table.
    """
    tables = [FoundTable(str(s), str(t), o, bool(tracked)) for s, t, o, tracked in connection.rows(statements.TABLES)]
    chosen = selection.among(tables, _not_captured, ADVICE.capture)
    columns = _grouped(connection.rows(statements.COLUMNS), ColumnFacts._make)
    keys = _grouped(connection.rows(statements.KEYS), KeyColumn._make)
    instances = _instances(connection)
    comments = dict(connection.rows(statements.TABLE_COMMENTS))
    captured = []
    for table in chosen:
        id = TableId(selection.database, table.schema, table.name)
        of_table = instances.get(table.number, ())
        if of_table:
            table_columns, key = columns.get(table.number, []), keys.get(table.number, [])
            comment = comments.get(table.number)
            versions = (_captured(id, table_columns, key, instance, ids, comment, rules) for instance, ids in of_table)
            captured.append(CatalogTable(id, tuple(versions), tuple(str(column.name) for column in table_columns)))
        elif selection.strict and id.path not in selection.known:
            raise _not_captured(table, selection.database)
    return captured


def _captured(
    id: TableId,
    columns: list[ColumnFacts],
    keys: list[KeyColumn],
    instance: CaptureInstance,
    captured: ColumnIds,
    comment: str | None,
    rules: TableRules,
) -> CapturedTable:
    described: list[tuple[Column, NativeType]] = []
    foreign: list[tuple[str, str]] = []
    encrypted: list[tuple[str, str]] = []
    names_by_id = {facts.number: str(facts.name) for facts in columns}
    for facts in columns:
        # A column that was dropped and added again is another one: its changes are not captured.
        if (facts.name, facts.number) not in captured:
            continue
        native = _native(facts)
        if facts.encryption is not None:
            encrypted.append((str(facts.name), native.name))
            continue
        if not native.supported:
            foreign.append((str(facts.name), native.name))
            continue
        described.append((_column(facts, len(described) + 1, native), native))
    if encrypted:
        say_left_out(id.full_path, tuple(encrypted), "Always Encrypted keeps its values from the server")
    if foreign:
        say_left_out(id.full_path, tuple(foreign), "values of such types are not captured")
    table = captured_table(rules, id, described, _unique_keys(keys, names_by_id), instance, comment)
    numbers = {str(facts.name): int(facts.number) for facts in columns}
    return replace(table, numbers=tuple(numbers[column.name] for column in table.schema.columns))


def _native(facts: ColumnFacts) -> NativeType:
    size = (int(facts.max_length), int(facts.precision), int(facts.scale))
    return NativeType(str(facts.type).lower(), *size, str(facts.collation or ""))


def _column(facts: ColumnFacts, position: int, native: NativeType) -> Column:
    return Column(
        name=str(facts.name),
        position=position,
        logical=native.logical,
        native_type=f"{native.name} identity" if facts.identity else native.name,
        length=native.length,
        scale=native.shown_scale,
        nullable=bool(facts.nullable),
        default=constant_default(facts.default, native),
        default_expression=facts.default,
        identity=bool(facts.identity),
        generated=bool(facts.computed),
        jdbc_type=native.jdbc_type,
        large=native.large,
        comment=facts.comment,
    )


def _not_captured(table: FoundTable, database: str) -> CaptureError:
    return CaptureError(
        f"Table '{table.path}' of database '{database}' has no change data capture.",
        remedy=(
            f"Run: EXEC sys.sp_cdc_enable_table @source_schema = N'{table.schema}', "
            f"@source_name = N'{table.name}', @role_name = NULL."
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
    with_command = {object_id for (object_id,) in connection.rows(statements.CHANGE_TABLES_WITH_COMMAND)}
    by_table: dict[int, list[CaptureInstance]] = defaultdict(list)
    for source, name, object_id, start, _ in connection.rows(statements.CAPTURE_INSTANCES):
        by_table[source].append(
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
        for source, instances in by_table.items()
    }


def _grouped(rows: Iterable[tuple[Any, ...]], row_of: Callable[[Iterable[Any]], Row]) -> dict[int, list[Row]]:
    groups: dict[int, list[Row]] = defaultdict(list)
    for number, *rest in rows:
        groups[number].append(row_of(rest))
    return groups


def _unique_keys(keys: list[KeyColumn], names_by_id: Mapping[int, str]) -> list[UniqueKey]:
    """Primary key and unique indexes, in the order they are preferred."""
    indexes: dict[tuple[int, bool], list[str]] = {}
    for index_id, primary, column_id in keys:
        indexes.setdefault((index_id, bool(primary)), []).append(names_by_id[column_id])
    return [UniqueKey(tuple(columns), primary) for (_, primary), columns in indexes.items()]


_OLDEST, _NAME = 13, "SQL Server 2016"
_OWN_NUMBERS = (5, 8)
"""Azure SQL Database and Azure SQL Managed Instance have numbers of their own."""


def too_old(server: Queries) -> CaptureError | None:
    """Why a server can't be read, where its release is why."""
    ((major, edition),) = server.rows(statements.SERVER_VERSION)
    if major is None or int(major) >= _OLDEST or int(edition or 0) in _OWN_NUMBERS:
        return None
    return CaptureError(
        f"The server is version {int(major)} of SQL Server; {_NAME} (version {_OLDEST}) is the oldest that can "
        "be read.",
        remedy=f"Upgrade it to {_NAME} or later. Standard edition captures changes from {_NAME} SP1 on.",
    )
