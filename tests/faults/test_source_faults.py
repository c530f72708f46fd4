"""Rule: what the SQL Server source does after a fault is right in the messages too, and on Spark itself.

Faults 5 and 6 of the fault list, where the format or Spark is part of them; kills of whole pipelines, and faults that
need no Spark, are specified elsewhere.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.sqlserver_runs import NOW, Run, create

import headrace
from headrace.formats.convert import encode
from headrace.sources.base import Limit
from headrace_emulators.sqlserver import EmulatedServer


@pytest.fixture
def database(tmp_path):
    with EmulatedServer(tmp_path / "server").create_database("shop") as made:
        yield made


def messages(spark, run):
    """The next batch as messages: (what, key), in order."""
    start, run.offset = run.offset, run.source.advance(run.offset, Limit(), NOW)
    batches = [batch for piece in run.source.plan(start, run.offset) for batch in run.source.read(piece)]
    rows = encode(
        spark.createDataFrame(pa.Table.from_batches(batches)), format="debezium_json", topic_prefix="server1"
    ).collect()
    found = []
    for row in sorted(rows, key=lambda row: row.position):
        key = json.loads(row.key)
        if "id" in key:
            found.append((json.loads(row.value)["op"] if row.value else "tombstone", key["id"]))
    return found


def test_a_key_that_changes_twice_with_a_restart_between_is_removed_and_made_twice(spark, database):
    create(database, "t", "id int not null primary key, v int", [(1, 7)])
    run = Run(database)
    run.all()
    found = []
    for statement in ("UPDATE dbo.t SET id = 2 WHERE id = 1", "UPDATE dbo.t SET id = 3 WHERE id = 2"):
        database.execute(statement)
        database.capture()
        found += messages(spark, run.with_options())
    assert found == [
        ("d", 1),
        ("tombstone", 1),
        ("c", 2),
        ("d", 2),
        ("tombstone", 2),
        ("c", 3),
    ]


def query_of(spark, database, take, checkpoint: Path, **options):
    headrace.register(spark)
    given = {"driver": "emulator", "hostname": str(database.path.parent), "database": "shop", **options}
    stream = spark.readStream.format("sqlserver_cdc").options(**given).load()
    return stream.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint)).start()


def test_a_large_transaction_whose_batch_fails_on_spark_comes_again_as_a_whole(spark, database, tmp_path):
    create(database, "t", "id int not null primary key, v int")
    batches = []
    failing = [True]

    def take(rows, number):
        counts = Counter(row["op"] for row in rows.select("op").toArrow().to_pylist())
        if counts["c"]:
            batches.append((number, counts["c"], counts["begin"], counts["end"]))
            if failing:
                failing.pop()
                raise RuntimeError("the sink is full")

    options = {"provide_transaction_metadata": "true", "max_commits_per_trigger": "1"}
    checkpoint = tmp_path / "checkpoint"
    query = query_of(spark, database, take, checkpoint, **options)
    count = 20_000
    try:
        query.processAllAvailable()
        database.load("dbo.t", pa.table({"id": pa.array(range(count), pa.int32()), "v": pa.nulls(count, pa.int32())}))
        database.capture()
        with pytest.raises(Exception, match="the sink is full"):
            query.processAllAvailable()
    finally:
        query.stop()
    again = query_of(spark, database, take, checkpoint, **options)
    try:
        again.processAllAvailable()
    finally:
        again.stop()
    assert batches == [(batches[0][0], count, 1, 1)] * 2
