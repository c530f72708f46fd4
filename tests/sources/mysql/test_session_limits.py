"""Rule: whatever a server sets for its sessions, ours read all rows, as they are."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.captured_mysql import CapturedMysql

from headrace.errors import ConnectError
from headrace.sources.mysql.connection import Connection, connect
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.refusals import MysqlError
from headrace.testing.captured_database import data
from headrace_emulators.mysql.server import MARIADB, MYSQL, MySqlDatabase

ROWS = 10
VALUES = ", ".join(f"({id}, 'a', '2024-01-01', concat(repeat('x', 100), {ROWS - id}))" for id in range(ROWS))
TABLE = f"""
CREATE TABLE t (id INT PRIMARY KEY, c CHAR(4) CHARACTER SET ascii, at TIMESTAMP, long_text TEXT);
INSERT INTO t VALUES {VALUES}
"""
ALL = "SELECT id FROM t"
PAIRS = "SELECT count(*) FROM t a, t b"
SLOW = "SELECT sleep(0.02) FROM t"
OF_BOTH = [
    ({"sql_select_limit": 3}, [ALL], list(map(str, range(ROWS)))),
    ({"max_join_size": 2}, [PAIRS], [str(ROWS**2)]),
    ({"max_join_size": 2, "sql_big_selects": 0}, [PAIRS], [str(ROWS**2)]),
    ({"sql_mode": "PAD_CHAR_TO_FULL_LENGTH"}, ["SELECT concat('<', c, '>') FROM t"], ["<a>"] * ROWS),
    ({"time_zone": "+05:00"}, ["SELECT at FROM t"], ["2024-01-01 00:00:00"] * ROWS),
    ({"group_concat_max_len": 4}, ["SELECT group_concat(id ORDER BY id) FROM t"], ["0,1,2,3,4,5,6,7,8,9"]),
    ({"max_sort_length": 64}, ["SELECT right(long_text, 1) FROM t ORDER BY long_text LIMIT 1"], ["1"]),
    ({"completion_type": "RELEASE"}, ["BEGIN", "ROLLBACK", "SELECT 7"], ["7"]),
    ({"sql_quote_show_create": 0}, ["SHOW CREATE TABLE t", "SELECT 1"], ["1"]),
]
"""Global settings; statements; what the last one gives."""
OF_ONE = {
    MARIADB: [
        ({"max_statement_time": 0.05}, [SLOW], ["0"] * ROWS),
        ({"tx_read_only": 1}, ["DELETE FROM t WHERE id < 0", "SELECT 1"], ["1"]),
        ({"idle_transaction_timeout": 1}, ["SELECT @@idle_transaction_timeout"], ["0"]),
    ],
    MYSQL: [
        ({"max_execution_time": 50}, [SLOW], ["0"] * ROWS),
        ({"transaction_read_only": 1}, ["DELETE FROM t WHERE id < 0", "SELECT 1"], ["1"]),
        (
            {"show_gipk_in_create_table_and_information_schema": 0},
            [
                "SELECT column_name FROM information_schema.columns WHERE table_schema = database() "
                "AND table_name = 'keyless'"
            ],
            ["my_row_id", "v"],
        ),
    ],
}


def last_column(session: Connection, statements: list[str]) -> list[str]:
    """What the last statement gives, read as the rows of a snapshot are."""
    for statement in statements[:-1]:
        session.rows(statement)
    packets = b"".join(bytes(block) for block in session.text_rows(statements[-1]))
    found, at = [], 0
    while at < len(packets):
        size = int.from_bytes(packets[at : at + 3], "little")
        found.append(packets[at + 5 : at + 4 + size].decode())
        at += 4 + size
    return found


def settings_of(database: MySqlDatabase) -> MysqlSettings:
    return MysqlSettings.parse(database.options, owner="source 'mysql_cdc'")


def test_a_session_reads_all_rows_as_they_are_whatever_the_server_sets(binlog_database: MySqlDatabase) -> None:
    server = binlog_database.server
    binlog_database.run(TABLE)
    if server.name == MYSQL:
        binlog_database.run("SET sql_generate_invisible_primary_key = 1; CREATE TABLE keyless (v INT)")
    wrong = {}
    for given, statements, expected in [*OF_BOTH, *OF_ONE[server.name]]:
        with server.changed(**given), connect(settings_of(binlog_database)) as session:
            session.run(f"USE {binlog_database.name}")
            try:
                found: Any = last_column(session, statements)
            except MysqlError as error:
                found = error.message
        if found != expected:
            wrong[str(given)] = found
    assert not wrong


def test_a_table_with_system_versioning_is_read_as_it_is_now(mariadb_database: MySqlDatabase) -> None:
    mariadb_database.run("CREATE TABLE history (id INT) WITH SYSTEM VERSIONING; INSERT INTO history VALUES (1)")
    mariadb_database.run("SET GLOBAL system_versioning_asof = '2000-01-01 00:00:00'")
    try:
        with connect(settings_of(mariadb_database)) as session:
            assert session.rows(f"SELECT id FROM {mariadb_database.name}.history") == [(1,)]
    finally:
        mariadb_database.run("SET GLOBAL system_versioning_asof = DEFAULT")


def test_a_snapshot_has_all_rows_where_sessions_are_limited(binlog_database: MySqlDatabase) -> None:
    database = CapturedMysql(binlog_database)
    binlog_database.run(TABLE)
    with binlog_database.server.changed(sql_select_limit=2, max_join_size=1):
        run = database.run(snapshot_chunk_rows="4")
        assert [row["id"] for _, _, row in data(run.all())] == list(map(str, range(ROWS)))
        binlog_database.run("DELETE FROM t WHERE id = 5")
        assert [(op, row["id"]) for op, _, row in data(run.all())] == [("d", "5")]


def test_a_server_that_refuses_the_settings_of_a_session_is_refused(
    mariadb_database: MySqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.sources.mysql.connection._SESSION", "SET no_such_setting = 1")
    with pytest.raises(ConnectError, match=r"refuses the settings of a session .* not to a proxy"):
        connect(settings_of(mariadb_database))
