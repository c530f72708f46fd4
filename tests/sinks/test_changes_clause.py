"""Rule: what batches changed in a Delta mirror is read with Spark's clause CHANGES, where the table tracks its rows.

docs/apply.md says how. Spark 4.2 has the clause, and Delta 4.4 serves it for batches, behind a setting of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.delta_target import DeltaTarget

from headrace.testing.change_history import Batch
from headrace.testing.table_target import A, B, T

TRACKED = "spark.databricks.delta.properties.defaults.enableRowTracking"
SERVED = "spark.databricks.delta.changelogV2.enabled"


@pytest.fixture
def target(spark: Any, tmp_path: Path) -> Iterator[DeltaTarget]:
    for name in (TRACKED, SERVED):
        spark.conf.set(name, "true")
    yield DeltaTarget(spark, tmp_path / "lake")
    for name in (TRACKED, SERVED):
        spark.conf.unset(name)


def test_the_changes_between_two_versions_are_the_rows_that_batches_changed(target: DeltaTarget) -> None:
    three, four = {**A, "id": "3"}, {**A, "id": "4"}
    batches = [
        Batch(T).add("r", T, 1, A).add("r", T, 1, B).add("r", T, 1, three, snapshot="last"),
        Batch(T).add("u", T, 2, {**A, "a": "new"}).add("d", T, 3, None, B),
        Batch(T).add("u", T, 4, {**A, "a": "newer"}).add("c", T, 5, four).add("d", T, 6, None, four),
    ]
    versions = []
    for number, batch in enumerate(batches):
        target.write(batch, number)
        versions.append(target.version())

    def changes(first: int, last: int, mode: str) -> list[tuple[Any, ...]]:
        """What changed from one version up to another, both included."""
        given = f"(deduplicationMode = '{mode}', computeUpdates = 'true')"
        rows = target.spark.sql(
            f"select id, a, _change_type from delta.`{target.path('t')}` "
            f"changes from version {first} to version {last} with {given}"
        )
        return sorted(map(tuple, rows.collect()))

    # Row 3 was in the same file, and is no change.
    assert changes(versions[0] + 1, versions[1], "dropCarryovers") == [
        (1, "new", "update_postimage"),
        (1, "x", "update_preimage"),
        (2, "z", "delete"),
    ]
    assert changes(versions[0] + 1, versions[2], "netChanges") == [
        (1, "newer", "update_postimage"),
        (1, "x", "update_preimage"),
        (2, "z", "delete"),
    ]
