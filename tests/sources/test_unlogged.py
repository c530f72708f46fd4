"""Rule: a change of rows that no log carries is named as far as a catalog or a statement shows it, with what to do."""

from __future__ import annotations

from tests.sources.oracle.runs import Run as OracleRun
from tests.support.sqlserver_runs import Run

from headrace_emulators.oracle import EmulatedOracle
from headrace_emulators.sqlserver import EmulatedServer


def test_sql_server_tables_whose_partitions_can_be_switched(tmp_path):
    with EmulatedServer(tmp_path / "server").create_database("shop") as database:
        for name in ("whole", "parts", "fixed"):
            database.execute(f"CREATE TABLE dbo.{name} (id int not null primary key)")
            switch = int(name != "fixed")
            database.execute(
                f"EXEC sys.sp_cdc_enable_table 'dbo', '{name}', @role_name = NULL, @allow_partition_switch = {switch}"
            )
        for name in ("parts", "fixed"):
            number = database.execute(f"SELECT OBJECT_ID('dbo.{name}')").fetchval()
            database.session.storage.set_state(f"partitions.{number}", "3")
        [found] = Run(database).source.unlogged()
        assert (found.table, "SWITCH" in found.sentence) == ("dbo.parts", True)
        assert list(Run(database, tables="dbo.whole").source.unlogged()) == []


def test_oracle_tables_that_do_not_log(tmp_path):
    with EmulatedOracle(tmp_path / "server") as database:
        for name in ("A", "B"):
            database.run(f"CREATE TABLE {name} (ID NUMBER(4) NOT NULL PRIMARY KEY)")
        database.run("ALTER TABLE A NOLOGGING")
        run = OracleRun(database)
        [found] = run.source.unlogged()
        assert (found.table, "FORCE LOGGING" in found.remedy) == ("SHOP.A", True)
        database.set_fact("force_logging", "YES")
        assert list(run.source.unlogged()) == []
