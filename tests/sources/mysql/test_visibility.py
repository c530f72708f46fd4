"""A snapshot sees every transaction before its low mark, and none from its high mark on.

Four sessions insert their own numbers, one after the other, while snapshots are opened. Each insert's GTID is written
down, so it is known of each what the log had before a mark.
"""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.mysql import mysql_like, needs_mariadb, needs_mysql

from headrace.errors import CaptureError
from headrace.sources.mysql.binlog_position import BinlogPosition, file_name
from headrace.sources.mysql.connection import ServerKind
from headrace.sources.mysql.visibility import Snapshots, Visible
from headrace_emulators.mysql.server import MARIADB, MYSQL, MySqlDatabase, MySqlServer

_WRITERS = 4
_DURABLE = {
    "innodb_flush_log_at_trx_commit": "1",
    "sync_binlog": "1",
    "innodb_flush_method": "fsync",
}


class Session:
    """A session as the connections of the source give it."""

    def __init__(self, database: MySqlDatabase) -> None:
        self._connection = database.connect()

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def close(self) -> None:
        self._connection.close()


@dataclass
class Writers:
    """What each of them inserted: its numbers, and the number of the GTID of each."""

    written: list[dict[int, int]] = field(default_factory=lambda: [{} for _ in range(_WRITERS)])

    def last_before(self, gtid: int) -> list[int]:
        """The number that each had inserted with a GTID up to this one."""
        return [max((n for n, at in own.items() if at <= gtid), default=0) for own in self.written]


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers have their files where it takes a moment to write them: in memory nothing is written and not seen."""
    monkeypatch.setattr(tempfile, "tempdir", "/var/tmp")


@contextmanager
def writing(database: MySqlDatabase, kind: str) -> Iterator[Writers]:
    database.run("CREATE TABLE t (w INT, n INT, PRIMARY KEY (w, n))")
    found, stop = Writers(), threading.Event()

    def write(w: int) -> None:
        session, n = Session(database), 0
        while not stop.is_set():
            n += 1
            found.written[w][n] = _inserted(session, kind, w, n)
        session.close()

    threads = [threading.Thread(target=write, args=(w,)) for w in range(_WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _inserted(session: Session, kind: str, w: int, n: int) -> int:
    session.rows(f"INSERT INTO t VALUES ({w}, {n})")
    if kind == MARIADB:
        return int(session.rows("SELECT @@last_gtid")[0][0].split("-")[2])
    # What MySQL has where is read in its log afterwards.
    return 0


def seen_by(session: Session) -> list[int]:
    found = dict(session.rows("SELECT w, MAX(n) FROM t GROUP BY w"))
    session.rows("ROLLBACK")
    return [found.get(w, 0) for w in range(_WRITERS)]


def gtid_before(session: Session, position: BinlogPosition) -> int:
    """The number of the last transaction that begins before a place."""
    file = file_name("log", position.file)
    found = session.rows(f"SELECT BINLOG_GTID_POS('{file}', {position.position})")[0][0]
    return int(found.split("-")[2])


def lacking(seen: list[int], expected: list[int]) -> bool:
    return any(own < wanted for own, wanted in zip(seen, expected, strict=True))


@pytest.mark.system
@pytest.mark.usefixtures("on_disk")
@needs_mariadb
def test_a_snapshot_of_mariadb_sees_what_the_log_has_before_it_and_one_after_the_logs_status_does_not() -> None:
    with mysql_like(MARIADB, **_DURABLE) as server:
        database = server.new_database()
        snapshots, session = Snapshots(ServerKind(MARIADB, (10, 11), "")), Session(database)
        ours: list[tuple[Visible, list[int]]] = []
        others: list[tuple[BinlogPosition, list[int]]] = []
        with writing(database, MARIADB) as writers:
            for _ in range(200):
                visible = snapshots.opened(session, another=lambda: Session(database))
                ours.append((visible, seen_by(session)))
                position = snapshots.head(session)
                session.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
                others.append((position, seen_by(session)))
        assert all(visible.is_exact for visible, _ in ours)
        assert all(seen == writers.last_before(gtid_before(session, visible.low)) for visible, seen in ours)
        assert any(lacking(seen, writers.last_before(gtid_before(session, position))) for position, seen in others)
        session.close()


@pytest.mark.system
@pytest.mark.usefixtures("on_disk")
@needs_mysql
def test_a_snapshot_of_mysql_sees_what_the_log_has_before_its_low_mark() -> None:
    with mysql_like(MYSQL, **_DURABLE) as server:
        _require_marks_hold(server, exact=False)


@pytest.mark.system
@pytest.mark.usefixtures("on_disk")
@needs_mysql
def test_without_gtids_a_lock_of_a_moment_makes_the_mark_exact() -> None:
    with mysql_like(MYSQL, **_DURABLE, gtid_mode="OFF", enforce_gtid_consistency="OFF") as server:
        _require_marks_hold(server, exact=True)


def _require_marks_hold(server: MySqlServer, *, exact: bool) -> None:
    database = server.new_database()
    snapshots, session = Snapshots(ServerKind(MYSQL, (9, 7), "")), Session(database)
    table = f"`{database.name}`.`t`"
    found, others = [], []
    with writing(database, MYSQL):
        for _ in range(30):
            visible = snapshots.opened(session, tables=(table,), another=lambda: Session(database))
            found.append((visible, seen_by(session)))
            position = snapshots.head(session)
            session.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            others.append((position, seen_by(session)))
    inserts = _logged(server, session)
    for visible, seen in found:
        assert not lacking(seen, _logged_before(inserts, visible.low))
        assert not lacking(_logged_before(inserts, visible.high), seen)
        assert not exact or visible.is_exact
    assert any(lacking(seen, _logged_before(inserts, position)) for position, seen in others)
    session.close()


def _logged(server: MySqlServer, session: Session) -> list[tuple[BinlogPosition, int, int]]:
    """Where each insert ends in the log, and what it inserted: rows of two INTs behind the null bits."""
    found = []
    for file, size, *_ in session.rows("SHOW BINARY LOGS"):
        data = (server.data / file).read_bytes()
        at = 4
        while at < min(size, len(data)):
            length = int.from_bytes(data[at + 9 : at + 13], "little")
            if data[at + 4] == 30:
                row = data[at + length - 4 - 8 : at + length - 4]
                w, n = (int.from_bytes(row[i : i + 4], "little") for i in (0, 4))
            elif data[at + 4] == 16:
                number = int(re.sub(r".*\.", "", file))
                found.append((BinlogPosition(0, number, at + length), w, n))
            at += length
    return found


def _logged_before(inserts: list[tuple[BinlogPosition, int, int]], position: BinlogPosition) -> list[int]:
    last = [0] * _WRITERS
    for end, w, n in inserts:
        if end <= position:
            last[w] = n
    return last


@needs_mariadb
def test_a_snapshot_behind_the_end_of_the_log_is_waited_for_and_then_refused(mariadb_database: MySqlDatabase) -> None:
    session = Session(mariadb_database)
    snapshots = Snapshots(ServerKind(MARIADB, (10, 11), ""), wait_seconds=0.05)
    head = snapshots.head(session)
    with pytest.raises(CaptureError, match="can't be seen yet"):
        snapshots.opened(session, head.at(head.position + 1), another=lambda: Session(mariadb_database))
    session.close()


@needs_mysql
def test_a_lock_that_does_not_come_in_time_is_an_error(mysql_database: MySqlDatabase) -> None:
    mysql_database.run("CREATE TABLE held (id INT PRIMARY KEY) ENGINE=InnoDB")
    writer, session = mysql_database.connect(), Session(mysql_database)
    with writer.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO held VALUES (1)")
    snapshots = Snapshots(ServerKind(MYSQL, (9, 7), ""), wait_seconds=1)
    table = f"`{mysql_database.name}`.`held`"
    with pytest.raises(Exception, match="Lock wait timeout"):
        snapshots.exact(session, (table,), lambda: Session(mysql_database))
    writer.close()
    session.close()
