"""Rule: the shop changes a real server, its seed decides everything, and it can tell what its tables hold."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.postgresql import needs_postgres, postgres

from headrace.errors import ConnectError
from headrace_emulators.engine.shop import TABLES
from headrace_emulators.postgresql.server import private_server
from headrace_emulators.postgresql.shop import PostgresShop


def rows(shop: PostgresShop, path: Path) -> dict[str, list[tuple[object, ...]]]:
    shop.publish(path)
    with closing(sqlite3.connect(path)) as kept:
        return {
            table: sorted(kept.execute(f'SELECT * FROM "{shop.schema}.{table}"').fetchall(), key=repr)
            for table in TABLES
        }


@needs_postgres
def test_a_seed_makes_the_same_changes_and_every_table_is_told(tmp_path: Path) -> None:
    with postgres() as server:
        shops = [PostgresShop.create(server, 7, name=name) for name in ("one", "other")]
        for shop in shops:
            shop.replay(transactions=150)
        one, other = (rows(shop, tmp_path / shop.database.name) for shop in shops)
        told = {table: len(found) for table, found in one.items()}
        held = {table: shops[0].database.ask(f"SELECT count(*) FROM shop.{table}")[0][0] for table in TABLES}
        for shop in shops:
            shop.database.close()
    assert one == other
    assert told == held
    assert all(told.values())
    assert {operation for _, operation in shops[0].counts} == {"insert", "update", "delete"}


@needs_postgres
def test_a_private_server_listens_on_no_port() -> None:
    with postgres(listen_addresses="", port="5432") as server:
        assert server.host == str(server.data)
        assert server.run("show listen_addresses") == [("",)]


@needs_postgres
def test_a_path_that_is_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    with pytest.raises(ConnectError) as refused:
        private_server(folder)
    assert str(refused.value) == (
        f"The path of the folder '{folder}' is too long for a socket of PostgreSQL. Use a folder with a shorter path."
    )
