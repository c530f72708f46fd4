"""A small shop with traffic that is hard to capture: key changes, rollbacks, large values, no key at all.

All values come from the seed: the same seed gives the same transactions.
"""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from headrace_emulators.engine.traffic import Workload
from headrace_emulators.sqlserver.driver import Cursor
from headrace_emulators.sqlserver.server import EmulatedDatabase, EmulatedServer

_TABLES = """
CREATE TABLE dbo.customers (id int NOT NULL IDENTITY(1001, 1) PRIMARY KEY, guid uniqueidentifier NOT NULL,
  name nvarchar(80) NOT NULL,
  email varchar(120) NULL, born date NULL, active bit NOT NULL DEFAULT 1, credit money NOT NULL DEFAULT 0,
  notes nvarchar(max) NULL,
  photo varbinary(max) NULL, created datetime2(7) NOT NULL, seen datetimeoffset(3) NULL,
  CONSTRAINT UQ_email UNIQUE (email, guid))
GO
CREATE TABLE dbo.products (sku varchar(20) NOT NULL PRIMARY KEY, title nvarchar(100) NOT NULL,
  price decimal(12,3) NOT NULL,
  weight real NULL, checksum varbinary(16) NULL, stock smallint NOT NULL DEFAULT 0, opens time(3) NULL,
  changed datetime NULL)
GO
CREATE TABLE dbo.orders (order_id bigint NOT NULL PRIMARY KEY, customer_id int NOT NULL, placed smalldatetime NOT NULL,
  status nchar(8) NOT NULL DEFAULT N'new', total decimal(18,2) NULL, ratio float NULL,
  comment varchar(200) NULL DEFAULT 'none')
GO
CREATE TABLE dbo.order_lines (order_id bigint NOT NULL, line tinyint NOT NULL, sku varchar(20) NOT NULL,
  quantity int NOT NULL,
  price decimal(12,3) NOT NULL, note nvarchar(50) NULL, PRIMARY KEY (order_id, line))
GO
CREATE TABLE dbo.audit_log (happened datetime2(3) NOT NULL, who varchar(20) NULL, what nvarchar(100) NULL)
"""
_NAMES = ("customers", "products", "orders", "order_lines", "audit_log")
_FIRST = ("Zoë", "José", "Müller", "Anna", "李雷", "Олег", "O'Neil", "Søren", "Ada", "Grace 😀", "نور", "Bob")
_WORDS = ("pen", "lamp", "Käse", "drum", "cup", "tee", "サケ", "rope", "box")
_EPOCH = dt.datetime(2024, 1, 1, 8, 0, 0)


