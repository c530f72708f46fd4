"""Rule: whatever happens to sessions, slots and the server, a run goes on without a lost or doubled row, or it stops
with what to do about it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from tests.support.captured_postgres import CapturedPostgres
from tests.support.postgresql import PostgresDatabase, PostgresServer, needs_postgres, postgres

from headrace.errors import CaptureError, ConnectError, DataLossError, HeadraceError
from headrace.sources.base import Limit
from headrace.testing.captured_database import data, replay
from headrace.testing.sources import NOW
from headrace.testing.waiting import until

T = "id int not null primary key, v varchar(20)"
ASKED = '{"data-collections": ["public.t"]}'


@pytest.fixture
def database(postgres_database: PostgresDatabase) -> CapturedPostgres:
    return CapturedPostgres(postgres_database)


@pytest.fixture
def own() -> Iterator[CapturedPostgres]:
    """A database of a server that the test may stop."""
    with postgres() as server:
        yield CapturedPostgres(server.new_database())


def fill(database: CapturedPostgres, table: str, rows: int, first: int = 1) -> None:
    """One transaction."""
    database.execute(f"INSERT INTO {table} SELECT n, 'v' FROM generate_series({first}, {first + rows - 1}) n")


WIDE = f"{T}, w text"


def fill_wide(database: CapturedPostgres, rows: int) -> None:
    """One transaction that no socket holds: a part of it waits at the server for its reader."""
    database.execute(f"INSERT INTO t SELECT n, 'v', repeat('w', 800) FROM generate_series(1, {rows}) n")


def sessions(database: CapturedPostgres, kind: str = "%") -> list[int]:
    """Process ids of the source's sessions."""
    found = database.database.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'headrace%%' "
        "AND backend_type LIKE %s",
        (kind,),
    )
    return [pid for (pid,) in found]


def kill(database: CapturedPostgres, kind: str = "%", *, wait: bool = True) -> int:
    """End the source's sessions, as an administrator does."""
    found = sessions(database, kind)
    for pid in found:
        database.database.execute("SELECT pg_terminate_backend(%s)", (pid,))
    if wait:
        until(lambda: not set(sessions(database, kind)) & set(found), "the sessions ended", 20)
    return len(found)


def slot(database: CapturedPostgres, column: str) -> Any:
    """What the server says of the permanent slot."""
    return database.database.execute(
        f"SELECT {column} FROM pg_replication_slots WHERE slot_name = %s", (database.slot,)
    )[0][0]


def keys(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["id"]) for _, _, row in data(rows)]


# --- sessions ---


def test_a_sender_that_is_killed_while_it_is_read_fails_the_task_and_its_retry_gives_everything(
    database: CapturedPostgres,
) -> None:
    database.create("t", WIDE)
    run = database.run()
    run.all()
    fill_wide(database, 30_000)
    start = run.offset
    end = run.source.advance(start, Limit(), NOW)
    [piece] = run.source.plan(start, end)
    reading = run.source.read(piece)
    next(reading)
    # One that waits for its reader ends when that reads.
    assert kill(database, "walsender", wait=False)
    with pytest.raises(ConnectError) as caught:
        list(reading)
    assert caught.value.remedy
    assert keys(run.rows(start, end)) == list(range(1, 30_001))


def test_killed_sessions_of_the_planner_fail_one_plan_and_are_made_again(database: CapturedPostgres) -> None:
    database.create("t", T)
    run = database.run()
    run.all()
    for n in range(3):
        kill(database)
        fill(database, "t", 1, first=n)
        with pytest.raises(ConnectError):
            run.batch()
        assert keys(run.all()) == [n]


def test_lost_sessions_of_reader_and_planner_are_made_again_without_a_lost_or_doubled_row(
    database: CapturedPostgres,
) -> None:
    database.create("t", WIDE)
    run = database.run(errors_max_retries=5, errors_retry_delay_initial_ms=10)
    run.all()
    fill_wide(database, 30_000)
    kill(database)
    start = run.offset
    end = run.source.advance(start, Limit(), NOW)
    [piece] = run.source.plan(start, end)
    reading = run.source.read(piece)
    batches = [next(reading)]
    assert kill(database, "walsender", wait=False)
    batches += reading
    assert keys([row for batch in batches for row in batch.to_pylist()]) == list(range(1, 30_001))


