"""Rule: whatever kills a pipeline that reads Oracle, after the next run the mirror equals the source, and messages of a
change that came twice are the same."""

from __future__ import annotations

import json
import random
from collections import defaultdict

import pytest
from harness import PipelineUnderTest, until

from headrace_emulators.demo.comparison import compare
from headrace_emulators.demo.workload import Workload

pytestmark = [pytest.mark.jvm, pytest.mark.system]

POINTS = (
    # A range is in staging, and nobody was told.
    "source.oracle.mined",
    # In the middle of the changes that a batch gives.
    "source.stream.batch@2",
    # All sinks have it, Spark's commit log has not.
    "pipeline.batch.done@2",
)
KILLS = 10
TABLES = ("SHOP.CUSTOMERS", "SHOP.ORDERS")


@pytest.fixture
def shop(tmp_path):
    with Workload(tmp_path / "server", "shop", 11, 5, "oracle") as workload:
        until(lambda: workload.ready, "the shop is set up")
        yield workload


@pytest.fixture
def subject(tmp_path):
    sinks = [
        {"type": "files", "path": "./messages", "format": {"type": "debezium_json", "topic.prefix": "shop"}},
        {"type": "delta", "path": "./lake"},
    ]
    options = {
        "driver": "oracle-emulator",
        "database": "SHOP",
        "user": "C##MINER",
        "tables": list(TABLES),
        "lob_enabled": True,
        "rac_nodes": ["instance:2"],
        # So that tasks mine too while the stream is behind.
        "mining_range_scns": 3_000,
    }
    made = PipelineUnderTest(tmp_path / "pipeline", tmp_path / "server", "SHOP", sinks, options, "oracle")
    made.write()
    return made


def settle(spark, subject, shop):
    """End the changes, let everything through, and hold mirror and messages against the source."""
    shop.stop()
    until(lambda: shop.captured, "the changes are ended")
    subject.drain(spark)
    comparison = compare(shop.file, subject.folder / "lake", TABLES)
    assert comparison.equal, str(comparison)
    contents = defaultdict(set)
    for file in (subject.folder / "messages").rglob("part-*"):
        for line in file.read_text(encoding="utf-8").splitlines():
            value = json.loads(line)["value"]
            event = json.loads(value) if value else {}
            if event.get("op") in ("c", "u", "d"):
                source = event["source"]
                contents[source["scn"], source["rs_id"], source["ssn"], event["op"]].add(value)
    assert contents
    assert all(len(found) == 1 for found in contents.values())


@pytest.mark.parametrize("points", [POINTS[:1], pytest.param(POINTS, marks=pytest.mark.soak)], ids=["one", "all"])
def test_killed_at_named_points_nothing_is_lost_or_doubled(spark, subject, shop, points):
    shop.change()
    for point in points:
        subject.killed_at(point)
    settle(spark, subject, shop)


@pytest.mark.soak
def test_killed_at_random_moments_nothing_is_lost_or_doubled(spark, subject, shop):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    moments = random.Random(seed)
    shop.change()
    for _ in range(KILLS):
        subject.killed_after(moments.uniform(0, 4))
    settle(spark, subject, shop)
