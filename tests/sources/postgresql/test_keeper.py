"""Rule: the keeper's snapshot shows each table as it was at one place of the log, until it is let go; what would change
that under it waits, and what did so before begins the snapshot again.
"""

from __future__ import annotations

import threading
from contextlib import closing

import pytest
from tests.support.postgresql_tables import (
    COMMIT,
    PARTITIONED,
    chunks_of,
    exported,
    images,
    keeping,
    read,
    settings_of,
    table_of,
)

from headrace.errors import CaptureError
from headrace.sources.offset import TableProgress
from headrace.sources.postgresql.keeper import Keeper, PointPassed
from headrace.sources.postgresql.snapshot_read import more_chunks, read_chunk
from headrace.sources.snapshots.chunks import Chunk
from headrace.testing.waiting import until


def test_chunks_without_a_key_hold_one_state_while_the_table_changes(postgres_database):
    postgres_database.execute(
        "CREATE TABLE t (n int, v text);"
        "INSERT INTO t SELECT g, repeat('x', 200) FROM generate_series(1, 2000) g; ANALYZE"
    )
    table, settings = table_of(postgres_database), settings_of(postgres_database, snapshot_chunk_rows=100)
    with keeping(postgres_database, table) as keeper:
        found, progress, chunks = [], TableProgress(commit=COMMIT), 0
        while not progress.done:
            progress = more_chunks(keeper.connection, table, progress.advanced(), settings, 3)
            lower = progress.lower
            for number, upper in enumerate(progress.bounds, progress.chunk):
                # Each update moves a row to another block, and inserts make the table longer.
                postgres_database.execute(
                    "UPDATE t SET v = v || 'y' WHERE n % 7 = 0; DELETE FROM t WHERE n % 11 = 0;"
                    "INSERT INTO t SELECT -1, repeat('z', 200) FROM generate_series(1, 300)"
                )
                postgres_database.execute("VACUUM t")
                chunk = Chunk(table.id.path, 0, number, lower, upper, COMMIT, None, None)
                found += read(table, [chunk], settings, keeper.snapshot)
                lower, chunks = upper, chunks + 1
    assert chunks > 10
    assert sorted(int(row["n"]) for row in found) == list(range(1, 2001))
    assert {row["v"] for row in found} == {"x" * 200}


def test_a_table_with_a_key_is_read_at_the_snapshots_place(postgres_database):
    postgres_database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT g, 0 FROM generate_series(1, 9) g"
    )
    table, settings = table_of(postgres_database), settings_of(postgres_database, snapshot_chunk_rows=2)
    with keeping(postgres_database, table) as keeper:
        postgres_database.execute("UPDATE t SET v = 1; DELETE FROM t WHERE id > 5; INSERT INTO t VALUES (0, 1)")
        found = read(table, chunks_of(keeper.connection, table, settings), settings, keeper.snapshot)
    assert found == [{"id": str(id), "v": "0"} for id in range(1, 10)]


def test_readers_go_on_when_the_keeper_ends_and_others_read_the_table_as_it_is(postgres_database):
    postgres_database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text);"
        "INSERT INTO t SELECT g, repeat('x', 2000) FROM generate_series(1, 5000) g"
    )
    table, settings = table_of(postgres_database), settings_of(postgres_database)
    chunk = Chunk(table.id.path, 0, 0, None, None, COMMIT, None, None)
    with keeping(postgres_database, table) as keeper:
        name = keeper.snapshot
        batches = read_chunk(table, chunk, settings, None, snapshot=name)
        begun = [next(batches), next(batches)]
    postgres_database.execute("DELETE FROM t WHERE id > 10")
    assert len(images([*begun, *batches])) == 5000
    assert len(read(table, [chunk], settings, name)) == 10


