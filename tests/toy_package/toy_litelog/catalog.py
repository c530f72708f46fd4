"""The captured tables, as SQLite's catalog shows them, as the offset keeps them, and their values as texts."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.table_pattern import TablePattern
from headrace.errors import CaptureError
from headrace.sources.offset import Recent
from headrace.sources.tables.keys import UniqueKey
from headrace.sources.tables.lost import is_named
from headrace.sources.tables.masks import TableMasks
from headrace.sources.tables.table_rules import SourceTable, TableRules, known_table
from toy_litelog.options import LitelogSettings

SCHEMA = "main"
_LOGICAL = {"INTEGER": "int64", "REAL": "float64", "TEXT": "string", "BLOB": "bytes"}
_SPECIAL = {"inf": "Infinity", "-inf": "-Infinity"}
_SQL = {
    "INTEGER": "CAST({} AS TEXT)",
    # Seventeen digits say which double it is; JSON and SQLite's own texts have fifteen.
    "REAL": "printf('%!.17g', {})",
    "TEXT": "{}",
    "BLOB": "hex({})",
}


@dataclass(frozen=True)
class Native:
    """A declared type.

    Args:
        name: in capitals.
    """

    name: str

    @property
    def logical(self) -> LogicalType:
        return LogicalType(_LOGICAL[self.name])

    @property
    def length(self) -> int | None:
        return None

    def sql(self, column: str) -> str:
        """An expression with the text of a column's value, from which `canonical` goes on."""
        return f"CASE WHEN {column} IS NOT NULL THEN {_SQL[self.name].format(column)} END"

    def canonical(self, given: str | None) -> str | None:
        """The canonical text of what `sql` gave."""
        if given is None or self.name in ("INTEGER", "TEXT"):
            return given
        if self.name == "BLOB":
            return base64.b64encode(bytes.fromhex(given)).decode()
        number = repr(float(given))
        return _SPECIAL.get(number, number)

    def bound(self, canonical: str) -> Any:
        """A value that SQLite compares as its own, for bounds of chunks."""
        if self.name == "INTEGER":
            return int(canonical)
        if self.name == "BLOB":
            return base64.b64decode(canonical)
        return float(canonical) if self.name == "REAL" else canonical


@dataclass(frozen=True)
class LiteTable(SourceTable[Native]):
    """A captured table. It has a primary key."""

    def to_json(self) -> dict[str, Any]:
        """JSON values, as an offset keeps them."""
        return {
            "schema": self.schema.to_json(),
            "natives": [native.name for native in self.natives],
            "chunk_key": list(self.chunk_key),
            "protected": list(self.protected),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LiteTable:
        """Read `to_json`'s form back."""
        known_table(data)
        natives = tuple(map(Native, data["natives"]))
        return cls(TableSchema.from_json(data["schema"]), natives, tuple(data["chunk_key"]), tuple(data["protected"]))

    def texts(self, image: str | None, masks: TableMasks) -> list[tuple[str, str | None]] | None:
        """The columns of an image of the log; one that the image lacks is absent."""
        if image is None:
            return None
        given = json.loads(image)
        pairs = list(zip(self.schema.columns, self.natives, strict=True))
        texts = masks.apply([pa.array([native.canonical(given.get(c.name))], pa.string()) for c, native in pairs])
        return [(c.name, text[0].as_py()) for (c, _), text in zip(pairs, texts, strict=True) if c.name in given]


_TABLES: Recent[dict[str, LiteTable]] = Recent()


def tables_of(schemas: Mapping[str, Any]) -> dict[str, LiteTable]:
    """The tables of an offset by path; not to be changed, because it is cached."""
    return _TABLES.of(schemas, lambda: {path: LiteTable.from_json(data) for path, data in schemas.items()})


def quoted(name: str) -> str:
    """A name as statements write it."""
    return '"' + name.replace('"', '""') + '"'


def database(path: str) -> str:
    return Path(path).stem


def columns_in(connection: sqlite3.Connection, table: str) -> list[tuple[Column, Native]]:
    """The columns of a table.

    Raises:
        CaptureError: one has a type that is not known here.
    """
    found = []
    for _, name, declared, not_null, default, key in connection.execute(f"PRAGMA table_info({quoted(table)})"):
        if declared.upper() not in _LOGICAL:
            raise CaptureError(
                f"Column '{name}' of table '{table}' is {declared or 'without a type'}.",
                remedy=f"Types that are captured: {', '.join(_LOGICAL)}.",
            )
        native = Native(declared.upper())
        nullable = not (not_null or key)
        column = Column(name, len(found) + 1, native.logical, native_type=native.name, nullable=nullable)
        found.append((replace(column, default_expression=default), native))
    return found


def captured(
    connection: sqlite3.Connection, settings: LitelogSettings, *, strict: bool = False
) -> dict[str, LiteTable]:
    """The tables that the options name and triggers capture, by `main.name`.

    Raises:
        CaptureError: one has no primary key; or, with `strict`, one that is named is not captured.
    """
    rules = TableRules.of(settings)
    names = connection.execute(
        "SELECT t.name FROM sqlite_master t JOIN sqlite_master g ON g.name = 'headrace_insert_' || t.name "
        "WHERE t.type = 'table' AND g.type = 'trigger' ORDER BY t.name"
    ).fetchall()
    ids = [TableId(database(settings.path), SCHEMA, name) for (name,) in names]
    found = {}
    for id in _named(ids, settings.tables):
        columns = columns_in(connection, id.name)
        info = connection.execute(f"PRAGMA table_info({quoted(id.name)})").fetchall()
        key = tuple(name for _, name, _, _, _, place in sorted(info, key=lambda line: line[5]) if place)
        if not key:
            raise CaptureError(f"Table '{id.path}' has no primary key.", remedy="Add one, or take it off 'tables'.")
        table = rules.chosen(id, columns, [UniqueKey(key, primary=True)])
        found[id.path] = LiteTable(
            table.schema, table.natives, table.chunk_key, table.protected, columns=tuple(c.name for c, _ in columns)
        )
    missing = [path for path in settings.tables if path not in found and "*" not in path]
    if strict and missing:
        raise CaptureError(f"Table '{missing[0]}' is not captured.", remedy="Run toy_litelog.install.capture for it.")
    return found


def means(settings: LitelogSettings, path: str) -> bool:
    """Whether the options mean a table, which may be there or not."""
    return is_named(path, settings.tables, (), database(settings.path))


def _named(ids: Iterable[TableId], patterns: Sequence[str]) -> list[TableId]:
    ids = list(ids)
    if not patterns:
        return ids
    meant = {id for text in patterns for id in TablePattern(text, in_source=True).among(ids, lambda one: one)}
    return [id for id in ids if id in meant]
