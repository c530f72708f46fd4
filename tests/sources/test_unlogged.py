"""Rule: a change of rows that no log carries is named as far as a catalog or a statement shows it, with what to do."""

from __future__ import annotations

import pytest
from tests.sources.oracle.runs import Run as OracleRun
from tests.support.sqlserver_runs import Run, create

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.sources.tables.unlogged import by_alteration
from headrace_emulators.oracle import EmulatedOracle
from headrace_emulators.sqlserver import EmulatedServer

ID = Column("id", 1, LogicalType.parse("int32"), "int", nullable=False)


def column(kind="int32", native="int", **facts):
    return Column("c", 2, LogicalType.parse(kind), native, **facts)


def text(length):
    return column("string", "varchar", length=length)


def decimal(digits, scale):
    return column(f"decimal({digits},{scale})", "decimal", length=digits, scale=scale)


CONVERTED = "was {} and is {}: values of rows from before were converted."
DATE = column("date", "date")


def said(before, after, *, late=False):
    def table(more):
        return TableSchema(TableId("shop", "dbo", "t"), (ID, *([] if more is None else [more])), ("id",))

    return [sentence.partition("'dbo.t' ")[2] for sentence in by_alteration(table(before), table(after), late=late)]


@pytest.mark.parametrize(
    ("before", "after", "sentences"),
    [
        (None, column(), []),
        (None, column(default_expression="((5))"), ["is new with the default ((5)): rows from before may have it."]),
        (None, column(nullable=False), ["is new and never NULL: rows from before have values."]),
        (None, column(generated=True), ["is new and computed: rows from before have values."]),
        (column(), None, []),
        (column(), column("int64", "bigint"), []),
        (column("int64", "bigint"), column(), [CONVERTED.format("bigint", "int")]),
        (text(5), text(9), []),
        (text(9), text(5), [CONVERTED.format("varchar(9)", "varchar(5)")]),
        (decimal(9, 2), decimal(9, 3), [CONVERTED.format("decimal(9, 2)", "decimal(9, 3)")]),
        (decimal(9, 2), decimal(10, 3), []),
        (column("timestamp(7)", "datetime2", scale=7), DATE, [CONVERTED.format("datetime2(7)", "date")]),
    ],
)
def test_what_an_alteration_did_to_rows_that_were_there(before, after, sentences):
    assert said(before, after) == sentences


def test_where_capture_of_a_new_column_begins_late_that_is_said_too():
    sentence = "is captured from now on: rows from before may have values."
    assert said(None, column(), late=True) == [sentence]
    assert said(column(), column(), late=True) == []


def test_it_is_said_when_the_new_schema_is_read(tmp_path, caplog):
    with EmulatedServer(tmp_path / "server").create_database("shop") as database:
        create(database, "t", "id int not null primary key", [(1,)])
        run = Run(database)
        run.all()
        database.execute("ALTER TABLE dbo.t ADD unlogged_one int NOT NULL DEFAULT 5")
        database.execute("EXEC sys.sp_cdc_enable_table 'dbo', 't', 'dbo_t_2', @role_name = NULL")
        database.execute("INSERT INTO dbo.t VALUES (2, 6)")
        database.capture()
        run.all()
        assert caplog.text.count("Column 'unlogged_one' of table 'dbo.t' is new with the default ((5))") == 1
        assert "headrace repair reread <pipeline> dbo.t" in caplog.text


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
