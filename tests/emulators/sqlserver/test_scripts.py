"""Scripts run as they are: from the command line, with several statements in a batch, and over catalogs by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.testing.waiting import PATIENCE
from headrace_emulators.sqlserver import EmulatedDatabase, EmulatedServer, connect
from headrace_emulators.sqlserver.__main__ import main
from headrace_emulators.sqlserver.batches import Simple, batches, statements
from headrace_emulators.sqlserver.errors import IntegrityError, ProgrammingError

INPUT = Path(__file__).parents[2] / "golden" / "sqlserver" / "input"
NAMES = ("01_tables", "02_cdc_catalog", "03_base_rows", "04_changes", "05_schema_change", "06_last", "07_signal")
SCRIPTS = [str(INPUT / f"{name}.sql") for name in NAMES]
SIGNALS = "SELECT __$operation, __$update_mask, id, type FROM cdc.dbo_debezium_signal_CT"
NEWEST_WRITTEN = bytes.fromhex("0000002F000000200030")


def test_the_command_runs_all_scripts_and_captures_the_signal(tmp_path: Path) -> None:
    file = tmp_path / "server" / "testDB"
    done = subprocess.run(
        [sys.executable, "-m", "headrace_emulators.sqlserver", str(file), *SCRIPTS, "--capture"],
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"hostname={tmp_path / 'server'} database=testDB driver=emulator" in done.stdout
    with connect({"hostname": str(tmp_path / "server"), "database": "testDB"}) as connection:
        assert connection.execute(SIGNALS).fetchall() == [(2, b"\x07", "ad-hoc-1", "execute-snapshot")]
        rows = connection.execute("SELECT MAX(__$start_lsn) FROM cdc.dbo_debezium_signal_CT").fetchval()
        assert rows > NEWEST_WRITTEN
        assert connection.execute("SELECT COUNT(*) FROM cdc.ddl_history").fetchval() == 1
        assert connection.execute("SELECT COUNT(*) FROM cdc.dbo_customers_CT WHERE __$operation = 2").fetchval() == 5


@pytest.fixture
def written(server: EmulatedServer) -> EmulatedDatabase:
    database = server.create_database("testDB", enable_cdc=False)
    for name in SCRIPTS[:6]:
        database.script(Path(name).read_text("utf-8"))
    return database


def test_rows_are_appended_to_change_tables_written_by_hand(written: EmulatedDatabase) -> None:
    before = written.execute("SELECT COUNT(*) FROM cdc.dbo_customers_CT").fetchval()
    written.execute("UPDATE dbo.customers SET email = 'unseen@x.org' WHERE id = 1001")
    assert written.capture() == 0
    adopted = written.adopt_instances()
    assert "dbo_customers" in adopted and written.adopt_instances() == []
    written.execute("UPDATE dbo.customers SET email = 'seen@x.org' WHERE id = 1001")
    written.execute("INSERT INTO dbo.orders (id, item, qty, note) VALUES (9, 'cup', 1, 'n')")
    assert written.capture() == 2
    rows = written.execute(
        "SELECT __$operation, __$update_mask, email, __$start_lsn FROM cdc.dbo_customers_CT WHERE __$start_lsn > ?"
        " ORDER BY __$operation",
        [NEWEST_WRITTEN],
    ).fetchall()
    assert [r[:3] for r in rows] == [(3, b"\x08", "unseen@x.org"), (4, b"\x08", "seen@x.org")]
    assert written.execute("SELECT COUNT(*) FROM cdc.dbo_customers_CT").fetchval() == before + 2
    mapped = "SELECT tran_id FROM cdc.lsn_time_mapping WHERE start_lsn = ?"
    assert written.execute(mapped, [rows[0][3]]).fetchval() > bytes.fromhex("0000000003F3")
    both = [
        written.execute(f"SELECT COUNT(*) FROM cdc.{name}_CT WHERE item = 'cup'").fetchval()
        for name in ("dbo_orders", "dbo_orders_v2")
    ]
    assert both == [1, 1]


def test_an_idle_mark_comes_after_what_was_written_by_hand(written: EmulatedDatabase) -> None:
    mark = written.mark_idle()
    assert mark > NEWEST_WRITTEN and written.max_lsn() == mark


def test_a_capture_job_runs_over_a_catalog_written_by_hand(written: EmulatedDatabase) -> None:
    with written.capture_job(poll=0.005, idle=None):
        written.script((INPUT / "07_signal.sql").read_text("utf-8"))
        with connect(written.settings) as reader:
            for _ in range(4000):
                if reader.execute(SIGNALS).fetchall():
                    return
    raise AssertionError("the job did not capture the signal")


def test_a_later_run_logs_the_instances_of_an_earlier_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "lab.db")
    assert main([file, *SCRIPTS[:6], "--database", "testDB", "--quiet"]) == 0
    (tmp_path / "more.sql").write_text("DELETE FROM dbo.keyless WHERE a = 1\nGO\n")
    assert main([file, str(tmp_path / "more.sql"), "--capture", "--idle"]) == 0
    shown = capsys.readouterr().out
    assert "database=testDB" in shown and "captured 1 transactions" in shown and "dbo_keyless" in shown
    with connect({"hostname": str(tmp_path), "database": "TESTDB"}) as connection:
        assert connection.execute("SELECT DB_NAME()").fetchval() == "testDB"
        sql = "SELECT COUNT(*) FROM cdc.dbo_keyless_CT WHERE __$start_lsn > ?"
        assert connection.execute(sql, [NEWEST_WRITTEN]).fetchval() == 1


def test_an_error_names_script_line_and_statement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "wrong.sql"
    script.write_text("CREATE TABLE t (a int)\nGO\n\nINSERT INTO t VALUES (1)\nSELECT *\n  FROM missing\nGO\n")
    assert main([str(tmp_path / "db"), str(script)]) == 2
    shown = capsys.readouterr().err
    assert f"{script}, line 5: error 208: Invalid object name 'missing'." in shown
    assert "in: SELECT * FROM missing" in shown
    assert main([str(tmp_path / "db"), str(tmp_path / "absent.sql")]) == 2
    assert "absent.sql" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 2
    (tmp_path / "other.sqlite").write_text("no database")
    assert main([str(tmp_path / "other.sqlite")]) == 2
    assert "is not a database of the emulator" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0 and "DATABASE_FILE" in capsys.readouterr().out


def test_the_agent_is_stopped_and_started_from_the_command(tmp_path: Path) -> None:
    file = str(tmp_path / "db")
    sql = (
        "SELECT s.status_desc, s.status FROM sys.dm_server_services AS s"
        " WHERE s.servicename LIKE N'SQL Server Agent (%'"
    )
    for word, shown in (("stopped", ("Stopped", 1)), ("running", ("Running", 4))):
        assert main([file, "--agent", word, "--quiet"]) == 0
        with connect({"hostname": str(tmp_path), "database": "db"}) as connection:
            assert connection.execute(sql).fetchone() == shown


def test_a_script_may_make_its_databases_and_use_them(tmp_path: Path) -> None:
    script = tmp_path / "shop.sql"
    script.write_text(
        "CREATE DATABASE shop;\nGO\nUSE shop\nEXEC sys.sp_cdc_enable_db\n"
        "CREATE TABLE products (id int IDENTITY(101,1) NOT NULL PRIMARY KEY, name varchar(255) NOT NULL, w float)\n"
        "INSERT INTO products(name, w) VALUES ('scooter', 3.14)\nINSERT INTO products(name) VALUES ('battery')\n"
        "EXEC sys.sp_cdc_enable_table @source_schema = 'dbo', @source_name = 'products', @role_name = NULL,"
        " @supports_net_changes = 0\nGO\n"
    )
    assert main([str(tmp_path / "master2"), str(script), "--quiet"]) == 0
    with connect({"hostname": str(tmp_path), "database": "shop"}) as connection:
        assert connection.execute("SELECT id FROM products ORDER BY id").fetchall() == [(101,), (102,)]


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        ("select 1 select 2", 2),
        ("insert into t select 1 union all select 2 insert t values (1)", 2),
        ("update t set a = case when 1 = 1 then 2 else 3 end set nocount on", 2),
        ("with a as (select 1 x) insert into t select * from a delete from t", 2),
        ("alter table t drop column a alter table t alter column b int", 2),
        ("alter database d set allow_snapshot_isolation on select 1", 2),
        ("grant select, insert on dbo.x to y grant execute on z to y with grant option select 1", 3),
        ("drop table if exists t create table t (a int) truncate table t", 3),
        ("merge t using s on t.a = s.a when matched then update set b = 1; select 1", 2),
    ],
)
def test_statements_need_no_semicolon_between_them(batch: str, count: int) -> None:
    found = statements(batch).statements
    assert len(found) == count and all(isinstance(s, Simple) for s in found)


def test_batches_end_at_go_and_may_be_repeated() -> None:
    found = batches("\ufeffselect 1\ngo\n\nselect 2 -- GO is no end here\nGO 3\n go -- nothing\nselect 3")
    assert [(b.text, b.line, b.times) for b in found] == [
        ("select 1", 1, 1), ("\nselect 2 -- GO is no end here", 3, 3), ("select 3", 7, 1),
    ]  # fmt: skip


def test_variables_conditions_and_loops_run(database: EmulatedDatabase) -> None:
    database.script(
        "CREATE TABLE dbo.n (i int PRIMARY KEY, s nvarchar(10))\n"
        "CREATE SEQUENCE dbo.ids AS int START WITH 5 INCREMENT BY 5\nGO\n"
        "DECLARE @i int = 1, @s nvarchar(10)\n"
        "WHILE @i <= 3 BEGIN SET @s = N'n' + CAST(@i AS nvarchar(5)) INSERT INTO n VALUES (@i, @s) SET @i += 1 END\n"
        "IF EXISTS (SELECT 1 FROM n WHERE i = 3) INSERT INTO n VALUES (NEXT VALUE FOR dbo.ids, N'yes')\n"
        "ELSE INSERT INTO n VALUES (0, N'no')\n"
        "SELECT @s = s FROM n WHERE i = 2\n"
        "INSERT INTO n VALUES (NEXT VALUE FOR dbo.ids, @s)\n"
        "BEGIN TRY INSERT INTO n VALUES (1, N'twice') END TRY\n"
        "BEGIN CATCH INSERT INTO n VALUES (ERROR_NUMBER(), N'caught') END CATCH\n"
    )
    assert database.execute("SELECT i, s FROM n ORDER BY i").fetchall() == [
        (1, "n1"), (2, "n2"), (3, "n3"), (5, "yes"), (10, "n2"), (2627, "caught"),
    ]  # fmt: skip


def test_conditions_and_foreign_keys_are_kept(database: EmulatedDatabase) -> None:
    database.script(
        "CREATE TABLE dbo.parents (id int NOT NULL PRIMARY KEY)\n"
        "CREATE TABLE dbo.children (id int PRIMARY KEY, n int CHECK (n > 0) NULL, parent int NULL,"
        " CONSTRAINT fk FOREIGN KEY (parent) REFERENCES dbo.parents (id) ON DELETE NO ACTION)\n"
        "INSERT INTO parents VALUES (1)\nINSERT INTO children VALUES (1, 5, 1), (2, NULL, NULL)"
    )
    for refused in (
        "INSERT INTO children VALUES (3, 0, 1)",
        "INSERT INTO children VALUES (3, 1, 9)",
        "DELETE FROM parents",
    ):
        with pytest.raises(IntegrityError) as caught:
            database.execute(refused)
        assert caught.value.number == 547
    with pytest.raises(ProgrammingError) as referenced:
        database.execute("DROP TABLE dbo.parents")
    assert referenced.value.number == 3726
    with pytest.raises(ProgrammingError) as missing:
        database.execute("CREATE TABLE dbo.orphans (id int REFERENCES dbo.nowhere (id))")
    assert missing.value.number == 1767