def test_a_table_without_a_key_is_not_read_when_its_snapshot_has_ended(postgres_database):
    postgres_database.execute("CREATE TABLE t (v int); INSERT INTO t VALUES (1)")
    table, settings = table_of(postgres_database), settings_of(postgres_database)
    chunk = Chunk(table.id.path, 0, 0, None, None, COMMIT, None, "last")
    with keeping(postgres_database, table) as keeper:
        name = keeper.snapshot
    held = (
        "SELECT 1 FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND datname = current_database() "
        "AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    until(lambda: not postgres_database.execute(held), "the server has ended the session")
    for snapshot in (name, None):
        with pytest.raises(CaptureError, match=r"snapshot of table 'public.t' has ended, and the table has no key"):
            read(table, [chunk], settings, snapshot)


def test_the_keeper_serves_tables_with_a_key_for_its_time_and_others_until_they_are_read(postgres_database):
    postgres_database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (v int)")
    keyed, keyless = table_of(postgres_database), table_of(postgres_database, "u")
    with keeping(postgres_database, keyed, keyless, snapshot_max_hold_s=0) as keeper:
        assert not keeper.serves("public.t")
        assert keeper.serves("public.u")
    with keeping(postgres_database, keyed, snapshot_max_hold_s=0) as keeper:
        assert not keeper.serves("public.t")
        assert not postgres_database.execute(
            "SELECT 1 FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND datname = current_database() "
            "AND backend_type = 'client backend' "
            "AND pid <> pg_backend_pid()"
        )


def test_a_keeper_whose_session_was_ended_serves_nobody(postgres_database):
    postgres_database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (v int)")
    keyed, keyless = table_of(postgres_database), table_of(postgres_database, "u")
    with keeping(postgres_database, keyed, keyless) as keeper:
        assert keeper.serves("public.t") and keeper.serves("public.u")
        pid = keeper.connection.value("SELECT pg_backend_pid()")
        postgres_database.execute(f"SELECT pg_terminate_backend({pid})")
        until(
            lambda: not postgres_database.execute(f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}"),
            "the session ended",
        )
        assert not keeper.serves("public.t")
        with pytest.raises(CaptureError, match="no key by which it could be read without it"):
            keeper.serves("public.u")


WAITING = {
    "TRUNCATE": "TRUNCATE t",
    "VACUUM FULL": "VACUUM FULL t",
    "a changed type": "ALTER TABLE t ALTER COLUMN v TYPE text USING 'changed'",
}


@pytest.mark.parametrize("statement", WAITING.values(), ids=WAITING)
def test_statements_that_rewrite_a_table_wait_for_the_keeper(postgres_database, statement):
    postgres_database.execute("CREATE TABLE t (v int); INSERT INTO t SELECT generate_series(1, 100)")
    table, settings = table_of(postgres_database), settings_of(postgres_database, snapshot_lock_timeout_ms=300)
    chunk = Chunk(table.id.path, 0, 0, None, None, COMMIT, None, None)
    other = threading.Thread(target=postgres_database.execute, args=(statement,))
    with keeping(postgres_database, table) as keeper:
        assert len(read(table, [chunk], settings, keeper.snapshot)) == 100
        other.start()
        until(lambda: waiting_for_locks(postgres_database), "the statement waits")
        # Behind it every reader waits, too; one that must not do so for ever says who it is.
        with pytest.raises(
            CaptureError,
            match=r"'public.t' could not be locked for reading within 0.3 s, because session \d+ .*waits to lock it",
        ):
            read(table, [chunk], settings, keeper.snapshot)
    other.join()


def waiting_for_locks(database):
    return database.execute(
        "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )


TOUCHED = {
    "truncated": "TRUNCATE t",
    "rewritten": "VACUUM FULL t",
    "another type": "ALTER TABLE t ALTER COLUMN v TYPE bigint",
    "made again": "DROP TABLE t; CREATE TABLE t (v int)",
    "gone": "DROP TABLE t",
    "renamed": "ALTER TABLE t RENAME TO other",
}


@pytest.mark.parametrize("statement", TOUCHED.values(), ids=TOUCHED)
def test_a_table_that_was_touched_before_its_lock_begins_a_snapshot_again(postgres_database, statement):
    postgres_database.execute("CREATE TABLE t (v int); INSERT INTO t VALUES (1)")
    table = table_of(postgres_database)
    with exported(postgres_database) as name:
        postgres_database.execute(statement)
        with pytest.raises(PointPassed):
            Keeper(settings_of(postgres_database), name, [table])


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE t1",
        "DROP TABLE t1",
        "ALTER TABLE t DETACH PARTITION t1",
        "CREATE TABLE t3 PARTITION OF t FOR VALUES FROM (10000) TO (20000)",
    ],
)
def test_so_does_one_whose_partitions_were_touched(postgres_database, statement):
    postgres_database.execute(PARTITIONED.format(key=""))
    table = table_of(postgres_database)
    with exported(postgres_database) as name:
        postgres_database.execute(statement)
        with pytest.raises(PointPassed):
            Keeper(settings_of(postgres_database), name, [table])


