"""Rule: whatever happens to sessions, the server and its log, a run goes on without a lost or doubled row, or it stops
with what to do about it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.captured_mysql import CapturedMysql
from tests.support.mysql import mysql_like, needs_mariadb, needs_mysql

from headrace.errors import CaptureError, ConnectError, DataLossError, PositionMismatch
from headrace.sources.base import Limit
from headrace.sources.health import CaptureState
from headrace.sources.mysql.binlog_position import boundary
from headrace.sources.mysql.source import MysqlSource
from headrace.testing.captured_database import Run, data, replay
from headrace.testing.sources import NOW
from headrace.testing.waiting import until
from headrace_emulators.mysql.server import MARIADB, MYSQL, USER, MySqlDatabase, MySqlServer, find_mariadb

T = "id int not null primary key, v varchar(20)"
_ASK = "SHOW PROCESSLIST"
WIDE = f"{T}, w text"
KINDS = [
    pytest.param(MARIADB, marks=needs_mariadb),
    pytest.param(MYSQL, marks=[needs_mysql, pytest.mark.system]),
]


@pytest.fixture
def database(binlog_database: MySqlDatabase) -> CapturedMysql:
    return CapturedMysql(binlog_database)


@pytest.fixture
def own(request: pytest.FixtureRequest) -> Iterator[CapturedMysql]:
    """A database of a server that the test may stop, or whose log it may begin anew."""
    with mysql_like(request.param) as server:
        yield CapturedMysql(server.new_database())


of_each_kind = pytest.mark.parametrize("own", KINDS, indirect=True)
ends_of_servers = pytest.mark.parametrize(
    ("own", "how"),
    [
        pytest.param(kind.values[0], how, marks=[*kind.marks, *marks], id=f"{kind.values[0]}-{how}")
        for kind, how, marks in (
            (KINDS[0], "stop", ()),
            (KINDS[0], "crash", ()),
            # It takes its time.
            (KINDS[1], "crash", [pytest.mark.system]),
            (KINDS[1], "stop", [pytest.mark.system]),
        )
    ],
    indirect=["own"],
)


def fill(database: CapturedMysql, rows: int, first: int = 1, wide: int = 0) -> None:
    """One transaction of one statement."""
    names, more = ("(id, v, w)", f", REPEAT('w', {wide})") if wide else ("(id, v)", "")
    depth = {MARIADB: "max_recursive_iterations", MYSQL: "cte_max_recursion_depth"}[database.source]
    numbers = f"WITH RECURSIVE n(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM n WHERE n < {first + rows - 1})"
    database.database.run(f"SET {depth} = 1000000; INSERT INTO t {names} {numbers} SELECT n, 'v'{more} FROM n")


def fill_wide(database: CapturedMysql, rows: int) -> None:
    """One transaction that no socket holds: a part of it waits at the server for its reader."""
    fill(database, rows, wide=800)


def sessions(database: CapturedMysql, *, dumps: bool = False) -> list[int]:
    """The numbers of the sessions of others on the server."""
    found = database.database.execute(_ASK)
    others = [
        (number, command) for number, user, _, _, command, _, _, what, *_ in found if user == USER and what != _ASK
    ]
    return [number for number, command in others if not dumps or command == "Binlog Dump"]


def kill(database: CapturedMysql, *, dumps: bool = False) -> int:
    """End the source's sessions, as an administrator does."""
    found = sessions(database, dumps=dumps)
    for number in found:
        database.database.execute(f"KILL {number}")
    return len(found)


def keys(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["id"]) for _, _, row in data(rows)]


def planned(run: Run) -> tuple[Any, Any, list[Any]]:
    """A batch of the stream: where it begins and ends, and its slices."""
    start = run.offset
    end = run.source.advance(start, Limit(), NOW)
    return start, end, run.source.plan(start, end)


# --- sessions ---


def test_a_dump_that_is_killed_in_a_transaction_fails_the_task_and_its_retry_gives_everything(
    database: CapturedMysql,
) -> None:
    database.create("t", WIDE)
    run = database.run()
    run.all()
    fill_wide(database, 30_000)
    start, end, [piece] = planned(run)
    reading = run.source.read(piece)
    next(reading)
    assert kill(database, dumps=True) == 1
    with pytest.raises(ConnectError) as caught:
        list(reading)
    assert caught.value.remedy
    assert keys(run.rows(start, end)) == list(range(1, 30_001))


