"""The shop on a real MariaDB or MySQL."""

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
from headrace_emulators.mysql.server import MySqlServer

_TABLES = """
CREATE TABLE customers (id int unsigned PRIMARY KEY, name varchar(80) NOT NULL, email varchar(100), born date,
  credit decimal(19,4) NOT NULL DEFAULT 0, notes mediumtext, photo mediumblob, profile json,
  created timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), token char(36));
CREATE TABLE products (sku varchar(20) PRIMARY KEY, title text NOT NULL, price decimal(12,3) NOT NULL,
  weight double, since year, checksum binary(16), stock smallint NOT NULL DEFAULT 0,
  opens time(6), changed datetime(6));
CREATE TABLE orders (order_id bigint unsigned PRIMARY KEY, customer_id int unsigned NOT NULL, placed datetime NOT NULL,
  status enum('new', 'shipped', 'returned') NOT NULL DEFAULT 'new', total decimal(18,2), ratio double,
  remark varchar(200) DEFAULT 'none');
CREATE TABLE order_lines (order_id bigint unsigned NOT NULL, line smallint NOT NULL, sku varchar(20) NOT NULL,
  quantity int NOT NULL, price decimal(12,3) NOT NULL, note varchar(10), PRIMARY KEY (order_id, line));
CREATE TABLE audit_log (happened datetime(3) NOT NULL, who varchar(20), what varchar(100));
"""
_COLUMNS = """
SELECT COLUMN_NAME, DATA_TYPE, COLUMN_KEY = 'PRI' FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION
"""
_KEPT = {
    **dict.fromkeys(("smallint", "int", "bigint", "year"), "INTEGER"),
    **dict.fromkeys(("mediumblob", "binary"), "BLOB"),
    "double": "REAL",
}
"""How SQLite keeps columns; others as the text that the server makes of them."""
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

    def rows(self) -> list[tuple[Any, ...]]:
        """What the last query gave."""
        return list(self._cursor.fetchall())


class ShopOnMysql:
    """A database of a real server, which writes its log by itself.

    Args:
        server: it is running.
        name: of the database.
    """

    def __init__(self, server: MySqlServer, name: str) -> None:
        self.server = server
        self.name = name
        self._connection = server.connect(name)

    @property
    def path(self) -> Path:
        return self.server.data

    def ask(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """The rows that a query gives."""
        return _Cursor(self._connection).execute(sql, parameters).rows()

    def script(self, text: str) -> None:
        """Run statements that semicolons end."""
        self.server.run(text, database=self.name)

    @contextmanager
    def transaction(self) -> Iterator[Cursor]:
        """A transaction, committed at the block's end, rolled back when the block raises."""
        self._connection.begin()
        try:
            yield _Cursor(self._connection)
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.commit()

    def capturing(self) -> AbstractContextManager[object]:
        return nullcontext()

    def capture(self) -> int:
        return 0

    def close(self) -> None:
        self._connection.close()


class MysqlShop(SqlShop[ShopOnMysql]):
    schema = "shop"
    script = _TABLES
    changed_customer = "name = ?, credit = credit + 1.5"
    nullable = ("notes", "born", "profile", "photo")
    part_of_stock = "mod(stock, 7)"
    remark = "remark"

    def publish(self, path: Path) -> None:
        """Write the rows of all tables into a plain SQLite file, for a comparison."""
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as target, target:
            for table in TABLES:
                columns = self.database.ask(_COLUMNS, self.database.name, table)
                declared = [f'"{name}" {_KEPT.get(kind, "TEXT")}' for name, kind, _ in columns]
                key = ", ".join(f'"{name}"' for name, _, in_key in columns if in_key)
                declared += [f"PRIMARY KEY ({key})"] if key else []
                target.execute(f'CREATE TABLE "{self.schema}.{table}" ({", ".join(declared)})')
                chosen = ", ".join(name if kind in _KEPT else f"CAST({name} AS CHAR)" for name, kind, _ in columns)
                rows = self.database.ask(f"SELECT {chosen} FROM {table}")
                places = ", ".join("?" * len(columns))
                target.executemany(f'INSERT INTO "{self.schema}.{table}" VALUES ({places})', rows)

    @classmethod
    def _new_database(cls, server: MySqlServer, name: str) -> ShopOnMysql:
        server.run(f"CREATE DATABASE {name}", database=None)
        return ShopOnMysql(server, name)

    def _enable_capture(self, table: str) -> None:
        """Nothing: the log has the changes of every table."""

    def _add_customer(self, cursor: Cursor) -> None:
        values, r = self.values, self.values.random
        self.stock.customer += 1
        number = self.stock.customer
        self.insert(
            cursor, "customers", id=number, name=values.name(), email=values.maybe(f"c{number}@example.org"),
            born=values.maybe(values.birthday()), credit=values.number(-10_000, 10_000_000, 4),
            notes=values.maybe(values.large()), photo=values.maybe(r.randbytes(r.randrange(2000))),
            profile=values.maybe(json.dumps({"likes": values.title(), "visits": r.randrange(99)})),
            created=values.now, token=values.maybe(str(uuid.UUID(int=r.getrandbits(128)))),
        )  # fmt: skip
        self.stock.customers.append(number)

    def _product(self) -> dict[str, object]:
        values, r = self.values, self.values.random
        return {
            "title": values.title(), "price": values.number(1, 10**8, 3), "weight": values.maybe(r.random() * 10),
            "since": values.maybe(1950 + r.randrange(90)), "checksum": values.maybe(r.randbytes(16)),
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
