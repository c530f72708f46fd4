"""What a source asks of a server beside rows: locks, isolation, jobs, the Agent, other databases; what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_emulators.sqlserver import EmulatedDatabase, EmulatedServer, connect
from headrace_emulators.sqlserver.errors import DatabaseError, Error

SENT = (
    "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET LOCK_TIMEOUT 10000",
    "SELECT TOP (1) 1 AS [one] FROM [dbo].[items] WITH (TABLOCKX) OPTION (EXPAND VIEWS)",
    "SELECT * FROM [dbo].[items] WITH (TABLOCK, HOLDLOCK)",
    "BEGIN TRANSACTION; SELECT 1; COMMIT TRANSACTION",
    "BEGIN TRANSACTION; SELECT 1; ROLLBACK TRANSACTION",
    "SELECT x.id FROM (SELECT i.id FROM dbo.items AS i ORDER BY i.id OFFSET 0 ROWS) AS x",
    "SELECT source_object_id, object_id, required_column_update, ddl_command, ddl_lsn, ddl_time FROM cdc.ddl_history",
    "SELECT u.used_log_space_in_bytes FROM sys.dm_db_log_space_usage AS u",
    "SELECT SYSDATETIME(), SYSDATETIMEOFFSET()",
    "SELECT SERVERPROPERTY('ProductVersion'), SERVERPROPERTY('EngineEdition')",
    "EXEC sys.sp_cdc_get_ddl_history N'dbo_items'",
    "EXEC sys.sp_cdc_get_captured_columns N'dbo_items'",
    "SELECT session_id, start_time, end_time, duration, scan_phase, error_count, start_lsn, end_lsn, current_lsn,"
    " last_commit_lsn, last_commit_time, empty_scan_count, latency FROM sys.dm_cdc_log_scan_sessions",
)


def _number(database: EmulatedDatabase, sql: str, *parameters: Any) -> int:
    with pytest.raises(Error) as caught:
        database.execute(sql, parameters).fetchall()
    return caught.value.number


@pytest.mark.parametrize("sql", SENT)
def test_what_sources_send_runs(items: EmulatedDatabase, sql: str) -> None:
    items.execute(sql)


def test_snapshot_isolation_must_be_allowed_first(items: EmulatedDatabase) -> None:
    state = "SELECT snapshot_isolation_state, snapshot_isolation_state_desc FROM sys.databases WHERE name = DB_NAME()"
    assert items.execute(state).fetchone() == (0, "OFF")
    with items.connect() as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL SNAPSHOT")
        with pytest.raises(DatabaseError) as caught:
            reader.execute("SELECT * FROM dbo.items")
        assert caught.value.number == 3952
        items.execute("ALTER DATABASE testDB SET ALLOW_SNAPSHOT_ISOLATION ON")
        reader.execute("BEGIN TRANSACTION")
        assert reader.execute("SELECT COUNT(*) FROM dbo.items").fetchval() == 0
        items.execute("INSERT INTO items VALUES (1, 'a', 1)")
        assert reader.execute("SELECT COUNT(*) FROM dbo.items").fetchval() == 0
        reader.execute("COMMIT")
        assert reader.execute("SELECT COUNT(*) FROM dbo.items").fetchval() == 1
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; BEGIN TRANSACTION")
        reader.execute("SELECT * FROM dbo.items").fetchall()
        reader.execute("SET TRANSACTION ISOLATION LEVEL SNAPSHOT")
        with pytest.raises(DatabaseError) as caught:
            reader.execute("SELECT * FROM dbo.items")
        assert caught.value.number == 3951
    assert items.execute(state).fetchone() == (1, "ON")


def test_a_savepoint_undoes_a_part_of_a_transaction(items: EmulatedDatabase) -> None:
    items.execute(
        "BEGIN TRANSACTION; INSERT INTO items VALUES (1, 'a', 1); SAVE TRANSACTION half; DELETE FROM items;"
        " INSERT INTO items VALUES (2, 'b', 1); ROLLBACK TRANSACTION half; COMMIT"
    )
    assert items.execute("SELECT id FROM items").fetchall() == [(1,)]
    items.capture()
    assert items.execute("SELECT __$operation, id FROM cdc.dbo_items_CT").fetchall() == [(2, 1)]
    assert _number(items, "BEGIN TRANSACTION; ROLLBACK TRANSACTION nowhere") == 6401
    items.session.storage.rollback()
    assert _number(items, "SAVE TRANSACTION alone") == 628


def test_jobs_are_shown_and_changed(items: EmulatedDatabase) -> None:
    items.execute("EXEC sys.sp_cdc_change_job @job_type = N'cleanup', @retention = 60")
    jobs = {row[1]: row for row in items.execute("EXEC sys.sp_cdc_help_jobs").fetchall()}
    assert jobs["capture"][3:7] == (500, 10, True, 5) and jobs["cleanup"][7] == 60
    table = "SELECT j.job_type, j.retention FROM msdb.dbo.cdc_jobs AS j WHERE j.database_id = DB_ID() ORDER BY 1"
    assert items.execute(table).fetchall() == [("capture", 0), ("cleanup", 60)]


def test_a_stopped_agent_captures_nothing(server: EmulatedServer, items: EmulatedDatabase) -> None:
    server.set_agent(running=False)
    assert _number(items, "EXEC sys.sp_cdc_start_job") == 22022
    items.execute("INSERT INTO items VALUES (1, 'a', 1)")
    count = "SELECT COUNT(*) FROM cdc.dbo_items_CT"
    scans = "SELECT COUNT(*) FROM sys.dm_cdc_log_scan_sessions"
    before = items.execute(scans).fetchval()
    with items.capture_job(poll=0.001):
        for _ in range(50):
            assert items.execute(count).fetchval() == 0
        assert items.execute(scans).fetchval() == before
        server.set_agent(running=True)
        for _ in range(5000):
            if items.execute(count).fetchval():
                return
    raise AssertionError("the Agent was started and nothing was captured")


def test_another_database_of_the_server_is_read_by_its_name(server: EmulatedServer, items: EmulatedDatabase) -> None:
    items.execute("INSERT INTO items VALUES (1, 'a', 1)")
    items.capture()
    with server.create_database("second", enable_cdc=False) as second:
        assert second.execute("SELECT [testDB].sys.fn_cdc_get_max_lsn()").fetchval() == items.max_lsn()
        start = second.execute("SELECT [testDB].sys.fn_cdc_get_min_lsn(N'dbo_items')").fetchval()
        changes = "SELECT id FROM [testDB].cdc.fn_cdc_get_all_changes_dbo_items(?, ?, N'all')"
        assert second.execute(changes, [start, items.max_lsn()]).fetchall() == [(1,)]
        assert second.execute("SELECT c.id FROM [testDB].[cdc].[dbo_items_CT] AS c").fetchall() == [(1,)]
        shown = second.execute("EXEC [testDB].sys.sp_cdc_help_change_data_capture").fetchall()
        assert [row[2] for row in shown] == ["dbo_items"]
        # What changes there later is seen without a new connection.
        items.execute("CREATE TABLE dbo.later (x int)")
        assert second.execute("SELECT COUNT(*) FROM [testDB].dbo.later").fetchval() == 0
        assert second.execute("USE [testDB] SELECT DB_NAME() USE second").fetchval() == "testDB"


def test_a_change_function_refuses_ranges_it_does_not_have(items: EmulatedDatabase) -> None:
    items.execute("INSERT INTO items VALUES (1, 'a', 1)")
    items.execute("UPDATE items SET name = 'b'")
    items.capture()
    sql = "SELECT __$operation FROM cdc.fn_cdc_get_all_changes_dbo_items(?, ?, N'{}')"
    start = items.execute("SELECT sys.fn_cdc_get_min_lsn('dbo_items')").fetchval()
    newest = items.max_lsn()
    assert newest is not None
    assert items.execute(sql.format("all"), [start, newest]).fetchall() == [(2,), (4,)]
    assert items.execute(sql.format("all update old"), [start, newest]).fetchall() == [(2,), (3,), (4,)]
    above = (int.from_bytes(newest, "big") + 1).to_bytes(10, "big")
    for low, high, option in (
        (bytes(9) + b"\1", newest, "all"), (start, above, "all"), (newest, start, "all"), (start, newest, "some"),
    ):  # fmt: skip
        assert _number(items, sql.format(option), low, high) == 313


def test_definitions_that_capture_forbids_are_refused(items: EmulatedDatabase) -> None:
    assert _number(items, "TRUNCATE TABLE dbo.items") == 4711
    assert _number(items, "ALTER TABLE dbo.items ALTER COLUMN name varchar(40) NULL") == 4928
    assert _number(items, "EXEC sp_rename 'dbo.items.name', 'label', 'COLUMN'") == 4928
    items.execute("EXEC sys.sp_cdc_enable_table 'dbo', 'items', 'items_2', @role_name = NULL")
    assert _number(items, "EXEC sys.sp_cdc_enable_table 'dbo', 'items', 'items_3', @role_name = NULL") == 22962
    assert _number(items, "SELECT x.id FROM (SELECT i.id FROM dbo.items AS i ORDER BY i.id) AS x") == 1033
    items.execute("ALTER TABLE dbo.items ADD extra int NULL")
    items.execute("EXEC sp_rename 'dbo.items.extra', 'more', 'COLUMN'")
    items.execute("ALTER TABLE dbo.items DROP COLUMN more")
    history = items.execute("SELECT ddl_command, ddl_lsn FROM cdc.ddl_history").fetchall()
    assert len(history) == 4 and len({lsn for _, lsn in history}) == 2


def test_types_of_captured_columns_change_when_that_is_allowed(items: EmulatedDatabase) -> None:
    items.allow_type_changes()
    items.execute("ALTER TABLE dbo.items ALTER COLUMN name varchar(40) NULL")
    length = "SELECT max_length FROM sys.columns WHERE object_id = OBJECT_ID('cdc.dbo_items_CT') AND name = 'name'"
    assert items.execute(length).fetchval() == 40
    assert items.execute("SELECT required_column_update FROM cdc.ddl_history").fetchval() is True


def test_dropping_a_captured_table_drops_its_instances(items: EmulatedDatabase) -> None:
    items.execute("INSERT INTO items VALUES (1, 'a', 1)")
    items.execute("DROP TABLE dbo.items")
    assert items.execute("SELECT COUNT(*) FROM cdc.change_tables").fetchval() == 0
    assert _number(items, "SELECT * FROM cdc.dbo_items_CT") == 208
    items.execute("CREATE TABLE dbo.items (id int PRIMARY KEY)")
    items.execute("EXEC sys.sp_cdc_enable_table 'dbo', 'items', @role_name = NULL")
    items.execute("INSERT INTO items VALUES (5)")
    items.capture()
    assert items.execute("SELECT id FROM cdc.dbo_items_CT").fetchall() == [(5,)]


def test_a_revoked_select_names_the_object(server: EmulatedServer, items: EmulatedDatabase) -> None:
    with connect({"hostname": str(server.directory), "database": "testDB", "user": "reader"}) as reader:
        permitted = "SELECT HAS_PERMS_BY_NAME(N'cdc', N'SCHEMA', N'SELECT')"
        assert reader.execute(permitted).fetchval() == 1
        items.execute("REVOKE SELECT ON SCHEMA::cdc FROM reader")
        assert reader.execute(permitted).fetchval() == 0
        with pytest.raises(DatabaseError, match=r"on the object 'change_tables', database 'testDB', schema 'cdc'") as e:
            reader.execute("SELECT * FROM cdc.change_tables")
        assert e.value.number == 229
        items.execute("GRANT SELECT ON SCHEMA::cdc TO reader")
        assert reader.execute(permitted).fetchval() == 1
        reader.execute("SELECT * FROM cdc.change_tables")
        items.execute("REVOKE SELECT ON dbo.items FROM reader")
        with pytest.raises(DatabaseError, match="on the object 'items'"):
            reader.execute("SELECT * FROM dbo.items")


def test_a_signal_is_inserted_with_parameters(database: EmulatedDatabase) -> None:
    database.execute("CREATE TABLE dbo.sigtable (id varchar(42) PRIMARY KEY, type varchar(32), data varchar(2048))")
    values = ("1", "log", '{"message": "at {}"}')
    database.execute("INSERT INTO sigtable (id, type, data) VALUES (?, ?, ?)", values)
    assert database.execute("SELECT * FROM sigtable").fetchone() == values
