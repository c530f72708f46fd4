"""A PostgreSQL of the machine's own packages, with its own data folder, for one test run."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Self

from tests.real.programs import Server, program

from headrace_emulators.engine.ports import free_ports

_PACKAGE = "postgresql"
_UNESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class Postgres:
    """The server with logical decoding, in UTC, on the loopback only.

    PostgreSQL refuses to run as root, so root starts it as the user `postgres`, whom its package makes.

    Args:
        folder: for data, socket and log; its path must be short, because a socket's is limited.
    """

    name = "postgres"
    database = "live"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.port,) = free_ports(1)
        self._user = "postgres" if os.geteuid() == 0 else None
        self._server = Server("PostgreSQL", folder / "postgres.log")
        self._data = folder / "data"
        self._prepare = program("initdb", _PACKAGE)
        self._daemon = program("postgres", _PACKAGE)
        self._client = program("psql", "postgresql-client")

    def __enter__(self) -> Self:
        self._data.mkdir()
        if self._user:
            self.folder.chmod(0o755)
            shutil.chown(self._data, self._user, self._user)
        prepared = subprocess.run(
            [
                self._prepare, "-D", self._data, "-U", "cdc", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8",
                "--no-sync",
            ],
            user=self._user,
            group=self._user,
            extra_groups=[] if self._user else None,
            cwd=self._data,
            capture_output=True,
            text=True,
        )  # fmt: skip
        assert prepared.returncode == 0, prepared.stdout + prepared.stderr
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self._data,
            "wal_level": "logical",
            "timezone": "UTC",
            "fsync": "off",
            "shared_buffers": "32MB",
        }
        self._server.start(
            [self._daemon, "-D", self._data, *(f"--{name}={value}" for name, value in settings.items())],
            folder=self._data,
            user=self._user,
        )
        self._server.wait_until(lambda: self._ask("select 1", "postgres").returncode == 0, "it answered")
        self.run(f"create database {self.database}", database="postgres")
        return self

    def __exit__(self, *_: object) -> None:
        # The fast way: sessions that are still open don't hold it up.
        self._server.stop(signal.SIGINT)

    def _ask(self, sql: str, database: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [
                self._client, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1",
                "-p", str(self.port), "-U", "cdc", "-d", database,
            ],
            input=sql.encode(),
            capture_output=True,
        )  # fmt: skip

    def run(self, sql: str, *, database: str = database) -> str:
        """Run statements, each a transaction of its own unless the text says BEGIN; what psql prints."""
        answer = self._ask(sql, database)
        assert answer.returncode == 0, answer.stderr.decode()
        return answer.stdout.decode()

    @property
    def version(self) -> str:
        """What the server calls itself."""
        return self.run("show server_version").strip()

    def natives(self) -> dict[str, dict[str, str]]:
        """The columns' types by table."""
        found: dict[str, dict[str, str]] = {}
        for table, column, kind in self._copied(
            "select c.relname, a.attname, format_type(a.atttypid, a.atttypmod) from pg_attribute a "
            "join pg_class c on c.oid = a.attrelid where c.relnamespace = 'public'::regnamespace "
            "and c.relkind = 'r' and a.attnum > 0 and not a.attisdropped order by c.relname, a.attnum"
        ):
            found.setdefault(table or "", {})[column or ""] = kind or ""
        return found

    def rows(self, table: str, natives: dict[str, str]) -> list[dict[str, str | None]]:
        """A table's rows as the server prints them."""
        names = ", ".join(f'"{column}"' for column in natives)
        return [dict(zip(natives, row, strict=True)) for row in self._copied(f'select {names} from "{table}"')]

    def _copied(self, query: str) -> list[list[str | None]]:
        lines = self.run(f"copy ({query}) to stdout").split("\n")[:-1]
        return [[_unescaped(cell) for cell in line.split("\t")] for line in lines]

    def connector(self, number: int) -> dict[str, str]:
        """What Debezium's connector needs to read this server; each of several has a number of its own."""
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.port),
            "database.user": "cdc",
            "database.password": "cdc",
            "database.dbname": self.database,
            "schema.include.list": "public",
            "plugin.name": "pgoutput",
            "slot.name": f"live_{number}",
            "publication.name": "live",
        }


def _unescaped(cell: str) -> str | None:
    if cell == "\\N":
        return None
    return re.sub(r"\\(.)", lambda match: _UNESCAPED.get(match[1], match[1]), cell)
