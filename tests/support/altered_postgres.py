"""Random ALTERs between random changes on a PostgreSQL, as its manual lists them, and what the tables hold then.

What the server refuses did not happen; nobody counts what the statements did. The truth is what the server prints.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count

import psycopg
from tests.support.mirror import Held

from headrace_emulators.postgresql.server import PostgresDatabase

KEYS = {"plain": ("id",), "parted": ("id",), "wide": ("area", "code"), "whole": ("id",), "base": ("id",)}
"""The columns by which a mirror knows a table's rows; no statement changes which these are."""
_SETUP = """
CREATE TYPE mood AS ENUM ('low', 'high');
CREATE TYPE address AS (street text, zip int);
CREATE TABLE plain (id int PRIMARY KEY, a int, b varchar(20));
CREATE TABLE wide (area int, code varchar(9), a numeric(10,4), m mood, PRIMARY KEY (area, code));
CREATE TABLE whole (id int PRIMARY KEY, a int, w address); ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE base (id int PRIMARY KEY, a int); CREATE TABLE derived () INHERITS (base);
INSERT INTO derived VALUES (1, 1);
CREATE TABLE parted (id int PRIMARY KEY, a int, b varchar(20)) PARTITION BY RANGE (id);
CREATE TABLE parted_0 PARTITION OF parted FOR VALUES FROM (0) TO (10);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (10) TO (20);
CREATE TABLE parted_rest PARTITION OF parted DEFAULT
"""
_TYPES = ("int", "bigint", "numeric(10,2)", "numeric(14,4)", "varchar(30)", "text", "date", "timestamp(3)", "mood")
_DEFAULTS = ("", "", "DEFAULT NULL", "DEFAULT 7", "NOT NULL DEFAULT 1", "DEFAULT (random() * 9)::int")


