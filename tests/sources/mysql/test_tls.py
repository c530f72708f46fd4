"""Rule: a session is encrypted where the server can, and where it is asked for, only the right server gets it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Authority
from tests.support.mysql import mysql_like, needs_mariadb, needs_mysql

from headrace.errors import ConnectError
from headrace.sinks.jdbc.sink import JdbcSink
from headrace.sources.mysql.connection import connect, connect_binlog
from headrace.sources.mysql.options import MysqlSettings
from headrace_emulators.mysql.server import MARIADB, MYSQL, PASSWORD, USER, MySqlDatabase

CIPHER = "SHOW SESSION STATUS LIKE 'Ssl_cipher'"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(MARIADB, marks=needs_mariadb),
        pytest.param(MYSQL, marks=[needs_mysql, pytest.mark.system]),
    ],
)
def database(request: pytest.FixtureRequest, authority: Authority) -> Iterator[MySqlDatabase]:
    own = authority.pair(f"server-{request.param}")
    files = {"ssl_ca": str(authority.file), "ssl_cert": str(own.certificate), "ssl_key": str(own.key)}
    with mysql_like(request.param, **files) as server:
        yield server.new_database()


def settings_of(database: MySqlDatabase, **options: Any) -> MysqlSettings:
    return MysqlSettings.parse({**database.options, **options}, owner="source 'mysql'")


@pytest.mark.parametrize("mode", ["preferred", "required", "verify_ca", "verify_identity"])
def test_a_session_is_encrypted(database: MySqlDatabase, authority: Authority, mode: str) -> None:
    trusted = {"sslrootcert": str(authority.file)} if mode.startswith("verify") else {}
    with connect(settings_of(database, sslmode=mode, **trusted)) as session:
        [(_, cipher)] = session.rows(CIPHER)
        assert cipher
    file, position = database.server.log_end
    with connect_binlog(settings_of(database, sslmode=mode, **trusted)) as reader:
        reader.dump(file, position)
        assert reader.receive()


def test_without_tls_it_is_not(database: MySqlDatabase) -> None:
    with connect(settings_of(database, sslmode="disabled")) as session:
        assert [cipher for _, cipher in session.rows(CIPHER)] == [""]


@pytest.mark.parametrize("mode", ["verify_ca", "verify_identity"])
def test_a_server_that_another_authority_vouches_for_is_refused(
    database: MySqlDatabase, tmp_path: Path, mode: str
) -> None:
    other = Authority(tmp_path, "others")
    with pytest.raises(ConnectError, match="certificate"):
        connect(settings_of(database, sslmode=mode, sslrootcert=str(other.file)))


def test_a_client_logs_in_with_its_certificate(database: MySqlDatabase, authority: Authority) -> None:
    database.execute("CREATE USER IF NOT EXISTS with_certificate IDENTIFIED BY 'x' REQUIRE X509")
    own = authority.pair("with_certificate")
    login = {"user": "with_certificate", "password": "x", "sslmode": "verify_identity"}
    trusted = {**login, "sslrootcert": str(authority.file), "databases": None}
    with connect(settings_of(database, **trusted, sslcert=str(own.certificate), sslkey=str(own.key))) as session:
        assert session.value("SELECT 1") == 1
    with pytest.raises(ConnectError, match="refused the login"):
        connect(settings_of(database, **trusted))


@pytest.mark.parametrize("trusted", [True, False])
def test_the_sink_takes_tls_from_its_url(
    database: MySqlDatabase, authority: Authority, tmp_path: Path, trusted: bool
) -> None:
    file = authority.file if trusted else Authority(tmp_path, "others").file
    url = f"mariadb://127.0.0.1:{database.server.port}/{database.name}?ssl_ca={file}&ssl_verify_cert=true"
    sink: Any = JdbcSink.of({"url": url, "user": USER, "password": PASSWORD})
    if not trusted:
        with pytest.raises(ConnectError):
            sink.check()
        return
    connection = sink.database.connect()
    [(_, cipher)] = sink.database.ask(connection, CIPHER)
    assert cipher
    connection.close()
