"""CREATE, ALTER and DROP of tables, schemas and indexes: the SQLite object and its rows in the system catalog."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable

from headrace.emulators.sqlserver import change_log
from headrace.emulators.sqlserver.catalog import Catalog, ColumnInfo, TableInfo, column_definition, quoted
from headrace.emulators.sqlserver.drafts import ColumnDraft, KeyDraft, read_column, read_constraint
from headrace.emulators.sqlserver.errors import ProgrammingError, invalid_column, invalid_object
from headrace.emulators.sqlserver.queries import StatementTranslator
from headrace.emulators.sqlserver.reader import StatementReader
from headrace.emulators.sqlserver.scope import Relation, Scope, Value
from headrace.emulators.sqlserver.types import DEFAULT_COLLATION, SqlType

_REUSED_KEYS = ("int", "bigint", "smallint", "tinyint")


class Definitions:
    """Changes the structure of one database. All of it runs inside the caller's transaction.

    Args:
        connection: the SQLite connection.
        catalog: gives the catalog as it is now.
        now: the time as stored text of a datetime.
    """

    def __init__(self, connection: sqlite3.Connection, catalog: Callable[[], Catalog], now: Callable[[], str]) -> None:
        self._connection = connection
        self._catalog = catalog
        self._now = now

    def run(self, text: str) -> None:
        """Carry out one CREATE, ALTER or DROP."""
        reader = StatementReader(text)
        if reader.accept("CREATE", "TABLE"):
            self._create_table(reader)
        elif reader.accept("CREATE", "SCHEMA"):
            self._create_schema(reader)
        elif reader.word() == "CREATE" and any(reader.word(i).endswith("INDEX") for i in (1, 2, 3)):
            self._create_index(reader)
        elif reader.accept("ALTER", "TABLE"):
            self._alter_table(reader)
        elif reader.accept("DROP", "TABLE"):
            self._drop_tables(reader)
        elif reader.accept("DROP", "INDEX"):
            self._drop_index(reader)
        elif reader.accept("TRUNCATE", "TABLE"):
            self._truncate(reader)
        else:
            raise reader.unknown(f"{reader.word()} {reader.word(1)}")

    # Tables.

    def _create_table(self, reader: StatementReader) -> None:
        _, schema, name = reader.path()
        columns: list[ColumnDraft] = []
        keys: list[KeyDraft] = []
        reader.expect("(")
        while True:
            if reader.word() in ("CONSTRAINT", "PRIMARY KEY", "UNIQUE"):
                keys.append(read_constraint(reader))
            else:
                columns.append(read_column(reader, keys))
            if reader.accept(")"):
                break
            reader.expect(",")
        while reader.accept("ON") or reader.accept("TEXTIMAGE_ON"):
            reader.name()
        reader.finish()
        self.create_table(schema, name, columns, keys)

    def create_table(
        self, schema: str, name: str, columns: list[ColumnDraft], keys: list[KeyDraft], *, shipped: bool = False
    ) -> int:
        """Make a table.

        Args:
            schema: must exist.
            name: must not.
            columns: in order.
            keys: constraints; the columns of a primary key become NOT NULL.
            shipped: made by the server itself, which `is_ms_shipped` tells.

        Returns:
            Its object id.
        """
        catalog = self._catalog()
        if catalog.find(schema, name) is not None:
            raise ProgrammingError(f"There is already an object named '{name}' in the database.", 2714)
        schema_id = self._schema_id(schema)
        path = f"{schema}.{name}"
        primary = next((k for k in keys if k.primary), None)
        for draft in columns:
            if primary is not None and draft.name.lower() in (c.lower() for c in primary.columns):
                draft.nullable = False
            if draft.identity is not None:
                draft.nullable = False
        infos = [
            ColumnInfo(c.name, c.type, i + 1, c.nullable is not False, bool(c.identity)) for i, c in enumerate(columns)
        ]
        for draft, info in zip(columns, infos, strict=True):
            if draft.computed is not None:
                draft.type = self._computed_type(draft.computed, infos, path) or SqlType("nvarchar", -1)
                del info
        # The view of tables needs this one before capture is enabled, so it is there already, empty and not in the
        # catalog.
        if path.lower() == "cdc.change_tables":
            self._connection.execute('DROP TABLE "cdc.change_tables"')
        change_order = ["__$start_lsn", "__$command_id", "__$seqval", "__$operation"]
        body = [self._column_text(c, infos, path, primary) for c in columns]
        body += self._key_texts(primary)
        options = ""
        if shipped and [c.name for c in columns][:1] == ["__$start_lsn"]:
            body.append(f"PRIMARY KEY ({', '.join(quoted(c) for c in change_order)})")
            options = " WITHOUT ROWID"
        self._connection.execute(f"CREATE TABLE {quoted(path)} ({', '.join(body)}){options}")
        object_id = self._new_object(name, schema_id, "U ", "USER_TABLE", 0, shipped)
        for number, draft in enumerate(columns, 1):
            self._describe(object_id, number, draft)
        if primary is None or not primary.clustered:
            self._index_row(object_id, None, 0, 0, "HEAP", False, False, False)
        for key in sorted(keys, key=lambda k: not k.primary):
            self._create_key(
                object_id, schema_id, path, name, key, {c.name.lower(): i for i, c in enumerate(columns, 1)}, primary
            )
        return object_id

    def _key_texts(self, primary: KeyDraft | None) -> list[str]:
        if primary is None or len(primary.columns) < 2:
            return []
        return [f"PRIMARY KEY ({', '.join(quoted(c) for c in primary.columns)})"]

    def _column_text(self, draft: ColumnDraft, infos: list[ColumnInfo], path: str, primary: KeyDraft | None) -> str:
        text = column_definition(draft.name, draft.type)
        if draft.computed is not None:
            return f"{text} GENERATED ALWAYS AS ({self._computed_sql(draft.computed, infos, path)}) VIRTUAL"
        if primary is not None and [c.lower() for c in primary.columns] == [draft.name.lower()]:
            # An integer key is SQLite's row number itself, which is by far the fastest.
            return (
                f"{text} NOT NULL PRIMARY KEY"
                if draft.type.name not in _REUSED_KEYS
                else f"{quoted(draft.name)} INTEGER PRIMARY KEY"
            )
        return f"{text} NOT NULL" if draft.nullable is False else text

    def _computed_sql(self, text: str, infos: list[ColumnInfo], path: str) -> str:
        return self._computed(text, infos, path)[0]

    def _computed_type(self, text: str, infos: list[ColumnInfo], path: str) -> SqlType | None:
        return self._computed(text, infos, path)[1]

    def _computed(self, text: str, infos: list[ColumnInfo], path: str) -> tuple[str, SqlType | None]:
        scope = Scope([Relation(path, tuple((c.name, c.type) for c in infos), True)], bare_names=True)
        value = StatementTranslator(text, _no_subqueries).constant(text, scope)
        return value.sql, value.type

    def _create_key(
        self,
        object_id: int,
        schema_id: int,
        path: str,
        table: str,
        key: KeyDraft,
        ids: dict[str, int],
        primary: KeyDraft | None,
    ) -> None:
        number = (
            self._connection.execute(
                'SELECT MAX(index_id) FROM "sys.indexes" WHERE object_id = ?', (object_id,)
            ).fetchone()[0]
            or 0
        )
        index_id = 1 if key.clustered and number == 0 else max(int(number) + 1, 2)
        prefix = "PK" if key.primary else "UQ"
        name = key.name or f"{prefix}__{table}__{self._next_object():08X}"
        kind = ("CLUSTERED", 1) if index_id == 1 else ("NONCLUSTERED", 2)
        self._index_row(
            object_id, name, index_id, kind[1], kind[0], key.unique, key.primary, key.constraint and not key.primary
        )
        if key.constraint:
            words = ("PK", "PRIMARY_KEY_CONSTRAINT") if key.primary else ("UQ", "UNIQUE_CONSTRAINT")
            self._new_object(name, schema_id, words[0], words[1], object_id, False)
        for ordinal, column in enumerate([*key.columns, *key.included], 1):
            column_id = ids.get(column.lower())
            if column_id is None:
                raise invalid_column(column)
            included = ordinal > len(key.columns)
            self._connection.execute(
                'INSERT INTO "sys.index_columns" VALUES (?, ?, ?, ?, ?, 0, ?)',
                (object_id, index_id, ordinal, column_id, 0 if included else ordinal, int(included)),
            )
        if key.primary and key is primary:
            return
        word = "UNIQUE INDEX" if key.unique else "INDEX"
        columns = ", ".join(quoted(c) for c in key.columns)
        self._connection.execute(f"CREATE {word} {quoted(f'{path}.{name}')} ON {quoted(path)} ({columns})")

    def _describe(self, object_id: int, number: int, draft: ColumnDraft) -> None:
        default_id = 0
        if draft.default is not None:
            name = draft.default_name or f"DF__{draft.name}__{self._next_object():08X}"
            default_id = self._new_object(name, 1, "D ", "DEFAULT_CONSTRAINT", object_id, False)
            self._connection.execute(
                'INSERT INTO "sys.default_constraints" VALUES (?, ?, 1, ?, ?, ?, ?)',
                (name, default_id, object_id, number, draft.default, int(draft.default_name is None)),
            )
        declared = draft.type
        collation = (
            (declared.collation or DEFAULT_COLLATION)
            if declared.family == "string" and declared.name != "xml"
            else None
        )
        self._connection.execute(
            f'INSERT INTO "sys.columns" VALUES ({", ".join("?" * 13)})',
            (
                object_id, draft.name, number, declared.kind.system_type_id, declared.kind.system_type_id,
                declared.max_length,
                declared.shown_precision, declared.shown_scale, collation, int(draft.nullable is not False),
                int(draft.identity is not None), int(draft.computed is not None), default_id,
            ),
        )  # fmt: skip
        if draft.identity is not None:
            self._connection.execute(
                'INSERT INTO "sys.identity_columns" VALUES (?, ?, ?, ?, ?, NULL)',
                (object_id, draft.name, number, *draft.identity),
            )
        if draft.computed is not None:
            self._connection.execute(
                'INSERT INTO "sys.computed_columns" VALUES (?, ?, ?, ?, ?)',
                (object_id, draft.name, number, draft.computed, int(draft.persisted)),
            )

    def _index_row(
        self,
        object_id: int,
        name: str | None,
        index_id: int,
        kind: int,
        words: str,
        unique: bool,
        primary: bool,
        constraint: bool,
    ) -> None:
        self._connection.execute(
            'INSERT INTO "sys.indexes" VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0)',
            (object_id, name, index_id, kind, words, int(unique), int(primary), int(constraint)),
        )

    def _new_object(self, name: str, schema_id: int, kind: str, words: str, parent: int, shipped: bool) -> int:
        number = self._next_object()
        now = self._now()
        self._connection.execute(
            'INSERT INTO "sys.objects" VALUES (?, ?, NULL, ?, ?, ?, ?, ?, ?, ?)',
            (name, number, schema_id, parent, kind, words, now, now, int(shipped)),
        )
        return number

    def _next_object(self) -> int:
        (value,) = self._connection.execute(
            "SELECT value FROM \"emulator.state\" WHERE name = 'next_object'"
        ).fetchone()
        self._connection.execute(
            "UPDATE \"emulator.state\" SET value = ? WHERE name = 'next_object'", (str(int(value) + 16),)
        )
        return int(value)

    def _schema_id(self, schema: str) -> int:
        row = self._connection.execute('SELECT schema_id FROM "sys.schemas" WHERE name = ?', (schema,)).fetchone()
        if row is None:
            raise ProgrammingError(
                f'The specified schema name "{schema}" either does not exist or you do not have permission to use it.',
                2760,
            )
        return int(row[0])

    def _create_schema(self, reader: StatementReader) -> None:
        name = reader.name()
        if reader.accept("AUTHORIZATION"):
            reader.name()
        reader.finish()
        self.create_schema(name)

    def create_schema(self, name: str) -> None:
        """Make a schema; raises error 2714 when it is there."""
        if self._connection.execute('SELECT 1 FROM "sys.schemas" WHERE name = ?', (name,)).fetchone():
            raise ProgrammingError(f"There is already an object named '{name}' in the database.", 2714)
        (number,) = self._connection.execute('SELECT MAX(schema_id) + 1 FROM "sys.schemas"').fetchone()
        self._connection.execute('INSERT INTO "sys.schemas" VALUES (?, ?, 1)', (name, number))

    # Indexes.

    def _create_index(self, reader: StatementReader) -> None:
        reader.expect("CREATE")
        unique = reader.accept("UNIQUE")
        # The tokenizer makes one word of "CLUSTERED INDEX".
        clustered = reader.accept("CLUSTERED INDEX")
        if not clustered and not reader.accept("NONCLUSTERED INDEX"):
            reader.expect("INDEX")
        name = reader.name()
        reader.expect("ON")
        table = self.existing(reader)
        key = KeyDraft(reader.names(), False, False, unique, clustered, name)
        if reader.accept("INCLUDE"):
            key.included = reader.names()
        if reader.word() == "WHERE":
            raise reader.unknown("a filtered index")
        if reader.accept("WITH"):
            reader.parenthesised()
        reader.finish()
        self.create_index(table, key)

    def create_index(self, table: TableInfo, key: KeyDraft) -> None:
        """Make an index that is no constraint."""
        if key.clustered:
            self._connection.execute(
                'DELETE FROM "sys.indexes" WHERE object_id = ? AND index_id = 0', (table.object_id,)
            )
        ids = {c.name.lower(): c.column_id for c in table.columns}
        self._create_key(table.object_id, self._schema_id(table.schema), table.path, table.name, key, ids, None)

    def _drop_index(self, reader: StatementReader) -> None:
        name = reader.name()
        reader.expect("ON")
        table = self.existing(reader)
        reader.finish()
        row = self._connection.execute(
            'SELECT index_id FROM "sys.indexes" WHERE object_id = ? AND name = ?', (table.object_id, name)
        ).fetchone()
        if row is None:
            raise ProgrammingError(f"Cannot drop the index '{table.path}.{name}', because it does not exist.", 3701)
        self._connection.execute(f"DROP INDEX {quoted(f'{table.path}.{name}')}")
        for path in ("sys.indexes", "sys.index_columns"):
            self._connection.execute(
                f"DELETE FROM {quoted(path)} WHERE object_id = ? AND index_id = ?", (table.object_id, row[0])
            )

    # Changes of tables.

    def existing(self, reader: StatementReader) -> TableInfo:
        """The table that the reader's next words name; raises error 4902 when there is none."""
        _, schema, name = reader.path()
        table = self._catalog().find(schema, name)
        if table is None or not table.object_id:
            raise ProgrammingError(
                f'Cannot find the object "{schema}.{name}" because it does not exist or you do not have permissions.',
                4902,
            )
        return table

    def _alter_table(self, reader: StatementReader) -> None:
        table = self.existing(reader)
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
        (lsn,) = self._connection.execute("SELECT value FROM \"emulator.state\" WHERE name = 'lsn'").fetchone()
        for number, _ in tracked:
            self._connection.execute(
                'INSERT INTO "cdc.ddl_history" VALUES (?, ?, ?, ?, ?, ?)',
                (table.object_id, number, int(required), command, bytes.fromhex(lsn), self._now()),
            )

    def _add(self, reader: StatementReader, table: TableInfo) -> None:
        if reader.word() in ("CONSTRAINT", "PRIMARY KEY", "UNIQUE"):
            key = read_constraint(reader)
            key.clustered = False
            self.create_index(table, key)
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
            text += (
                f" GENERATED ALWAYS AS ({self._computed_sql(draft.computed, list(table.columns), table.path)}) VIRTUAL"
            )
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
                value = StatementTranslator(draft.default, _no_subqueries)
                cell = value.assigned(value.constant(draft.default), ColumnInfo(draft.name, draft.type), table)
                (stored,) = self._connection.execute(f"SELECT {cell}").fetchone()
                text += f" NOT NULL DEFAULT {_sqlite_literal(stored)}"
        self._connection.execute(f"ALTER TABLE {quoted(table.path)} ADD COLUMN {text}")
        self._describe(table.object_id, number, draft)
        self._connection.execute(
            'INSERT OR REPLACE INTO "emulator.state" VALUES (?, ?)', (f"columns.{table.object_id}", str(number))
        )
        for key in keys:
            self.create_index(
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
        for (instance,) in self._connection.execute(
            'SELECT t.capture_instance FROM "cdc.change_tables" AS t JOIN "cdc.captured_columns" AS c ON c.object_id'
            " = t.object_id"
            " WHERE t.source_object_id = ? AND c.column_name = ?",
            (table.object_id, column.name),
        ).fetchall():
            change_table = self._catalog().find("cdc", f"{instance}_CT")
            assert change_table is not None
            tables.append(change_table)
        for owner in tables:
            self._retype(owner, owner.column(column.name), declared, nullable if owner is table else True)
        return len(tables) > 1

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
        cell = StatementTranslator(table.path, _no_subqueries)
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
                declared.kind.system_type_id, declared.kind.system_type_id, declared.max_length,
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
                self.drop_table(table)
            elif not optional:
                raise ProgrammingError(
                    f"Cannot drop the table '{schema}.{name}', because it does not exist or you do not have"
                    " permission.",
                    3701,
                )
            if not reader.accept(","):
                break
        reader.finish()

    def drop_table(self, table: TableInfo) -> None:
        """Drop a table with everything the catalog says of it."""
        self._connection.execute(f"DROP TABLE {quoted(table.path)}")
        for path in (
            "sys.columns",
            "sys.indexes",
            "sys.index_columns",
            "sys.computed_columns",
            "sys.identity_columns",
            "sys.objects",
        ):
            self._connection.execute(f"DELETE FROM {quoted(path)} WHERE object_id = ?", (table.object_id,))
        for path in ("sys.default_constraints", "sys.objects"):
            self._connection.execute(f"DELETE FROM {quoted(path)} WHERE parent_object_id = ?", (table.object_id,))

    def _truncate(self, reader: StatementReader) -> None:
        table = self.existing(reader)
        if self._connection.execute(
            'SELECT 1 FROM "cdc.change_tables" WHERE source_object_id = ?', (table.object_id,)
        ).fetchone():
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
            if self._connection.execute(
                'SELECT 1 FROM "cdc.change_tables" WHERE source_object_id = ?', (table.object_id,)
            ).fetchone():
                raise ProgrammingError(
                    "Cannot alter column because it is published for replication or enabled for Change Data Capture.",
                    4928,
                )
            column = table.column(column_name)
            self._connection.execute(
                f"ALTER TABLE {quoted(table.path)} RENAME COLUMN {quoted(column.name)} TO {quoted(new)}"
            )
            self._connection.execute(
                'UPDATE "sys.columns" SET name = ? WHERE object_id = ? AND column_id = ?',
                (new, table.object_id, column.column_id),
            )
            return
        table = self._catalog().find(parts[-2] if len(parts) > 1 else "dbo", parts[-1])
        if table is None:
            raise invalid_object(old)
        self._connection.execute(f"ALTER TABLE {quoted(table.path)} RENAME TO {quoted(f'{table.schema}.{new}')}")
        self._connection.execute('UPDATE "sys.objects" SET name = ? WHERE object_id = ?', (new, table.object_id))


def _sqlite_literal(value: object) -> str:
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


def _no_subqueries(database: str, schema: str, name: str) -> tuple[TableInfo, str]:
    raise ProgrammingError("Subqueries are not allowed in this context. Only scalar expressions are allowed.", 1046)
