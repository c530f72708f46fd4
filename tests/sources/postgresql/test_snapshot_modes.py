"""What each snapshot mode reads, and what it leaves on the server; and signals that come as logical messages."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from tests.support.captured_postgres import CapturedPostgres

from headrace.errors import CaptureError
from headrace.testing.captured_database import data, replay
from headrace_emulators.postgresql.server import PostgresDatabase

_T = "id int not null primary key, v varchar(20)"


@pytest.fixture
def database(postgres_database: PostgresDatabase) -> CapturedPostgres:
    made = CapturedPostgres(postgres_database)
    made.create("t", _T, [(n, "old") for n in range(3)])
    return made


def slots(database: CapturedPostgres) -> int:
    found: int = database.database.execute(
        "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    )[0][0]
    return found


def test_initial_only_reads_all_rows_and_leaves_no_slot(database: CapturedPostgres) -> None:
    run = database.run(snapshot_mode="initial_only")
    assert Counter(op for op, _, _ in data(run.all())) == {"r": 3}
    database.insert("t", 9, "later")
    assert run.all() == []
    run.source._planner.close()  # type: ignore[attr-defined]
    assert slots(database) == 0


@pytest.mark.parametrize("mode", ["no_data", "recovery"])
def test_without_rows_only_changes_come(database: CapturedPostgres, mode: str) -> None:
    run = database.run(snapshot_mode=mode)
    assert data(run.all()) == []
    database.insert("t", 9, "later")
    assert data(run.all()) == [("c", "t", {"id": "9", "v": "later"})]


def test_always_reads_again_at_each_start_when_the_changes_are_in(database: CapturedPostgres) -> None:
    run = database.run(snapshot_mode="always")
    rows = run.all()
    database.delete("t", "id = 0")
    rows += run.restarted().all()
    assert Counter(op for op, _, _ in data(rows)) == {"r": 5, "d": 1}
    assert sorted(key for _, key in replay(rows)) == ['["1"]', '["2"]']


def test_a_slot_that_another_pipeline_has_is_not_taken(database: CapturedPostgres) -> None:
    database.run().all()
    with pytest.raises(CaptureError, match="is there already") as caught:
        database.run().all()
    assert "pg_drop_replication_slot" in caught.value.remedy


@pytest.mark.parametrize("transactional", ["true", "false"])
def test_a_logical_message_can_be_a_signal(database: CapturedPostgres, transactional: str) -> None:
    run = database.run(signal_prefix="headrace.signal")
    run.all()
    asked = {"id": "1", "type": "execute-snapshot", "data": {"data-collections": ["public.t"]}}
    database.execute(f"SELECT pg_logical_emit_message({transactional}, 'headrace.signal', ?)", (json.dumps(asked),))
    rows = run.all()
    assert [row["snapshot"] for row in rows if row["op"] == "r"] == ["incremental"] * 3
    assert [row for row in rows if row["op"] == "message"] == []


def test_a_slot_that_is_lost_in_the_middle_of_a_snapshot_gives_a_gap_and_the_tables_are_read(
    database: CapturedPostgres,
) -> None:
    options = {"fail_on_data_loss": "false", "snapshot_chunk_rows": 1, "snapshot_chunks_per_batch": 1}
    run = database.run(**options)
    rows = run.batch()
    run.source._planner.close()  # type: ignore[attr-defined]
    database.clean()
    # Another process finds it out.
    run = run.restarted()
    rows += run.all()
    assert [row["op"] for row in rows if row["op"] == "gap"] == ["gap"]
    assert sorted(key for _, key in replay(rows)) == ['["0"]', '["1"]', '["2"]']
