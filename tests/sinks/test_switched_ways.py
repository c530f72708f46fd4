"""Rule: which way a batch takes changes nothing that a reader can see. Random changes of several tables, with a way at
random for each batch of each table, also while tables are read for the first time and others write to them, leave what
a plain model has.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.lake_mirror import made
from tests.support.switched_ways import Tables, run


@pytest.mark.parametrize(
    "kind", ["delta", *(pytest.param(k, marks=pytest.mark.system) for k in ("iceberg", "iceberg 3"))]
)
def test_ways_that_are_switched_at_random_leave_what_a_model_has(spark: Any, tmp_path: Path, kind: str) -> None:
    run(
        Tables(made(kind, spark, tmp_path / "lake", partition_by=["parted.re;gion"]), random.Random(35)),
        120,
        [(15, 60)],
    )


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["delta", "iceberg", "iceberg 3"])
def test_many_changes_with_ways_that_are_switched_at_random(spark: Any, tmp_path: Path, kind: str) -> None:
    """`HEADRACE_CHANGES` says how many, and `HEADRACE_SEED` which."""
    seed = int(os.environ.get("HEADRACE_SEED") or time.time())
    print(f"HEADRACE_SEED={seed}")
    tables = Tables(made(kind, spark, tmp_path / "lake", partition_by=["parted.re;gion"]), random.Random(seed))
    run(tables, int(os.environ.get("HEADRACE_CHANGES", "100000")), [(9, 60), (400, 60), (400, 9_000), (30_000, 9_000)])
