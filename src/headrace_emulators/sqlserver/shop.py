"""The shop on SQL Server."""

from __future__ import annotations

import datetime as dt
import uuid

from headrace_emulators.engine.shop import SqlShop
from headrace_emulators.engine.traffic import Cursor
from headrace_emulators.sqlserver.server import EmulatedDatabase

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


class Shop(SqlShop[EmulatedDatabase]):
    schema = "dbo"
    script = _TABLES
    changed_customer = "name = ?, credit = credit + 1.5, active = 1 - active"
    nullable = ("notes", "born", "seen", "photo")
    part_of_stock = "stock % 7"
    remark = "comment"

    def _enable_capture(self, table: str) -> None:
        self.database.execute(
            f"EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{table}', @role_name = NULL"
        )

    def _add_customer(self, cursor: Cursor) -> None:
        values, r, now = self.values, self.values.random, self.values.now
        self.stock.customer += 1
        number = self.stock.customer
        zone = r.choice(("+01:00", "-05:30", "+00:00", "+09:00"))
        self.insert(
            cursor, "customers", guid=str(uuid.UUID(int=r.getrandbits(128))), name=values.name(),
            email=values.maybe(f"c{number}@example.org"), born=values.maybe(values.birthday()),
            credit=values.number(-10_000, 10_000_000, 4), notes=values.maybe(values.large()),
            photo=values.maybe(r.randbytes(r.randrange(2000))),
            created=f"{now:%Y-%m-%d %H:%M:%S}.{now.microsecond:06d}{r.randrange(10)}",
            seen=values.maybe(f"{now:%Y-%m-%d %H:%M:%S}.{r.randrange(1000):03d} {zone}"),
        )  # fmt: skip
        self.stock.customers.append(number)

    def _product(self) -> dict[str, object]:
        values, r = self.values, self.values.random
        return {
            "title": values.title(), "price": values.number(1, 10**8, 3), "weight": values.maybe(r.random() * 10),
            "checksum": values.maybe(r.randbytes(16)), "stock": r.randrange(500),
            "opens": values.maybe(dt.time(r.randrange(24), r.randrange(60), 0, 123000)),
            "changed": values.maybe(values.now),
        }  # fmt: skip

    def _renumber_lines(self, cursor: Cursor) -> None:
        if self.stock.lines:
            order = self.any_order()
            # Each line takes over the key of the next one: a deferred update of many rows.
            step = "+ 1" if self.stock.lines[order] < 100 else "- 1"
            sql = f"UPDATE {{}} SET line = line {step} WHERE order_id = ? AND line BETWEEN 1 AND 200"
            self.run(cursor, "order_lines", "update", sql, order)
            self.stock.lines[order] += 1

    def _clean_log(self, cursor: Cursor) -> None:
        who = self.values.random.choice(("ann", "bob"))
        self.run(cursor, "audit_log", "delete", "DELETE TOP (1) FROM {} WHERE who = ?", who)
        sql = "UPDATE TOP (1) {} SET what = N'seen' WHERE who IS NULL AND what = N'saw it'"
        self.run(cursor, "audit_log", "update", sql)