@pytest.mark.system
def test_a_reader_that_waits_for_its_consumer_longer_than_the_server_is_patient(database: CapturedPostgres) -> None:
    database.create("t", T)
    database.execute(f"ALTER DATABASE {database.database.name} SET wal_sender_timeout = '1s'")
    run = database.run()
    run.all()
    fill(database, "t", 120_000)
    start = run.offset
    end = run.source.advance(start, Limit(), NOW)
    [piece] = run.source.plan(start, end)
    reading = run.source.read(piece)
    found = [next(reading)]
    # Spark takes the next rows when its sink has written these.
    threading.Event().wait(2.5)
    found += list(reading)
    assert sum(batch.num_rows for batch in found) >= 120_000


def test_an_idle_run_lives_longer_than_the_server_waits_for_a_silent_session(database: CapturedPostgres) -> None:
    database.create("t", T)
    database.execute(f"ALTER DATABASE {database.database.name} SET wal_sender_timeout = '1s'")
    run = database.run()
    run.all()
    threading.Event().wait(1.5)
    assert run.batch() == []
    fill(database, "t", 1)
    assert keys(run.all()) == [1]


# --- the server ---


@pytest.mark.smoke("crash")
@needs_postgres
@pytest.mark.parametrize("how", ["stop", "crash"])
def test_a_server_that_starts_again_goes_on(own: CapturedPostgres, how: str) -> None:
    own.create("t", T, [(1, "one")])
    run = own.run()
    rows = run.all()
    run.source.acknowledge(run.offset)
    server = own.database.server
    for n in range(2, 5):
        fill(own, "t", 1, first=n)
        getattr(server, how)()
        with pytest.raises(ConnectError):
            run.batch()
        server.start()
        rows += run.all()
        run.source.acknowledge(run.offset)
    assert keys(rows) == [1, 2, 3, 4]


@pytest.mark.smoke("crash")
@needs_postgres
@pytest.mark.parametrize("how", ["stop", "crash"])
def test_a_server_that_ends_while_it_is_read_fails_the_task_and_its_retry_gives_everything(
    own: CapturedPostgres, how: str
) -> None:
    own.create("t", T)
    run = own.run()
    run.all()
    fill(own, "t", 120_000)
    start = run.offset
    end = run.source.advance(start, Limit(), NOW)
    [piece] = run.source.plan(start, end)
    reading = run.source.read(piece)
    next(reading)
    server = own.database.server
    stopping = threading.Thread(target=getattr(server, how))
    stopping.start()
    try:
        found: list[Any] | None = list(reading)
    except ConnectError:
        found = None
    stopping.join()
    server.start()
    again = run.restarted().rows(start, end)
    assert keys(again) == list(range(1, 120_001))
    assert found is None or sum(batch.num_rows for batch in found) > 0


@needs_postgres
def test_an_idle_stream_does_not_hold_up_a_fast_shutdown(own: CapturedPostgres) -> None:
    own.create("t", T, [(1, "one")])
    run = own.run()
    run.all()
    # Nothing is asked of the source while the server goes down, as in a batch that its sinks write for long.
    begun = time.monotonic()
    own.database.server.stop()
    assert time.monotonic() - begun < 5
    own.database.server.start()
    fill(own, "t", 1, first=2)
    assert keys(run.restarted().all()) == [2]


# --- the slot ---


def test_a_slot_that_was_dropped_stops_the_run_with_the_way_out(database: CapturedPostgres) -> None:
    database.create("t", T)
    run = database.run()
    run.all()
    fill(database, "t", 1)
    database.execute("SELECT pg_drop_replication_slot(?)", (database.slot,))
    with pytest.raises(DataLossError, match=database.slot) as caught:
        run.batch()
    assert caught.value.remedy
    # It is not made again by another start.
    with pytest.raises(DataLossError):
        run.restarted().batch()


def test_a_slot_that_somebody_moved_stops_the_run(database: CapturedPostgres) -> None:
    database.create("t", T)
    run = database.run()
    run.all()
    fill(database, "t", 1)
    database.execute("SELECT pg_replication_slot_advance(?, pg_current_wal_insert_lsn())", (database.slot,))
    with pytest.raises(DataLossError, match=database.slot):
        run.restarted().batch()


def lose(database: CapturedPostgres) -> None:
    """The server removes the log that the slot needs."""
    with database.database.server.changed(max_slot_wal_keep_size="1MB"), database.database.connect() as connection:

        def lost() -> bool:
            connection.execute("SELECT pg_switch_wal()")
            connection.execute("CREATE TABLE IF NOT EXISTS uncaptured (id int)")
            connection.execute("INSERT INTO uncaptured VALUES (1)")
            connection.execute("CHECKPOINT")
            return bool(slot(database, "wal_status") == "lost")

        until(lost, "the slot is lost")


