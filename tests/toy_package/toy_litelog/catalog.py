"""The captured tables, as SQLite's catalog shows them, as the offset keeps them, and their values as texts."""

from __future__ import annotations

import base64
import json
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from headrace.changes import Column, LogicalType, TableId
from headrace.errors import CaptureError
from headrace.sources.rows import Image
from headrace.sources.tables.keys import UniqueKey
from headrace.sources.tables.lost import is_named
from headrace.sources.tables.masks import TableMasks
from headrace.sources.tables.selection import FoundTable, TableSelection
from headrace.sources.tables.table_rules import KeptTables, SourceTable, TableRules
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
    """A declared type, by its name in capitals."""

    name: str
    length: ClassVar[int | None] = None

    @property
    def logical(self) -> LogicalType:
        return LogicalType(_LOGICAL[self.name])

    def to_json(self) -> str:
        return self.name

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

    def image(self, image: str | None, masks: TableMasks) -> Image | None:
        """An image of the log; a column that it lacks is absent."""
        if image is None:
            return None
        given = json.loads(image)
        pairs = list(zip(self.schema.columns, self.natives, strict=True))
        texts = masks.apply([pa.array([native.canonical(given.get(c.name))], pa.string()) for c, native in pairs])
        return {c.name: text[0].as_py() for (c, _), text in zip(pairs, texts, strict=True) if c.name in given}


tables_of = KeptTables(LiteTable, Native)


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
    names = connection.execute(
        "SELECT name, EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name = 'headrace_insert_' || "
        "t.name) FROM sqlite_master t WHERE type = 'table' ORDER BY name"
    )
    found = [FoundTable(SCHEMA, name, number, bool(triggers)) for number, (name, triggers) in enumerate(names)]
    selection = TableSelection(database(settings.path), settings.tables, strict=strict)
    chosen = selection.among(found, _not_captured, "Run toy_litelog.install.capture")
    return {table.path: _described(connection, table, settings) for table in chosen}


def _not_captured(table: FoundTable, _: str) -> CaptureError:
    return CaptureError(f"Table '{table.path}' is not captured.", remedy="Run toy_litelog.install.capture for it.")


def _described(connection: sqlite3.Connection, found: FoundTable, settings: LitelogSettings) -> LiteTable:
    columns = columns_in(connection, found.name)
    info = connection.execute(f"PRAGMA table_info({quoted(found.name)})").fetchall()
    key = tuple(name for _, name, _, _, _, place in sorted(info, key=lambda line: line[5]) if place)
    if not key:
        raise CaptureError(f"Table '{found.path}' has no primary key.", remedy="Add one, or take it off 'tables'.")
    id = TableId(database(settings.path), SCHEMA, found.name)
    table = TableRules.of(settings).chosen(id, columns, [UniqueKey(key, primary=True)])
    names = tuple(column.name for column, _ in columns)
    return LiteTable(table.schema, table.natives, table.chunk_key, table.protected, columns=names)


def means(settings: LitelogSettings, path: str) -> bool:
    """Whether the options mean a table, which may be there or not."""
    return is_named(path, settings.tables, (), database(settings.path))
