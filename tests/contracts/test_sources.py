"""Each of our sources keeps the contract of any source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.captured_postgres import CapturedPostgres
from tests.support.captured_shop import Db2Database, OracleDatabase, SqlServerDatabase
from tests.support.postgresql import PostgresDatabase

from headrace.sources.base import Source
from headrace.sources.reader import source_named
from headrace.testing import CapturedDatabase, SourceContract


class OurSource(SourceContract):
    database: CapturedDatabase

    def captured(self, folder: Path) -> CapturedDatabase:
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def a_captured_table(self, tmp_path: Path) -> Iterator[None]:
        yield from self.one_table(tmp_path)

    def one_table(self, folder: Path) -> Iterator[None]:
        self.database = self.captured(folder / "server")
        self.numbers = iter(range(100))
        self.database.create("t", "id int not null primary key, v varchar(20)")
        yield
        self.database.close()

    def source(self, folder: Path) -> Source:
        return source_named(self.database.source, {**self.database.options, "tables": self.database.named("t")})

    def commit(self, folder: Path, *values: str) -> None:
        with self.database.transaction() as cursor:
            for value in values:
                sql = f"INSERT INTO {self.database.schema}.t VALUES (?, ?)"
                cursor.execute(sql, (next(self.numbers), value))
        self.database.capture()

    def lose(self, folder: Path) -> None:
        self.database.clean()


class TestSqlServerSource(OurSource):
    def captured(self, folder: Path) -> CapturedDatabase:
        return SqlServerDatabase(folder)


class TestDb2Source(OurSource):
    def captured(self, folder: Path) -> CapturedDatabase:
        return Db2Database(folder)


class TestOracleSource(OurSource):
    def captured(self, folder: Path) -> CapturedDatabase:
        return OracleDatabase(folder)


class TestPostgresSource(OurSource):
    # Which transactions run, every quarter of a minute.
    own_records = 1

    @pytest.fixture(autouse=True)
    def a_captured_table(self, tmp_path: Path, new_postgres_database: Callable[[], PostgresDatabase]) -> Iterator[None]:
        self.new_database = new_postgres_database
        yield from self.one_table(tmp_path)

    def captured(self, folder: Path) -> CapturedDatabase:
        return CapturedPostgres(self.new_database(), identity="DEFAULT")
