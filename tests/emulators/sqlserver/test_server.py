"""A server is reached as a driver reaches one: by place, database, login; by many processes at once."""

from __future__ import annotations

import multiprocessing
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.waiting import PATIENCE
from headrace_emulators.sqlserver import QUERY_LOG, EmulatedDatabase, EmulatedServer, connect
from headrace_emulators.sqlserver.errors import DatabaseError, OperationalError, ProgrammingError


def test_a_missing_server_or_database_is_named(server: EmulatedServer, database: EmulatedDatabase) -> None:
    with pytest.raises(OperationalError, match="not found"):
        connect({"hostname": str(server.directory / "nowhere"), "database": "testDB"})
    with pytest.raises(DatabaseError) as caught:
        connect({"hostname": str(server.directory), "database": "other"})
    assert caught.value.number == 4060


def test_logins_need_their_password(server: EmulatedServer, database: EmulatedDatabase) -> None:
    server.add_login("reader", "s3cret")
    settings = {"hostname": str(server.directory), "database": "TESTDB", "user": "reader"}
    for wrong in ({}, {"password": "S3cret"}, {"user": "nobody", "password": "s3cret"}):
        with pytest.raises(OperationalError) as caught:
            connect(settings | wrong)
        assert caught.value.number == 18456 and "cret" not in str(caught.value)
    with connect(settings | {"password": "s3cret"}) as connection:
        assert connection.execute("SELECT SUSER_SNAME(), DB_NAME()").fetchone() == ("reader", "testDB")
    assert "s3cret" not in (server.directory / "logins.json").read_text()


def test_select_can_be_denied_and_granted(server: EmulatedServer, items: EmulatedDatabase) -> None:
    with connect({"hostname": str(server.directory), "database": "testDB", "user": "reader"}) as connection:
        for deny, grant, sql in (
            ("DENY SELECT ON dbo.items TO reader", "GRANT SELECT ON dbo.items TO [reader]", "SELECT * FROM items"),
            (
                "DENY SELECT ON SCHEMA::cdc TO reader",
                "REVOKE SELECT ON SCHEMA::cdc TO reader",
                "SELECT * FROM cdc.change_tables",
            ),
        ):
            items.execute(deny)
            with pytest.raises(ProgrammingError, match="SELECT permission was denied on the object") as caught:
                connection.execute(sql)
            assert caught.value.number == 229
            items.execute(grant)
            connection.execute(sql).fetchall()


def test_without_autocommit_a_transaction_lasts_until_commit(items: EmulatedDatabase) -> None:
    connection = items.connect()
    connection.autocommit = False
    cursor = connection.cursor()
    cursor.execute("INSERT INTO items VALUES (?, ?, ?)", (1, "a", 1))
    assert items.execute("SELECT COUNT(*) FROM items").fetchval() == 0
    connection.rollback()
    cursor.execute("INSERT INTO items VALUES (?, ?, ?)", 2, "b", None)
    connection.commit()
    assert items.execute("SELECT id FROM items").fetchall() == [(2,)]
    connection.close()


def test_a_held_lock_keeps_writers_off_until_the_transaction_ends(items: EmulatedDatabase) -> None:
    connection, writer = items.connect(), items.connect()
    connection.autocommit = False
    assert connection.execute("SELECT COUNT(*) FROM dbo.items WITH (TABLOCK, HOLDLOCK)").fetchval() == 0
    writer.execute("SET LOCK_TIMEOUT 0")
    with pytest.raises(OperationalError) as caught:
        writer.execute("INSERT INTO items VALUES (1, 'a', 1)")
    assert caught.value.number == 1222
    assert connection.execute("SELECT COUNT(*) FROM dbo.items").fetchval() == 0
    connection.commit()
    writer.execute("INSERT INTO items VALUES (1, 'a', 1)")
    assert connection.execute("SELECT COUNT(*) FROM dbo.items").fetchval() == 1
    connection.close()
    writer.close()


def test_tables_of_another_database_can_be_read(server: EmulatedServer, items: EmulatedDatabase) -> None:
    items.execute("INSERT INTO items VALUES (1, 'a', 1)")
    with server.create_database("second") as second:
        assert second.execute("SELECT id FROM [testDB].dbo.items").fetchall() == [(1,)]
        with pytest.raises(DatabaseError) as caught:
            second.execute("SELECT 1 FROM third.dbo.t")
        assert caught.value.number == 911


def test_a_plain_sqlite_client_can_read_every_table(items: EmulatedDatabase) -> None:
    items.execute("INSERT INTO items VALUES (1, 'a', 1)")
    items.capture()
    plain = sqlite3.connect(items.path)
    try:
        names = [
            n
            for (n,) in plain.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            )
        ]
        assert {"dbo.items", "cdc.dbo_items_CT", "cdc.lsn_time_mapping", "sys.columns"} <= set(names)
        for name in names:
            plain.execute(f'SELECT * FROM "{name}"').fetchall()
    finally:
        plain.close()


def test_statements_are_recorded_across_connections(
    items: EmulatedDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(QUERY_LOG, str(tmp_path / "queries.txt"))
    items.execute("SELECT *\n  FROM items")
    with items.connect() as connection:
        connection.execute("SELECT 2")
    assert (tmp_path / "queries.txt").read_text().splitlines() == ["SELECT * FROM items", "SELECT 2"]


def _read(settings: dict[str, str], rows: int, results: Any) -> None:
    broken, seen = 0, 0
    with connect(settings) as connection:
        deadline = time.monotonic() + 20
        while seen < rows and time.monotonic() < deadline:
            found = connection.execute(
                "SELECT __$start_lsn, COUNT(*) FROM cdc.dbo_items_CT GROUP BY __$start_lsn"
            ).fetchall()
            broken += sum(count != 3 for _, count in found)
            seen = 3 * len(found)
    results.put((seen, broken))


def test_several_processes_read_whole_transactions_while_one_writes(items: EmulatedDatabase) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    rows = 300
    readers = [context.Process(target=_read, args=(items.settings, rows, results)) for _ in range(2)]
    for reader in readers:
        reader.start()
    with items.capture_job(poll=0.005):
        for i in range(rows // 3):
            with items.transaction() as cursor:
                for j in range(3):
                    cursor.execute("INSERT INTO items VALUES (?, 'x', 1)", [i * 3 + j])
        found = [results.get(timeout=PATIENCE) for _ in readers]
    for reader in readers:
        reader.join(PATIENCE)
    assert found == [(rows, 0), (rows, 0)]


def test_the_agent_can_be_off(server: EmulatedServer, database: EmulatedDatabase) -> None:
    sql = "SELECT status FROM sys.dm_server_services WHERE servicename LIKE N'SQL Server Agent (%'"
    assert database.execute(sql).fetchval() == 4
    server.set_agent(running=False)
    assert database.execute(sql).fetchval() == 1


def test_partitions_count_rows(items: EmulatedDatabase) -> None:
    items.load("dbo.items", [(i, "x", 1) for i in range(10)])
    sql = "SELECT SUM(p.{}) FROM sys.{} AS p WHERE p.object_id = OBJECT_ID('dbo.items') AND p.index_id < 2"
    assert items.execute(sql.format("rows", "partitions")).fetchval() == 10
    assert items.execute(sql.format("row_count", "dm_db_partition_stats")).fetchval() == 10