def test_killed_sessions_of_the_planner_fail_one_plan_and_are_made_again(database: CapturedMysql) -> None:
    database.create("t", T)
    run = database.run()
    run.all()
    for n in range(3):
        assert kill(database)
        fill(database, 1, first=n)
        with pytest.raises(ConnectError):
            run.batch()
        assert keys(run.all()) == [n]


def test_lost_sessions_of_reader_and_planner_are_made_again_without_a_lost_or_doubled_row(
    database: CapturedMysql,
) -> None:
    database.create("t", WIDE)
    run = database.run(errors_max_retries=5, errors_retry_delay_initial_ms=10)
    run.all()
    fill_wide(database, 30_000)
    kill(database)
    _, _, [piece] = planned(run)
    reading = run.source.read(piece)
    batches = [next(reading)]
    assert kill(database, dumps=True)
    batches += reading
    assert keys([row for batch in batches for row in batch.to_pylist()]) == list(range(1, 30_001))


@pytest.mark.system
def test_sessions_live_longer_than_the_server_is_patient(database: CapturedMysql) -> None:
    database.create("t", WIDE)
    with database.database.server.changed(wait_timeout=1, net_write_timeout=1):
        run = database.run()
        run.all()
        fill_wide(database, 30_000)
        _, _, [piece] = planned(run)
        reading = run.source.read(piece)
        found = [next(reading)]
        # Spark takes the next rows when its sink has written these.
        threading.Event().wait(2.5)
        found += reading
        assert sum(batch.num_rows for batch in found) >= 30_000
        run.all()
        fill(database, 1, first=30_001)
        assert keys(run.all()) == [30_001]


# --- the server ---


@ends_of_servers
def test_a_server_that_starts_again_goes_on(own: CapturedMysql, how: str) -> None:
    own.create("t", T, [(0, "v")])
    run = own.run()
    rows = run.all()
    server = own.database.server
    for n in range(1, 4):
        fill(own, 1, first=n)
        with ExitStack() as open_ones:
            session = open_ones.enter_context(own.database.connect(autocommit=False))
            session.cursor().execute(f"INSERT INTO t SELECT {100 * n} + id, 'never' FROM t")
            getattr(server, how)()
            open_ones.pop_all()
        with pytest.raises(ConnectError):
            run.batch()
        server.start()
        rows += run.all()
    assert keys(rows) == [0, 1, 2, 3]


@ends_of_servers
def test_a_server_that_ends_while_it_is_read_fails_the_task_and_its_retry_gives_everything(
    own: CapturedMysql, how: str
) -> None:
    own.create("t", WIDE)
    run = own.run()
    run.all()
    fill_wide(own, 30_000)
    start, end, [piece] = planned(run)
    reading = run.source.read(piece)
    next(reading)
    server = own.database.server
    stopping = threading.Thread(target=getattr(server, how))
    stopping.start()
    try:
        found: int | None = 1 + sum(1 for _ in reading)
    except ConnectError:
        found = None
    stopping.join()
    server.start()
    assert keys(run.restarted().rows(start, end)) == list(range(1, 30_001))
    # A crash leaves no time to send the rest.
    assert found is None or how == "stop"


# --- the log ---


@pytest.mark.system
def test_windows_and_their_pieces_may_span_many_small_files(database: CapturedMysql) -> None:
    moments = random.Random(1)
    with database.database.server.changed(max_binlog_size=4096):
        database.create("t", T)
        run = database.run(min_log_per_reader=1, max_readers=3)
        run.all()
        begun, rows, count = boundary(run.offset.commit).file, [], 0
        while boundary(run.offset.commit).file < begun + 12:
            for size in moments.choices((1, 5, 400), (5, 5, 1), k=moments.randrange(1, 9)):
                fill(database, size, first=count)
                count += size
            if moments.random() < 0.2:
                database.execute("FLUSH BINARY LOGS")
            rows += run.batch(Limit(commits=moments.choice((0, 1, 3))))
        rows += run.all()
    assert keys(rows) == list(range(count))


