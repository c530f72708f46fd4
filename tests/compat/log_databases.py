"""The databases of the kept offsets that have logs of their own: real servers, whose data folders are kept.

A data folder is a server's of one version. PostgreSQL reads those of its own major version only, MariaDB those of
earlier ones, too; where the machine has none that reads it, the tests of that release are skipped.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.compat.packing import unpack
from tests.support.captured_mysql import CapturedMysql
from tests.support.captured_postgres import CapturedPostgres

from headrace_emulators.mysql.server import MARIADB, MySqlDatabase, MySqlServer
from headrace_emulators.mysql.server import missing as mysql_missing
from headrace_emulators.postgresql.server import PostgresDatabase, PostgresServer
from headrace_emulators.postgresql.server import missing as postgres_missing

_SMALL = {
    # The machine that made it has another name, so a stream follows it as it does a server that took over.
    "gtid_strict_mode": "ON",
    "innodb_log_file_size": "4M",
    "innodb_data_file_path": "ibdata1:4M:autoextend",
    "innodb_undo_tablespaces": "0",
}
_readers = itertools.count(1)


class SmallPostgres(PostgresServer):
    """A server with a small log, or the one that was kept, at a port of its own."""

    kept: Path | None = None

    def _making(self) -> list[str | Path]:
        return [*super()._making(), "--wal-segsize=1"]

    def __enter__(self) -> SmallPostgres:
        if self.kept is None:
            super().__enter__()
            return self
        unpack(self.kept, self.data)
        said = (self.data / "PG_VERSION").read_text().strip()
        if not self.version_here.startswith(f"{said}."):
            pytest.skip(f"PostgreSQL {self.version_here} does not read a data folder of version {said}.")
        for path in (self.data, *self.data.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)
            if self.user:
                shutil.chown(path, self.user)
        if self.user:
            self.folder.chmod(0o755)
        with (self.data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(f"port = '{self.port}'\nunix_socket_directories = '{self.data}'\n")
        self.start()
        return self

    @property
    def version_here(self) -> str:
        """The version of the programs."""
        said = subprocess.run([str(self._daemon), "--version"], capture_output=True, text=True, check=True).stdout
        return said.split()[2]


class SmallMariaDb(MySqlServer):
    """A server with small files, or the one that was kept, at a port of its own."""

    kept: Path | None = None

    def __enter__(self) -> SmallMariaDb:
        if self.kept is None:
            super().__enter__()
            return self
        self.folder.mkdir(parents=True, exist_ok=True)
        unpack(self.kept, self.data)
        self.start()
        return self


class ShopPostgres(CapturedPostgres):
    """The shop in PostgreSQL.

    Args:
        database: where it is.
        made: whether its publication is there.
    """

    def __init__(self, database: PostgresDatabase, *, made: bool) -> None:
        if made:
            self.database, self.identity = database, "FULL"
        else:
            super().__init__(database)
        self.slot = "kept"

    def remember(self) -> None:
        """Keep the slot where it is now: a stream moves its own on as it goes."""
        self.execute("SELECT pg_copy_logical_replication_slot(?, 'remembered')", (self.slot,))

    def go_back(self) -> None:
        """Have the slot where it was."""
        self.execute("SELECT pg_drop_replication_slot(?)", (self.slot,))
        self.execute("SELECT pg_copy_logical_replication_slot('remembered', ?)", (self.slot,))

    @property
    def first_options(self) -> dict[str, str]:
        """Options of a stream that begins: it makes a slot of its own."""
        return {"slot": f"first_{next(_readers)}"}


class ShopMariaDb(CapturedMysql):
    """The shop in MariaDB."""

    def __init__(self, database: MySqlDatabase) -> None:
        super().__init__(database)
        self.source = "mysql"

    def remember(self) -> None:
        """The log is there until it is purged."""

    def go_back(self) -> None:
        """Nothing moves on with a stream."""

    @property
    def first_options(self) -> dict[str, str]:
        """Options of a stream that begins."""
        return {}


LACKING = {"postgresql": postgres_missing, "mysql": mysql_missing}
"""What the machine lacks to run each."""


@contextmanager
def serving(source: str, kept: Path | None = None) -> Iterator[tuple[Any, Any]]:
    """A server's data folder and the shop in it: a new one, or one that was kept."""
    # A short path, because a socket's is limited.
    with tempfile.TemporaryDirectory(prefix="hr-", ignore_cleanup_errors=True) as folder:
        server: Any
        if source == "postgresql":
            server = SmallPostgres(Path(folder), autovacuum="off")
        else:
            server = SmallMariaDb(Path(folder), MARIADB, **_SMALL)
        server.kept = kept
        with server:
            if source == "postgresql":
                if kept is None:
                    server.run("CREATE DATABASE shop", database="postgres")
                yield server, ShopPostgres(PostgresDatabase(server, "shop"), made=kept is not None)
            else:
                if kept is None:
                    server.run("CREATE DATABASE shop", database=None)
                yield server, ShopMariaDb(MySqlDatabase(server, "shop"))