@pytest.mark.parametrize("restarted", [False, True])
def test_a_slot_whose_log_the_server_removed_stops_the_run_and_is_not_tried_for_ever(
    database: CapturedPostgres, restarted: bool
) -> None:
    database.create("t", T)
    run = database.run()
    run.all()
    fill(database, "t", 1)
    lose(database)
    with pytest.raises(DataLossError, match="max_slot_wal_keep_size") as caught:
        (run.restarted() if restarted else run).batch()
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("options", "wanted"), [({"snapshot_mode": "when_needed"}, "r"), ({"fail_on_data_loss": "false"}, "")]
)
def test_a_run_goes_on_with_a_new_slot_where_the_options_say_so(
    database: CapturedPostgres, options: dict[str, str], wanted: str
) -> None:
    database.create("t", T)
    run = database.run(**options)
    run.all()
    fill(database, "t", 1)
    lose(database)
    rows = run.all()
    assert [op for op, _, _ in data(rows)] == list(wanted)
    assert [row["op"] for row in rows if row["op"] == "gap"] == ["gap"]
    fill(database, "t", 1, first=2)
    assert keys(run.all()) == [2]
    assert slot(database, "wal_status") == "reserved"


def test_log_that_goes_while_it_is_read_is_data_loss_and_no_lost_connection(database: CapturedPostgres) -> None:
    database.create("t", T)
    run = database.run()
    run.all()
    fill(database, "t", 120_000)
    start = run.offset
    end = run.source.advance(start, Limit(), NOW)
    [piece] = run.source.plan(start, end)
    lose(database)
    with pytest.raises(DataLossError):
        list(run.source.read(piece))


def test_without_a_free_slot_a_run_goes_on_or_says_what_to_change(
    database: CapturedPostgres, postgres_server: PostgresServer
) -> None:
    database.create("t", T)
    run = database.run()
    run.all()
    run = run.restarted()
    kill(database)
    taken = []
    try:
        with postgres_server.connect() as connection, pytest.raises(psycopg.Error, match="all replication slots"):
            while True:
                connection.execute("SELECT pg_create_physical_replication_slot(%s)", (f"taken_{len(taken)}",))
                taken.append(f"taken_{len(taken)}")
        fill(database, "t", 3)
        try:
            rows = run.all()
        except HeadraceError as caught:
            assert "max_replication_slots" in f"{caught} {caught.remedy}"
            rows = []
    finally:
        for name in taken:
            postgres_server.run(f"select pg_drop_replication_slot('{name}')")
    assert keys(rows + run.restarted().all()) == [1, 2, 3]


def test_a_slot_stands_still_until_a_batch_is_in_all_sinks(database: CapturedPostgres) -> None:
    database.create("t", T)
    run = database.run()
    run.all()
    run.source.acknowledge(run.offset)
    before = slot(database, "confirmed_flush_lsn")
    start = run.offset
    for n in range(3):
        fill(database, "t", 1, first=n)
        run.all()
    assert slot(database, "confirmed_flush_lsn") == before
    assert keys(run.restarted().rows(start, run.offset)) == [0, 1, 2]
    run.source.acknowledge(run.offset)
    assert slot(database, "confirmed_flush_lsn") > before


