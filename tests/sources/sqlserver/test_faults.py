"""Rule: what fails in the middle leaves no trace, what passes is waited for, and what is lost is said.

Without Spark: batches are planned and read as Spark does it, and given up where a test says so.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import random
import shutil
import sys
import types

import pyarrow as pa
import pytest
from tests.faults.faulty_driver import DriverError, FaultyDriver
from tests.sources.sqlserver.test_source import NOW, Run, clean, create, data, replay, rows_of

from headrace.emulators.sqlserver import EmulatedServer
from headrace.errors import CaptureError, ConnectError, DataLossError, HeadraceError, PositionMismatch
from headrace.sources.base import Limit
from headrace.sources.reader import source_named
from headrace.sources.sqlserver import driver as real_driver
from headrace.sources.sqlserver import retries
from headrace.sources.sqlserver.connection import LostConnection, PassingRefusal, StatementError
from headrace.sources.sqlserver.retries import Retries

CUT = DriverError("Communication link failure", "TCP Provider: Error code 0x2746")
DEADLOCK = DriverError("Serialization failure", "Transaction was deadlocked on lock resources; chosen as the victim.")
KINDS = ["snapshot", "stream", "transactions"]
ROWS = 10
SECOND = (
    "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{0}', @role_name = NULL, "
    "@capture_instance = N'{1}'"
)
DISABLE = "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'{0}', @capture_instance = N'{1}'"


@pytest.fixture
def database(tmp_path):
    with EmulatedServer(tmp_path / "server").create_database("shop") as made:
        yield made


@pytest.fixture
def driver(monkeypatch):
    return FaultyDriver(rows=3).install(monkeypatch)


@pytest.fixture
def pauses(monkeypatch):
    """The pauses between attempts, which nobody waits for."""
    made: list[float] = []
    monkeypatch.setattr(retries, "time", types.SimpleNamespace(sleep=made.append))
    return made


def run_before(database, kind, **options):
    """A run whose next batch is of one kind: several driver batches of one table."""
    create(database, "t", "id int not null primary key, v int", [(n, n) for n in range(ROWS)])
    run = Run(database, provide_transaction_metadata=str(kind == "transactions").lower(), **options)
    if kind != "snapshot":
        run.all()
        database.execute("UPDATE dbo.t SET v = v + 1")
        database.capture()
    return run


def the_slice(run, kind):
    """The slice of the next batch that reads the table's rows."""
    end = run.source.advance(run.offset, Limit(), NOW)
    [piece] = [piece for piece in run.source.plan(run.offset, end) if piece.kind == kind]
    return piece


def bytes_of(batches):
    return [batch.serialize().to_pybytes() for batch in batches]


def positions(batches):
    return [(row["op"], row["position"], row["key_text"]) for batch in batches for row in batch.to_pylist()]


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


# Faults 7, 8, 10 and 13: the snapshot, what happens beside it, and structures that change.


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
    seed = random.randrange(10**6)
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
            if not plan:
                plan.extend([DISABLE.format("a", "dbo_a")] if writes < 60 and dice.random() < 0.5 else [])
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


