"""Database servers for the tests, on the loopback with a data folder of their own; the machine may lack them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from headrace.sinks.jdbc.database import Database
from headrace.sinks.jdbc.dialect import TableName
from headrace.sinks.jdbc.sink import JdbcSink
from headrace_emulators.mysql import server as mariadb
from headrace_emulators.postgresql import server as postgresql

_SERVERS: dict[str, Any] = {"postgresql": postgresql.PostgresServer, "mariadb": mariadb.MySqlServer}
_MISSING = {"postgresql": postgresql.missing, "mariadb": mariadb.missing}
"""What the machine lacks to run each server."""
_numbers = count(1)


def _marks(kind: str) -> list[pytest.MarkDecorator]:
    found = [pytest.mark.skipif(bool(lacking := _MISSING[kind]()), reason=f"no {kind} here: {lacking}")]
    # Both keep the same contract; one of them is enough for every edit.
    return found if kind == "postgresql" else [*found, pytest.mark.real]


KINDS = [pytest.param(kind, marks=_marks(kind)) for kind in _SERVERS]
"""Each kind of database; one whose server the machine lacks is a gap that the test run's summary declares."""


@dataclass
class Running:
    """A server, and a database in it that no other test uses."""

    kind: str
    server: Any
    database: str

    @property
    def url(self) -> str:
        return f"jdbc:{self.kind}://127.0.0.1:{self.server.port}/{self.database}"

    def sink(self, **options: Any) -> JdbcSink:
        given = {"url": self.url, "user": "cdc", "password": "cdc", "table_name": "{table}", **options}
        return JdbcSink.of(given)

    @property
    def at(self) -> Database:
        return self.sink().database

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        database = self.at
        with closing(database.connect()) as connection:
            return database.ask(connection, query)

    def run(self, *statements: str) -> None:
        database = self.at
        with closing(database.connect()) as connection:
            database.run(connection, statements)
            connection.commit()

    def quoted(self, name: str) -> str:
        return self.at.dialect.quote(name)

    def columns(self, table: str) -> dict[str, str]:
        database = self.at
        with closing(database.connect()) as connection:
            name = database.default_schema(connection)
            return dict(database.target_schema(connection, TableName(name, table)).types)

    def content(self, table: str, position: str = "_headrace_position") -> list[tuple[Any, ...]]:
        # A driver would parse JSON, whose text is what is looked at.
        names = ", ".join(
            f"CAST({self.quoted(name)} AS text)" if kind == "json" else self.quoted(name)
            for name, kind in self.columns(table).items()
            if name != position
        )
        return sorted(self.ask(f"SELECT {names} FROM {self.quoted(table)}"), key=repr)


@contextmanager
def serving(kind: str) -> Iterator[Any]:
    # A short path, because a socket's is limited.
    with (
        tempfile.TemporaryDirectory(prefix="hr-", ignore_cleanup_errors=True) as folder,
        _SERVERS[kind](Path(folder)) as server,
    ):
        yield server


def fresh_database(kind: str, server: Any) -> Running:
    name = f"target_{next(_numbers)}"
    if kind == "postgresql":
        # With a collation that does not sort as bytes do, because positions must.
        server.run(
            f"create database {name} template template0 locale_provider icu icu_locale 'en-US'", database="postgres"
        )
    else:
        server.run(f"create database {name}", database=None)
    return Running(kind, server, name)