def test_only_one_permanent_slot_is_left_behind(database: CapturedPostgres) -> None:
    database.create("t", T, [(1, "one")])
    run = database.run()
    run.all()
    fill(database, "t", 1, first=2)
    run.all()
    kill(database)
    assert database.database.execute(
        "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    ) == [(database.slot,)]


# --- the publication ---


def test_a_publication_that_was_dropped_stops_the_run_with_the_way_out(database: CapturedPostgres) -> None:
    database.create("t", T)
    run = database.run()
    run.all()
    database.execute("DROP PUBLICATION shop")
    fill(database, "t", 1)
    with pytest.raises(CaptureError, match="shop") as caught:
        run.all()
    assert caught.value.remedy


# --- the snapshot ---


def test_a_table_can_not_be_emptied_or_rewritten_while_it_is_read(database: CapturedPostgres) -> None:
    database.create("t", T, [(n, "v") for n in range(9)])
    run = database.run(snapshot_chunk_rows=3, snapshot_chunks_per_batch=1)
    rows = run.batch()
    with database.database.connect(options="-c lock_timeout=100ms") as connection:
        for statement in ("TRUNCATE t", "VACUUM FULL t"):
            with pytest.raises(psycopg.errors.LockNotAvailable):
                connection.execute(statement)
        rows += run.all()
        connection.execute("VACUUM FULL t")
        connection.execute("TRUNCATE t")
    assert keys(rows) == list(range(9))
    assert [row["op"] for row in run.all() if row["op"] == "t"] == ["t"]


@pytest.mark.parametrize("statement", ["TRUNCATE t", "VACUUM FULL t", "UPDATE t SET id = id + 100, v = 'moved'"])
def test_what_happens_to_a_table_between_two_processes_that_read_it_is_in_the_end_result(
    database: CapturedPostgres, statement: str
) -> None:
    database.create("t", T, [(n, "v") for n in range(9)])
    run = database.run(snapshot_chunk_rows=3, snapshot_chunks_per_batch=1)
    rows = run.batch()
    kill(database)
    run = run.restarted()
    with database.database.connect() as connection:
        connection.execute(statement)
    rows += run.all()
    emptied = [row["position"] for row in rows if row["op"] == "t"]
    held = replay([row for row in rows if not emptied or row["position"] > emptied[-1]])
    truth = database.database.execute("SELECT id, v FROM t")
    assert {(int(row["id"]), row["v"]) for row in held.values()} == set(truth)


def test_a_transaction_that_holds_up_the_new_slot_is_named(database: CapturedPostgres) -> None:
    database.create("t", T, [(1, "one")])
    run = database.run(slot_creation_timeout_s=1)
    with database.database.connect(autocommit=False, application_name="nightly report") as connection:
        connection.execute("INSERT INTO t VALUES (2, 'two')")
        with pytest.raises(CaptureError, match="nightly report") as caught:
            run.batch()
        assert str(connection.info.backend_pid) in str(caught.value)
        assert caught.value.remedy
        slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
        until(lambda: database.database.execute(slots) == [(0,)], "no half-made slot is left")
    assert keys(run.restarted().all()) == [1, 2]


def test_a_chunk_is_not_older_than_what_the_stream_delivered(
    database: CapturedPostgres, postgres_server: PostgresServer
) -> None:
    """A commit that waits for a standby is in the log, and no other session sees it."""
    database.create("signals", "id varchar(42) not null primary key, type varchar(32), data varchar(2048)")
    database.create("t", T, [(n, "old") for n in range(5)])
    run = database.run(signal_data_collection="public.signals")
    rows = run.all()
    ask = database.database.execute
    with closing(database.database.connect()) as waiting:
        sending = waiting.pgconn
        with postgres_server.changed(synchronous_standby_names="nobody"):
            until(lambda: ask("SHOW synchronous_standby_names") == [("nobody",)], "the setting is read")
            # Commits wait once the checkpointer has read it too, which it does before each checkpoint.
            ask("CHECKPOINT")
            ask("CHECKPOINT")
            sending.send_query(b"UPDATE t SET v = 'new' WHERE id = 3")
            ask(f"SET synchronous_commit = local; INSERT INTO signals VALUES ('s', 'execute-snapshot', '{ASKED}')")
            until(
                lambda: (
                    ask("SELECT v FROM t WHERE id = 3") == [("old",)]
                    and ask("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == [(1,)]
                ),
                "the commit waits",
            )
            for _ in range(3):
                rows += run.batch()
            assert replay(rows)["t", '["3"]']["v"] == "new"
        until(lambda: not _busy(sending), "the commit is over")
    rows += run.all()
    assert sorted(int(dict(row["after"])["id"]) for row in rows if row["snapshot"] == "incremental") == list(range(5))
    assert replay(rows)["t", '["3"]']["v"] == "new"


def _busy(connection: Any) -> bool:
    connection.consume_input()
    return bool(connection.is_busy())


# --- retained log ---


@pytest.mark.parametrize("megabytes", [160, pytest.param(1_024, marks=pytest.mark.soak)])
def test_the_slot_follows_while_captured_tables_rest_and_another_database_writes(
    database: CapturedPostgres, new_postgres_database: Callable[[], PostgresDatabase], megabytes: int
) -> None:
    database.create("t", T, [(1, "one")])
    run = database.run()
    run.all()
    other = new_postgres_database()
    other.execute("CREATE TABLE noise (v text)")
    for _ in range(megabytes // 80):
        other.execute("INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 75000)")
        rows = run.all()
        assert data(rows) == []
        run.source.acknowledge(run.offset)
        assert slot(database, "pg_current_wal_lsn() - confirmed_flush_lsn") < 70_000_000
    fill(database, "t", 1, first=2)
    assert keys(run.all()) == [2]
