"""The server's catalog: which tables are captured, and how they look now.

One query per kind of fact for all tables, so that a thousand tables cost as many round trips as one.

Columns that the server computes but does not send are named with the transform that gives their values. Defaults that
are constants come as canonical texts.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.changes import TableId
from headrace.errors import CaptureError
from headrace.sources.postgresql import catalog_statements as statements
from headrace.sources.postgresql.captured_table import (
    INDEX,
    Computed,
    FoundColumn,
    PostgresTable,
    ReplicaIdentity,
    Storage,
    postgres_table,
)
from headrace.sources.postgresql.catalog_statements import TYPE_NAMES
from headrace.sources.postgresql.connection import Connection
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.publication import VIRTUAL, PublicationState, no_publication
from headrace.sources.postgresql.refusals import PostgresError, identifier
from headrace.sources.postgresql.types import NativeType, TypeCatalog
from headrace.sources.signals import say_once
from headrace.sources.tables.keys import UniqueKey
from headrace.sources.tables.lost import is_named
from headrace.sources.tables.rewrites import Unlogged
from headrace.sources.tables.selection import FoundTable, TableSelection
from headrace.sources.tables.table_rules import TableRules, no_column_left

_MOST_COLUMNS = 1_000
_TYPE = r'::(?:[a-z0-9_ .]|"(?:[^"]|"")+")+(?:\([0-9]+(?:,-?[0-9]+)?\))?[a-z ]*(?:\[\])*'
_NUMBER = r"-?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"
_CONSTANT = re.compile(
    rf"""(?P<literal>E?'(?:[^'\\]|''|\\.)*'|B'[01]*'|{_NUMBER}|\({_NUMBER}\)|true|false)(?:{_TYPE})?""", re.DOTALL
)
_CAST_NUMBER = re.compile(rf"\(?\(?{_NUMBER}\)?(?:{_TYPE})?\)?(?:{_TYPE})?")


def is_constant(expression: str) -> bool:
    """Whether a default, as the server writes it, is a literal."""
    return bool(_CONSTANT.fullmatch(expression) or _CAST_NUMBER.fullmatch(expression))


def constant_defaults(connection: Connection, columns: Sequence[tuple[str | None, NativeType]]) -> list[str | None]:
    """The defaults that are constants, as canonical texts; null for others.

    The server says what a column of its type holds of each constant: it alone knows how it rounds.

    Args:
        connection: to the database.
        columns: the default as the server writes it, and the type.

    Raises:
        LostConnection: the connection broke.
    """
    defaults: list[str | None] = [None] * len(columns)
    at = [n for n, (expression, _) in enumerate(columns) if expression is not None and is_constant(expression)]
    if not at:
        return defaults
    natives = [columns[n][1] for n in at]
    names = connection.rows(TYPE_NAMES, ([native.oid for native in natives], [native.typmod for native in natives]))
    asked = [f"format('%s', ({columns[n][0]})::{name})" for n, (name,) in zip(at, names, strict=True)]
    for start in range(0, len(asked), _MOST_COLUMNS):
        part = asked[start : start + _MOST_COLUMNS]
        for index, text in zip(at[start : start + _MOST_COLUMNS], _answers(connection, part), strict=True):
            defaults[index] = None if text is None else _canonical(text, columns[index][1])
    return defaults


def _canonical(text: str, native: NativeType) -> str | None:
    canonical: str | None = native.texts(pa.array([text], pa.string()))[0].as_py()
    return canonical


def _answers(connection: Connection, asked: Sequence[str]) -> tuple[str | None, ...]:
    try:
        return connection.rows(f"SELECT {', '.join(asked)}")[0]
    except PostgresError:
        # One of them is a value that its type does not have: then inserts fail as well.
        half = len(asked) // 2
        return _answers(connection, asked[:half]) + _answers(connection, asked[half:]) if half else (None,)


_TABLE, _PARTITIONED = "r", "p"
_OTHERS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
_KEY, _NOTHING = "d", "n"
_FILTERED = "filtered"


class CatalogTable(NamedTuple):
    """A row of `statements.TABLES`."""

    oid: int
    schema: str
    name: str
    kind: str
    unlogged: bool
    partition: bool
    identity: str

    @property
    def path(self) -> str:
        """`schema.name`."""
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        return f"{identifier(self.schema)}.{identifier(self.name)}"


