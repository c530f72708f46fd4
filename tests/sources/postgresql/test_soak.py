"""Rule: after a million random changes over ten tables a mirror equals the source.

Large values, partitions, new keys, emptied and altered tables, prepared and rolled back transactions; batches are read
while the changes are made, some of them a second time by a process that knows nothing.
"""

from __future__ import annotations

import random
from contextlib import closing

import pytest
from tests.support.mirror import Mirror, read_beside
from tests.support.postgres_changes import KEYS, Changes, held
from tests.support.postgresql import PostgresDatabase

from headrace.sources.reader import source_named


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
        mirror = Mirror(KEYS)
        batches = read_beside(
            lambda: source_named("postgresql", options),
            made,
            mirror,
            rows=changes,
            transaction=transaction,
            seed=seed,
        )
    print(f"{made.rows:,} rows changed, {batches} batches")
    assert mirror.differences(held(postgres_database)) == {}
