"""The server's catalog: which tables are captured, and how they look now."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.changes import Column, TableId
from headrace.errors import CaptureError
from headrace.options import bare
from headrace.sources.log.table_changes import TableChanges
from headrace.sources.mysql.captured_table import MysqlTable, tables_of
from headrace.sources.mysql.connection import Connection, login_of
from headrace.sources.mysql.foreign_keys import require_followed, unlogged_keys
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.refusals import identifier
from headrace.sources.mysql.snapshot_statements import text
from headrace.sources.mysql.stream_state import StreamState
from headrace.sources.mysql.types import NativeType
from headrace.sources.offset import Offset
from headrace.sources.signals import say_once
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.chunks import read_first
from headrace.sources.tables.keys import UniqueKey
from headrace.sources.tables.lost import is_named
from headrace.sources.tables.rewrites import Rewrite, follow_rewrites
from headrace.sources.tables.selection import FoundTable, TableSelection, require_own_paths
from headrace.sources.tables.table_rules import TableRules, no_column_left
from headrace.sources.tables.unmatched import require_matched_tables

_REMEDY = "Create it"

_QUOTED = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_CONTROLS = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}
_BITS = re.compile(r"b'([01]+)'")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]*)?(?:e[-+]?[0-9]+)?", re.IGNORECASE)
_UNSHOWN = "?"
"""What both catalogs show for a character of four bytes, and for a byte that is none of a text."""
_COMPUTED = "default_generated"
_PLAIN = re.compile(r"\w+")
"""Matches the plain name of a database; anything else is a regular expression."""
_SYSTEM = ("information_schema", "mysql", "performance_schema", "sys")
_TABLES = """
SELECT table_schema, table_name, table_type, LOWER(COALESCE(engine, '')), table_rows, table_comment
FROM information_schema.tables WHERE table_schema NOT IN ({}) ORDER BY table_schema, table_name
"""
_ROWS = """
SELECT table_schema, table_name, table_rows FROM information_schema.tables WHERE (table_schema, table_name) IN ({})
"""
_COLUMNS = """
SELECT table_schema, table_name, column_name, column_type, character_set_name, is_nullable = 'YES', column_default,
  LOWER(extra), column_comment, collation_name, generation_expression
FROM information_schema.columns WHERE (table_schema, table_name) IN ({})
ORDER BY table_schema, table_name, ordinal_position
"""
# A part of a column, or an expression, is not a key of rows.
_KEYS = """
SELECT table_schema, table_name, index_name, GROUP_CONCAT(HEX(column_name) ORDER BY seq_in_index),
  GROUP_CONCAT(COALESCE(sub_part, '') ORDER BY seq_in_index), COUNT(column_name) = COUNT(*)
