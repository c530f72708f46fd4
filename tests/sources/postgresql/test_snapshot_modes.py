"""What each snapshot mode reads, and what it leaves on the server; and signals that come as logical messages."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from tests.support.captured_postgres import CapturedPostgres

from headrace.errors import CaptureError
from headrace.sources.base import Limit
from headrace.sources.offset import Offset
from headrace.testing.captured_database import data, replay
from headrace.testing.sources import NOW
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


@pytest.mark.parametrize("planned", [False, True], ids=["between two batches", "before its batch is read"])
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t DROP COLUMN v",
        "ALTER TABLE t ALTER COLUMN v TYPE int USING length(v)",
        "ALTER TABLE t RENAME COLUMN v TO w",
        "ALTER TABLE t RENAME TO other",
        "DROP TABLE t",
    ],
)
def test_a_table_that_is_altered_while_no_process_reads_its_snapshot_is_read_again(
    database: CapturedPostgres, statement: str, planned: bool
) -> None:
    for n in range(3, 8):
        database.insert("t", n, "more")
    database.create("beside", _T, [(1, "one")])
    run = database.run(snapshot_chunk_rows=1, snapshot_chunks_per_batch=2, tables="public.*")
    rows = run.batch()
    start, end = run.offset, run.source.advance(run.offset, Limit(), NOW)
    run.source._planner.close()  # type: ignore[attr-defined]
    database.execute(statement)
    run.restarted()
    if planned:
        end = Offset.from_json(json.loads(end.to_text()))
        rows += run.rows(start, end)
        run.offset = end
    rows += run.all()
    names = [
        n for (n,) in database.database.execute("SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'")
    ]
    for name in {"t", "other"} & set(names):
        held = [row for (table, _), row in replay(rows).items() if table == name]
        truth = database.database.execute(f"SELECT row_to_json(x)::jsonb FROM (SELECT * FROM {name} ORDER BY id) x")
        assert sorted(held, key=lambda row: int(row["id"])) == [
            {column: str(value) for column, value in row.items()} for (row,) in truth
        ]
