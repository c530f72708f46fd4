"""Rule: changes of a table that a command skips are not delivered; those of others are. On real servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.captured_mysql import CapturedMysql
from tests.support.captured_postgres import CapturedPostgres
from tests.support.mysql import needs_mariadb
from tests.support.postgresql import needs_postgres

from headrace.errors import OptionError
from headrace.sources.signal_files import write_file
from headrace.sources.signals import Signal, signal_data
from headrace.sources.table_versions import TableMove
from headrace.testing.captured_database import CapturedDatabase, data

T = "id int not null primary key, v varchar(20)"


@pytest.fixture(
    params=[
        pytest.param(CapturedPostgres, marks=needs_postgres, id="postgresql"),
        pytest.param(CapturedMysql, marks=needs_mariadb, id="mariadb"),
    ]
)
def database(request: pytest.FixtureRequest) -> CapturedDatabase:
    kind: Any = request.param
    fixture = "postgres_database" if kind is CapturedPostgres else "mariadb_database"
    made: CapturedDatabase = kind(request.getfixturevalue(fixture))
    return made


def test_changes_up_to_now_are_left_out(database: CapturedDatabase, tmp_path: Path) -> None:
    for table in "ab":
        database.create(table, T)
    run = database.run(signal_path=str(tmp_path))
    run.all()
    database.insert("a", 1, "x")
    database.insert("b", 1, "x")
    a = database.named("a")
    plan = run.source.move(TableMove(a, "skip", "now"), run.offset)
    assert (plan.at, plan.changes) == (run.offset.commit, None)
    database.insert("a", 2, "x")
    text = signal_data("skip-changes", [a], position=plan.move.to)
    write_file(tmp_path, Signal("s", "skip-changes", text))
    rows = run.restarted().all()
    assert [(table, row["id"]) for _, table, row in data(rows)] == [("b", "1"), ("a", "2")]
    (gap,) = (row for row in rows if row["op"] == "gap")
    assert gap["error"].endswith("are lost: a repair skipped them.")
    assert run.offset.skipped == {a: (plan.at, plan.move.to)}


def test_what_can_not_be_done_is_refused(database: CapturedDatabase) -> None:
    database.create("a", T)
    run = database.run()
    run.all()
    a = database.named("a")
    for kind, to, sentence in (
        ("rewind", "now", "this source reads the log once, for all tables. Read the table again"),
        ("skip", "2024-05-01T12:00:00Z", "The log is not searched by time."),
        ("skip", run.offset.commit, "so none is left out up to"),
        ("skip", {"postgresql": "FF/0"}.get(database.source, "binlog.009999:4"), "The log does not go up to"),
    ):
        move: Any = TableMove(a, kind, to)  # type: ignore[arg-type]
        with pytest.raises(OptionError) as caught:
            run.source.move(move, run.offset)
        assert sentence in str(caught.value)