FROM information_schema.statistics WHERE non_unique = 0 AND (table_schema, table_name) IN ({})
GROUP BY table_schema, table_name, index_name
ORDER BY table_schema, table_name, index_name <> 'PRIMARY', index_name
"""
_CHECKS = """
SELECT constraint_schema, table_name, check_clause FROM information_schema.check_constraints
WHERE (constraint_schema, table_name) IN ({})
"""
_JSON = re.compile(r"\s*\(?json_valid\(`((?:[^`]|``)+)`\)\)?\s*", re.IGNORECASE)
_OTHERS = {
    "VIEW": "a view",
    "SYSTEM VIEW": "a view of the server's own",
    "SEQUENCE": "a sequence",
    "TEMPORARY": "a temporary table",
}
_HASH_DIGITS = 16
_VERSIONED = "SYSTEM VERSIONED"
_WITHOUT_LOG = frozenset(("ndbcluster", "ndb", "performance_schema"))
"""Engines whose changes the server does not write to its log as rows of the table."""
_LOST_CHANGES = frozenset(("blackhole",))


class TableSet:
    """The captured tables of one process; an ALTER TABLE in the log makes it read the catalog again.

    Args:
        settings: the source's options.
    """

    def __init__(self, settings: MysqlSettings) -> None:
        self._settings = settings

    def captured(self, connection: Connection, *, strict: bool) -> dict[str, MysqlTable]:
        """The tables that the options mean, by path."""
        return Catalog(connection, self._settings).captured(strict=strict)

    def with_cascades(self, connection: Connection, offset: Offset) -> Offset:
        """The offset with the foreign keys of its tables whose actions are not logged.

        Raises:
            CaptureError: there is one, and the options say to stop there.
        """
        keys, state = unlogged_keys(connection, tables_of(offset.schemas)), StreamState.of(offset)
        require_followed(keys, self._settings)
        return offset if keys == state.cascades else replace(state, cascades=keys).in_offset(offset)

    def follow(
        self,
        start: Offset,
        captured: Mapping[str, MysqlTable],
        *,
        restarted: bool,
        rewrites: Sequence[Rewrite] = (),
        replaced: Collection[str] = (),
        rows: Callable[[Sequence[MysqlTable]], Mapping[str, int]] = lambda _: {},
    ) -> Offset:
        """The offset with tables as they were found; `start` itself where nothing has changed.

        Args:
            start: where the last batch ended.
            captured: the captured tables.
            restarted: whether a new process does it, whose options may be others.
            rewrites: of tables whose rows may have changed without a change in the log.
            replaced: those of them of which all rows may be others.
            rows: asks about how many rows tables have, by path.

        Raises:
            CaptureError: the options say to stop at such a table.
        """
        known, state = tables_of(start.schemas), StreamState.of(start)
        require_matched_tables(self._settings, known, captured, [path for path in captured if path not in known])
        read = read_first(self._settings, (table.id for table in captured.values()))
        fresh = [path for path in captured if path not in known]
        changes = TableChanges.said(
            self._settings,
            start,
            captured,
            fresh,
            lambda path: means(self._settings, path),
            read=read,
            remedy=_REMEDY,
            restarted=restarted,
        )
        ad_hoc = AdHoc.from_json(start.ad_hoc).after_added(start.commit)
        # A snapshot of its own ends with what is gone.
        whole = {path: replace(captured[path], chunk_key=()) for path in replaced if path in captured}
        ad_hoc = follow_rewrites(
            [rewrite for rewrite in rewrites if rewrite.path in captured and rewrite.path in start.known],
            ad_hoc,
            {**captured, **whole},
            self._settings,
            read=read,
            rows=rows,
            since=start.commit,
            under_way=start.tables,
        )
        end = changes.in_offset(start, state, changes.with_reads(ad_hoc))
        return start if end == start else end


def constant_default(shown: str, extra: str, native: NativeType, *, is_mariadb: bool) -> str | None:
    """A default that is a constant, as a canonical text; None for an expression, and where the catalog can't show it.

    Args:
        shown: as the catalog has it: MariaDB's as SQL, MySQL's as its bare text.
        extra: what else the catalog says of the column, in lower case.
        native: the column's type.
        is_mariadb: whose catalog it is.
    """
    value = _literal(shown, native) if is_mariadb else None if _COMPUTED in extra else _bare(shown, native)
    if value is None:
        return None
    printed: str | None = native.printed_texts(pa.array([value], pa.binary()))[0].as_py()
    return printed


def _literal(shown: str, native: NativeType) -> bytes | None:
    """The bytes of a literal, as the server prints a value."""
    if native.kind == "bit":
        return _bits(shown, native)
    quoted = _QUOTED.fullmatch(shown)
    if quoted is not None:
        text = _ESCAPED.sub(lambda found: "'" if found[1] is None else _CONTROLS.get(found[1], found[1]), quoted[1])
        return None if _UNSHOWN in text else text.encode()
    return shown.encode() if _NUMBER.fullmatch(shown) else None


def _bare(shown: str, native: NativeType) -> bytes | None:
    if native.kind == "bit":
        return _bits(shown, native)
    # Bytes are shown up to the first that is zero.
    return None if _UNSHOWN in shown or native.logical.kind == "bytes" else shown.encode()


def _bits(shown: str, native: NativeType) -> bytes | None:
    match = _BITS.fullmatch(shown)
    return None if match is None else int(match[1], 2).to_bytes(((native.length or 1) + 7) // 8, "big")


class CatalogTable(NamedTuple):
    """A row of the catalog's list of tables.

    Args:
        rows: about how many rows it has; None where the server does not say it.
    """

    database: str
    name: str
    kind: str
    engine: str
    rows: int | None
    comment: str

    @property
    def id(self) -> TableId:
        """Its name in change rows."""
        return TableId(self.database, "", self.name)

    @property
    def lack(self) -> CaptureError | None:
        """Why it can't be captured; None where it can."""
        path = self.id.path
        if self.kind in _OTHERS:
            return CaptureError(
                f"'{path}' is {_OTHERS[self.kind]}, and only tables have changes in the log.",
                remedy="Name the tables that it is made of, or leave it out.",
            )
        if self.kind == _VERSIONED:
            return CaptureError(
                f"Table '{path}' keeps versions of its rows (WITH SYSTEM VERSIONING), and the log has old versions "
                "among the new ones.",
                remedy="Leave it out.",
            )
        if self.engine in _WITHOUT_LOG:
            return CaptureError(
                f"The changes of table '{path}' are not in the log, because its engine is {self.engine}.",
                remedy=f"Run: ALTER TABLE {identifier(self.database)}.{identifier(self.name)} ENGINE=InnoDB;",
            )
        if self.engine in _LOST_CHANGES:
            return CaptureError(
                f"Table '{path}' keeps no rows, because its engine is {self.engine}.", remedy="Leave it out."
            )
        return None


