"""The toy's source of a database keeps the contract of a source, and does what Headrace's planner promises."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headrace.errors import CaptureError, DataLossError, OptionError
from headrace.sources.base import Limit
from headrace.sources.signals import EXECUTE, Signal, signal_data
from headrace.testing import SourceContract
from headrace.testing.captured_database import data, replay
from headrace.testing.sources import SourceRun
from toy_litelog import LitelogSource, install

COLUMNS = "id INTEGER PRIMARY KEY, v TEXT, price REAL, picture BLOB"


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


class TestLitelog(SourceContract):
    gaps: ClassVar[Mapping[str, str]] = {
        "test_a_limit_cuts_between_commits_only": "SQLite's triggers are not told where a transaction ends",
    }

    def source(self, folder: Path) -> LitelogSource:
        path = folder / "shop.db"
        if not path.exists():
            execute(path, "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
            install.capture(str(path), "t")
        return LitelogSource.of({"path": str(path)})

    def commit(self, folder: Path, *values: str) -> None:
        execute(folder / "shop.db", *(f"INSERT INTO t (v) VALUES ('{value}')" for value in values))

    def lose(self, folder: Path) -> None:
        install.forget(str(folder / "shop.db"), 1 << 62)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database whose captured table has ten rows."""
    path = tmp_path / "shop.db"
    rows = (f"INSERT INTO t VALUES ({n}, 'read {n}', {n} / 10.0, x'0{n}ff')" for n in range(10))
    execute(path, f"CREATE TABLE t ({COLUMNS})", *rows)
    install.capture(str(path), "t")
    return path


def run_of(path: Path, **options: Any) -> SourceRun:
    given = {"path": str(path), "signal_path": str(path.parent / "signals"), **options}
    return SourceRun(lambda: LitelogSource.of(given))


