"""Rule: batches are bounded on every Spark, and the trigger `availableNow` takes everything where Spark lets it.

What Spark does with a trigger depends on its version: `DRAINS` says which half of the rule this run shows. The unit
tests show the other half with the arguments that the newer Spark gives.
"""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import headrace
from headrace.sources import reader as readers
from headrace.sources.reader import ChangeStreamReader
from headrace.testing.waiting import PATIENCE
from headrace_emulators.sqlserver import EmulatedServer

DRAINS = readers._SPARK is not None
"""Whether the installed Spark has admission control for Python sources (4.2 or newer)."""


class AllAvailable:
    """Stands for `ReadAllAvailable`."""


class MaxRows:
    """Stands for `ReadMaxRows`."""

    def __init__(self, max_rows):
        self.max_rows = max_rows


@pytest.fixture
def database(tmp_path):
    with EmulatedServer(tmp_path / "server").create_database("shop") as made:
        made.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, note nvarchar(20))")
        made.execute("EXEC sys.sp_cdc_enable_table @source_schema = 'dbo', @source_name = 't', @role_name = NULL")
        made.execute("INSERT INTO dbo.t VALUES (1, N'a'), (2, N'b'), (3, N'c'), (4, N'd'), (5, N'e'), (6, N'f')")
        made.capture()
        yield made


@pytest.fixture
def options(database):
    """Two chunks of two rows, and three commits, to a batch."""
    place = {"driver": "emulator", "hostname": str(database.path.parent), "database": "shop"}
    bounds = {"snapshotChunkRows": "2", "snapshotChunksPerBatch": "2", "maxCommitsPerTrigger": "3"}
    return {**place, **bounds}


@pytest.fixture
def newer_spark(monkeypatch):
    """The words of Spark 4.2, whatever is installed."""
    monkeypatch.setattr(readers, "_SPARK", SimpleNamespace(ReadAllAvailable=AllAvailable, ReadMaxRows=MaxRows))


def commits(database, first, last):
    for number in range(first, last + 1):
        database.execute(f"INSERT INTO dbo.t VALUES ({number}, N'new')")
    database.capture()


def rows_of(reader, start, end):
    """The keys of a batch, in order of position, as Spark would read them."""
    found = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            found += [row for row in batch.select(["position", "op", "key_text"]).to_pylist() if row["op"] != "schema"]
    return [row["key_text"] for row in sorted(found, key=lambda row: row["position"])]


def batches(reader, start, limit):
    """Batch after batch with a start, until the source gives the start back."""
    sizes = []
    while (end := reader.latestOffset(start, limit)) != start:
        sizes.append(len(rows_of(reader, start, end)))
        start = end
    return sizes, start


def test_batches_are_bounded_by_the_options_when_spark_gives_start_and_limit(newer_spark, database, options):
    reader = ChangeStreamReader("sqlserver", options)
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, MaxRows)
    snapshot, start = batches(reader, reader.initialOffset(), limit)
    assert snapshot == [4, 2]
    commits(database, 101, 107)
    assert batches(reader, start, limit)[0] == [3, 3, 1]


def test_batches_are_bounded_by_the_options_when_spark_gives_nothing(database, options):
    reader = ChangeStreamReader("sqlserver", options)
    start, sizes = reader.initialOffset(), []
    commits(database, 101, 107)
    while (end := reader.latestOffset()) != start:
        sizes.append(len(rows_of(reader, start, end)))
        start = end
    # The snapshot holds what was committed before it began.
    assert sizes == [4, 4, 4, 1]


def test_a_limit_of_everything_is_one_batch_of_the_snapshot_and_one_of_all_changes(newer_spark, database, options):
    reader = ChangeStreamReader("sqlserver", options)
    snapshot = reader.latestOffset(reader.initialOffset(), AllAvailable())
    assert len(rows_of(reader, reader.initialOffset(), snapshot)) == 6
    commits(database, 101, 107)
    changes = reader.latestOffset(snapshot, AllAvailable())
    assert len(rows_of(reader, snapshot, changes)) == 7


def test_available_now_ends_at_what_was_there_when_the_query_began(newer_spark, database, options):
    reader = ChangeStreamReader("sqlserver", options)
    limit = reader.getDefaultReadLimit()
    _, start = batches(reader, reader.initialOffset(), limit)
    commits(database, 101, 104)
    reader.prepareForTriggerAvailableNow()
    first = reader.latestOffset(start, limit)
    commits(database, 105, 120)
    second = reader.latestOffset(first, limit)
    # The goal lies in the second batch; the other sixteen commits wait for the next run.
    assert second != first
    assert reader.latestOffset(second, limit) == second
    again = ChangeStreamReader("sqlserver", options)
    again.prepareForTriggerAvailableNow()
    sizes, _ = batches(again, second, limit)
    assert sum(sizes) == 20 - len(rows_of(reader, start, first)) - len(rows_of(reader, first, second))
    assert max(sizes) == 3


def test_the_newest_commit_is_reported(database, options):
    reader = ChangeStreamReader("sqlserver", options)
    before = reader.reportLatestOffset()
    commits(database, 101, 101)
    assert list(before) == list(reader.reportLatestOffset()) == ["shop"]
    assert reader.reportLatestOffset()["shop"] > before["shop"]


@pytest.fixture
def run(spark, options, tmp_path):
    """One run of a query with a trigger that ends by itself: how many rows each batch had."""
    headrace.register(spark)
    stream = spark.readStream.format("sqlserver_cdc").options(**options).load().where("op <> 'schema'")

    def run(**trigger):
        seen = []

        def take(batch, number):
            keys = [row.key_text for row in batch.orderBy("position").collect()]
            if keys:
                seen.append(len(keys))

        query = stream.writeStream.foreachBatch(take).trigger(**trigger)
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(PATIENCE)
        run.reported = [said.sources[0].latestOffset for said in query.recentProgress]
        return seen

    return run


@pytest.mark.system
@pytest.mark.jvm
def test_the_trigger_available_now_drains_in_bounded_batches_or_takes_one_batch_to_a_run(run, database, options):
    runs = [run(availableNow=True), run(availableNow=True)]
    commits(database, 101, 107)
    runs.append(run(availableNow=True))
    assert runs == ([[4, 2], [], [3, 3, 1]] if DRAINS else [[4], [2], [3]])
    if DRAINS:
        # What the query's progress says of each batch.
        newest = ChangeStreamReader("sqlserver", options).reportLatestOffset()
        assert [json.loads(offset) for offset in run.reported] == [newest] * len(run.reported) != []


@pytest.mark.system
@pytest.mark.jvm
def test_the_trigger_once_takes_everything_or_one_bounded_batch(run, database):
    runs = [run(once=True)]
    commits(database, 101, 107)
    runs.append(run(once=True))
    assert runs == ([[6], [7]] if DRAINS else [[4], [2]])
