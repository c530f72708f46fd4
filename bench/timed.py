"""Databases for `bench/latency.py`: ten tables whose rows say when they were written, and what commits to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from beside_debezium import TABLES, Database
from mysql import MariaDb
from postgresql import Postgres


class Timed(ABC):
    """A database with ten tables whose rows say when they were written, and what commits to them."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @abstractmethod
    def prepare(self) -> None:
        """Make the tables `timed_0` to `timed_9` and what writes to them."""

    @abstractmethod
    def connect(self) -> Any:
        """A connection in which every statement is committed at once."""

    @property
    def tables(self) -> list[str]:
        """Their names."""
        return [f"timed_{number}" for number in range(TABLES)]


class TimedPostgres(Timed):
    """In PostgreSQL."""

    _TABLE = """
    create table timed_{n} (
        id bigint primary key, customer int not null, amount numeric(12,2), state varchar(20), made bigint);
    insert into timed_{n} select -i, i, i, 'new', 0 from generate_series(1, 20000) as i;
    """
    _NOW = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
    _COMMITS = """
    create procedure timed(first bigint, last bigint) language plpgsql as $$
    begin
        for i in first..last loop
            execute format('insert into timed_%s values ($1, $2, $3, ''new'', {now})', i % 10)
                using i, i % 50000, (i % 1000) + 0.25;
            execute format(
                'update timed_%s set state = ''paid'', amount = $2, made = {now} where id = $1', (i + 1) % 10)
                using -1 - i % 20000, (i % 1000) + 0.5;
            execute format('update timed_%s set state = ''sent'', made = {now} where id = $1', (i + 2) % 10)
                using -1 - i % 20000;
            commit;
        end loop;
    end $$;
    """

    def prepare(self) -> None:
        self.database.run("".join(self._TABLE.format(n=n) for n in range(TABLES)))
        self.database.run(self._COMMITS.format(now=self._NOW))

    def connect(self) -> Any:
        import psycopg

        server = self.database.server  # type: ignore[attr-defined]
        return psycopg.connect(
            host="127.0.0.1", port=server.port, user="cdc", dbname=server.database, autocommit=True
        ).cursor()


class TimedMariaDb(Timed):
    """In MariaDB."""

    _TABLE = """
    create table timed_{n} (
        id bigint primary key, customer int not null, amount decimal(12,2), state varchar(20), made bigint);
    insert into timed_{n} select -seq, seq, seq, 'new', 0 from seq_1_to_20000;
    """
    _COMMITS = """
    create procedure timed(first bigint, last bigint)
    begin
        declare i bigint default first;
        while i <= last do
            start transaction;
            execute immediate concat('insert into timed_', i % 10, ' values (?, ?, ?, ''new'', ?)')
                using i, i % 50000, (i % 1000) + 0.25, cast(unix_timestamp(sysdate(6)) * 1000000 as unsigned);
            execute immediate
                concat('update timed_', (i + 1) % 10, ' set state = ''paid'', amount = ?, made = ? where id = ?')
                using i % 1000000 + 0.5, cast(unix_timestamp(sysdate(6)) * 1000000 as unsigned), -1 - i % 20000;
            execute immediate concat('update timed_', (i + 2) % 10, ' set state = ''sent'', made = ? where id = ?')
                using cast(unix_timestamp(sysdate(6)) * 1000000 as unsigned), -1 - i % 20000;
            commit;
            set i = i + 1;
        end while;
    end
    """

    def prepare(self) -> None:
        self.database.run("".join(self._TABLE.format(n=n) for n in range(TABLES)))
        self.database.run(self._COMMITS)

    def connect(self) -> Any:
        import pymysql

        from headrace_emulators.mysql.server import PASSWORD, USER

        server = self.database.server  # type: ignore[attr-defined]
        return pymysql.connect(
            host="127.0.0.1", port=server.port, user=USER, password=PASSWORD, database=server.database, autocommit=True
        ).cursor()


SOURCES: dict[str, tuple[type[Database], type[Timed]]] = {
    "postgresql": (Postgres, TimedPostgres),
    "mariadb": (MariaDb, TimedMariaDb),
}
