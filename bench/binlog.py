"""MySQL's and MariaDB's log alone: change rows per CPU second of one process, read from a real server.

What is counted is the reader's own user and system time: the dump's bytes from the socket, change rows out. No Spark,
no sink. `scan` is the driver's scan of the same window, which decodes no row.

    python bench/binlog.py [--kind mysql] [--rows 300000] [--transactions 50000]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from headrace.sources.mysql.binlog_position import BinlogPosition, file_of
from headrace.sources.mysql.catalog import Catalog
from headrace.sources.mysql.connection import connect
from headrace.sources.mysql.log_read import log_from
from headrace.sources.mysql.log_scan import LogScan
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.slices import read_window
from headrace.sources.mysql.window import Window
from headrace_emulators.mysql.server import MARIADB, MYSQL, MySqlServer

COLUMNS = """id bigint primary key, customer int, quantity int unsigned, name varchar(100), city varchar(50),
    price decimal(12,2), ordered_at datetime(6), seen_at timestamp, weight double, paid tinyint"""
VALUES = """{0}, {0} % 50000, abs({0} % 100), concat('customer ', {0}), 'Vienna', {0} / 100, '2024-01-01 10:11:12.5',
    '2024-01-01 10:11:12', {0} / 7, 1"""
COPY = """insert into t select id + 1000000000, customer, quantity, name, city, price, ordered_at, seen_at, weight, paid
    from t"""
PROCEDURES = (
    f"""create procedure large(last int) begin declare n int default 0;
    start transaction; while n < last do set n = n + 1; insert into t values ({VALUES.format("n")}); end while;
    commit; end""",
    f"""create procedure small(last int) begin declare n int default 0;
    while n < last do set n = n + 1; insert into t values ({VALUES.format("-n")}); end while; end""",
)


def measured(kind: str, large: int, small: int) -> None:
    """Print what was measured on a server of a kind."""
    with tempfile.TemporaryDirectory(prefix="hr-") as folder, MySqlServer(Path(folder), kind) as server:
        database = server.new_database()
        database.run(f"create table t ({COLUMNS})")
        for procedure in PROCEDURES:
            database.execute(procedure)
        settings = MysqlSettings.parse({**database.options, "tables": f"{database.name}.t"}, owner="bench")
        with connect(settings) as session:
            tables = Catalog(session, settings).captured(strict=True)
        names = [(database.name, "t")]
        for what, statement, count in (
            ("one-row statements in one transaction", f"call large({large})", large),
            ("one statement", COPY, large),
            ("one-row transactions", f"call small({small})", small),
        ):
            base, start = _end(server)
            database.execute(statement)
            end = _end(server)[1]
            window = Window(start, end, base, kind, tables)
            _said(f"{kind}, {what}: rows", count, lambda w=window: _rows(w, settings))
            _said(f"{kind}, {what}: scan", count, lambda w=window: _scan(w, names, settings))


def _rows(window: Window, settings: MysqlSettings) -> int:
    return sum(batch.num_rows for batch in read_window(window, settings, None))


def _scan(window: Window, names: list[tuple[str, str]], settings: MysqlSettings) -> int:
    scan = LogScan(window.start, window.end, names, commits=0, cut_bytes=1 << 26)
    for block in log_from(settings, window.log, window.start):
        scan.take(block)
    scan.finish()
    return len(scan.scan.gtids)


def _end(server: MySqlServer) -> tuple[str, BinlogPosition]:
    file, position = server.log_end
    base, number = file_of(file)
    return base, BinlogPosition(0, number, position)


def _said(what: str, count: int, run: Callable[[], int]) -> None:
    run()
    best = float("inf")
    for _ in range(3):
        begun = time.process_time()
        run()
        best = min(best, time.process_time() - begun)
    print(f"{what:60} {count / best:12,.0f} rows per CPU second", flush=True)


def main() -> None:
    """Measure as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=[MARIADB, MYSQL], action="append")
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--transactions", type=int, default=50_000)
    given = parser.parse_args()
    for kind in given.kind or [MARIADB]:
        measured(kind, given.rows, given.transactions)


if __name__ == "__main__":
    main()
