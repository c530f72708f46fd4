"""Rule: after a million random changes over ten tables a mirror equals the source.

Large values, partitions, new keys, emptied and altered tables, images without some columns, distributed and rolled back
transactions; batches are read while the changes are made, some of them a second time by a process that knows nothing.
"""

from __future__ import annotations

import random
from contextlib import closing

import pytest
from tests.support.mirror import Mirror, read_beside
from tests.support.mysql_changes import KEYS, Changes, held

from headrace.sources.mysql.source import MysqlSource
from headrace_emulators.mysql.server import MySqlDatabase


@pytest.mark.parametrize(
    ("changes", "transaction"),
    [(1_000, 20), pytest.param(1_000_000, 2_000, marks=pytest.mark.soak)],
    ids=["few", "million"],
)
def test_a_mirror_equals_the_source_after_random_changes(
    binlog_database: MySqlDatabase, request: pytest.FixtureRequest, changes: int, transaction: int
) -> None:
    seed = random.randrange(10**6) if request.node.get_closest_marker("soak") else 1
    print(f"seed {seed}")
    options = {
        **binlog_database.options,
        "tables": ",".join(f"{binlog_database.name}.{table}" for table in KEYS),
        "snapshot_chunk_rows": "500",
        "min_log_per_reader": "1000000",
    }
    mirror = Mirror(KEYS)
    # Transactions and windows span many files.
    with (
        binlog_database.server.changed(max_binlog_size=changes * 20),
        closing(Changes(binlog_database, seed)) as made,
    ):
        while made.rows < changes // 10:
            made.step(transaction)
        batches = read_beside(
            lambda: MysqlSource.of(options), made, mirror, rows=changes, transaction=transaction, seed=seed
        )
    print(f"{made.rows:,} rows changed, {batches} batches")
    assert mirror.differences(held(binlog_database)) == {}
