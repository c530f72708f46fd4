"""Rule: a table is what its name means at each moment of the log, however a statement spells the name."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.captured_mysql import CapturedMysql
from tests.support.mysql import mysql_like, needs_mariadb

from headrace.errors import CaptureError
from headrace.testing.captured_database import data
from headrace_emulators.mysql.server import MARIADB, MySqlDatabase

T = "id int not null primary key, v varchar(20)"


@pytest.fixture
def database(binlog_database: MySqlDatabase) -> CapturedMysql:
    return CapturedMysql(binlog_database)


def changes(rows: list[dict[str, Any]], table: str = "t") -> list[tuple[str, int]]:
    return [(op, int(row["id"])) for op, name, row in data(rows) if name == table]


@pytest.mark.parametrize(
    "statements",
    [
        ["RENAME TABLE t TO bak, staging TO t"],
        ["RENAME TABLE t TO bak", "ALTER TABLE staging RENAME TO t"],
        ["RENAME TABLE t TO bak", "CREATE TABLE t LIKE bak", "INSERT INTO t VALUES (7, 'x')"],
    ],
    ids=["at once", "one by one", "made anew"],
)
def test_another_table_under_a_captured_name_is_read(database: CapturedMysql, statements: list[str]) -> None:
    database.create("t", T, [(1, "a"), (2, "b")])
    database.create("staging", T, [(7, "x")])
    run = database.run(tables=f"{database.schema}.t")
    run.all()
    for statement in statements:
        database.execute(statement)
    rows = run.all()
    database.insert("t", 8, "y")
    rows += run.all()
    assert ("r", 7) in changes(rows)
    assert changes(rows)[-1] == ("c", 8)


@pytest.mark.parametrize(("columns", "row", "is_read"), [(T, ("b",), False), (f"{T}, w int", ("b", 6), True)])
def test_a_table_that_a_tool_for_schema_changes_replaces_is_read_again_unless_it_is_the_same(
    database: CapturedMysql, columns: str, row: tuple[Any, ...], is_read: bool
) -> None:
    database.create("t", T, [(1, "a")])
    run = database.run(tables=f"{database.schema}.t")
    run.all()
    database.create("_t_gho", columns, [(1, *row)])
    database.execute("RENAME TABLE t TO _t_del, _t_gho TO t")
    database.insert("t", 2, *row)
    assert changes(run.all()) == [("c", 2), *([("r", 1), ("r", 2)] if is_read else [])]


def test_rows_of_a_table_that_is_made_are_read_where_no_snapshot_is(database: CapturedMysql) -> None:
    database.create("t", T)
    run = database.run(snapshot_mode="no_data")
    run.all()
    database.execute(f"CREATE TABLE u ({T})")
    database.insert("u", 1, "a")
    rows = run.all()
    database.insert("u", 2, "b")
    assert changes(rows + run.all(), "u") == [("c", 1), ("c", 2)]


def test_a_statement_is_read_in_the_character_set_of_its_client(database: CapturedMysql) -> None:
    database.create("tä", T, [(1, "a")])
    run = database.run()
    run.all()
    with database.database.connect(charset="latin1") as connection, connection.cursor() as cursor:
        cursor.execute("TRUNCATE TABLE tä")
    assert "t" in [row["op"] for row in run.all()]


@needs_mariadb
def test_statements_spell_names_in_any_case_where_the_server_takes_that() -> None:
    with mysql_like(MARIADB, lower_case_table_names="1") as server:
        database = CapturedMysql(server.new_database())
        database.create("t", T, [(1, "a")])
        run = database.run()
        run.all()
        database.execute(f"TRUNCATE TABLE {database.schema.upper()}.T")
        assert "t" in [row["op"] for row in run.all()]
        database.execute("DROP TABLE T")
        database.execute(f"CREATE TABLE T ({T})")
        database.execute("INSERT INTO T VALUES (5, 'e')")
        assert ("r", 5) in changes(run.all())


def test_a_column_that_mariadb_hides_is_no_column_of_changes(mariadb_database: MySqlDatabase) -> None:
    database = CapturedMysql(mariadb_database)
    database.execute("CREATE TABLE t (id int not null primary key, b text not null, unique (b))")
    run = database.run()
    run.all()
    database.insert("t", 1, "a")
    assert [row for _, _, row in data(run.all())] == [{"id": "1", "b": "a"}]


def test_a_table_with_versions_of_its_rows_is_refused_and_never_left_out_in_silence(
    mariadb_database: MySqlDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    database = CapturedMysql(mariadb_database)
    database.create("u", T)
    database.execute(f"CREATE TABLE t ({T}) WITH SYSTEM VERSIONING")
    with pytest.raises(CaptureError, match="keeps versions of its rows"):
        database.run(tables=f"{database.schema}.t").all()
    database.run().all()
    assert "keeps versions of its rows" in caplog.text


def test_two_tables_with_one_path_are_told_apart_or_refused(database: CapturedMysql) -> None:
    name, server = database.schema, database.database.server
    server.run(f"CREATE DATABASE `{name}.b`; CREATE TABLE `{name}.b`.c (id int primary key)", database=None)
    try:
        database.execute("CREATE TABLE `b.c` (id int primary key)")
        database.insert("`b.c`", 2)
        assert changes(database.run().all(), "b.c") == [("r", 2)]
        with pytest.raises(CaptureError, match=f"Two tables are called '{name}.b.c'"):
            database.run(databases=f"{name},{name}.b").all()
    finally:
        server.run(f"DROP DATABASE `{name}.b`", database=None)