def test_a_batch_of_several_files_is_cut_where_it_may_be_and_reads_the_same_again(database: CapturedMysql) -> None:
    database.create("t", T)
    run = database.run(min_log_per_reader=1)
    run.all()
    for n in range(4):
        fill(database, 100, first=100 * n)
        database.execute("FLUSH BINARY LOGS")
    start, end, pieces = planned(run)
    assert len(pieces) > 1
    rows = run.rows(start, end)
    assert keys(rows) == list(range(400))
    assert run.restarted().rows(start, end) == rows


@pytest.mark.parametrize("to", ["NONE", "CRC32"])
def test_files_with_and_without_checksums_are_read(database: CapturedMysql, to: str) -> None:
    other = {"NONE": "CRC32", "CRC32": "NONE"}[to]
    with database.database.server.changed(binlog_checksum=other):
        database.create("t", T)
        run = database.run()
        run.all()
        fill(database, 2, first=1)
        database.execute(f"SET GLOBAL binlog_checksum = {to}")
        fill(database, 2, first=3)
        assert keys(run.batch()) == [1, 2, 3, 4]
        fill(database, 1, first=5)
        assert keys(run.restarted().all()) == [5]


@needs_mariadb
def test_an_encrypted_log_is_read(tmp_path: Path) -> None:
    if find_mariadb().archive is not None:
        pytest.skip("the archive of MariaDB has no plugins")
    (tmp_path / "keys").write_text(f"1;{'a7' * 16}\n")
    encrypted = {
        "plugin_load_add": "file_key_management",
        "file_key_management_filename": str(tmp_path / "keys"),
        "encrypt_binlog": "ON",
    }
    with mysql_like(MARIADB, **encrypted) as server:
        database = CapturedMysql(server.new_database())
        database.create("t", T)
        run = database.run(min_log_per_reader=1)
        run.all()
        fill(database, 2)
        database.execute("FLUSH BINARY LOGS")
        fill(database, 2, first=3)
        assert keys(run.batch()) == [1, 2, 3, 4]
        assert b"test_" not in (server.data / server.log_end[0]).read_bytes()


def test_files_that_are_purged_between_plan_and_read_fail_the_task(database: CapturedMysql) -> None:
    database.create("t", T)
    run = database.run()
    run.all()
    fill(database, 3)
    _, _, [piece] = planned(run)
    database.clean()
    with pytest.raises(DataLossError, match=r"binary log .* does not have") as caught:
        list(run.source.read(piece))
    assert caught.value.remedy and "snapshot_mode" in caught.value.remedy


@pytest.mark.parametrize(
    ("options", "wanted"), [({"snapshot_mode": "when_needed"}, "rrr"), ({"fail_on_data_loss": "false"}, "")]
)
def test_a_run_goes_on_behind_files_that_were_purged_where_the_options_say_so(
    database: CapturedMysql, options: dict[str, str], wanted: str
) -> None:
    database.create("t", T)
    run = database.run(**options)
    run.all()
    fill(database, 3)
    database.clean()
    rows = run.all()
    assert [op for op, _, _ in data(rows)] == list(wanted)
    assert [row["op"] for row in rows if row["op"] == "gap"] == ["gap"]
    fill(database, 1, first=4)
    assert keys(run.all()) == [4]


def begin_anew(database: CapturedMysql) -> None:
    """The log begins with its first file, and the numbers of GTIDs with one."""
    database.execute("RESET MASTER" if database.source == MARIADB else "RESET BINARY LOGS AND GTIDS")


@of_each_kind
def test_a_log_that_was_begun_anew_and_has_grown_as_long_as_before_stops_plan_and_task(own: CapturedMysql) -> None:
    own.create("t", T)
    begin_anew(own)
    run = own.run()
    run.all()
    own.insert("t", 1, "old")
    _, _, [piece] = planned(run)
    # A file says in which second it was begun.
    threading.Event().wait(1.1)
    begin_anew(own)
    for n in range(2, 9):
        own.insert("t", n, "new")
    with pytest.raises(PositionMismatch) as caught:
        list(run.source.read(piece))
    assert "begun anew" in str(caught.value) and caught.value.remedy
    run.restarted(snapshot_mode="when_needed")
    with pytest.raises(PositionMismatch, match="begun anew") as caught:
        run.batch()
    # Status says what the run says.
    health = run.source.health(run.offset)
    assert health.state is CaptureState.NOT_CAPTURING
    assert (health.sentence, health.remedy) == (caught.value.message, caught.value.remedy)


