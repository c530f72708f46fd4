"""Rule: what passes is tried again a bounded number of times without a repeated row; nothing waits for ever.

Logins, statements and reads fail at the driver's border; nobody waits for the pauses between attempts.
"""

from __future__ import annotations

import sys
import types

import pytest
from tests.faults.faulty_driver import DriverError, FaultyDriver
from tests.support.sqlserver_faults import CUT, NOW, run_before, the_slice
from tests.support.sqlserver_runs import Run, create, data, rows_of

from headrace.errors import ConnectError, HeadraceError
from headrace.sources import retries
from headrace.sources.base import Limit
from headrace.sources.change_tables.connection import MissingObject, PassingRefusal, StatementError
from headrace.sources.connection import LostConnection
from headrace.sources.reader import source_named
from headrace.sources.retries import Retries
from headrace.sources.sqlserver import driver as real_driver
from headrace_emulators.sqlserver import EmulatedServer

DEADLOCK = DriverError("Serialization failure", "Transaction was deadlocked on lock resources; chosen as the victim.")


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


def positions(batches):
    return [(row["op"], row["position"], row["key_text"]) for batch in batches for row in batch.to_pylist()]


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


@pytest.mark.parametrize("kind", ["stream", "transactions"])
def test_changes_that_are_cleaned_while_a_cut_read_waits_are_a_gap_all_the_same(database, driver, monkeypatch, kind):
    run = run_before(database, kind, fail_on_data_loss="false")
    piece = the_slice(run, kind)
    driver.fails(CUT, "batch", 4, containing="[id]")

    def clean_up(seconds):
        driver.happens = lambda event, sql: None
        database.mark_idle()
        database.cleanup(low_lsn=database.max_lsn())

    monkeypatch.setattr(retries, "time", types.SimpleNamespace(sleep=clean_up))
    found = positions(run.source.read(piece))
    assert [op for op, _, _ in found].count("u") > 0
    assert [op for op, _, _ in found].count("gap") == 1
    assert len(set(found)) == len(found)


def test_a_chunk_that_is_cut_is_read_again_by_itself_only_while_no_row_was_given(database, driver, pauses):
    run = run_before(database, "snapshot")
    piece = the_slice(run, "snapshot")
    whole = positions(run.source.read(piece))
    driver.fails(CUT, "execute", 1, containing="FROM [dbo].[t]")
    assert positions(run.source.read(piece)) == whole
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
        # The login's language decides in which one the server speaks.
        (DriverError("Serialization failure", "Das Deadlockopfer ist diese Transaktion."), PassingRefusal),
        (
            DriverError("Base table or view not found", "Ung\u00fcltiger Objektname 'cdc.t_CT'."),
            MissingObject,
        ),
        (Numbered(208), MissingObject),
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
    place = database.name if kind is MissingObject else str(database.path.parent)
    assert f"'{place}'" in str(found.value)


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
