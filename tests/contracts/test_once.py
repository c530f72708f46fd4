"""Rule: a run that should end (`--once`) ends where planning finds nothing more to do, and only there: a new table and
a snapshot that is due again come first, and a database that was restored is an error. The same for every source, on the
emulated databases; Spark is not needed for the decision."""

from __future__ import annotations

import json
import shutil

import pytest
from tests.support.captured_shop import Db2Database, OracleDatabase, SqlServerDatabase, closing

from headrace.errors import PositionMismatch
from headrace.pipeline import ending
from headrace.pipeline.ending import DatabasesEnding
from headrace.sources.databases import Databases, Offsets
from headrace.sources.health import CaptureState
from headrace.testing.captured_database import data

KINDS = [SqlServerDatabase, Db2Database, OracleDatabase]
KEYED = "id int not null primary key"
MOST_BATCHES = 50


@pytest.fixture(params=KINDS, ids=lambda kind: kind.source)
def database(request, tmp_path, monkeypatch):
    # Planning is asked at every look.
    monkeypatch.setattr(ending, "_PLAN_SECONDS", 0.0)
    with closing(request.param(tmp_path / "server")) as made:
        yield made


class Checkpoint:
    """Where the batches of a pipeline ended, over all its runs."""

    def __init__(self, database, **options):
        self.run = database.run(**options)
        self.texts = []

    def once(self, **options):
        """The changes of a run that should end, in a process of its own; how often it had nothing to do is bounded."""
        self.run.restarted(**options)
        # The driver asks by a source of its own, not by the one that plans.
        asked = Databases(self.run.source)
        self.run.restarted()
        (name,) = asked.sources
        ends = DatabasesEnding(asked, self.texts.__getitem__, self.last)
        rows = []
        for _ in range(MOST_BATCHES):
            if ends.is_reached(self.last):
                return data(rows)
            before = self.run.offset
            rows += self.run.batch()
            if self.run.offset != before:
                self.texts.append(Offsets({name: self.run.offset}).to_text())
        raise AssertionError("it does not end")

    @property
    def last(self):
        return len(self.texts) - 1 if self.texts else None


def ops(changes):
    return [(op, table, image["id"]) for op, table, image in changes]


def test_it_takes_everything_and_ends_and_has_nothing_to_do_the_second_time(database):
    database.create("t", KEYED, [(1,), (2,)])
    checkpoint = Checkpoint(database, snapshot_chunk_rows=1)
    assert ops(checkpoint.once()) == [("r", "t", "1"), ("r", "t", "2")]
    batches = checkpoint.last
    assert (checkpoint.once(), checkpoint.last) == ([], batches)
    database.insert("t", 3)
    database.capture()
    assert ops(checkpoint.once()) == [("c", "t", "3")]


def test_every_run_on_a_quiet_database_ends(database):
    database.create("t", KEYED, [(1,)])
    checkpoint = Checkpoint(database)
    assert ops(checkpoint.once()) == [("r", "t", "1")]
    assert [checkpoint.once() for _ in range(4)] == [[]] * 4
    # A run without end has looked at the log meanwhile, and kept what it found for itself.
    for _ in range(3):
        checkpoint.run.batch()
    assert [checkpoint.once() for _ in range(2)] == [[]] * 2


def test_a_table_that_is_added_on_an_idle_database_is_read(database):
    database.create("t", KEYED, [(1,)])
    database.create("u", KEYED, [(2,), (3,)])
    checkpoint = Checkpoint(database, tables=database.named("t"))
    assert ops(checkpoint.once()) == [("r", "t", "1")]
    added = f"{database.named('t')},{database.named('u')}"
    assert ops(checkpoint.once(tables=added)) == [("r", "u", "2"), ("r", "u", "3")]
    assert checkpoint.once() == []


@pytest.mark.parametrize("changed", [False, True], ids=["on an idle database", "with changes that wait"])
def test_always_reads_all_tables_again_at_every_run(database, changed):
    database.create("t", KEYED, [(1,), (2,)])
    checkpoint = Checkpoint(database, snapshot_mode="always")
    assert ops(checkpoint.once()) == [("r", "t", "1"), ("r", "t", "2")]
    if changed:
        database.delete("t", "id = 1")
        database.capture()
    left = [("d", "t", "1"), ("r", "t", "2")] if changed else [("r", "t", "1"), ("r", "t", "2")]
    assert sorted(ops(checkpoint.once())) == left
    assert ops(checkpoint.once())[-1:] == [("r", "t", "2")]


def test_a_snapshot_that_was_broken_off_is_gone_on_with_and_not_begun_again(database):
    database.create("t", KEYED, [(n,) for n in range(4)])
    checkpoint = Checkpoint(database, snapshot_mode="always", snapshot_chunk_rows=1, snapshot_chunks_per_batch=1)
    first = data(checkpoint.run.batch()) + data(checkpoint.run.batch())
    (name,) = Databases(checkpoint.run.source).sources
    checkpoint.texts = [Offsets({name: checkpoint.run.offset}).to_text()]
    assert sorted(ops(first + checkpoint.once())) == [("r", "t", str(n)) for n in range(4)]


def test_a_heartbeat_is_nothing_to_wait_for(database):
    database.create("t", KEYED, [(1,)])
    checkpoint = Checkpoint(database, heartbeat_interval_ms=1)
    assert ops(checkpoint.once()) == [("r", "t", "1")]
    batches = checkpoint.last
    assert (checkpoint.once(), checkpoint.last) == ([], batches)


@pytest.mark.parametrize("kind", [SqlServerDatabase, Db2Database], ids=["sqlserver", "db2"])
def test_a_database_that_was_restored_is_an_error_and_no_end(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(ending, "_PLAN_SECONDS", 0.0)
    server, backup = tmp_path / "server", tmp_path / "backup"
    with closing(kind(server)) as made:
        made.create("t", KEYED, [(1,)])
        checkpoint = Checkpoint(made)
        checkpoint.once()
        shutil.copytree(server, backup)
        made.insert("t", 2)
        made.capture()
        checkpoint.once()
    looked = Databases(checkpoint.run.restarted(hostname=backup).source)
    ends = DatabasesEnding(looked, checkpoint.texts.__getitem__, checkpoint.last)
    with pytest.raises(PositionMismatch, match="restored or failed over to an older state"):
        ends.is_reached(checkpoint.last)
    # Status says what the run says.
    [health] = looked.health(Offsets.from_json(json.loads(checkpoint.texts[checkpoint.last]))).values()
    assert health.state is CaptureState.NOT_CAPTURING
    assert "restored or failed over to an older state" in health.sentence and "when_needed" in health.remedy


def test_an_oracle_database_of_another_incarnation_is_an_error_and_no_end(tmp_path, monkeypatch):
    with closing(OracleDatabase(tmp_path / "server")) as made:
        made.create("t", KEYED, [(1,)])
        checkpoint = Checkpoint(made)
        checkpoint.once()
    with closing(OracleDatabase(tmp_path / "other")) as other:
        other.create("t", KEYED, [(1,)])
        checkpoint.run.restarted(**other.options)
        ends = DatabasesEnding(Databases(checkpoint.run.source), checkpoint.texts.__getitem__, checkpoint.last)
        # What was delivered is far beyond what this one has.
        text = checkpoint.texts[-1].replace(checkpoint.run.offset.commit, "9" * len(checkpoint.run.offset.commit))
        checkpoint.texts[-1] = text
        with pytest.raises(PositionMismatch, match="it was restored"):
            ends.is_reached(checkpoint.last)
