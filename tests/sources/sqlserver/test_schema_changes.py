"""Rule: rows follow the schema that their commit had; no row of an old schema follows one of a new."""

from __future__ import annotations

import json

import pytest
from tests.support.sqlserver_runs import ENABLE, NOW, Run, create, data, rows_of
from tests.support.sqlserver_schema_changes import DISABLE, by_position, changes

from headrace.errors import DataLossError
from headrace.sources.base import Limit
from headrace.sources.offset import Offset

SECOND = (
    "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{}', @role_name = NULL, "
    "@capture_instance = N'{}'"
)


def test_the_first_batch_says_the_schema_of_every_table_once(database):
    create(database, "a", "id int not null primary key", [(1,)])
    create(database, "b", "id int not null primary key, v int")
    run = Run(database)
    rows = run.all()
    assert [c for c in changes(rows) if c[0] == "CREATE"] == [("CREATE", "a", ["id"]), ("CREATE", "b", ["id", "v"])]
    created = [r for r in by_position(rows) if "change" in dict(r["source"])]
    assert {r["snapshot"] for r in created} == {"true"}
    database.execute("INSERT INTO dbo.b VALUES (1, 1)")
    database.capture()
    assert [c[0] for c in changes(run.all())] == ["c"]


def test_rows_follow_the_second_instance_from_its_start_on(database):
    create(database, "t", "id int not null primary key", [(1,)])
    run = Run(database, on_rewrite="warn")
    run.all()
    database.execute("INSERT INTO dbo.t VALUES (2)")
    database.execute("ALTER TABLE dbo.t ADD note varchar(10) NULL")
    database.execute("INSERT INTO dbo.t VALUES (3, 'early')")
    database.capture()
    database.execute(SECOND.format("t", "t_2"))
    database.execute("INSERT INTO dbo.t VALUES (4, 'late')")
    database.execute("UPDATE dbo.t SET note = 'now' WHERE id = 2")
    database.capture()
    rows = run.all()
    # What was written between the alteration and the new instance has no note in any change table.
    assert changes(rows) == [
        ("c", "t", ["id"]),
        ("c", "t", ["id"]),
        ("ALTER", "t", ["id", "note"]),
        ("c", "t", ["id", "note"]),
        ("u", "t", ["id", "note"]),
    ]
    altered = next(dict(r["source"]) for r in rows if dict(r["source"]).get("change") == "ALTER")
    before = [dict(r["source"]) for r in by_position(rows) if r["op"] == "c"][1]
    assert {k: altered[k] for k in ("commit_lsn", "change_lsn", "event_serial_no", "ddl")} == {
        "commit_lsn": before["commit_lsn"],
        "change_lsn": before["change_lsn"],
        "event_serial_no": "1",
        "ddl": "N/A",
    }
    # The old instance can go without a trace.
    database.execute(DISABLE.format("t", "dbo_t"))
    database.execute("INSERT INTO dbo.t VALUES (5, 'x')")
    database.capture()
    assert changes(run.all()) == [("c", "t", ["id", "note"])]


def test_a_window_over_the_switch_is_the_same_when_it_is_read_again_after_the_old_instance_went(database):
    create(database, "t", "id int not null primary key")
    run = Run(database, on_rewrite="warn")
    run.all()
    database.execute("INSERT INTO dbo.t VALUES (1)")
    database.execute("ALTER TABLE dbo.t ADD note varchar(10) NULL")
    database.execute(SECOND.format("t", "t_2"))
    database.execute("INSERT INTO dbo.t VALUES (2, 'n')")
    database.capture()
    start, end = run.offset, run.source.advance(run.offset, Limit(), NOW)
    first = rows_of(run.source, start, end)
    again = Run(database, on_rewrite="warn")
    assert rows_of(again.source, start, Offset.from_json(json.loads(end.to_text()))) == first
    assert changes(first) == [("c", "t", ["id"]), ("ALTER", "t", ["id", "note"]), ("c", "t", ["id", "note"])]


def test_a_second_instance_with_the_same_schema_changes_nothing(database):
    create(database, "t", "id int not null primary key")
    run = Run(database)
    run.all()
    database.execute(SECOND.format("t", "t_2"))
    database.execute("INSERT INTO dbo.t VALUES (1)")
    database.capture()
    assert changes(run.all()) == [("c", "t", ["id"])]


