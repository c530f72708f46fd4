"""The tables of a database as the emulator knows them, and as SYSCAT and SYSIBM show them."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field, replace

from headrace_emulators.db2.types import Db2Type, parse_type


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        name: as the catalog spells it.
        type: its declared type.
        nullable: whether it may be NULL.
        default: its DEFAULT as it was written; None without one.
        identity: `A` (ALWAYS) or `D` (BY DEFAULT) of an identity column, else empty.
        start: the first number of an identity column.
    """

    name: str
    type: Db2Type
    nullable: bool = True
    default: str | None = None
    identity: str = ""
    start: int = 1


@dataclass(frozen=True)
class Key:
    """A primary key, UNIQUE constraint or unique index."""

    name: str
    columns: tuple[str, ...]
    primary: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        schema: its schema.
        name: its name.
        number: TABLEID.
        columns: in order.
        keys: the primary key first.
        captured: DATA CAPTURE CHANGES.
        control: `R` or `C` where row or column access control is active; the emulator hides nothing for it.
    """

    schema: str
    name: str
    number: int
    columns: tuple[Column, ...]
    keys: tuple[Key, ...] = field(default=())
    captured: bool = False
    control: str = " "

    @property
    def path(self) -> str:
        return f"{self.schema}.{self.name}"

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def to_text(self) -> str:
        columns = [vars(column) | {"type": column.type.declaration} for column in self.columns]
        return json.dumps(vars(self) | {"columns": columns, "keys": [vars(key) for key in self.keys]})

    @classmethod
    def from_text(cls, text: str) -> Table:
        """Read `to_text`'s form back."""
        data = json.loads(text)
        columns = tuple(Column(**{**column, "type": parse_type(column["type"])}) for column in data["columns"])
        keys = tuple(Key(key["name"], tuple(key["columns"]), key["primary"]) for key in data["keys"])
        return cls(
            data["schema"], data["name"], data["number"], columns, keys, data["captured"], data.get("control", " ")
        )


def quoted(name: str) -> str:
    """An identifier whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


SYSTEM = ("SYSCAT", "SYSIBM")
SPACE = 2
"""The table space of all tables."""


class Catalog:
    """The tables of one database file, read again when its structure changes.

    Args:
        sqlite: the connection.
    """

    def __init__(self, sqlite: sqlite3.Connection) -> None:
        self._sqlite = sqlite
        self._version = -1
        self._tables: dict[tuple[str, str], Table] = {}

    def refresh(self) -> bool:
        """Whether something changed since the last look."""
        (version,) = self._sqlite.execute("PRAGMA schema_version").fetchone()
        if version == self._version:
            return False
        rows = self._sqlite.execute('SELECT body FROM "emulator.tables"').fetchall()
        found = (Table.from_text(body) for (body,) in rows)
        self._tables = {(table.schema, table.name): table for table in found}
        self._version = version
        return True

    def forget(self) -> None:
        """Something changed without a change of SQLite's structure."""
        self._version = -1

    def find(self, schema: str, name: str) -> Table | None:
        self.refresh()
        return self._tables.get((schema, name))

    def next_number(self) -> int:
        self._sqlite.execute("UPDATE \"emulator.state\" SET value = value + 1 WHERE name = 'table'")
        (number,) = self._sqlite.execute("SELECT value FROM \"emulator.state\" WHERE name = 'table'").fetchone()
        return int(number)

    def save(self, table: Table, now: str) -> None:
        """Add a table, or put it in the place of the one of that name."""
        self._sqlite.execute(
            'INSERT OR REPLACE INTO "emulator.tables" VALUES (?, ?, ?)', (table.schema, table.name, table.to_text())
        )
        self._describe(table, now)
        self.forget()

    def drop(self, table: Table) -> None:
        place = (table.schema, table.name)
        self._sqlite.execute('DELETE FROM "emulator.tables" WHERE schema = ? AND name = ?', place)
        self._undescribe(table)
        self.forget()

    def altered(self, table: Table, now: str, **facts: object) -> Table:
        """A table with other facts, saved."""
        made = replace(table, **facts)  # type: ignore[arg-type]
        self.save(made, now)
        return made

    def _undescribe(self, table: Table) -> None:
        # Uses of an index are found by the index, so they go first.
        for name in ("INDEXCOLUSE", "INDEXES", "COLUMNS", "TABLES"):
            which = "TABSCHEMA = ? AND TABNAME = ?"
            if name == "INDEXCOLUSE":
                which = f'(INDSCHEMA, INDNAME) IN (SELECT INDSCHEMA, INDNAME FROM "SYSCAT.INDEXES" WHERE {which})'
            self._sqlite.execute(f'DELETE FROM "SYSCAT.{name}" WHERE {which}', (table.schema, table.name))

    def _describe(self, table: Table, now: str) -> None:
        if table.schema in SYSTEM:
            return
        known = self._sqlite.execute(
            'SELECT CREATE_TIME FROM "SYSCAT.TABLES" WHERE TABSCHEMA = ? AND TABNAME = ?', (table.schema, table.name)
        ).fetchone()
        self._undescribe(table)
        capture = "Y" if table.captured else "N"
        self._sqlite.execute(
            'INSERT INTO "SYSCAT.TABLES" VALUES (?, ?, ?, ?, ?, ?, -1, ?, ?, NULL, 0, ?)',
            (
                table.schema,
                table.name,
                "T",
                SPACE,
                table.number,
                capture,
                known[0] if known else now,
                now,
                table.control,
            ),
        )
        for number, column in enumerate(table.columns):
            self._sqlite.execute(
                f'INSERT INTO "SYSCAT.COLUMNS" VALUES ({", ".join("?" * 13)})',
                (table.schema, table.name, column.name, number, *column.type.catalogued,
                 "Y" if column.nullable else "N", column.default, "Y" if column.identity else "N",
                 column.identity or " ", None),
            )  # fmt: skip
        for number, key in enumerate(table.keys, 1):
            self._sqlite.execute(
                'INSERT INTO "SYSCAT.INDEXES" VALUES (?, ?, ?, ?, ?, ?)',
                (table.schema, key.name, table.schema, table.name, "P" if key.primary else "U", number),
            )
            for place, column_name in enumerate(key.columns, 1):
                self._sqlite.execute(
                    'INSERT INTO "SYSCAT.INDEXCOLUSE" VALUES (?, ?, ?, ?)', (table.schema, key.name, column_name, place)
                )


