"""A MariaDB and an unpacked MySQL with data folders of their own, for one run of tests."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.live.named_servers import Address, NamedMySql

from headrace_emulators.mysql.server import MARIADB, MYSQL, MySqlDatabase, MySqlServer, missing

needs_mariadb = pytest.mark.skipif(bool(missing(MARIADB)), reason=missing(MARIADB))
"""Mark of a test that starts a MariaDB of its own by `mysql_like`."""
needs_mysql = pytest.mark.skipif(bool(missing(MYSQL)), reason=missing(MYSQL))
"""Mark of a test that starts a MySQL of its own by `mysql_like`."""


@contextmanager
def mysql_like(kind: str = MARIADB, **settings: str) -> Iterator[MySqlServer]:
    """A server of a block's own, for tests that stop it or need settings of their own."""
    # A short path, because a socket's is limited.
    with (
        tempfile.TemporaryDirectory(prefix="hr-", ignore_cleanup_errors=True) as folder,
        MySqlServer(Path(folder), kind, **settings) as server,
    ):
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MySqlServer]:
    """One MariaDB for all tests of a process that leave it running: the one that the environment names, or one that is
    started here (`HEADRACE_MARIADB=11.4` chooses its release); where neither can be had, they are skipped."""
    yield from _shared(MARIADB)


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[MySqlServer]:
    """As `mariadb_server`, a MySQL."""
    yield from _shared(MYSQL)


def _shared(kind: str) -> Iterator[MySqlServer]:
    if (address := Address.of(kind)) is not None:
        yield NamedMySql(kind, address)
        return
    if reason := missing(kind):
        pytest.skip(reason)
    with mysql_like(kind) as server:
        yield server


@pytest.fixture(params=[MARIADB, pytest.param(MYSQL, marks=pytest.mark.system)])
def binlog_server(request: pytest.FixtureRequest) -> MySqlServer:
    """Each of the two, for tests of what both do; in `make test` MariaDB."""
    server = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(server, MySqlServer)
    return server


def _made(server: MySqlServer) -> Iterator[Callable[..., MySqlDatabase]]:
    made: list[MySqlDatabase] = []

    def make(options: str = "") -> MySqlDatabase:
        made.append(server.new_database(options))
        return made[-1]

    yield make
    for database in made:
        database.drop()


@pytest.fixture
def new_binlog_database(binlog_server: MySqlServer) -> Iterator[Callable[..., MySqlDatabase]]:
    """Makes databases of the test's own in each of the two servers; they are dropped when it is over."""
    yield from _made(binlog_server)


@pytest.fixture
def binlog_database(new_binlog_database: Callable[..., MySqlDatabase]) -> MySqlDatabase:
    """A database of the test's own in each of the two servers."""
    return new_binlog_database()


@pytest.fixture
def mariadb_database(mariadb_server: MySqlServer) -> Iterator[MySqlDatabase]:
    """A database of the test's own in MariaDB."""
    for make in _made(mariadb_server):
        yield make()


@pytest.fixture
def mysql_database(mysql_server: MySqlServer) -> Iterator[MySqlDatabase]:
    """A database of the test's own in MySQL."""
    for make in _made(mysql_server):
        yield make()
