"""Rule: an idle database makes no batches. How far its log was mined is kept in staging, in few files, so that neither
a restart nor a long quiet time needs logs that were mined; heartbeats are made where they are asked for."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from tests.sources.oracle.runs import Run, data

from headrace.errors import DataLossError
from headrace.sources.base import Limit
from headrace.sources.oracle.range_index import MinedDefinition, RangeIndex, TransactionEnd, joined_index
from headrace.sources.oracle.range_index import MinedTransaction as Mined

INSERT = "INSERT INTO CUSTOMERS (ID, NAME) VALUES (:id, 'x')"


def idle(run, times):
    """Ask so often; gives the offsets that were made."""
    before, made = run.offset, []
    for _ in range(times):
        run.batch()
        if run.offset != before:
            made.append(run.offset)
            before = run.offset
    return made


def files(run):
    return sorted(path.name for path in (run.directory / "staging").glob("*.parquet"))


@pytest.fixture
def run(database):
    made = Run(database)
    made.directory = database.directory
    made.until_level()
    # The first batch behind the snapshot says that all tables are level.
    made.batch()
    return made


def test_an_idle_database_makes_no_batches_whatever_time_goes_by(run):
    assert idle(run, 30) == []


def test_changes_after_a_quiet_time_come_once(run, session):
    idle(run, 20)
    session.execute(INSERT, id=1)
    session.commit()
    assert [values["ID"] for _, _, values in data(run.until_level())] == ["1"]
    assert idle(run, 20) == []


def test_a_quiet_time_leaves_few_files(run):
    idle(run, 60)
    assert len(files(run)) < 12


def test_what_was_mined_in_a_quiet_time_is_not_mined_again_after_a_restart(run, session, mined):
    session.execute(INSERT, id=1)
    idle(run, 30)
    reached = max(high for _, high in mined())
    run.restarted()
    session.commit()
    assert [values["ID"] for _, _, values in data(run.until_level())] == ["1"]
    assert min(low for low, _ in mined()) > reached


def test_a_restart_after_a_quiet_time_needs_no_log_that_was_mined(database, run, session):
    idle(run, 20)
    database.switch_log()
    idle(run, 2)
    database.delete_archived()
    run.restarted()
    session.execute(INSERT, id=1)
    session.commit()
    assert [values["ID"] for _, _, values in data(run.until_level())] == ["1"]


def test_a_table_that_is_created_after_a_quiet_time_needs_no_log_that_was_mined(database, run, session):
    idle(run, 20)
    database.switch_log()
    idle(run, 2)
    database.delete_archived()
    session.execute("CREATE TABLE LATE (ID NUMBER(9) PRIMARY KEY)")
    session.execute("INSERT INTO LATE VALUES (7)")
    session.commit()
    assert [(name, values["ID"]) for _, name, values in data(run.until_level())] == [("LATE", "7")]


def test_with_staging_and_the_logs_lost_a_restart_says_so(database, run):
    idle(run, 20)
    database.switch_log()
    idle(run, 2)
    database.delete_archived()
    for path in (run.directory / "staging").iterdir():
        path.unlink()
    with pytest.raises(DataLossError, match="are gone"):
        run.restarted().batch()


def test_a_transaction_that_stays_open_through_a_quiet_time_is_delivered_whole(run, session):
    for id in range(40):
        session.execute(INSERT, id=id)
        assert idle(run, 1) == []
    run.restarted()
    session.commit()
    assert [values["ID"] for _, _, values in data(run.until_level())] == [str(id) for id in range(40)]


def test_heartbeats_come_as_often_as_asked_and_move_the_offset(database):
    run = Run(database, heartbeat_interval_ms=30_000)
    run.until_level()
    made = []
    for _ in range(9):
        before = run.offset
        rows = run.batch()
        made.append([row["op"] for row in rows])
        if rows:
            [beat] = rows
            assert run.offset.commit > before.commit
            assert beat["position"] == f"{run.offset.commit}/z/"
            assert dict(beat["source"]) == {"connector": "oracle", "commit_scn": str(int(run.offset.commit))}
            assert beat["capture_time"] == run.now
    assert made.count(["heartbeat"]) == 3
    assert made.count([]) == 6


def test_a_run_that_should_end_does_so_on_an_idle_database(run):
    head = run.source.head()
    end = run.source.advance(run.offset, Limit(upto=head), run.now + dt.timedelta(seconds=1))
    assert end.commit == head


COMMIT = TransactionEnd(True, 9, None, 1, "0x1.1.1", 0)
ROLLBACK = TransactionEnd(False, 9, None, 1, "0x1.1.1", 0)
JOINED = [
    (
        "an id that goes on",
        [Mined(5, user="A", first=5, rows=2), Mined(first=9, rows=3, undo=1, end=COMMIT)],
        Mined(5, user="A", first=5, rows=5, undo=1, end=COMMIT),
    ),
    ("an id that was used again", [Mined(5, end=COMMIT), Mined(9)], None),
    ("a rollback that may be of either", [Mined(end=ROLLBACK), Mined(end=ROLLBACK)], None),
]


@pytest.mark.parametrize(("mined", "expected"), [c[1:] for c in JOINED], ids=[c[0] for c in JOINED])
def test_ranges_are_made_one_only_where_an_index_can_say_all_that_theirs_did(mined, expected):
    found = joined_index([RangeIndex(transactions={"x1": part}) for part in mined])
    assert (None if found is None else found.transactions["x1"]) == expected


def test_an_index_is_kept_as_json_of_what_is_known():
    index = RangeIndex(
        "+02:00",
        {"x1": Mined(5, "2024-01-01 00:00:00", "A", 5, 2, 1), "x2": Mined(replicated=True, end=COMMIT)},
        [MinedDefinition("x1", "S", "T", "drop table T", 6, "0x1.1.1")],
        [("S", "T")],
        2,
    )
    text = json.dumps(index.to_json())
    assert json.loads(text)["transactions"] == {
        "x1": {"start": 5, "start_time": "2024-01-01 00:00:00", "user": "A", "first": 5, "rows": 2, "undo": 1},
        "x2": {"marker": True, "end": "commit", "scn": 9, "time": None, "thread": 1, "rs_id": "0x1.1.1", "ssn": 0},
    }
    assert RangeIndex.from_json(json.loads(text)) == index


def test_a_range_is_removed_when_an_offset_that_no_longer_names_it_is_in_all_sinks(database, run, session):
    session.execute(INSERT, id=1)
    with database.connect() as other:
        other.execute(INSERT, id=2)
        other.commit()
    run.until_level()
    named = run.offset.log["ranges"]
    assert named
    held = files(run)
    session.commit()
    while run.offset.log["ranges"] == named:
        run.batch(acknowledge=False)
    # Its rows are planned, but in no sink yet: a killed run reads them again.
    assert set(held) <= set(files(run))
    run.source.acknowledge(run.offset)
    assert not set(held) & set(files(run))
