"""Rule: a snapshot mode says when tables are read, and what is done when redo logs with changes are gone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.sources.oracle.runs import Run, data

from headrace.errors import DataLossError
from headrace.sources.base import Limit
from headrace.sources.oracle.logs import LogFile, whole_after
from headrace.sources.reader import source_named


def add(connection, *ids):
    for id in ids:
        connection.execute("INSERT INTO CUSTOMERS (ID, NAME) VALUES (:id, 'x')", id=id)


def row(id):
    return {"ID": str(id), "NAME": "x", "CREDIT": None}


def lose(database, session):
    """Commit a change, and let its redo go before it was read."""
    add(session, 7)
    session.commit()
    database.switch_log()
    database.delete_archived()


def told(rows):
    """What is data, and of gaps the table."""
    return [(row["op"], row["table"]["name"]) for row in rows if row["op"] not in ("schema", "begin", "end")]


def test_always_reads_again_at_a_start_when_the_changes_since_the_last_run_are_in(database, session):
    add(session, 1, 2)
    session.commit()
    run = Run(database, snapshot_mode="always", snapshot_chunk_rows=1)
    assert [op for op, *_ in data(run.until_level())] == ["r", "r"]
    session.execute("DELETE FROM CUSTOMERS WHERE ID = 1")
    session.commit()
    rows = run.restarted().until_level()
    assert data(rows) == [("d", "CUSTOMERS", row(1)), ("r", "CUSTOMERS", row(2))]
    assert [r["snapshot"] for r in rows if r["op"] == "r"] == ["last"]
    # Once per start.
    add(session, 3)
    session.commit()
    assert data(run.until_level()) == [("c", "CUSTOMERS", row(3))]
    assert [op for op, *_ in data(run.restarted().until_level())] == ["r", "r"]


def test_always_reads_as_of_where_the_stream_has_caught_up(database, session):
    run = Run(database, snapshot_mode="always", max_commits_per_trigger=1)
    run.until_level()
    for id in (1, 2, 3):
        add(session, id)
        session.commit()
    rows = run.restarted().until_level()
    assert data(rows) == [(op, "CUSTOMERS", row(id)) for op in "cr" for id in (1, 2, 3)]


def test_a_snapshot_that_always_began_goes_on_after_a_kill_and_does_not_begin_again(database, session):
    add(session, 1, 2, 3)
    session.commit()
    run = Run(database, snapshot_mode="always", snapshot_chunk_rows=1, snapshot_chunks_per_batch=1)
    run.until_level()
    run.restarted()
    rows = [*run.batch(), *run.batch()]
    assert data(rows) == [("r", "CUSTOMERS", row(1))]
    assert data(run.restarted().until_level()) == [("r", "CUSTOMERS", row(2)), ("r", "CUSTOMERS", row(3))]


@pytest.mark.parametrize("mode", ["initial", "no_data", "always"])
def test_lost_logs_stop_the_run_unless_the_options_say_otherwise(database, session, mode):
    run = Run(database, snapshot_mode=mode)
    run.until_level()
    lose(database, session)
    with pytest.raises(DataLossError, match=r"Redo logs .* are gone"):
        run.batch()


def test_when_needed_reads_all_tables_again_behind_lost_logs(database, session):
    add(session, 1)
    session.commit()
    run = Run(database, snapshot_mode="when_needed")
    run.until_level()
    session.execute("DELETE FROM CUSTOMERS")
    lose(database, session)
    rows = run.batch()
    assert told(rows) == [("gap", "CUSTOMERS")]
    assert "SHOP.CUSTOMERS" in run.offset.gaps
    rows = run.restarted().until_level()
    assert data(rows) == [("r", "CUSTOMERS", row(7))]
    assert run.offset.gaps == {}
    add(session, 8)
    session.commit()
    assert data(run.until_level()) == [("c", "CUSTOMERS", row(8))]


def test_several_ranges_whose_logs_are_gone_are_seen_before_tasks_are_given_them(database, session):
    run = Run(database, snapshot_mode="when_needed", mining_range_scns=2)
    run.until_level()
    lose(database, session)
    assert [op for op, _ in told(run.batch())] == ["gap"]


def test_logs_that_go_between_plan_and_task_are_missed_by_the_next_batch(database, session):
    run = Run(database, snapshot_mode="when_needed", mining_range_scns=2)
    run.until_level()
    for id in (1, 2, 3):
        add(session, id)
        session.commit()
    end = run.source.advance(run.offset, Limit(), run.now)
    assert len(end.log["mining"]) > 1
    lose(database, session)
    assert data(run.rows_of(run.offset, end)) == []
    run.offset = end
    assert [op for op, _ in told(run.batch())] == ["gap"]
    assert data(run.until_level()) == [("r", "CUSTOMERS", row(id)) for id in (1, 2, 3, 7)]


def test_when_needed_stops_where_a_transaction_is_open_that_began_in_what_is_gone(database, session):
    run = Run(database, snapshot_mode="when_needed")
    run.until_level()
    with database.connect() as other:
        add(other, 5)
        lose(database, session)
        with pytest.raises(DataLossError):
            run.batch()
        other.commit()
    assert [op for op, _ in told(run.restarted().batch())] == ["gap"]


def test_it_goes_on_with_the_oldest_log_that_is_there_where_losing_is_better_than_stopping(database, session):
    run = Run(database, fail_on_data_loss=False)
    run.until_level()
    start = run.offset
    lose(database, session)
    add(session, 8)
    session.commit()
    rows = run.until_level()
    assert told(rows) == [("gap", "CUSTOMERS"), ("c", "CUSTOMERS")]
    assert data(rows)[-1] == ("c", "CUSTOMERS", row(8))
    facts = dict(rows[0]["source"])
    assert int(facts["from_scn"]) == int(start.commit) + 1 < int(facts["to_scn"])
    assert "from " + facts["from_scn"] in rows[0]["error"]


def test_recovery_takes_no_rows_and_at_a_restart_the_structures_from_the_catalog(database, session):
    add(session, 1)
    session.commit()
    run = Run(database, snapshot_mode="recovery")
    assert run.until_level() == []
    known = dict(run.offset.schemas)
    structures = {**known, "SHOP.CUSTOMERS": {**known["SHOP.CUSTOMERS"], "chunk_key": []}}
    run.offset = replace(run.offset, schemas=structures)
    add(session, 2)
    session.commit()
    assert data(run.restarted().until_level()) == [("c", "CUSTOMERS", row(2))]
    assert run.offset.schemas == known


@pytest.mark.parametrize(("given", "mode"), [("schema_only", "no_data"), ("schema_only_recovery", "recovery")])
def test_modes_have_the_names_that_they_had_before(database, given, mode):
    options = {**database.settings, "user": "u", "staging_location": "s", "snapshot.mode": given}
    assert source_named("oracle", options).settings.snapshot_mode == mode


LOGS = [LogFile(1, 4, 10, 20, "a"), LogFile(1, 5, 20, 30, "b"), LogFile(1, 6, 30, 99, "c")]


@pytest.mark.parametrize(
    ("logs", "threads", "after"),
    [
        (LOGS, [1], 9),
        ([LOGS[0], LOGS[2]], [1], 29),
        (LOGS[:2], [1], 40),
        ([], [1], 40),
        ([*LOGS, LogFile(2, 9, 25, 99, "d")], [1, 2], 24),
        ([*LOGS, LogFile(2, 1, 25, 99, "d")], [1, 2], 9),
        ([*LOGS, LogFile(2, 9, 25, 99, "d")], [1], 9),
    ],
    ids=["all", "a hole", "not far enough", "none", "the thread that lacks most", "a thread that was opened", "closed"],
)
def test_what_is_left_of_the_log_is_what_all_open_threads_have(logs, threads, after):
    assert whole_after(logs, threads, 40, {2: 25}) == after