def content(path: Path, table: str = "t") -> dict[str, tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return {str(row[0]): row[1:] for row in connection.execute(f"SELECT * FROM {table}")}


def mirrored(rows: list[dict[str, Any]], table: str = "t") -> dict[str, str | None]:
    return {image["id"]: image["v"] for (name, _), image in replay(rows).items() if name == table}


def test_chunks_and_changes_make_the_table(path: Path) -> None:
    run = run_of(path, snapshot_chunk_rows=3, snapshot_chunks_per_batch=2)
    rows = run.batch()
    execute(path, "UPDATE t SET v = 'meanwhile' WHERE id IN (1, 8)", "DELETE FROM t WHERE id = 9")
    rows += run.all()
    execute(path, "INSERT INTO t (id, v) VALUES (10, NULL)", "UPDATE t SET id = 11 WHERE id = 0")
    rows += run.all()
    assert run.batches >= 4
    deleted = [row for row in rows if row["op"] == "u" and dict(row["before"])["id"] == "0"]
    assert len(deleted) == 1
    expected = {key: row[0] for key, row in content(path).items()}
    assert {key: v for key, v in mirrored(rows).items() if key != "0"} == expected


def test_the_last_row_of_the_last_table_with_rows_ends_the_snapshot(path: Path) -> None:
    execute(path, "CREATE TABLE u (id INTEGER PRIMARY KEY)")
    install.capture(str(path), "u")
    rows = run_of(path, snapshot_chunks_per_batch=1).all()
    assert [row["snapshot"] for row in rows if row["op"] == "r"][-1] == "last"


def test_values_of_all_types_are_exact(path: Path) -> None:
    run = run_of(path)
    run.all()
    execute(path, "INSERT INTO t VALUES (9223372036854775807, '\"ä\n', 0.1, x''), (-1, '', -1e999, NULL)")
    [first, second] = [image for _, _, image in data(run.all())]
    assert first == {"id": "9223372036854775807", "v": '"ä\n', "price": "0.1", "picture": ""}
    assert second == {"id": "-1", "v": "", "price": "-Infinity", "picture": None}


def test_a_signal_file_has_a_table_read_again_beside_its_stream(path: Path) -> None:
    run = run_of(path, incremental_snapshot_chunk_size=4)
    run.all()
    run.source.signal(Signal("1", EXECUTE, signal_data(EXECUTE, ["main.t"])))
    execute(path, "UPDATE t SET v = 'changed' WHERE id = 3")
    rows = run.all()
    assert sorted(int(image["id"]) for op, _, image in data(rows) if op == "r") == list(range(10))
    assert mirrored(rows) == {key: row[0] for key, row in content(path).items()}


def test_a_row_of_the_signal_table_asks_as_well(path: Path) -> None:
    execute(path, "CREATE TABLE signals (id TEXT PRIMARY KEY, type TEXT, data TEXT)")
    install.capture(str(path), "signals")
    run = run_of(path, signal_data_collection="main.signals")
    run.all()
    asked = signal_data(EXECUTE, ["main.t"])
    execute(path, f"INSERT INTO signals VALUES ('1', '{EXECUTE}', '{asked}')")
    assert [op for op, table, _ in data(run.all()) if table == "t"] == ["r"] * 10


def test_a_table_that_is_captured_later_is_read_first(path: Path) -> None:
    run = run_of(path)
    run.all()
    execute(path, "CREATE TABLE other (id INTEGER PRIMARY KEY, v TEXT)", "INSERT INTO other VALUES (1, 'before')")
    install.capture(str(path), "other")
    execute(path, "INSERT INTO other VALUES (2, 'after')", "INSERT INTO t (id, v) VALUES (20, 'new')")
    rows = run.all()
    assert mirrored(rows, "other") == {"1": "before", "2": "after"}
    assert mirrored(rows)["20"] == "new"


def test_a_column_that_is_added_comes_with_the_next_changes(path: Path) -> None:
    run = run_of(path)
    run.all()
    execute(path, "UPDATE t SET v = 'narrow' WHERE id = 1", "ALTER TABLE t ADD COLUMN more TEXT")
    install.capture(str(path), "t")
    execute(path, "UPDATE t SET more = 'wide' WHERE id = 2")
    narrow, wide = (dict(row["after"]) for row in run.all() if row["op"] == "u")
    assert "more" not in narrow
    assert wide["more"] == "wide"


def test_columns_that_are_masked_leave_no_text(path: Path) -> None:
    run = run_of(path, **{"column.mask.with.3.chars": "main.t.v"})
    execute(path, "UPDATE t SET v = 'secret' WHERE id = 1")
    rows = run.all()
    execute(path, "UPDATE t SET v = 'another' WHERE id = 2")
    rows += run.all()
    assert {image["v"] for _, _, image in data(rows)} == {"***"}


def test_a_loss_is_read_again_where_the_user_wants_that(path: Path) -> None:
    run = run_of(path)
    run.all()
    execute(path, "UPDATE t SET v = 'lost' WHERE id = 1")
    install.forget(str(path), 1)
    assert run.source.health(run.offset).lost == ("main.t",)
    with pytest.raises(DataLossError, match="entry 1 is next"):
        run.batch()
    again = run_of(path, snapshot_mode="when_needed")
    again.offset = run.offset
    assert mirrored(again.all())["1"] == "lost"


def test_a_limit_of_where_a_run_ends_is_kept(path: Path) -> None:
    run = run_of(path, snapshot_mode="no_data")
    run.all()
    execute(path, "UPDATE t SET v = 'one' WHERE id = 1")
    head = run.source.head()
    execute(path, "UPDATE t SET v = 'two' WHERE id = 1")
    assert [image["v"] for _, _, image in data(run.batch(Limit(upto=head)))] == ["one"]


def test_names_may_have_blanks_and_quotes(tmp_path: Path) -> None:
    path = tmp_path / "odd.db"
    execute(path, """CREATE TABLE "o'dd ""one" ("the id" INTEGER PRIMARY KEY, v TEXT)""")
    execute(path, """INSERT INTO "o'dd ""one" VALUES (1, 'read'), (2, 'read')""")
    install.capture(str(path), "o'dd \"one")
    run = run_of(path, snapshot_chunk_rows=1)
    rows = run.all()
    execute(path, """UPDATE "o'dd ""one" SET v = 'new' WHERE "the id" = 2""")
    rows += run.all()
    assert [image["v"] for _, _, image in data(rows)] == ["read", "read", "new"]


def test_a_signal_that_the_database_refuses_is_not_sent(path: Path) -> None:
    source = run_of(path).source
    source.check_signal(Signal("1", EXECUTE, signal_data(EXECUTE, ["main.t"], filter="id > 3")))
    with pytest.raises(OptionError, match="no such column: nope"):
        source.check_signal(Signal("1", EXECUTE, signal_data(EXECUTE, ["main.t"], filter="nope > 3")))


def test_what_can_not_be_captured_is_refused_by_name(path: Path) -> None:
    execute(path, "CREATE TABLE dates (id INTEGER PRIMARY KEY, d DATE)", "CREATE TABLE heap (v TEXT)")
    with pytest.raises(CaptureError, match="Column 'd' of table 'dates' is DATE"):
        install.capture(str(path), "dates")
    install.capture(str(path), "heap")
    with pytest.raises(CaptureError, match=r"'main\.heap' has no primary key"):
        run_of(path).batch()