SYSTEM_TABLES = """
CREATE TABLE SYSCAT.TABLES (TABSCHEMA VARCHAR(128) NOT NULL, TABNAME VARCHAR(128) NOT NULL, TYPE CHAR(1) NOT NULL,
  TBSPACEID SMALLINT, TABLEID INTEGER, DATACAPTURE CHAR(1), CARD BIGINT, CREATE_TIME TIMESTAMP, ALTER_TIME TIMESTAMP,
  REMARKS VARCHAR(254), LOG_ATTRIBUTE CHAR(1), CONTROL CHAR(1));
CREATE TABLE SYSCAT.COLUMNS (TABSCHEMA VARCHAR(128) NOT NULL, TABNAME VARCHAR(128) NOT NULL,
  COLNAME VARCHAR(128) NOT NULL, COLNO SMALLINT NOT NULL, TYPENAME VARCHAR(128) NOT NULL, LENGTH INTEGER NOT NULL,
  SCALE SMALLINT NOT NULL, CODEPAGE SMALLINT NOT NULL, NULLS CHAR(1) NOT NULL, DEFAULT VARCHAR(254), IDENTITY CHAR(1),
  GENERATED CHAR(1), REMARKS VARCHAR(254));
CREATE TABLE SYSCAT.INDEXES (INDSCHEMA VARCHAR(128) NOT NULL, INDNAME VARCHAR(128) NOT NULL,
  TABSCHEMA VARCHAR(128) NOT NULL, TABNAME VARCHAR(128) NOT NULL, UNIQUERULE CHAR(1) NOT NULL, IID SMALLINT NOT NULL);
CREATE TABLE SYSCAT.INDEXCOLUSE (INDSCHEMA VARCHAR(128) NOT NULL, INDNAME VARCHAR(128) NOT NULL,
  COLNAME VARCHAR(128) NOT NULL, COLSEQ SMALLINT NOT NULL);
CREATE TABLE SYSIBM.SYSDUMMY1 (IBMREQD CHAR(1) NOT NULL);
"""
"""What is known of the catalog here: of each view the columns that capture reads."""
