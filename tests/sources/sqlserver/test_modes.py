"""Rule: snapshot modes, isolation, heartbeats and several databases do what their options say."""

from __future__ import annotations

import datetime as dt
import json
import shutil

import pytest
from tests.support.sqlserver_runs import ENABLE, NOW, Run, create, data

from headrace.errors import CaptureError, OptionError, PositionMismatch
from headrace.sources.base import Limit
from headrace.sources.databases import Databases, Offsets
from headrace.sources.reader import source_named


def ops(rows):
    return [r["op"] for r in sorted(rows, key=lambda r: r["position"]) if r["op"] in ("r", "c", "u", "d")]


@pytest.mark.parametrize("mode", ["no_data", "schema_only", "recovery", "schema_only_recovery"])
def test_without_data_only_schemas_and_the_stream_come(database, mode):
    create(database, "t", "id int not null primary key", [(1,)])
    run = Run(database, **{"snapshot.mode": mode})
    first = run.all()
    assert [dict(r["source"]).get("change") for r in first] == ["CREATE"]
    database.execute("INSERT INTO dbo.t VALUES (2)")
    create(database, "later", "id int not null primary key", [(1,)])
    rows = run.all()
    assert ops(rows) == ["c"]
    database.execute("INSERT INTO dbo.later VALUES (2)")
    database.capture()
    assert ops(run.all()) == ["c"]


def test_initial_only_ends_with_the_snapshot(database):
    create(database, "t", "id int not null primary key", [(1,), (2,)])
    run = Run(database, snapshot_mode="initial_only")
    assert ops(run.all()) == ["r", "r"]
    database.execute("INSERT INTO dbo.t VALUES (3)")
    database.capture()
    assert run.all() == []
    databases = Databases(run.source)
    assert Offsets({"shop": run.offset}).reached(databases.head())


def test_always_reads_everything_again_at_every_start_and_loses_no_change(database):
    create(database, "t", "id int not null primary key", [(1,), (2,)])
    run = Run(database, snapshot_mode="always")
    run.all()
    database.execute("DELETE FROM dbo.t WHERE id = 1")
    database.capture()
    run.with_options()
    rows = run.all()
    # What was deleted meanwhile is a delete, not a row that is just no longer there.
    assert sorted(ops(rows)) == ["d", "r"]
    assert [r["snapshot"] for r in rows if r["op"] == "r"] == ["last"]
    assert run.all() == []


def test_a_restart_in_a_repeated_snapshot_goes_on_with_it(database):
    create(database, "t", "id int not null primary key", [(n,) for n in range(6)])
    run = Run(database, snapshot_mode="always", snapshot_chunk_rows=2, snapshot_chunks_per_batch=1)
    run.all()
    run.with_options()
    run.batch()
    first = run.batch()
    run.with_options()
    rest = run.all()
    found = [row["id"] for _, _, row in data(first + rest)]
    assert sorted(found) == list("012345")
    marks = [r["snapshot"] for r in first + rest if r["op"] == "r"]
    assert (marks[0], marks[-1]) == ("first", "last")


