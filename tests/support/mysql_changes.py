"""Ten tables of a MySQL or MariaDB database, and random transactions on them.

What the database holds at the end is the truth, as a session prints it; nobody counts what the transactions did.
"""

from __future__ import annotations

import random
from itertools import count

import pymysql
from tests.support.mirror import Held

from headrace_emulators.mysql.server import MARIADB, MySqlDatabase

KEYS = {
    "plain": ("id",),
    "composite": ("area", "code"),
    "coded": ("code",),
    "keyless": (),
    "parted": ("id",),
    "texts": ("name",),
    "wide": ("id",),
    "documents": ("id",),
    "altered": ("id",),
    "emptied": ("id",),
}
"""The columns by which a mirror knows a table's rows."""
_TABLES = """
CREATE TABLE plain (id int PRIMARY KEY, a bigint unsigned, v varchar(60), big mediumtext);
CREATE TABLE composite (area int, code varchar(20), a decimal(12,2), big text, PRIMARY KEY (area, code));
CREATE TABLE coded (id int NOT NULL, code varchar(40) NOT NULL, a date, big mediumtext, UNIQUE by_code (code));
CREATE TABLE keyless (a int, v varchar(60), big mediumtext);
CREATE TABLE parted (id int PRIMARY KEY, a char(64), big mediumtext)
    PARTITION BY RANGE (id) (PARTITION low VALUES LESS THAN (1000), PARTITION high VALUES LESS THAN MAXVALUE);
CREATE TABLE texts (name varchar(60) PRIMARY KEY, v text) COLLATE utf8mb4_bin;
CREATE TABLE documents (id int PRIMARY KEY, mood enum('low', 'high'), at datetime(6), body json);
CREATE TABLE altered (id int PRIMARY KEY, a int);
CREATE TABLE emptied (id int PRIMARY KEY, a int, big mediumtext);
"""
_WIDE = tuple(f"c{n}" for n in range(24))
_ODD = ["x", "\t", "\n", "\\", "\\N", "\r\n", "'", '"', "{}", "ä€😀", "null", ",", "a\tb\\c", "%s", "%"]
_SPAN = 2_000
_IMAGES = ("FULL", "FULL", "FULL", "NOBLOB", "MINIMAL")
_LOCKED = (1205, 1213)
_NUMBER = {"composite": "area", "keyless": "a"}


