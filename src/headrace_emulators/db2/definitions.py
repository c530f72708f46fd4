"""CREATE, ALTER and DROP of tables, unique indexes and schemas."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace

from headrace_emulators.db2.catalog import Catalog, Column, Key, Table, quoted
from headrace_emulators.db2.errors import ProgrammingError, not_emulated, undefined
from headrace_emulators.db2.syntax import Reader
from headrace_emulators.db2.types import parse_type


class Definitions:
    """Makes and changes tables.

    Args:
        sqlite: the connection.
        catalog: the tables that there are.
        now: the time as stored text.
    """

    def __init__(self, sqlite: sqlite3.Connection, catalog: Catalog, now: Callable[[], str]) -> None:
        self._sqlite = sqlite
        self._catalog = catalog
        self._now = now

    def run(self, reader: Reader, schema: str) -> None:
        """Run one definition.

        Raises:
            Error: as a server would answer.
        """
        if reader.accept("CREATE", "SCHEMA"):
            # A schema exists as soon as a table names it.
            reader.name()
        elif reader.accept("CREATE", "TABLE"):
            self.create(self._draft(reader, *reader.path(schema)))
        elif reader.accept("CREATE", "UNIQUE", "INDEX"):
            _, name = reader.path(schema)
            reader.expect("ON")
            table = self.table(*reader.path(schema))
            self._index(table, Key(name, reader.names()))
        elif reader.accept("ALTER", "TABLE"):
            self._alter(reader, self.table(*reader.path(schema)))
        elif reader.accept("DROP", "TABLE"):
            self.drop(self.table(*reader.path(schema)))
        else:
            raise not_emulated(f"{reader.word()} {reader.word(1)}")
        reader.finish()

    def declare(self, reader: Reader) -> None:
        """Let the catalog know a table that is a view here."""
        reader.expect("CREATE", "TABLE")
        self._catalog.save(self._draft(reader, *reader.path("SYSIBM")), self._now())

    def table(self, schema: str, name: str) -> Table:
        """A table by its name; raises SQL0204N without one."""
        found = self._catalog.find(schema, name)
        if found is None:
            raise undefined(f"{schema}.{name}")
        return found

    def create(self, table: Table) -> None:
        """Make a table; raises SQL0601N when there is one of that name."""
        if self._catalog.find(table.schema, table.name) is not None:
            raise ProgrammingError(
                -601, "42710", f'The name of the object to be created is identical to "{table.schema}.{table.name}".'
            )
        self._sqlite.execute(self._sql(table, table.path))
        for key in table.keys:
            self._sqlite.execute(self._unique(table, key))
        self._catalog.save(replace(table, number=self._catalog.next_number()), self._now())

    def drop(self, table: Table) -> None:
        self._sqlite.execute(f"DROP TABLE {quoted(table.path)}")
        self._catalog.drop(table)

    def _draft(self, reader: Reader, schema: str, name: str) -> Table:
        columns: list[Column] = []
        keys: list[Key] = []
        reader.expect("(")
        while True:
            constraint = reader.name() if reader.accept("CONSTRAINT") else ""
            if reader.accept("PRIMARY", "KEY"):
                keys.insert(0, Key(constraint or f"SQL_{name}_PK", reader.names(), True))
            elif reader.accept("UNIQUE"):
                keys.append(Key(constraint or f"SQL_{name}_U{len(keys)}", reader.names()))
            else:
                columns.append(self._column(reader, keys, name))
            if reader.accept(")"):
                break
            reader.expect(",")
        captured = reader.accept("DATA", "CAPTURE", "CHANGES")
        primary = {c for key in keys if key.primary for c in key.columns}
        made = tuple(replace(c, nullable=c.nullable and c.name not in primary) for c in columns)
        return Table(schema, name, 0, made, tuple(sorted(keys, key=lambda key: not key.primary)), captured)

    def _column(self, reader: Reader, keys: list[Key], table: str) -> Column:
        column = Column(reader.name(), parse_type(reader.type()))
        while reader.word() not in (",", ")", "") or reader.word() == "":
            if reader.done:
                break
            if reader.accept("NOT", "NULL"):
                column = replace(column, nullable=False)
            elif reader.accept("PRIMARY", "KEY"):
                column = replace(column, nullable=False)
                keys.insert(0, Key(f"SQL_{table}_PK", (column.name,), True))
            elif reader.accept("UNIQUE"):
                keys.append(Key(f"SQL_{table}_U{len(keys)}_{column.name}", (column.name,)))
            elif reader.accept("WITH", "DEFAULT") or reader.accept("DEFAULT"):
                bare = reader.word() in (",", ")", "NOT", "UNIQUE", "PRIMARY")
                column = replace(column, default=_system_default(column) if bare else reader.literal())
            elif reader.accept("GENERATED"):
                always = reader.accept("ALWAYS")
                if not always:
                    reader.expect("BY", "DEFAULT")
                reader.expect("AS", "IDENTITY")
                start = 1
                if reader.accept("("):
                    reader.expect("START", "WITH")
                    start = reader.integer()
                    reader.accept(",")
                    if reader.accept("INCREMENT", "BY") and reader.integer() != 1:
                        raise not_emulated("another increment than 1")
                    reader.expect(")")
                column = replace(column, identity="A" if always else "D", start=start, nullable=False)
            else:
                raise not_emulated(f"the column option {reader.word()}")
        return column

    @staticmethod
    def _sql(table: Table, path: str) -> str:
        columns = ", ".join(
            f"{quoted(c.name)} {c.type.column}{'' if c.nullable else ' NOT NULL'}" for c in table.columns
        )
        return f"CREATE TABLE {quoted(path)} ({columns})"

    @staticmethod
    def _unique(table: Table, key: Key) -> str:
        names = ", ".join(quoted(name) for name in key.columns)
        return f"CREATE UNIQUE INDEX {quoted(f'index {table.path} {key.name}')} ON {quoted(table.path)} ({names})"

    def _index(self, table: Table, key: Key) -> None:
        self._sqlite.execute(self._unique(table, key))
        self._catalog.altered(table, self._now(), keys=(*table.keys, key))

    def _alter(self, reader: Reader, table: Table) -> None:
        if reader.accept("DATA", "CAPTURE"):
            captured = reader.accept("CHANGES")
            if not captured:
                reader.expect("NONE")
            if reader.accept("INCLUDE"):
                reader.expect("LONGVAR", "COLUMNS")
            self._catalog.altered(table, self._now(), captured=captured)
            return
        if reader.accept("ACTIVATE"):
            control = "R" if reader.accept("ROW") else "C"
            reader.accept("COLUMN")
            reader.expect("ACCESS", "CONTROL")
            self._catalog.altered(table, self._now(), control=control)
            return
        while not reader.done:
            if reader.accept("ADD", "COLUMN") or reader.accept("ADD"):
                keys: list[Key] = []
                column = self._column(reader, keys, table.name)
                if keys or (not column.nullable and column.default is None):
                    raise not_emulated("adding a key, or a column that may not be NULL without a default")
                table = self._added(table, column)
            elif reader.accept("DROP", "COLUMN") or reader.accept("DROP"):
                table = self._dropped(table, reader.name())
            else:
                raise not_emulated(f"ALTER TABLE ... {reader.word()}")

    def _added(self, table: Table, column: Column) -> Table:
        default = ""
        if column.default is not None:
            if not column.default.lstrip("-").replace(".", "").isdigit() and not column.default.startswith("'"):
                raise not_emulated("adding a column with a default that is not a constant")
            default = f" DEFAULT {column.default}"
        null = "" if column.nullable else " NOT NULL"
        self._sqlite.execute(
            f"ALTER TABLE {quoted(table.path)} ADD COLUMN {quoted(column.name)} {column.type.column}{null}{default}"
        )
        return self._catalog.altered(table, self._now(), columns=(*table.columns, column))

    def _dropped(self, table: Table, name: str) -> Table:
        if table.column(name) is None:
            raise undefined(name)
        for (trigger,) in self._sqlite.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", (table.path,)
        ).fetchall():
            # The log's triggers name every column; they are made again for those that are left.
            self._sqlite.execute(f"DROP TRIGGER {quoted(trigger)}")
        self._sqlite.execute(f"ALTER TABLE {quoted(table.path)} DROP COLUMN {quoted(name)}")
        return self._catalog.altered(table, self._now(), columns=tuple(c for c in table.columns if c.name != name))


def _system_default(column: Column) -> str:
    kind = column.type
    if kind.name in ("DATE", "TIMESTAMP"):
        return f"CURRENT {kind.name}"
    if kind.binary:
        return "X''"
    return "0" if kind.numeric or kind.column in ("INTEGER", "REAL") else "''"