def test_rows_that_are_written_before_the_lock_do_no_harm(postgres_database):
    postgres_database.execute("CREATE TABLE t (v int); INSERT INTO t VALUES (1)")
    table, settings = table_of(postgres_database), settings_of(postgres_database)
    with exported(postgres_database) as name:
        postgres_database.execute("UPDATE t SET v = 2; INSERT INTO t VALUES (3)")
        postgres_database.execute("ANALYZE t; GRANT SELECT ON t TO PUBLIC")
        keeper = Keeper(settings, name, [table])
    with closing(keeper):
        assert read(table, chunks_of(keeper.connection, table, settings), settings, keeper.snapshot) == [{"v": "1"}]


def test_a_table_that_another_session_has_locked_is_named_with_that_session(postgres_database):
    postgres_database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    table = table_of(postgres_database)
    with exported(postgres_database) as name, postgres_database.connect(application_name="nightly") as other:
        other.execute("BEGIN; LOCK TABLE t")
        with pytest.raises(CaptureError) as refused:
            Keeper(settings_of(postgres_database, snapshot_lock_timeout_ms=200), name, [table])
        pid = other.info.backend_pid
        other.execute("ROLLBACK")
    assert str(refused.value) == (
        f"Table 'public.t' could not be locked for reading within 0.2 s, because session {pid} (nightly, user cdc) has "
        f"locked it for itself. Let it end, run SELECT pg_cancel_backend({pid}); or set 'snapshot_lock_timeout_ms' "
        "to more."
    )


def test_planning_in_the_kept_snapshot_holds_up_nobody_who_builds_an_index(postgres_database):
    postgres_database.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 100)")
    table, settings = table_of(postgres_database), settings_of(postgres_database, snapshot_chunk_rows=10)
    with keeping(postgres_database, table) as keeper:
        progress = more_chunks(keeper.connection, table, TableProgress(commit=COMMIT), settings, 4)
        with postgres_database.connect() as other:
            other.execute("SET lock_timeout = '5s'")
            other.execute("REINDEX TABLE t")
        assert len(more_chunks(keeper.connection, table, progress.advanced(), settings, 4).bounds) == 4


def test_a_refusal_while_planning_does_not_end_the_kept_snapshot(postgres_database):
    postgres_database.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    table, settings = table_of(postgres_database), settings_of(postgres_database)
    override = {"snapshot.select.statement.overrides.public.t": "SELECT no_such FROM public.t"}
    own = settings_of(postgres_database, **override)
    with keeping(postgres_database, table) as keeper:
        with pytest.raises(CaptureError, match="no_such"):
            more_chunks(keeper.connection, table, TableProgress(commit=COMMIT), own, 4)
        assert keeper.serves("public.t")
        assert more_chunks(keeper.connection, table, TableProgress(commit=COMMIT), settings, 4).bounds == (None,)
