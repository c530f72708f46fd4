"""One Spark session for all tests of formats."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # A time zone far from UTC: no wire value may depend on it.
    session = (
        SparkSession.builder.master("local[2]")
        .appName("formats")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "Pacific/Apia")
        .getOrCreate()
    )
    yield session
    session.stop()
