"""Rule: a run goes on at a replica that took over only when that has everything that was read, in the same order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from tests.support.captured_mysql import CapturedMysql
from tests.support.mysql import mysql_like, needs_mariadb, needs_mysql

from headrace.errors import DataLossError, PositionMismatch
from headrace.sources.base import Limit
from headrace.sources.mysql.binlog_position import BinlogPosition, boundary, file_of
from headrace.sources.mysql.connection import connect
from headrace.sources.mysql.failover import taken_over
from headrace.sources.mysql.guards import ServerState
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.stream_state import StreamState
from headrace.testing.captured_database import Run, data, replay
from headrace.testing.sources import NOW
from headrace_emulators.mysql.server import MARIADB, MYSQL, PASSWORD, USER, MySqlDatabase, MySqlServer

pytestmark = pytest.mark.system

T = "id int not null primary key, v varchar(20)"


class Pair:
    """A server and its replica, and a database of both."""

    def __init__(self, primary: MySqlServer, replica: MySqlServer) -> None:
        self.primary, self.replica = primary, replica
        self.is_mariadb = primary.name == MARIADB
        # What each did when it was set up is not replicated.
        self._ask("RESET MASTER" if self.is_mariadb else "RESET BINARY LOGS AND GTIDS")
        position = (
            f"{{0}}_HOST = '{primary.host}', {{0}}_PORT = {primary.port}, {{0}}_USER = '{USER}', "
            f"{{0}}_PASSWORD = '{PASSWORD}'"
        )
        if self.is_mariadb:
            [[last]] = primary.run("SELECT @@gtid_binlog_pos")
            self._ask(f"SET GLOBAL gtid_slave_pos = '{last}'")
            self._ask(f"CHANGE MASTER TO {position.format('MASTER')}, MASTER_USE_GTID = slave_pos")
        else:
            [[done]] = primary.run("SELECT @@gtid_executed")
            self._ask(f"SET GLOBAL gtid_purged = '{done}'")
            self._ask(
                f"CHANGE REPLICATION SOURCE TO {position.format('SOURCE')}, SOURCE_AUTO_POSITION = 1, "
                "GET_SOURCE_PUBLIC_KEY = 1"
            )
        self.follow()
        self.database = CapturedMysql(primary.new_database())
        self.database.create("t", T, [(1, "one")])
        self.followed()
        self.other = CapturedMysql(MySqlDatabase(replica, self.database.schema))

    def _ask(self, sql: str) -> list[list[str]]:
        return self.replica.run(sql, database=None)

    def follow(self) -> None:
        self._ask("START SLAVE" if self.is_mariadb else "START REPLICA")

    def cut_off(self) -> None:
        """The replica gets nothing more."""
        self._ask("STOP SLAVE" if self.is_mariadb else "STOP REPLICA")

    def followed(self) -> None:
        """The replica has everything."""
        last = self.primary.run("SELECT @@gtid_binlog_pos" if self.is_mariadb else "SELECT @@gtid_executed")[0][0]
        wait = "MASTER_GTID_WAIT('{}', 20)" if self.is_mariadb else "WAIT_FOR_EXECUTED_GTID_SET('{}', 20)"
        assert self._ask(f"SELECT {wait.format(last)}") == [["0"]]

    def took_over(self, run: Run) -> Run:
        """The same run on the replica."""
        self.cut_off()
        return run.restarted(port=self.replica.port)


@pytest.fixture(
    params=[
        pytest.param(MARIADB, marks=needs_mariadb),
        pytest.param(MYSQL, marks=[needs_mysql, pytest.mark.slow]),
    ]
)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    strict = {"gtid_strict_mode": "ON", "log_slave_updates": "ON"} if request.param == MARIADB else {}
    with mysql_like(request.param, **strict) as primary, mysql_like(request.param, server_id="2", **strict) as replica:
        yield Pair(primary, replica)
        # In order they would wait for one another.
        replica.crash()
        primary.crash()


def test_a_run_goes_on_where_it_was_in_the_log_of_a_replica(pair: Pair) -> None:
    run = pair.database.run()
    rows = run.all()
    pair.replica.run("FLUSH BINARY LOGS")
    for n in range(2, 5):
        pair.database.insert("t", n, "read")
        rows += run.all()
        pair.followed()
        pair.replica.run("FLUSH BINARY LOGS")
    pair.database.insert("t", 5, "not read")
    pair.followed()
    run = pair.took_over(run)
    pair.other.insert("t", 6, "new")
    rows += run.all()
    assert [int(row["id"]) for _, _, row in data(rows)] == [1, 2, 3, 4, 5, 6]
    assert boundary(run.offset.commit).epoch == 1
    # A run that should end asks for the log's end without knowing how many servers it followed.
    pair.other.insert("t", 7, "new")
    rows = run.restarted().batch(Limit(upto=run.source.head()))
    assert [int(row["id"]) for _, _, row in data(rows)] == [7]
    start = run.offset
    # MariaDB adds an event of its own some time after it began a file.
    after = run.source.head_after(start)
    assert after >= start.commit
    assert boundary(after).epoch == 1
    pair.other.insert("t", 8, "new")
    assert run.source.head_after(start) > start.commit > run.source.head()
    assert run.restarted().batch()
    assert run.restarted().rows(start, run.offset) == run.rows(start, run.offset)


def event_kinds(database: MySqlDatabase, begin: BinlogPosition, end: BinlogPosition) -> set[str]:
    """The kinds of the events between two places of a file, as the server names them."""
    if begin.position == end.position:
        return set()
    name = next(name for name, *_ in database.run("SHOW BINARY LOGS") if file_of(name)[1] == begin.file)
    rows = database.run(f"SHOW BINLOG EVENTS IN '{name}' FROM {begin.position} LIMIT 20")
    return {kind for _, position, kind, *_ in rows if int(position) < end.position}


def test_the_groups_of_an_offset_are_those_before_its_place(binlog_database: MySqlDatabase) -> None:
    """So a server that takes over from itself goes on at the same place, however much is written."""
    database = CapturedMysql(binlog_database)
    database.create("t", T)
    settings = MysqlSettings.parse(database.options, owner="test", ignore=lambda _: True)
    done = threading.Event()

    def write(first: int) -> None:
        with binlog_database.connect() as session, session.cursor() as cursor:
            for n in count(first):
                cursor.execute(f"INSERT INTO t VALUES ({n}, 'v')")
                if done.is_set():
                    return

    writers = [threading.Thread(target=write, args=(10**6 * n,)) for n in range(3)]
    strict = {"gtid_strict_mode": 1} if database.source == MARIADB else {}
    with database.database.server.changed(**strict), connect(settings) as session:
        for writer in writers:
            writer.start()
        try:
            for _ in range(3):
                database.execute("FLUSH BINARY LOGS")
                run = database.run()
                for _ in range(2):
                    run.batch()
                    position, _ = taken_over(session, settings, ServerState.of(session), StreamState.of(run.offset))
                    end = boundary(run.offset.commit)
                    assert position.file == end.file and position.position <= end.position
                    kinds = event_kinds(database.database, position, end)
                    assert kinds <= {"Format_desc", "Previous_gtids", "Gtid_list", "Binlog_checkpoint"}
        finally:
            done.set()
            for writer in writers:
                writer.join()


def test_a_batch_that_ends_with_the_failover_has_no_changes_and_can_be_read_again(pair: Pair) -> None:
    run = pair.database.run()
    run.all()
    pair.database.insert("t", 2, "not read")
    pair.followed()
    run = pair.took_over(run)
    start = run.offset
    end = run.source.advance(start, Limit(), NOW)
    assert run.rows(start, end) == run.restarted().rows(start, end) == []
    run.offset = end
    assert [int(row["id"]) for _, _, row in data(run.all())] == [2]


def test_tables_that_were_read_when_a_replica_took_over_are_in_the_end_result(pair: Pair) -> None:
    pair.database.create("heap", "id int, v varchar(20)", [(n, "v") for n in range(7)])
    pair.database.create("u", T, [(n, "v") for n in range(9)])
    run = pair.database.run(snapshot_chunk_rows=3, snapshot_chunks_per_batch=1)
    rows = run.batch()
    pair.database.execute("DELETE FROM heap WHERE id = 3")
    pair.database.execute("UPDATE u SET id = 100 WHERE id = 1")
    pair.followed()
    run = pair.took_over(run)
    pair.other.execute("DELETE FROM heap WHERE id = 4")
    pair.other.execute("UPDATE u SET v = 'w' WHERE id = 100")
    rows += run.all()
    held = [(key[0], int(row["id"]), row["v"]) for key, row in replay(rows).items() if key[0] != "heap"]
    assert sorted(held) == sorted(
        (name, *row) for name in ("t", "u") for row in pair.other.database.execute(f"SELECT id, v FROM {name}")
    )
    heap = [row for row in rows if row["table"]["name"] == "heap" and row["op"] in "rcud"]
    begun = max(row["position"].partition("/")[0] for row in heap if row["op"] == "r")
    assert sorted(int(dict(row["after"])["id"]) for row in heap if row["position"].startswith(begun)) == [0, 1, 2, 5, 6]
    assert all(row["op"] == "r" for row in heap if row["position"] > begun)


def lags(pair: Pair, run: Run) -> None:
    pair.cut_off()
    pair.database.insert("t", 2, "gone")
    run.all()
    pair.other.insert("t", 3, "other")


def purges(pair: Pair, run: Run) -> None:
    pair.database.insert("t", 2, "not read")
    pair.followed()
    pair.other.clean()


def orders_otherwise(pair: Pair, run: Run) -> None:
    """Between groups that were read is one of its own."""
    pair.other.insert("t", 50, "own")
    pair.database.insert("t", 2, "read")
    run.all()
    pair.followed()


def forgets_strictness(pair: Pair, run: Run) -> None:
    pair.followed()
    pair.replica.run("SET GLOBAL gtid_strict_mode = OFF")


def test_what_was_prepared_before_a_failover_is_read_when_it_is_committed_behind_it(pair: Pair) -> None:
    run = pair.database.run()
    rows = run.all()
    pair.database.database.run("XA START 'x'; INSERT INTO t VALUES (2, 'v'); XA END 'x'; XA PREPARE 'x'")
    run.all()
    pair.database.insert("t", 3, "v")
    rows += run.all()
    pair.followed()
    pair.replica.run("FLUSH BINARY LOGS")
    run = pair.took_over(run)
    rows += run.all()
    pair.replica.run("XA COMMIT 'x'")
    rows += run.all()
    assert [int(row["id"]) for _, _, row in data(rows)] == [1, 3, 2]


@pytest.mark.parametrize(
    ("happens", "kind", "said"),
    [
        (lags, PositionMismatch, "does not have all transactions"),
        (purges, DataLossError, "not in its log any more"),
        (orders_otherwise, PositionMismatch, "after others that were not"),
        (forgets_strictness, PositionMismatch, "out of order"),
    ],
)
def test_a_replica_that_is_not_as_the_server_was_stops_the_run(
    pair: Pair, happens: Callable[[Pair, Run], None], kind: type[Exception], said: str
) -> None:
    if happens is orders_otherwise and pair.is_mariadb:
        pytest.skip("MariaDB orders all transactions of a domain, so none can come behind a later one")
    if happens is forgets_strictness and not pair.is_mariadb:
        pytest.skip("only MariaDB has gtid_strict_mode, which can be switched off")
    run = pair.database.run()
    run.all()
    happens(pair, run)
    run = pair.took_over(run)
    for _ in range(2):
        with pytest.raises(kind, match=said) as caught:
            run.batch()
        assert caught.value.remedy  # type: ignore[attr-defined]