def test_another_server_behind_the_name_stops_the_task(mariadb_server: MySqlServer, mysql_server: MySqlServer) -> None:
    database = CapturedMysql(mariadb_server.new_database())
    try:
        database.create("t", T, [(1, "one")])
        run = database.run()
        _, _, first = planned(run)
        run.all()
        fill(database, 1, first=2)
        _, _, second = planned(run)
    finally:
        database.database.drop()
    elsewhere = MysqlSource.of({**database.options, "port": str(mysql_server.port)})
    for piece in (first[0], second[0]):
        with pytest.raises(PositionMismatch, match="was planned with") as caught:
            list(elsewhere.read(piece))
        assert caught.value.remedy


# --- the snapshot ---


def moved_while_read(database: CapturedMysql, image: str) -> tuple[Run, list[dict[str, Any]]]:
    """A run that has read a part of a table, and then the keys of the rest were exchanged."""
    database.create("t", WIDE, [(n, f"v{n}", "w") for n in range(9)])
    run = database.run(snapshot_chunk_rows=3, snapshot_chunks_per_batch=1)
    rows = run.batch()
    database.database.run(
        f"SET SESSION binlog_row_image = {image}; UPDATE t SET id = 100 WHERE id = 8; "
        "INSERT INTO t VALUES (8, 'other', 'w'); UPDATE t SET v = 'later' WHERE id = 8"
    )
    return run, rows


def test_rows_that_get_new_keys_while_their_table_is_read_are_in_the_end_result(database: CapturedMysql) -> None:
    run, rows = moved_while_read(database, "FULL")
    held = replay(rows + run.all()).values()
    truth = database.database.execute("SELECT id, v FROM t")
    assert {(int(row["id"]), row["v"]) for row in held} == set(truth)


def test_a_new_key_without_all_values_stops_the_run_where_a_snapshot_may_have_read_the_row_later(
    database: CapturedMysql,
) -> None:
    run, _ = moved_while_read(database, "MINIMAL")
    with pytest.raises(CaptureError, match="got another key") as caught:
        run.all()
    assert "binlog_row_image" in caught.value.remedy
    run = database.run()
    run.all()
    run.all()
    database.database.run("SET SESSION binlog_row_image = MINIMAL; UPDATE t SET id = 200 WHERE id = 100")
    [row] = [row for row in run.restarted().all() if row["op"] == "u"]
    assert (dict(row["before"]), dict(row["after"])) == ({"id": "100"}, {"id": "200"})


# --- GTIDs ---


def test_gtids_with_holes_and_out_of_order_are_followed(mysql_database: MySqlDatabase) -> None:
    database = CapturedMysql(mysql_database)
    database.create("t", T)
    run = database.run()
    run.all()
    strange = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    for n, number in enumerate((7, 9, 3, 8, 1), 1):
        with mysql_database.connect() as session, session.cursor() as cursor:
            cursor.execute(f"SET gtid_next = '{strange}:{number}'")
            cursor.execute(f"INSERT INTO t VALUES ({n}, 'v')")
            cursor.execute("SET gtid_next = AUTOMATIC")
        assert keys(run.restarted().all()) == [n]


def test_groups_of_several_domains_are_followed(mariadb_database: MySqlDatabase) -> None:
    database = CapturedMysql(mariadb_database)
    database.create("t", T)
    run = database.run()
    run.all()
    for n, (domain, number) in enumerate(((7, 5), (3, 9), (7, 6), (3, 11)), 1):
        with mariadb_database.connect() as session, session.cursor() as cursor:
            cursor.execute(f"SET gtid_domain_id = {domain}, gtid_seq_no = {number}")
            cursor.execute(f"INSERT INTO t VALUES ({n}, 'v')")
        if n % 2:
            database.execute("FLUSH BINARY LOGS")
        assert keys(run.restarted().all()) == [n]


def test_no_reader_of_the_log_outlives_its_task(database: CapturedMysql) -> None:
    database.create("t", WIDE)
    run = database.run()
    run.all()
    fill_wide(database, 30_000)
    _, _, [piece] = planned(run)
    reading = run.source.read(piece)
    next(reading)
    assert sessions(database, dumps=True)
    reading.close()
    until(lambda: not sessions(database, dumps=True), "the reader is gone", 20)
