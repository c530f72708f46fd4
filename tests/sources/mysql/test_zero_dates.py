"""Rule: `headrace check` names key columns with the day 0000-00-00, before a batch stops at one."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.mysql import needs_mariadb

from headrace.changes import TableId
from headrace.pipeline.check import Verdict, check_file
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.checks import zero_dates
from headrace.sources.mysql.refusals import MysqlError
from headrace.testing.change_history import schema_of
from headrace_emulators.mysql.server import MySqlDatabase

TABLES = {
    "by_day": ("day DATE PRIMARY KEY", "'0000-00-00'"),
    "by_moment": ("id INT, at DATETIME, PRIMARY KEY (id, at)", "1, '0000-00-00 00:00:00'"),
    "by_real_day": ("day DATE PRIMARY KEY", "'2024-02-29'"),
    "beside_its_key": ("id INT PRIMARY KEY, day DATE NOT NULL", "1, '0000-00-00'"),
}


@needs_mariadb
def test_a_check_names_keys_with_zero_dates(tmp_path: Path, mariadb_database: MySqlDatabase) -> None:
    with mariadb_database.connect() as session, session.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        for name, (columns, values) in TABLES.items():
            cursor.execute(f"CREATE TABLE {name} ({columns})")
            cursor.execute(f"INSERT INTO {name} VALUES ({values})")
    file = tmp_path / "pipeline.yaml"
    lake = {"type": "delta", "path": "./lake"}
    text = {
        "source": {"type": "mysql", **mariadb_database.options, "tables": [f"{mariadb_database.name}.*"]},
        "sinks": [lake, {**lake, "path": "./texts", "unrepresentable": "text"}],
        "pipeline": {"name": "days", "checkpoint": "./checkpoint"},
    }
    file.write_text(json.dumps(text))
    found = {one.subject: one for one in check_file(file).findings if "0000-00-00" in one.sentence}
    database = mariadb_database.name
    assert {name: one.sentence.partition(". ")[0] for name, one in found.items()} == {
        f"{database}.by_day": "Its key column 'day' has the value 0000-00-00",
        f"{database}.by_moment": "Its key column 'at' has the value 0000-00-00",
    }
    for one in found.values():
        assert one.verdict is Verdict.NOTE
        assert "'unrepresentable' of sink 1 (delta) to text" in one.remedy
    del text["sinks"][0]
    file.write_text(json.dumps(text))
    assert not [one for one in check_file(file).findings if "0000-00-00" in one.sentence]


class Server:
    """A server that answers each question for a key with a refusal."""

    def __init__(self, number: int, mode: str, *, mariadb: bool) -> None:
        self.number, self.mode = number, mode
        self.server = SimpleNamespace(is_mariadb=mariadb)
        self.asked: list[str] = []

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        self.asked.append(sql)
        if "sql_mode" in sql:
            return [(self.mode,)]
        error = MysqlError("On the server a statement fails.", remedy="")
        error.number = self.number
        raise error


@pytest.mark.parametrize("mariadb", [True, False])
@pytest.mark.parametrize(
    ("number", "mode", "said"),
    [
        (3024, "STRICT_TRANS_TABLES", "may have"),
        (1969, "STRICT_TRANS_TABLES", "may have"),
        (3024, "STRICT_TRANS_TABLES,NO_ZERO_DATE", None),
        (1142, "", None),
    ],
)
def test_a_server_that_does_not_answer_in_time_is_judged_by_its_mode(
    number: int, mode: str, said: str | None, mariadb: bool
) -> None:
    id = TableId("shop", "shop", "t")
    table = MysqlTable(schema_of(id, {"id": "int32", "day": "date"}, ("id", "day")), (), ())
    server = Server(number, mode, mariadb=mariadb)
    found = list(zero_dates(server, [table]))  # type: ignore[arg-type]
    assert [said in one.sentence for one in found if said] == ([True] if said else [])
    assert len(found) == (said is not None)
    [asked] = [sql for sql in server.asked if "`day`" in sql]
    assert ("max_statement_time" if mariadb else "MAX_EXECUTION_TIME") in asked