def test_a_right_that_is_revoked_during_the_snapshot_is_named_and_the_snapshot_goes_on_once_it_is_granted(
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
    run = Run(database, provide_transaction_metadata=metadata, max_commits_per_trigger=1)
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
    # The second instance knows the column from its own start on; what came before it has the old structure.
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


# Fault 14: the network.


@pytest.mark.parametrize("kind", ["stream", "transactions"])
@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_connection_that_is_cut_while_changes_are_read_goes_on_without_a_repeated_row(
    database, driver, pauses, caplog, kind, at
):
    run = run_before(database, kind)
    piece = the_slice(run, kind)
    whole = positions(run.source.read(piece))
    logins = driver.logins
    driver.fails(CUT, "batch", at, containing="[id]")
    assert positions(run.source.read(piece)) == whole
    assert driver.logins > logins + 1
    assert driver.open == 0
    assert pauses == [0.3]
    assert "Trying again in 0.3 seconds (1 of 10)" in caplog.text


def test_a_read_that_is_cut_again_and_again_ends_as_long_as_it_gets_on(database, driver, pauses):
    run = run_before(database, "stream", errors_max_retries=1)
    piece = the_slice(run, "stream")
    whole = positions(run.source.read(piece))
    # Each attempt gets one driver batch further than the one before.
    driver.fails(CUT, "batch", 2, 5, 9, 14, 20, containing="[id]")
    assert positions(run.source.read(piece)) == whole
    assert len(pauses) >= 3
    driver.fails(CUT, "batch", containing="[id]")
    with pytest.raises(LostConnection, match="broke"):
        list(run.source.read(piece))
    assert driver.open == 0


def test_a_chunk_that_is_cut_is_read_again_by_itself_only_while_no_row_was_given(database, driver, pauses):
    run = run_before(database, "snapshot")
    piece = the_slice(run, "snapshot")
    whole = positions(run.source.read(piece))
    driver.fails(CUT, "execute", 1, containing="FROM [dbo].[t]")
    again = positions(run.source.read(piece))
    assert [found for found in again if found[0] == "r"] == [found for found in whole if found[0] == "r"]
    assert pauses == [0.3]
    driver.fails(CUT, "batch", 3, containing="[id]")
    with pytest.raises(LostConnection):
        list(run.source.read(piece))
    assert driver.open == 0


@pytest.mark.parametrize("event", ["connect", "execute", "fetch"])
@pytest.mark.parametrize("error", [CUT, DEADLOCK], ids=["cut", "deadlock"])
def test_planning_is_tried_again_when_what_failed_passes(database, driver, pauses, event, error):
    if event == "connect" and error is DEADLOCK:
        error = DriverError("Server rejected the connection", "Database 'shop' is not currently available.")
    run = run_before(database, "stream")
    calm = run.source.advance(run.offset, Limit(), NOW)
    for at in (1, 3):
        seen = driver.fails(error, event, *range(1, at + 1))
        end = run.source.advance(run.offset, Limit(), NOW)
        assert seen[event] > at
        assert end == calm
    driver.fails(error, event, 1)
    assert run.source.plan(run.offset, end)
    assert pauses == [0.3, 0.3, 0.6, 1.2, 0.3]
    assert driver.open == 0


def test_attempts_and_their_pauses_are_bounded(database, driver, pauses):
    run = run_before(
        database, "stream", errors_max_retries=4, errors_retry_delay_initial_ms=100, errors_retry_delay_max_ms=500
    )
    seen = driver.fails(CUT, "connect")
    with pytest.raises(LostConnection, match="can't be reached"):
        run.source.advance(run.offset, Limit(), NOW)
    assert seen["connect"] == 5
    assert pauses == [0.1, 0.2, 0.4, 0.5]


def test_without_a_bound_it_goes_on_until_the_server_is_there(pauses):
    answers = [LostConnection("away")] * 50

    def ask():
        if answers:
            raise answers.pop()
        return "here"

    assert Retries(-1, 0.3, 10.0).call(ask) == "here"
    assert len(pauses) == 50
    assert max(pauses) == 10.0


@pytest.mark.parametrize(
    "error",
    [
        DriverError("Invalid authorization specification", "Login failed for user 'cdc'."),
        DriverError("General error", "The SELECT permission was denied on the object 't', database 'shop'."),
        DriverError("General error", "Arithmetic overflow error."),
    ],
    ids=["login", "right", "arithmetic"],
)
def test_what_does_not_pass_is_said_at_once(database, driver, pauses, error):
    run = run_before(database, "stream")
    driver.fails(error, "connect" if "Login" in str(error) else "execute")
    with pytest.raises(HeadraceError):
        run.source.advance(run.offset, Limit(), NOW)
    assert pauses == []


def test_the_first_contact_is_not_repeated(database, driver, pauses):
    run = run_before(database, "stream")
    driver.fails(CUT, "connect")
    with pytest.raises(ConnectError):
        run.source.tables()
    with pytest.raises(ConnectError):
        run.source.head()
    assert pauses == []


PASSING = [
    "Transaction (Process ID 61) was deadlocked on lock resources with another process.",
    "The service has encountered an error processing your request. Please try again. Error code 40197.",
    "The service is currently busy. Retry the request after 10 seconds.",
    "Database 'shop' on server 's' is not currently available. Please retry the connection later.",
    "Cannot process request. Not enough resources to process request. Please retry you request later.",
    "Cannot process create or update request. Too many create or update operations in progress for subscription.",
    "Cannot process request. Too many operations in progress for subscription.",
    "Resource ID : 1. The request limit for the database is 60 and has been reached.",
    "Resource ID: 1. The server is currently too busy to support requests greater than 20 for this database.",
    "The target database, 'shop', is participating in an availability group and is currently not accessible.",
    "Database 'shop' is being recovered. Waiting until recovery is finished.",
    "SHUTDOWN is in progress.",
]
BROKEN = [
    "Communication link failure",
    "TCP Provider: Error code 0x2746",
    "TCP Provider: Timeout error [258].",
    "SSL Provider: [error:0A000126:SSL routines::unexpected eof while reading]",
    "A transport-level error has occurred when receiving results from the server.",
    "The connection is broken and recovery is not possible.",
    "An existing connection was forcibly closed by the remote host.",
    "Cannot continue the execution because the session is in the kill state.",
]


class Numbered(Exception):
    """A driver's error with the server's number."""

    def __init__(self, number):
        super().__init__("said in another language")
        self.number = number


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        *((DriverError("General error", text), PassingRefusal) for text in PASSING),
        *((DriverError("General error", text), LostConnection) for text in BROKEN),
        (DriverError("Timeout expired", "Query timeout expired"), LostConnection),
        (DriverError("General error", "Conversion failed."), StatementError),
        *((Numbered(n), PassingRefusal) for n in (1205, 40197, 40501, 40613, 49918, 10928, 10929)),
        *((Numbered(n), LostConnection) for n in (10053, 10054)),
    ],
    ids=lambda value: str(value)[-40:] if isinstance(value, Exception) else None,
)
def test_what_passes_is_known_by_what_the_driver_says(database, driver, error, kind):
    run = run_before(database, "stream", errors_max_retries=0)
    driver.fails(error, "execute")
    with pytest.raises(HeadraceError) as found:
        run.source.advance(run.offset, Limit(), NOW)
    assert type(found.value) is kind
    assert str(database.path.parent) in str(found.value)