class Shop(Workload[EmulatedDatabase]):
    """The shop database.

    Args:
        database: made by `create`.
        random: where all choices come from.
    """

    def __init__(self, database: EmulatedDatabase, random: random.Random) -> None:
        super().__init__(database)
        self._random = random
        self._now = _EPOCH
        self._order = 0
        self._customers: list[int] = []
        self._next_customer = 1001
        self._skus: list[str] = []
        self._lines: dict[int, int] = {}
        self._retired: list[str] = []

    @classmethod
    def create(
        cls, server: EmulatedServer, seed: int = 1, *, name: str = "shop", customers: int = 100, products: int = 40
    ) -> Shop:
        """Make the database with customers, products and a few orders as its history.

        Args:
            server: where.
            seed: decides everything.
            name: of the database.
            customers: how many there are at first.
            products: how many there are at first.
        """
        database = server.create_database(name)
        database.script(_TABLES)
        shop = cls(database, random.Random(seed))
        with database.transaction() as cursor:
            for _ in range(products):
                shop._add_product(cursor)
            for _ in range(customers):
                shop._add_customer(cursor)
            for _ in range(customers // 4):
                shop._place_order(cursor)
        shop._done.clear()
        for table in _NAMES:
            database.execute(
                f"EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{table}', @role_name = NULL"
            )
        database.capture()
        return shop

    def steps(self) -> Iterator[bool]:
        """Transactions without end, each of one to four actions; one in twelve is rolled back."""
        actions: list[tuple[int, Callable[[Cursor], None]]] = [
            (20, self._place_order), (10, self._add_customer), (12, self._change_customer), (8, self._change_large),
            (6, self._forget_values), (8, self._reprice), (5, self._rename_product), (5, self._renumber_lines),
            (6, self._cancel_order), (4, self._delete_and_insert), (8, self._write_log), (5, self._clean_log), (5,
             self._ship),
            (3, self._add_product),
        ]  # fmt: skip
        weights = [w for w, _ in actions]
        while True:
            undone = self._random.random() < 1 / 12
            kept = (self._order, list(self._customers), list(self._skus), dict(self._lines), list(self._retired))
            numbers = self._next_customer
            session = self.database.session
            session.storage.begin()
            cursor = self.database.cursor()
            try:
                chosen = self._random.choices(actions, weights, k=self._random.choice((1, 1, 2, 4)))
                for _, action in chosen:
                    self._tick()
                    action(cursor)
            except BaseException:
                session.rollback()
                raise
            if undone:
                session.rollback()
                self._order, self._customers, self._skus, self._lines, self._retired = kept
                self._next_customer = numbers
                self._done.clear()
            else:
                session.commit()
            yield not undone

    def _tick(self) -> None:
        self._now += dt.timedelta(microseconds=self._random.randrange(1, 90_000_000))

    def _precise(self) -> str:
        return f"{self._now:%Y-%m-%d %H:%M:%S}.{self._now.microsecond:06d}{self._random.randrange(10)}"

    def _name(self) -> str:
        return f"{self._random.choice(_FIRST)} {self._random.choice(_FIRST)}"

    def _large(self) -> str:
        return " ".join(self._random.choices(_WORDS, k=self._random.randrange(200, 1500)))

    def _maybe(self, value: Any, chance: float = 0.25) -> Any:
        return None if self._random.random() < chance else value

    def _add_customer(self, cursor: Cursor) -> None:
        r = self._random
        number, self._next_customer = self._next_customer, self._next_customer + 1
        seen = f"{self._now:%Y-%m-%d %H:%M:%S}.{r.randrange(1000):03d}"
        f" {r.choice(('+01:00', '-05:30', '+00:00', '+09:00'))}"
        self.change(
            cursor, "customers", "insert",
            "INSERT INTO dbo.customers (guid, name, email, born, credit, notes, photo, created, seen) VALUES (?, ?,"
            " ?, ?, ?, ?, ?, ?, ?)",
            str(uuid.UUID(int=r.getrandbits(128))), self._name(), self._maybe(f"c{number}@example.org"),
            self._maybe(dt.date(1930 + r.randrange(80), 1 + r.randrange(12), 1 + r.randrange(28))),
            Decimal(r.randrange(-10_000, 10_000_000)).scaleb(-4), self._maybe(self._large()),
            self._maybe(r.randbytes(r.randrange(2000))),
            self._precise(), self._maybe(seen),
        )  # fmt: skip
        self._customers.append(number)

    def _add_product(self, cursor: Cursor) -> None:
        r = self._random
        sku = f"SKU-{r.randrange(10**9):09d}"
        if sku in self._skus:
            return
        self.change(
            cursor, "products", "insert",
            "INSERT INTO dbo.products (sku, title, price, weight, checksum, stock, opens, changed) VALUES (?, ?, ?,"
            " ?, ?, ?, ?, ?)",
            sku, " ".join(r.choices(_WORDS, k=2)), Decimal(r.randrange(1, 10**8)).scaleb(-3),
            self._maybe(r.random() * 10),
            self._maybe(r.randbytes(16)), r.randrange(500), self._maybe(dt.time(r.randrange(24), r.randrange(60), 0,
            123000)),
            self._maybe(self._now),
        )  # fmt: skip
        self._skus.append(sku)

    def _place_order(self, cursor: Cursor) -> None:
        r = self._random
        if not self._customers or not self._skus:
            return
        self._order += 1
        lines = r.randrange(1, 6)
        self.change(
            cursor, "orders", "insert", "INSERT INTO dbo.orders (order_id, customer_id, placed, total, ratio) VALUES"
            " (?, ?, ?, ?, ?)",
            self._order, r.choice(self._customers), self._now, self._maybe(Decimal(r.randrange(10**9)).scaleb(-2)),
            self._maybe(r.gauss(0, 1e6)),
        )  # fmt: skip
        values = ", ".join(["(?, ?, ?, ?, ?, ?)"] * lines)
        cells: list[object] = []
        for line in range(1, lines + 1):
            price = Decimal(r.randrange(10**7)).scaleb(-3)
            cells += [
                self._order,
                line,
                r.choice(self._skus),
                r.randrange(1, 9),
                price,
                self._maybe(r.choice(_WORDS), 0.6),
            ]
        self.change(cursor, "order_lines", "insert", f"INSERT INTO dbo.order_lines VALUES {values}", *cells)
        self._lines[self._order] = lines

    def _change_customer(self, cursor: Cursor) -> None:
        if self._customers:
            # The large columns stay as they are, so the change rows leave them out.
            sql = "UPDATE dbo.customers SET name = ?, credit = credit + 1.5, active = 1 - active WHERE id = ?"
            self.change(cursor, "customers", "update", sql, self._name(), self._random.choice(self._customers))

    def _change_large(self, cursor: Cursor) -> None:
        if self._customers:
            sql = "UPDATE dbo.customers SET notes = ?, photo = ? WHERE id = ?"
            values = (
                self._large(),
                self._random.randbytes(self._random.randrange(1, 3000)),
                self._random.choice(self._customers),
            )
            self.change(cursor, "customers", "update", sql, *values)

    def _forget_values(self, cursor: Cursor) -> None:
        if self._customers:
            sql = (
                "UPDATE dbo.customers SET notes = NULL, born = NULL, seen = NULL, photo = NULL WHERE id = ?"
                " AND (notes IS NOT NULL OR born IS NOT NULL OR seen IS NOT NULL OR photo IS NOT NULL)"
            )
            self.change(cursor, "customers", "update", sql, self._random.choice(self._customers))

    def _reprice(self, cursor: Cursor) -> None:
        # One statement, many rows.
        sql = "UPDATE dbo.products SET price = price + ?, changed = ? WHERE stock % 7 = ?"
        self.change(cursor, "products", "update", sql, Decimal("0.125"), self._now, self._random.randrange(7))

    def _rename_product(self, cursor: Cursor) -> None:
        if self._skus:
            old = self._skus.pop(self._random.randrange(len(self._skus)))
            new = f"NEW-{self._random.randrange(10**9):09d}"
            self.change(cursor, "products", "update", "UPDATE dbo.products SET sku = ? WHERE sku = ?", new, old)
            self._skus.append(new)

    def _renumber_lines(self, cursor: Cursor) -> None:
        if self._lines:
            order = self._random.choice(list(self._lines))
            # Each line takes over the key of the next one: a deferred update of many rows.
            step = "+ 1" if self._lines[order] < 100 else "- 1"
            sql = f"UPDATE dbo.order_lines SET line = line {step} WHERE order_id = ? AND line BETWEEN 1 AND 200"
            self.change(cursor, "order_lines", "update", sql, order)
            self._lines[order] += 1

    def _cancel_order(self, cursor: Cursor) -> None:
        if self._lines:
            order = self._random.choice(list(self._lines))
            self.change(cursor, "order_lines", "delete", "DELETE FROM dbo.order_lines WHERE order_id = ?", order)
            self.change(cursor, "orders", "delete", "DELETE FROM dbo.orders WHERE order_id = ?", order)
            del self._lines[order]

    def _ship(self, cursor: Cursor) -> None:
        if self._lines:
            sql = "UPDATE dbo.orders SET status = N'shipped', comment = NULL WHERE order_id = ? AND status = N'new'"
            self.change(cursor, "orders", "update", sql, self._random.choice(list(self._lines)))

    def _delete_and_insert(self, cursor: Cursor) -> None:
        if self._skus:
            sku = self._random.choice(self._skus)
            self.change(cursor, "products", "delete", "DELETE FROM dbo.products WHERE sku = ?", sku)
            sql = "INSERT INTO dbo.products (sku, title, price) VALUES (?, ?, ?)"
            self.change(cursor, "products", "insert", sql, sku, "back again", Decimal("1.000"))

    def _write_log(self, cursor: Cursor) -> None:
        # Few different rows on purpose: identical ones are what a table without a key can hold.
        day = f"2024-01-0{self._random.randrange(1, 4)} 12:00:00.500"
        who = self._maybe(self._random.choice(("ann", "bob")))
        for _ in range(self._random.randrange(1, 4)):
            self.change(cursor, "audit_log", "insert", "INSERT INTO dbo.audit_log VALUES (?, ?, ?)", day, who, "saw it")

    def _clean_log(self, cursor: Cursor) -> None:
        sql = "DELETE TOP (1) FROM dbo.audit_log WHERE who = ?"
        self.change(cursor, "audit_log", "delete", sql, self._random.choice(("ann", "bob")))
        self.change(
            cursor,
            "audit_log",
            "update",
            "UPDATE TOP (1) dbo.audit_log SET what = N'seen' WHERE who IS NULL AND what = N'saw it'",
        )
