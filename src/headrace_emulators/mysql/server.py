"""A real MariaDB, of this machine or from Maven's archives, or a real MySQL, with a data folder of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Self

from headrace.errors import ConnectError
from headrace_emulators.engine import archives
from headrace_emulators.engine.ports import free_ports
from headrace_emulators.engine.programs import FolderError, Server
from headrace_emulators.mysql.package import FETCH, unpacked

MARIADB, MYSQL = "mariadb", "mysql"
"""The kinds of servers."""
DATA = "data"
"""The folder in the server's own that has its data."""
USER = PASSWORD = "cdc"
"""Who may do everything."""
_DAEMON, _INSTALL, _PACKAGE = "mariadbd", "mariadb-install-db", "mariadb-server"
_numbers = count(1)
_SOCKET_BYTES = 107
"""How long the path of a socket may be."""
_COMMON = {
    "bind_address": "127.0.0.1",
    "server_id": "1",
    "log_bin": "log",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "default_time_zone": "+00:00",
    "character_set_server": "utf8mb4",
    "sql_mode": "STRICT_TRANS_TABLES",
    "skip_name_resolve": "ON",
    "innodb_buffer_pool_size": "32M",
    "innodb_flush_log_at_trx_commit": "0",
    "innodb_flush_method": "nosync",
    "innodb_doublewrite": "0",
    "sync_binlog": "0",
}
_OWN = {
    MARIADB: {"sync_frm": "0"},
    MYSQL: {
        "gtid_mode": "ON",
        "enforce_gtid_consistency": "ON",
        "innodb_redo_log_capacity": "16M",
        "mysqlx": "OFF",
        "secure_file_priv": "",
    },
}


