"""Rule: the rows of a distributed transaction come once, where it is committed, wherever it was prepared.

Nobody sees them before. So a snapshot lacks them, and they lie in the log before the place where it was read.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.captured_mysql import CapturedMysql

from headrace.errors import CaptureError
from headrace.testing.captured_database import data
from headrace_emulators.mysql.server import MYSQL, MySqlDatabase

KEYED = "id int not null primary key, v varchar(20)"
KEYLESS = "id int, v varchar(20)"
TABLES = ("keyed", "keyless")


@pytest.fixture
def database(binlog_database: MySqlDatabase) -> CapturedMysql:
    return CapturedMysql(binlog_database)


def prepare(database: CapturedMysql, name: str, *statements: str) -> str:
    """A transaction that waits for its second phase; the session that made it is gone."""
    xid = f"{database.schema}.{name}"
    with database.database.connect() as session, session.cursor() as cursor:
        for sql in (f"XA START '{xid}'", *statements, f"XA END '{xid}'", f"XA PREPARE '{xid}'"):
            cursor.execute(sql)
    return xid


def decide(database: CapturedMysql, xid: str, *, commit: bool = True) -> None:
    database.database.execute(f"XA {'COMMIT' if commit else 'ROLLBACK'} '{xid}'")


def values(rows: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return [(int(row["id"]), row["v"]) for _, _, row in data(rows)]


@pytest.fixture(params=["initial", "no_data"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("columns", [KEYED, KEYLESS], ids=["keyed", "keyless"])
def test_what_was_prepared_before_a_pipeline_began_comes_when_it_is_committed(
    database: CapturedMysql, columns: str, mode: str
) -> None:
    if (database.source, columns, mode) == (MYSQL, KEYLESS, "initial"):
        pytest.skip("MySQL's lock of a table without a key waits for what is prepared")
    database.create("t", columns, [(1, "old")])
    late = prepare(database, "late", "INSERT INTO t VALUES (2, 'late'), (3, 'late')")
    never = prepare(database, "never", "INSERT INTO t VALUES (4, 'never')")
    database.execute("FLUSH BINARY LOGS")
    database.insert("t", 5, "old")
    run = database.run(snapshot_mode=mode)
    read = values(run.all())
    assert sorted(read) == ([(1, "old"), (5, "old")] if mode == "initial" else [])
    database.execute("FLUSH BINARY LOGS")
    database.insert("t", 6, "new")
    decide(database, late)
    decide(database, never, commit=False)
    run = run.restarted()
    assert values(run.all()) == [(6, "new"), (2, "late"), (3, "late")]
    assert run.restarted().all() == []


def test_what_was_prepared_in_a_part_of_the_log_that_is_gone_stops_the_run_when_it_is_committed(
    database: CapturedMysql,
) -> None:
    database.create("t", KEYED)
    lost = prepare(database, "lost", "INSERT INTO t VALUES (1, 'lost')")
    other = prepare(database, "other", "INSERT INTO t VALUES (2, 'other')")
    database.clean()
    run = database.run()
    run.all()
    decide(database, other, commit=False)
    run.all()
    decide(database, lost)
    for _ in range(2):
        with pytest.raises(CaptureError, match="the log does not have its rows any more") as caught:
            run.all()
        assert "checkpoint" in caught.value.remedy
    # A new snapshot has them.
    assert values(database.run().all()) == [(1, "lost")]


def test_a_table_that_comes_in_while_a_transaction_is_prepared_has_its_rows(database: CapturedMysql) -> None:
    database.create("a", KEYED, [(1, "a")])
    database.create("b", KEYED, [(1, "b")])
    run = database.run(tables=f"{database.schema}.a")
    run.all()
    late = prepare(database, "late", "INSERT INTO b VALUES (2, 'late')")
    database.insert("a", 2, "a")
    run.all()
    run = run.restarted(tables=f"{database.schema}.a,{database.schema}.b")
    assert values(run.all()) == [(1, "b")]
    decide(database, late)
    assert values(run.all()) == [(2, "late")]


def test_a_prepared_transaction_of_other_tables_needs_no_log(database: CapturedMysql) -> None:
    database.create("t", KEYED)
    database.create("other", KEYED)
    run = database.run(tables=f"{database.schema}.t")
    run.all()
    late = prepare(database, "late", "INSERT INTO other VALUES (1, 'late')")
    database.insert("t", 1, "a")
    assert values(run.all()) == [(1, "a")]
    database.clean_delivered(run)
    run = run.restarted()
    decide(database, late)
    database.insert("t", 2, "b")
    assert values(run.all()) == [(2, "b")]


def test_several_tasks_share_a_log_with_a_transaction_that_stays_prepared(database: CapturedMysql) -> None:
    database.create("t", KEYED)
    run = database.run(**database.small_slices, max_readers=4)
    run.all()
    late = prepare(database, "late", "INSERT INTO t VALUES (0, 'late')")
    database.insert("t", 1, "a")
    run.all()
    for n in range(2, 10):
        database.insert("t", n, "a")
    start = run.offset
    assert values(run.all()) == [(n, "a") for n in range(2, 10)]
    assert len(run.source.plan(start, run.offset)) > 1
    decide(database, late)
    assert values(run.all()) == [(0, "late")]


@pytest.fixture
def committing(database: CapturedMysql) -> Iterator[threading.Event]:
    """Sessions that do nothing but distributed transactions, in a table with and in one without a key."""
    database.create("keyed", KEYED)
    database.create("keyless", KEYLESS)
    stop = threading.Event()

    def write(writer: int) -> None:
        number = writer
        with database.database.connect() as session, session.cursor() as cursor:
            while not stop.is_set() and number < 1_000:
                xid = f"'{database.schema}.{number}'"
                cursor.execute(f"XA START {xid}")
                for table in TABLES:
                    cursor.execute(f"INSERT INTO {table} VALUES ({number}, 'x')")
                for sql in ("XA END", "XA PREPARE", "XA COMMIT"):
                    cursor.execute(f"{sql} {xid}")
                number += 10

    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for writer in writers:
        writer.start()
    yield stop
    stop.set()
    for writer in writers:
        writer.join()


@pytest.mark.system
def test_a_snapshot_under_distributed_transactions_has_each_row(
    database: CapturedMysql, committing: threading.Event
) -> None:
    runs = [database.run(snapshot_chunk_rows=10) for _ in range(2)]
    found = []
    for run in runs:
        rows = run.batch()
        while run.offset.tables:
            rows += run.batch()
        found.append(rows)
    committing.set()
    for run, rows in zip(runs, found, strict=True):
        rows += run.all()
        read = {name: Counter(int(row["id"]) for _, table, row in data(rows) if table == name) for name in TABLES}
        wanted = {name: {int(id) for (id,) in database.database.execute(f"SELECT id FROM {name}")} for name in TABLES}
        # A row with a key may be read and then come as a change, which makes it what it is.
        assert set(read["keyed"]) == wanted["keyed"]
        assert read["keyless"] == Counter(wanted["keyless"])
