"""Rule: tables are read once at the slot's place, and those that are asked for again beside the stream; what is held up
waits, and changes go on.
"""

from __future__ import annotations

import datetime as dt
import json
from contextlib import closing

import psycopg
import pytest
from tests.support.mirror import Mirror
from tests.support.postgres_changes import KEYS, Changes, held
from tests.support.postgresql_tables import settings_of

from headrace.sources.base import Limit
from headrace.sources.offset import Offset
from headrace.sources.postgresql.source import PostgresSource
from headrace.sources.signals import Signal, signal_data
from headrace.testing.waiting import until


class Run:
    """Batches of the source as Spark asks for them."""

    def __init__(self, database, folder, **options):
        self.settings = settings_of(
            database,
            tables="public.*",
            snapshot_chunk_rows=10,
            # The table with a key fills the first batch, so the one without comes in the second.
            snapshot_chunks_per_batch=3,
            incremental_snapshot_chunk_size=10,
            signal_path=folder,
            **options,
        )
        self.source = PostgresSource(self.settings)
        self.offset, self.now = Offset.nothing(), dt.datetime(2026, 11, 23, tzinfo=dt.UTC)

    def close(self):
        """The process is over: its sessions end."""
        self.source._planner.close()

    def planned(self):
        """The end of the next batch, and its slices."""
        self.now += dt.timedelta(seconds=10)
        end = self.source.advance(self.offset, Limit(), self.now)
        return end, [] if end == self.offset else self.source.plan(self.offset, end)

    def read(self, slices):
        return [row for piece in slices for batch in self.source.read(piece) for row in batch.to_pylist()]

    def batch(self):
        end, slices = self.planned()
        rows = self.read(slices)
        self.source.acknowledge(end)
        self.offset = Offset.from_json(json.loads(end.to_text()))
        return rows

    def until_level(self):
        rows = self.batch()
        while self.offset.is_nothing or not self.offset.is_level or self.offset.has_open_requests:
            rows += self.batch()
        return rows

    def ask(self, *tables, kind="incremental"):
        self.source.signal(Signal(kind, "execute-snapshot", signal_data("execute-snapshot", tables, kind=kind)))

    def batches_with(self, op):
        """Rows of batches until one has the operation."""
        found = []

        def has():
            found.extend(row for row in self.batch() if row["op"] == op)
            return bool(found)

        until(has, f"a batch has a row '{op}'")
        return found


@pytest.fixture
def database(postgres_database):
    postgres_database.execute(
        "CREATE TABLE k (id int PRIMARY KEY, v text); INSERT INTO k SELECT g, 'v' FROM generate_series(1, 25) g;"
        "CREATE TABLE n (v int); ALTER TABLE n REPLICA IDENTITY FULL;"
        "INSERT INTO n SELECT generate_series(1, 3000); CREATE TABLE e (id int PRIMARY KEY)"
    )
    return postgres_database


@pytest.fixture
def run(database, tmp_path):
    with closing(Run(database, tmp_path)) as run:
        yield run


def values(rows, table, column, op="r"):
    return [int(dict(row["after"])[column]) for row in rows if row["op"] == op and row["table"]["name"] == table]


def ends(rows):
    return sorted((row["table"]["name"], row["snapshot"]) for row in rows if "last" in (row["snapshot"] or ""))


def test_the_first_snapshot_reads_each_row_once(database, run):
    rows = run.batch()
    # What is written meanwhile is for the stream.
    database.execute("INSERT INTO n VALUES (-1); UPDATE k SET v = 'new'; DELETE FROM k WHERE id = 25")
    rows += run.until_level()
    assert values(rows, "k", "id") == list(range(1, 26))
    assert values(rows, "n", "v") == list(range(1, 3001))
    assert ends(rows) == [("e", "last_in_data_collection"), ("k", "last_in_data_collection"), ("n", "last")]
    # The first batch may have been all of the snapshot.
    changes = [row for row in rows if row["op"] == "c"] or run.batches_with("c")
    assert values(changes, "n", "v", "c") == [-1]


def test_a_table_without_a_key_begins_again_when_another_process_goes_on(database, run, tmp_path):
    run.batch()
    run.batch()
    started = run.offset
    with closing(Run(database, tmp_path)) as other:
        other.offset = started
        rows = other.until_level()
    assert sorted(values(rows, "n", "v")) == list(range(1, 3001))
    assert {row["position"].split("/")[1][:2] for row in rows if row["op"] == "r" and row["table"]["name"] == "n"} == {
        "rr"
    }


