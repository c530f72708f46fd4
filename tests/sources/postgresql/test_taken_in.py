"""Tables that a running pipeline takes in: their rows are read, then their changes come, and none is missing after."""

from __future__ import annotations

import datetime as dt

import pytest
from tests.support.postgresql import PostgresDatabase, settings_of

from headrace.sources.base import Limit
from headrace.sources.offset import Offset
from headrace.sources.postgresql.source import PostgresSource


class Pipeline:
    """A pipeline whose sinks have everything at once."""

    def __init__(self, database: PostgresDatabase, **options: str) -> None:
        self._settings = settings_of(database, **options)
        self._offset = Offset.nothing()
        self.restart()

    def restart(self) -> None:
        self._source = PostgresSource(self._settings)

    def rows(self) -> list[tuple[str, str, str]]:
        """Operation, table and key of the rows that are there now."""
        found = []
        while True:
            end = self._source.advance(self._offset, Limit(), dt.datetime.now(dt.UTC))
            if end == self._offset:
                return found
            for slice in self._source.plan(self._offset, end):
                for batch in self._source.read(slice):
                    for row in batch.to_pylist():
                        if row["op"] in ("r", "c", "u", "d"):
                            found.append((row["op"], row["table"]["name"], dict(row["after"] or row["before"])["id"]))
            self._offset = Offset.from_json(end.to_json())
            self._source.acknowledge(self._offset)


@pytest.fixture
def database(postgres_database: PostgresDatabase) -> PostgresDatabase:
    postgres_database.execute("CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1)")
    return postgres_database


@pytest.mark.parametrize("restarts", [False, True])
def test_a_new_table_is_read_and_then_followed(database: PostgresDatabase, restarts: bool) -> None:
    pipeline = Pipeline(database, tables="public.*")
    assert pipeline.rows() == [("r", "a", "1")]
    database.execute("CREATE TABLE b (id int PRIMARY KEY); INSERT INTO b VALUES (1)")
    if restarts:
        pipeline.restart()
    database.execute("INSERT INTO a VALUES (2)")
    assert sorted(pipeline.rows()) == [("c", "a", "2"), ("r", "b", "1")]
    database.execute("INSERT INTO b VALUES (2); INSERT INTO a VALUES (3)")
    assert sorted(pipeline.rows()) == [("c", "a", "3"), ("c", "b", "2")]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_table_that_was_out_of_the_publication_is_read_again_and_then_followed(
    database: PostgresDatabase, restarts: bool
) -> None:
    pipeline = Pipeline(database, tables="public.*")
    pipeline.rows()
    database.execute(f"ALTER PUBLICATION {database.name} DROP TABLE a")
    database.execute("INSERT INTO a VALUES (2)")
    database.execute(f"ALTER PUBLICATION {database.name} ADD TABLE a")
    if restarts:
        pipeline.restart()
    database.execute("INSERT INTO a VALUES (3)")
    assert [row for row in pipeline.rows() if row[0] == "r"] == [("r", "a", "1"), ("r", "a", "2"), ("r", "a", "3")]
    database.execute("INSERT INTO a VALUES (4)")
    assert pipeline.rows() == [("c", "a", "4")]


def test_a_publication_that_left_out_changes_while_nobody_read_it_lets_its_tables_be_read_again(
    database: PostgresDatabase,
) -> None:
    pipeline = Pipeline(database, tables="public.*")
    pipeline.rows()
    for operations in ("insert", "insert, update, delete, truncate"):
        database.execute(f"ALTER PUBLICATION {database.name} SET (publish = '{operations}')")
        database.execute("INSERT INTO a VALUES (2)")
        database.execute("DELETE FROM a WHERE id = 2")
    pipeline.restart()
    assert ("r", "a", "1") in pipeline.rows()
    assert pipeline.rows() == []


@pytest.mark.parametrize("commits", ["0", "2"])
def test_changes_of_a_table_under_another_name_are_its_own_once_it_has_its_name_again(
    database: PostgresDatabase, commits: str
) -> None:
    pipeline = Pipeline(database, tables="public.a", max_commits_per_trigger=commits)
    pipeline.rows()
    database.execute("ALTER TABLE a RENAME TO b")
    database.execute("INSERT INTO b VALUES (2); DELETE FROM b WHERE id = 1")
    database.execute("ALTER TABLE b RENAME TO a")
    assert pipeline.rows() == [("c", "a", "2"), ("d", "a", "1")]


def test_a_table_that_takes_a_captured_ones_name_is_followed_from_its_first_change_on(
    database: PostgresDatabase,
) -> None:
    # With such a bound the planner keeps its scan of the log from one plan to the next.
    pipeline = Pipeline(database, tables="public.a", max_commits_per_trigger="2")
    pipeline.rows()
    database.execute("CREATE TABLE n (LIKE a INCLUDING ALL)")
    database.execute("BEGIN; ALTER TABLE a RENAME TO old; ALTER TABLE n RENAME TO a; COMMIT")
    assert pipeline.rows() == []
    database.execute("INSERT INTO a VALUES (3)")
    assert pipeline.rows() == [("c", "a", "3")]
