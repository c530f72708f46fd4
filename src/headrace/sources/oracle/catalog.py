"""The server's catalog: which tables are captured, how they look, and what the options make of them."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.changes import Column, TableId, TableSchema
from headrace.changes.table_pattern import TablePattern
from headrace.errors import CaptureError, OptionError
from headrace.options import shown_name
from headrace.registry import did_you_mean
from headrace.sources.oracle import statements
from headrace.sources.oracle.captured_table import OracleTable
from headrace.sources.oracle.connection import Connection
from headrace.sources.oracle.database_state import DatabaseState
from headrace.sources.oracle.options import OracleSettings
from headrace.sources.oracle.types import NativeType
from headrace.sources.tables.columns import say_left_out
from headrace.sources.tables.keys import UniqueKey
from headrace.sources.tables.masks import FAMILIES
from headrace.sources.tables.selection import require_own_paths
from headrace.sources.tables.table_rules import SourceTable, TableRules, numbered

_SHAPING = ("column_include_list", "column_exclude_list", "message_key_columns", "signal_data_collection", *FAMILIES)

_LONGEST_NAME = 30
_CONSTANT = re.compile(r"'((?:[^']|'')*)'|([-+]?[0-9.]+)")
_HELPERS = re.compile(r"MLOG\$_|RUPD\$_|SYS_IOT_OVER_|BIN\$|DR\$|LOG_MINING_FLUSH$")
_LOG = logging.getLogger("headrace.sources")


class OracleTableRules:
    """The rules of one source.

    Args:
        settings: the source's options.

    Attributes:
        digest: another one where tables may look different; empty without options that change them.

    Raises:
        OptionError: options contradict each other, or one of them is malformed.
    """

    def __init__(self, settings: OracleSettings) -> None:
        self._rules = TableRules.of(settings)
        given = {name: value for name in _SHAPING if (value := settings.get(name))}
        # Names of hashes have their salt in them.
        given |= {name: {shown_name(n): p for n, p in given[name].items()} for name in FAMILIES if name in given}
        kept_back = [name for name in given if name not in ("message_key_columns", "signal_data_collection")]
        if kept_back and settings.include_redo_sql:
            raise OptionError(
                f"Options 'include_redo_sql' and '{kept_back[0]}' are both given, but a redo statement holds all "
                "values of its row.",
                remedy="Keep one of them.",
            )
        text = json.dumps(given, sort_keys=True)
        self.digest = hashlib.sha256(text.encode()).hexdigest()[:12] if given else ""

    def table(
        self, id: TableId, columns: Sequence[tuple[Column, NativeType]], keys: Sequence[UniqueKey]
    ) -> OracleTable:
        """A captured table.

        Args:
            id: where it lives.
            columns: its columns of types that can be captured.
            keys: primary key and unique constraints whose columns are among these and never NULL, preferred ones first.

        Raises:
            CaptureError: the key can't be as the options say.
            OptionError: no column is left, or a mask can't be applied.
        """
        return _oracle_table(self._rules.chosen(id, columns, keys))

    def reshaped(self, known: OracleTable, catalogued: OracleTable) -> OracleTable:
        """A table that was captured under other options, as these change it.

        Its changes in the log are still to be read by the schema that it had there: so a column that is known stays
        as it was, unless it is not wanted any more, and others come in.

        Args:
            known: as the offset has it.
            catalogued: as the server's catalog shows it now, under these options.
        """
        now = {column.name: column for column in catalogued.schema.columns}
        old = {column.name for column in known.schema.columns}
        kept = [
            (now.get(column.name, column) if _native(catalogued, column.name) == native else column, native)
            for column, native in zip(known.schema.columns, known.natives, strict=True)
            if column.name in catalogued.schema.key or self._rules.keeps(known.id, column.name)
        ]
        fresh = zip(catalogued.schema.columns, catalogued.natives, strict=True)
        kept += [(column, native) for column, native in fresh if column.name not in old]
        names = [column.name for column, _ in kept]
        keyed = catalogued.schema if set(names).issuperset(catalogued.schema.key) else known.schema
        chunk_key = known.chunk_key if set(names).issuperset(known.chunk_key) else ()
        schema = TableSchema(known.id, numbered(kept), keyed.key, primary_key=keyed.primary_key)
        natives = tuple(native for _, native in kept)
        table = _oracle_table(self._rules.described(schema, natives, chunk_key, [*names, *catalogued.columns]))
        return replace(table, dropped=known.dropped)


def _oracle_table(table: SourceTable[NativeType]) -> OracleTable:
    cuts = all(table.native(name).chunks for name in table.chunk_key)
    return OracleTable(table.schema, table.natives, table.chunk_key if cuts else (), table.protected)


def _native(table: OracleTable, name: str) -> NativeType | None:
    """A column's declared type; None where the table has no such column."""
    return next((n for c, n in zip(table.schema.columns, table.natives, strict=True) if c.name == name), None)