def test_a_snapshot_taken_with_two_instances_has_the_newer_schema(database):
    create(database, "t", "id int not null primary key", [(1,)])
    database.execute("ALTER TABLE dbo.t ADD note varchar(10) NULL")
    database.execute(SECOND.format("t", "t_2"))
    database.execute("INSERT INTO dbo.t VALUES (2, 'n')")
    database.capture()
    found = changes(Run(database).all())
    assert found[0] == ("CREATE", "t", ["id", "note"])
    assert {tuple(columns) for _, _, columns in found} == {("id", "note")}


def test_a_dropped_column_is_gone_from_the_rows_after_the_alteration(database):
    create(database, "t", "id int not null primary key, a int, b int", [(1, 1, 1)])
    run = Run(database)
    run.all()
    database.execute("INSERT INTO dbo.t VALUES (2, 2, 2)")
    database.execute("ALTER TABLE dbo.t DROP COLUMN a")
    database.execute("INSERT INTO dbo.t VALUES (3, 3)")
    database.capture()
    assert changes(run.all()) == [
        ("c", "t", ["id", "a", "b"]),
        ("ALTER", "t", ["id", "b"]),
        ("c", "t", ["id", "b"]),
    ]


def test_a_column_that_is_dropped_while_the_snapshot_runs_stops_nothing(database):
    create(database, "t", "id int not null primary key, a int, b int", [(n, n, n) for n in range(6)])
    run = Run(database, snapshot_chunk_rows=2, snapshot_chunks_per_batch=1)
    rows = run.batch()
    database.execute("ALTER TABLE dbo.t DROP COLUMN a")
    database.capture()
    rows += run.all()
    assert sorted(dict(r["after"])["id"] for r in rows if r["op"] == "r") == list("012345")
    assert changes(rows)[-1][2] == ["id", "b"]


def test_a_table_that_is_switched_on_later_comes_in_with_a_snapshot(database):
    create(database, "a", "id int not null primary key", [(1,)])
    run = Run(database)
    run.all()
    create(database, "b", "id int not null primary key", [(7,)])
    rows = run.all()
    assert changes(rows) == [("CREATE", "b", ["id"]), ("r", "b", ["id"])]
    assert [r["snapshot"] for r in rows if r["op"] == "r"] == ["last_in_data_collection"]


def test_a_table_that_is_switched_off_is_dropped_and_the_others_go_on(database):
    create(database, "a", "id int not null primary key", [(1,)])
    create(database, "b", "id int not null primary key", [(1,)])
    run = Run(database, tables="dbo.a,dbo.b")
    run.all()
    database.execute(DISABLE.format("a", "dbo_a"))
    database.execute("INSERT INTO dbo.b VALUES (2)")
    database.capture()
    assert changes(run.all()) == [("c", "b", ["id"]), ("DROP", "a", ["id"])]
    database.execute(ENABLE.format("a"))
    database.execute("INSERT INTO dbo.a VALUES (2)")
    database.capture()
    found = changes(run.all())
    assert found == [("gap", "a", None), ("CREATE", "a", ["id"]), ("r", "a", ["id"]), ("r", "a", ["id"])]


def test_a_table_that_is_switched_off_and_on_between_two_looks_is_snapshotted_again(database):
    create(database, "a", "id int not null primary key", [(1,)])
    run = Run(database)
    run.all()
    database.execute(DISABLE.format("a", "dbo_a"))
    database.execute("INSERT INTO dbo.a VALUES (2)")
    database.capture()
    database.execute(ENABLE.format("a"))
    database.execute("INSERT INTO dbo.a VALUES (3)")
    database.capture()
    rows = run.all()
    assert changes(rows)[:2] == [("gap", "a", None), ("CREATE", "a", ["id"])]
    assert {row["id"] for op, _, row in data(rows) if op == "r"} == {"1", "2", "3"}


def test_a_change_table_that_goes_away_between_plan_and_read_leaves_a_gap_and_stops_nothing(database):
    create(database, "a", "id int not null primary key")
    create(database, "b", "id int not null primary key")
    run = Run(database)
    run.all()
    database.execute("INSERT INTO dbo.a VALUES (1)")
    database.execute("INSERT INTO dbo.b VALUES (1)")
    database.capture()
    start, end = run.offset, run.source.advance(run.offset, Limit(), NOW)
    slices = run.source.plan(start, end)
    database.execute(DISABLE.format("a", "dbo_a"))
    read = [row for piece in slices for batch in run.source.read(piece) for row in batch.to_pylist()]
    assert [c[:2] for c in changes(read)] == [("gap", "a"), ("c", "b")]
    # A replay of the batch finds it gone too.
    replayed = changes(rows_of(run.source, start, end))
    assert [c[:2] for c in replayed] == [("gap", "a"), ("c", "b")]
    gap = next(r for r in read if r["op"] == "gap")
    assert "dbo.a" in gap["error"]
    run.offset = end
    assert changes(run.all()) == [("DROP", "a", ["id"])]


