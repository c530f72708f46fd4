"""CREATE of tables, schemas and indexes: the SQLite object and its rows in the system catalog."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from headrace_emulators.sqlserver.catalog import Catalog, ColumnInfo, TableInfo, column_definition, declared, quoted
from headrace_emulators.sqlserver.drafts import (
    ColumnDraft,
    KeyDraft,
    RuleDraft,
    begins_rule,
    read_column,
    read_constraint,
    read_rule,
)
from headrace_emulators.sqlserver.errors import ProgrammingError, invalid_column
from headrace_emulators.sqlserver.reader import AliasType, StatementReader
from headrace_emulators.sqlserver.scope import Relation, Scope
from headrace_emulators.sqlserver.statements import StatementTranslator
from headrace_emulators.sqlserver.types import DEFAULT_COLLATION, SqlType

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
        """Carry out one CREATE of a table, schema or index, or DROP INDEX."""
        reader = StatementReader(text, self.alias_types())
        if reader.accept("CREATE", "TABLE"):
            self._create_table(reader)
        elif reader.accept("CREATE", "SCHEMA"):
            self._create_schema(reader)
        elif reader.word() == "CREATE" and any(reader.word(i).endswith("INDEX") for i in (1, 2, 3)):
            self._create_index(reader)
        elif reader.accept("DROP", "INDEX"):
            self._drop_index(reader)
        elif reader.accept("CREATE", "TYPE"):
            self._create_type(reader)
        elif reader.accept("DROP", "TYPE"):
            self._drop_type(reader)
        else:
            raise reader.unknown(f"{reader.word()} {reader.word(1)}")

    # Tables.

    def _create_table(self, reader: StatementReader) -> None:
        _, schema, name = reader.path()
        columns: list[ColumnDraft] = []
        keys: list[KeyDraft] = []
        rules: list[RuleDraft] = []
        reader.expect("(")
        while True:
            if begins_rule(reader):
                rules.append(read_rule(reader))
            elif reader.word() in ("CONSTRAINT", "PRIMARY KEY", "UNIQUE"):
                keys.append(read_constraint(reader))
            else:
                columns.append(read_column(reader, keys, rules))
            if reader.accept(")"):
                break
            reader.expect(",")
        while reader.accept("ON") or reader.accept("TEXTIMAGE_ON"):
            reader.name()
        reader.finish()
        self.create_table(schema, name, columns, keys, rules)

    def create_table(
        self,
        schema: str,
        name: str,
        columns: list[ColumnDraft],
        keys: list[KeyDraft],
        rules: Sequence[RuleDraft] = (),
        *,
        shipped: bool = False,
    ) -> int:
        """Make a table.

        Args:
            schema: must exist.
            name: must not.
            columns: in order.
            keys: constraints; the columns of a primary key become NOT NULL.
            rules: conditions and foreign keys, which the catalog does not list.
            shipped: made by the server itself, as `is_ms_shipped` shows.

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
        # The view of tables needs this one before capture is enabled, so it exists already, empty and not in the
        # catalog.
        if path.lower() == "cdc.change_tables":
            self._connection.execute('DROP TABLE "cdc.change_tables"')
        change_order = ["__$start_lsn", "__$command_id", "__$seqval", "__$operation"]
        body = [self._column_text(c, infos, path, primary) for c in columns]
        body += self._key_texts(primary)
        body += [self._rule_text(rule, infos, path) for rule in rules]
        options = ""
        if shipped and [c.name for c in columns][:1] == ["__$start_lsn"]:
            body.append(f"PRIMARY KEY ({', '.join(quoted(c) for c in change_order)})")
            options = " WITHOUT ROWID"
        self._connection.execute(f"CREATE TABLE {quoted(path)} ({', '.join(body)}){options}")
        object_id = self._new_object(name, schema_id, "U ", "USER_TABLE", 0, shipped)
        for number, draft in enumerate(columns, 1):
            self.describe(object_id, number, draft)
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

    def _rule_text(self, rule: RuleDraft, infos: list[ColumnInfo], path: str) -> str:
        if rule.condition:
            return f"CHECK {self.computed_sql(rule.condition, infos, path)}"
        schema, name = rule.target
        own = ", ".join(quoted(TableInfo("", "", 0, tuple(infos)).column(c).name) for c in rule.columns)
        target = self._catalog().find(schema, name)
        if target is None and f"{schema}.{name}".lower() != path.lower():
            raise ProgrammingError(f"Foreign key references invalid table '{schema}.{name}'.", 1767)
        other = f" ({', '.join(quoted(c) for c in rule.referenced)})" if rule.referenced else ""
        named = target.path if target is not None else path
        return f"FOREIGN KEY ({own}) REFERENCES {quoted(named)}{other}{rule.actions}"

    def _column_text(self, draft: ColumnDraft, infos: list[ColumnInfo], path: str, primary: KeyDraft | None) -> str:
        text = column_definition(draft.name, draft.type)
        if draft.computed is not None:
            return f"{text} GENERATED ALWAYS AS ({self.computed_sql(draft.computed, infos, path)}) VIRTUAL"
        if primary is not None and [c.lower() for c in primary.columns] == [draft.name.lower()]:
            # An integer key is SQLite's row number itself, which is by far the fastest.
            return (
                f"{text} NOT NULL PRIMARY KEY"
                if draft.type.name not in _REUSED_KEYS
                else f"{quoted(draft.name)} INTEGER PRIMARY KEY"
            )
        return f"{text} NOT NULL" if draft.nullable is False else text

    def computed_sql(self, text: str, infos: list[ColumnInfo], path: str) -> str:
        return self._computed(text, infos, path)[0]

    def _computed_type(self, text: str, infos: list[ColumnInfo], path: str) -> SqlType | None:
        return self._computed(text, infos, path)[1]

    def _computed(self, text: str, infos: list[ColumnInfo], path: str) -> tuple[str, SqlType | None]:
        scope = Scope([Relation(path, tuple((c.name, c.type) for c in infos), True)], bare_names=True)
        value = StatementTranslator(text, no_subqueries).constant(text, scope)
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

    def describe(self, object_id: int, number: int, draft: ColumnDraft) -> None:
        """Write a column's rows of the catalog."""
        default_id = 0
        if draft.default is not None:
            name = draft.default_name or f"DF__{draft.name}__{self._next_object():08X}"
            default_id = self._new_object(name, 1, "D ", "DEFAULT_CONSTRAINT", object_id, False)
            self._connection.execute(
                'INSERT INTO "sys.default_constraints" VALUES (?, ?, 1, ?, ?, ?, ?)',
                (name, default_id, object_id, number, draft.default, int(draft.default_name is None)),
            )
        kind = draft.type
        collation = (kind.collation or DEFAULT_COLLATION) if kind.family == "string" and kind.name != "xml" else None
        self._connection.execute(
            f'INSERT INTO "sys.columns" VALUES ({", ".join("?" * 15)})',
            (
                object_id, draft.name, number, kind.kind.system_type_id,
                draft.user_type or kind.kind.user_type_id,
                kind.max_length,
                kind.shown_precision, kind.shown_scale, collation, int(draft.nullable is not False),
                int(draft.identity is not None), int(draft.computed is not None), default_id,
                0, None,
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

    def new_object(self, name: str, schema: str, kind: str, words: str) -> int:
        """Make an object other than a table and give its id; raises error 2714 when the name is taken."""
        schema_id = self._schema_id(schema)
        if self._connection.execute(
            'SELECT 1 FROM "sys.objects" WHERE schema_id = ? AND name = ?', (schema_id, name)
        ).fetchone():
            raise ProgrammingError(f"There is already an object named '{name}' in the database.", 2714)
        return self._new_object(name, schema_id, kind, words, 0, False)

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
        """Make a schema; raises error 2714 if it exists."""
        if self._connection.execute('SELECT 1 FROM "sys.schemas" WHERE name = ?', (name,)).fetchone():
            raise ProgrammingError(f"There is already an object named '{name}' in the database.", 2714)
        (number,) = self._connection.execute('SELECT MAX(schema_id) + 1 FROM "sys.schemas"').fetchone()
        self._connection.execute('INSERT INTO "sys.schemas" VALUES (?, ?, 1)', (name, number))

    # Alias types.

    def alias_types(self) -> dict[str, AliasType]:
        """The types that CREATE TYPE made, by `schema.name` and, those of dbo, by their name alone."""
        found: dict[str, AliasType] = {}
        for name, schema, number, base, length, precision, scale, nullable in self._connection.execute(
            "SELECT t.name, s.name, t.user_type_id, b.name, t.max_length, t.precision, t.scale, t.is_nullable"
            ' FROM "sys.types" AS t JOIN "sys.types" AS b ON b.user_type_id = t.system_type_id'
            ' JOIN "sys.schemas" AS s ON s.schema_id = t.schema_id WHERE t.is_user_defined = 1'
        ):
            alias = AliasType(number, declared(base, length, precision, scale, None), bool(nullable))
            found[f"{schema}.{name}".lower()] = alias
            if schema.lower() == "dbo":
                found[name.lower()] = alias
        return found

    def _create_type(self, reader: StatementReader) -> None:
        _, schema, name = reader.path()
        reader.expect("FROM")
        base = reader.type()
        nullable = not reader.accept("NOT", "NULL")
        reader.accept("NULL")
        reader.finish()
        schema_id = self._schema_id(schema)
        if self._connection.execute(
            'SELECT 1 FROM "sys.types" WHERE schema_id = ? AND name = ?', (schema_id, name)
        ).fetchone():
            raise ProgrammingError(f"The type '{schema}.{name}' already exists, or you do not have permission to"
                " create it.", 219)  # fmt: skip
        (number,) = self._connection.execute('SELECT MAX(user_type_id, 256) + 1 FROM (SELECT MAX(user_type_id) AS'
                                             ' user_type_id FROM "sys.types")').fetchone()  # fmt: skip
        self._connection.execute(
            f'INSERT INTO "sys.types" VALUES ({", ".join("?" * 11)})',
            (name, base.kind.system_type_id, number, schema_id, base.max_length, base.shown_precision, base.shown_scale,
             DEFAULT_COLLATION if base.family == "string" else None, int(nullable), 1, 0),
        )  # fmt: skip
        self._structure_changed()

    def _drop_type(self, reader: StatementReader) -> None:
        optional = reader.accept("IF", "EXISTS")
        _, schema, name = reader.path()
        alias = self.alias_types().get(f"{schema}.{name}".lower())
        if alias is None:
            if optional:
                return
            raise ProgrammingError(
                f"Cannot drop the type '{schema}.{name}', because it does not exist or you do not have permission.",
                3701,
            )
        used = self._connection.execute(
            'SELECT o.name FROM "sys.columns" AS c JOIN "sys.objects" AS o ON o.object_id = c.object_id'
            " WHERE c.user_type_id = ?",
            (alias.number,),
        ).fetchone()
        if used is not None:
            raise ProgrammingError(
                f"Cannot drop type '{schema}.{name}' because it is being referenced by object '{used[0]}'. There may be"
                " other objects that reference this type.",
                3732,
            )
        self._connection.execute('DELETE FROM "sys.types" WHERE user_type_id = ?', (alias.number,))
        self._structure_changed()

    def _structure_changed(self) -> None:
        # Other connections notice a new structure by SQLite's own schema version.
        self._connection.execute('CREATE TABLE "emulator.structure" (x)')
        self._connection.execute('DROP TABLE "emulator.structure"')

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
        """Make an index other than a constraint's."""
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

    # What changes of tables need too.

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

    def drop_table(self, table: TableInfo) -> None:
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


def no_subqueries(database: str, schema: str, name: str) -> tuple[TableInfo, str]:
    """What finds tables where an expression may read none; raises error 1046."""
    raise ProgrammingError("Subqueries are not allowed in this context. Only scalar expressions are allowed.", 1046)
