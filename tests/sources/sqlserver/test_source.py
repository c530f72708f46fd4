"""Rule: batches hold whole commits, snapshots tile tables, late tables come in first, cleaned changes stop the run."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter

import pytest
from tests.support.sqlserver_runs import NOW, Run, clean, create, data, replay, rows_of

from headrace.errors import CaptureError, DataLossError, PositionMismatch
from headrace.sources.base import Limit
from headrace.sources.offset import Offset


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 100])
def test_a_snapshot_in_chunks_reads_every_row_once(database, chunk):
    create(
        database, "t", "a int not null, b varchar(5) not null, primary key (b, a)", [(n % 3, f"k{n}") for n in range(7)]
    )
    rows = Run(database, snapshot_chunk_rows=chunk, snapshot_chunks_per_batch=2).all()
    found = data(rows)
    assert Counter(op for op, _, _ in found) == {"r": 7}
    assert sorted(row["b"] for _, _, row in found) == [f"k{n}" for n in range(7)]
    marks = [r["snapshot"] for r in rows if r["op"] == "r"]
    assert (marks[0], marks[-1]) == ("first", "last")
    assert set(marks[1:-1]) <= {"true"}


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        # Case does not matter to the server's order, so byte order would skip or repeat rows.
        ("k nvarchar(10) not null primary key", [("b",), ("A",), ("c",), ("B2",), ("\u00e4",), ("a1",)]),
        # Guids are ordered by their last bytes.
        (
            "k uniqueidentifier not null primary key",
            [("10000000-0000-0000-0000-000000000002",), ("20000000-0000-0000-0000-000000000001",)]
            + [(f"00000000-0000-0000-000{n}-000000000000",) for n in range(4)],
        ),
        ("k decimal(20,4) not null primary key", [("10.5",), ("9",), ("-3.25",), ("100",)]),
        ("k datetime2(7) not null primary key", [(f"2020-01-01 00:00:00.000000{n}",) for n in range(5)]),
        ("k varbinary(4) not null primary key", [(bytes([n, 255 - n]),) for n in range(5)]),
        ("k int null unique, v int", [(None, 1), (3, 1), (1, 1), (2, 1)]),
    ],
    ids=["collation", "guid", "decimal", "100 ns", "binary", "nullable unique"],
)
def test_chunks_follow_the_servers_own_order_of_keys(database, columns, rows):
    create(database, "t", columns, rows)
    found = data(Run(database, snapshot_chunk_rows=1, snapshot_chunks_per_batch=2).all())
    assert len(found) == len(rows)
    assert len({str(row["k"]) for _, _, row in found}) == len(rows)


NULLS = [(None, 1), (None, 2), (None, 3), (1, None), (1, 2), (None, None), (2, 1), (3, None)]


@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_chunks_of_a_key_that_holds_null_lose_no_row_and_repeat_none(database, chunk):
    create(database, "t", "a int null, b int null, v int, constraint u unique (a, b)", [(*key, 0) for key in NULLS])
    run = Run(database, snapshot_chunk_rows=chunk, snapshot_chunks_per_batch=2)
    found = [(row["a"], row["b"]) for _, _, row in data(run.all())]
    assert Counter(found) == Counter(tuple(None if v is None else str(v) for v in key) for key in NULLS)


def test_changes_of_a_row_whose_key_holds_null_are_of_the_row_that_was_read(database):
    create(database, "t", "a int null, b int null, v int, constraint u unique (a, b)", [(None, 1, 0), (None, None, 0)])
    run = Run(database)
    rows = run.all()
    database.execute("UPDATE dbo.t SET v = 1 WHERE b = 1")
    database.execute("DELETE FROM dbo.t WHERE b IS NULL")
    database.capture()
    assert replay(rows + run.all()) == {("t", '[null,"1"]'): {"a": None, "b": "1", "v": "1"}}


def test_a_table_that_grows_faster_than_it_is_read_is_read_to_where_it_ended(database):
    create(database, "t", "id int not null primary key", [(n,) for n in range(4)])
    run = Run(database, snapshot_chunk_rows=1, snapshot_chunks_per_batch=1)
    rows, batches = [], 0
    while run.offset.initial:
        rows += run.batch()
        batches += 1
        database.execute("INSERT INTO dbo.t SELECT MAX(id) + 1 FROM dbo.t")
        assert batches < 10
    database.capture()
    rows += run.all()
    assert Counter(op for op, _, _ in data(rows)) == {"r": 4, "c": batches}
    assert set(replay(rows)) == {("t", f'["{n}"]') for n in range(4 + batches)}


def test_changes_during_the_snapshot_win_over_what_was_read(database):
    create(database, "t", "id int not null primary key, v int", [(n, 0) for n in range(6)])
    run = Run(database, snapshot_chunk_rows=2, snapshot_chunks_per_batch=1)
    rows = run.batch()
    for statement in (
        "UPDATE dbo.t SET v = 1 WHERE id IN (0, 3)",
        "DELETE FROM dbo.t WHERE id = 1",
        "UPDATE dbo.t SET id = 9 WHERE id = 5",
        "UPDATE dbo.t SET id = -1 WHERE id = 4",
    ):
        database.execute(statement)
        database.capture()
        rows += run.batch()
    rows += run.all()
    expected = {-1: 0, 0: 1, 2: 0, 3: 1, 9: 0}
    assert replay(rows) == {("t", f'["{k}"]'): {"id": str(k), "v": str(v)} for k, v in expected.items()}


def test_a_killed_snapshot_goes_on_at_the_first_chunk_that_was_not_delivered(database):
    create(database, "t", "id int not null primary key", [(n,) for n in range(6)])
    first = Run(database, snapshot_chunk_rows=1, snapshot_chunks_per_batch=2)
    seen = data(first.batch())
    again = Run(database, snapshot_chunk_rows=1, snapshot_chunks_per_batch=2)
    again.offset = Offset.from_json(json.loads(first.offset.to_text()))
    seen += data(again.all())
    assert [row["id"] for _, _, row in seen] == [str(n) for n in range(6)]


def test_a_window_is_a_whole_number_of_commits(database):
    create(database, "t", "id int not null primary key")
    run = Run(database, max_commits_per_trigger=2, commits_per_slice=1)
    run.all()
    for first in range(0, 15, 3):
        with database.transaction() as cursor:
            for n in range(first, first + 3):
                cursor.execute("INSERT INTO dbo.t VALUES (?)", (n,))
    database.capture()
    batches = []
    while rows := run.batch():
        batches.append(rows)
    commits = [[dict(r["source"])["commit_lsn"] for r in rows if r["op"] == "c"] for rows in batches]
    assert [len(found) for found in commits if found] == [6, 6, 3]
    assert all(count == 3 for found in commits for count in Counter(found).values())
    order = [commit for found in commits for commit in found]
    assert order == sorted(order)


def test_the_same_offsets_give_the_same_bytes(database):
    create(database, "t", "id int not null primary key, note nvarchar(max), price decimal(38,10)")
    create(database, "u", "a int")
    run = Run(database)
    with database.capture_job(poll=0.05, idle=0.2):
        run.all()
    start = run.offset
    database.execute("INSERT INTO dbo.t VALUES (1, N'x', 1.5), (2, NULL, NULL)")
    database.execute("UPDATE dbo.t SET price = 12345678901234567890.0123456789")
    database.execute("INSERT INTO dbo.u VALUES (1), (1)")
    database.capture()
    end = run.source.advance(start, Limit(), NOW)
    once = rows_of(run.source, start, end)
    database.execute("INSERT INTO dbo.t VALUES (3, N'later', 1)")
    database.capture()
    assert rows_of(run.source, start, end) == once
    assert len(data(once)) == 6


def test_a_table_that_is_included_later_is_snapshotted_before_its_changes_flow(database):
    create(database, "old", "id int not null primary key", [(1,)])
    run = Run(database, tables="dbo.old", snapshot_chunk_rows=2, snapshot_chunks_per_batch=1)
    run.all()
    create(database, "new", "id int not null primary key", [(n,) for n in range(5)])
    run.with_options(tables="dbo.old,dbo.new")
    rows = run.batch()
    # The stream of the others goes on beside the snapshot.
    database.execute("INSERT INTO dbo.old VALUES (2)")
    database.execute("INSERT INTO dbo.new VALUES (10)")
    database.execute("DELETE FROM dbo.new WHERE id = 0")
    database.capture()
    second = run.batch()
    assert ("c", "old", {"id": "2"}) in data(second)
    rows += second + run.all()
    of_new = [(op, row["id"]) for op, name, row in data(rows) if name == "new"]
    assert [op for op, _ in of_new].index("c") > max(i for i, (op, _) in enumerate(of_new) if op == "r")
    held = replay(rows)
    assert {key for name, key in held if name == "new"} == {f'["{n}"]' for n in (1, 2, 3, 4, 10)}
    assert run.offset.is_level


def test_an_idle_database_makes_no_batches(database):
    create(database, "t", "id int not null primary key", [(1,)])
    run = Run(database)
    run.all()
    at = run.offset
    for _ in range(3):
        database.mark_idle()
        assert run.batch() == []
    assert run.offset == at


@pytest.mark.emulated("a server leaves the mark of an idle job when it likes")
def test_cleaned_changes_stop_the_run_before_a_row_is_read(database):
    create(database, "t", "id int not null primary key", [(1,)])
    run = Run(database)
    run.all()
    needed = run.offset.commit
    database.execute("INSERT INTO dbo.t VALUES (2)")
    database.capture()
    clean(database)
    with pytest.raises(DataLossError) as error:
        run.batch()
    text = str(error.value)
    assert "'dbo.t'" in text
    assert needed in text
    assert "new snapshot" in text


@pytest.mark.emulated("a server leaves the mark of an idle job when it likes")
def test_changes_cleaned_between_plan_and_read_fail_the_task(database):
    create(database, "t", "id int not null primary key", [(1,)])
    run = Run(database)
    run.all()
    database.execute("INSERT INTO dbo.t VALUES (2)")
    database.capture()
    end = run.source.advance(run.offset, Limit(), NOW)
    slices = run.source.plan(run.offset, end)
    clean(database)
    with pytest.raises(DataLossError, match=r"'dbo\.t'"):
        for piece in slices:
            list(run.source.read(piece))


def test_the_clean_up_of_an_idle_table_loses_nothing_and_stops_nothing(database):
    create(database, "idle", "id int not null primary key", [(1,)])
    create(database, "busy", "id int not null primary key")
    run = Run(database)
    run.all()
    database.mark_idle()
    database.cleanup("dbo_idle", low_lsn=database.max_lsn())
    database.execute("INSERT INTO dbo.busy VALUES (1)")
    database.capture()
    assert data(run.all()) == [("c", "busy", {"id": "1"})]


def test_a_table_without_a_key_is_snapshotted_as_it_was_at_the_commit(database):
    create(database, "log", "a int, b varchar(9)", [(1, "x"), (1, "x"), (2, "y")])
    run = Run(database)
    end = run.source.advance(run.offset, Limit(), NOW)
    # Between planning and reading: seen by the read, and in the stream.
    database.execute("INSERT INTO dbo.log VALUES (1, 'x'), (3, 'z')")
    database.execute("DELETE FROM dbo.log WHERE a = 2")
    with database.capture_job(poll=0.05, idle=0.2):
        rows = rows_of(run.source, run.offset, end)
    assert Counter(row["a"] for _, _, row in data(rows)) == {"1": 2, "2": 1}
    run.offset = end
    held = Counter()
    for op, _, row in data(rows + run.all()):
        held[tuple(row.items())] += -1 if op == "d" else 1
    assert +held == {(("a", "1"), ("b", "x")): 3, (("a", "3"), ("b", "z")): 1}


def test_a_table_without_a_key_is_put_back_where_all_its_rows_are_others_by_now(database):
    create(database, "log", "a int", [(1,)])
    run = Run(database)
    end = run.source.advance(run.offset, Limit(), NOW)
    database.execute("DELETE FROM dbo.log")
    database.execute("INSERT INTO dbo.log VALUES (2)")
    with database.capture_job(poll=0.05, idle=0.2):
        rows = rows_of(run.source, run.offset, end)
    assert data(rows) == [("r", "log", {"a": "1"})]


def test_a_chunk_whose_rows_went_before_it_was_read_ends_the_snapshot_all_the_same(database):
    create(database, "t", "id int not null primary key", [(1,), (2,)])
    run = Run(database)
    end = run.source.advance(run.offset, Limit(), NOW)
    database.execute("DELETE FROM dbo.t")
    rows = rows_of(run.source, run.offset, end)
    assert data(rows) == []
    assert [row["snapshot"] for row in rows if row["snapshot"] != "true"] == [None, "last"]
    assert {row["position"].partition("/")[0] for row in rows} == {end.commit}


def test_a_table_that_went_away_before_its_snapshot_was_read_is_not_said_to_be_empty(database):
    create(database, "t", "id int not null primary key", [(1,)])
    run = Run(database)
    end = run.source.advance(run.offset, Limit(), NOW)
    database.execute("DROP TABLE dbo.t")
    assert {row["snapshot"] for row in rows_of(run.source, run.offset, end)} == {"true", None}


def test_a_table_without_a_key_says_when_capture_does_not_move(database):
    create(database, "log", "a int", [(1,)])
    run = Run(database, capture_timeout_seconds=1)
    with pytest.raises(CaptureError, match=r"did not pass the snapshot of table 'dbo\.log' within 1 seconds"):
        run.batch()


@pytest.mark.parametrize("name", ["x]; DROP TABLE y--", "with blank", "a.b", "quote'd", 'dou"ble', "t\u00e4ble \u65e5"])
def test_a_table_of_any_name_is_just_a_table(database, name):
    create(database, name, "id int not null primary key, [a.b] int, [c]]d] nvarchar(5), [e f] int", [(1, 2, "x", 3)])
    run = Run(database)
    rows = run.all()
    database.execute(f"DELETE FROM dbo.[{name.replace(']', ']]')}]")
    database.capture()
    rows += run.all()
    whole = {"id": "1", "a.b": "2", "c]d": "x", "e f": "3"}
    assert data(rows) == [("r", name, whole), ("d", name, whole)]


def test_an_offset_of_another_database_is_refused(database, server):
    create(database, "t", "id int not null primary key")
    run = Run(database)
    run.all()
    with server.create_database("other") as other:
        create(other, "t", "id int not null primary key")
    with pytest.raises(PositionMismatch, match="belongs to 'sqlserver:shop'"):
        run.with_options(database="other").batch()


@pytest.mark.emulated("sets the server's clock")
def test_commit_times_are_instants_whatever_the_servers_clock_shows(database):
    create(database, "t", "id int not null primary key")
    run = Run(database, server_timezone="Europe/Vienna")
    run.all()
    database.clock = lambda: dt.datetime(2026, 7, 1, 12, 0)
    database.execute("INSERT INTO dbo.t VALUES (1)")
    database.capture()
    times = [r["event_time"] for r in run.all() if r["op"] == "c"]
    assert [t.astimezone(dt.UTC).replace(tzinfo=None) for t in times] == [dt.datetime(2026, 7, 1, 10, 0)]


@pytest.mark.emulated("makes a login")
def test_after_the_snapshot_the_tables_themselves_are_never_read_again(database, server):
    server.add_login("cdc", "secret")
    create(database, "t", "id int not null primary key", [(1,)])
    run = Run(database, user="cdc", password="secret")
    run.all()
    database.execute("DENY SELECT ON dbo.t TO cdc")
    database.execute("INSERT INTO dbo.t VALUES (2)")
    database.capture()
    assert data(run.with_options().all()) == [("c", "t", {"id": "2"})]


@pytest.mark.emulated("makes a login")
def test_a_snapshot_that_may_not_read_a_table_names_it_and_the_grant(database, server):
    server.add_login("cdc", "secret")
    create(database, "t", "id int not null primary key", [(1,)])
    database.execute("DENY SELECT ON dbo.t TO cdc")
    with pytest.raises(CaptureError, match=r"may not read 'dbo\.t'.*GRANT SELECT ON \[dbo\]\.\[t\] TO") as error:
        Run(database, user="cdc", password="secret").batch()
    assert "secret" not in str(error.value)


def test_a_chunk_that_is_read_again_moves_no_key_back(database):
    create(database, "t", "id int not null primary key", [(n,) for n in range(6)])
    run = Run(database, snapshot_chunk_rows=2)
    end = run.source.advance(run.offset, Limit(), NOW)
    once = {r["key_text"]: r["position"] for r in rows_of(run.source, run.offset, end) if r["op"] == "r"}
    database.execute("DELETE FROM dbo.t WHERE id IN (0, 2)")
    again = {r["key_text"]: r["position"] for r in rows_of(run.source, run.offset, end) if r["op"] == "r"}
    assert set(again) == {'["1"]', '["3"]', '["4"]', '["5"]'}
    assert all(once[key] == position for key, position in again.items())


@pytest.mark.parametrize("mode", ["exclusive", "repeatable_read", "snapshot", "read_uncommitted"])
def test_a_table_without_a_key_is_read_under_its_own_lock_whatever_the_isolation(database, mode):
    database.execute("ALTER DATABASE shop SET ALLOW_SNAPSHOT_ISOLATION ON")
    create(database, "keyed", "id int not null primary key", [(1,)])
    create(database, "log", "a int", [(1,), (1,)])
    run = Run(database, snapshot_isolation_mode=mode)
    start, end = run.offset, run.source.advance(run.offset, Limit(), NOW)
    database.execute("INSERT INTO dbo.log VALUES (2)")
    with database.capture_job(poll=0.05, idle=0.2):
        rows = rows_of(run.source, start, end)
    assert sorted(row["a"] for _, table, row in data(rows) if table == "log") == ["1", "1"]
    run.offset = end
    assert [(op, row["a"]) for op, _, row in data(run.all())] == [("c", "2")]


def test_a_column_that_is_dropped_and_added_again_is_another_one(database):
    create(database, "t", "id int not null primary key, v int", [(1, 5)])
    run = Run(database)
    run.all()
    database.execute("ALTER TABLE dbo.t DROP COLUMN v")
    database.execute("ALTER TABLE dbo.t ADD v int NULL")
    database.execute("INSERT INTO dbo.t VALUES (2, 7)")
    database.capture()
    # What its change table holds of it is not the new column's, which nobody captures.
    assert data(run.all()) == [("c", "t", {"id": "2"})]
    assert data(Run(database).all())[0][2].keys() == {"id"}