class Catalog:
    """The tables of a server.

    Args:
        connection: to the server.
        settings: the source's options.
    """

    def __init__(self, connection: Connection, settings: MysqlSettings) -> None:
        self._connection = connection
        self._settings = settings
        tables = (CatalogTable(*row) for row in connection.rows(_TABLES.format(", ".join(map(text, _SYSTEM)))))
        meant = [table for table in tables if is_meant(settings, table.database)]
        require_own_paths(table.id for table in meant)
        self.tables = {table.id.path: table for table in meant}

    def captured(self, *, strict: bool, known: Collection[str] = ()) -> dict[str, MysqlTable]:
        """The tables that the options mean, by path, in the order of the include list, as they are now.

        Args:
            strict: whether it is an error that a named table is not there or can't be captured, or that there is none.
            known: tables that may be missing all the same, because they were captured once.

        Raises:
            CaptureError: a named table is not there or can't be captured, or there is none at all (where `strict`); a
                key can't be as the options say.
            OptionError: an option can't be applied to a table.
            SchemaError: a captured column is of a type that nobody knows.
        """
        chosen = self._chosen(strict=strict, known=known)
        return self._described(chosen, TableRules.of(self._settings), strict=strict) if chosen else {}

    def _chosen(self, *, strict: bool, known: Collection[str]) -> list[CatalogTable]:
        include = named_tables(self._settings)
        strict_names, permit = strict and bool(include), self._permit() if strict else ""
        selection = TableSelection("", include, self._settings.tables_excluded, (), strict_names, known, permit)
        listed = list(self.tables.values())
        tables = [FoundTable(t.database, t.name, number, t.lack is None) for number, t in enumerate(listed)]

        def not_captured(table: FoundTable, _: str) -> CaptureError:
            return listed[table.number].lack or CaptureError(f"Table '{table.path}' can't be captured.")

        chosen = [listed[table.number] for table in selection.among(tables, not_captured, "")]
        for table in listed:
            if table.kind not in _OTHERS and table.lack is not None and means(self._settings, table.id.path):
                say_once(f"{table.lack} It is not captured.")
        if strict and not chosen and not known:
            raise CaptureError(
                "The server shows this login no table to capture.",
                remedy=f"{permit} If it may read them, check 'databases', 'tables' and 'tables_excluded'.",
            )
        return chosen

    def _permit(self) -> str:
        """How the login comes to see tables: the server shows it none on which it has no permission."""
        named = [name for name in self._settings.databases if _PLAIN.fullmatch(bare(name))]
        scopes = [f"{identifier(bare(name))}.*" for name in named] or ["<database>.*"]
        login = login_of(self._connection)
        grants = " ".join(f"GRANT SELECT ON {scope} TO {login};" for scope in scopes)
        return f"A login sees no table that it may not read. Run: {grants}"

    def _described(self, chosen: Sequence[CatalogTable], rules: TableRules, *, strict: bool) -> dict[str, MysqlTable]:
        names = ", ".join(f"({text(table.database)}, {text(table.name)})" for table in chosen)
        columns = _grouped(self._connection.rows(_COLUMNS.format(names)))
        keys = _grouped(self._connection.rows(_KEYS.format(names)))
        checks = _grouped(self._connection.rows(_CHECKS.format(names))) if self._connection.server.is_mariadb else {}
        by_path = {}
        for table in chosen:
            table_columns, json = columns[table.id.path], _json_columns(checks.get(table.id.path, ()))
            described = [
                _column(position, row, is_json=row[0] in json, is_mariadb=self._connection.server.is_mariadb)
                for position, row in enumerate(table_columns, 1)
            ]
            if not described and strict:
                raise no_column_left(table.id)
            if not described:
                # Dropped since the tables were listed, or the user may not see a column.
                continue
            nullable = {column.name for column, _ in described if column.nullable}
            unique = [
                UniqueKey(parts, primary=index == "PRIMARY")
                for index, hexed, parts_of, whole in keys[table.id.path]
                if whole and not str(parts_of).strip(",") and nullable.isdisjoint(parts := _names(hexed))
            ]
            chosen_table = rules.chosen(table.id, described, unique, table.comment or None)
            by_path[table.id.path] = MysqlTable(
                chosen_table.schema,
                chosen_table.natives,
                chosen_table.chunk_key,
                chosen_table.protected,
                table.engine,
                columns=tuple(str(row[0]) for row in table_columns),
                structure=_structure(table_columns, keys[table.id.path]),
            )
        return by_path