def named_tables(settings: PostgresSettings) -> tuple[str, ...]:
    """The patterns of the tables that the options name; empty for all."""
    return (settings.table,) if settings.table else tuple(settings.tables)


def means(settings: PostgresSettings, path: str) -> bool:
    """Whether the options mean a table (`schema.name`), which may be there or not."""
    return is_named(path, named_tables(settings), settings.tables_excluded, settings.database)


def captured_tables(
    connection: Connection,
    database: str,
    settings: PostgresSettings,
    *,
    strict: bool,
    known: Collection[str] = (),
    types: TypeCatalog | None = None,
) -> dict[str, PostgresTable]:
    """The tables that the options mean, by path, in the order of the include list, as the catalog shows them now.

    Args:
        connection: to the database.
        database: its name.
        settings: the source's options.
        strict: whether it is an error that a named table is not there or can't be captured, or that there is none.
        known: tables that may be missing all the same, because they were captured once.
        types: what is known of types; asked for without it.

    Raises:
        CaptureError: a named table is not there or can't be captured, or there is none at all (where `strict`); a
            key can't be as the options say.
        OptionError: an option can't be applied to a table.
    """
    tables = _Tables(connection, settings)
    chosen = tables.chosen(database, strict=strict, known=known)
    return tables.described(chosen, database, types or TypeCatalog.of(connection), strict=strict)


def estimated_rows(connection: Connection, tables: Iterable[PostgresTable]) -> dict[str, int]:
    """About how many rows tables have, by path, without those that the server has not counted."""
    leaves = {table.id.path: table.leaves for table in tables}
    oids = sorted({oid for oids_of in leaves.values() for oid in oids_of})
    counted = {oid: int(rows) for oid, rows in connection.rows(statements.ESTIMATES, (oids,))}
    rows = {path: [counted.get(oid, -1) for oid in oids_of] for path, oids_of in leaves.items()}
    return {path: sum(oids_of) for path, oids_of in rows.items() if oids_of and min(oids_of) >= 0}


def catalog_state(connection: Connection, oids: Collection[int]) -> str:
    """A text that is another one when anything was changed that tables and types say.

    That is: tables came, went, or got other names; columns, keys, replica identities, partitions, types, labels of
    enums, publications. It may also be another one where nothing of this was changed. Comments don't count.

    Args:
        connection: to the database.
        oids: the numbers of the captured tables.
    """
    text = _array(oids)
    return str(connection.value(statements.state(connection.version), (text, text, text)))


