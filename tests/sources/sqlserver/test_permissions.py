"""Rule: what a login lacks is found by reading, named with the statement that grants it, and nothing else is named."""

from __future__ import annotations

import pytest
from tests.support.sqlserver_runs import NOW, Run, create

from headrace.errors import CaptureError
from headrace.sources.sqlserver import statements
from headrace.sources.sqlserver.connection import SqlServerConnection
from headrace_emulators.sqlserver import EmulatedServer


@pytest.fixture
def database(tmp_path):
    with EmulatedServer(tmp_path / "server").create_database("shop") as made:
        create(made, "t", "id int not null primary key", [(1,)])
        create(made, "order's]", "id int not null primary key", [(1,)])
        yield made


def missing(database, **options):
    source = Run(database, **{"user": "cdc", **options}).source
    return [
        (
            permission.sentence.removeprefix("The login lacks ").rpartition(" (")[0],
            permission.remedy,
            permission.required,
        )
        for permission in source.missing_permissions()
    ]


CASES = [
    ("dbo.t", "the permission SELECT on dbo.t", "Run: GRANT SELECT ON OBJECT::[dbo].[t] TO [cdc].", True),
    (
        "dbo.[order's]]]",
        "the permission SELECT on dbo.order's]",
        "Run: GRANT SELECT ON OBJECT::[dbo].[order's]]] TO [cdc].",
        True,
    ),
    (
        "cdc.dbo_t_CT",
        "the permission SELECT on the change table of 'dbo_t'",
        "Run: GRANT SELECT ON SCHEMA::cdc TO [cdc].",
        True,
    ),
    ("SCHEMA::cdc", "the permission SELECT on cdc.change_tables", "Run: GRANT SELECT ON SCHEMA::cdc TO [cdc].", True),
    ("cdc.ddl_history", "the permission SELECT on cdc.ddl_history", "Run: GRANT SELECT ON SCHEMA::cdc TO [cdc].", True),
    (
        "sys.dm_cdc_log_scan_sessions",
        "the permission VIEW DATABASE STATE",
        "Run: GRANT VIEW DATABASE STATE TO [cdc].",
        False,
    ),
    (
        "sys.dm_server_services",
        "the permission VIEW SERVER STATE",
        "Run in master: GRANT VIEW SERVER STATE TO [cdc].",
        False,
    ),
]


@pytest.mark.parametrize(("denied", "permission", "grant", "required"), CASES, ids=[case[0] for case in CASES])
def test_a_permission_that_is_taken_is_the_one_that_is_missing(database, denied, permission, grant, required):
    assert missing(database) == []
    database.execute(f"DENY SELECT ON {denied} TO cdc")
    assert missing(database) == [(permission, grant, required)]
    database.execute(f"GRANT SELECT ON {denied} TO cdc")
    assert missing(database) == []


def test_tables_that_are_not_meant_need_no_permission(database):
    database.execute("DENY SELECT ON dbo.t TO cdc")
    assert missing(database, tables="dbo.order*") == []


def test_snapshot_isolation_that_is_off(database):
    ((permission, grant, required),) = missing(database, snapshot_isolation_mode="snapshot")
    assert (permission, required) == ("ALLOW_SNAPSHOT_ISOLATION is off in database 'shop'", True)
    assert grant == "Run: ALTER DATABASE [shop] SET ALLOW_SNAPSHOT_ISOLATION ON."
    database.execute("ALTER DATABASE shop SET ALLOW_SNAPSHOT_ISOLATION ON")
    assert missing(database, snapshot_isolation_mode="snapshot") == []


def answering(monkeypatch, answers):
    """A server that answers some statements as the emulator can't."""
    rows = SqlServerConnection.rows

    def answered(connection, sql, parameters=()):
        return answers[sql] if sql in answers else rows(connection, sql, parameters)

    monkeypatch.setattr(SqlServerConnection, "rows", answered)


def test_a_table_that_the_login_does_not_see_in_the_catalog(database, monkeypatch):
    # A real server leaves it out of sys.tables; its capture instance is still listed.
    answering(monkeypatch, {statements.HIDDEN_INSTANCES: [("dbo_secret",)]})
    ((permission, grant, required),) = missing(database)
    assert (permission, required) == ("the permission SELECT on the table of capture instance 'dbo_secret'", False)
    assert "TO [cdc]" in grant


def test_a_signal_table_that_can_not_be_written(database, monkeypatch):
    create(database, "signals", "id varchar(42) not null primary key, type varchar(32), data varchar(2048)")
    assert missing(database, signal_data_collection="dbo.signals") == []
    answering(monkeypatch, {statements.MAY_INSERT: [(0,)]})
    assert missing(database, signal_data_collection="dbo.signals") == [
        ("the permission INSERT on dbo.signals", "Run: GRANT INSERT ON OBJECT::[dbo].[signals] TO [cdc].", False)
    ]


def test_jobs_that_can_not_be_seen(database, monkeypatch):
    rows = SqlServerConnection.rows

    def refused(connection, sql, parameters=()):
        if sql in (statements.JOBS, statements.JOBS_TABLE):
            raise CaptureError("The EXECUTE permission was denied.")
        return rows(connection, sql, parameters)

    monkeypatch.setattr(SqlServerConnection, "rows", refused)
    ((permission, grant, required),) = missing(database)
    assert (permission, required) == ("the permission SELECT on msdb.dbo.cdc_jobs", False)
    assert grant.endswith("GRANT SELECT ON dbo.cdc_jobs TO [cdc].")


def test_a_preview_is_what_the_next_batch_begins_with_and_changes_nothing(database):
    run = Run(database, snapshot_isolation_mode="exclusive")
    first = run.source.preview(run.offset, NOW)
    assert (first.known, sorted(first.tables)) == (("dbo.order's]", "dbo.t"), ["dbo.order's]", "dbo.t"])
    assert run.source.preview(run.offset, NOW) == first
    run.batch()
    assert run.offset == first
    assert run.source.preview(run.offset, NOW).known == first.known
