"""A PostgreSQL with its own data folder, for one run of tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest
from tests.live.named_servers import Address, NamedPostgres

from headrace.sources.postgresql import lsn
from headrace.sources.postgresql.options import PostgresSettings
from headrace_emulators.postgresql.server import USER, PostgresDatabase, PostgresServer, missing

needs_postgres = pytest.mark.skipif(bool(missing()), reason=missing())
"""Mark of a test that starts a server of its own by `postgres`."""


@contextmanager
def postgres(**settings: str) -> Iterator[PostgresServer]:
    """A server of a block's own, for tests that stop it or need settings of their own."""
    # A short path, because a socket's is limited.
    with (
        tempfile.TemporaryDirectory(prefix="hr-", ignore_cleanup_errors=True) as folder,
        PostgresServer(Path(folder), **settings) as server,
    ):
        yield server


class StandbyServer(PostgresServer):
    """A server that follows another one until it is promoted.

    Args:
        folder: as of any server.
        primary: the other one.
    """

    def __init__(self, folder: Path, primary: PostgresServer) -> None:
        super().__init__(folder)
        self._primary = primary

    def __enter__(self) -> Self:
        self._prepare_data()
        self.start()
        return self

    def _make_data(self) -> None:
        """Copy the primary's folder while it goes on, and the log that it wrote meanwhile."""
        source = self._primary.data
        empty = ("pg_replslot", "pg_stat_tmp")
        with self._primary.connect("postgres") as connection:
            older = connection.info.server_version < 150_000
            connection.execute(
                f"SELECT {'pg_start_backup' if older else 'pg_backup_start'}('standby', true{', false' * older})"
            )
            apart = shutil.ignore_patterns(*empty, "pg_wal", "postmaster.*", ".s.*", "pgsql_tmp*")
            shutil.copytree(source, self.data, ignore=apart, dirs_exist_ok=True)
            stopped = "pg_stop_backup(false)" if older else "pg_backup_stop()"
            [(label,)] = connection.execute(f"SELECT labelfile FROM {stopped}").fetchall()
        shutil.copytree(source / "pg_wal", self.data / "pg_wal")
        for name in empty:
            (self.data / name).mkdir()
        (self.data / "backup_label").write_text(label, encoding="utf-8")
        (self.data / "standby.signal").touch()
        with (self.data / "postgresql.auto.conf").open("a", encoding="utf-8") as file:
            file.write(f"primary_conninfo = 'host=127.0.0.1 port={self._primary.port} user={USER}'\n")
        if self.user:
            for path in self.data.rglob("*"):
                shutil.chown(path, self.user)

    def promote(self) -> None:
        """Follow nobody any more; what the other one has and this one has not is gone."""
        with self.connect("postgres") as connection:
            connection.execute("SELECT pg_promote()")


@contextmanager
def standby_of(primary: PostgresServer) -> Iterator[StandbyServer]:
    """A standby of a block's own, which has what the primary has now, and follows."""
    with (
        tempfile.TemporaryDirectory(prefix="hr-", ignore_cleanup_errors=True) as folder,
        StandbyServer(Path(folder), primary) as server,
    ):
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for all tests of a process that leave it running: the one that the environment names, or one that is
    started here (`HEADRACE_POSTGRESQL=17` chooses its release); where neither can be had, they are skipped."""
    if (address := Address.of("postgresql")) is not None:
        yield NamedPostgres(address)
        return
    if lacking := missing():
        pytest.skip(lacking)
    with postgres() as server:
        yield server


@pytest.fixture
def new_postgres_database(postgres_server: PostgresServer) -> Iterator[Callable[..., PostgresDatabase]]:
    """Makes databases of the test's own, which are dropped when it is over."""
    made: list[PostgresDatabase] = []

    def make(options: str = "") -> PostgresDatabase:
        made.append(postgres_server.new_database(options))
        return made[-1]

    yield make
    for database in made:
        database.drop()


@pytest.fixture
def postgres_database(new_postgres_database: Callable[..., PostgresDatabase]) -> PostgresDatabase:
    """A database of the test's own."""
    return new_postgres_database()


def settings_of(database: PostgresDatabase, /, **options: str) -> PostgresSettings:
    """The source's options for a database; slot and publication are named as it."""
    return PostgresSettings.parse({"slot": database.name, **database.options, **options}, owner="source 'postgresql'")


def require_release(database: PostgresDatabase, release: int, what: str) -> None:
    """Skip the rest of a test on a server before the release that brought what the test needs."""
    if int(database.server.version.partition(".")[0]) < release:
        pytest.skip(f"{what} from PostgreSQL {release} on")


def log_end(database: PostgresDatabase) -> int:
    """The LSN up to which the log is written; a keepalive says no later one while nobody writes on."""
    return lsn.written_up_to(database.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0])
