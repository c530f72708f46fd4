"""Ten tables of a PostgreSQL database, and random transactions on them.

What the database holds at the end is the truth, as `COPY` prints it; nobody counts what the transactions did.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from typing import Any

import psycopg
from tests.support.mirror import Held

from headrace_emulators.postgresql.server import PostgresDatabase

KEYS = {
    "plain": ("id",),
    "composite": ("area", "code"),
    "full_identity": ("id",),
    "index_identity": ("code",),
    "keyless": (),
    "parted": ("id",),
    "texts": ("name",),
    "wide": ("id",),
    "altered": ("id",),
    "emptied": ("id",),
}
"""The columns by which a mirror knows a table's rows."""
_TABLES = """
CREATE TABLE plain (id int PRIMARY KEY, a bigint, v text, big text);
CREATE TABLE composite (area int, code varchar(20), a numeric(12,2), big text, PRIMARY KEY (area, code));
CREATE TABLE full_identity (id int PRIMARY KEY, a int, big text);
ALTER TABLE full_identity REPLICA IDENTITY FULL;
CREATE TABLE index_identity (id int PRIMARY KEY, code varchar(40) NOT NULL, a date, big text);
CREATE UNIQUE INDEX by_code ON index_identity (code);
ALTER TABLE index_identity REPLICA IDENTITY USING INDEX by_code;
CREATE TABLE keyless (a int, v text, big text);
ALTER TABLE keyless REPLICA IDENTITY FULL;
CREATE TABLE parted (id int PRIMARY KEY, a uuid, big text) PARTITION BY RANGE (id);
CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (MINVALUE) TO (1000);
CREATE TABLE parted_high (big text, a uuid, id int NOT NULL);
ALTER TABLE parted ATTACH PARTITION parted_high FOR VALUES FROM (1000) TO (MAXVALUE);
CREATE TABLE texts (name text PRIMARY KEY, v text);
CREATE TABLE altered (id int PRIMARY KEY, a int);
CREATE TABLE emptied (id int PRIMARY KEY, a int, big text);
"""
_WIDE = tuple(f"c{n}" for n in range(24))
_ODD = ["", " ", "\t", "\n", "\\", "\\N", "\r\n", "'", '"', "{}", "ä€😀", "null", ",", "a\tb\\c"]
_SPAN = 2_000


