"""Rule: scenarios run on a real server by what a server can do. As there is none here, the emulator stands in for it
behind the same driver's interface, and says nothing of what a server would answer."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
import yaml
from tests.live.server import LiveDatabase, LiveServer, settings_from
from tests.sources.sqlserver import test_incremental as incremental
from tests.sources.sqlserver import test_modes as modes
from tests.sources.sqlserver import test_schema_changes as schema_changes
from tests.sources.sqlserver import test_source as source
from tests.sources.sqlserver import test_transactions as transactions

from headrace import registry
from headrace_emulators.sqlserver import EmulatedServer, capture, connect
from headrace_emulators.sqlserver.server import EmulatedDatabase

MODULES = (source, modes, schema_changes, transactions, incremental)
SETTINGS = {"driver": "mssql-python", "hostname": "db", "port": "1433", "user": "sa", "password": "p@ss/word"}


def scenarios(module):
    """The tests of a module that run on a real server too, by name."""
    for name, function in inspect.getmembers(module, inspect.isfunction):
        marks = [mark.name for mark in getattr(function, "pytestmark", [])]
        if name.startswith("test_") and "emulated" not in marks:
            given = set(inspect.signature(function).parameters)
            if given & {"database", "server"}:
                yield name, function, given, marks


# The address.


def test_the_environment_names_the_server():
    url = "sqlserver://sa:p%40ss%2Fword@db:1433?trust_server_certificate=yes&encrypt=strict"
    more = {"trust_server_certificate": "yes", "encrypt": "strict"}
    assert settings_from({"HEADRACE_SQLSERVER_URL": url}) == SETTINGS | more
    assert settings_from({}) is None
    for wrong in ("db:1433", "mssql://db", "sqlserver://db/shop"):
        with pytest.raises(ValueError, match="HEADRACE_SQLSERVER_URL has the form sqlserver://"):
            settings_from({"HEADRACE_SQLSERVER_URL": wrong})


def test_the_container_has_an_agent_and_asks_for_the_licence():
    services = yaml.safe_load((Path(__file__).parent / "compose.yaml").read_text("utf-8"))["services"]
    environment = services["sqlserver"]["environment"]
    assert environment["MSSQL_AGENT_ENABLED"] == "true"
    assert environment["ACCEPT_EULA"].startswith("${ACCEPT_EULA:?")
    assert environment["MSSQL_SA_PASSWORD"].startswith("${MSSQL_SA_PASSWORD:?")


# What tests may ask of a database.


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_scenarios_that_are_not_marked_ask_for_what_a_server_can_do(module):
    found = list(scenarios(module))
    assert found
    able = set(dir(LiveDatabase)) | {"settings"}
    helpers = [f for n, f in inspect.getmembers(module, inspect.isfunction) if not n.startswith("test_")]
    helpers = [f for f in helpers if f.__module__ == module.__name__ and f.__name__ not in ("clean", "questions")]
    for function in (*(function for _, function, _, _ in found), *helpers):
        text = inspect.getsource(function)
        used = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
        assert {n.attr for n in used if n.value.id in ("database", "other")} <= able, function.__name__
        assert "QUERY_LOG" not in text, function.__name__


def test_the_emulator_takes_what_a_live_database_takes():
    for name, method in inspect.getmembers(LiveDatabase, inspect.isfunction):
        if not name.startswith("_"):
            own = set(inspect.signature(method).parameters)
            assert own <= set(inspect.signature(getattr(EmulatedDatabase, name)).parameters), name


# The stand-in.


class StandIn:
    """The emulator as a server: what a capture job does by itself there, a procedure does here."""

    def __init__(self, directory):
        self.server = EmulatedServer(directory)
        self.server.create_database("master", enable_cdc=False).close()
        self.asked = []

    def connect(self, settings):
        return StandInConnection(self, connect({**settings, "hostname": str(self.server.directory)}))


class StandInConnection:
    def __init__(self, server, connection):
        self.server = server
        self.connection = connection

    def cursor(self):
        return StandInCursor(self.server, self.connection)

    def close(self):
        self.connection.close()


class StandInCursor:
    def __init__(self, server, connection):
        self.server = server
        self.connection = connection
        self.real = connection.cursor()

    def execute(self, tsql, *parameters):
        if "sp_cdc_scan" in tsql:
            if self.server.asked.count("busy"):
                self.server.asked.remove("busy")
                raise RuntimeError("Another connection is already running 'sp_replcmds' for Change Data Capture.")
            storage = self.connection.session.storage
            # It waits for nothing, so a scan ends later than what a reader saw by its clock.
            clock, storage.clock = storage.clock, incremental.ahead
            capture.capture(storage)
            storage.clock = clock
        elif "sp_cdc_add_job" not in tsql:
            self.real.execute(tsql, *parameters)
        self.server.asked.append(tsql)
        return self

    def __getattr__(self, name):
        return getattr(self.real, name)


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    made = StandIn(tmp_path / "server")
    find = registry.find
    monkeypatch.setattr(
        registry, "find", lambda kind, name: made.connect if name == "mssql-python" else find(kind, name)
    )
    return made


@pytest.fixture
def live(stand_in):
    server = LiveServer(SETTINGS)
    yield server
    server.close()


def rehearsed():
    for module in MODULES:
        for name, function, given, marks in scenarios(module):
            if given <= {"database", "server", "gates"} and "parametrize" not in marks:
                yield pytest.param(function, given, id=name.removeprefix("test_"))


@pytest.mark.smoke("*schema_that_changes*", "*several_chunks*", "*pause_resume*")
@pytest.mark.parametrize(("scenario", "given"), list(rehearsed()))
def test_a_scenario_runs_by_the_interface_of_a_live_server(monkeypatch, live, scenario, given):
    module = inspect.getmodule(scenario)
    drivers = []

    class LiveRun(module.Run):
        def __init__(self, database, **options):
            super().__init__(database, **options)
            drivers.append(self.options["driver"])

    monkeypatch.setattr(module, "Run", LiveRun)
    with live.create_database("shop") as database:
        if module is incremental:
            incremental.signal_table(database)
        if module is transactions:
            inspect.unwrap(transactions.database)(database)
        gates = incremental.Gates(database)
        monkeypatch.setattr("headrace.faultpoints.reach", gates.reach)
        scenario(**{name: {"database": database, "server": live, "gates": gates}[name] for name in given})
    assert set(drivers) <= {"mssql-python"}


def test_databases_of_a_test_that_was_killed_are_made_anew_and_others_are_left_alone(stand_in, live):
    LiveServer(SETTINGS).create_database("shop")
    with live.create_database("shop") as database:
        assert database.execute("SELECT COUNT(*) FROM sys.tables AS t WHERE t.name = 'x'").fetchval() == 0
    stand_in.server.create_database("mine").close()
    with pytest.raises(AssertionError, match="has a database 'mine' that these tests did not make"):
        live.create_database("mine")
    live.close()
    assert {path.name.partition(".")[0] for path in stand_in.server.directory.iterdir()} == {"master", "mine"}


def test_a_capture_job_that_runs_after_all_is_stopped(stand_in, live):
    database = live.create_database("shop")
    stand_in.asked.append("busy")
    database.capture()
    assert [text for text in stand_in.asked if "sp_cdc_s" in text][-2:] == [
        "EXEC sys.sp_cdc_stop_job @job_type = N'capture'",
        "EXEC sys.sp_cdc_scan @continuous = 0",
    ]
