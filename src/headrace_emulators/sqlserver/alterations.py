"""ALTER, DROP, TRUNCATE and renaming of tables: what capture allows of it, and what it leaves in cdc.ddl_history."""

from __future__ import annotations

import re

from headrace_emulators.sqlserver import change_log
from headrace_emulators.sqlserver.catalog import ColumnInfo, TableInfo, column_definition, quoted
from headrace_emulators.sqlserver.change_log import has_pending, written
from headrace_emulators.sqlserver.definitions import no_subqueries
from headrace_emulators.sqlserver.drafts import KeyDraft, read_column, read_constraint
from headrace_emulators.sqlserver.errors import ProgrammingError, invalid_object
from headrace_emulators.sqlserver.instances import drop_instance
from headrace_emulators.sqlserver.lsn import next_block
from headrace_emulators.sqlserver.reader import StatementReader
from headrace_emulators.sqlserver.scope import Value
from headrace_emulators.sqlserver.statements import StatementTranslator
from headrace_emulators.sqlserver.storage import SqlServerStorage
from headrace_emulators.sqlserver.types import DEFAULT_COLLATION, SqlType


class Alterations:
    """Changes tables of one database. All of it runs inside the caller's transaction.

    Args:
        storage: the connection.
    """

    def __init__(self, storage: SqlServerStorage) -> None:
        self._connection = storage.sqlite
        self._catalog = storage.catalog
        self._now = storage.now
        self._definitions = storage.definitions

    def run(self, text: str) -> None:
        """Carry out one ALTER TABLE, DROP TABLE or TRUNCATE TABLE."""
        reader = StatementReader(text, self._definitions.alias_types())
        if reader.accept("ALTER", "TABLE"):
            self._alter_table(reader)
        elif reader.accept("DROP", "TABLE"):
            self._drop_tables(reader)
        else:
            reader.expect("TRUNCATE", "TABLE")
            self._truncate(reader)

    def _alter_table(self, reader: StatementReader) -> None:
        table = self._definitions.existing(reader)
        change_log.drop_triggers(self._connection, table)
        required = False
        if reader.accept("ADD"):
            while True:
                self._add(reader, table)
                if not reader.accept(","):
                    break
        elif reader.accept("DROP", "COLUMN"):
            while True:
                self._drop_column(table, reader.name())
                if not reader.accept(","):
                    break
        elif reader.accept("ALTER", "COLUMN"):
            required = self._alter_column(reader, table)
        else:
            raise reader.unknown(f"ALTER TABLE ... {reader.word()}")
        reader.finish()
        changed = self._catalog().find(table.schema, table.name)
        assert changed is not None
        change_log.create_triggers(self._connection, self._catalog(), changed)
        self._history(table, reader.text, required)

    def _history(self, table: TableInfo, command: str, required: bool) -> None:
        tracked = self._connection.execute(
            'SELECT object_id, capture_instance FROM "cdc.change_tables" WHERE source_object_id = ?', (table.object_id,)
        ).fetchall()
        if self._catalog().find("cdc", "ddl_history") is None:
            return
        # Where a script wrote the catalog by hand, it writes the history too.
        tracked = [(n, i) for n, i in tracked if has_pending(self._connection, i) and not written(self._connection, i)]
        (lsn,) = self._connection.execute("SELECT value FROM \"emulator.state\" WHERE name = 'lsn'").fetchone()
        for number, _ in tracked:
            self._connection.execute(
                'INSERT INTO "cdc.ddl_history" VALUES (?, ?, ?, ?, ?, ?)',
                (table.object_id, number, int(required), command, bytes.fromhex(lsn), self._now()),
            )
        if tracked:
            # The next record in the log comes after this one.
            self._connection.execute(
                "UPDATE \"emulator.state\" SET value = ? WHERE name = 'lsn'", (next_block(bytes.fromhex(lsn)).hex(),)
            )

    def _add(self, reader: StatementReader, table: TableInfo) -> None:
        if reader.word() in ("CONSTRAINT", "PRIMARY KEY", "UNIQUE"):
            key = read_constraint(reader)
            key.clustered = False
            self._definitions.create_index(table, key)
            return
        keys: list[KeyDraft] = []
        draft = read_column(reader, keys)
        if any(c.name.lower() == draft.name.lower() for c in table.columns):
            raise ProgrammingError(
                f"Column names in each table must be unique. Column name '{draft.name}' is specified more than once.",
                2705,
            )
        (last,) = self._connection.execute(
            'SELECT MAX(column_id) FROM "sys.columns" WHERE object_id = ?', (table.object_id,)
        ).fetchone()
        (kept,) = self._connection.execute(
            'SELECT COALESCE(MAX(CAST(value AS INTEGER)), 0) FROM "emulator.state" WHERE name = ?',
            (f"columns.{table.object_id}",),
        ).fetchone()
        number = max(int(last or 0), int(kept)) + 1
        text = column_definition(draft.name, draft.type)
        if draft.computed is not None:
            expression = self._definitions.computed_sql(draft.computed, list(table.columns), table.path)
            text += f" GENERATED ALWAYS AS ({expression}) VIRTUAL"
        elif draft.nullable is False:
            if draft.default is None:
                (rows,) = self._connection.execute(f"SELECT EXISTS (SELECT 1 FROM {quoted(table.path)})").fetchone()
                if rows:
                    raise ProgrammingError(
                        "ALTER TABLE only allows columns to be added that can contain nulls, or have a DEFAULT"
                        " definition specified."
                        f" Column '{draft.name}' cannot be added to non-empty table '{table.name}'.", 4901
                    )  # fmt: skip
                text += " NOT NULL DEFAULT ''"
            else:
                value = StatementTranslator(draft.default, no_subqueries)
                cell = value.assigned(value.constant(draft.default), ColumnInfo(draft.name, draft.type), table)
                (stored,) = self._connection.execute(f"SELECT {cell}").fetchone()
                text += f" NOT NULL DEFAULT {_sqlite_literal(stored)}"
        self._connection.execute(f"ALTER TABLE {quoted(table.path)} ADD COLUMN {text}")
        self._definitions.describe(table.object_id, number, draft)
        self._connection.execute(
            'INSERT OR REPLACE INTO "emulator.state" VALUES (?, ?)', (f"columns.{table.object_id}", str(number))
        )
        for key in keys:
            self._definitions.create_index(
                TableInfo(
                    table.schema,
                    table.name,
                    table.object_id,
                    (*table.columns, ColumnInfo(draft.name, draft.type, number)),
                ),
                key,
            )

    def _drop_column(self, table: TableInfo, name: str) -> None:
        column = table.column(name)
        used = self._connection.execute(
            'SELECT 1 FROM "sys.index_columns" WHERE object_id = ? AND column_id = ?',
            (table.object_id, column.column_id),
        ).fetchone()
        if used:
            raise ProgrammingError(
                f"ALTER TABLE DROP COLUMN {name} failed because one or more objects access this column.", 4922
            )
        self._connection.execute(f"ALTER TABLE {quoted(table.path)} DROP COLUMN {quoted(column.name)}")
        for path, key in (
            ("sys.columns", "object_id"),
            ("sys.computed_columns", "object_id"),
            ("sys.identity_columns", "object_id"),
        ):
            self._connection.execute(
                f"DELETE FROM {quoted(path)} WHERE {key} = ? AND column_id = ?", (table.object_id, column.column_id)
            )
        self._connection.execute(
            'DELETE FROM "sys.default_constraints" WHERE parent_object_id = ? AND parent_column_id = ?',
            (table.object_id, column.column_id),
        )
        highest = max(c.column_id for c in table.columns)
        self._connection.execute(
            'INSERT OR REPLACE INTO "emulator.state" VALUES (?, ?)', (f"columns.{table.object_id}", str(highest))
        )

    def _alter_column(self, reader: StatementReader, table: TableInfo) -> bool:
        column = table.column(reader.name())
        declared = reader.type()
        nullable = True
        if reader.accept("NOT", "NULL"):
            nullable = False
        else:
            reader.accept("NULL")
        tables = [table]
        for instance in self._captured(table, column):
            if declared != column.type and not self._retyping():
                raise _replicated(column.name)
            change_table = self._catalog().find("cdc", f"{instance}_CT")
            assert change_table is not None
            tables.append(change_table)
        for owner in tables:
            self._retype(owner, owner.column(column.name), declared, nullable if owner is table else True)
        return len(tables) > 1

    def _retyping(self) -> bool:
        row = self._connection.execute("SELECT value FROM \"emulator.state\" WHERE name = 'retyping'").fetchone()
        return row is not None and row[0] == "ON"

    def _retype(self, table: TableInfo, column: ColumnInfo, declared: SqlType, nullable: bool) -> None:
        path, name = quoted(table.path), quoted(column.name)
        if declared.kind.affinity != column.type.kind.affinity or declared.collate != column.type.collate:
            (text,) = self._connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table.path,)).fetchone()
            old, new = column_definition(column.name, column.type), column_definition(column.name, declared)
            self._connection.execute("PRAGMA writable_schema = ON")
            self._connection.execute(
                "UPDATE sqlite_master SET sql = ? WHERE name = ?", (text.replace(old, new, 1), table.path)
            )
            (version,) = self._connection.execute("PRAGMA schema_version").fetchone()
            self._connection.execute(f"PRAGMA schema_version = {version + 1}")
            self._connection.execute("PRAGMA writable_schema = RESET")
        changed = ColumnInfo(column.name, declared, column.column_id, nullable)
        cell = StatementTranslator(table.path, no_subqueries)
        source = column.type.declaration
        conversion = (
            f"tsql_cast({name}, '{declared.declaration}', '{source}', 0)"
            if declared.family != column.type.family
            else name
        )
        value = cell.assigned(Value(conversion, declared), changed, table)
        self._connection.execute(f"UPDATE {path} SET {name} = {value}")
        collation = (declared.collation or DEFAULT_COLLATION) if declared.family == "string" else None
        self._connection.execute(
            'UPDATE "sys.columns" SET system_type_id = ?, user_type_id = ?, max_length = ?, precision = ?, scale ='
            ' ?, collation_name = ?,'
            " is_nullable = ? WHERE object_id = ? AND column_id = ?",
            (
                declared.kind.system_type_id, declared.kind.user_type_id, declared.max_length,
                declared.shown_precision,
                declared.shown_scale, collation, int(nullable), table.object_id, column.column_id,
            ),
        )  # fmt: skip
        # Other connections notice a new structure by SQLite's own schema version.
        self._connection.execute('CREATE TABLE "emulator.structure" (x)')
        self._connection.execute('DROP TABLE "emulator.structure"')

    def _drop_tables(self, reader: StatementReader) -> None:
        optional = reader.accept("IF", "EXISTS")
        while True:
            database, schema, name = reader.path()
            del database
            table = self._catalog().find(schema, name)
            if table is not None and table.object_id:
                self._refuse_referenced(table)
                for instance in self._instances(table):
                    drop_instance(self._connection, self._catalog(), self._definitions.drop_table, instance)
                self._definitions.drop_table(table)
            elif not optional:
                raise ProgrammingError(
                    f"Cannot drop the table '{schema}.{name}', because it does not exist or you do not have"
                    " permission.",
                    3701,
                )
            if not reader.accept(","):
                break
        reader.finish()

    def _refuse_referenced(self, table: TableInfo) -> None:
        for other in self._catalog().tables.values():
            if other.object_id and other.object_id != table.object_id:
                rows = self._connection.execute(f"PRAGMA foreign_key_list({quoted(other.path)})").fetchall()
                if any(str(row[2]).lower() == table.path.lower() for row in rows):
                    raise ProgrammingError(
                        f"Could not drop object '{table.path}' because it is referenced by a FOREIGN KEY constraint.",
                        3726,
                    )

    def _instances(self, table: TableInfo) -> list[str]:
        rows = self._connection.execute(
            'SELECT capture_instance FROM "cdc.change_tables" WHERE source_object_id = ?', (table.object_id,)
        )
        return [str(name) for (name,) in rows.fetchall()]

    def _captured(self, table: TableInfo, column: ColumnInfo) -> list[str]:
        rows = self._connection.execute(
            'SELECT t.capture_instance FROM "cdc.change_tables" AS t JOIN "cdc.captured_columns" AS c ON c.object_id'
            " = t.object_id WHERE t.source_object_id = ? AND c.column_name = ?",
            (table.object_id, column.name),
        )
        return [str(name) for (name,) in rows.fetchall()]

    def _truncate(self, reader: StatementReader) -> None:
        table = self._definitions.existing(reader)
        if self._instances(table):
            raise ProgrammingError(
                f"Cannot truncate table '{table.path}' because it is published for replication or enabled for Change"
                " Data Capture.",
                4711,
            )
        self._connection.execute(f"DELETE FROM {quoted(table.path)}")
        self._connection.execute(
            'UPDATE "sys.identity_columns" SET last_value = NULL WHERE object_id = ?', (table.object_id,)
        )

    def rename(self, old: str, new: str, kind: str) -> None:
        """What sp_rename does to a table (`dbo.t`) or a column (`dbo.t.c`)."""
        parts = [a or b for a, b in re.findall(r"\[([^\]]+)\]|([^.\[\]]+)", old)]
        if kind.upper() == "COLUMN":
            column_name, table_name = parts[-1], parts[-2]
            table = self._catalog().find(parts[-3] if len(parts) > 2 else "dbo", table_name)
            if table is None:
                raise invalid_object(old)
            column = table.column(column_name)
            if self._captured(table, column):
                raise _replicated(column.name)
            if any(c.name.lower() == new.lower() for c in table.columns):
                raise ProgrammingError(
                    f"Error: The new name '{new}' is already in use as a COLUMN name and would cause a duplicate that"
                    " is not permitted.",
                    15335,
                )
            # The statements of triggers name the columns, so they are made again.
            change_log.drop_triggers(self._connection, table)
            self._connection.execute(
                f"ALTER TABLE {quoted(table.path)} RENAME COLUMN {quoted(column.name)} TO {quoted(new)}"
            )
            self._connection.execute(
                'UPDATE "sys.columns" SET name = ? WHERE object_id = ? AND column_id = ?',
                (new, table.object_id, column.column_id),
            )
            changed = self._catalog().find(table.schema, table.name)
            assert changed is not None
            change_log.create_triggers(self._connection, self._catalog(), changed)
            return
        table = self._catalog().find(parts[-2] if len(parts) > 1 else "dbo", parts[-1])
        if table is None:
            raise invalid_object(old)
        if self._catalog().find(table.schema, new) is not None:
            raise ProgrammingError(
                f"Error: The new name '{new}' is already in use as a OBJECT name and would cause a duplicate that is"
                " not permitted.",
                15335,
            )
        change_log.drop_triggers(self._connection, table)
        self._connection.execute(f"ALTER TABLE {quoted(table.path)} RENAME TO {quoted(f'{table.schema}.{new}')}")
        self._connection.execute('UPDATE "sys.objects" SET name = ? WHERE object_id = ?', (new, table.object_id))
        changed = self._catalog().find(table.schema, new)
        assert changed is not None
        # Capture goes by the table's number, so it goes on; the statements of its triggers name the table.
        change_log.create_triggers(self._connection, self._catalog(), changed)


def _replicated(column: str) -> ProgrammingError:
    return ProgrammingError(f"Cannot alter column '{column}' because it is 'REPLICATED'.", 4928)


def _sqlite_literal(value: object) -> str:
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)