class MySqlServer:
    """A MariaDB or MySQL that logs rows with their metadata, in UTC, on the loopback only.

    What makes a commit durable is switched off, because only `crash` asks for it, and that leaves the machine running.

    Args:
        folder: for data, socket and log; its path must be short, because a socket's is limited.
        kind: `mariadb` or `mysql`.
        settings: the server's settings that differ from those above, also for later starts. `changed` changes them
            while it runs.

    Raises:
        ConnectError: there is no server that this machine can run.
        FolderError: the folder's path is too long.
    """

    database = "live"

    def __init__(self, folder: Path, kind: str = MARIADB, **settings: str) -> None:
        self.folder = folder
        self.name = kind
        self.data = folder / DATA
        self.port = int(settings.get("port") or free_ports(1)[0])
        self.settings = {**_COMMON, **_OWN[kind], **settings}
        self._socket = folder / "sql.sock"
        self._server = Server(archives.MARIADB if kind == MARIADB else "MySQL", folder / f"{kind}.log")
        if len(str(self._socket).encode()) > _SOCKET_BYTES:
            raise FolderError(
                f"The path of the folder '{folder}' is too long for a socket of {self._server.name}.",
                remedy="Use a folder with a shorter path.",
            )
        self._program = _mariadb(_DAEMON) if kind == MARIADB else _mysqld()

    @property
    def host(self) -> str:
        return "127.0.0.1"

    @property
    def pid(self) -> int:
        return self._server.pid

    @property
    def login(self) -> dict[str, str]:
        """The source's options for the user who may do everything."""
        return {"user": USER, "password": PASSWORD}

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._prepare_data()
        self.start()
        with self._as_root() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self.database}")
            cursor.execute(f"CREATE USER {USER}@'%' IDENTIFIED BY '{PASSWORD}'")
            cursor.execute(f"GRANT ALL ON *.* TO {USER}@'%' WITH GRANT OPTION")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _prepare_data(self) -> None:
        made: list[str | Path] = (
            # Everybody may do everything in databases that are called as the one for tests is.
            [
                *_mariadb(_INSTALL), "--skip-test-db", "--auth-root-authentication-method=normal",
            ]
            if self.name == MARIADB
            else [*self._program, "--initialize-insecure"]
        )  # fmt: skip
        command = [*made, f"--datadir={self.data}", f"--tmpdir={self.folder}", *_as_this_user()]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip()
            raise ConnectError(
                f"{self._server.name} could not prepare its data folder '{self.data}': {said}",
                remedy="Mend what it says, or use another folder.",
            )

    @property
    def command(self) -> list[str]:
        """What starts it, as a user of the machine may type it."""
        settings = (f"--{name.replace('_', '-')}={value}" for name, value in self.settings.items())
        # A server removes what it takes for leftovers in its folder for temporary files, also those of another.
        own = (
            f"--datadir={self.data}",
            f"--tmpdir={self.folder}",
            f"--socket={self._socket}",
            f"--port={self.port}",
        )
        return [*map(str, self._program), *own, *settings, *_as_this_user()]

    def start(self) -> None:
        """Start, or start again after `stop` or `crash`, and wait until it answers."""
        self._server.start(self.command, folder=self.folder)
        self._server.wait_until(self._answers, "it answered")

    def stop(self) -> None:
        """In order: the log's last event says so."""
        self._server.stop()

    def crash(self) -> None:
        """Its process ends where it is; the next start recovers, and goes on in another file of the log."""
        self._server.stop(signal.SIGKILL)

    def _answers(self) -> bool:
        import pymysql

        try:
            self._as_root().close()
        except pymysql.MySQLError:
            return False
        return True

    def _as_root(self) -> Any:
        import pymysql

        return pymysql.connect(unix_socket=str(self._socket), user="root", autocommit=True, ssl_disabled=True)

    def connect(self, database: str | None = database, **options: Any) -> Any:
        """A session by PyMySQL, which commits each statement unless it says BEGIN; on this machine not encrypted."""
        import pymysql

        given = {
            "ssl_disabled": self.host == "127.0.0.1",
            "host": self.host,
            "port": self.port,
            **self.login,
            "database": database,
            "charset": "utf8mb4",
            "autocommit": True,
        }
        return pymysql.connect(**{**given, **options})

    @contextmanager
    def changed(self, **settings: str | int) -> Iterator[None]:
        """Global settings that need no restart, for as long as the block lasts; sessions that are open keep theirs."""
        before: dict[str, Any] = {}
        with self.connect(None) as connection, connection.cursor() as cursor:
            for name, value in settings.items():
                cursor.execute(f"SELECT @@GLOBAL.{name}")
                before[name] = cursor.fetchone()[0]
                cursor.execute(f"SET GLOBAL {name} = %s", (value,))
        try:
            yield
        finally:
            with self.connect(None) as connection, connection.cursor() as cursor:
                for name, value in before.items():
                    cursor.execute(f"SET GLOBAL {name} = %s", (value,))

    def run(self, sql: str, *, database: str | None = database) -> list[list[str]]:
        """Run statements, each a transaction of its own unless the text says BEGIN.

        Returns:
            The cells of all answers as texts, of which `NULL` is one.
        """
        from pymysql.constants import CLIENT

        with (
            self.connect(database, client_flag=CLIENT.MULTI_STATEMENTS, conv={}) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(sql)
            rows = list(cursor.fetchall())
            while cursor.nextset():
                rows += cursor.fetchall()
        return [["NULL" if cell is None else cell for cell in row] for row in rows]

    @property
    def version(self) -> str:
        return self.run("SELECT version()")[0][0]

    @property
    def log_end(self) -> tuple[str, int]:
        """The file of the log that is written, and how long it is."""
        [file, position, *_] = self.run(f"SHOW {'MASTER' if self.name == MARIADB else 'BINARY LOG'} STATUS")[0]
        return file, int(position)

    def new_database(self, options: str = "") -> MySqlDatabase:
        """A database that no other test uses; `options` are those of CREATE DATABASE."""
        name = f"test_{next(_numbers)}"
        self.run(f"CREATE DATABASE {name} {options}", database=None)
        return MySqlDatabase(self, name)


@dataclass(frozen=True)
class MySqlDatabase:
    server: MySqlServer
    name: str

    @property
    def options(self) -> dict[str, str]:
        return {
            "hostname": self.server.host,
            "port": str(self.server.port),
            **self.server.login,
            "databases": self.name,
        }

    def connect(self, **options: Any) -> Any:
        """A session by PyMySQL, which commits each statement unless it says BEGIN."""
        return self.server.connect(self.name, **options)

    def execute(self, sql: str, parameters: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement in a session of its own.

        Returns:
            The rows of the answer, where there are some.
        """
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall())

    def run(self, sql: str) -> list[list[str]]:
        """Run statements, as `MySqlServer.run`."""
        return self.server.run(sql, database=self.name)

    def drop(self) -> None:
        """End the sessions in it, which may have a transaction open, and drop it."""
        from pymysql.err import MySQLError

        for number, _, _, database, *_ in self.server.run("SHOW PROCESSLIST", database=None):
            if database == self.name:
                # It may have ended by itself meanwhile.
                with suppress(MySQLError):
                    self.server.run(f"KILL {number}", database=None)
        self.server.run(f"DROP DATABASE IF EXISTS {self.name}", database=None)


def missing(kind: str = MARIADB) -> str:
    """Why this machine can't run the server, and what to do about it; empty where it can."""
    try:
        if kind == MARIADB:
            find_mariadb()
        else:
            _mysqld()
    except ConnectError as lacking:
        return str(lacking)
    return ""


def find_mariadb() -> archives.Programs:
    """The programs of MariaDB, not downloaded yet where that has to be.

    Raises:
        ConnectError: there is no server that this machine can run.
    """
    return archives.find_programs(archives.MARIADB, (_DAEMON, _INSTALL), _PACKAGE)


def _mariadb(name: str) -> list[str | Path]:
    """What begins each command of a program of MariaDB, downloaded if it has to be."""
    found = find_mariadb()
    base = [f"--basedir={archives.unpack(found.archive)}"] if found.archive else []
    return [found[name], "--no-defaults", *base]


def _mysqld() -> list[str | Path]:
    """What begins each command of MySQL: its own loader with the libraries of the system that it was built for."""
    found = unpacked()
    if found is None:
        raise ConnectError("MySQL is not unpacked on this machine.", remedy=f"Run: {FETCH}")
    libraries = next((found / "usr" / "lib").glob("*/libc.so.6")).parent
    shared = found / "usr" / "share" / "mysql"
    return [
        next(libraries.glob("ld-linux*.so.*")), "--library-path", libraries, found / "usr" / "sbin" / "mysqld",
        "--no-defaults", f"--lc-messages-dir={shared}", f"--character-sets-dir={shared / 'charsets'}",
        f"--plugin-dir={found / 'usr' / 'lib' / 'mysql' / 'plugin'}",
    ]  # fmt: skip


def _as_this_user() -> list[str]:
    """Both refuse to run as root unless they are told to."""
    return ["--user=root"] if os.geteuid() == 0 else []
