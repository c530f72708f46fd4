"""Sessions of real servers: SQL, rows as bytes, and dumps of the binary log."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from headrace.errors import ConnectError, DataLossError, OptionError
from headrace.sources.connection import LostConnection
from headrace.sources.mysql.connection import BinlogConnection, connect, connect_binlog, reader_id
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.refusals import Endpoint, MysqlError, TakenServerId, refused
from headrace_emulators.mysql.server import MySqlDatabase, MySqlServer

ROTATE, FORMAT, WRITE_ROWS = 4, 15, (23, 30)


def settings_of(database: MySqlDatabase, /, **options: Any) -> MysqlSettings:
    return MysqlSettings.parse({**database.options, **options}, owner="source 'mysql_cdc'")


def events_of(reader: BinlogConnection) -> list[bytes]:
    found = []
    while block := reader.receive():
        at = 0
        while at < len(block):
            size = struct.unpack_from("<I", block, at + 9)[0]
            found.append(bytes(block[at : at + size]))
            at += size
        assert at == len(block)
    return found


def test_a_session_says_what_the_server_is(binlog_database: MySqlDatabase) -> None:
    with connect(settings_of(binlog_database)) as connection:
        assert connection.server.name == binlog_database.server.name
        assert connection.server.version >= (10, 5) if connection.server.is_mariadb else (8, 0)
        assert connection.server.uuid
        assert len(connection.rows(connection.server.log_status)) == 1


def test_a_session_has_utc_and_utf8_whatever_the_server_sets(binlog_database: MySqlDatabase) -> None:
    with (
        binlog_database.server.changed(time_zone="+05:00", sql_mode="ANSI_QUOTES"),
        connect(settings_of(binlog_database)) as connection,
    ):
        asked = "SELECT @@time_zone, @@sql_mode, @@character_set_results"
        assert connection.rows(asked) == [("+00:00", "", "utf8mb4")]


@pytest.mark.parametrize("sslmode", ["disabled", "preferred"])
def test_rows_come_as_packets_of_the_text_protocol(binlog_database: MySqlDatabase, sslmode: str) -> None:
    binlog_database.run("CREATE TABLE t (a INT, b TEXT); INSERT INTO t VALUES (1, 'ä'), (2, NULL)")
    with connect(settings_of(binlog_database, sslmode=sslmode)) as connection:
        blocks = connection.text_rows(f"SELECT a, b FROM {binlog_database.name}.t ORDER BY a")
        packets = b"".join(bytes(block) for block in blocks)
        assert packets[4:9] == b"\x011\x02\xc3\xa4"
        assert packets[13:] == b"\x012\xfb"
        assert connection.value("SELECT 7") == 7, "the session goes on"


def test_many_rows_come_in_blocks_of_whole_packets(binlog_database: MySqlDatabase) -> None:
    with connect(settings_of(binlog_database)) as connection:
        lines = " UNION ALL ".join(["SELECT 1"] * 40)
        count = 0
        for block in connection.text_rows(f"SELECT repeat('x', 300) FROM ({lines}) a, ({lines}) b, ({lines}) c"):
            assert len(block) % 307 == 0
            count += len(block) // 307
        assert count == 64_000


def test_a_refused_statement_is_one_sentence_with_its_number(binlog_database: MySqlDatabase) -> None:
    with connect(settings_of(binlog_database)) as connection:
        with pytest.raises(MysqlError) as refused:
            list(connection.text_rows("SELECT 1 FROM no_such_database.t"))
        assert refused.value.number in (1049, 1146)
        assert connection.value("SELECT 7") == 7, "the session goes on"


def test_the_log_is_read_from_a_place_to_its_end(binlog_database: MySqlDatabase) -> None:
    binlog_database.run("CREATE TABLE t (a INT)")
    file, position = binlog_database.server.log_end
    binlog_database.run("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)")
    with connect_binlog(settings_of(binlog_database)) as reader:
        reader.dump(file, position)
        found = events_of(reader)
        assert [event[4] for event in found[:2]] == [ROTATE, FORMAT]
        assert len([event for event in found if event[4] in WRITE_ROWS]) == 2
        end = struct.unpack_from("<I", found[-1], 13)[0]
        assert (file, end) == binlog_database.server.log_end
        assert not reader.receive(), "the end stays the end"


def test_an_event_of_more_than_16_mb_comes_whole(binlog_database: MySqlDatabase) -> None:
    server = binlog_database.server
    with server.changed(max_allowed_packet=64 << 20):
        binlog_database.run("CREATE TABLE t (a LONGBLOB)")
        file, position = server.log_end
        with binlog_database.connect(max_allowed_packet=64 << 20) as session, session.cursor() as cursor:
            cursor.execute("INSERT INTO t VALUES (repeat('x', 40000000))")
        with connect_binlog(settings_of(binlog_database)) as reader:
            reader.dump(file, position)
            [rows] = [event for event in events_of(reader) if event[4] in WRITE_ROWS]
        assert rows.count(b"x" * 100) == 400_000
        with connect(settings_of(binlog_database)) as connection:
            blocks = list(connection.text_rows(f"SELECT a FROM {binlog_database.name}.t"))
        assert sum(map(len, blocks)) == 40_000_000 + 9 + 3 * 4, "three packets, and a length of nine bytes"


@pytest.mark.parametrize(
    ("file", "position", "error"),
    [("log.000999", 4, DataLossError), ("", 4_000_000_000, MysqlError)],
)
def test_a_place_that_is_not_there_is_refused(
    binlog_database: MySqlDatabase, file: str, position: int, error: type[Exception]
) -> None:
    with connect_binlog(settings_of(binlog_database)) as reader:
        reader.dump(file or binlog_database.server.log_end[0], position)
        with pytest.raises(error):
            events_of(reader)


def test_a_killed_dump_is_no_end_of_the_log(mariadb_database: MySqlDatabase) -> None:
    mariadb_database.run("CREATE TABLE t (a LONGBLOB)")
    file, position = mariadb_database.server.log_end
    for _ in range(4):
        mariadb_database.run("INSERT INTO t VALUES (repeat('x', 8000000))")
    with connect_binlog(settings_of(mariadb_database)) as reader:
        reader.dump(file, position)
        assert reader.receive()
        mariadb_database.run(f"KILL {reader.id}")
        with pytest.raises(LostConnection):
            events_of(reader)


@pytest.mark.parametrize(
    ("given", "kind", "sentence"),
    [
        ({"password": "wrong"}, ConnectError, "refused the login of user 'cdc'"),
        ({"hostname": "127.0.0.1", "port": "1"}, LostConnection, "can't be reached"),
        ({"sslmode": "verify_ca"}, ConnectError, "certificate|offers no TLS"),
        ({"sslmode": "required", "sslcert": "/no/such/file"}, OptionError, "can't be read"),
    ],
)
def test_a_session_that_can_not_begin_says_why(
    binlog_database: MySqlDatabase, given: dict[str, str], kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind, match=sentence):
        connect(settings_of(binlog_database, **given))


def test_a_session_logs_in_with_what_a_command_prints(binlog_database: MySqlDatabase) -> None:
    user = f"token_{binlog_database.name}"
    binlog_database.run(f"CREATE USER {user} IDENTIFIED BY 'of the day'")
    given: dict[str, Any] = {"user": user, "password": None, "password_command": "echo of the day"}
    with connect(settings_of(binlog_database, **given)) as session:
        assert session.value("SELECT 1") == 1
    with pytest.raises(ConnectError, match="refused the login"):
        connect(settings_of(binlog_database, **{**given, "password_command": "echo of yesterday"}))
    binlog_database.run(f"DROP USER {user}")


def test_a_login_without_the_right_can_not_read_the_log(binlog_server: MySqlServer) -> None:
    database = binlog_server.new_database()
    binlog_server.run(f"CREATE USER nobody_{database.name} IDENTIFIED BY 'x'")
    options: dict[str, Any] = {"user": f"nobody_{database.name}", "password": "x"}
    with connect_binlog(settings_of(database, **options)) as reader:
        reader.dump(binlog_server.log_end[0], 4)
        with pytest.raises(MysqlError, match="1227") as refused:
            events_of(reader)
    assert "GRANT REPLICATION SLAVE" in refused.value.remedy
    binlog_server.run(f"DROP USER nobody_{database.name}")
    database.drop()


@pytest.mark.parametrize(
    ("option", "least", "greatest"),
    [("", 2**31, 2**32 - 2), ("77", 77, 77), ("5400-6400", 5400, 6400)],
)
def test_readers_have_numbers_of_the_option_s_range(option: str, least: int, greatest: int) -> None:
    settings = MysqlSettings.parse({"server_id": option} if option else {}, owner="source 'mysql_cdc'")
    assert all(least <= reader_id(settings) <= greatest for _ in range(50))


@pytest.mark.parametrize("wrong", ["0", "a", "9-8", "1-4294967296"])
def test_a_wrong_range_of_numbers_is_refused(wrong: str) -> None:
    with pytest.raises(OptionError, match="server ids are"):
        MysqlSettings.parse({"server_id": wrong}, owner="source 'mysql_cdc'")


def test_a_number_that_another_reader_has_is_a_reason_to_try_again() -> None:
    said = "A slave with the same server_uuid/server_id as this slave has connected to the master"
    assert isinstance(refused(Endpoint("h:1", "u"), 1236, said), TakenServerId)
