"""A small shop with traffic that is hard to mine: several open transactions, rollbacks, savepoints, key changes, large
values, log switches, and a table without a key. All values come from the seed.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from headrace_emulators.engine.shop import TABLES, Values
from headrace_emulators.oracle.driver import Connection
from headrace_emulators.oracle.server import EmulatedOracle

OWNER = "SHOP"
_TABLES = (
    "CREATE TABLE CUSTOMERS (ID NUMBER(9) NOT NULL PRIMARY KEY, NAME VARCHAR2(80) NOT NULL, NICK NVARCHAR2(40),"
    " EMAIL VARCHAR2(120), BORN DATE, CREDIT NUMBER(12,2) DEFAULT 0 NOT NULL, SCORE NUMBER, RATIO BINARY_DOUBLE,"
    " WEIGHT BINARY_FLOAT, NOTES CLOB, PHOTO BLOB, CREATED TIMESTAMP(6) NOT NULL, SEEN TIMESTAMP(3) WITH TIME ZONE,"
    " LOGGED TIMESTAMP(6) WITH LOCAL TIME ZONE, TOKEN RAW(16), SPAN INTERVAL DAY(2) TO SECOND(6))",
    "CREATE TABLE PRODUCTS (SKU VARCHAR2(20) NOT NULL PRIMARY KEY, TITLE NVARCHAR2(100) NOT NULL,"
    " PRICE NUMBER(12,3) NOT NULL, STOCK NUMBER(5) DEFAULT 0 NOT NULL, CHANGED DATE)",
    "CREATE TABLE ORDERS (ORDER_ID NUMBER(18) NOT NULL PRIMARY KEY, CUSTOMER_ID NUMBER(9) NOT NULL,"
    " PLACED TIMESTAMP(0) NOT NULL, STATUS CHAR(8) DEFAULT 'new' NOT NULL, TOTAL NUMBER(18,2), REMARK VARCHAR2(200))",
    "CREATE TABLE ORDER_LINES (ORDER_ID NUMBER(18) NOT NULL, LINE NUMBER(3) NOT NULL, SKU VARCHAR2(20) NOT NULL,"
    " QUANTITY NUMBER(9) NOT NULL, PRICE NUMBER(12,3) NOT NULL, NOTE NVARCHAR2(50), PRIMARY KEY (ORDER_ID, LINE))",
    "CREATE TABLE AUDIT_LOG (HAPPENED TIMESTAMP(3) NOT NULL, WHO VARCHAR2(20), WHAT NVARCHAR2(100))",
)
_LONG_STEPS = 30
"""How many steps the long transaction stays open."""
Action = Callable[[Connection], None]


class OracleShop:
    """The shop's database and those who change it.

    Args:
        database: made by `create`.
        seed: where all choices come from.

    Attributes:
        transactions: how many were committed.
    """

    def __init__(self, database: EmulatedOracle, seed: int) -> None:
        self.database = database
        self.transactions = 0
        self._values = Values(seed, ("Bob; --", "a' || 'b"), ("it's", "where"))
        self._random = self._values.random
        self._order = 0
        self._customers: list[int] = []
        self._skus: list[str] = []
        self._lines: dict[int, int] = {}
        self._next_customer = 1001
        self._session = database.connect(OWNER)
        # On another instance where there is one, so that its commits come from another redo thread.
        self._long = database.connect(OWNER, instance=min(2, database.threads))
        self._long_age = 0
        self._long_orders: list[int] = []

    @classmethod
    def create(cls, folder: Path, seed: int = 1, *, name: str = "SHOP", customers: int = 100) -> OracleShop:
        """Make the database on two instances, with customers, products and a few orders as its history."""
        database = EmulatedOracle(folder, name, threads=2, records_per_log=2_000)
        for table in _TABLES:
            database.run(table)
        for table in TABLES:
            database.run(f"ALTER TABLE {table} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS")
        shop = cls(database, seed)
        for _ in range(40):
            shop._add_product(shop._session)
        for _ in range(customers):
            shop._add_customer(shop._session)
        for _ in range(customers // 4):
            shop._place_order(shop._session)
        shop._session.commit()
        return shop

    def step(self) -> None:
        """One transaction of one to four actions, and a step of the long one beside it."""
        actions: tuple[tuple[int, Action], ...] = (
            (20, self._place_order), (10, self._add_customer), (14, self._change_customer), (8, self._change_large),
            (6, self._forget_values), (6, self._reprice), (5, self._rename_product), (5, self._renumber_lines),
            (6, self._cancel_order), (4, self._delete_and_insert), (8, self._write_log), (5, self._clean_log),
            (4, self._ship), (6, self._change_mind),
        )  # fmt: skip
        chance = self._random
        kept = (list(self._customers), list(self._skus), dict(self._lines))
        chosen = chance.choices([a for _, a in actions], [w for w, _ in actions], k=chance.choice((1, 1, 2, 4)))
        for action in chosen:
            self._values.tick()
            action(self._session)
        if chance.random() < 1 / 12:
            self._session.rollback()
            self._customers, self._skus, self._lines = kept
        else:
            self._session.commit()
            self.transactions += 1
        self._long_step()
        if chance.random() < 1 / 200:
            self.database.switch_log(chance.choice((1, self.database.threads)))

    def replay(self, stop: threading.Event, *, rate: float) -> None:
        """Do transactions until stopped, then end the long one. Runs in the caller's thread."""
        began, tried = time.monotonic(), 0
        while not stop.is_set():
            self.step()
            tried += 1
            ahead = began + tried / rate - time.monotonic()
            if ahead > 0:
                stop.wait(ahead)
        self.settle()

    def publish(self, path: Path) -> None:
        """Write the rows of all tables into a plain SQLite file, for a comparison."""
        self.database.publish(path, OWNER)

    def settle(self) -> None:
        """End the long transaction."""
        if self._long_age:
            self._long.commit()
            self.transactions += 1
            self._long_age = 0

    def _long_step(self) -> None:
        """A transaction that stays open while many others come and go; one in four is undone."""
        chance = self._random
        self._long_age += 1
        if chance.random() < 0.3:
            self._order += 1
            self._insert(
                self._long, "ORDERS", ORDER_ID=10_000_000 + self._order, CUSTOMER_ID=chance.choice(self._customers),
                PLACED=self._values.now, TOTAL=Decimal(chance.randrange(10**9)).scaleb(-2),
            )  # fmt: skip
            self._long_orders.append(10_000_000 + self._order)
        elif self._long_orders and chance.random() < 0.3:
            self._long.execute(
                "UPDATE ORDERS SET REMARK = :remark WHERE ORDER_ID = :id",
                remark=self._values.word(), id=chance.choice(self._long_orders),
            )  # fmt: skip
        if self._long_age >= _LONG_STEPS:
            if chance.random() < 0.25:
                self._long.rollback()
                self._long_orders.clear()
            else:
                self._long.commit()
                self.transactions += 1
            self._long_age = 0

    @staticmethod
    def _insert(connection: Connection, table: str, **values: Any) -> None:
        names, places = ", ".join(values), ", ".join(f":{name.lower()}_" for name in values)
        given = {f"{name.lower()}_": value for name, value in values.items()}
        connection.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", **given)

    def _add_customer(self, connection: Connection) -> None:
        r, maybe, now = self._random, self._values.maybe, self._values.now
        number, self._next_customer = self._next_customer, self._next_customer + 1
        zone = r.choice(("+01:00", "-05:30", "+00:00", "+09:00"))
        self._insert(
            connection, "CUSTOMERS", ID=number, NAME=self._values.name(), NICK=maybe(self._values.name()),
            EMAIL=maybe(f"c{number}@example.org"), CREDIT=Decimal(r.randrange(-(10**6), 10**9)).scaleb(-2),
            BORN=maybe(dt.datetime(1930 + r.randrange(80), 1 + r.randrange(12), 1 + r.randrange(28), r.randrange(24))),
            SCORE=maybe(Decimal(r.randrange(-(10**20), 10**20)).scaleb(-r.randrange(25))), RATIO=maybe(r.gauss(0, 1e6)),
            WEIGHT=maybe(round(r.random() * 10, 3)), NOTES=maybe(self._values.large()),
            PHOTO=maybe(r.randbytes(r.randrange(1, 6000))), CREATED=now,
            SEEN=maybe(f"{now:%Y-%m-%d %H:%M:%S}.{r.randrange(1000):03d} {zone}"), LOGGED=maybe(str(now)),
            TOKEN=maybe(r.randbytes(16)),
            SPAN=maybe(f"+{r.randrange(99):02} 0{r.randrange(10)}:05:06.{r.randrange(10**6):06}"),
        )  # fmt: skip
        self._customers.append(number)

    def _add_product(self, connection: Connection) -> None:
        r = self._random
        sku = self._values.sku("SKU")
        self._insert(
            connection, "PRODUCTS", SKU=sku, TITLE=self._values.title(),
            PRICE=Decimal(r.randrange(1, 10**8)).scaleb(-3), STOCK=r.randrange(500),
            CHANGED=self._values.maybe(self._values.now),
        )  # fmt: skip
        self._skus.append(sku)

    def _place_order(self, connection: Connection) -> None:
        r = self._random
        self._order += 1
        lines = r.randrange(1, 6)
        self._insert(
            connection, "ORDERS", ORDER_ID=self._order, CUSTOMER_ID=r.choice(self._customers), PLACED=self._values.now,
            TOTAL=self._values.maybe(Decimal(r.randrange(10**9)).scaleb(-2)),
        )  # fmt: skip
        for line in range(1, lines + 1):
            self._insert(
                connection, "ORDER_LINES", ORDER_ID=self._order, LINE=line, SKU=r.choice(self._skus),
                QUANTITY=r.randrange(1, 9), PRICE=Decimal(r.randrange(10**7)).scaleb(-3),
                NOTE=self._values.maybe(self._values.word(), 0.6),
            )  # fmt: skip
        self._lines[self._order] = lines

    def _change_customer(self, connection: Connection) -> None:
        # The large columns stay as they are, so the redo leaves them out.
        sql = "UPDATE CUSTOMERS SET NAME = :name, CREDIT = :credit WHERE ID = :id"
        credit = Decimal(self._random.randrange(10**9)).scaleb(-2)
        connection.execute(sql, name=self._values.name(), credit=credit, id=self._random.choice(self._customers))

    def _change_large(self, connection: Connection) -> None:
        photo = self._random.randbytes(self._random.randrange(1, 9000))
        sql = "UPDATE CUSTOMERS SET NOTES = :notes, PHOTO = :photo WHERE ID = :id"
        connection.execute(sql, notes=self._values.large(), photo=photo, id=self._random.choice(self._customers))

    def _forget_values(self, connection: Connection) -> None:
        sql = "UPDATE CUSTOMERS SET NOTES = NULL, BORN = NULL, SEEN = NULL, PHOTO = NULL, SPAN = NULL WHERE ID = :id"
        connection.execute(sql, id=self._random.choice(self._customers))

    def _reprice(self, connection: Connection) -> None:
        # One statement, many rows.
        connection.execute(
            "UPDATE PRODUCTS SET PRICE = PRICE + 0.125 WHERE STOCK % 7 = :part", part=self._random.randrange(7)
        )

    def _rename_product(self, connection: Connection) -> None:
        old = self._skus.pop(self._random.randrange(len(self._skus)))
        new = self._values.sku("NEW")
        connection.execute("UPDATE PRODUCTS SET SKU = :new WHERE SKU = :old", new=new, old=old)
        self._skus.append(new)

    def _renumber_lines(self, connection: Connection) -> None:
        if self._lines:
            order = self._random.choice(list(self._lines))
            if self._lines[order] < 90:
                # Each line takes over the key of the next one.
                connection.execute("UPDATE ORDER_LINES SET LINE = LINE + 1 WHERE ORDER_ID = :id", id=order)
                self._lines[order] += 1

    def _cancel_order(self, connection: Connection) -> None:
        if self._lines:
            order = self._random.choice(list(self._lines))
            connection.execute("DELETE FROM ORDER_LINES WHERE ORDER_ID = :id", id=order)
            connection.execute("DELETE FROM ORDERS WHERE ORDER_ID = :id", id=order)
            del self._lines[order]

    def _ship(self, connection: Connection) -> None:
        if self._lines:
            sql = "UPDATE ORDERS SET STATUS = 'shipped', REMARK = NULL WHERE ORDER_ID = :id"
            connection.execute(sql, id=self._random.choice(list(self._lines)))

    def _delete_and_insert(self, connection: Connection) -> None:
        sku = self._random.choice(self._skus)
        connection.execute("DELETE FROM PRODUCTS WHERE SKU = :sku", sku=sku)
        self._insert(connection, "PRODUCTS", SKU=sku, TITLE="back again", PRICE=Decimal("1.000"))

    def _write_log(self, connection: Connection) -> None:
        # Few different rows on purpose: identical ones are what a table without a key can hold.
        for _ in range(self._random.randrange(1, 4)):
            self._insert(
                connection, "AUDIT_LOG", HAPPENED=self._values.log_day(),
                WHO=self._values.maybe(self._random.choice(("ann", "bob"))), WHAT="saw it",
            )  # fmt: skip

    def _clean_log(self, connection: Connection) -> None:
        day = self._values.log_day()
        connection.execute("DELETE FROM AUDIT_LOG WHERE WHO = 'ann' AND HAPPENED = :day", day=day)
        connection.execute("UPDATE AUDIT_LOG SET WHAT = 'seen' WHERE WHO IS NULL AND HAPPENED = :day", day=day)

    def _change_mind(self, connection: Connection) -> None:
        # Back to a savepoint: some changes of the transaction are undone, and others follow.
        connection.execute("SAVEPOINT BEFORE_IT")
        kept = (list(self._customers), list(self._skus), dict(self._lines))
        self._change_customer(connection)
        self._place_order(connection)
        self._change_customer(connection)
        connection.execute("ROLLBACK TO BEFORE_IT")
        self._customers, self._skus, self._lines = kept
        self._change_customer(connection)
