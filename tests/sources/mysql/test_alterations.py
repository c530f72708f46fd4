"""Rule: no statement stops all tables for good: it is followed, or a repair leaves out what can't be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.captured_mysql import CapturedMysql
from tests.support.mysql import mysql_like, needs_mariadb

from headrace.apply.column_names import Step, steps_of
from headrace.errors import CaptureError
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.catalog import TableSet
from headrace.sources.signal_files import write_file
from headrace.sources.signals import Signal, signal_data
from headrace.sources.table_versions import TableMove
from headrace.testing.captured_database import replay
from headrace.testing.sources import Row
from headrace_emulators.mysql.server import MARIADB, MySqlDatabase

T = "id INT PRIMARY KEY, v INT"
VERSIONED = (
    "ALTER TABLE t ADD SYSTEM VERSIONING",
    "DELETE FROM t WHERE id = 1",
    "ALTER TABLE t DROP SYSTEM VERSIONING",
)


@pytest.fixture
def mariadb(mariadb_database: MySqlDatabase) -> CapturedMysql:
    return CapturedMysql(mariadb_database)


def definitions(rows: list[Row]) -> list[str]:
    """The statements that changes of schemas have."""
    return [dict(row["source"])["ddl"] for row in rows if row["op"] == "schema" and "ddl" in dict(row["source"])]


def test_an_alter_in_two_phases_is_one_change_of_the_schema_and_none_where_it_fails(mariadb: CapturedMysql) -> None:
    mariadb.create("t", T, [(1, 5), (2, 5)])
    run = mariadb.run()
    rows = run.all()
    with mariadb.database.connect() as session, session.cursor() as cursor:
        cursor.execute("SET SESSION binlog_alter_two_phase = 1")
        with pytest.raises(Exception, match="Duplicate entry"):
            cursor.execute("ALTER TABLE t ADD UNIQUE (v), ALGORITHM=COPY")
        cursor.execute("ALTER TABLE t ADD w INT, ALGORITHM=COPY")
        cursor.execute("UPDATE t SET w = 9")
    rows += run.all()
    assert definitions(rows) == ["ALTER TABLE t ADD w INT, ALGORITHM=COPY"]
    assert replay(rows)["t", '["2"]'] == {"id": "2", "v": "5", "w": "9"}


def skip(run: Any, path: str, folder: Path) -> None:
    """What `headrace repair skip --to now` sends."""
    plan = run.source.move(TableMove(path, "skip", "now"), run.offset)
    write_file(folder, Signal("s", "skip-changes", signal_data("skip-changes", [path], position=plan.move.to)))


@pytest.mark.parametrize(
    ("metadata", "statements", "sentence"),
    [
        (
            "FULL",
            VERSIONED,
            "kept versions of its rows",
        ),
        (
            "NO_LOG",
            VERSIONED,
            "does not name the columns",
        ),
        (
            "FULL",
            ("ALTER TABLE t ADD x UUID, UNION=(u)", "UPDATE t SET x = UUID()", "ALTER TABLE t CHANGE x y UUID"),
            "of which type column 'x'",
        ),
    ],
)
def test_a_repair_gets_past_rows_that_can_not_be_read_and_the_other_tables_go_on(
    mariadb: CapturedMysql, tmp_path: Path, metadata: str, statements: tuple[str, ...], sentence: str
) -> None:
    mariadb.create("t", T, [(1, 5), (2, 5)])
    mariadb.create("u", T)
    run = mariadb.run(signal_path=str(tmp_path))
    rows = run.all()
    with mariadb.database.server.changed(binlog_row_metadata=metadata):
        for statement in statements:
            mariadb.execute(statement)
        mariadb.insert("u", 1, 1)
        for _ in range(2):
            with pytest.raises(CaptureError, match=sentence) as error:
                run.restarted().all()
        path = f"{mariadb.schema}.t"
        assert f"headrace repair skip <pipeline> {path} --to now" in error.value.remedy
        skip(run, path, tmp_path)
        rows += run.restarted().all()
        mariadb.execute("UPDATE t SET v = 7 WHERE id = 2")
        rows += run.all()
    assert replay(rows)["u", '["1"]'] == {"id": "1", "v": "1"}
    assert replay(rows)["t", '["2"]']["v"] == "7"


def test_a_table_that_keeps_versions_is_not_captured_and_stops_nothing(mariadb: CapturedMysql) -> None:
    mariadb.create("t", T, [(1, 5)])
    mariadb.create("u", T)
    run = mariadb.run()
    rows = run.all()
    mariadb.execute("ALTER TABLE t ADD SYSTEM VERSIONING")
    mariadb.execute("UPDATE t SET v = 6")
    mariadb.insert("u", 1, 1)
    rows += run.all()
    assert replay(rows)["u", '["1"]'] == {"id": "1", "v": "1"}
    mariadb.execute("ALTER TABLE t DROP SYSTEM VERSIONING")
    rows += run.all()
    assert replay(rows)["t", '["1"]'] == {"id": "1", "v": "6"}


@pytest.mark.parametrize("altered", ["t", "u"])
def test_a_table_that_is_in_no_catalog_for_a_moment_stays_captured(
    mariadb: CapturedMysql, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, altered: str
) -> None:
    for table in "tu":
        mariadb.create(table, T, [(1, 5)])
    run = mariadb.run()
    rows = run.all()
    captured, lacks = TableSet.captured, [True, True]

    def as_shown(*args: Any, **options: Any) -> dict[str, MysqlTable]:
        found = captured(*args, **options)
        if lacks:
            found.pop(f"{mariadb.schema}.t")
            lacks.pop()
        return found

    monkeypatch.setattr(TableSet, "captured", as_shown)
    mariadb.execute(f"ALTER TABLE {altered} ADD w INT")
    mariadb.execute("UPDATE t SET v = 6")
    rows += run.all()
    assert lacks == []
    assert replay(rows)["t", '["1"]']["v"] == "6"
    assert "is not captured any more" not in caplog.text


@pytest.mark.system
@needs_mariadb
def test_a_server_that_lost_the_rows_of_a_table_in_memory_stops_nothing() -> None:
    with mysql_like(MARIADB) as server:
        database = CapturedMysql(server.new_database())
        for table, engine in (("t", "InnoDB"), ("m", "MEMORY"), ("n", "MEMORY")):
            database.execute(f"CREATE TABLE {table} ({T}) ENGINE={engine}")
            database.insert(table, 1, 1)
        run = database.run(tables=f"{database.schema}.t, {database.schema}.m")
        rows = run.all()
        server.stop()
        server.start()
        for table in "mn":
            database.database.execute(f"SELECT * FROM {table}")
        database.insert("t", 2, 2)
        rows += run.restarted().all()
        assert [(row["op"], row["table"]["name"]) for row in rows if row["op"] in "ct"] == [("t", "m"), ("c", "t")]


def test_names_in_double_quotes_are_names(mariadb: CapturedMysql) -> None:
    mariadb.create("t", T, [(1, 5)])
    run = mariadb.run()
    rows = run.all()
    with mariadb.database.connect() as session, session.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = 'ANSI_QUOTES'")
        cursor.execute('ALTER TABLE "t" RENAME COLUMN "v" TO "w x"')
        cursor.execute('ALTER TABLE "t" ADD "n" INT NOT NULL DEFAULT 3')
        cursor.execute('UPDATE "t" SET "w x" = 6')
    rows += run.all()
    assert replay(rows)["t", '["1"]'] == {"id": "1", "w x": "6", "n": "3"}
    (text, _) = definitions(rows)
    assert steps_of(text, "mariadb") == (Step("rename", "v", "w x"),)
