"""Each release of Spark has Java libraries of its own, and one that is unknown is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from headrace.errors import OptionError
from headrace.spark.releases import RELEASES, release_of, running_version


@pytest.mark.parametrize(
    ("version", "kafka", "delta"),
    [
        ("4.0.5", "spark-sql-kafka-0-10_2.13:4.0.0", "delta-spark_2.13:4.0.0"),
        ("4.1.1", "spark-sql-kafka-0-10_2.13:4.1.1", "delta-spark_4.1_2.13:4.2.0"),
        ("4.2.0", "spark-sql-kafka-0-10_2.13:4.2.0", "delta-spark_4.2_2.13:4.4.0"),
        ("4.2.0.dev3", "spark-sql-kafka-0-10_2.13:4.2.0", "delta-spark_4.2_2.13:4.4.0"),
    ],
)
def test_a_release_has_its_own_libraries(version: str, kafka: str, delta: str) -> None:
    found = release_of(version)
    assert (found.kafka.partition(":")[2], found.delta.partition(":")[2]) == (kafka, delta)


@pytest.mark.parametrize("version", ["3.5.4", "4.3.0", "5.0.0"])
def test_a_release_that_is_unknown_is_refused(version: str) -> None:
    with pytest.raises(OptionError, match=rf"does not run on Spark {re.escape(version)}, but on 4\.0, 4\.1 and 4\.2"):
        release_of(version)


def test_the_running_version_is_read_without_importing_pyspark() -> None:
    assert running_version() == ".".join(pyspark.__version__.split(".")[:2])
    program = "import sys, headrace.spark.releases as r; r.running_version(); sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_what_pip_may_install_is_what_the_table_has() -> None:
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    first, last = next(iter(RELEASES)), list(RELEASES)[-1]
    major, minor = last.split(".")
    assert f'spark = ["pyspark>={first},<{major}.{int(minor) + 1}"]' in project
