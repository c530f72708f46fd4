"""A real PostgreSQL with a data folder of its own, for demos and tests; this machine's, or from Maven's archives."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Self

from headrace.errors import ConnectError
from headrace_emulators.engine.archives import POSTGRESQL, Programs, find_programs
from headrace_emulators.engine.ports import free_ports
from headrace_emulators.engine.programs import FolderError, Server, identity

_PROGRAMS, _PACKAGE = ("initdb", "postgres"), "postgresql"
DATA = "data"
"""The folder in the server's own that has its data and its socket."""
USER = "cdc"
"""The superuser; nobody needs a password."""
_numbers = count(1)
_SOCKET_BYTES = 107
"""How long the path of a socket may be."""


class PostgresServer:
    """The server with logical decoding, in UTC, on the loopback only.

    PostgreSQL refuses to run as root, so root starts it as the user `postgres`, whom its package makes, or `nobody`.

    Args:
        folder: for data, socket and log; its path must be short, because a socket's is limited.
        settings: the server's settings that differ from those below. `changed` changes them while it runs. With empty
            `listen_addresses` only the folder's owner can connect, by the socket.

    Raises:
        ConnectError: there is no server that this machine can run.
        FolderError: the folder's path is too long, or the server's user can't enter it.
    """

    name = "postgres"
    database = "live"

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.data = folder / DATA
        self.port = int(settings.get("port") or free_ports(1)[0])
        self.user = _system_user()
        self._server = Server(POSTGRESQL, folder / "postgres.log")
        programs = find_postgresql()
        if len(f"{self.data}/.s.PGSQL.{self.port}".encode()) > _SOCKET_BYTES:
            raise FolderError(
                f"The path of the folder '{folder}' is too long for a socket of PostgreSQL.",
                remedy="Use a folder with a shorter path.",
            )
        if self.user:
            self._require_way()
        self._prepare, self._daemon = (programs[name] for name in _PROGRAMS)
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.data),
            "wal_level": "logical",
            "max_replication_slots": "20",
            "max_wal_senders": "20",
            "max_prepared_transactions": "10",
            # Every transaction of a few rows takes the way of large ones: to disk.
            "logical_decoding_work_mem": "64kB",
            "timezone": "UTC",
            "fsync": "off",
            "shared_buffers": "32MB",
            **settings,
        }

    @property
    def host(self) -> str:
        """Where clients connect: the loopback, or the folder of the socket."""
        return "127.0.0.1" if self._settings["listen_addresses"] else str(self.data)

    @property
    def login(self) -> dict[str, str]:
        """The source's options for its superuser."""
        return {"user": USER}

    def __enter__(self) -> Self:
        self._prepare_data()
        self.start()
        self.run(f"create database {self.database}", database="postgres")
        return self

    def _prepare_data(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data.mkdir(mode=0o700)
        if self.user:
            self.folder.chmod(0o755)
            shutil.chown(self.data, self.user)
        self._make_data()
        # In the file and not on the command line, which would win over what a test changes.
        with (self.data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())

    def _make_data(self) -> None:
        prepared = subprocess.run(
            [*self._making(), "-D", self.data, "--no-sync"],
            **identity(self.user),
            cwd=self.data,
            capture_output=True,
            text=True,
        )
        if prepared.returncode != 0:
            raise ConnectError(
                f"PostgreSQL could not prepare its data folder '{self.data}': {prepared.stderr.strip()}",
                remedy="Mend what it says, or use another folder.",
            )

    def _making(self) -> list[str | Path]:
        return [self._prepare, "-U", USER, "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"]

    def _require_way(self) -> None:
        """Refuse a folder that the server's user can't reach."""
        closed = next((folder for folder in self.folder.absolute().parents if not folder.stat().st_mode & 0o001), None)
        if closed is not None:
            raise FolderError(
                f"PostgreSQL does not run as root but as the user {self.user}, who can't enter '{closed}'.",
                remedy="Use a folder elsewhere, such as one in /tmp, or don't run as root.",
            )

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def command(self) -> list[str]:
        """What starts it, as a user of the machine may type it."""
        started = [str(self._daemon), "-D", str(self.data)]
        return ["runuser", "-u", self.user, "--", *started] if self.user else started

    def start(self) -> None:
        """Start, or start again after `stop` or `crash`, and wait until it answers."""
        self._server.start([self._daemon, "-D", self.data], folder=self.data, user=self.user)
        self._server.wait_until(self._answers, "it answered")

    def stop(self) -> None:
        """The fast way: sessions that are still open don't hold it up, but readers of the log do."""
        self._server.stop(signal.SIGINT)

    def crash(self) -> None:
        """All its processes end where they are; the next start recovers from the log."""
        self._server.stop(signal.SIGQUIT)

    def _answers(self) -> bool:
        import psycopg

        try:
            self.connect("postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def connect(self, database: str = database, **options: Any) -> Any:
        """A session by psycopg, which commits each statement unless it says BEGIN."""
        import psycopg

        given = {"host": self.host, "port": self.port, **self.login, "dbname": database, "autocommit": True}
        return psycopg.connect(**{**given, **options})

    @contextmanager
    def changed(self, **settings: str) -> Iterator[None]:
        """Settings that need no restart, for as long as the block lasts."""
        with self.connect("postgres") as connection:
            for name, value in settings.items():
                connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
            connection.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            with self.connect("postgres") as connection:
                for name in settings:
                    connection.execute(f"ALTER SYSTEM RESET {name}")
                connection.execute("SELECT pg_reload_conf()")

    def run(
        self, sql: str, parameters: Sequence[Any] | None = None, *, database: str = database
    ) -> list[tuple[Any, ...]]:
        """Run statements in a session of their own; without parameters several of them, as one transaction unless
        the text says BEGIN.

        Returns:
            The rows of the first answer, where there are some.
        """
        with self.connect(database) as connection:
            cursor = connection.execute(sql, parameters)
            return cursor.fetchall() if cursor.description else []

    @property
    def version(self) -> str:
        return str(self.run("SHOW server_version", database="postgres")[0][0])

    def new_database(self, options: str = "") -> PostgresDatabase:
        """A database that no other test uses; `options` are those of CREATE DATABASE."""
        name = f"test_{next(_numbers)}"
        with self.connect("postgres") as connection:
            connection.execute(f"CREATE DATABASE {name} {options}")
        return PostgresDatabase(self, name)


@dataclass(frozen=True)
class PostgresDatabase:
    server: PostgresServer
    name: str

    @property
    def options(self) -> dict[str, str]:
        return {
            "hostname": self.server.host,
            "port": str(self.server.port),
            "database": self.name,
            **self.server.login,
            "sslmode": "disable",
        }

    def connect(self, **options: Any) -> Any:
        """A session by psycopg, which commits each statement unless it says BEGIN."""
        return self.server.connect(self.name, **options)

    def execute(self, sql: str, parameters: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run statements, as `PostgresServer.run`."""
        return self.server.run(sql, parameters, database=self.name)

    def copied(self, query: str) -> str:
        """What COPY prints for a table or a query in parentheses, under the settings that the stream has."""
        settings = "-c datestyle=ISO -c intervalstyle=postgres -c timezone=UTC -c extra_float_digits=1"
        with self.connect(options=settings) as connection, connection.cursor().copy(f"COPY {query} TO STDOUT") as copy:
            return b"".join(copy).decode()

    def drop(self) -> None:
        """Drop it with its slots and prepared transactions, whoever is connected."""
        with self.connect() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            for (transaction,) in connection.execute(
                "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
            ).fetchall():
                connection.execute(f"ROLLBACK PREPARED '{transaction}'")
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                "WHERE database = current_database() AND NOT temporary"
            )
        with self.server.connect("postgres") as connection:
            connection.execute(f"DROP DATABASE {self.name} WITH (FORCE)")


def private_server(folder: Path) -> PostgresServer:
    """A server that listens on no port: who may enter its data folder connects by the socket in there.

    Raises:
        ConnectError: as `PostgresServer`.
    """
    return PostgresServer(folder, listen_addresses="", port="5432")


def find_postgresql() -> Programs:
    """The programs of the server, not downloaded yet where that has to be.

    Raises:
        ConnectError: there is no server that this machine can run.
    """
    return find_programs(POSTGRESQL, _PROGRAMS, _PACKAGE)


def missing() -> str:
    """Why this machine can't run the server, and what to do about it; empty where it can."""
    try:
        find_postgresql()
    except ConnectError as lacking:
        return str(lacking)
    return ""


def _system_user() -> str | None:
    """The user of the machine as whom root starts the server; None for everybody else, who starts it as himself."""
    if os.geteuid() != 0:
        return None
    users = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in users else "nobody"