class _Tables:
    """The tables of a database, and which of them can be captured.

    Args:
        connection: to the database.
        settings: the source's options.
    """

    def __init__(self, connection: Connection, settings: PostgresSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._publication = PublicationState.of(connection, settings.publication_name)
        self._relations = {
            int(oid): CatalogTable(
                int(oid), str(schema), str(name), str(kind), bool(unlogged), bool(part), str(identity)
            )
            for oid, schema, name, kind, unlogged, part, identity in connection.rows(statements.TABLES)
        }
        self._parents: dict[int, int] = {}
        self._partitions: dict[int, list[int]] = defaultdict(list)
        for child, parent in connection.rows(statements.PARTITIONS):
            self._parents[int(child)] = int(parent)
            self._partitions[int(parent)].append(int(child))

    def chosen(self, database: str, *, strict: bool, known: Collection[str]) -> list[CatalogTable]:
        include = named_tables(self._settings)
        selection = TableSelection(
            database, include, self._settings.tables_excluded, (), strict and bool(include), known
        )
        tables = [
            FoundTable(relation.schema, relation.name, relation.oid, self._lack(relation) is None)
            for relation in self._relations.values()
        ]
        relations = [self._relations[table.number] for table in selection.among(tables, self._not_captured, "")]
        if strict and not relations and not known:
            if self._publication is not None:
                name = self._publication.name
                raise CaptureError(
                    f"Publication '{name}' publishes no table that the options mean.",
                    remedy=f"Run: ALTER PUBLICATION {identifier(name)} ADD TABLE ONLY <schema>.<table>;",
                )
            raise CaptureError(
                f"Database '{database}' has no table to capture.", remedy="Check 'database' and 'tables_excluded'."
            )
        if strict and self._publication is None and self._settings.publication_autocreate != _FILTERED:
            raise no_publication(self._settings, [relation.quoted for relation in relations])
        return relations

    def _lack(self, relation: CatalogTable) -> CaptureError | None:
        """Why a table is not captured; None where it is, or would be if the options meant it."""
        path, publication = relation.path, self._publication or PublicationState(self._settings.publication_name, 0)
        published = relation.oid in publication.members
        if relation.kind in _OTHERS:
            return CaptureError(
                f"'{path}' is {_OTHERS[relation.kind]}, and only tables have changes in the log.",
                remedy="Name the tables that it is made of, or leave it out.",
            )
        if relation.partition and publication.via_root and not published:
            root = self._relations[self._root(relation.oid)]
            return CaptureError(
                f"Table '{path}' is a partition of '{root.path}', under whose name its changes come.",
                remedy=f"Name '{root.path}' in its place.",
            )
        if relation.kind == _PARTITIONED and not publication.via_root:
            return CaptureError(
                f"Publication '{publication.name}' publishes the changes of table '{path}' under the names of its "
                "partitions.",
                remedy=f"Run: ALTER PUBLICATION {identifier(publication.name)} SET (publish_via_partition_root = "
                "true); or name the partitions.",
            )
        unlogged = next((one for one in self._stored(relation) if one.unlogged), None)
        if unlogged is not None:
            return CaptureError(
                f"Table '{unlogged.path}' is unlogged, so its changes are not in the log.",
                remedy=f"Run: ALTER TABLE {unlogged.quoted} SET LOGGED;",
            )
        if self._publication is not None and not published and not self._can_be_added:
            return CaptureError(
                f"Publication '{publication.name}' does not have table '{path}'.",
                remedy=f"Run: ALTER PUBLICATION {identifier(publication.name)} ADD TABLE ONLY {relation.quoted};",
            )
        return None

    @property
    def _can_be_added(self) -> bool:
        """Whether tables that the options name come into the publication."""
        return self._settings.publication_autocreate == _FILTERED and bool(named_tables(self._settings))

    def _not_captured(self, table: FoundTable, database: str) -> CaptureError:
        return self._lack(self._relations[table.number]) or CaptureError(
            f"Table '{table.path}' of database '{database}' can't be captured.", remedy="Leave it out."
        )

    def _root(self, oid: int) -> int:
        while oid in self._parents:
            oid = self._parents[oid]
        return oid

    def _stored(self, relation: CatalogTable) -> list[CatalogTable]:
        if relation.kind == _TABLE:
            return [relation]
        below = (self._relations[oid] for oid in self._partitions[relation.oid] if oid in self._relations)
        return [one for part in below if part.kind in (_TABLE, _PARTITIONED) for one in self._stored(part)]

    def described(
        self, chosen: Sequence[CatalogTable], database: str, types: TypeCatalog, *, strict: bool
    ) -> dict[str, PostgresTable]:
        leaves = {relation.oid: tuple(self._stored(relation)) for relation in chosen}
        oids = _array(relation.oid for relation in chosen)
        columns = _grouped(self._connection.rows(statements.COLUMNS, (oids,)))
        keys = _grouped(self._connection.rows(statements.KEYS, (oids,)))
        comments = {int(oid): str(text) for oid, text in self._connection.rows(statements.COMMENTS, (oids,))}
        rules = TableRules.of(self._settings)
        by_path = {}
        for relation, described in zip(chosen, self._columns(chosen, columns, types), strict=True):
            if not described and not strict:
                # It has none, or was dropped since the tables were listed.
                continue
            if not described:
                raise no_column_left(TableId(database, relation.schema, relation.name))
            own_keys = [_IndexKey(bool(p), bool(i), bool(m), tuple(json.loads(n))) for p, i, m, n in keys[relation.oid]]
            nullable = {column.name for column in described if column.nullable}
            names = {column.name for column in described}
            unique = [
                UniqueKey(key.columns, primary=key.primary)
                for key in own_keys
                if names.issuperset(key.columns) and nullable.isdisjoint(key.columns)
            ]
            parts = leaves[relation.oid]
            table = postgres_table(
                rules,
                TableId(database, relation.schema, relation.name),
                described,
                unique,
                Storage(relation.oid, tuple(leaf.oid for leaf in parts), _identity(relation, parts, own_keys)),
                comment=comments.get(relation.oid),
                names=[str(name) for name, *_ in columns[relation.oid]],
                last=max(int(number) for *_, number in columns[relation.oid]),
            )
            lacking = {
                str(name): Computed(str(kind), str(expression), types.resolve(int(type), int(modifier)))
                for name, type, modifier, _, _, kind, expression, *_ in columns[relation.oid]
                if kind and name not in names and expression
            }
            by_path[table.id.path] = replace(table, lacking=lacking)
        return by_path

    def _columns(
        self, chosen: Sequence[CatalogTable], columns: Mapping[int, list[Any]], types: TypeCatalog
    ) -> list[list[FoundColumn]]:
        publication = self._publication or PublicationState(self._settings.publication_name, 0)
        published = [
            [
                (row, types.resolve(int(row[1]), int(row[2])))
                for row in columns[relation.oid]
                if publication.publishes_column(relation.oid, str(row[0]), str(row[5]))
            ]
            for relation in chosen
        ]
        asked = [(None if row[5] else row[6], native) for rows_of_tables in published for row, native in rows_of_tables]
        defaults = iter(constant_defaults(self._connection, asked))
        return [
            [
                FoundColumn(
                    name=str(name),
                    native=native,
                    nullable=not required,
                    default=next(defaults),
                    default_expression=None if generated else expression,
                    identity=bool(identity) or str(expression or "").startswith("nextval("),
                    generated=bool(generated),
                    comment=comment,
                    number=int(number),
                )
                for (name, _, _, required, identity, generated, expression, comment, number), native in rows_of_tables
            ]
            for rows_of_tables in published
        ]


class _IndexKey(NamedTuple):
    """A row of `statements.KEYS`, without the table's number."""

    primary: bool
    is_identity: bool
    immediate: bool
    columns: tuple[str, ...]


def _identity(relation: CatalogTable, leaves: Sequence[CatalogTable], keys: Sequence[_IndexKey]) -> ReplicaIdentity:
    """What changes say of the old row. Those of a partitioned table say what its partitions have."""
    kind = relation.identity
    if relation.kind == _PARTITIONED and leaves:
        kinds = {leaf.identity for leaf in leaves}
        kind = kinds.pop() if len(kinds) == 1 else _NOTHING if _NOTHING in kinds else _KEY
    if kind == INDEX:
        meant = (key.columns for key in keys if key.is_identity)
    else:
        meant = (key.columns for key in keys if kind == _KEY and key.primary and key.immediate)
    return ReplicaIdentity(kind, frozenset(next(meant, ())))


def _array(oids: Iterable[int]) -> str:
    return f"{{{','.join(map(str, oids))}}}"


def _grouped(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[Any]]:
    grouped: dict[int, list[Any]] = defaultdict(list)
    for oid, *rest in rows:
        grouped[int(oid)].append(rest)
    return grouped


_PUBLISHES_STORED = 180000
_COMPUTE = (
    "Compute {them} by a transform of the pipeline; what the server writes otherwise than Spark's SQL (such as ::) is "
    "yours to translate: {transform}."
)


def left_out(tables: Iterable[PostgresTable], publication: str, version: int) -> Iterator[Unlogged]:
    """The tables with such columns, and how the columns get into targets all the same.

    Args:
        tables: as the catalog shows them.
        publication: the publication's name.
        version: the server's.
    """
    for table in tables:
        if not table.lacking:
            continue
        several = len(table.lacking) > 1
        names = ", ".join(f"'{name}'" for name in table.lacking)
        computed = f"Columns {names} are" if several else f"Column {names} is"
        columns = {
            name: f"cast({column.expression} as {column.type.logical.spark_type})"
            for name, column in table.lacking.items()
        }
        transform = json.dumps({"tables": [table.id.path], "computed_columns": columns}, ensure_ascii=False)
        remedy = _COMPUTE.format(them="them" if several else "it", transform=transform)
        if version >= _PUBLISHES_STORED and all(column.kind != VIRTUAL for column in table.lacking.values()):
            remedy = (
                f"Run: ALTER PUBLICATION {identifier(publication)} SET (publish_generated_columns = stored); "
                f"and read the table again. Or: {remedy}"
            )
        sentence = f"{computed} computed by the server, which does not send the values, so captured rows lack them."
        yield Unlogged(table.id.path, sentence, remedy)


def say_left_out(tables: Iterable[PostgresTable], publication: str, version: int) -> None:
    """Log them, once per process."""
    for lack in left_out(tables, publication, version):
        say_once(f"Table '{lack.table}': {lack.sentence} {lack.remedy}")
