"""Spark in an odd time zone, and the recordings on the path."""

from __future__ import annotations

import os
import random
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> Iterator[SparkSession]:
    """The suite's session in a time zone far from UTC: no wire value may depend on it."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Apia")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.fixture
def rng() -> random.Random:
    """Decides random rows, which are others in each run; `HEADRACE_TEST_SEED` repeats a run that failed."""
    seed = int(os.environ.get("HEADRACE_TEST_SEED") or secrets.randbelow(2**32))
    print(f"HEADRACE_TEST_SEED={seed}")
    return random.Random(seed)
