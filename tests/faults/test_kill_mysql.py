"""Rule: whatever kills a pipeline that reads MySQL or MariaDB, after the next run the mirror equals the source, and
messages of a change that came twice are the same.

A real server with ten tables that change all the time, by distributed transactions too; the mirror is Delta tables,
which `headrace verify` holds against the source.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Changing, PipelineUnderTest
from tests.support.mysql_changes import KEYS, Changes

from headrace.testing.waiting import PATIENCE
from headrace_emulators.mysql.server import MySqlDatabase

pytestmark = [pytest.mark.jvm, pytest.mark.soak, pytest.mark.system]

POINTS = (
    # In the middle of the changes that a batch gives.
    "source.stream.batch@2",
    # All sinks have it, Spark's commit log has not.
    "pipeline.batch.done@3",
    "source.stream.batch@5",
)
KILLS = 5
# Its inserts do not name all columns, and with MINIMAL images nothing says what is in the others: a mirror stops.
TABLES = [table for table in KEYS if table != "altered"]


@pytest.fixture
def changing(binlog_database: MySqlDatabase) -> Iterator[Changing]:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    made = Changing(Changes(binlog_database, seed))
    yield made
    made.stop()


@pytest.fixture
def subject(tmp_path: Path, binlog_database: MySqlDatabase, changing: Changing) -> PipelineUnderTest:
    sinks = [
        {"type": "files", "path": "./messages", "format": {"type": "debezium_json", "topic.prefix": "shop"}},
        {"type": "delta", "path": "./lake", "schema_change_behavior": "lenient"},
    ]
    options = {
        **{name: value for name, value in binlog_database.options.items() if name != "hostname"},
        "tables": [f"{binlog_database.name}.{table}" for table in TABLES],
        "snapshot_chunk_rows": 200,
    }
    made = PipelineUnderTest(tmp_path / "pipeline", "127.0.0.1", None, sinks, options, "mysql")
    made.write()
    return made


def settle(spark: Any, subject: PipelineUnderTest, changing: Changing) -> None:
    """End the changes, let everything through, and hold mirror and messages against the source."""
    changing.stop()
    subject.drain(spark)
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "verify", str(subject.file)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    contents = defaultdict(set)
    for file in (subject.folder / "messages").rglob("part-*"):
        for line in file.read_text(encoding="utf-8").splitlines():
            message = json.loads(line)
            event = json.loads(message["value"]) if message["value"] else {}
            if event.get("op") in ("c", "u", "d"):
                contents[message["position"], event["op"]].add(message["value"])
    assert contents
    assert all(len(found) == 1 for found in contents.values())


def test_killed_at_named_points_nothing_is_lost_or_doubled(
    spark: Any, subject: PipelineUnderTest, changing: Changing
) -> None:
    changing.start(subject)
    for point in POINTS:
        subject.killed_at(point)
    settle(spark, subject, changing)


def test_killed_at_random_moments_nothing_is_lost_or_doubled(
    spark: Any, subject: PipelineUnderTest, changing: Changing
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    moments = random.Random(seed)
    changing.start(subject)
    for _ in range(KILLS):
        subject.killed_after(moments.uniform(0, 4))
    settle(spark, subject, changing)