class Alterations:
    """Random statements on five tables, which are made in a new database.

    Args:
        database: an empty database.
        seed: two histories of the same seed send the same statements.
        renames: whether columns get other names, too.
    """

    def __init__(self, database: PostgresDatabase, seed: int, *, renames: bool = False) -> None:
        self._renames = renames
        self.sent: list[str] = []
        """The statements that the server took, in order."""
        self._rng = random.Random(seed)
        self._numbers = count(1)
        self._labels = ["low", "high"]
        database.execute(_SETUP)
        self._session = database.connect(options="-c lock_timeout=2s")
        self._take("SELECT setseed(0.5)")
        for _ in range(4):
            self.change()

    def close(self) -> None:
        self._session.close()

    def change(self) -> None:
        """A transaction of some rows."""
        rng = self._rng
        self._take("BEGIN")
        for _ in range(rng.randint(1, 4)):
            table = rng.choice([*KEYS, "derived"])
            kind, where = rng.random(), self._row(table)
            self._take("SAVEPOINT s")
            if kind < 0.5:
                taken = self._take(self._insert(table))
            elif kind < 0.8:
                column = rng.choice(self._columns(table))
                taken = self._take(f'UPDATE {table} SET "{column}" = {self._value(table, column)} WHERE {where}')
            else:
                taken = self._take(f"DELETE FROM {table} WHERE {where}")
            self._take("RELEASE SAVEPOINT s" if taken else "ROLLBACK TO SAVEPOINT s")
        self._take("ROLLBACK" if rng.random() < 0.1 else "COMMIT")

    def alter(self) -> None:
        """A statement that changes a structure, or several in one transaction."""
        rng = self._rng
        table = rng.choice(list(KEYS))
        kinds: list[Callable[[str], None]] = [self._clauses] * 9
        kinds += [self._swap, self._rename_away, self._remake, self._rewrite, self._types, self._types, self._member]
        if table == "parted":
            kinds += [self._partition] * 8
        if self._renames:
            kinds += [self._rename_column] * 3
        together = rng.random() < 0.3
        if together:
            self._take("BEGIN")
        rng.choice(kinds)(table)
        if together:
            rng.choice(kinds)(table)
            self._take("ROLLBACK" if rng.random() < 0.1 else "COMMIT")

    def _clauses(self, table: str) -> None:
        clauses = ", ".join(self._clause(table) for _ in range(self._rng.choice([1, 1, 1, 2])))
        self._take(f"ALTER TABLE {table} {clauses}")

    def _clause(self, table: str) -> str:
        rng = self._rng
        columns = self._columns(table)
        others = [name for name in columns if name not in KEYS[table]] or ["a"]
        column, kind = rng.choice(others), rng.choice(_TYPES)
        new = rng.choice([f"n{next(self._numbers)}", *"abc"])
        return rng.choice(
            [
                f"ADD COLUMN {new} {kind} {rng.choice(_DEFAULTS)}",
                f"ADD COLUMN {new} {kind} {rng.choice(_DEFAULTS)}",
                f"DROP COLUMN {column}",
                f"DROP COLUMN {column}, ADD COLUMN {column} {kind} {rng.choice(_DEFAULTS)}",
                f"ALTER COLUMN {column} TYPE {kind} USING {column}::text::{kind}",
                f"ALTER COLUMN {column} TYPE {kind}",
                f"ALTER COLUMN {column} TYPE int USING length({column}::text)",
                f"ALTER COLUMN {column} TYPE text USING upper({column}::text)",
                f"ALTER COLUMN {column} SET DEFAULT 3",
                f"ALTER COLUMN {column} DROP DEFAULT",
                f"ALTER COLUMN {column} SET STORAGE EXTERNAL",
                f"ALTER COLUMN {column} SET STATISTICS 10",
                f"ADD CHECK ({column} IS NULL OR {column} IS NOT NULL)",
                f"REPLICA IDENTITY {rng.choice(['FULL', 'DEFAULT'])}",
                "SET (fillfactor = 70)",
                f"ALTER COLUMN {KEYS[table][0]} TYPE bigint",
            ]
        )

    def _partition(self, table: str) -> None:
        number = next(self._numbers)
        self._take(
            self._rng.choice(
                [
                    "TRUNCATE parted_0",
                    "DROP TABLE parted_1",
                    "ALTER TABLE parted DETACH PARTITION parted_0",
                    "ALTER TABLE parted ATTACH PARTITION parted_0 FOR VALUES FROM (0) TO (10)",
                    "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (10) TO (20)",
                    f"CREATE TABLE parted_n{number} (LIKE parted INCLUDING ALL); "
                    f"INSERT INTO parted_n{number} (id) VALUES ({20 + number}), ({60 + number}); "
                    f"ALTER TABLE parted ATTACH PARTITION parted_n{number} FOR VALUES FROM ({20 + number}) TO (1000)",
                    "VACUUM FULL parted",
                ]
            )
        )

    def _types(self, table: str) -> None:
        number = next(self._numbers)
        self._take(
            self._rng.choice(
                [
                    f"ALTER TYPE mood RENAME VALUE 'low' TO 'low{number}'",
                    f"ALTER TYPE mood ADD VALUE 'm{number}'",
                    f"ALTER TYPE address RENAME ATTRIBUTE zip TO zip{number} CASCADE",
                    f"ALTER TYPE address ADD ATTRIBUTE a{number} int CASCADE",
                    "ALTER TYPE address DROP ATTRIBUTE zip CASCADE",
                ]
            )
        )

    def _swap(self, table: str) -> None:
        if table not in ("plain", "wide"):
            return
        new = f"{table}_new{next(self._numbers)}"
        self._take(f"CREATE TABLE {new} (LIKE {table} INCLUDING ALL)")
        self._take(f"INSERT INTO {new} SELECT * FROM {table}")
        self._take(f"ALTER TABLE {new} {self._clause(table)}")
        self._take(f"BEGIN; ALTER TABLE {table} RENAME TO {new}_old; ALTER TABLE {new} RENAME TO {table}; COMMIT")

    def _rename_column(self, table: str) -> None:
        others = [name for name in self._columns(table) if name not in KEYS[table]]
        if others:
            new = f"n{next(self._numbers)}"
            self._take(f"ALTER TABLE {table} RENAME COLUMN {self._rng.choice(others)} TO {new}")

    def _rename_away(self, table: str) -> None:
        if self._take(f"ALTER TABLE {table} RENAME TO away_{table}"):
            if self._rng.random() < 0.5:
                self._take(f"DELETE FROM away_{table} WHERE {self._row(table)}")
            self._take(f"ALTER TABLE away_{table} RENAME TO {table}")

    def _remake(self, table: str) -> None:
        if table == "plain" and self._take("DROP TABLE plain"):
            self._take("CREATE TABLE plain (id int PRIMARY KEY, b varchar(20), c int DEFAULT 4)")
            self._take("INSERT INTO plain (id) VALUES (1), (2)")

    def _rewrite(self, table: str) -> None:
        self._take(self._rng.choice([f"TRUNCATE {table}", f"VACUUM FULL {table}", f"ANALYZE {table}"]))

    def _member(self, table: str) -> None:
        """Somebody takes a table out of the publication and puts it back."""
        for (name,) in self._session.execute("SELECT pubname FROM pg_publication").fetchall():
            if self._take(f'ALTER PUBLICATION "{name}" DROP TABLE ONLY {table}'):
                self.change()

    def _insert(self, table: str) -> str:
        names = self._columns(table)
        values = ", ".join(self._value(table, name) for name in names)
        listed = ", ".join(f'"{name}"' for name in names)
        return f"INSERT INTO {table} ({listed}) VALUES ({values}) ON CONFLICT DO NOTHING"

    def _row(self, table: str) -> str:
        return " AND ".join(f"{name} = {self._value(table, name)}" for name in KEYS.get(table, ("id",)))

    def _value(self, table: str, name: str) -> str:
        rng = self._rng
        if name in ("id", "area"):
            return str(rng.randrange(30))
        if name == "code":
            return f"'k{rng.randrange(3)}'"
        if name == "m":
            return rng.choice(["'high'", "enum_first(NULL::mood)", "NULL"])
        if name == "w":
            return rng.choice(["ROW('Ash', 13)", "NULL", "'(Elm,)'"])
        return rng.choice(["NULL", "'1'", "'2'", f"'{rng.randrange(60_000)}'", "'x'", "'2024-01-02'"])

    def _columns(self, table: str) -> list[str]:
        found = self._session.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped "
            "AND attgenerated = '' ORDER BY attnum",
            (table,),
        ).fetchall()
        return [name for (name,) in found] or ["id"]

    def _take(self, sql: str) -> bool:
        """Whether the server took a statement; one that it refuses leaves a transaction as it was."""
        inside = self._session.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        guarded = inside and not sql.startswith(("ROLLBACK", "COMMIT", "SAVEPOINT", "RELEASE", "BEGIN"))
        try:
            if guarded:
                self._session.execute("SAVEPOINT one")
            self._session.execute(sql)
        except psycopg.Error:
            if guarded:
                self._session.execute("ROLLBACK TO SAVEPOINT one")
            elif self._session.info.transaction_status == psycopg.pq.TransactionStatus.INERROR:
                self._session.execute("ROLLBACK")
            return False
        self.sent.append(sql)
        return True


def held(database: PostgresDatabase) -> dict[str, Held]:
    """What the tables hold, as the server prints it."""
    found: dict[str, Held] = {}
    with database.connect() as session:
        for table in KEYS:
            columns = session.execute(
                "SELECT a.attname, t.typtype FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
                "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
                (table,),
            ).fetchall()
            shown = [f'to_json("{name}")::text' if kind == "c" else f'"{name}"::text' for name, kind in columns]
            whole = table if table == "parted" else f"ONLY {table}"
            found[table] = (
                [name for name, _ in columns],
                session.execute(f"SELECT {', '.join(shown)} FROM {whole}").fetchall(),
            )
    return found
