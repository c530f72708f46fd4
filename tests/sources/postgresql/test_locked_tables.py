"""Rule: a transaction that alters a table, however long it is open, does not hold up the changes of the others."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.postgresql import PostgresDatabase

from headrace.sources.postgresql import connection, visibility
from headrace.sources.reader import source_named
from headrace.testing.sources import SourceRun

TABLES = """
CREATE TABLE t (id int PRIMARY KEY, v text DEFAULT 'x', twice int GENERATED ALWAYS AS (id * 2) STORED);
CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE low PARTITION OF p FOR VALUES FROM (0) TO (5);
CREATE TABLE high PARTITION OF p FOR VALUES FROM (5) TO (10);
CREATE TABLE other (id int PRIMARY KEY);
INSERT INTO t VALUES (1); INSERT INTO p VALUES (1), (7); INSERT INTO other VALUES (1);
"""
DONE = {
    "nothing": "",
    "columns": "ALTER TABLE t ADD c{n} int DEFAULT 5; ALTER TABLE p ADD c{n} int DEFAULT 5",
    "truncates": "TRUNCATE t; TRUNCATE low",
    "partitions": "CREATE TABLE more{n} PARTITION OF p FOR VALUES FROM ({n}0) TO ({n}5)",
}


@pytest.mark.parametrize("done", DONE)
def test_the_others_are_read_while_tables_are_locked(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch, done: str
) -> None:
    # What would wait for ever stops.
    monkeypatch.setitem(connection._SESSION, "lock_timeout", "4s")
    monkeypatch.setattr(visibility, "_SECONDS", 0.1)
    database = postgres_database
    database.execute(TABLES)
    options = {**database.options, "slot": f"slot_{database.name}", "tables": "public.t,public.p,public.other"}
    run = SourceRun(lambda: source_named("postgresql", options))
    assert {row["op"] for row in run.all()} >= {"r"}
    for number, locked in enumerate(("t, p", "low", "ONLY p", "t"), 2):
        if DONE[done]:
            database.execute(DONE[done].format(n=number))
        with database.connect() as session:
            session.execute("BEGIN")
            session.execute(f"LOCK TABLE {locked} IN ACCESS EXCLUSIVE MODE")
            database.execute(f"INSERT INTO other VALUES ({number})")
            found: list[dict[str, Any]] = run.all()
        assert [row["after"] for row in found if row["op"] == "c"] == [[("id", str(number))]]
