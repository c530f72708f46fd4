"""Rule: where PostgreSQL asks for Kerberos, a ticket or a keytab is the login, and there is no password anywhere."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.kerberos import REALM, Realm, kerberos, needs_kerberos
from tests.support.postgresql import needs_postgres, postgres, settings_of

from headrace.errors import ConnectError
from headrace.sinks.jdbc.sink import JdbcSink
from headrace.sources.postgresql.connection import connect, connect_replication
from headrace_emulators.postgresql.server import PostgresDatabase, PostgresServer

pytestmark = [needs_kerberos, needs_postgres, pytest.mark.system]
ROLE = "by_ticket"
LOGIN = "SELECT gss_authenticated, principal, encrypted FROM pg_stat_gssapi WHERE pid = pg_backend_pid()"


@pytest.fixture(scope="module")
def realm() -> Iterator[Realm]:
    # The server's user must reach the folder.
    with tempfile.TemporaryDirectory(prefix="hr-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with kerberos(Path(folder)) as found:
            yield found


@pytest.fixture(scope="module")
def keytab(realm: Realm) -> Path:
    return realm.keytab(ROLE)


@pytest.fixture(scope="module")
def database(realm: Realm) -> Iterator[PostgresDatabase]:
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("KRB5_CONFIG", str(realm.config))
        with postgres() as server:
            given(server, realm)
            yield server.new_database()


def given(server: PostgresServer, realm: Realm) -> None:
    """The role gets in by Kerberos only."""
    target = server.data / "postgres.keytab"
    shutil.copy(realm.keytab("postgres/localhost"), target)
    target.chmod(0o600)
    if server.data.owner() != realm.folder.owner():
        shutil.chown(target, server.data.owner(), server.data.group())
    server.run(f"ALTER SYSTEM SET krb_server_keyfile = '{target}'", database="postgres")
    server.run(f"CREATE ROLE {ROLE} LOGIN REPLICATION", database="postgres")
    hba = server.data / "pg_hba.conf"
    lines = [f"host {name} {ROLE} all gss include_realm=0" for name in ("all", "replication")]
    hba.write_text("\n".join([*lines, hba.read_text()]))
    server.run("SELECT pg_reload_conf()", database="postgres")


@pytest.fixture
def environ(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Of a process that has neither a ticket nor a keytab."""
    monkeypatch.setenv("KRB5_CONFIG", str(realm.config))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/cache")
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", f"{tmp_path}/none.keytab")
    return monkeypatch


@pytest.fixture(params=["ticket", "keytab"])
def login(request: pytest.FixtureRequest, realm: Realm, keytab: Path, environ: pytest.MonkeyPatch) -> None:
    """A ticket by kinit, or a keytab from which the library gets one whenever it needs one."""
    if request.param == "ticket":
        environ.setenv("KRB5CCNAME", f"FILE:{realm.tickets(ROLE, keytab)}")
    else:
        environ.setenv("KRB5_CLIENT_KTNAME", str(keytab))


OPTIONS = {"hostname": "localhost", "user": ROLE}


@pytest.mark.usefixtures("login")
@pytest.mark.parametrize(("mode", "encrypted"), [("prefer", True), ("disable", False)])
def test_source_and_sink_log_in_with_a_ticket(
    database: PostgresDatabase, environ: pytest.MonkeyPatch, mode: str, encrypted: bool
) -> None:
    environ.setenv("PGGSSENCMODE", mode)
    expected = [(True, f"{ROLE}@{REALM}", encrypted)]
    with connect(settings_of(database, **OPTIONS)) as session:
        assert session.rows(LOGIN) == expected
    with connect_replication(settings_of(database, **OPTIONS)) as session:
        assert session.value("SHOW is_superuser") == "off"
    sink = sink_of(database)
    sink.check()
    connection = sink.database.connect()
    assert sink.database.ask(connection, LOGIN) == expected
    connection.close()


def sink_of(database: PostgresDatabase) -> Any:
    url = f"postgresql://localhost:{database.server.port}/{database.name}?sslmode=disable"
    return JdbcSink.of({"url": url, "user": ROLE})


@pytest.mark.usefixtures("environ")
def test_without_a_ticket_it_is_said_what_is_missing(database: PostgresDatabase) -> None:
    for open_session in (lambda: connect(settings_of(database, **OPTIONS)), sink_of(database).check):
        with pytest.raises(ConnectError, match="Kerberos") as it:
            open_session()
        assert "KRB5_CLIENT_KTNAME" in str(it.value)
        assert "\n" not in str(it.value)
