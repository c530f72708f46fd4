"""The shop on a real PostgreSQL."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from headrace_emulators.engine.shop import TABLES, SqlShop
from headrace_emulators.engine.traffic import Cursor
from headrace_emulators.postgresql.server import PostgresServer

SCHEMA = "shop"
_TABLES = """
CREATE SCHEMA shop;
CREATE TYPE shop.progress AS ENUM ('new', 'shipped', 'returned');
CREATE TABLE shop.customers (id integer PRIMARY KEY, name varchar(80) NOT NULL, email text, born date,
  credit numeric(19,4) NOT NULL DEFAULT 0, notes text, photo bytea, profile jsonb, tags text[],
  created timestamptz NOT NULL, token uuid);
CREATE TABLE shop.products (sku varchar(20) PRIMARY KEY, title text NOT NULL, price numeric(12,3) NOT NULL,
  weight real, rating numeric, checksum bytea, stock smallint NOT NULL DEFAULT 0, opens time, changed timestamp);
CREATE TABLE shop.orders (order_id bigint PRIMARY KEY, customer_id integer NOT NULL, placed timestamp(0) NOT NULL,
  status shop.progress NOT NULL DEFAULT 'new', total numeric(18,2), ratio double precision,
  remark varchar(200) DEFAULT 'none');
CREATE TABLE shop.order_lines (order_id bigint NOT NULL, line smallint NOT NULL, sku varchar(20) NOT NULL,
  quantity integer NOT NULL, price numeric(12,3) NOT NULL, note varchar(10), PRIMARY KEY (order_id, line));
CREATE TABLE shop.audit_log (happened timestamp(3) NOT NULL, who varchar(20), what varchar(100));
-- Without a key the server refuses updates of a published table, unless the log has whole rows.
ALTER TABLE shop.audit_log REPLICA IDENTITY FULL;
"""
_COLUMNS = """
SELECT a.attname, t.typname,
  a.attnum = ANY (SELECT unnest(i.indkey) FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisprimary)
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_SELECTED = {"_text": "to_json({})::text", "jsonb": "{}::text", "progress": "{}::text"}
"""How columns of these types are selected as text."""
_KEPT = {"int2": "INTEGER", "int4": "INTEGER", "int8": "INTEGER", "float4": "REAL", "float8": "REAL", "bytea": "BLOB"}
_MAX_LINE = 100


class _Cursor:
    """A session's cursor that takes `?` for parameters."""

    def __init__(self, connection: Any) -> None:
        self._cursor = connection.cursor()

    @property
    def rowcount(self) -> int:
        """Rows changed by the last statement."""
        return int(self._cursor.rowcount)

    def execute(self, sql: str, parameters: Sequence[Any], /) -> _Cursor:
        self._cursor.execute(sql.replace("%", "%%").replace("?", "%s"), parameters)
        return self


