"""A MariaDB of the machine's own packages, with its own data folder, for one test run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Self

from headrace_emulators.engine.ports import free_ports
from headrace_emulators.engine.programs import Server, program

_PACKAGE = "mariadb-server"
_RAW = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "bit", "geometry", "point", "polygon")


class MariaDb:
    """The server, logging rows, in UTC, on the loopback only.

    Args:
        folder: for data, socket and log; its path must be short, because a socket's is limited.
    """

    name = "mariadb"
    database = "live"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.port,) = free_ports(1)
        self._server = Server("MariaDB", folder / "mariadb.log")
        self._socket = folder / "mariadb.sock"
        self._install = program("mariadb-install-db", _PACKAGE)
        self._daemon = program("mariadbd", _PACKAGE)
        self._client = program("mariadb", "mariadb-client")

    def __enter__(self) -> Self:
        user = ["--user=root"] if os.geteuid() == 0 else []
        data = self.folder / "data"
        prepared = subprocess.run(
            [self._install, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal", *user],
            capture_output=True,
            text=True,
        )
        assert prepared.returncode == 0, prepared.stdout + prepared.stderr
        self._server.start(
            [
                self._daemon, "--no-defaults", f"--datadir={data}", f"--socket={self._socket}", f"--port={self.port}",
                "--bind-address=127.0.0.1", "--server-id=1", f"--log-bin={data / 'log'}", "--binlog-format=ROW",
                "--binlog-row-image=FULL", "--default-time-zone=+00:00", "--character-set-server=utf8mb4",
                "--sql-mode=STRICT_TRANS_TABLES", "--skip-name-resolve", "--innodb-buffer-pool-size=32M",
                "--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync", "--sync-frm=0", *user,
            ],
            folder=self.folder,
        )  # fmt: skip
        self._server.wait_until(self._answers, "it answered")
        self.run(
            f"CREATE DATABASE {self.database}; CREATE USER cdc@'%' IDENTIFIED BY 'cdc'; GRANT ALL ON *.* TO cdc@'%'",
            database=None,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def _answers(self) -> bool:
        return self._ask("select 1", None).returncode == 0

    def _ask(self, sql: str, database: str | None) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [
                self._client, "--no-defaults", f"--socket={self._socket}", "--user=root", "--batch",
                "--skip-column-names", "--default-character-set=utf8mb4", *([database] if database else []),
            ],
            input=sql.encode(),
            capture_output=True,
        )  # fmt: skip

    def run(self, sql: str, *, database: str | None = database) -> list[list[str]]:
        """Run statements; the answer's cells as texts."""
        answer = self._ask(sql, database)
        assert answer.returncode == 0, answer.stderr.decode()
        return [line.split("\t") for line in answer.stdout.decode().splitlines()]

    @property
    def version(self) -> str:
        """What the server calls itself."""
        return self.run("select version()")[0][0]

    def natives(self) -> dict[str, dict[str, str]]:
        """The columns' types by table."""
        found: dict[str, dict[str, str]] = {}
        for table, column, kind in self.run(
            "select table_name, column_name, column_type from information_schema.columns "
            f"where table_schema = '{self.database}' order by table_name, ordinal_position"
        ):
            found.setdefault(table, {})[column] = kind
        return found

    def rows(self, table: str, natives: dict[str, str]) -> list[dict[str, str | None]]:
        """A table's rows as texts: each value crosses as hex digits, so that NULL and any character are told apart."""
        cells = []
        for column, native in natives.items():
            name = f"`{column}`"
            kind = native.partition("(")[0].split()[0]
            # A float's text has six digits; as a double it has them all.
            value = f"cast({name} as double)" if kind == "float" else name
            cells.append(f"hex({value})" if kind in _RAW else f"hex(cast({value} as char character set utf8mb4))")
        rows = self.run(f"select {', '.join(cells)} from `{table}`")
        return [
            {
                column: None if cell == "NULL" else cell if _is_raw(native) else bytes.fromhex(cell).decode()
                for (column, native), cell in zip(natives.items(), row, strict=True)
            }
            for row in rows
        ]

    def connector(self, number: int) -> dict[str, str]:
        """What Debezium's connector needs to read this server; each of several has a number of its own."""
        return {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.port),
            "database.user": "cdc",
            "database.password": "cdc",
            "database.server.id": str(85_000 + number),
            "database.include.list": self.database,
            "database.ssl.mode": "disable",
            "snapshot.locking.mode": "none",
            "include.schema.changes": "true",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": "history.dat",
            "schema.history.internal.store.only.captured.tables.ddl": "true",
        }


def _is_raw(native: str) -> bool:
    return native.partition("(")[0].split()[0] in _RAW
