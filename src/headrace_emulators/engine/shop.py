"""A small shop with traffic that is hard to capture: key changes, rollbacks, large values, a table without a key.

All values come from the seed: the same seed gives the same transactions.
"""

from __future__ import annotations

import datetime as dt
import random
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Protocol, Self, TypeVar

from headrace_emulators.engine.traffic import Cursor, DemoDatabase, Workload

TABLES = ("customers", "products", "orders", "order_lines", "audit_log")
_FIRST = ("Zoë", "José", "Müller", "Anna", "李雷", "Олег", "O'Neil", "Søren", "Ada", "Grace 😀", "نور", "Bob")
_WORDS = ("pen", "lamp", "Käse", "drum", "cup", "tee", "サケ", "rope", "box")


class Values:
    """Where the values of a shop come from.

    Args:
        seed: decides all of them.
        names: further first names.
        words: further words.
    """

    def __init__(self, seed: int, names: tuple[str, ...] = (), words: tuple[str, ...] = ()) -> None:
        self.random = random.Random(seed)
        self.now = dt.datetime(2024, 1, 1, 8, 0, 0)
        self._names = _FIRST + names
        self._words = _WORDS + words

    def tick(self) -> None:
        """Let some time pass."""
        self.now += dt.timedelta(microseconds=self.random.randrange(1, 90_000_000))

    def name(self) -> str:
        return f"{self.random.choice(self._names)} {self.random.choice(self._names)}"

    def word(self) -> str:
        return self.random.choice(self._words)

    def title(self) -> str:
        return " ".join(self.random.choices(self._words, k=2))

    def large(self) -> str:
        """A text that databases keep out of the row."""
        return " ".join(self.random.choices(self._words, k=self.random.randrange(200, 1500)))

    def maybe(self, value: Any, chance: float = 0.25) -> Any:
        return None if self.random.random() < chance else value

    def number(self, low: int, high: int, scale: int) -> Decimal:
        """A decimal of a range that is given in its smallest units."""
        return Decimal(self.random.randrange(low, high)).scaleb(-scale)

    def sku(self, prefix: str) -> str:
        return f"{prefix}-{self.random.randrange(10**9):09d}"

    def birthday(self) -> dt.date:
        return dt.date(1930 + self.random.randrange(80), 1 + self.random.randrange(12), 1 + self.random.randrange(28))

    def log_day(self) -> str:
        """When something is logged: few different moments, so that rows of a table without a key are identical."""
        return f"2024-01-0{self.random.randrange(1, 4)} 12:00:00.500"


@dataclass
class Stock:
    """What the shop's tables hold, as far as its actions need it.

    Args:
        order: the last order's number.
        customer: the last customer's number.
        customers: their numbers.
        skus: the products' keys.
        lines: the number of lines by order.
    """

    order: int = 0
    customer: int = 1000
    customers: list[int] = field(default_factory=list)
    skus: list[str] = field(default_factory=list)
    lines: dict[int, int] = field(default_factory=dict)

    def copy(self) -> Stock:
        """A copy, for the end of a transaction that is rolled back."""
        return Stock(self.order, self.customer, list(self.customers), list(self.skus), dict(self.lines))


class ShopDatabase(DemoDatabase, Protocol):
    """A database that a shop changes through its controlling connection."""

    def transaction(self) -> AbstractContextManager[Cursor]:
        """A transaction of it, committed at the block's end, rolled back when the block raises."""


Database = TypeVar("Database", bound=ShopDatabase)
Action = Callable[[Cursor], None]


class _Undone(Exception):
    """The shop takes a transaction back."""