def test_a_table_that_vanishes_during_its_snapshot_is_said_and_the_others_go_on(database, caplog):
    create(database, "a", "id int not null primary key", [(n,) for n in range(4)])
    create(database, "b", "id int not null primary key", [(1,)])
    run = Run(database, snapshot_chunk_rows=2, snapshot_chunks_per_batch=1)
    run.batch()
    end = run.source.advance(run.offset, Limit(), NOW)
    slices = run.source.plan(run.offset, end)
    database.execute("DROP TABLE dbo.a")
    rows = [row for piece in slices for batch in run.source.read(piece) for row in batch.to_pylist()]
    assert not [r for r in rows if r["op"] == "r"]
    assert "went away while its snapshot was read" in caplog.text
    run.offset = end
    found = changes(run.all())
    assert ("DROP", "a", ["id"]) in found
    assert ("r", "b", ["id"]) in found


def test_what_was_cleaned_is_a_gap_where_the_user_wants_to_go_on(database):
    create(database, "a", "id int not null primary key", [(1,)])
    run = Run(database)
    run.all()
    database.execute("INSERT INTO dbo.a VALUES (2)")
    database.capture()
    database.execute("INSERT INTO dbo.a VALUES (3)")
    database.capture()
    mark = database.max_lsn()
    database.cleanup("dbo_a", mark)
    with pytest.raises(DataLossError, match=r"dbo\.a"):
        run.source.advance(run.offset, Limit(), NOW)
    run.with_options(fail_on_data_loss="false")
    rows = run.all()
    assert changes(rows) == [("gap", "a", None), ("c", "a", ["id"])]
    gap = next(r for r in rows if r["op"] == "gap")
    assert dict(gap["source"])["to_lsn"] < dict(rows[-1]["source"])["commit_lsn"]
    assert run.all() == []


def test_when_needed_reads_a_table_again_whose_changes_were_cleaned(database):
    create(database, "a", "id int not null primary key", [(1,)])
    create(database, "b", "id int not null primary key", [(1,)])
    run = Run(database, snapshot_mode="when_needed")
    run.all()
    database.execute("INSERT INTO dbo.a VALUES (2)")
    database.capture()
    database.execute("INSERT INTO dbo.a VALUES (3)")
    database.capture()
    database.cleanup("dbo_a", database.max_lsn())
    rows = run.all()
    assert [c[:2] for c in changes(rows)] == [("gap", "a"), ("r", "a"), ("r", "a"), ("r", "a")]


def planned_then_cleaned(database, **options):
    """A run whose next batch was planned, and lost its only rows to the clean-up before anybody read it."""
    create(database, "a", "id int not null primary key", [(1,)])
    create(database, "b", "id int not null primary key")
    run = Run(database, **options)
    run.all()
    database.execute("INSERT INTO dbo.a VALUES (2)")
    database.execute("INSERT INTO dbo.b VALUES (1)")
    database.capture()
    end = run.source.advance(run.offset, Limit(), NOW)
    database.execute("INSERT INTO dbo.b VALUES (2)")
    database.capture()
    database.cleanup("dbo_a", database.max_lsn())
    return run, end


def test_a_batch_whose_rows_were_cleaned_before_it_was_read_is_refused(database):
    run, end = planned_then_cleaned(database)
    with pytest.raises(DataLossError, match=r"dbo\.a"):
        run.source.plan(run.offset, end)


def test_such_a_batch_leaves_a_gap_where_the_user_wants_to_go_on(database):
    run, end = planned_then_cleaned(database, fail_on_data_loss="false")
    rows = rows_of(run.source, run.offset, end)
    assert sorted(c[:2] for c in changes(rows)) == [("c", "b"), ("gap", "a")]
    run.offset = end
    assert changes(run.all()) == [("c", "b", ["id"])]


def test_such_a_table_is_read_again_when_needed(database):
    run, end = planned_then_cleaned(database, snapshot_mode="when_needed")
    rows = rows_of(run.source, run.offset, end)
    assert sorted(c[:2] for c in changes(rows)) == [("c", "b"), ("gap", "a")]
    run.offset = end
    assert sorted(c[:2] for c in changes(run.all())) == [("c", "b"), ("r", "a"), ("r", "a")]