class Changes:
    """Random transactions on the ten tables, which are made in a new database.

    Args:
        database: an empty database.
        seed: two runs of the same seed send the same statements.
    """

    def __init__(self, database: PostgresDatabase, seed: int) -> None:
        self.database = database
        self.rows = 0
        """How many rows were changed in committed transactions, those of emptied tables not counted."""
        self._rng = random.Random(seed)
        self._columns = 0
        wide = ", ".join(f"{name} text" for name in _WIDE)
        database.execute(f"{_TABLES} CREATE TABLE wide (id int PRIMARY KEY, {wide});")
        for table in ("plain", "composite", "full_identity", "index_identity", "keyless", "parted_low", "parted_high"):
            # Of 2,100 characters and more a value is stored beside its row.
            database.execute(f"ALTER TABLE {table} ALTER big SET STORAGE EXTERNAL")
        # Whoever reads a table in a snapshot keeps it from being altered and emptied.
        self.connection = database.connect(options="-c lock_timeout=50ms")

    def close(self) -> None:
        self.connection.close()

    def step(self, rows: int = 20) -> None:
        """One transaction of about so many rows, which is rolled back at times, in whole or in part; also where a table
        is locked.
        """
        try:
            self._transaction(rows)
        except psycopg.errors.LockNotAvailable:
            self.connection.execute("ROLLBACK")

    def _transaction(self, rows: int) -> None:
        rng, done = self._rng, 0
        self.connection.execute("BEGIN")
        for _ in range(rng.randint(1, 4)):
            point = rng.random() < 0.15
            if point:
                self.connection.execute("SAVEPOINT s")
            changed = self._statement(rng.randint(1, rows))
            if point and rng.random() < 0.5:
                self.connection.execute("ROLLBACK TO SAVEPOINT s")
            else:
                done += changed
        if rng.random() < 0.1:
            self.connection.execute("ROLLBACK")
        elif rng.random() < 0.05:
            self.connection.execute("PREPARE TRANSACTION 'changes'")
            self.connection.execute("COMMIT PREPARED 'changes'")
            self.rows += done
        else:
            self.connection.execute("COMMIT")
            self.rows += done

    def _statement(self, rows: int) -> int:
        rng = self._rng
        table = rng.choice(list(KEYS))
        if table == "emptied" and rng.random() < 0.2:
            self.connection.execute("TRUNCATE emptied")
            return 0
        if table == "altered" and rng.random() < 0.2:
            self._alter()
            return 0
        kind = rng.random()
        if table == "texts":
            return self._texts(rows, kind)
        low = rng.randrange(_SPAN)
        if kind < 0.45:
            return self._run(self._insert(table, low, rows))
        if kind < 0.8:
            return self._run(self._update(table, low, rows))
        if kind < 0.85:
            return self._run(self._new_key(table, low))
        key = {"composite": "area", "index_identity": "id", "keyless": "a"}.get(table, "id")
        return self._run(f"DELETE FROM {table} WHERE {key} BETWEEN {low} AND {low + rows // 2}")

    def _run(self, sql: str, parameters: Any = None) -> int:
        return int(self.connection.execute(sql, parameters).rowcount)

    def _big(self) -> str:
        """A value that is stored beside its row, one in it, or none."""
        return self._rng.choice([f"repeat(md5(n::text || '{self._rng.random()}'), 80)", "'small'", "NULL"])

    def _insert(self, table: str, low: int, rows: int) -> str:
        big, number = self._big(), self._rng.randrange(10**6)
        values = {
            "plain": f"n, n * {number}::bigint, 'v' || {number}, {big}",
            "composite": f"n, 'k' || n % 3, {number}.25, {big}",
            "full_identity": f"n, {number}, {big}",
            "index_identity": f"n, 'c' || n, date '2024-01-01' + {number % 5000}, {big}",
            "keyless": f"n, 'v' || {number % 7}, {big}",
            "parted": f"n, md5({number}::text)::uuid, {big}",
            "wide": "n, " + ", ".join(f"'{name}-' || {number}" for name in _WIDE),
            "altered": f"n, {number}",
            "emptied": f"n, {number}, {big}",
        }[table]
        names = "(id, a) " if table == "altered" else ""
        return (
            f"INSERT INTO {table} {names}SELECT {values} FROM generate_series({low}, {low + rows - 1}) n "
            "ON CONFLICT DO NOTHING"
        )

    def _update(self, table: str, low: int, rows: int) -> str:
        number = self._rng.randrange(10**6)
        big = f", big = {self._big()}" if self._rng.random() < 0.3 else ""
        key = {"composite": "area", "keyless": "a"}.get(table, "id")
        change = {
            "plain": f"v = 'w' || {number}{big}",
            "composite": f"a = {number}.75{big}",
            "full_identity": f"a = {number}{big}",
            "index_identity": f"a = date '2025-01-01' + {number % 5000}{big}",
            "keyless": f"v = 'w' || {number % 7}{big}",
            "parted": f"a = md5({number}::text)::uuid{big}",
            "wide": f"{self._rng.choice(_WIDE)} = '{number}'",
            "altered": f"a = {number % 1000}",
            "emptied": f"a = {number}{big}",
        }[table]
        # The text of a value says of which row it is.
        change = change.replace("n::text", f"{key}::text")
        return f"UPDATE {table} SET {change} WHERE {key} BETWEEN {low} AND {low + rows - 1}"

    def _new_key(self, table: str, low: int) -> str:
        """A row gets a key that no row has; in a partitioned table often one of another partition."""
        key = {"composite": "area", "keyless": "a"}.get(table, "id")
        new = f"(SELECT coalesce(max({key}), 0) + 1 FROM {table})"
        if table == "index_identity":
            return f"UPDATE {table} SET code = 'x' || {self._rng.random()} WHERE id = {low}"
        return f"UPDATE {table} SET {key} = {new} WHERE {key} = {low}"

    def _texts(self, rows: int, kind: float) -> int:
        done = 0
        for _ in range(min(rows, 5)):
            name = self._rng.choice(_ODD) + str(self._rng.randrange(50))
            if kind < 0.7:
                done += self._run(
                    "INSERT INTO texts VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET v = excluded.v",
                    (name, self._rng.choice(_ODD)),
                )
            else:
                done += self._run("DELETE FROM texts WHERE name = %s", (name,))
        return done

    def _alter(self) -> None:
        names = [
            name
            for (name,) in self.connection.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = 'altered'::regclass AND attnum > 2 "
                "AND NOT attisdropped"
            ).fetchall()
        ]
        if len(names) > 3 or (names and self._rng.random() < 0.3):
            self.connection.execute(f"ALTER TABLE altered DROP COLUMN {self._rng.choice(names)}")
            return
        self._columns += 1
        self.connection.execute(f"ALTER TABLE altered ADD COLUMN more_{self._columns} text")
        self.connection.execute(
            f"UPDATE altered SET more_{self._columns} = 'm' || id WHERE id % 3 = {self._columns % 3}"
        )


def held(database: PostgresDatabase, tables: Iterable[str] = tuple(KEYS)) -> dict[str, Held]:
    """What tables hold, as COPY prints it."""
    found: dict[str, Held] = {}
    for table in tables:
        names = [
            name
            for (name,) in database.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 "
                "AND NOT attisdropped ORDER BY attnum",
                (table,),
            )
        ]
        lines = database.copied(f"(SELECT * FROM {table})").split("\n")[:-1]
        found[table] = names, [tuple(map(_plain, line.split("\t"))) for line in lines]
    return found


_SIGNS = {"t": "\t", "n": "\n", "r": "\r", "b": "\b", "f": "\f", "v": "\v"}


def _plain(cell: str) -> str | None:
    return None if cell == "\\N" else re.sub(r"\\(.)", lambda found: _SIGNS.get(found[1], found[1]), cell)
