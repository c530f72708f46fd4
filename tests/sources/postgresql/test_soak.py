"""Rule: after a million random changes over ten tables a mirror equals the source.

Large values, partitions, new keys, emptied and altered tables, prepared and rolled back transactions; batches are read
while the changes are made, some of them a second time by a process that knows nothing.
"""

from __future__ import annotations

import datetime as dt
import random
from contextlib import closing

import pyarrow as pa
import pytest
from tests.support.postgres_changes import KEYS, Changes, Mirror
from tests.support.postgresql import PostgresDatabase

from headrace.changes import arrow_schema
from headrace.sources.base import Limit
from headrace.sources.reader import source_named
from headrace.testing.sources import SourceRun


@pytest.mark.parametrize(
    ("changes", "transaction"),
    [(4_000, 20), pytest.param(1_000_000, 2_000, marks=pytest.mark.soak)],
    ids=["few", "million"],
)
def test_a_mirror_equals_the_source_after_random_changes(
    postgres_database: PostgresDatabase, request: pytest.FixtureRequest, changes: int, transaction: int
) -> None:
    seed = random.randrange(10**6) if request.node.get_closest_marker("soak") else 1
    print(f"seed {seed}")
    moments = random.Random(seed)
    with closing(Changes(postgres_database, seed)) as made:
        while made.rows < changes // 10:
            made.step(transaction)
        options = {
            **postgres_database.options,
            "slot": f"slot_{postgres_database.name}",
            "tables": ",".join(f"public.{table}" for table in KEYS),
            "snapshot_chunk_rows": "500",
            "min_wal_per_reader": "1000000",
        }

        def make() -> object:
            return source_named("postgresql", options)

        run, mirror, batches = SourceRun(make), Mirror(), 0
        while made.rows < changes:
            for _ in range(moments.randrange(40)):
                made.step(transaction)
            batches += _batch(run, mirror, again=moments.random() < 0.1)
            if moments.random() < 0.05:
                run.source = make()
        while _batch(run, mirror, again=False):
            batches += 1
    print(f"{made.rows:,} rows changed, {batches} batches")
    assert mirror.differences(postgres_database) == {}


def _batch(run: SourceRun, mirror: Mirror, *, again: bool) -> bool:
    start = run.offset
    end = run.source.advance(start, Limit(), dt.datetime.now(dt.UTC))
    if end == start:
        return False
    run.source.acknowledge(start)
    found = pa.Table.from_batches(run.read(start, end), arrow_schema())
    if again and not start.is_nothing and start.is_level and end.is_level:
        run.source = run._make()
        assert pa.Table.from_batches(run.read(start, end), arrow_schema()).equals(found)
    mirror.take(found.to_batches())
    run.offset = end
    return True
