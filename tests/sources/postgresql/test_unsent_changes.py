"""What a statement does to all rows of a table at once, and the server sends no row of."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.support.captured_postgres import CapturedPostgres

from headrace.testing.captured_database import replay
from headrace_emulators.postgresql.server import PostgresDatabase

_T = "id int not null primary key, v text"


@pytest.fixture
def database(postgres_database: PostgresDatabase) -> CapturedPostgres:
    return CapturedPostgres(postgres_database, "DEFAULT")


def _texts(database: CapturedPostgres, table: str) -> list[dict[str, Any]]:
    names = [str(n) for (n,) in database.database.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY 1",
        (f"public.{table}",))]  # fmt: skip
    shown = ", ".join(f'"{name}"::text' for name in names)
    rows = database.database.execute(f"SELECT {shown} FROM {table} ORDER BY id")
    return [dict(zip(names, row, strict=True)) for row in rows]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD w int DEFAULT 7",
        "ALTER TABLE t ADD w int DEFAULT (random() * 1000)::int",
        "ALTER TABLE t ALTER v TYPE int USING length(v)",
    ],
)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_statement_that_changes_all_rows_makes_the_table_be_read_again(
    database: CapturedPostgres, statement: str, restarts: bool
) -> None:
    database.create("t", _T, [(n, "x" * n) for n in range(5)])
    run = database.run(incremental_snapshot_chunk_size=2)
    rows = run.all()
    database.execute(statement)
    database.insert("t", *([9, "9"] + ([3] if "ADD" in statement else [])))
    rows += (run.restarted() if restarts else run).all()
    held = sorted(replay(rows).values(), key=lambda row: int(row["id"]))
    assert held == _texts(database, "t")


def test_a_partition_that_comes_with_its_rows_is_read(database: CapturedPostgres) -> None:
    database.execute("CREATE TABLE p (id int primary key, v text) PARTITION BY RANGE (id)")
    database.execute("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)")
    database.execute("ALTER PUBLICATION shop ADD TABLE p")
    run = database.run()
    rows = run.all()
    database.insert("p", 1, "one")
    database.execute("CREATE TABLE p2 (id int primary key, v text)")
    database.execute("INSERT INTO p2 VALUES (11, 'eleven')")
    rows += run.all()
    database.execute("ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)")
    database.insert("p", 12, "twelve")
    rows += run.all()
    assert sorted(replay(rows).values(), key=lambda row: int(row["id"])) == _texts(database, "p")


@pytest.mark.parametrize(
    "statement",
    [
        "VACUUM FULL t",
        "ALTER TABLE t ADD w int",
        "ALTER TABLE t ALTER v SET DEFAULT 'x'",
        "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (30) TO (40)",
    ],
)
def test_what_changes_no_row_reads_nothing_again(database: CapturedPostgres, statement: str) -> None:
    database.create("t", _T, [(1, "one")])
    database.execute("CREATE TABLE p (id int primary key, v text) PARTITION BY RANGE (id)")
    database.execute("ALTER PUBLICATION shop ADD TABLE p")
    run = database.run()
    run.all()
    with database.database.connect() as connection:
        connection.execute(statement)
    database.insert("t", *([9, "9"] + ([3] if "ADD" in statement else [])))
    assert [row["op"] for row in run.all() if row["op"] in "rcud"] == ["c"]


def test_a_table_that_was_altered_and_emptied_is_not_read_again_and_its_truncate_is_sent(
    database: CapturedPostgres,
) -> None:
    database.create("t", _T, [(1, "one")])
    run = database.run()
    run.all()
    database.execute("ALTER TABLE t ADD w int")
    database.execute("TRUNCATE t")
    assert [row["op"] for row in run.all() if row["op"] in "rcudt"] == ["t"]
    database.insert("t", 2, "two", 3)
    assert [row["op"] for row in run.all() if row["op"] in "rcudt"] == ["c"]


def test_with_warn_the_log_says_so(database: CapturedPostgres, caplog: pytest.LogCaptureFixture) -> None:
    database.create("t", _T, [(1, "one")])
    run = database.run(on_rewrite="warn")
    run.all()
    database.execute("ALTER TABLE t ADD w int DEFAULT 7")
    with caplog.at_level(logging.WARNING):
        assert [row for row in run.all() if row["op"] == "r"] == []
    assert "Rows of table 'public.t' may have changed without a change in the log" in caplog.text


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("TRUNCATE p1", "partition 'p1' was emptied"),
        ("DROP TABLE p1", "a partition was detached or dropped"),
        ("ALTER TABLE p DETACH PARTITION p1", "a partition was detached or dropped"),
        ("VACUUM FULL p1", ""),
        ("DELETE FROM p1", ""),
    ],
)
def test_rows_that_go_with_a_partition_are_said_and_a_blocking_snapshot_takes_them_from_copies(
    database: CapturedPostgres, caplog: pytest.LogCaptureFixture, statement: str, said: str
) -> None:
    database.execute("CREATE TABLE p (id int primary key, v text) PARTITION BY RANGE (id)")
    database.execute("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)")
    database.execute("CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)")
    database.execute("ALTER PUBLICATION shop ADD TABLE p")
    database.insert("p", 1, "one")
    database.insert("p", 11, "eleven")
    database.execute("ANALYZE p")
    run = database.run(signal_prefix="headrace.signal")
    rows = run.all()
    with caplog.at_level(logging.WARNING), database.database.connect() as connection:
        connection.execute(statement)
        rows += run.all()
    assert [said] == [said for record in caplog.records if said and said in record.getMessage()] or not said
    assert bool(said) == any("without a change in the log" in record.getMessage() for record in caplog.records)
    asked = '{"id": "1", "type": "execute-snapshot", "data": {"type": "blocking", "data-collections": ["public.p"]}}'
    database.execute("SELECT pg_logical_emit_message(true, 'headrace.signal', ?)", (asked,))
    rows += run.all()
    assert sorted(replay(rows).values(), key=lambda row: int(row["id"])) == _texts(database, "p")
