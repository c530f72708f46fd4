"""Random ALTERs between random changes on a MySQL or MariaDB, as its manual lists them, and what the tables hold then.

What the server refuses did not happen; nobody counts what the statements did. The truth is what the server prints.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterable
from itertools import count

import pymysql
from tests.support.mirror import Held

from headrace_emulators.mysql.server import MARIADB, MySqlDatabase

KEYS = {"plain": ("id",), "parted": ("id",), "wide": ("area", "code"), "swapped": ("id",)}
"""The columns by which a mirror knows a table's rows; no statement changes which these are."""
_SETUP = """
CREATE TABLE plain (id int PRIMARY KEY, a int, b varchar(20));
CREATE TABLE wide (area int, code varchar(9), a decimal(10,4), b varchar(20) CHARACTER SET utf8mb4,
    PRIMARY KEY (area, code));
CREATE TABLE swapped (id int PRIMARY KEY, a int, b varchar(20));
CREATE TABLE parted (id int PRIMARY KEY, a int, b varchar(20))
    PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20),
    PARTITION pm VALUES LESS THAN MAXVALUE);
"""
_TYPES = (
    "int", "bigint", "smallint", "bigint unsigned", "decimal(10,2)", "decimal(14,4)", "varchar(3)", "varchar(20)",
    "varchar(40) CHARACTER SET latin1", "varchar(30) CHARACTER SET ascii", "char(12)", "text", "varbinary(30)", "date",
    "datetime", "datetime(3)", "enum('1','2','x','y')", "enum('y','x','2','1')", "enum('1','2')",
)  # fmt: skip
_DEFAULTS = ("DEFAULT NULL", "DEFAULT 7", "NOT NULL DEFAULT 1", "NOT NULL", "DEFAULT (2 + 3)", "", "", "")
_HELD_IN_HEX = ("varbinary", "binary", "blob")