class Selection:
    """Which tables the options mean."""

    def __init__(self, settings: OracleSettings) -> None:
        include = (settings.table,) if settings.table else tuple(settings.tables)
        try:
            self._include = tuple(map(_pattern, include))
            self._exclude = tuple(map(_pattern, settings.tables_excluded))
        except ValueError as error:
            raise OptionError(f"{error}.", remedy="Correct 'tables'.") from error

    def means(self, owner: str, name: str) -> bool:
        """Whether a table would be captured if it were there."""
        if owner in statements.BUILT_IN or _HELPERS.match(name):
            return False
        table = TableId("", owner, name)
        chosen = not self._include or any(pattern.matches(table) for pattern in self._include)
        return chosen and not any(pattern.matches(table) for pattern in self._exclude)

    def order(self, owner: str, name: str) -> int:
        return next((n for n, p in enumerate(self._include) if p.matches(TableId("", owner, name))), 0)

    def missing(self, tables: Sequence[tuple[str, str]]) -> str | None:
        """The first pattern that means none of these tables."""
        there = [TableId("", owner, name) for owner, name in tables]
        named = (pattern for pattern in self._include if not pattern.is_optional)
        return next((pattern.text for pattern in named if not any(map(pattern.matches, there))), None)

    def means_path(self, path: str) -> bool:
        """Whether a table, given as `owner.name`, would be captured if it were there."""
        owner, _, name = path.partition(".")
        return self.means(owner, name)

    @property
    def is_everything(self) -> bool:
        return not self._include


def _pattern(text: str) -> TablePattern:
    pattern = TablePattern(text, in_source=True)
    if pattern.is_expression:
        # Found wrong before a run, not at the first table.
        _ = pattern.expression
    return pattern


@dataclass(frozen=True)
class Chosen:
    """Which tables of a database are captured.

    Args:
        tables: owner and name of each, in the catalog's order.
        found: those of all tables.
        logged: those that log all their columns; all where the database does.
        by_logging: whether tables are captured because they log all their columns: none is named, and not all do.
    """

    tables: tuple[tuple[str, str], ...]
    found: tuple[tuple[str, str], ...]
    logged: frozenset[tuple[str, str]]
    by_logging: bool

    @property
    def paths(self) -> tuple[str, ...]:
        """`owner.name` of each that is captured."""
        return tuple(".".join(table) for table in self.tables)

    def logs_all(self, path: str) -> bool:
        return tuple(path.split(".", 1)) in self.logged


def choose(connection: Connection, settings: OracleSettings) -> Chosen:
    """The tables that the options mean, by their names alone."""
    selection = Selection(settings)
    names = tuple((str(owner), str(name)) for owner, name in connection.rows(statements.TABLES))
    if DatabaseState.of(connection).logs_all_columns:
        return Chosen(tuple(table for table in names if selection.means(*table)), names, frozenset(names), False)
    logged = frozenset((str(owner), str(name)) for owner, name in connection.rows(statements.ALL_COLUMN_LOGGING))
    chosen = (table for table in names if selection.means(*table))
    if selection.is_everything:
        chosen = (table for table in chosen if table in logged)
    return Chosen(tuple(chosen), names, logged, selection.is_everything)