def test_a_server_that_does_not_answer_is_given_up_after_the_time_that_the_user_allows(database, driver, pauses):
    run = run_before(database, "stream", query_timeout_ms=1500, errors_max_retries=1)
    seen = driver.fails(DriverError("Timeout expired", "Query timeout expired"), "execute")
    with pytest.raises(LostConnection, match=r"No answer from server '.*', database 'shop' within 1500 milliseconds"):
        run.source.advance(run.offset, Limit(), NOW)
    assert seen["execute"] == 2
    # Drivers know whole seconds.
    assert {timeout for _, _, timeout in driver.statements[-2:]} == {2}


def test_only_reads_of_whole_tables_may_take_longer(database, driver):
    create(database, "t", "id int not null primary key", [(1,)])
    for isolation, allowed in (("read_committed", {600}), ("snapshot", {0})):
        driver.statements.clear()
        if isolation == "snapshot":
            database.execute("ALTER DATABASE shop SET ALLOW_SNAPSHOT_ISOLATION ON")
        Run(database, snapshot_isolation_mode=isolation).batch()
        assert {t for sql, _, t in driver.statements if "FROM [dbo].[t]" in sql and "TOP" not in sql} == allowed
        assert {t for sql, _, t in driver.statements if "FROM [dbo].[t]" not in sql} == {600}


def test_the_real_driver_is_told_how_long_a_login_may_take(monkeypatch):
    calls = []
    fake = types.ModuleType("mssql_python")
    fake.SQL_ATTR_LOGIN_TIMEOUT = 103
    fake.connect = lambda text, **given: calls.append(given)
    monkeypatch.setitem(sys.modules, "mssql_python", fake)
    for allowed in (15_000, 1, 0):
        real_driver.connect({"hostname": "db", "database": "shop", "connect_timeout_ms": allowed})
    assert [call["attrs_before"] for call in calls] == [{103: 15}, {103: 1}, {}]
    assert all(call["autocommit"] for call in calls)


def test_no_error_and_no_line_of_the_log_holds_the_password(database, tmp_path, driver, pauses, caplog):
    EmulatedServer(tmp_path / "server").add_login("cdc", "s3cr3t")
    run = run_before(database, "stream", user="cdc", password="s3cr3t", errors_max_retries=1)
    piece = the_slice(run, "stream")
    said = []
    for event in ("connect", "execute", "fetch", "batch"):
        driver.fails(DriverError("Communication link failure", "SERVER=db;UID=cdc;PWD=s3cr3t;"), event)
        with pytest.raises(LostConnection) as error:
            list(run.source.read(piece)) if event == "batch" else run.source.advance(run.offset, Limit(), NOW)
        said.append(str(error.value))
    assert len(pauses) == 4
    assert all("PWD=***" in text for text in said)
    assert "s3cr3t" not in caplog.text + "".join(said)


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
    with pytest.raises(PositionMismatch, match="no longer has the commit"):
        run.with_options(hostname=str(old)).batch()


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


def test_several_databases_go_on_when_one_of_them_was_away(database, tmp_path, driver, pauses):
    create(database, "t", "id int not null primary key", [(1,)])
    with EmulatedServer(tmp_path / "server").create_database("stock") as other:
        create(other, "t", "id int not null primary key", [(1,)])
    names = {"driver": "emulator", "hostname": str(tmp_path / "server"), "database.names": "shop,stock"}
    sources = source_named("sqlserver", names).databases()
    driver.fails(CUT, "connect", 1, 3)
    run = Run(database)
    for source in sources.values():
        end = source.advance(run.offset, Limit(), NOW)
        assert [op for op, _, _ in data(rows_of(source, run.offset, end))] == ["r"]
    assert len(pauses) == 2
