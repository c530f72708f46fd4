"""PostgreSQL, MySQL and MariaDB that run already, where the environment names them: tests that leave a server running
take such a one in place of one that they start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from headrace_emulators.mysql.server import MySqlServer
from headrace_emulators.postgresql.server import PostgresServer

URLS = {kind: f"HEADRACE_{kind.upper()}_URL" for kind in ("postgresql", "mysql", "mariadb")}
"""The variable that names a server of a kind."""


@dataclass(frozen=True)
class Address:
    """Where a server is, and the login of a superuser."""

    host: str
    port: int
    user: str
    password: str

    @classmethod
    def of(cls, kind: str, environment: Mapping[str, str] = os.environ) -> Address | None:
        """What the environment names; null where it names none.

        Raises:
            ValueError: it names something else.
        """
        text = environment.get(URLS[kind], "").strip()
        if not text:
            return None
        url = urlsplit(text)
        if url.scheme != kind or not url.hostname or not url.port or url.path.strip("/"):
            raise ValueError(f"{URLS[kind]} has the form {kind}://user:password@host:port")
        return cls(url.hostname, url.port, unquote(url.username or ""), unquote(url.password or ""))

    @property
    def login(self) -> dict[str, str]:
        """The source's options for it."""
        given = {"user": self.user, "password": self.password}
        return {name: value for name, value in given.items() if value}


class _Named:
    """Where a server is that somebody else started. It is neither stopped nor crashed."""

    _address: Address

    @property
    def host(self) -> str:
        return self._address.host

    @property
    def port(self) -> int:
        return self._address.port

    @property
    def login(self) -> dict[str, str]:
        return self._address.login


class NamedPostgres(_Named, PostgresServer):
    """A PostgreSQL that runs, with `wal_level` logical."""

    def __init__(self, address: Address) -> None:
        self._address = address


class NamedMySql(_Named, MySqlServer):
    """A MySQL or MariaDB that runs, with its log as the source needs it."""

    def __init__(self, kind: str, address: Address) -> None:
        self._address = address
        self.name = kind

    @property
    def version(self) -> str:
        return self.run("SELECT version()", database=None)[0][0]
