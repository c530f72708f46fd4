"""Rule: a table that is captured no longer is named until the options leave it out, and stops none of the others; when
it comes back, it is read again.
"""

from __future__ import annotations

import pytest
from tests.support.sqlserver_runs import ENABLE, Run, create
from tests.support.sqlserver_schema_changes import DISABLE, changes

from headrace.errors import CaptureError, DataLossError

KEY = "id int not null primary key"
WAYS = {"switched off": DISABLE.format("a", "dbo_a"), "dropped": "DROP TABLE dbo.a"}


@pytest.fixture
def run(database):
    """Two tables that were read."""
    create(database, "a", KEY, [(1,)])
    create(database, "b", KEY, [(1,)])
    run = Run(database, tables="dbo.a,dbo.b")
    run.all()
    return run


def lose(database, way="switched off"):
    database.execute(WAYS[way])
    database.execute("INSERT INTO dbo.b VALUES (2)")
    database.capture()


def come_back(database):
    database.execute(ENABLE.format("a"))
    database.execute("INSERT INTO dbo.a VALUES (3)")
    database.capture()


def uncaptured(run):
    return run.source.health(run.offset).uncaptured


@pytest.mark.parametrize("way", WAYS)
def test_it_is_named_in_log_offset_and_health_and_the_others_go_on(database, run, caplog, way):
    lose(database, way)
    # Seen before a run has seen it too: `status` asks while nothing runs.
    assert uncaptured(run) == ("dbo.a",)
    assert changes(run.all()) == [("c", "b", ["id"]), ("DROP", "a", ["id"])]
    assert [*run.offset.uncaptured] == ["dbo.a"]
    assert uncaptured(run) == ("dbo.a",)
    said = [r.getMessage() for r in caplog.records if "'dbo.a' is not captured any more" in r.getMessage()]
    assert len(said) == 1
    assert "sp_cdc_enable_table" in said[0]


@pytest.mark.parametrize("way", WAYS)
def test_a_restart_starts_without_it_and_says_so_again(database, run, caplog, way):
    lose(database, way)
    run.with_options()
    assert [t.id.name for t in run.source.tables(run.offset.tables_seen)] == ["b"]
    run.all()
    caplog.clear()
    run.with_options()
    assert [t.id.name for t in run.source.tables(run.offset.tables_seen)] == ["b"]
    assert run.all() == []
    assert "Table 'dbo.a' is not captured any more." in caplog.text


def test_a_name_that_was_never_captured_is_an_error_at_a_start(database, run):
    lose(database)
    for known, table in [((), "dbo.a"), (run.offset.tables_seen, "dbo.typo")]:
        with pytest.raises(CaptureError, match=table):
            run.with_options(tables=f"{table},dbo.b").source.tables(known)


def test_a_run_stops_for_it_where_the_user_wants_that(database, run):
    run.with_options(on_table_lost="fail")
    lose(database)
    with pytest.raises(CaptureError, match=r"Table 'dbo\.a' is not captured any more\."):
        run.all()
    with pytest.raises(CaptureError, match=r"'dbo\.a'"):
        run.source.tables(run.offset.tables_seen)


@pytest.mark.parametrize("tables", ["dbo.a,dbo.b", "dbo.*", "", r"re:dbo\.(a|b)"])
def test_it_is_named_until_the_options_leave_it_out(database, tables):
    create(database, "a", KEY, [(1,)])
    create(database, "b", KEY, [(1,)])
    run = Run(database, **({"tables": tables} if tables else {}))
    run.all()
    lose(database)
    run.all()
    assert uncaptured(run) == ("dbo.a",)
    run.with_options(**({"tables": "dbo.b"} if tables else {"tables_excluded": "dbo.a"}))
    assert uncaptured(run) == ()
    run.all()
    assert run.offset.uncaptured == {}


@pytest.mark.parametrize("seen", [True, False], ids=["seen by a run", "between two looks"])
def test_when_it_comes_back_the_gap_is_said_and_it_is_read_again(database, run, caplog, seen):
    lose(database)
    if seen:
        run.all()
    come_back(database)
    rows = run.all()
    assert [c[:2] for c in changes(rows) if c[1] == "a"] == [("gap", "a"), ("CREATE", "a"), ("r", "a"), ("r", "a")]
    [gap] = [row for row in rows if row["op"] == "gap"]
    assert gap["error"].endswith("are lost: the table was not captured.")
    assert "rows that were deleted meanwhile go from tables that mirror it" in caplog.text
    assert (run.offset.uncaptured, uncaptured(run)) == ({}, ())


@pytest.mark.parametrize("seen", [True, False], ids=["seen by a run", "between two looks"])
def test_a_stream_that_reads_no_tables_stops_when_one_comes_back(database, run, seen):
    run.with_options(snapshot_mode="no_data")
    lose(database)
    if seen:
        run.all()
    come_back(database)
    with pytest.raises(DataLossError, match=r"Table 'dbo\.a' was not captured for a time"):
        run.all()
    run.with_options(fail_on_data_loss="false")
    assert [c[:2] for c in changes(run.all()) if c[1] == "a"] == [("gap", "a"), ("CREATE", "a")]
    database.execute("INSERT INTO dbo.a VALUES (4)")
    database.capture()
    assert changes(run.all()) == [("c", "a", ["id"])]


def test_all_tables_may_go_away_and_the_run_waits_for_them(database, run):
    lose(database)
    database.execute(DISABLE.format("b", "dbo_b"))
    run.with_options()
    assert list(run.source.tables(run.offset.tables_seen)) == []
    run.all()
    assert uncaptured(run) == ("dbo.a", "dbo.b")


@pytest.mark.parametrize("tables", ["dbo.a", "dbo.*"])
def test_a_table_that_is_renamed_is_lost_under_its_old_name_and_new_under_its_new_one(database, tables):
    create(database, "a", KEY, [(1,)])
    create(database, "b", KEY, [(1,)])
    run = Run(database, tables=tables)
    run.all()
    database.execute("INSERT INTO dbo.a VALUES (2)")
    database.execute("EXEC sp_rename 'dbo.a', 'c'")
    database.execute("INSERT INTO dbo.c VALUES (3)")
    database.capture()
    rows = run.with_options().all()
    assert uncaptured(run) == ("dbo.a",)
    if tables == "dbo.*":
        # No change is lost: what was not delivered under the old name is read under the new one.
        found = [(r["op"], dict(r["after"])["id"]) for r in rows if r["op"] == "r" and r["table"]["name"] == "c"]
        assert found == [("r", "1"), ("r", "2"), ("r", "3")]
        database.execute("INSERT INTO dbo.c VALUES (4)")
        database.capture()
        assert changes(run.all()) == [("c", "c", ["id"])]


def test_a_captured_column_can_not_be_renamed(database, run):
    with pytest.raises(Exception, match=r"4928|REPLICATED"):
        database.execute("EXEC sp_rename 'dbo.a.id', 'key', 'COLUMN'")