@pytest.mark.emulated("sees what was sent by the emulator's log")
@pytest.mark.parametrize(
    ("mode", "statement", "slices"),
    [
        ("read_committed", None, 3),
        ("read_uncommitted", "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED", 3),
        ("repeatable_read", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", 3),
        ("snapshot", "SET TRANSACTION ISOLATION LEVEL SNAPSHOT", 1),
        ("exclusive", "SELECT TOP (1) 1 AS [one] FROM [dbo].[t] WITH (TABLOCKX)", 1),
    ],
)
def test_an_isolation_mode_reads_all_rows_as_it_should(database, mode, statement, slices, monkeypatch, tmp_path):
    database.execute("ALTER DATABASE shop SET ALLOW_SNAPSHOT_ISOLATION ON")
    create(database, "t", "id int not null primary key", [(n,) for n in range(4)])
    create(database, "u", "id int not null primary key", [(1,)])
    log = tmp_path / "queries"
    monkeypatch.setenv("HEADRACE_EMULATOR_QUERY_LOG", str(log))
    run = Run(database, snapshot_isolation_mode=mode, snapshot_chunk_rows=2)
    end = run.source.advance(run.offset, Limit(), NOW)
    planned = [piece for piece in run.source.plan(run.offset, end) if piece.kind != "markers"]
    assert len(planned) == slices
    rows = run.all()
    assert ops(rows) == ["r"] * 5
    assert [r["snapshot"] for r in rows if r["op"] == "r"][-1] == "last"
    said = log.read_text()
    assert statement is None or statement in said
    assert statement is not None or "ISOLATION" not in said
    if mode == "repeatable_read":
        assert "SET LOCK_TIMEOUT 10000" in said


def test_heartbeats_come_at_their_interval_and_on_an_idle_source_too(database):
    create(database, "t", "id int not null primary key", [(1,)])
    run = Run(database, heartbeat_interval_ms=5000)
    beats = []
    for second in range(0, 17, 2):
        now = NOW + dt.timedelta(seconds=second)
        end = run.source.advance(run.offset, Limit(), now)
        if end != run.offset:
            for piece in run.source.plan(run.offset, end):
                for batch in run.source.read(piece):
                    beats += [r for r in batch.to_pylist() if r["op"] == "heartbeat"]
        run.offset = end
    assert [(b["capture_time"] - NOW).total_seconds() for b in beats] == [0, 6, 12]
    assert beats[0]["position"].endswith("/z/")
    assert dict(beats[0]["source"])["commit_lsn"] == run.offset.commit


@pytest.mark.emulated("copies the files of a server")
def test_a_database_that_was_restored_to_an_older_state_is_refused(server, database, tmp_path):
    create(database, "t", "id int not null primary key")
    old = tmp_path / "backup"
    shutil.copytree(server.directory, old)
    database.execute("INSERT INTO dbo.t VALUES (1)")
    database.capture()
    run = Run(database)
    run.all()
    run.with_options(hostname=str(old))
    with pytest.raises(PositionMismatch, match="older state"):
        run.batch()


def test_several_databases_make_one_stream_with_an_offset_each(server, database):
    create(database, "t", "id int not null primary key", [(1,)])
    with server.create_database("stock") as other:
        create(other, "t", "id int not null primary key", [(1,), (2,)])
        create(other, "u", "id int not null primary key")
        options = {
            "driver": "emulator",
            **{name: value for name, value in database.settings.items() if name != "database"},
            "database.names": "shop,stock",
            "table.include.list": "dbo.t,stock.dbo.u",
            "provide.transaction.metadata": True,
        }
        databases = Databases(source_named("sqlserver", options))
        assert [t.id.full_path for t in databases.tables()] == ["shop.dbo.t", "stock.dbo.t", "stock.dbo.u"]
        offsets = Offsets()
        seen = []
        for _ in range(4):
            end = databases.advance(offsets, Limit(), NOW)
            for name, piece in databases.plan(offsets, end):
                for batch in databases.read(name, piece):
                    seen += [(r["table"]["database"], r["op"]) for r in batch.to_pylist() if r["op"] in "rcud"]
            offsets = Offsets.from_json(json.loads(end.to_text()))
        assert sorted(seen) == [("shop", "r"), ("stock", "r"), ("stock", "r")]
        assert offsets.reached(databases.head())
        other.execute("DELETE FROM dbo.t WHERE id = 1")
        other.capture()
        assert not offsets.reached(databases.head())
        end = databases.advance(offsets, Limit(), NOW)
        assert end.of("shop") == offsets.of("shop")
        [(name, piece)] = databases.plan(offsets, end)
        assert name == "stock"
        rows = [row for batch in databases.read(name, piece) for row in batch.to_pylist()]
        # Databases number their transactions each for itself.
        numbered = [row for row in rows if row["op"] != "schema"]
        assert [row["op"] for row in numbered] == ["begin", "d", "end"]
        assert {row["transaction"]["id"] for row in numbered} == {f"stock:{end.of('stock').commit}"}


@pytest.mark.emulated("counts what was sent by the emulator's log")
def test_of_many_tables_only_those_that_changed_cost_a_read(server, monkeypatch, tmp_path):
    asked = {tables: questions(server, tables, monkeypatch, tmp_path) for tables in (4, 40)}
    assert asked[4] == asked[40] < 20


def questions(server, tables, monkeypatch, tmp_path):
    """How many statements the planner sends for a batch in which two of so many tables changed."""
    with server.create_database(f"wide{tables}") as wide:
        for n in range(tables):
            wide.execute(f"CREATE TABLE dbo.t{n} (id int not null primary key)")
            wide.execute(ENABLE.format(f"t{n}"))
        run = Run(wide)
        run.all()
        wide.execute("INSERT INTO dbo.t1 VALUES (1)")
        wide.execute("INSERT INTO dbo.t2 VALUES (1)")
        wide.capture()
        log = tmp_path / f"queries{tables}"
        with monkeypatch.context() as patch:
            patch.setenv("HEADRACE_EMULATOR_QUERY_LOG", str(log))
            end = run.source.advance(run.offset, Limit(), NOW)
            assert len(run.source.plan(run.offset, end)) == 2
        assert len(end.to_text()) < 1000 + 60 * tables
        return len(log.read_text().splitlines())


@pytest.mark.parametrize(
    ("options", "tables"),
    [
        ({}, ["orders", "orders_old", "stock"]),
        ({"table.include.list": "dbo.orders"}, ["orders"]),
        ({"table.include.list": "dbo.orders*"}, ["orders", "orders_old"]),
        ({"table.include.list": "dbo.(stock|orders)"}, ["orders", "stock"]),
        ({"table.include.list": "dbo.orders.*,shop.dbo.stock"}, ["orders", "orders_old", "stock"]),
        ({"table.include.list": r"shop\.dbo\.o.*"}, ["orders", "orders_old"]),
        ({"table.exclude.list": "dbo.orders"}, ["orders_old", "stock"]),
        ({"table.exclude.list": r"dbo\.o.*"}, ["stock"]),
    ],
    ids=str,
)
def test_tables_are_chosen_as_globs_or_as_debezium_writes_them(database, options, tables):
    for name in ("orders", "orders_old", "stock"):
        create(database, name, "id int not null primary key")
    assert sorted(t.id.name for t in Run(database, **options).source.tables()) == tables


def test_lists_that_contradict_each_other_or_mean_nothing_are_refused(database):
    create(database, "orders", "id int not null primary key")
    with pytest.raises(OptionError, match="can't be given together"):
        Run(database, **{"table.include.list": "dbo.orders", "table.exclude.list": "dbo.x"})
    with pytest.raises(CaptureError, match="neither a table nor a regular expression"):
        Run(database, tables="dbo.(orders").source.tables()