class ShopOnPostgres:
    """A database of a real server, which writes its log by itself.

    Args:
        server: it is running.
        name: of the database.
    """

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server = server
        self.name = name
        self._connection = server.connect(name)

    @property
    def path(self) -> Path:
        return self.server.data

    def ask(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """The rows that a query gives."""
        return list(self._connection.execute(sql, parameters or None))

    def script(self, text: str) -> None:
        """Run statements that semicolons end."""
        self._connection.execute(text)

    @contextmanager
    def transaction(self) -> Iterator[Cursor]:
        """A transaction, committed at the block's end, rolled back when the block raises."""
        with self._connection.transaction():
            yield _Cursor(self._connection)

    def capturing(self) -> AbstractContextManager[object]:
        return nullcontext()

    def capture(self) -> int:
        return 0

    def close(self) -> None:
        self._connection.close()


def _kept(value: object) -> object:
    """A value as SQLite keeps it: numbers with all digits and times as text."""
    if isinstance(value, dt.time):
        return value.isoformat("microseconds")
    return value if value is None or isinstance(value, int | float | bytes | str) else str(value)


class PostgresShop(SqlShop[ShopOnPostgres]):
    schema = SCHEMA
    script = _TABLES
    changed_customer = "name = ?, credit = credit + 1.5"
    nullable = ("notes", "born", "profile", "photo", "tags")
    part_of_stock = "mod(stock, 7)"
    remark = "remark"

    def publish(self, path: Path) -> None:
        """Write the rows of all tables into a plain SQLite file, for a comparison."""
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as target, target:
            for table in TABLES:
                columns = self.database.ask(_COLUMNS, f"{SCHEMA}.{table}")
                declared = [f'"{name}" {_KEPT.get(kind, "TEXT")}' for name, kind, _ in columns]
                key = ", ".join(f'"{name}"' for name, _, in_key in columns if in_key)
                declared += [f"PRIMARY KEY ({key})"] if key else []
                target.execute(f'CREATE TABLE "{SCHEMA}.{table}" ({", ".join(declared)})')
                chosen = ", ".join(_SELECTED.get(kind, "{}").format(name) for name, kind, _ in columns)
                rows = self.database.ask(f"SELECT {chosen} FROM {SCHEMA}.{table}")
                places = ", ".join("?" * len(columns))
                insert = f'INSERT INTO "{SCHEMA}.{table}" VALUES ({places})'
                target.executemany(insert, (tuple(map(_kept, row)) for row in rows))

    @classmethod
    def _new_database(cls, server: PostgresServer, name: str) -> ShopOnPostgres:
        server.run(f"CREATE DATABASE {name}", database="postgres")
        return ShopOnPostgres(server, name)

    def _enable_capture(self, table: str) -> None:
        """Nothing: the pipeline makes its publication."""

    def _add_customer(self, cursor: Cursor) -> None:
        values, r = self.values, self.values.random
        self.stock.customer += 1
        number = self.stock.customer
        self.insert(
            cursor, "customers", id=number, name=values.name(), email=values.maybe(f"c{number}@example.org"),
            born=values.maybe(values.birthday()), credit=values.number(-10_000, 10_000_000, 4),
            notes=values.maybe(values.large()), photo=values.maybe(r.randbytes(r.randrange(2000))),
            profile=values.maybe(json.dumps({"likes": values.title(), "visits": r.randrange(99)})),
            tags=values.maybe([values.word() for _ in range(r.randrange(4))]),
            created=values.now.replace(tzinfo=dt.UTC), token=values.maybe(uuid.UUID(int=r.getrandbits(128))),
        )  # fmt: skip
        self.stock.customers.append(number)

    def _product(self) -> dict[str, object]:
        values, r = self.values, self.values.random
        return {
            "title": values.title(), "price": values.number(1, 10**8, 3), "weight": values.maybe(r.random() * 10),
            "rating": values.maybe(values.number(1, 500, 2)), "checksum": values.maybe(r.randbytes(16)),
            "stock": r.randrange(500), "opens": values.maybe(dt.time(r.randrange(24), r.randrange(60), 7)),
            "changed": values.maybe(values.now),
        }  # fmt: skip

    def _renumber_lines(self, cursor: Cursor) -> None:
        if self.stock.lines:
            order = self.any_order()
            # From the last line on, so that no two rows have one key in between.
            for line in range(self.stock.lines[order], 0, -1):
                sql = "UPDATE {} SET line = ? WHERE order_id = ? AND line = ?"
                self.run(cursor, "order_lines", "update", sql, line + _MAX_LINE, order, line)
            del self.stock.lines[order]

    def _clean_log(self, cursor: Cursor) -> None:
        day, who = self.values.log_day(), self.values.random.choice(("ann", "bob"))
        self.run(cursor, "audit_log", "delete", "DELETE FROM {} WHERE who = ? AND happened = ?", who, day)
        sql = "UPDATE {} SET what = 'seen' WHERE who IS NULL AND what = 'saw it' AND happened = ?"
        self.run(cursor, "audit_log", "update", sql, day)
