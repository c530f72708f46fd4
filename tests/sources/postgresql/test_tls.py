"""Rule: a session is encrypted where the server can, and where it is asked for, only the right server gets it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Authority, Pair
from tests.support.postgresql import needs_postgres, postgres, settings_of

from headrace.errors import ConnectError
from headrace.sinks.jdbc.sink import JdbcSink
from headrace.sources.postgresql.connection import connect, connect_replication
from headrace_emulators.postgresql.server import PostgresDatabase, PostgresServer

pytestmark = needs_postgres
ENCRYPTED = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def database(authority: Authority) -> Iterator[PostgresDatabase]:
    with postgres() as server:
        given(server, authority)
        yield server.new_database()


def given(server: PostgresServer, authority: Authority) -> None:
    """The server gets a certificate, and wants one of the role `with_certificate`."""
    owner = server.user
    own = authority.pair("server", owner=owner)
    # The server's user can't look into the folder of the tests.
    files = {"ssl_cert_file": own.certificate, "ssl_key_file": own.key, "ssl_ca_file": authority.file}
    for name, file in files.items():
        target = server.data / f"{name}.pem"
        target.write_bytes(file.read_bytes())
        target.chmod(0o600)
        if owner is not None:
            shutil.chown(target, owner)
        server.run(f"ALTER SYSTEM SET {name} = '{target.name}'", database="postgres")
    server.run("ALTER SYSTEM SET ssl = on", database="postgres")
    server.run("CREATE ROLE with_certificate LOGIN REPLICATION", database="postgres")
    hba = server.data / "pg_hba.conf"
    hba.write_text("hostssl all with_certificate all cert\nhost all with_certificate all reject\n" + hba.read_text())
    server.run("SELECT pg_reload_conf()", database="postgres")


@pytest.mark.parametrize(
    "options",
    [
        {"sslmode": "prefer"},
        {"sslmode": "require"},
        {"sslmode": "verify-ca", "sslrootcert": "the authority"},
        {"sslmode": "verify-full", "sslrootcert": "the authority"},
    ],
    ids=lambda options: options["sslmode"],
)
def test_a_session_is_encrypted(database: PostgresDatabase, authority: Authority, options: dict[str, str]) -> None:
    known = {name: str(authority.file) if value == "the authority" else value for name, value in options.items()}
    with connect(settings_of(database, **known)) as session:
        assert session.value(ENCRYPTED) is True
    with connect_replication(settings_of(database, **known)) as session:
        assert session.value("SHOW application_name")


def test_a_server_that_another_authority_vouches_for_is_refused(database: PostgresDatabase, tmp_path: Path) -> None:
    other = Authority(tmp_path, "others")
    with pytest.raises(ConnectError, match="certificate"):
        connect(settings_of(database, sslmode="verify-full", sslrootcert=str(other.file)))


def test_a_client_logs_in_with_its_certificate(database: PostgresDatabase, authority: Authority) -> None:
    own: Pair = authority.pair("with_certificate")
    login = {"user": "with_certificate", "sslmode": "verify-full", "sslrootcert": str(authority.file)}
    for open_session in (connect, connect_replication):
        with open_session(settings_of(database, **login, sslcert=str(own.certificate), sslkey=str(own.key))) as session:
            assert session.value("SHOW is_superuser") == "off"
    with pytest.raises(ConnectError):
        connect(settings_of(database, **login))


@pytest.mark.parametrize("trusted", [True, False])
def test_the_sink_takes_tls_from_its_url(
    database: PostgresDatabase, authority: Authority, tmp_path: Path, trusted: bool
) -> None:
    file = authority.file if trusted else Authority(tmp_path, "others").file
    url = f"postgresql://127.0.0.1:{database.server.port}/{database.name}?sslmode=verify-full&sslrootcert={file}"
    sink: Any = JdbcSink.of({"url": url, "user": "cdc"})
    if not trusted:
        with pytest.raises(ConnectError):
            sink.check()
        return
    connection = sink.database.connect()
    assert sink.database.ask(connection, ENCRYPTED) == [(True,)]
    connection.close()
