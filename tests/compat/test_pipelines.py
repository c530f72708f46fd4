"""Rule: a run goes on from the checkpoint and the targets that an earlier release left in the middle of a batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.compat.databases import VERSIONS, KeptSqlServer
from tests.compat.packing import unpack
from tests.compat.pipelines import SINKS, kept, move_delta, move_iceberg, shop_pipeline, topic_pipeline

import headrace
from headrace.pipeline import load_pipeline
from headrace.testing.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AFTER = {
    "customers": [(1, "a"), (2, "B"), (4, "d")],
    "log": [(1, "x"), (1, "x"), (2, "y"), (3, "z")],
}


@pytest.fixture(params=[version for version in VERSIONS if kept(version, "shop").exists()])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.system
def test_a_run_goes_on_and_its_targets_have_each_batch_once(spark: SparkSession, tmp_path: Path, version: str) -> None:
    unpack(kept(version, "shop"), tmp_path)
    move_iceberg(tmp_path / "ice")
    database = KeptSqlServer(tmp_path / "server")
    # The other tables have their batches by the same marks.
    file = shop_pipeline(tmp_path, [sink for sink in SINKS if "stored_as_scd_type" not in sink])
    with database.capturing():
        assert load_pipeline(file).start(spark, once=True).wait(PATIENCE)
    database.emulated.close()
    session: Any = spark.newSession()
    session.conf.set("spark.sql.catalog.kept", "org.apache.iceberg.spark.SparkCatalog")
    session.conf.set("spark.sql.catalog.kept.type", "hadoop")
    session.conf.set("spark.sql.catalog.kept.warehouse", str(tmp_path / "ice"))
    for name, rows in AFTER.items():
        for table in (f"delta.`{tmp_path}/lake/dbo/{name}`", f"kept.dbo.{name}"):
            found = session.table(table).drop("_headrace_position").collect()
            assert sorted(tuple(row) for row in found) == rows, table
    folders = sorted(folder.name for folder in (tmp_path / "messages").glob("batch=*"))
    lines = [json.loads(line) for f in sorted((tmp_path / "messages").rglob("part-*")) for line in f.open()]
    assert len(folders) == len(list((tmp_path / "checkpoint/commits").glob("[0-9]*")))
    assert len({line["position"] for line in lines}) == 11


def test_tables_filled_without_a_pipeline_know_their_batch_and_take_the_next(
    spark: SparkSession, tmp_path: Path, version: str
) -> None:
    unpack(kept(version, "by-hand"), tmp_path)
    for folder in tmp_path.iterdir():
        move_delta(folder)
    rows: Any = spark.createDataFrame([(1, "z", 2), (3, "c", 2)], "id int, v string, at int")
    for stored_as, expected in (("1", ["z", "b", "c"]), ("append", ["a", "b", "c", "z"])):
        place = f"{tmp_path}/{stored_as}"
        for batch in (3, 4):
            headrace.apply_changes(rows, place, ["id"], "at", stored_as_scd_type=stored_as, batch_id=batch)
            if batch == 3:
                assert spark.table(f"delta.`{place}`").count() == 2
        assert sorted(row["v"] for row in spark.table(f"delta.`{place}`").collect()) == sorted(expected)


def test_the_checkpoint_of_a_topic_says_where_it_stands(tmp_path: Path, version: str) -> None:
    unpack(kept(version, "topic"), tmp_path)
    status = load_pipeline(topic_pipeline(tmp_path)).status(ask_source=False)
    assert '"t":{"0":3}' in str(status.to_json()).replace("'", '"').replace(" ", "")
