"""MariaDB to Kafka beside Debezium Server, as `beside_debezium` says.

python bench/mysql.py [--runs 3] [--changes 300000] [--rows 1000000] [--only debezium] [--memory 10]
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from zlib import crc32

from beside_debezium import TABLES, Database, main

from headrace_emulators.mysql.server import PASSWORD, USER, MySqlServer

SCHEMA = """
create table wide (
    id bigint primary key, customer int not null, name varchar(100), city varchar(50), price decimal(12,2),
    weight double, ordered_at datetime(3), paid boolean, due date, quantity smallint);
insert into wide (id, customer) values (-1, 0);
create table empty (id int primary key);
insert into empty values (1);
"""
ROWS = """
insert into wide
select seq, seq % 50000, concat('customer ', seq % 50000), if(seq % 3 = 0, 'Gräz', 'Vienna'),
    (seq % 10000000) + (seq % 100) / 100.0, seq / 7e0, timestamp '2024-01-01 00:00:00' + interval seq second,
    seq % 2 = 1, date '2024-01-01' + interval (seq % 3000) day, seq % 100
from seq_{first}_to_{last}
"""
SMALL = """
create table small_{n} (
    id bigint primary key, customer int not null, amount decimal(12,2), state varchar(20), changed_at timestamp(6));
insert into small_{n} select -seq, -seq, -seq, 'new', now(6) from seq_1_to_20000;
"""
# Each transaction inserts into one table, updates a row of the next and of the one behind that. A row that is set to
# what it holds is not in the log, so no two updates set the same.
TRANSACTIONS = """
create procedure transactions(first bigint, last bigint)
begin
    declare i bigint default first;
    while i <= last do
        start transaction;
        execute immediate concat('insert into small_', i % 10, ' values (?, ?, ?, ''new'', now(6))')
            using i, i % 50000, (i % 1000) + 0.25;
        execute immediate concat('update small_', (i + 1) % 10, ' set state = ''paid'', amount = ? where id = ?')
            using i + 0.5, -1 - i % 20000;
        execute immediate
            concat('update small_', (i + 2) % 10, ' set state = ''sent'', changed_at = now(6) where id = ?')
            using -1 - i % 20000;
        commit;
        set i = i + 1;
    end while;
end
"""
SETTINGS = {
    # A tool that is held takes nothing.
    "net_write_timeout": "3600",
    "innodb_buffer_pool_size": "512M",
    "innodb_log_file_size": "1G",
    "max_binlog_size": "1G",
}


class MariaDb(Database):
    """A real MariaDB."""

    @contextlib.contextmanager
    def started(self, folder: Path) -> Iterator[None]:
        with MySqlServer(folder, **SETTINGS) as self.server:
            self.run(SCHEMA + "".join(SMALL.format(n=n) for n in range(TABLES)))
            self.run(TRANSACTIONS)
            yield

    def run(self, sql: str) -> list[list[str]]:
        return self.server.run(sql)

    def count(self, table: str) -> int:
        return int(self.run(f"select count(*) from {table}")[0][0])

    def transact(self, first: int, last: int) -> None:
        self.run(f"call transactions({first}, {last})")

    def fill(self, first: int, last: int) -> None:
        self.run(ROWS.format(first=first, last=last))

    def clear(self) -> None:
        self.run("truncate wide; insert into wide (id, customer) values (-1, 0)")

    def debezium(self, name: str, tables: Sequence[str]) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": USER,
            "database.password": PASSWORD,
            "database.server.id": str(10_000 + crc32(name.encode()) % 10_000),
            "table.include.list": ",".join(f"{self.server.database}.{table}" for table in tables),
            "include.schema.changes": "false",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": "history.dat",
            # It takes being held for a connection that is lost.
            "connect.keep.alive": "false",
        }

    def headrace(self, name: str, tables: Sequence[str]) -> dict[str, object]:
        return {
            "type": "mysql",
            "hostname": "127.0.0.1",
            "port": self.server.port,
            "user": USER,
            "password": PASSWORD,
            "tables": [f"{self.server.database}.{table}" for table in tables],
        }

    def url(self) -> tuple[str, str]:
        database = self.server.database
        return f"mysql+pymysql://{USER}:{PASSWORD}@127.0.0.1:{self.server.port}/{database}", database

    def forget(self, name: str) -> None:
        """The log goes on, whoever reads it."""


if __name__ == "__main__":
    main(MariaDb())