class Changes:
    """Random transactions on the ten tables, which are made in a new database.

    Args:
        database: an empty database.
        seed: two runs of the same seed send the same statements.
    """

    def __init__(self, database: MySqlDatabase, seed: int) -> None:
        self.database = database
        self.rows = 0
        """How many rows were changed in committed transactions, those of emptied tables not counted."""
        self._rng = random.Random(seed)
        self._columns = 0
        self._image = "FULL"
        self._names = count(1)
        database.run(
            f"{_TABLES} CREATE TABLE wide (id int PRIMARY KEY, {', '.join(f'{n} varchar(20)' for n in _WIDE)})"
        )
        self._session = database.connect()
        self._run("SET innodb_lock_wait_timeout = 1, lock_wait_timeout = 1")
        depth = "max_recursive_iterations" if database.server.name == MARIADB else "cte_max_recursion_depth"
        self._run(f"SET {depth} = 1000000")

    def close(self) -> None:
        self._session.close()

    def step(self, rows: int = 20) -> None:
        """One transaction of about so many rows, which is rolled back at times, in whole or in part; also where a table
        is locked. Or a statement that alters or empties a table.
        """
        rng = self._rng
        if rng.random() < 0.05:
            self._define()
            return
        # What the log has of an update and a delete.
        self._image = rng.choice(_IMAGES)
        self._run(f"SET SESSION binlog_row_image = {self._image}")
        xid = f"'{self.database.name}-{next(self._names)}'" if rng.random() < 0.08 else ""
        self._run(f"XA START {xid}" if xid else "BEGIN")
        try:
            done = sum(self._part(rows) for _ in range(rng.randint(1, 4)))
        except pymysql.MySQLError as error:
            if error.args[0] not in _LOCKED:
                raise
            done = -1
        self.rows += self._ended(xid, done)

    def _part(self, rows: int) -> int:
        rng = self._rng
        point = rng.random() < 0.15
        if point:
            self._run("SAVEPOINT s")
        changed = self._statement(rng.randint(1, rows))
        if point and rng.random() < 0.5:
            self._run("ROLLBACK TO SAVEPOINT s")
            return 0
        return changed

    def _ended(self, xid: str, done: int) -> int:
        gives_up = done < 0 or self._rng.random() < 0.1
        if xid:
            self._run(f"XA END {xid}")
            self._run(f"XA PREPARE {xid}")
            self._run(f"XA {'ROLLBACK' if gives_up else 'COMMIT'} {xid}")
        else:
            self._run("ROLLBACK" if gives_up else "COMMIT")
        return 0 if gives_up else done

    def _define(self) -> None:
        if self._rng.random() < 0.3:
            self._run("TRUNCATE emptied")
            return
        with self._session.cursor() as cursor:
            cursor.execute("SHOW COLUMNS FROM altered")
            names = [name for name, *_ in cursor.fetchall() if name not in ("id", "a")]
        kind = self._rng.random()
        if len(names) > 3 or (names and kind < 0.3):
            self._run(f"ALTER TABLE altered DROP COLUMN {self._rng.choice(names)}")
        elif kind < 0.5:
            self._run(f"ALTER TABLE altered MODIFY a {self._rng.choice(['int', 'bigint', 'decimal(12,0)'])}")
        else:
            self._columns += 1
            position = self._rng.choice(["", "FIRST", "AFTER id"])
            self._run(f"ALTER TABLE altered ADD COLUMN more_{self._columns} varchar(20) {position}")
            self._run(f"UPDATE altered SET more_{self._columns} = CONCAT('m', id) WHERE id % 3 = {self._columns % 3}")

    def _statement(self, rows: int) -> int:
        rng = self._rng
        table = rng.choice(list(KEYS))
        kind = rng.random()
        if table == "texts":
            return self._texts(rows, kind)
        low = rng.randrange(_SPAN)
        key = _NUMBER.get(table, "id")
        if kind < 0.45:
            return self._run(self._insert(table, low, rows))
        # While tables are read the run stops at a new key whose row is not whole.
        if kind < 0.8 or (kind < 0.85 and self._image != "FULL"):
            return self._run(self._update(table, low, rows))
        if kind < 0.85:
            return self._run(self._new_key(table, low))
        return self._run(f"DELETE FROM {table} WHERE {key} BETWEEN {low} AND {low + rows // 2}")

    def _run(self, sql: str, parameters: tuple[str, ...] | None = None) -> int:
        with self._session.cursor() as cursor:
            return int(cursor.execute(sql, parameters))

    def _big(self, number: str) -> str:
        """A large value, a small one, or none."""
        large = f"REPEAT(SHA2(CONCAT({number}, '{self._rng.random()}'), 256), 40)"
        return self._rng.choice([large, "'small'", "NULL"])

    def _insert(self, table: str, low: int, rows: int) -> str:
        big, number = self._big("n"), self._rng.randrange(10**6)
        day = f"DATE '2024-01-01' + INTERVAL {number % 5000} DAY"
        values = {
            "plain": f"n, n * {number} + 9223372036854775808, 'v{number}', {big}",
            "composite": f"n, CONCAT('k', n % 3), {number}.25, {big}",
            "coded": f"n, CONCAT('c', n), {day}, {big}",
            "keyless": f"n, 'v{number % 7}', {big}",
            "parted": f"n, SHA2({number}, 256), {big}",
            "wide": "n, " + ", ".join(f"'{name}-{number}'" for name in _WIDE),
            "documents": f"n, {1 + number % 2}, '2024-02-29 01:02:03.{number:06}', JSON_OBJECT('n', n, 'of', {number})",
            "altered": f"n, {number}",
            "emptied": f"n, {number}, {big}",
        }[table]
        names = "(id, a) " if table == "altered" else ""
        numbers = f"WITH RECURSIVE s(n) AS (SELECT {low} UNION ALL SELECT n + 1 FROM s WHERE n < {low + rows - 1})"
        return f"INSERT IGNORE INTO {table} {names}{numbers} SELECT {values} FROM s"

    def _update(self, table: str, low: int, rows: int) -> str:
        number = self._rng.randrange(10**6)
        key = _NUMBER.get(table, "id")
        big = f", big = {self._big(key)}" if self._rng.random() < 0.3 else ""
        change = {
            "plain": f"v = 'w{number}'{big}",
            "composite": f"a = {number}.75{big}",
            "coded": f"a = DATE '2025-01-01' + INTERVAL {number % 5000} DAY{big}",
            "keyless": f"v = 'w{number % 7}'{big}",
            "parted": f"a = SHA2({number}, 256){big}",
            "wide": f"{self._rng.choice(_WIDE)} = '{number}'",
            "documents": f"mood = NULL, body = JSON_SET(body, '$.more', {number})",
            "altered": f"a = {number % 1000}",
            "emptied": f"a = {number}{big}",
        }[table]
        return f"UPDATE {table} SET {change} WHERE {key} BETWEEN {low} AND {low + rows - 1}"

    def _new_key(self, table: str, low: int) -> str:
        """A row gets a key that no row has; in a partitioned table often one of another partition."""
        if table == "coded":
            # Several rows may have one id.
            # MySQL has no MD5 any more.
            code = f"CONCAT('{self._rng.randrange(10**6)}-', LEFT(SHA2(code, 256), 32))"
            return f"UPDATE coded SET code = {code} WHERE id = {low}"
        key = _NUMBER.get(table, "id")
        new = f"(SELECT * FROM (SELECT COALESCE(MAX({key}), 0) + 1 FROM {table}) top)"
        return f"UPDATE {table} SET {key} = {new} WHERE {key} = {low}"

    def _texts(self, rows: int, kind: float) -> int:
        done = 0
        for _ in range(min(rows, 5)):
            name = self._rng.choice(_ODD) + str(self._rng.randrange(50))
            if kind < 0.7:
                upsert = "INSERT INTO texts VALUES (%s, %s) ON DUPLICATE KEY UPDATE v = VALUES(v)"
                done += self._run(upsert, (name, self._rng.choice(_ODD)))
            else:
                done += self._run("DELETE FROM texts WHERE name = %s", (name,))
        return done


def held(database: MySqlDatabase) -> dict[str, Held]:
    """What the tables hold, as the server prints it."""
    found: dict[str, Held] = {}
    with database.connect(conv={}) as session, session.cursor() as cursor:
        for table in KEYS:
            cursor.execute(f"SELECT * FROM {table}")
            found[table] = [column[0] for column in cursor.description], list(cursor.fetchall())
    return found