class SqlShop(Workload[Database]):
    """A shop in a database that takes SQL with `?` for parameters, made by `create`.

    Args:
        database: has the tables.
        seed: decides all values.
    """

    schema: ClassVar[str]
    """Where its tables are."""
    script: ClassVar[str]
    """Makes the tables."""
    changed_customer: ClassVar[str]
    """What an UPDATE of a customer sets. It leaves large columns alone, so change rows lack them."""
    nullable: ClassVar[tuple[str, ...]]
    """Columns of customers that may be NULL."""
    part_of_stock: ClassVar[str]
    """An expression with seven values, for updates of many rows."""
    remark: ClassVar[str]
    """A column of orders."""

    def __init__(self, database: Database, seed: int) -> None:
        super().__init__(database)
        self.values = Values(seed)
        self.stock = Stock()

    @classmethod
    def create(
        cls, server: Any, seed: int = 1, *, name: str = "shop", customers: int = 100, products: int = 40
    ) -> Self:
        """Make the database with customers, products and a few orders as its history.

        Args:
            server: where.
            seed: decides everything.
            name: of the database.
            customers: how many the history has.
            products: how many the history has.
        """
        database = cls._new_database(server, name)
        database.script(cls.script)
        shop = cls(database, seed)
        with database.transaction() as cursor:
            for _ in range(products):
                shop._add_product(cursor)
            for _ in range(customers):
                shop._add_customer(cursor)
            for _ in range(customers // 4):
                shop._place_order(cursor)
        shop._done.clear()
        for table in TABLES:
            shop._enable_capture(table)
        database.capture()
        return shop

    @classmethod
    def _new_database(cls, server: Any, name: str) -> Any:
        return server.create_database(name)

    def actions(self) -> list[tuple[int, Action]]:
        return [
            (20, self._place_order), (10, self._add_customer), (12, self._change_customer), (8, self._change_large),
            (6, self._forget_values), (8, self._reprice), (5, self._rename_product), (5, self._renumber_lines),
            (6, self._cancel_order), (4, self._delete_and_insert), (8, self._write_log), (5, self._clean_log),
            (5, self._ship), (3, self._add_product),
        ]  # fmt: skip

    def steps(self) -> Iterator[bool]:
        """Transactions without end, each of one to four actions; one in twelve is rolled back."""
        weighted = self.actions()
        weights, actions = [weight for weight, _ in weighted], [action for _, action in weighted]
        chance = self.values.random
        while True:
            undone = chance.random() < 1 / 12
            kept = self.stock.copy()
            with suppress(_Undone), self.database.transaction() as cursor:
                for action in chance.choices(actions, weights, k=chance.choice((1, 1, 2, 4))):
                    self.values.tick()
                    action(cursor)
                if undone:
                    raise _Undone
            if undone:
                self.stock = kept
                self._done.clear()
            yield not undone

    def run(self, cursor: Cursor, table: str, operation: str, sql: str, *parameters: object) -> int:
        """Run a change of a table, which the SQL names as `{}`, and count its rows."""
        return self.change(cursor, table, operation, sql.format(f"{self.schema}.{table}"), *parameters)

    def insert(self, cursor: Cursor, table: str, **values: object) -> None:
        """Insert a row; the other columns take their defaults."""
        names, places = ", ".join(values), ", ".join("?" * len(values))
        self.run(cursor, table, "insert", f"INSERT INTO {{}} ({names}) VALUES ({places})", *values.values())

    def any_customer(self) -> int:
        return self.values.random.choice(self.stock.customers)

    def any_order(self) -> int:
        return self.values.random.choice(list(self.stock.lines))

    @abstractmethod
    def _enable_capture(self, table: str) -> None: ...

    @abstractmethod
    def _add_customer(self, cursor: Cursor) -> None: ...

    @abstractmethod
    def _product(self) -> dict[str, object]:
        """The values of a new product but for its key."""

    @abstractmethod
    def _renumber_lines(self, cursor: Cursor) -> None: ...

    @abstractmethod
    def _clean_log(self, cursor: Cursor) -> None: ...

    def _add_product(self, cursor: Cursor) -> None:
        sku = self.values.sku("SKU")
        if sku not in self.stock.skus:
            self.insert(cursor, "products", sku=sku, **self._product())
            self.stock.skus.append(sku)

    def _place_order(self, cursor: Cursor) -> None:
        values, stock, r = self.values, self.stock, self.values.random
        if not stock.customers or not stock.skus:
            return
        stock.order += 1
        lines = r.randrange(1, 6)
        self.insert(
            cursor, "orders", order_id=stock.order, customer_id=self.any_customer(), placed=values.now,
            total=values.maybe(values.number(0, 10**9, 2)), ratio=values.maybe(r.gauss(0, 1e6)),
        )  # fmt: skip
        cells: list[object] = []
        for line in range(1, lines + 1):
            price, note = values.number(0, 10**7, 3), values.maybe(values.word(), 0.6)
            cells += [stock.order, line, r.choice(stock.skus), r.randrange(1, 9), price, note]
        rows = ", ".join(["(?, ?, ?, ?, ?, ?)"] * lines)
        self.run(cursor, "order_lines", "insert", f"INSERT INTO {{}} VALUES {rows}", *cells)
        stock.lines[stock.order] = lines

    def _change_customer(self, cursor: Cursor) -> None:
        if self.stock.customers:
            sql = f"UPDATE {{}} SET {self.changed_customer} WHERE id = ?"
            self.run(cursor, "customers", "update", sql, self.values.name(), self.any_customer())

    def _forget_values(self, cursor: Cursor) -> None:
        if self.stock.customers:
            sets = ", ".join(f"{column} = NULL" for column in self.nullable)
            present = " OR ".join(f"{column} IS NOT NULL" for column in self.nullable)
            sql = f"UPDATE {{}} SET {sets} WHERE id = ? AND ({present})"
            self.run(cursor, "customers", "update", sql, self.any_customer())

    def _reprice(self, cursor: Cursor) -> None:
        # One statement, many rows.
        sql = f"UPDATE {{}} SET price = price + ?, changed = ? WHERE {self.part_of_stock} = ?"
        part = self.values.random.randrange(7)
        self.run(cursor, "products", "update", sql, Decimal("0.125"), self.values.now, part)

    def _ship(self, cursor: Cursor) -> None:
        if self.stock.lines:
            sql = f"UPDATE {{}} SET status = 'shipped', {self.remark} = NULL WHERE order_id = ? AND status = 'new'"
            self.run(cursor, "orders", "update", sql, self.any_order())

    def _change_large(self, cursor: Cursor) -> None:
        if self.stock.customers:
            photo = self.values.random.randbytes(self.values.random.randrange(1, 3000))
            sql = "UPDATE {} SET notes = ?, photo = ? WHERE id = ?"
            self.run(cursor, "customers", "update", sql, self.values.large(), photo, self.any_customer())

    def _rename_product(self, cursor: Cursor) -> None:
        if self.stock.skus:
            old = self.stock.skus.pop(self.values.random.randrange(len(self.stock.skus)))
            new = self.values.sku("NEW")
            self.run(cursor, "products", "update", "UPDATE {} SET sku = ? WHERE sku = ?", new, old)
            self.stock.skus.append(new)

    def _cancel_order(self, cursor: Cursor) -> None:
        if self.stock.lines:
            order = self.any_order()
            for table in ("order_lines", "orders"):
                self.run(cursor, table, "delete", "DELETE FROM {} WHERE order_id = ?", order)
            del self.stock.lines[order]

    def _delete_and_insert(self, cursor: Cursor) -> None:
        if self.stock.skus:
            sku = self.values.random.choice(self.stock.skus)
            self.run(cursor, "products", "delete", "DELETE FROM {} WHERE sku = ?", sku)
            self.insert(cursor, "products", sku=sku, title="back again", price=Decimal("1.000"))

    def _write_log(self, cursor: Cursor) -> None:
        day, who = self.values.log_day(), self.values.maybe(self.values.random.choice(("ann", "bob")))
        for _ in range(self.values.random.randrange(1, 4)):
            self.insert(cursor, "audit_log", happened=day, who=who, what="saw it")
