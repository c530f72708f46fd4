"""Rule: whatever kills a pipeline that reads PostgreSQL, after the next run the mirror equals the source, and messages
of a change that came twice are the same.

A real server with ten tables that change all the time; the mirror is another database, and both are asked by COPY.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Changing, PipelineUnderTest
from tests.support.postgres_changes import KEYS, Changes
from tests.support.postgresql import USER, PostgresDatabase

pytestmark = [pytest.mark.jvm, pytest.mark.system]

POINTS = (
    # In the middle of the changes that a batch gives.
    "source.stream.batch@2",
    # All sinks have it, Spark's commit log has not.
    "pipeline.batch.done@3",
    "sink.jdbc.before_commit@4",
)
KILLS = 10


@pytest.fixture
def source(new_postgres_database: Callable[[], PostgresDatabase]) -> PostgresDatabase:
    return new_postgres_database()


@pytest.fixture
def mirror(new_postgres_database: Callable[[], PostgresDatabase]) -> PostgresDatabase:
    return new_postgres_database()


@pytest.fixture
def changing(source: PostgresDatabase, request: pytest.FixtureRequest) -> Iterator[Changing]:
    seed = random.randrange(10**6) if request.node.get_closest_marker("soak") else 1
    print(f"seed {seed}")
    made = Changing(Changes(source, seed))
    yield made
    made.stop()


@pytest.fixture
def subject(
    tmp_path: Path, source: PostgresDatabase, changing: Changing, mirror: PostgresDatabase
) -> PipelineUnderTest:
    url = f"jdbc:postgresql://127.0.0.1:{mirror.server.port}/{mirror.name}"
    sinks = [
        {"type": "files", "path": "./messages", "format": {"type": "debezium_json", "topic.prefix": "shop"}},
        {
            "type": "jdbc",
            "url": url,
            "user": USER,
            "password": "",
            "table_name": "{table}",
            "schema_change_behavior": "lenient",
        },
    ]
    options = {
        **{name: value for name, value in source.options.items() if name not in ("hostname", "database")},
        "slot": f"slot_{source.name}",
        "tables": [f"public.{table}" for table in KEYS],
        "snapshot_chunk_rows": 200,
    }
    made = PipelineUnderTest(tmp_path / "pipeline", "127.0.0.1", source.name, sinks, options, "postgresql")
    made.write()
    return made


def settle(
    spark: Any, subject: PipelineUnderTest, changing: Changing, source: PostgresDatabase, mirror: PostgresDatabase
) -> None:
    """End the changes, let everything through, and hold mirror and messages against the source."""
    changing.stop()
    subject.drain(spark)
    for table in KEYS:
        columns = source.execute(
            "SELECT string_agg(attname, ', ' ORDER BY attnum) FROM pg_attribute "
            "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
            (table,),
        )[0][0]
        truth, ours = (
            Counter(database.copied(f"(SELECT {columns} FROM {table})").split("\n")) for database in (source, mirror)
        )
        assert truth == ours, (table, list((truth - ours).items())[:5], list((ours - truth).items())[:5])
    contents = defaultdict(set)
    for file in (subject.folder / "messages").rglob("part-*"):
        for line in file.read_text(encoding="utf-8").splitlines():
            message = json.loads(line)
            event = json.loads(message["value"]) if message["value"] else {}
            if event.get("op") in ("c", "u", "d"):
                contents[message["position"], event["op"]].add(message["value"])
    assert contents
    assert all(len(found) == 1 for found in contents.values())


@pytest.mark.parametrize("points", [POINTS[:1], pytest.param(POINTS, marks=pytest.mark.soak)], ids=["one", "all"])
def test_killed_at_named_points_nothing_is_lost_or_doubled(
    spark: Any,
    subject: PipelineUnderTest,
    changing: Changing,
    source: PostgresDatabase,
    mirror: PostgresDatabase,
    points: tuple[str, ...],
) -> None:
    changing.start(subject)
    for point in points:
        subject.killed_at(point)
    settle(spark, subject, changing, source, mirror)


@pytest.mark.soak
def test_killed_at_random_moments_nothing_is_lost_or_doubled(
    spark: Any, subject: PipelineUnderTest, changing: Changing, source: PostgresDatabase, mirror: PostgresDatabase
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    moments = random.Random(seed)
    changing.start(subject)
    for _ in range(KILLS):
        subject.killed_after(moments.uniform(0, 4))
    settle(spark, subject, changing, source, mirror)
