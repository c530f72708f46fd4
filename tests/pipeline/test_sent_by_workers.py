"""Rule: whether workers send a batch to Kafka or Spark does, a batch that comes again brings the same messages."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.harness import read_topics

from headrace.pipeline import fusing, load_pipeline
from headrace.sinks.kafka.sink import KafkaSink
from headrace_emulators.sqlserver import EmulatedServer
from headrace_emulators.sqlserver.shop import Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.system]


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    from headrace_emulators.kafka.broker import KafkaBroker

    with KafkaBroker(tmp_path / "broker") as broker:
        yield broker.bootstrap


def run(spark: SparkSession, file: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run to the head in one of the ways; how many batches Spark sent."""
    batches = []
    write = KafkaSink.write
    with monkeypatch.context() as patched:
        patched.setattr(KafkaSink, "write", lambda self, *given: (batches.append(1), write(self, *given)))
        if way == "spark":
            patched.setattr(fusing, "_direct_producer", lambda model: "the test says so")
        running = load_pipeline(file).start(spark, once=True)
        assert running.wait(120)
    return len(batches)


def by_partition(bootstrap: str) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    found = defaultdict(list)
    for one in read_topics(bootstrap):
        found[one["topic"], one["partition"]].append((one["position"], one["key"], one["value"]))
    return found


def test_a_batch_that_comes_again_in_the_other_way_is_the_same(
    spark: SparkSession, tmp_path: Path, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.create(EmulatedServer(tmp_path / "server"), 3, customers=9, products=4)
    text = {
        "source": {
            "type": "sqlserver",
            "driver": "emulator",
            "hostname": str(tmp_path / "server"),
            "database": "shop",
            # One task reads it.
            "tables": ["dbo.orders"],
        },
        "format": {"type": "debezium_json", "topic.prefix": "shop"},
        "sinks": [
            {"type": "kafka", "bootstrap_servers": bootstrap, "topic.creation.default.partitions": "3"},
        ],
        "pipeline": {"name": "test", "checkpoint": "./checkpoint", "trigger": "50ms"},
    }
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps(text))
    # The topics are not there yet.
    assert run(spark, file, "workers", monkeypatch) >= 1
    for first, second in (("workers", "spark"), ("spark", "workers")):
        before = by_partition(bootstrap)
        shop.replay(transactions=40)
        shop.database.capture()
        sent = {first: run(spark, file, first, monkeypatch)}
        once = by_partition(bootstrap)
        commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        commits[-1].unlink()
        commits[-1].with_name(f".{commits[-1].name}.crc").unlink(missing_ok=True)
        sent[second] = run(spark, file, second, monkeypatch)
        assert sent["workers"] == 0
        assert sent["spark"] >= 1
        repeated = 0
        for location, messages in by_partition(bootstrap).items():
            again = messages[len(once[location]) :]
            repeated += len(again)
            assert again == messages[len(once[location]) - len(again) : len(once[location])]
            assert len(once[location]) - len(again) >= len(before[location])
        assert repeated > 5
    assert max(Counter(topic for topic, _ in by_partition(bootstrap)).values()) == 3