def captured_tables(
    connection: Connection, database: str, settings: OracleSettings, *, strict: bool, known: Collection[str] = ()
) -> dict[str, OracleTable]:
    """The tables that the options mean, by path, in the order of the include list.

    Args:
        connection: to the database.
        database: its name.
        settings: the source's options.
        strict: whether it is an error that a named table is not there, or that there is none at all.
        known: tables (`owner.name`) that need not be there all the same, because they were captured once.

    Raises:
        CaptureError: a named table is not there, or there is none at all (where `strict`).
    """
    selection = Selection(settings)
    rules = OracleTableRules(settings)
    names = choose(connection, settings)
    owned, chosen = list(names.found), list(names.tables)
    if strict:
        there = [*owned, *((owner, name) for owner, _, name in (path.partition(".") for path in known))]
        missing = selection.missing(there)
        if missing is not None:
            close = [".".join(table) for table in owned if table[0] not in statements.BUILT_IN]
            raise CaptureError(f"Database '{database}' has no table '{missing}'.", remedy=did_you_mean(missing, close))
        if not chosen and not known:
            raise CaptureError(
                f"No table of database '{database}' logs all its columns.",
                remedy="Run ALTER TABLE ... ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS for each, or name them.",
            )
    chosen.sort(key=lambda table: selection.order(*table))
    require_own_paths(TableId(database, owner, name) for owner, name in chosen)
    tables = {}
    for owner, name in chosen:
        table = _table(connection, TableId(database, owner, name), rules, lobs=settings.lob_enabled)
        tables[table.id.path] = table
        if strict and (owner, name) not in names.logged:
            _LOG.warning(
                "Table %s does not log all its columns: what an update leaves out is absent from its changes. "
                'Run ALTER TABLE "%s"."%s" ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS.',
                table.id.path,
                owner,
                name,
            )
    return tables


def _table(connection: Connection, id: TableId, rules: OracleTableRules, *, lobs: bool) -> OracleTable:
    columns: list[tuple[Column, NativeType]] = []
    names: list[str] = []
    left_out = []
    computed = []
    long = max((len(name) for name in (id.name,)), default=0)
    for name, _, kind, characters, size, precision, scale, nullable, default, identity, virtual in connection.rows(
        statements.COLUMNS, owner=id.schema, name=id.name
    ):
        long = max(long, len(str(name)))
        names.append(str(name))
        native = NativeType(str(kind), int(characters or size or 0), _whole(precision), _whole(scale))
        if virtual == "YES":
            computed.append((str(name), str(kind)))
            continue
        if not native.supported or (native.large and not lobs):
            left_out.append(f"{name} ({kind})")
            continue
        column = Column(
            name=str(name),
            position=len(columns) + 1,
            logical=native.logical,
            native_type=native.name.lower(),
            length=native.shown_length,
            scale=native.scale,
            nullable=nullable == "Y",
            default=_constant(default, native),
            default_expression=None if default is None else str(default).strip(),
            identity=identity == "YES",
            jdbc_type=native.jdbc_type,
            large=native.large,
        )
        columns.append((column, native))
    if computed:
        say_left_out(id.full_path, tuple(computed), "the log holds no values of virtual columns")
    if left_out:
        _LOG.warning("Columns of table %s that are not captured: %s.", id.path, ", ".join(left_out))
    if long > _LONGEST_NAME:
        _LOG.warning("Table %s has a name of more than 30 characters: LogMiner does not print its changes.", id.path)
    keys = _keys(connection.rows(statements.KEYS, owner=id.schema, name=id.name), {c.name: c for c, _ in columns})
    return replace(rules.table(id, columns, keys), columns=tuple(names))


def _keys(rows: Sequence[tuple[Any, ...]], columns: Mapping[str, Column]) -> list[UniqueKey]:
    """The primary key, and unique constraints of columns that are never NULL."""
    by_key: dict[tuple[str, str], list[str]] = {}
    for kind, constraint, column in rows:
        by_key.setdefault((str(kind), str(constraint)), []).append(str(column))
    keys = []
    for (kind, _), names in by_key.items():
        if all(name in columns for name in names) and (kind == "P" or not any(columns[n].nullable for n in names)):
            keys.append(UniqueKey(tuple(names), primary=kind == "P"))
    return keys


def _constant(default: Any, native: NativeType) -> str | None:
    """A default that is a literal, as canonical text."""
    match = _CONSTANT.fullmatch(str(default or "").strip())
    if match is None:
        return None
    text = match[1].replace("''", "'") if match[1] is not None else match[2]
    try:
        return native.decoded([text])[0]
    except ValueError:
        return None


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)
