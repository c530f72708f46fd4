"""Sessions of PostgreSQL: the same texts whatever a role or database sets; a stream that loses nothing when it breaks,
and holds nothing up; and each refusal as a sentence with what mends it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.support.postgresql import PostgresDatabase, PostgresServer, log_end, needs_postgres, postgres, settings_of

from headrace.errors import ConnectError, HeadraceError, OptionError
from headrace.sources.connection import LostConnection
from headrace.sources.postgresql import lsn
from headrace.sources.postgresql.connection import ReplicationConnection, connect, connect_replication
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.refusals import Endpoint, PostgresError, not_connected, refused
from headrace.testing.waiting import until

PLACE = Endpoint("db:5432", "shop", "cdc", replicates=True)


REFUSED_LOGINS = {
    'FATAL:  password authentication failed for user "cdc"': (
        "Server 'db:5432' refused the login of user 'cdc'. Check 'user' and 'password'."
    ),
    'FATAL:  role "cdc" does not exist': (
        "Server 'db:5432' refused the login of user 'cdc'. Check 'user' and 'password'."
    ),
    'FATAL:  database "shop" does not exist': "Server 'db:5432' has no database 'shop'. Check 'database'.",
    'FATAL:  no pg_hba.conf entry for host "10.0.0.9", user "cdc", database "shop", SSL encryption': (
        "pg_hba.conf of server 'db:5432' has no line that lets user 'cdc' into database 'shop'. Add the line: host "
        '"shop" "cdc" <address of this machine>/32 scram-sha-256; then run: SELECT pg_reload_conf();'
    ),
    'FATAL:  no pg_hba.conf entry for host "10.0.0.9", user "cdc", database "shop", no encryption': (
        "pg_hba.conf of server 'db:5432' lets user 'cdc' into database 'shop' only with TLS, if at all. Set 'sslmode' "
        "to require; or add a line for connections without TLS and run: SELECT pg_reload_conf();"
    ),
    "FATAL:  must be superuser or replication role to start walsender": (
        "Role 'cdc' may not open a replication session on server 'db:5432'. Run: ALTER ROLE \"cdc\" REPLICATION; or on "
        'RDS and Aurora: GRANT rds_replication TO "cdc";'
    ),
    "FATAL:  permission denied to start WAL sender": (
        "Role 'cdc' may not open a replication session on server 'db:5432'. Run: ALTER ROLE \"cdc\" REPLICATION; or on "
        'RDS and Aurora: GRANT rds_replication TO "cdc";'
    ),
    "server does not support SSL, but SSL was required": (
        "Server 'db:5432' offers no TLS, which 'sslmode' asks for. Run on the server: ALTER SYSTEM SET ssl = on; or "
        "set 'sslmode' to prefer."
    ),
    "SSL error: certificate verify failed": (
        "The connection to server 'db:5432' fails at a certificate (SSL error: certificate verify failed). Check "
        "'sslrootcert', 'sslcert' and 'sslkey', and that 'hostname' is the name in the server's certificate."
    ),
    'FATAL:  permission denied for database "shop"': (
        "User 'cdc' may not connect to database 'shop' on server 'db:5432'. Run: GRANT CONNECT ON DATABASE \"shop\" TO "
        '"cdc";'
    ),
    "FATAL:  number of requested standby connections exceeds max_wal_senders (currently 4)": (
        "All of max_wal_senders of server 'db:5432' are in use. Run: ALTER SYSTEM SET max_wal_senders = 20; and "
        "restart the server."
    ),
    "FATAL:  unsupported startup parameter: replication": (
        "Server 'db:5432' refuses the settings of a session (FATAL:  unsupported startup parameter: replication). "
        "Connect to PostgreSQL 14 or newer itself, not to a pooler."
    ),
    "FATAL:  sorry, too many clients already": (
        "Server 'db:5432' takes no session now (FATAL:  sorry, too many clients already). It may in a moment; where "
        "all connections are in use, raise max_connections."
    ),
    "GSSAPI continuation error: No credentials were supplied": (
        "Server 'db:5432' asks for Kerberos, and user 'cdc' has no ticket here that it takes (GSSAPI continuation "
        "error: No credentials were supplied). Run kinit, or name a keytab in the environment variable "
        "KRB5_CLIENT_KTNAME; 'hostname' must be the name in the server's principal."
    ),
    "GSSAPI continuation error: Cannot contact any KDC": (
        "Server 'db:5432' can't be reached (GSSAPI continuation error: Cannot contact any KDC). Check 'hostname', "
        "'port' and the network."
    ),
    "Connection refused": (
        "Server 'db:5432' can't be reached (Connection refused). Check 'hostname', 'port' and the network."
    ),
}


@pytest.mark.parametrize("text", REFUSED_LOGINS)
def test_a_refused_session_says_what_is_wrong_and_what_mends_it(text: str) -> None:
    error = not_connected(PLACE, text)
    assert str(error) == REFUSED_LOGINS[text]
    assert isinstance(error, ConnectError)
    assert isinstance(error, LostConnection) == ("can't be reached" in str(error) or "takes no session" in str(error))


@pytest.mark.parametrize(
    ("sqlstate", "message", "remedy"),
    [
        ("42501", "permission denied for table t", 'Run: GRANT SELECT ON t TO "cdc";'),
        ("42501", "permission denied for schema s", 'Run: GRANT USAGE ON SCHEMA s TO "cdc";'),
        (
            "42501",
            'query would be affected by row-level security policy for table "t"',
            'Run: ALTER ROLE "cdc" BYPASSRLS;',
        ),
        (
            "42501",
            "must be superuser or replication role to use replication slots",
            'Run: ALTER ROLE "cdc" REPLICATION; or on RDS and Aurora: GRANT rds_replication TO "cdc";',
        ),
        (
            "0A000",
            "logical decoding cannot be used while in recovery",
            "Set 'hostname' to the primary server.",
        ),
    ],
)
def test_a_refused_statement_says_the_statement_that_mends_it(sqlstate: str, message: str, remedy: str) -> None:
    error = refused(PLACE, sqlstate, message)
    assert isinstance(error, PostgresError)
    assert (error.sqlstate, error.remedy) == (sqlstate, remedy)
    assert message in error.message


def test_without_the_driver_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(OptionError, match=r"psycopg is not installed\. Run: pip install 'headrace\[postgresql\]'"):
        connect(PostgresSettings(database="shop"))


@contextmanager
def lines_before_others(server: PostgresServer, *lines: str) -> Iterator[None]:
    """Lines of pg_hba.conf for as long as the block lasts."""
    file = server.data / "pg_hba.conf"
    before = file.read_text()
    file.write_text("\n".join([*lines, before]))
    server.run("select pg_reload_conf()", database="postgres")
    try:
        yield
    finally:
        file.write_text(before)
        server.run("select pg_reload_conf()", database="postgres")


def test_a_real_server_refuses_sessions_in_these_words(postgres_database: PostgresDatabase) -> None:
    roles = ("no_replication", "with_password", "with_tls")
    postgres_database.execute(
        "; ".join(f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN PASSWORD 'right'" for role in roles)
    )
    cases = {
        "may not open a replication session": {"user": "no_replication"},
        "refused the login": {"user": "with_password", "password": "wrong"},
        "only with TLS": {"user": "with_tls"},
        "offers no TLS": {"sslmode": "require"},
        "has no database": {"database": "nowhere"},
        "can't be reached": {"port": "1"},
    }
    with lines_before_others(
        postgres_database.server,
        "host all with_password all scram-sha-256",
        "hostnossl all with_tls all reject",
    ):
        for words, options in cases.items():
            with pytest.raises(ConnectError, match=words) as caught:
                connect_replication(settings_of(postgres_database, **options))
            assert "wrong" not in str(caught.value)


def test_both_kinds_of_session_log_in_with_what_a_command_prints(postgres_database: PostgresDatabase) -> None:
    postgres_database.execute(
        "DROP ROLE IF EXISTS with_token; CREATE ROLE with_token LOGIN REPLICATION PASSWORD 'of the day'"
    )
    with lines_before_others(postgres_database.server, "host all with_token all scram-sha-256"):
        given = {"user": "with_token", "password_command": "echo of the day"}
        for open_session in (connect, connect_replication):
            with open_session(settings_of(postgres_database, **given)) as session:
                assert session.value("SHOW is_superuser") == "off"
        with pytest.raises(ConnectError, match="refused the login") as caught:
            connect(settings_of(postgres_database, **{**given, "password_command": "echo of yesterday"}))
        assert "yesterday" not in str(caught.value)


def test_every_session_writes_texts_alike_whatever_role_and_database_set(postgres_database: PostgresDatabase) -> None:
    postgres_database.execute(
        f"ALTER DATABASE {postgres_database.name} SET datestyle = 'German, DMY'; "
        f"ALTER DATABASE {postgres_database.name} SET intervalstyle = iso_8601; "
        f"ALTER DATABASE {postgres_database.name} SET timezone = 'Asia/Tokyo'; "
        f"ALTER DATABASE {postgres_database.name} SET bytea_output = escape; "
        f"ALTER DATABASE {postgres_database.name} SET extra_float_digits = 0"
    )
    query = (
        "SELECT timestamptz '2026-01-02 03:04:05.5+00', interval '1 mon 2 days', '\\x00ff'::bytea, 0.1::float4, "
        "'pg_class'::regclass"
    )
    for open_session in (connect, connect_replication):
        with open_session(settings_of(postgres_database, slot="orders")) as session:
            assert b"".join(session.copy(f"COPY ({query}) TO STDOUT (FORMAT csv)")) == (
                b"2026-01-02 03:04:05.5+00,1 mon 2 days,\\x00ff,0.1,pg_class\n"
            )
            assert session.value("SHOW application_name") == "headrace/orders"


def test_copy_streams_rows_and_leaves_a_session_that_goes_on(postgres_database: PostgresDatabase) -> None:
    numbers = "COPY (SELECT g, repeat('x', 50) FROM generate_series(1, 100000) g) TO STDOUT (FORMAT csv)"
    with connect(settings_of(postgres_database)) as session:
        lines = b"".join(session.copy(numbers)).splitlines()
        assert (len(lines), lines[-1][:7]) == (100_000, b"100000,")
        blocks = session.copy(numbers)
        assert next(blocks).endswith(b"\n")
        blocks.close()
        assert session.value("SELECT 1") == 1


def test_a_refused_copy_names_no_value_and_leaves_a_session_that_goes_on(postgres_database: PostgresDatabase) -> None:
    with connect(settings_of(postgres_database)) as session:
        rows = "SELECT CASE WHEN g = 90000 THEN 'secret' ELSE g::text END::int FROM generate_series(1, 100000) g"
        for read in (lambda: list(session.copy(f"COPY ({rows}) TO STDOUT")), lambda: session.rows(rows)):
            with pytest.raises(PostgresError) as caught:
                read()
            assert caught.value.sqlstate == "22P02"
            assert "secret" not in str(caught.value)
        with pytest.raises(PostgresError, match=r"relation .*nowhere.* does not exist"):
            list(session.copy("COPY nowhere TO STDOUT"))
        assert session.value("SELECT 1") == 1


def test_parameters_are_values_in_a_replication_session_too(postgres_database: PostgresDatabase) -> None:
    with connect_replication(settings_of(postgres_database)) as session:
        assert session.rows("SELECT %s, %s::int", ("it's; \\ 100%", 5)) == [("it's; \\ 100%", 5)]
        assert session.rows("IDENTIFY_SYSTEM")[0][3] == postgres_database.name


# The stream.


@pytest.fixture
def stream(postgres_database: PostgresDatabase) -> PostgresDatabase:
    """A database with a table, its publication and a slot."""
    postgres_database.execute("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION headrace FOR TABLE t")
    prepare_slot(postgres_database)
    return postgres_database


def prepare_slot(database: PostgresDatabase) -> None:
    database.execute(f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput')")


@contextmanager
def reading(database: PostgresDatabase, begin: int, *, copy: bool = True) -> Iterator[ReplicationConnection]:
    with connect_replication(settings_of(database)) as session:
        slot = database.name
        if copy:
            assert session.copy_slot(slot, "a_copy") <= begin
            slot = "a_copy"
        session.start(slot, begin, "headrace")
        yield session


def read_to(session: ReplicationConnection, end: int) -> list[bytes]:
    """The messages until everything before an LSN has come."""
    found, deadline = [], time.monotonic() + 20
    while True:
        assert time.monotonic() < deadline
        for payload in session.receive(0.5):
            if payload[0] == ord("w"):
                found.append(payload[25:])
            elif int.from_bytes(payload[1:9], "big") >= end:
                return found


def test_copies_bring_the_same_bytes_twice_and_a_keepalive_at_the_end(stream: PostgresDatabase) -> None:
    begin = log_end(stream)
    stream.execute("INSERT INTO t SELECT g, 'value ' || g FROM generate_series(1, 2000) g")
    end = log_end(stream)
    reads = []
    copies = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'a_copy'"
    for _ in range(2):
        with reading(stream, begin) as session:
            reads.append(read_to(session, end))
        # The server drops a copy a moment after its session has ended.
        until(lambda: stream.execute(copies) == [(0,)], "the copy to be gone")
    assert reads[0] == reads[1]
    kinds = b"".join(message[:1] for message in reads[0])
    assert kinds == b"BR" + b"I" * 2000 + b"C"


def test_a_window_without_commits_ends_by_a_keepalive(stream: PostgresDatabase) -> None:
    begin = log_end(stream)
    with stream.server.connect("postgres") as other:
        other.execute("CREATE TABLE IF NOT EXISTS elsewhere (id int)")
        other.execute("INSERT INTO elsewhere SELECT generate_series(1, 1000)")
    with reading(stream, begin) as session:
        assert b"I" not in [message[:1] for message in read_to(session, log_end(stream))]


def test_a_reader_that_takes_its_time_is_not_cut(stream: PostgresDatabase) -> None:
    with stream.server.changed(wal_sender_timeout="1s"):
        begin = log_end(stream)
        with reading(stream, begin) as session, stream.connect() as other:
            stream.execute("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 20000) g")
            started, beats = time.monotonic(), set()
            # Longer than the timeout, in which the sender waits for the reader.
            while time.monotonic() < started + 2.5:
                beats.update(other.execute("SELECT reply_time FROM pg_stat_replication").fetchall())
            assert len(beats) > 3
            assert sum(message[:1] == b"I" for message in read_to(session, log_end(stream))) == 20_000


@pytest.mark.parametrize(("copy", "moves"), [(True, True), (False, False)])
def test_only_a_copy_is_confirmed(stream: PostgresDatabase, copy: bool, moves: bool) -> None:
    begin = log_end(stream)
    with reading(stream, begin, copy=copy) as session, stream.connect() as other:
        slot = "a_copy" if copy else stream.name
        sql = f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{slot}'"
        before = other.execute(sql).fetchone()
        stream.execute("INSERT INTO t VALUES (1, 'x')")
        read_to(session, end := log_end(stream))
        session.confirm(end, reply=True)
        read_to(session, end)
        assert (other.execute(sql).fetchone() != before) == moves


def test_a_terminated_reader_says_so(stream: PostgresDatabase) -> None:
    with reading(stream, log_end(stream)) as session:
        stream.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'a_copy'")
        with pytest.raises(LostConnection, match="The server ended a session"):
            read_to(session, 1 << 62)


def test_what_came_before_the_end_is_handed_on_first(stream: PostgresDatabase) -> None:
    with reading(stream, log_end(stream)) as session, stream.connect() as other:
        stream.execute("INSERT INTO t VALUES (1, 'x')")
        sent = "SELECT 1 FROM pg_stat_replication WHERE sent_lsn >= %s::pg_lsn"
        until(lambda: other.execute(sent, (lsn.to_server(log_end(stream)),)).fetchone(), "all was sent")
        stream.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'a_copy'")
        found: list[bytes] = []
        with pytest.raises(LostConnection):
            while True:
                found += [payload[25:26] for payload in session.receive(0.5) if payload[0] == ord("w")]
        assert found == [b"B", b"R", b"I", b"C"]


def test_a_missing_publication_is_an_error_that_names_it(stream: PostgresDatabase) -> None:
    begin = log_end(stream)
    stream.execute("INSERT INTO t VALUES (1, 'x')")
    with connect_replication(settings_of(stream)) as session:
        if session.version >= 180000:
            pytest.skip("PostgreSQL 18 sends nothing and goes on; the next batch finds that the publication is gone")
        session.copy_slot(stream.name, "a_copy")
        session.start("a_copy", begin, 'no "such" one')
        with pytest.raises(PostgresError, match='publication "no "such" one" does not exist'):
            read_to(session, 1 << 62)


@pytest.mark.slow
@needs_postgres
@pytest.mark.parametrize("copy", [True, False])
def test_a_fast_shutdown_is_not_held_up_and_a_crash_is_a_lost_connection(copy: bool) -> None:
    with postgres() as server:
        database = server.new_database()
        database.execute("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION headrace FOR TABLE t")
        prepare_slot(database)
        for end_server in (server.stop, server.crash):
            with reading(database, log_end(database), copy=copy) as session:
                database.execute("INSERT INTO t SELECT coalesce(max(id), 0) + 1, 'x' FROM t")
                read_to(session, log_end(database))
                stopping = threading.Thread(target=end_server)
                begun = time.monotonic()
                stopping.start()
                with pytest.raises(HeadraceError) as caught:
                    while True:
                        session.receive(0.1)
                stopping.join()
                assert isinstance(caught.value, LostConnection)
                assert time.monotonic() - begun < 8
            server.start()


@pytest.mark.slow
@needs_postgres
def test_a_fast_shutdown_is_not_held_up_by_a_reader_that_nobody_asks() -> None:
    with postgres() as server:
        database = server.new_database()
        database.execute("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION headrace FOR TABLE t")
        prepare_slot(database)
        with reading(database, log_end(database)) as session:
            read_to(session, log_end(database))
            database.execute("INSERT INTO t VALUES (1, 'x')")
            begun = time.monotonic()
            server.stop()
            assert time.monotonic() - begun < 5
            with pytest.raises(LostConnection):
                assert b"I" in [payload[25:26] for payload in session.receive(0.1)]
                session.receive(0.1)
