"""What a server or a login lacks: each thing one sentence, with the statement that mends it."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.support.mysql import mysql_like, needs_mariadb

from headrace.changes import TableId
from headrace.errors import CaptureError
from headrace.sources.health import CaptureState
from headrace.sources.mysql.binlog_position import BinlogPosition, commit_before, file_of
from headrace.sources.mysql.catalog import Catalog
from headrace.sources.mysql.checks import HealthProbe, missing_permissions, retention_seconds, wrong_settings
from headrace.sources.mysql.connection import MARIADB, MYSQL, Connection, ServerKind, connect
from headrace.sources.mysql.guards import ServerState
from headrace.sources.mysql.log_read import mark_of
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.stream_state import LogState, StreamState
from headrace.sources.offset import Offset
from headrace_emulators.mysql.server import MySqlDatabase, MySqlServer

MY, MARIA = ServerKind(MYSQL, (9, 7, 4), "u"), ServerKind(MARIADB, (10, 11, 19), "u")
WELL = {
    "log_bin": "ON", "server_id": "1", "binlog_format": "ROW", "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL", "gtid_mode": "ON", "gtid_strict_mode": "ON", "log_replica_updates": "ON",
    "log_slave_updates": "ON", "binlog_expire_logs_seconds": "864000", "sync_binlog": "1",
    "innodb_flush_log_at_trx_commit": "1",
}  # fmt: skip


def settings_of(server: MySqlServer, **options: str) -> MysqlSettings:
    given = {"hostname": server.host, "port": str(server.port), "user": "cdc", "password": "cdc"}
    return MysqlSettings.parse({**given, **options}, owner="source 'mysql_cdc'")


@pytest.mark.parametrize("server", [MY, MARIA])
def test_a_server_that_is_set_up_lacks_nothing(server: ServerKind) -> None:
    assert list(wrong_settings(server, WELL, is_replica=True)) == []


@pytest.mark.parametrize(
    ("server", "name", "value", "remedy", "required"),
    [
        (MY, "log_bin", "OFF", "log_bin=binlog", True),
        (MY, "server_id", "0", "SET PERSIST server_id = 1;", True),
        (MARIA, "binlog_format", "MIXED", "SET GLOBAL binlog_format = ROW;", True),
        (MY, "binlog_format", "STATEMENT", "SET PERSIST binlog_format = ROW;", True),
        (MY, "binlog_row_image", "MINIMAL", "SET PERSIST binlog_row_image = FULL;", False),
        (MARIA, "binlog_row_metadata", "NO_LOG", "SET GLOBAL binlog_row_metadata = FULL;", False),
        (MARIA, "binlog_storage_engine", "innodb", "binlog_storage_engine=", True),
        (MY, "gtid_mode", "OFF", "OFF_PERMISSIVE", False),
        (MARIA, "gtid_strict_mode", "OFF", "SET GLOBAL gtid_strict_mode = ON;", False),
        (MY, "binlog_expire_logs_seconds", "3600", "SET PERSIST binlog_expire_logs_seconds = 604800;", False),
        (MARIA, "log_slave_updates", "OFF", "log_slave_updates=ON", True),
        (MY, "log_replica_updates", "OFF", "log_replica_updates=ON", True),
        (MY, "innodb_native_foreign_keys", "ON", "innodb_native_foreign_keys=OFF", False),
        (MARIA, "sync_binlog", "0", "SET GLOBAL sync_binlog = 1;", False),
        (MARIA, "innodb_flush_log_at_trx_commit", "2", "innodb_flush_log_at_trx_commit = 1;", False),
    ],
)
def test_a_wrong_setting_is_one_sentence_with_what_mends_it(
    server: ServerKind, name: str, value: str, remedy: str, required: bool
) -> None:
    [found] = wrong_settings(server, {**WELL, name: value}, is_replica=True)
    assert name in found.sentence
    assert remedy in found.remedy
    assert found.required is required


def test_what_else_is_wrong_with_a_server_without_a_log_is_said_at_once_and_written_into_its_file() -> None:
    # It is restarted for its log, so a setting of the running server would be forgotten.
    off = {**WELL, "log_bin": "OFF", "binlog_format": "MIXED", "binlog_row_metadata": "NO_LOG"}
    first, *others = wrong_settings(MARIA, off)
    assert first.remedy.startswith("Write log_bin=binlog into the server's option file and restart it")
    assert [one.remedy for one in others] == [
        "Write binlog_format=ROW into the server's option file, too.",
        "Write binlog_row_metadata=FULL into the server's option file, too.",
    ]


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({"binlog_expire_logs_seconds": "60"}, 60.0),
        ({"binlog_expire_logs_seconds": "0"}, None),
        ({"expire_logs_days": "2"}, 172_800.0),
        ({}, None),
    ],
)
def test_a_log_that_is_never_purged_has_no_end_of_its_retention(
    settings: dict[str, str], seconds: float | None
) -> None:
    assert retention_seconds(settings) == seconds


@pytest.fixture
def login(binlog_database: MySqlDatabase) -> Iterator[str]:
    """A login that may do nothing."""
    name = f"weak_{binlog_database.name}"
    binlog_database.run(f"CREATE USER {name}@'%' IDENTIFIED BY 'cdc'")
    yield name
    binlog_database.run(f"DROP USER {name}@'%'")


@pytest.mark.parametrize("named", [{}, {"tables": "{}.t"}, {"tables": "{}.o*"}, {"tables": "{0}.t,{0}.u"}])
def test_a_login_that_may_read_no_table_is_given_the_grant(
    binlog_database: MySqlDatabase, login: str, named: dict[str, str]
) -> None:
    binlog_database.run("CREATE TABLE t (a INT PRIMARY KEY)")
    options = {name: text.format(binlog_database.name) for name, text in named.items()}
    settings = settings_of(binlog_database.server, user=login, databases=binlog_database.name, **options)
    with Connection(settings) as connection, pytest.raises(CaptureError) as caught:
        Catalog(connection, settings).captured(strict=True)
    assert "shows this login no table" in caught.value.message
    assert all(name in caught.value.message for name in options.get("tables", "").split(","))
    assert caught.value.others == ()
    assert f"Run: GRANT SELECT ON `{binlog_database.name}`.* TO '{login}'@'%';" in caught.value.remedy


def test_each_missing_right_comes_with_its_grant(binlog_database: MySqlDatabase, login: str) -> None:
    server = binlog_database.server
    binlog_database.run("CREATE TABLE t (a INT PRIMARY KEY)")
    tables = [TableId(database=binlog_database.name, schema="", name="t")]

    def lacking() -> list[str]:
        found = missing_permissions(settings_of(server, user=login), tables)
        return [one.remedy for one in found if one.required]

    watching = "BINLOG MONITOR" if server.name == MARIADB else "REPLICATION CLIENT"
    grants = [
        f"GRANT {watching} ON *.* TO '{login}'@'%';",
        f"GRANT REPLICATION SLAVE ON *.* TO '{login}'@'%';",
        f"GRANT SELECT ON `{binlog_database.name}`.`t` TO '{login}'@'%';",
    ]
    assert lacking() == [f"Run: {grant}" for grant in grants]
    for number, grant in enumerate(grants):
        binlog_database.run(grant)
        assert lacking() == [f"Run: {left}" for left in grants[number + 1 :]]


def test_tables_whose_changes_are_not_as_others_are_named(binlog_database: MySqlDatabase) -> None:
    binlog_database.run(
        "CREATE TABLE p (a INT PRIMARY KEY); CREATE TABLE m (a INT) ENGINE = MyISAM; CREATE TABLE _p_gho (a INT)"
    )
    tables = [TableId(database=binlog_database.name, schema="", name=name) for name in ("p", "m", "_p_gho")]
    found = missing_permissions(settings_of(binlog_database.server), tables)
    said = " ".join(one.sentence for one in found if not one.required)
    assert f"'{binlog_database.name}.m' is of the engine MyISAM" in said
    assert f"'{binlog_database.name}._p_gho' has the name" in said


@needs_mariadb
def test_databases_that_are_not_logged_are_an_error() -> None:
    with mysql_like(MARIADB, binlog_ignore_db="other", binlog_format="MIXED") as server:
        found = [one for one in missing_permissions(settings_of(server), []) if one.required]
    assert [one.sentence.split(" of ")[0] for one in found] == ["binlog_format", "binlog_ignore_db"]


def offset_at(server: MySqlServer, file: str, position: int) -> Offset:
    with connect(settings_of(server)) as connection:
        now = ServerState.of(connection)
    state = StreamState(LogState(now.kind, now.server, now.base, mark_of(settings_of(server), file)))
    return state.in_offset(
        replace(Offset.nothing(), commit=commit_before(BinlogPosition(0, file_of(file)[1], position)))
    )


def test_health_says_how_much_waits_and_since_when(binlog_database: MySqlDatabase) -> None:
    server, path = binlog_database.server, f"{binlog_database.name}.t"
    binlog_database.run("CREATE TABLE t (a INT); CREATE TABLE other (a INT)")
    begin = server.log_end
    probe = HealthProbe(settings_of(server), lambda table: table == path)
    quiet = probe.ask(offset_at(server, *begin))
    assert quiet.state is CaptureState.CAPTURING
    assert (quiet.retained_bytes, quiet.waiting_since, quiet.quiet_until) == (0, None, quiet.checked)
    binlog_database.run("INSERT INTO other VALUES (1)")
    assert probe.ask(offset_at(server, *begin)).waiting_since is None, "not a captured table"
    binlog_database.run("INSERT INTO t VALUES (1)")
    late = probe.ask(offset_at(server, *begin))
    assert late.retained_bytes == server.log_end[1] - begin[1]
    assert late.waiting_since is not None
    assert late.checked is not None
    assert dt.timedelta(0) <= late.checked - late.waiting_since < dt.timedelta(minutes=1)


def test_health_says_when_the_file_of_the_offset_may_be_purged(binlog_database: MySqlDatabase) -> None:
    server = binlog_database.server
    begin = server.log_end
    with server.changed(binlog_expire_logs_seconds=7200):
        binlog_database.run("FLUSH BINARY LOGS")
        found = HealthProbe(settings_of(server), lambda _: True).ask(offset_at(server, *begin))
        assert found.retention_seconds == 7200
        assert found.headroom_seconds is not None
        assert 7100 < found.headroom_seconds <= 7200


def test_health_says_that_a_needed_file_is_purged(binlog_database: MySqlDatabase) -> None:
    server = binlog_database.server
    offset = offset_at(server, *server.log_end)
    begin = server.log_end
    binlog_database.run("FLUSH BINARY LOGS")
    deadline = time.monotonic() + 30
    # A file is kept while a reader that went away is not missed yet.
    while binlog_database.run("SHOW BINARY LOGS")[0][0] <= begin[0]:
        assert time.monotonic() < deadline
        binlog_database.run(f"PURGE BINARY LOGS TO '{server.log_end[0]}'")
    found = HealthProbe(settings_of(server), lambda _: True).ask(offset)
    assert found.state is CaptureState.NOT_CAPTURING
    assert "is gone, and the oldest one is" in found.sentence
    assert found.at_risk