def test_a_batch_that_another_process_does_again_leaves_nothing_out(database, run, tmp_path):
    run.batch()
    end, _ = run.planned()
    run.close()
    with closing(Run(database, tmp_path)) as other:
        rows = other.read(other.source.plan(run.offset, end))
        other.offset = Offset.from_json(json.loads(end.to_text()))
        rows += other.until_level()
    assert set(values(rows, "n", "v")) == set(range(1, 3001))


def test_tables_are_read_again_beside_the_stream(database, run):
    run.until_level()
    run.ask("public.k")
    rows = run.until_level()
    assert values(rows, "k", "id") == list(range(1, 26))
    assert {row["snapshot"] for row in rows if row["op"] == "r"} == {"incremental"}


def test_tables_are_read_again_as_in_the_first_snapshot(database, run):
    run.until_level()
    database.execute("INSERT INTO n VALUES (-1); DELETE FROM n WHERE v > 10")
    run.ask("public.n", kind="blocking")
    rows = run.until_level()
    assert sorted(values(rows, "n", "v")) == [-1, *range(1, 11)]
    assert ends(rows) == [("n", "last_in_data_collection")]
    database.execute("INSERT INTO n VALUES (-2)")
    assert values(run.batches_with("c"), "n", "v", "c") == [-2]


def test_reads_wait_for_an_open_transaction_and_changes_do_not(database, run, caplog):
    run.until_level()
    with database.connect(application_name="nightly") as writer:
        writer.execute("BEGIN; INSERT INTO k VALUES (999, 'open')")
        run.ask("public.k")
        run.ask("public.n", kind="blocking")
        database.execute("INSERT INTO k VALUES (100, 'new')")
        assert values(run.batches_with("c"), "k", "id", "c") == [100]
        assert not run.offset.tables and "Ad-hoc snapshots wait" in caplog.text
        assert "The snapshot of table 'public.n' waits" in caplog.text
        writer.execute("COMMIT")
    rows = run.batch()
    rows += run.until_level()
    assert values(rows, "k", "id", "c") == [999]
    assert sorted(values(rows, "k", "id")) == [*range(1, 26), 100, 999]
    assert len(values(rows, "n", "v")) == 3000


def test_a_table_without_a_key_is_not_read_again_behind_the_batch_that_says_its_read_is_done(database, run, tmp_path):
    run.until_level()
    # As a run that should end does it.
    end = run.source.preview(run.offset, run.now, restarted=False)
    assert end.brings_more_than(run.offset)
    assert run.batch() == []
    assert run.source.preview(run.offset, run.now, restarted=False) == run.offset
    database.execute("INSERT INTO n VALUES (-1)")
    with closing(Run(database, tmp_path)) as other:
        other.offset = run.offset
        rows = other.batches_with("c")
    assert values(rows, "n", "v", "c") == [-1]
    assert values(rows, "n", "v") == []


class Writer:
    """Random transactions on ten tables, without those that would wait for a kept snapshot."""

    def __init__(self, database):
        self.changes = Changes(database, 1)
        self.changes.connection.execute("SET lock_timeout = '50ms'")

    def close(self):
        self.changes.close()

    def step(self, rows=20):
        try:
            self.changes.step(rows)
        except psycopg.errors.LockNotAvailable:
            self.changes.connection.execute("ROLLBACK")


@pytest.mark.smoke("several processes")
@pytest.mark.parametrize("restarts", [(), (3, 7, 30)], ids=["one process", "several processes"])
def test_a_mirror_holds_what_the_tables_hold_whatever_is_written_while_they_are_read(
    postgres_database, tmp_path, restarts
):
    with closing(Writer(postgres_database)) as writer:
        for _ in range(40):
            writer.step()
        mirror, run = Mirror(KEYS), Run(postgres_database, tmp_path)
        for number in range(60):
            end, slices = run.planned()
            for piece in slices:
                writer.step(5)
                mirror.take(run.source.read(piece))
            run.source.acknowledge(end)
            run.offset = Offset.from_json(json.loads(end.to_text()))
            writer.step()
            if number in (25, 40):
                run.ask("public.*", kind="incremental" if number == 25 else "blocking")
            if number in restarts:
                run.close()
                run.source = PostgresSource(run.settings)
        while slices or not run.offset.is_level or run.offset.has_open_requests:
            end, slices = run.planned()
            for piece in slices:
                mirror.take(run.source.read(piece))
            run.offset = end
        run.close()
    assert mirror.differences(held(postgres_database)) == {}