def estimated_rows(connection: Connection, tables: Sequence[TableId]) -> dict[str, int]:
    """About how many rows tables have, by path, without those that are empty or not counted for the server."""
    if not tables:
        return {}
    names = ", ".join(f"({text(table.database)}, {text(table.name)})" for table in tables)
    estimates = {
        TableId(str(a), "", str(b)).path: int(rows or 0) for a, b, rows in connection.rows(_ROWS.format(names))
    }
    return {path: rows for path, rows in estimates.items() if rows}


def named_tables(settings: MysqlSettings) -> tuple[str, ...]:
    """The patterns of the tables that the options name; empty for all."""
    return (settings.table,) if settings.table else tuple(settings.tables)


def is_meant(settings: MysqlSettings, database: str) -> bool:
    include, exclude = settings.databases, settings.databases_excluded
    wanted = not include or any(_names_database(pattern, database) for pattern in include)
    return wanted and not any(_names_database(pattern, database) for pattern in exclude)


def means(settings: MysqlSettings, path: str) -> bool:
    """Whether the options mean a table (`database.table`), which may be there or not."""
    named = is_named(path, named_tables(settings), settings.tables_excluded, "")
    return named and is_meant(settings, path.partition(".")[0])


def _names_database(pattern: str, database: str) -> bool:
    expression = bare(pattern).removeprefix("re:")
    if expression == pattern and fnmatchcase(database, pattern):
        return True
    return re.fullmatch(expression, database) is not None


def _column(position: int, row: Sequence[Any], *, is_json: bool, is_mariadb: bool) -> tuple[Column, NativeType]:
    name, declared, charset, nullable, shown, extra, comment, *_ = row
    native = NativeType.of_catalog(str(declared), charset, json=is_json)
    # MariaDB shows expressions, of which NULL is one.
    expression = None if shown is None or (is_mariadb and str(shown).upper() == "NULL") else str(shown)
    default = None if expression is None else constant_default(expression, extra, native, is_mariadb=is_mariadb)
    column = Column(
        name=str(name),
        position=position,
        logical=native.logical,
        native_type=native.name,
        length=native.length,
        scale=native.scale,
        nullable=bool(nullable),
        default=default,
        default_expression=expression,
        identity="auto_increment" in extra,
        generated="generated" in extra.replace("default_generated", ""),
        large=native.large,
        comment=comment or None,
        enum_values=native.enum_values,
    )
    return column, native


def _structure(columns: Sequence[Sequence[Any]], keys: Sequence[Sequence[Any]]) -> str:
    """What two tables with the same columns and unique keys have in common; empty where a key is of expressions."""
    if not all(whole for _, _, _, whole in keys):
        return ""
    # Defaults and comments count for rows that are to come, and for none.
    shown = [
        [str(name), str(declared), charset, bool(nullable), "auto_increment" in extra, collation, expression or ""]
        for name, declared, charset, nullable, _, extra, _, collation, expression in columns
    ]
    unique = sorted([_text(hexed), _text(parts)] for _, hexed, parts, _ in keys)
    return hashlib.sha256(json.dumps([shown, unique], default=_text).encode()).hexdigest()[:_HASH_DIGITS]


def _text(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _json_columns(checks: Iterable[Sequence[Any]]) -> set[str]:
    """The columns of which a check says that they are JSON, which is how MariaDB keeps this type."""
    matches = (_JSON.fullmatch(str(clause)) for (clause,) in checks)
    return {match[1].replace("``", "`") for match in matches if match}


def _names(hexed: object) -> tuple[str, ...]:
    """Column names, which come in hexadecimal because a name may have a comma."""
    return tuple(bytes.fromhex(part).decode() for part in _text(hexed).split(","))


def _grouped(rows: Iterable[Sequence[Any]]) -> dict[str, list[Sequence[Any]]]:
    grouped: dict[str, list[Sequence[Any]]] = defaultdict(list)
    for database, name, *rest in rows:
        grouped[TableId(str(database), "", str(name)).path].append(rest)
    return grouped
