"""Rule: whatever kills the pipeline, after the next run the mirror equals the source and the topic holds every change.

Faults 1, 2, 4, 5 and 7 of the fault list: kill -9 of everything at named points, each with proof that it was hit,
and at random moments.
"""

from __future__ import annotations

import random

import pytest
from harness import PipelineUnderTest, check_topic, read_topics, until

from headrace_emulators.demo.comparison import compare
from headrace_emulators.demo.workload import Workload

pytestmark = pytest.mark.jvm

# All sinks have it, Spark's commit log has not.
POINT = "pipeline.batch.done@2"
MORE_POINTS = (
    # During the second chunk of the snapshot.
    "source.snapshot.chunk@2",
    # After the first of two sinks, in the middle of the snapshot and later in the stream.
    "pipeline.sink.1.written@2",
    # Inside the Delta sink, after its commit.
    "sink.delta.after_commit@4",
    # While a window of changes is read.
    "source.stream.batch@3",
)


@pytest.fixture
def kind():
    return "sqlserver"


@pytest.fixture
def shop(tmp_path, kind):
    with Workload(tmp_path / "server", "shop", 11, 30, kind) as workload:
        until(lambda: workload.ready, "the shop is set up")
        yield workload


def pipeline(tmp_path, broker, name, kind):
    sinks = [
        {"type": "kafka", "bootstrap.servers": broker, "format": {"type": "debezium_json", "topic.prefix": name}},
        {"type": "delta", "path": "./lake"},
    ]
    subject = PipelineUnderTest(
        tmp_path / "pipeline",
        tmp_path / "server",
        "shop",
        sinks,
        {"snapshot_chunk_rows": 100, "snapshot_chunks_per_batch": 3},
        kind,
    )
    subject.write()
    return subject


def settle(spark, subject, shop, broker, name):
    """End the changes, let everything through, and hold mirror and topics against the source."""
    shop.stop()
    until(lambda: shop.captured, "everything is captured")
    subject.drain(spark)
    comparison = compare(shop.file, subject.folder / "lake")
    assert comparison.equal, str(comparison)
    messages = [m for m in read_topics(broker) if m["topic"].startswith(f"{name}.")]
    assert messages
    check_topic(messages, shop.file, "SHOP" if subject.kind == "db2" else "shop", subject.kind)


@pytest.mark.parametrize(
    ("kind", "name", "points"),
    [
        ("sqlserver", "named", (POINT,)),
        # What these points are in is shared by both sources, and takes minutes; all of them are in the soak.
        pytest.param("sqlserver", "more", (POINT, *MORE_POINTS), marks=pytest.mark.soak),
        pytest.param("db2", "db2more", (POINT, *MORE_POINTS), marks=pytest.mark.soak),
    ],
    ids=["one", "all", "db2 all"],
)
def test_killed_at_named_points_nothing_is_lost_doubled_or_out_of_order(
    tmp_path, spark, shop, broker, kind, name, points
):
    subject = pipeline(tmp_path, broker, name, kind)
    shop.change()
    for point in points:
        subject.killed_at(point)
    settle(spark, subject, shop, broker, name)


KILLS = 10


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["sqlserver", "db2"])
def test_killed_at_random_moments_nothing_is_lost_doubled_or_out_of_order(tmp_path, spark, shop, broker, kind):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    moments = random.Random(seed)
    name = f"random-{kind}"
    subject = pipeline(tmp_path, broker, name, kind)
    shop.change()
    for _ in range(KILLS):
        subject.killed_after(moments.uniform(0, 4))
    settle(spark, subject, shop, broker, name)
