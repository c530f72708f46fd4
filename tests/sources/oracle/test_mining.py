"""Rule: what is replayed has the same bytes; a range of the log is mined once, and what staging lost is mined again."""

from __future__ import annotations

import itertools
import shutil

import pytest
from tests.sources.oracle.runs import Run, add, data, image, row

from headrace.errors import DataLossError
from headrace_emulators.oracle import EmulatedOracle


def test_a_replay_has_the_same_bytes_also_in_a_new_process_and_with_staging_lost(database, session):
    run = Run(database)
    run.until_level()
    start = run.offset
    with database.connect() as other:
        add(other, 7)
        for id in (1, 2):
            add(session, id)
            session.commit()
        rows = run.batch(acknowledge=False)
        end = run.offset
        assert run.rows_of(start, end) == rows
        run.restarted()
        assert run.rows_of(start, end) == rows
        shutil.rmtree(run.options["staging_location"])
        assert run.restarted().rows_of(start, end) == rows
        shutil.rmtree(run.options["staging_location"])
        other.commit()
    assert data(run.until_level()) == [("c", "CUSTOMERS", row(7))]


def test_a_damaged_range_is_mined_again(database, session):
    run = Run(database)
    run.until_level()
    start = run.offset
    add(session, 1)
    session.commit()
    rows = run.batch(acknowledge=False)
    for file in (database.directory / "staging").glob("*.json"):
        file.write_bytes(b"damaged")
    assert run.restarted().rows_of(start, run.offset) == rows


def test_a_transaction_that_is_open_for_long_costs_no_mining_again(database, session, mined):
    run = Run(database)
    run.until_level()
    with database.connect() as long:
        add(long, 100)
        low = int(run.offset.log["mined"])
        mined()
        for id in range(1, 6):
            add(session, id)
            session.commit()
            assert data(run.until_level()) == [("c", "CUSTOMERS", row(id))]
        mined = mined()
        # Side by side and each once.
        assert mined[0][0] == low + 1
        assert all(after[0] == before[1] + 1 for before, after in itertools.pairwise(mined))
        # Only the range that has a row of it is still needed, wherever the stream is.
        assert len(run.offset.log["ranges"]) == 1
        add(long, 101)
        long.commit()
    assert data(run.until_level()) == [("c", "CUSTOMERS", row(100)), ("c", "CUSTOMERS", row(101))]
    assert run.offset.log["ranges"] == []


def test_staging_forgets_what_is_delivered(database, session):
    run = Run(database)
    run.until_level()
    for id in range(4):
        add(session, id)
        session.commit()
        run.until_level()
    run.source.acknowledge(run.offset)
    assert not list((database.directory / "staging").iterdir())


def test_ranges_are_mined_side_by_side_by_tasks_each_once(database, session, mined):
    run = Run(database, mining_range_scns=10, mining_sessions=3)
    run.until_level()
    for id in range(40):
        add(session, id)
        session.commit()
    mined()
    rows, most = [], 0
    head = run.source.head()
    while run.offset.commit < head:
        rows += run.batch(acknowledge=False)
        most = max(most, len(run.offset.log["mining"]))
    assert data(rows) == [("c", "CUSTOMERS", row(id)) for id in range(40)]
    mined = mined()
    assert most == 3
    assert sorted(set(mined)) == sorted(mined)


def test_logs_are_followed_through_switches_and_archives(database, session):
    run = Run(database)
    run.until_level()
    for id in range(8):
        add(session, id)
        session.commit()
        database.switch_log()
    assert data(run.until_level()) == [("c", "CUSTOMERS", row(id)) for id in range(8)]


def test_missing_logs_stop_the_run_and_say_what_to_do(database, session):
    run = Run(database)
    run.until_level()
    add(session, 1)
    session.commit()
    database.switch_log()
    database.delete_archived()
    with pytest.raises(DataLossError, match=r"Restore the archived logs .* or take a new snapshot"):
        run.until_level()


def test_only_archived_logs_where_asked(database, session):
    database.switch_log()
    run = Run(database, archive_log_only=True, snapshot_mode="no_data")
    run.batch()
    add(session, 1)
    session.commit()
    assert run.batch() == []
    database.switch_log()
    rows = []
    for _ in range(3):
        rows += run.batch()
    assert data(rows) == [("c", "CUSTOMERS", row(1))]


def test_several_redo_threads_come_as_one_stream_in_the_order_of_commits(tmp_path):
    with EmulatedOracle(tmp_path / "server", threads=2) as database:
        database.run("CREATE TABLE CUSTOMERS (ID NUMBER(9) NOT NULL PRIMARY KEY, NAME VARCHAR2(50))")
        run = Run(database, rac_nodes="instance:2")
        run.until_level()
        with database.connect(instance=1) as one, database.connect(instance=2) as two:
            for id in range(6):
                node = (one, two)[id % 2]
                node.execute("INSERT INTO CUSTOMERS (ID, NAME) VALUES (:id, 'x')", id=id)
                node.commit()
                database.switch_log(1 + id % 2)
        rows = run.until_level()
        assert [values["ID"] for _, _, values in data(rows)] == ["0", "1", "2", "3", "4", "5"]
        assert [image(r["source"])["redo_thread"] for r in rows if r["op"] == "c"] == ["1", "2"] * 3
        assert set(run.offset.log["commit_scn"]) == {"1", "2"}


def test_a_thread_that_lags_holds_the_stream_where_it_is(tmp_path):
    with EmulatedOracle(tmp_path / "server", threads=2) as database:
        database.run("CREATE TABLE CUSTOMERS (ID NUMBER(9) NOT NULL PRIMARY KEY, NAME VARCHAR2(50))")
        run = Run(database)
        with database.connect(instance=2) as two:
            two.execute("INSERT INTO CUSTOMERS (ID, NAME) VALUES (1, 'first')")
            two.commit()
            run.until_level()
            database.run("INSERT INTO CUSTOMERS (ID, NAME) VALUES (2, 'not yet')")
            # What thread 2 wrote since is not known yet.
            assert data(run.batch()) == []
            two.execute("INSERT INTO CUSTOMERS (ID, NAME) VALUES (3, 'last')")
            two.commit()
            two.execute("INSERT INTO CUSTOMERS (ID, NAME) VALUES (4, 'later')")
            two.commit()
        assert [v["NAME"] for _, _, v in data(run.until_level())] == ["not yet", "last"]
