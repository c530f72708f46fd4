"""Spark, and the rows made by hand (`change_history`) on the path."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    from headrace.pipeline.session import DELTA, KAFKA, spark_session

    return spark_session(
        "tests",
        jars=(KAFKA, DELTA),
        master="local[2]",
        conf={"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"},
    )
