"""Rule: what fails in the middle leaves no trace, what passes is waited for, and what is lost is said.

Without Spark: batches are planned and read as Spark does it, and given up where a test says so.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import random
import shutil

import pyarrow as pa
import pytest
from tests.faults.faulty_driver import DriverError, FaultyDriver
from tests.support.sqlserver_faults import CUT, ROWS, run_before, the_slice
from tests.support.sqlserver_runs import NOW, Run, clean, create, data, replay

from headrace.errors import CaptureError, DataLossError, PositionMismatch
from headrace.sources.base import Limit
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.connection import StatementError
from headrace.sources.connection import LostConnection
from headrace_emulators.sqlserver import EmulatedServer


@pytest.fixture
def database(tmp_path):
    with EmulatedServer(tmp_path / "server").create_database("shop") as made:
        yield made


KINDS = ["snapshot", "stream", "transactions"]
SECOND = (
    "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{0}', @role_name = NULL, "
    "@capture_instance = N'{1}'"
)
DISABLE = "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'{0}', @capture_instance = N'{1}'"


@pytest.fixture
def driver(monkeypatch):
    return FaultyDriver(rows=3).install(monkeypatch)


def bytes_of(batches):
    return [batch.serialize().to_pybytes() for batch in batches]


# Fault 3: a task dies in the middle, is tried again, or runs twice.


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_that_dies_after_some_batches_gives_the_same_bytes_when_it_is_tried_again(database, driver, kind):
    run = run_before(database, kind)
    piece = the_slice(run, kind)
    whole = bytes_of(run.source.read(piece))
    driver.fails(DriverError("General error", "disk on fire"), "batch", 3, containing="[id]")
    begun = []
    with pytest.raises(StatementError, match="disk on fire"):
        begun.extend(run.source.read(piece))
    assert driver.open == 0
    assert begun
    assert bytes_of(begun) == whole[: len(begun)]
    driver.happens = lambda event, sql: None
    assert bytes_of(run.source.read(piece)) == whole
    assert driver.open == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_that_is_given_up_leaves_no_connection_open(database, driver, kind):
    run = run_before(database, kind)
    reading = run.source.read(the_slice(run, kind))
    seen = next(batch for batch in reading if batch.column("key_text").null_count < batch.num_rows)
    assert seen.num_rows
    assert driver.open > 0
    reading.close()
    assert driver.open == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_and_its_speculative_copy_give_the_same_bytes(database, driver, kind):
    run = run_before(database, kind)
    piece = the_slice(run, kind)
    pairs = list(itertools.zip_longest(run.source.read(piece), run.source.read(piece)))
    assert len(pairs) > 2
    assert bytes_of(one for one, _ in pairs) == bytes_of(other for _, other in pairs)
    assert driver.open == 0


# Fault 5: a large transaction.


def test_a_large_transaction_that_is_killed_in_the_middle_comes_again_as_a_whole_in_one_batch(database):
    create(database, "t", "id int not null primary key, v int")
    run = Run(database, provide_transaction_metadata="true", max_commits_per_trigger=1)
    run.all()
    count = 100_000
    database.load("dbo.t", pa.table({"id": pa.array(range(count), pa.int32()), "v": pa.nulls(count, pa.int32())}))
    database.execute("INSERT INTO dbo.t VALUES (-1, 0)")
    database.capture()
    start, end = run.offset, run.source.advance(run.offset, Limit(), NOW)
    begun = 0
    for piece in run.source.plan(start, end):
        for batch in run.source.read(piece):
            begun += batch.num_rows
            if begun > count / 4:
                break
    assert count / 4 < begun < count
    # Spark plans the same (start, end) again, from the texts of its offset log.
    run.with_options()
    again = type(end).from_json(json.loads(end.to_text()))
    batches = [b for piece in run.source.plan(run.offset, again) for b in run.source.read(piece)]
    events = pa.Table.from_batches(batches)
    ops = events.column("op").to_pylist()
    assert [op for op in ops if op not in ("c", "schema")] == ["begin", "end"]
    assert ops.count("c") == count
    orders = events.filter(pa.compute.equal(events["op"], "c"))["transaction"].combine_chunks().field("total_order")
    assert orders.to_pylist() == list(range(1, count + 1))
    run.offset = again
    assert [(op, row["id"]) for op, _, row in data(r for r in run.batch() if r["op"] == "c")] == [("c", "-1")]


# Faults 7, 8, 10 and 13: the snapshot, what happens beside it, and schemas that change.


def range_reads(driver, since=0):
    """The bounds of the chunks that were read."""
    return [p for sql, p, _ in driver.statements[since:] if "FROM [dbo].[t]" in sql and "[v]" in sql]


def test_a_snapshot_that_dies_at_a_chunk_reads_no_finished_chunk_again(database, driver):
    create(database, "t", "id int not null primary key, v int", [(n, n) for n in range(ROWS)])
    options = {"snapshot_chunk_rows": 2, "snapshot_chunks_per_batch": 2, "errors_max_retries": 0}
    run = Run(database, **options)
    rows = run.batch()
    finished = range_reads(driver)
    assert len(finished) == 2
    driver.fails(CUT, "batch", 2, containing="FROM [dbo].[t]")
    offset = run.offset
    with pytest.raises(LostConnection):
        run.batch()
    driver.happens = lambda event, sql: None
    run.offset = offset
    before = len(driver.statements)
    rows += run.with_options().all()
    again = range_reads(driver, before)
    assert not set(finished) & set(again)
    assert sorted(int(row["id"]) for op, _, row in data(rows) if op == "r") == list(range(ROWS))


@pytest.mark.parametrize("metadata", ["false", "true"])
@pytest.mark.parametrize("switched", [False, True])
def test_writes_between_any_two_statements_of_a_snapshot_leave_the_mirror_equal(database, driver, switched, metadata):
    seed = 1
    print(f"seed {seed}")
    dice = random.Random(seed)
    for name in "abc":
        create(database, name, "id int not null primary key, v int", [(n, 0) for n in range(12)])
    run = Run(database, snapshot_chunk_rows=4, snapshot_chunks_per_batch=2, provide_transaction_metadata=metadata)
    left = {name: list(range(12)) for name in "abc"}
    made = itertools.count(100)
    plan = [] if not switched else ["ALTER TABLE dbo.a ADD note int NULL", SECOND.format("a", "a_2")]
    writes = 0

    def write(event, sql):
        nonlocal writes
        if event != "execute" or writes >= 150:
            return
        writes += 1
        if plan and writes >= 20:
            database.execute(plan.pop(0))
        name = dice.choice("abc")
        ids = left[name]
        match dice.randrange(4):
            case 0:
                ids.append(next(made))
                database.execute(f"INSERT INTO dbo.{name} (id, v) VALUES ({ids[-1]}, {writes})")
            case 1 if ids:
                database.execute(f"DELETE FROM dbo.{name} WHERE id = {ids.pop(dice.randrange(len(ids)))}")
            case 2 if ids:
                old, new = ids.pop(dice.randrange(len(ids))), next(made)
                ids.append(new)
                database.execute(f"UPDATE dbo.{name} SET id = {new} WHERE id = {old}")
            case _ if ids:
                database.execute(f"UPDATE dbo.{name} SET v = {writes} WHERE id = {dice.choice(ids)}")
        if dice.random() < 0.7:
            database.capture()

    driver.happens = write
    rows = run.batch()
    while run.offset.initial:
        rows += run.batch()
        run.with_options()
    driver.happens = lambda event, sql: None
    database.capture()
    rows += run.all()
    assert not [row for row in rows if row["op"] == "gap"], seed
    held = {key: (row["id"], row["v"]) for key, row in replay([r for r in rows if r["table"]]).items()}
    source = {
        (name, f'["{id}"]'): (str(id), str(v))
        for name in "abc"
        for id, v in database.execute(f"SELECT id, v FROM dbo.{name}")
    }
    assert held == source, seed


def test_a_permission_that_is_revoked_during_the_snapshot_is_named_and_the_snapshot_goes_on_once_it_is_granted(
    database, tmp_path
):
    EmulatedServer(tmp_path / "server").add_login("cdc", "secret")
    database.execute("CREATE SCHEMA sales")
    database.execute("CREATE TABLE sales.[order's] (id int not null primary key)")
    database.execute(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'sales', @source_name = N'order''s', @role_name = NULL"
    )
    database.execute("INSERT INTO sales.[order's] VALUES (1), (2), (3)")
    database.capture()
    run = Run(database, user="cdc", password="secret", snapshot_chunk_rows=1, snapshot_chunks_per_batch=1)
    rows = run.batch()
    offset = run.offset
    database.execute("DENY SELECT ON sales.[order's] TO cdc")
    with pytest.raises(CaptureError) as error:
        run.batch()
    assert "may not read 'sales.order's' in database 'shop'" in str(error.value)
    assert "GRANT SELECT ON [sales].[order's] TO [cdc]" in str(error.value)
    assert "secret" not in str(error.value)
    database.execute("GRANT SELECT ON sales.[order's] TO cdc")
    run.offset = offset
    rows += run.all()
    assert [row["id"] for op, _, row in data(rows) if op == "r"] == ["1", "2", "3"]


@pytest.mark.parametrize("metadata", ["false", "true"])
def test_at_the_switch_to_a_second_capture_instance_with_a_restart_between_no_change_is_lost_or_doubled(
    database, metadata
):
    create(database, "t", "id int not null primary key, v int")
    run = Run(database, provide_transaction_metadata=metadata, max_commits_per_trigger=1, on_rewrite="warn")
    run.all()
    for n, between in enumerate(["", "ALTER TABLE dbo.t ADD w int NULL", SECOND.format("t", "t_2"), "", ""]):
        if between:
            database.execute(between)
        columns, values = ("id, v, w", f"{n}, 0, 7") if n else ("id, v", f"{n}, 0")
        database.execute(f"INSERT INTO dbo.t ({columns}) VALUES ({values})")
    database.capture()
    rows, before = [], None
    while run.offset != before:
        before = run.offset
        rows += run.batch()
        run.with_options()
    created = [dict(row["after"]) for row in rows if row["op"] == "c"]
    # The second instance knows the column from its own start on; what came before it has the old schema.
    assert [(row["id"], row.get("w", "none")) for row in created] == [
        ("0", "none"),
        ("1", "none"),
        ("2", "7"),
        ("3", "7"),
        ("4", "7"),
    ]


# Fault 12: changes that go away between plan and read.


@pytest.mark.parametrize("kind", ["stream", "transactions"])
def test_changes_that_are_cleaned_between_plan_and_read_are_no_empty_batch(database, kind):
    run = run_before(database, kind)
    piece = the_slice(run, kind)
    clean(database)
    with pytest.raises(DataLossError, match=r"'dbo\.t'"):
        list(run.source.read(piece))


@pytest.mark.parametrize("kind", ["stream", "transactions"])
@pytest.mark.parametrize("lost", ["cleaned on the server", "switched off"])
def test_where_the_user_goes_on_changes_that_go_away_between_plan_and_read_are_a_gap(database, kind, lost):
    create(database, "other", "id int not null primary key")
    run = run_before(database, kind, fail_on_data_loss="false")
    database.execute("INSERT INTO dbo.other VALUES (1)")
    database.capture()
    end = run.source.advance(run.offset, Limit(), NOW)
    pieces = run.source.plan(run.offset, end)
    if lost == "switched off":
        database.execute(DISABLE.format("t", "dbo_t"))
    else:
        database.mark_idle()
        database.cleanup("dbo_t", low_lsn=database.max_lsn())
    rows = [row for piece in pieces for batch in run.source.read(piece) for row in batch.to_pylist()]
    gaps = [row for row in rows if row["op"] == "gap"]
    assert [(row["table"]["name"], lost in row["error"]) for row in gaps] == [("t", True)]
    assert ("c", "other", {"id": "1"}) in data(r for r in rows if r["op"] == "c")
    run.offset = end
    database.execute("INSERT INTO dbo.other VALUES (2)")
    database.capture()
    assert ("c", "other", {"id": "2"}) in data(r for r in run.all() if r["op"] == "c")


# Fault 15: a database that went back.


def test_a_database_that_was_restored_and_has_moved_on_since_is_refused(database, tmp_path):
    create(database, "t", "id int not null primary key")
    old = tmp_path / "backup"
    shutil.copytree(tmp_path / "server", old)
    database.execute("INSERT INTO dbo.t VALUES (1)")
    database.capture()
    run = Run(database)
    run.all()
    with EmulatedServer(old).database("shop", clock=lambda: dt.datetime(2031, 1, 1)) as restored:
        for n in range(5):
            restored.execute(f"INSERT INTO dbo.t VALUES ({100 + n})")
        restored.capture()
        assert restored.max_lsn() > database.max_lsn()
        end = restored.max_lsn()
    with pytest.raises(PositionMismatch, match="no longer has the commit"):
        run.with_options(hostname=str(old)).batch()
    rows = run.with_options(hostname=str(old), snapshot_mode="when_needed").all()
    assert [row["error"].partition("are lost: ")[2] for row in rows if row["op"] == "gap"] == [
        "the database was restored."
    ]
    assert [(op, row["id"]) for op, _, row in data(r for r in rows if r["op"] != "gap")] == [
        ("r", str(100 + n)) for n in range(5)
    ]
    assert run.offset.commit == lsn.read(end)


# A value that the source can't convert.


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_in_a_form_that_its_type_does_not_have_stops_with_table_and_column(database, driver, kind):
    create(database, "money", "id int not null primary key, price decimal(9,2)", [(1, "1234.56")])
    run = Run(database, provide_transaction_metadata=str(kind == "transactions").lower())
    if kind != "snapshot":
        run.all()
        database.execute("UPDATE dbo.money SET price = 9876.54")
        database.capture()
    piece = the_slice(run, kind)

    def as_double(batch):
        at = batch.schema.get_field_index("price")
        return batch if at < 0 else batch.set_column(at, "price", batch.column(at).cast(pa.float64()))

    driver.changes = as_double
    with pytest.raises(CaptureError) as error:
        list(run.source.read(piece))
    text = str(error.value)
    assert "Column 'price' of table 'dbo.money' is declared decimal(9,2), but the driver gave double" in text
    assert "1234" not in text
    assert "9876" not in text
    assert driver.open == 0