class Alterations:
    """Random statements on four tables, which are made in a new database.

    Args:
        database: an empty database.
        seed: two histories of the same seed send the same statements.
    """

    def __init__(self, database: MySqlDatabase, seed: int) -> None:
        self.sent: list[str] = []
        """The statements that the server took, in order."""
        self._database = database
        self._rng = random.Random(seed)
        self._numbers = count(1)
        database.run(_SETUP)
        self._session = database.connect()
        self._take("SET lock_wait_timeout = 2, innodb_lock_wait_timeout = 2")
        for _ in range(4):
            self.change()

    def close(self) -> None:
        self._session.close()

    def change(self) -> None:
        """A transaction of some rows."""
        rng = self._rng
        self._take("BEGIN")
        for _ in range(rng.randint(1, 4)):
            table = rng.choice(list(KEYS))
            kind = rng.random()
            where = self._row(table)
            if kind < 0.5:
                self._take(self._insert(table))
            elif kind < 0.8:
                column = rng.choice(self._columns(table))
                self._take(f"UPDATE {table} SET `{column}` = {self._value()} WHERE {where}")
            else:
                self._take(f"DELETE FROM {table} WHERE {where}")
        self._take("ROLLBACK" if rng.random() < 0.1 else "COMMIT")

    def alter(self) -> None:
        """A statement that changes a structure, or several at once."""
        rng = self._rng
        # What does not fit is cut, as in many old databases.
        self._take(f"SET sql_mode = '{rng.choice(['', 'STRICT_ALL_TABLES', 'ANSI_QUOTES'])}'")
        table = rng.choice(list(KEYS))
        kinds: list[Callable[[str], None]] = [self._clauses] * 8
        kinds += [self._swap, self._rename_away, self._remake, self._truncate]
        if table == "parted":
            kinds += [self._partition] * 6
        if self._database.server.name == MARIADB:
            kinds += [self._ignore, self._versioning]
        rng.choice(kinds)(table)
        self._take("SET sql_mode = 'STRICT_ALL_TABLES'")

    def _clauses(self, table: str) -> None:
        count = self._rng.choice([1, 1, 1, 2, 3])
        clauses = ", ".join(self._clause(table) for _ in range(count))
        self._take(f"ALTER TABLE {table} {clauses}")

    def _clause(self, table: str) -> str:
        rng = self._rng
        columns = self._columns(table)
        others = [name for name in columns if name not in KEYS[table]] or ["a"]
        column, kind = rng.choice(others), rng.choice(_TYPES)
        new = rng.choice([f"n{next(self._numbers)}", *"abc"])
        where = rng.choice(["", "", "FIRST", f"AFTER {rng.choice(columns)}"])
        return rng.choice(
            [
                f"ADD COLUMN {new} {kind} {rng.choice(_DEFAULTS)} {where}",
                f"ADD COLUMN {new} {kind} {rng.choice(_DEFAULTS)} {where}",
                f"ADD COLUMN {new} int AS ({KEYS[table][0]} * {rng.randint(2, 5)}) {rng.choice(['STORED', 'VIRTUAL'])}",
                f"DROP COLUMN {column}",
                f"DROP COLUMN {column}, ADD COLUMN {column} {kind} {rng.choice(_DEFAULTS)}",
                f"MODIFY {column} {kind} {rng.choice(['', 'NOT NULL', 'DEFAULT NULL'])} {where}",
                f"MODIFY {column} {kind}",
                f"CHANGE {column} {new} {kind}",
                f"RENAME COLUMN {column} TO {new}",
                f"RENAME COLUMN {column} TO {new}, ADD COLUMN {column} int DEFAULT 7",
                f"RENAME COLUMN {others[0]} TO {others[-1]}, RENAME COLUMN {others[-1]} TO {others[0]}",
                f"ALTER COLUMN {column} SET DEFAULT 3",
                f"ALTER COLUMN {column} DROP DEFAULT",
                f"ADD INDEX i{next(self._numbers)} ({column})",
                "COMMENT = 'again'",
                "FORCE",
                "ENGINE = InnoDB",
                f"CONVERT TO CHARACTER SET {rng.choice(['utf8mb4', 'latin1', 'ascii'])}",
                f"MODIFY {KEYS[table][0]} bigint",
            ]
        )

    def _partition(self, table: str) -> None:
        number = next(self._numbers)
        self._take(
            self._rng.choice(
                [
                    "ALTER TABLE parted TRUNCATE PARTITION p0",
                    "ALTER TABLE parted DROP PARTITION p1",
                    "ALTER TABLE parted DROP PARTITION p0",
                    "ALTER TABLE parted REORGANIZE PARTITION pm INTO (PARTITION p1 VALUES LESS THAN (25), "
                    "PARTITION pm VALUES LESS THAN MAXVALUE)",
                    "ALTER TABLE parted REBUILD PARTITION pm",
                    "ALTER TABLE parted REMOVE PARTITIONING",
                    f"ALTER TABLE parted PARTITION BY HASH (id) PARTITIONS {2 + number % 3}",
                    "ALTER TABLE parted PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (15), "
                    "PARTITION pm VALUES LESS THAN MAXVALUE)",
                ]
            )
        )
        if self._rng.random() < 0.3:
            self._take(f"CREATE TABLE other_{number} LIKE parted")
            self._take(f"ALTER TABLE other_{number} REMOVE PARTITIONING")
            self._take(f"INSERT INTO other_{number} SELECT * FROM parted WHERE id < 10 LIMIT 1")
            self._take(f"ALTER TABLE parted EXCHANGE PARTITION p0 WITH TABLE other_{number}")

    def _swap(self, table: str) -> None:
        """As tools do that change a table online: a copy with another structure takes the table's name."""
        new, old = self._rng.choice([("_{}_gho", "_{}_del"), ("_{}_new", "_{}_old"), ("{}_copy", "{}_was")])
        new, old = new.format(table), old.format(table)
        self._take(f"DROP TABLE IF EXISTS {new}, {old}")
        self._take(f"CREATE TABLE {new} LIKE {table}")
        shared = ", ".join(f"`{name}`" for name in self._columns(table))
        self._take(f"ALTER TABLE {new} {self._clause(table)}")
        self._take(f"INSERT IGNORE INTO {new} ({shared}) SELECT {shared} FROM {table}")
        if self._take(f"RENAME TABLE {table} TO {old}, {new} TO {table}") and self._rng.random() < 0.5:
            self._take(f"DROP TABLE {old}")

    def _rename_away(self, table: str) -> None:
        if self._take(f"RENAME TABLE {table} TO away_{table}"):
            if self._rng.random() < 0.5:
                self._take(f"UPDATE away_{table} SET {self._columns(f'away_{table}')[-1]} = {self._value()}")
            self._take(f"RENAME TABLE away_{table} TO {table}")

    def _remake(self, table: str) -> None:
        (create,) = [row[1] for row in self._rows(f"SHOW CREATE TABLE {table}")]
        if self._take(f"DROP TABLE {table}"):
            self._take(create)
            self._take(self._insert(table))

    def _truncate(self, table: str) -> None:
        self._take(f"TRUNCATE TABLE {table}")

    def _ignore(self, table: str) -> None:
        column = self._rng.choice(self._columns(table))
        name = f"u{next(self._numbers)}"
        if self._take(f"ALTER IGNORE TABLE {table} ADD UNIQUE {name} (`{column}`)"):
            self._take(f"ALTER TABLE {table} DROP INDEX {name}")

    def _versioning(self, table: str) -> None:
        if self._take(f"ALTER TABLE {table} ADD SYSTEM VERSIONING"):
            self.change()
            self._take("SET system_versioning_alter_history = KEEP")
            self._take(f"ALTER TABLE {table} DROP SYSTEM VERSIONING")

    def _insert(self, table: str) -> str:
        names = [row[0] for row in self._rows(f"SHOW COLUMNS FROM {table}") if "GENERATED" not in str(row[5]).upper()]
        values = [self._key(table, name) if name in KEYS[table] else self._value() for name in names]
        listed = ", ".join(f"`{name}`" for name in names)
        return f"INSERT IGNORE INTO {table} ({listed}) VALUES ({', '.join(values)})"

    def _key(self, table: str, name: str) -> str:
        return f"'k{self._rng.randrange(3)}'" if name == "code" else str(self._rng.randrange(30))

    def _row(self, table: str) -> str:
        return " AND ".join(f"{name} = {self._key(table, name)}" for name in KEYS[table])

    def _value(self) -> str:
        rng = self._rng
        return rng.choice(["NULL", "1", "2", str(rng.randrange(60_000)), "'x'", "'y'", "'2024-01-02'", "'é'"])

    def _columns(self, table: str) -> list[str]:
        return [row[0] for row in self._rows(f"SHOW COLUMNS FROM {table}")]

    def _rows(self, sql: str) -> list[tuple[str, ...]]:
        with self._session.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def _take(self, sql: str) -> bool:
        """Whether the server took a statement."""
        try:
            with self._session.cursor() as cursor:
                cursor.execute(sql)
        except pymysql.MySQLError:
            return False
        self.sent.append(sql)
        return True


def held(database: MySqlDatabase, tables: Iterable[str] = KEYS) -> dict[str, Held]:
    """What the tables hold, as the server prints it."""
    found: dict[str, Held] = {}
    with database.connect(conv={}) as session, session.cursor() as cursor:
        for table in tables:
            cursor.execute(
                "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = database() "
                f"AND table_name = '{table}' AND column_name NOT IN ('row_start', 'row_end') ORDER BY ordinal_position"
            )
            columns = list(cursor.fetchall())
            shown = [f"HEX(`{name}`)" if kind in _HELD_IN_HEX else f"CAST(`{name}` AS CHAR)" for name, kind in columns]
            cursor.execute(f"SELECT {', '.join(shown)} FROM {table}")
            rows = [
                tuple(_text(kind, text) for (_, kind), text in zip(columns, row, strict=True))
                for row in cursor.fetchall()
            ]
            found[table] = [name for name, _ in columns], rows
    return found


def _text(kind: str, text: str | None) -> str | None:
    if text is None or kind not in _HELD_IN_HEX:
        return text
    return base64.b64encode(bytes.fromhex(text)).decode()
