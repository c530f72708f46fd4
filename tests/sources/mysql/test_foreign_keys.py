"""Foreign keys whose actions are in no log: as SHOW CREATE TABLE has them, and what keeps them from being followed."""

from __future__ import annotations

import datetime as dt
from contextlib import nullcontext
from dataclasses import replace

import pytest

from headrace.changes import Column, TableId, TableSchema
from headrace.changes.foreign_key import Cascade, ForeignKey, Match
from headrace.changes.types import LogicalType
from headrace.errors import CaptureError
from headrace.sources.base import Limit
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.foreign_keys import cascades, keys_in, match_of, require_followed
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.source import MysqlSource
from headrace.sources.mysql.types import NativeType
from headrace.sources.offset import Offset
from headrace_emulators.mysql.server import MARIADB, MySqlDatabase

ORDERS, CUSTOMERS = TableId("shop", "", "orders"), TableId("shop", "", "customers")
KEY = ForeignKey("fk", ORDERS, ("customer",), CUSTOMERS, ("id",), "cascade", "", ("",))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("CONSTRAINT `fk` FOREIGN KEY (`customer`) REFERENCES `customers` (`id`) ON DELETE CASCADE", [KEY]),
        (
            "CONSTRAINT `fk` FOREIGN KEY (`customer`) REFERENCES `customers` (`id`) "
            "ON DELETE CASCADE ON UPDATE SET NULL,",
            [replace(KEY, on_update="set null")],
        ),
        (
            "CONSTRAINT `f``k` FOREIGN KEY (`a`, `b,``c`) REFERENCES `o``ther`.`cus.tomers` (`x`, `y (z`) "
            "ON UPDATE CASCADE",
            [
                ForeignKey("f`k", ORDERS, ("a", "b,`c"), TableId("o`ther", "", "cus.tomers"), ("x", "y (z"), "",
                           "cascade", ("", "")),
            ],
        ),
        ("CONSTRAINT `fk` FOREIGN KEY (`customer`) REFERENCES `customers` (`id`)", []),
        ("CONSTRAINT `fk` FOREIGN KEY (`customer`) REFERENCES `customers` (`id`) ON DELETE NO ACTION,", []),
        ("CONSTRAINT `c` CHECK (`a` <> ' FOREIGN KEY (`a`) REFERENCES `b` (`c`) ON DELETE CASCADE')", []),
        ("`note` text COMMENT 'CONSTRAINT `fk` FOREIGN KEY (`a`) REFERENCES `b` (`c`) ON DELETE CASCADE',", []),
    ],
)  # fmt: skip
def test_foreign_keys_of_a_statement(line: str, expected: list[ForeignKey]) -> None:
    assert keys_in(f"CREATE TABLE `orders` (\n  `id` int NOT NULL,\n  {line}\n) ENGINE=InnoDB", ORDERS) == expected


@pytest.mark.parametrize(
    ("collation", "match"),
    [("utf8mb4_0900_ai_ci", "c"), ("utf8mb4_general_ci", "c"), ("utf8mb4_bin", "p"), ("latin1_general_cs", "p"),
     ("utf8mb4_0900_bin", ""), ("utf8mb4_nopad_bin", ""), ("binary", ""), ("uca1400_ai_ci", "c")],
)  # fmt: skip
def test_how_a_collation_compares(collation: str, match: Match) -> None:
    assert match_of(collation) == match


def captured(id: TableId, *columns: str, key: tuple[str, ...] = ("id",), protected: tuple[str, ...] = ()) -> MysqlTable:
    native = NativeType.of_catalog("int", None, json=False)
    found = tuple(Column(name, position, LogicalType.parse("int32")) for position, name in enumerate(columns, 1))
    return MysqlTable(TableSchema(id, found, key), (native,) * len(columns), key, protected)


BOTH = [captured(ORDERS, "id", "customer"), captured(CUSTOMERS, "id")]


@pytest.mark.parametrize(
    ("tables", "options", "lack"),
    [
        (BOTH, {}, ""),
        (BOTH, {"on_cascade": "warn"}, "'on_cascade' is warn"),
        (BOTH[:1], {}, "table 'shop.customers' is not captured"),
        ([captured(ORDERS, "id", "customer", key=()), BOTH[1]], {}, "table 'shop.orders' has no key"),
        ([captured(ORDERS, "id"), BOTH[1]], {}, "column 'customer' of table 'shop.orders' is not captured as it is"),
        (
            [BOTH[0], captured(CUSTOMERS, "id", protected=("id",))],
            {},
            "column 'id' of table 'shop.customers' is not captured as it is",
        ),
        (BOTH, {"skipped_operations": "d"}, "'skipped_operations' leaves out what they follow from"),
    ],
)
def test_what_keeps_rows_from_being_told(tables: list[MysqlTable], options: dict[str, str], lack: str) -> None:
    settings = MysqlSettings.parse({"hostname": "h", **options}, owner="source")
    assert cascades([KEY], {table.path: table for table in tables}, settings) == [Cascade(KEY, lack)]


def test_fail_stops_with_the_foreign_key_and_its_table() -> None:
    settings = MysqlSettings.parse({"hostname": "h", "on_cascade": "fail"}, owner="source")
    require_followed([], settings)
    with pytest.raises(CaptureError, match=r"'fk' changes rows of table 'shop\.orders'.*\(ON DELETE CASCADE\)"):
        require_followed([KEY], settings)


def test_a_foreign_key_is_the_same_after_a_checkpoint() -> None:
    key = replace(KEY, matches=("c",), on_update="set null")
    assert ForeignKey.from_json(key.to_json()) == key


def test_foreign_keys_that_a_server_does_not_log(binlog_database: MySqlDatabase) -> None:
    name = binlog_database.name
    binlog_database.run(
        "CREATE TABLE p (a VARCHAR(9) COLLATE utf8mb4_bin PRIMARY KEY, b INT UNIQUE) DEFAULT CHARSET utf8mb4;"
        "CREATE TABLE k (a VARCHAR(9) COLLATE utf8mb4_bin, b INT, CONSTRAINT y FOREIGN KEY (a) REFERENCES p (a) ON "
        "DELETE CASCADE, CONSTRAINT x FOREIGN KEY (b) REFERENCES p (b) ON UPDATE SET NULL) DEFAULT CHARSET utf8mb4"
    )
    login = f"r{name}"[:30]
    binlog_database.run(f"CREATE USER '{login}'@'%' IDENTIFIED BY 'x'; GRANT SELECT ON {name}.* TO '{login}'@'%'")
    source = MysqlSource.of({**binlog_database.options, "user": login, "password": "x"})
    p, k = TableId(name, "", "p"), TableId(name, "", "k")
    found = [cascade.key for cascade in source.cascades()]
    expected = [
        ForeignKey("x", k, ("b",), p, ("b",), "", "set null", ("",)),
        ForeignKey("y", k, ("a",), p, ("a",), "cascade", "", ("p",)),
    ]
    unlogged = binlog_database.server.name == MARIADB
    assert found == (expected if unlogged else [])
    strict = MysqlSource.of({**binlog_database.options, "on_cascade": "fail"})
    stops = pytest.raises(CaptureError, match="Foreign key 'x'") if unlogged else nullcontext()
    with stops:
        strict.advance(Offset.nothing(), Limit(), dt.datetime.now(dt.UTC))
    with stops:
        strict.cascades()
