"""PostgreSQL to Kafka beside Debezium Server, as `beside_debezium` says.

python bench/postgresql.py [--runs 3] [--changes 300000] [--rows 1000000] [--only debezium] [--memory 10]
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from beside_debezium import TABLES, Database, main

from headrace_emulators.postgresql.server import PostgresServer

SCHEMA = """
create table wide (
    id bigint primary key, customer int not null, name varchar(100), city varchar(50), price numeric(12,2),
    weight double precision, ordered_at timestamp(3), paid boolean, due date, quantity smallint);
insert into wide (id, customer) values (-1, 0);
create table empty (id int primary key);
insert into empty values (1);
"""
ROWS = """
select n, n % 50000, 'customer ' || n % 50000, case when n % 3 = 0 then 'Gräz' else 'Vienna' end,
    (n % 10000000) + (n % 100) / 100.0, n / 7.0, timestamp '2024-01-01' + n * interval '1 second', n % 2 = 1,
    date '2024-01-01' + (n % 3000)::int, n % 100
from generate_series({first}::bigint, {last}::bigint) as n
"""
SMALL = """
create table small_{n} (
    id bigint primary key, customer int not null, amount numeric(12,2), state varchar(20), changed_at timestamptz);
insert into small_{n} select i, i, i, 'new', now() from generate_series(-20000, -1) as i;
"""
# Each transaction inserts into one table, updates a row of the next and of the one behind that.
TRANSACTIONS = """
create procedure transactions(first bigint, last bigint) language plpgsql as $$
begin
    for i in first..last loop
        execute format('insert into small_%s values ($1, $2, $3, ''new'', clock_timestamp())', i % 10)
            using i, i % 50000, (i % 1000) + 0.25;
        execute format('update small_%s set state = ''paid'', amount = $2 where id = $1', (i + 1) % 10)
            using -1 - i % 20000, (i % 1000) + 0.5;
        execute format('update small_%s set state = ''sent'', changed_at = clock_timestamp() where id = $1',
            (i + 2) % 10) using -1 - i % 20000;
        commit;
    end loop;
end $$;
"""
SETTINGS = {
    # A tool that is held gives no sign of life.
    "wal_sender_timeout": "0",
    "max_wal_size": "16GB",
    "shared_buffers": "256MB",
    "logical_decoding_work_mem": "64MB",
}


class Postgres(Database):
    """A real PostgreSQL."""

    @contextlib.contextmanager
    def started(self, folder: Path) -> Iterator[None]:
        with PostgresServer(folder, **SETTINGS) as self.server:
            self.run(SCHEMA + "".join(SMALL.format(n=n) for n in range(TABLES)) + TRANSACTIONS)
            yield

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        return self.server.run(sql)

    def count(self, table: str) -> int:
        return int(self.run(f"select count(*) from {table}")[0][0])

    def transact(self, first: int, last: int) -> None:
        self.run(f"call transactions({first}, {last})")

    def fill(self, first: int, last: int) -> None:
        self.run("insert into wide" + ROWS.format(first=first, last=last))
        self.run("analyze wide")

    def clear(self) -> None:
        self.run("truncate wide; insert into wide (id, customer) values (-1, 0)")

    def debezium(self, name: str, tables: Sequence[str]) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": "cdc",
            "database.password": "cdc",
            "database.dbname": self.server.database,
            "table.include.list": ",".join(f"public.{table}" for table in tables),
            "plugin.name": "pgoutput",
            "slot.name": name,
            "publication.name": name,
            "publication.autocreate.mode": "filtered",
        }

    def headrace(self, name: str, tables: Sequence[str]) -> dict[str, object]:
        return {
            "type": "postgresql",
            "hostname": "127.0.0.1",
            "port": self.server.port,
            "database": self.server.database,
            "user": "cdc",
            "slot": name,
            "tables": [f"public.{table}" for table in tables],
        }

    def url(self) -> tuple[str, str]:
        return f"postgresql://cdc:cdc@127.0.0.1:{self.server.port}/{self.server.database}", "public"

    def forget(self, name: str) -> None:
        # A slot would keep the log, and slots are few.
        self.run(f"select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '{name}'")


if __name__ == "__main__":
    main(Postgres())
