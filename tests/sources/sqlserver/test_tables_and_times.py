"""Rule: what the clause-by-clause page says of the choice of tables, of locks, of commit times, and of columns that
change while capture is off."""

import datetime as dt

import pytest
from tests.support.sqlserver_runs import ENABLE, NOW, Run, create, data

from headrace.sources.base import Limit
from headrace_emulators.sqlserver import EmulatedServer

DISABLE = "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'{0}', @capture_instance = N'dbo_{0}'"


@pytest.fixture
def database(tmp_path):
    with EmulatedServer(tmp_path / "server").create_database("shop") as made:
        yield made


@pytest.mark.parametrize(
    ("tables", "chosen"),
    [
        ("dbo.log*", ["log", "logs"]),
        ("re:dbo\\.logs?", ["log", "logs"]),
        ("re:(?!dbo\\.log$).*", ["items", "logs"]),
        ("SHOP.DBO.Item?", ["items"]),
        ("dbo.logs,dbo.items", ["logs", "items"]),
    ],
)
def test_patterns_choose_tables_and_leave_tables_out(database, tables, chosen):
    for name in ("items", "log", "logs"):
        create(database, name, "id int not null primary key")
    assert [table.id.name for table in Run(database, tables=tables).source.tables()] == chosen


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        ("EXEC sp_rename 'dbo.t.v', 'w', 'COLUMN'", {"id": "1", "v": "7"}, {"id": "1", "w": "7"}),
        ("ALTER TABLE dbo.t ALTER COLUMN v varchar(9)", {"id": "1", "v": "7"}, {"id": "1", "v": "7"}),
    ],
    ids=["renamed", "of another type"],
)
def test_a_column_that_changed_while_capture_was_off_is_read_again(database, change, before, after):
    create(database, "t", "id int not null primary key, v int", [(1, 7)])
    run = Run(database)
    assert data(run.all()) == [("r", "t", before)]
    (old,) = run.source.tables()
    for statement in (DISABLE.format("t"), change, ENABLE.format("t")):
        database.execute(statement)
    database.capture()
    rows = run.all()
    assert data(rows) == [("r", "t", after)]
    (new,) = run.source.tables()
    assert {row["schema_id"] for row in rows if row["op"] == "r"} == {new.fingerprint} != {old.fingerprint}


def test_a_commit_whose_time_was_cleaned_has_none_and_stops_nothing(database):
    create(database, "t", "id int not null primary key")
    run = Run(database, server_timezone="UTC")
    run.all()
    for number in (1, 2):
        database.clock = lambda number=number: dt.datetime(2026, 7, number)
        database.execute(f"INSERT INTO dbo.t VALUES ({number})")
        database.capture()
    database.execute(
        "DELETE FROM cdc.lsn_time_mapping WHERE start_lsn = (SELECT MIN(c.__$start_lsn) FROM cdc.dbo_t_CT AS c)"
    )
    times = [r["event_time"] for r in run.all() if r["op"] == "c"]
    assert times == [None, dt.datetime(2026, 7, 2, tzinfo=dt.UTC)]


def test_commit_times_are_asked_for_once_and_not_joined_to_rows(database, monkeypatch, tmp_path):
    create(database, "t", "id int not null primary key")
    run = Run(database)
    run.all()
    for number in range(5):
        database.execute(f"INSERT INTO dbo.t VALUES ({number})")
    database.capture()
    start, end = run.offset, run.source.advance(run.offset, Limit(), NOW)
    (piece,) = run.source.plan(start, end)
    log = tmp_path / "queries"
    monkeypatch.setenv("HEADRACE_EMULATOR_QUERY_LOG", str(log))
    assert sum(batch.num_rows for batch in run.source.read(piece)) == 6
    asked = log.read_text().splitlines()
    assert len([sql for sql in asked if "lsn_time_mapping" in sql]) == 1
    (rows,) = [sql for sql in asked if "[dbo_t_CT]" in sql and "__$update_mask" in sql]
    assert "lsn_time_mapping" not in rows


@pytest.mark.parametrize(("mode", "times"), [("read_committed", 1), ("repeatable_read", 2)])
def test_the_first_start_reads_the_catalog_once_and_again_only_under_a_lock(
    database, mode, times, monkeypatch, tmp_path
):
    create(database, "t", "id int not null primary key", [(1,)])
    monkeypatch.setenv("HEADRACE_EMULATOR_QUERY_LOG", str(tmp_path / "log"))
    Run(database, snapshot_isolation_mode=mode).batch()
    assert (tmp_path / "log").read_text().count("FROM cdc.captured_columns") == times


def test_locks_on_schemas_are_released_before_rows_are_read_but_exclusive_ones_are_kept(
    database, monkeypatch, tmp_path
):
    create(database, "t", "id int not null primary key", [(1,)])
    assert locked(database, "repeatable_read", monkeypatch, tmp_path) == ["lock", "release", "rows"]
    assert locked(database, "exclusive", monkeypatch, tmp_path) == ["lock", "rows", "release"]


def locked(database, mode, monkeypatch, tmp_path):
    """What a snapshot sends, in order: its first table lock, the first release after that, and the read of rows."""
    log = tmp_path / mode
    with monkeypatch.context() as patch:
        patch.setenv("HEADRACE_EMULATOR_QUERY_LOG", str(log))
        assert data(Run(database, snapshot_isolation_mode=mode).all()) == [("r", "t", {"id": "1"})]
    sent = log.read_text()
    at = sent.index("WITH (TABLOCKX)")
    places = {
        "lock": at,
        "release": sent.index("ROLLBACK TRANSACTION", at),
        "rows": sent.index("SELECT t.[id] AS [id] FROM [dbo].[t]", at),
    }
    return sorted(places, key=places.__getitem__)
