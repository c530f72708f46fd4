"""The demo databases do the same from the same seed, and what they say they did is what was captured."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import OptionError
from headrace_emulators.sqlserver import EmulatedDatabase, EmulatedServer
from headrace_emulators.sqlserver.shop import Shop

SHOP_TABLES = ("customers", "products", "orders", "order_lines", "audit_log")


def _contents(database: EmulatedDatabase, tables: tuple[str, ...]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for table in tables:
        found[table] = database.execute(f"SELECT * FROM dbo.{table}").fetchall()
        columns = [c[0] for c in database.execute(f"SELECT * FROM cdc.dbo_{table}_CT").description or []]
        # LSNs do not depend on anything but the transactions either.
        found[f"{table} changes"] = database.execute(
            f"SELECT {', '.join(f'[{c}]' for c in columns)} FROM cdc.dbo_{table}_CT"
        ).fetchall()
    return found


def test_the_shop_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    runs = []
    for folder, seed in (("a", 5), ("b", 5), ("c", 6)):
        shop = Shop.create(EmulatedServer(tmp_path / folder), seed)
        shop.replay(transactions=150)
        shop.database.capture()
        runs.append((_contents(shop.database, SHOP_TABLES), shop.counts))
        shop.database.close()
    assert runs[0] == runs[1]
    assert runs[0][1] != runs[2][1]


def test_the_shop_counts_what_is_captured(tmp_path: Path) -> None:
    shop = Shop.create(EmulatedServer(tmp_path / "s"), 3)
    assert shop.replay(transactions=300) == 300
    assert 0 < shop.transactions < 300
    database = shop.database
    database.capture()
    for table in SHOP_TABLES:
        rows = Counter(
            dict(
                database.execute(
                    f"SELECT __$operation, COUNT(*) FROM cdc.dbo_{table}_CT GROUP BY __$operation"
                ).fetchall()
            )
        )
        # A changed key is captured as a delete and an insert.
        moved = rows[2] - shop.counts[table, "insert"]
        assert rows[1] - moved == shop.counts[table, "delete"]
        assert rows[3] == rows[4] == shop.counts[table, "update"] - moved
        assert moved == 0 or table in ("products", "order_lines")
    database.close()


def test_replaying_the_changes_gives_the_table(tmp_path: Path) -> None:
    shop = Shop.create(EmulatedServer(tmp_path / "s"), 4)
    before = {r[0]: r for r in shop.database.execute("SELECT sku, title, price, stock FROM dbo.products").fetchall()}
    shop.replay(transactions=200)
    shop.database.capture()
    for operation, *row in shop.database.execute(
        "SELECT __$operation, sku, title, price, stock FROM cdc.dbo_products_CT ORDER BY __$start_lsn,"
        " __$command_id, __$operation"
    ).fetchall():
        if operation in (1, 3):
            assert before.pop(row[0]) == tuple(row)
        else:
            assert row[0] not in before
            before[row[0]] = tuple(row)
    after = {r[0]: r for r in shop.database.execute("SELECT sku, title, price, stock FROM dbo.products").fetchall()}
    assert before == after
    shop.database.close()


def test_flights_are_replayed_after_their_history(tmp_path: Path) -> None:
    from headrace_emulators.sqlserver.flights import Flights

    flights = Flights.create(EmulatedServer(tmp_path / "f"), since=dt.date(2013, 11, 29), until=dt.date(2013, 12, 1))
    database = flights.database
    loaded = database.execute("SELECT COUNT(*) FROM dbo.flights").fetchval()
    assert loaded == 1515 and database.execute("SELECT COUNT(*) FROM cdc.dbo_flights_CT").fetchval() == 0
    assert flights.replay(transactions=200) == 200
    assert database.capture() == 200
    counts = dict(
        database.execute("SELECT __$operation, COUNT(*) FROM cdc.dbo_flights_CT GROUP BY __$operation").fetchall()
    )
    assert counts[2] == flights.counts["flights", "insert"] and counts[4] == flights.counts["flights", "update"]
    assert flights.counts["weather", "insert"] > 0
    order = database.execute(
        "SELECT updated_at FROM cdc.dbo_flights_CT WHERE __$operation IN (2, 4) ORDER BY __$start_lsn"
    ).fetchall()
    assert order == sorted(order)
    database.close()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace_emulators.sqlserver import flights

    monkeypatch.setattr(flights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"pip install 'headrace\[demo\]'"):
        flights.package_folder()
