"""The real servers of the tests: what they log, and how they end and come back."""

from __future__ import annotations

import pytest
from tests.support.mysql import mysql_like

from headrace_emulators.mysql.server import MARIADB, MYSQL, MySqlDatabase, missing


def test_a_server_logs_rows_with_their_metadata(binlog_database: MySqlDatabase) -> None:
    found = dict(binlog_database.execute("SHOW GLOBAL VARIABLES LIKE 'binlog_row%'"))
    assert found["binlog_row_image"] == "FULL"
    assert found["binlog_row_metadata"] == "FULL"
    assert binlog_database.execute("SELECT @@log_bin, @@binlog_format") == [(1, "ROW")]


def test_each_test_has_a_database_of_its_own(binlog_database: MySqlDatabase) -> None:
    binlog_database.run("CREATE TABLE t (a INT, b BLOB); INSERT INTO t VALUES (1, NULL), (2, x'00'); SELECT a FROM t")
    assert binlog_database.run("SELECT a, hex(b) FROM t ORDER BY a") == [["1", "NULL"], ["2", "00"]]


def test_a_database_is_dropped_while_a_session_of_a_failed_test_has_a_transaction_open(
    binlog_database: MySqlDatabase,
) -> None:
    binlog_database.run("CREATE TABLE t (a INT)")
    with binlog_database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO t VALUES (1)")
        binlog_database.drop()
    assert binlog_database.server.run(f"SHOW DATABASES LIKE '{binlog_database.name}'", database=None) == []


def test_a_changed_setting_comes_back(binlog_database: MySqlDatabase) -> None:
    asked = "SELECT @@GLOBAL.binlog_row_image"
    with binlog_database.server.changed(binlog_row_image="MINIMAL"):
        assert binlog_database.execute(asked) == [("MINIMAL",)]
    assert binlog_database.execute(asked) == [("FULL",)]


@pytest.mark.smoke("mariadb")
@pytest.mark.parametrize("kind", [MARIADB, MYSQL])
def test_a_crashed_server_keeps_its_rows_and_goes_on_in_another_file_of_the_log(kind: str) -> None:
    if lacking := missing(kind):
        pytest.skip(f"no {kind} server is here. {lacking}")
    with mysql_like(kind, innodb_flush_log_at_trx_commit="1") as server:
        server.run("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)")
        before, _ = server.log_end
        server.crash()
        server.start()
        assert server.log_end[0] > before
        assert server.run("SELECT a FROM t") == [["1"]]
