"""Each release of Spark has Java libraries of its own, and one that is unknown is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from tests import release_gaps

from headrace.errors import OptionError
from headrace.spark import releases
from headrace.spark.releases import RELEASES, release_of, running_version


@pytest.mark.parametrize(
    ("version", "kafka", "delta"),
    [
        ("4.0.5", "spark-sql-kafka-0-10_2.13:4.0.0", "delta-spark_2.13:4.0.0"),
        ("4.1.1", "spark-sql-kafka-0-10_2.13:4.1.1", "delta-spark_4.1_2.13:4.2.0"),
        ("4.2.0", "spark-sql-kafka-0-10_2.13:4.2.0", "delta-spark_4.2_2.13:4.4.0"),
        ("4.2.0.dev3", "spark-sql-kafka-0-10_2.13:4.2.0", "delta-spark_4.2_2.13:4.4.0"),
        ("4.3.0", "spark-sql-kafka-0-10_2.13:4.2.0", ""),
    ],
)
def test_a_release_has_its_own_libraries(version: str, kafka: str, delta: str) -> None:
    found = release_of(version)
    assert (found.kafka.partition(":")[2], found.delta.partition(":")[2]) == (kafka, delta)


@pytest.mark.parametrize("version", ["3.5.4", "4.4.0", "5.0.0"])
def test_a_release_that_is_unknown_is_refused(version: str) -> None:
    with pytest.raises(
        OptionError, match=rf"does not run on Spark {re.escape(version)}, but on 4\.0, 4\.1, 4\.2 and 4\.3"
    ):
        release_of(version)


@pytest.mark.parametrize(
    ("library", "name", "remedy"),
    [
        ("delta", "Delta Lake", "Use Spark 4.0, 4.1 or 4.2, or name a jar that suits in HEADRACE_DELTA_PACKAGE."),
        ("iceberg", "Iceberg", "Use Spark 4.0 or 4.1, or name a jar that suits in HEADRACE_ICEBERG_PACKAGE."),
    ],
)
def test_what_needs_a_library_that_has_no_release_is_refused(
    monkeypatch: pytest.MonkeyPatch, library: str, name: str, remedy: str
) -> None:
    monkeypatch.setattr(releases, "running_version", lambda: "4.3")
    releases.require_library(name, library, "io.delta:one-that-is-named:1")
    with pytest.raises(OptionError) as refused:
        releases.require_library(name, library, "")
    assert str(refused.value) == f"{name} has no release for Spark 4.3. {remedy}"


@pytest.mark.parametrize(
    ("version", "said", "reason"),
    [
        (
            "4.3",
            "OptionError: Delta Lake has no release for Spark 4.3. Use Spark",
            "Delta has no release for Spark 4.3",
        ),
        ("4.3", "java.lang.ClassNotFoundException: delta.DefaultSource", "Delta has no release for Spark 4.3"),
        ("4.3", "AssertionError: 1 row", ""),
        ("4.2", "java.lang.ClassNotFoundException: delta.DefaultSource", ""),
    ],
)
def test_a_test_that_meets_a_library_that_has_no_release_is_a_gap(
    monkeypatch: pytest.MonkeyPatch, version: str, said: str, reason: str
) -> None:
    monkeypatch.setattr(release_gaps, "running_version", lambda: version)
    assert release_gaps.gap_met(said) == reason


def test_the_running_version_is_read_without_importing_pyspark() -> None:
    assert running_version() == ".".join(pyspark.__version__.split(".")[:2])
    program = "import sys, headrace.spark.releases as r; r.running_version(); sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_what_pip_may_install_is_what_the_table_has() -> None:
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    first, last = next(iter(RELEASES)), list(RELEASES)[-1]
    major, minor = last.split(".")
    assert f'spark = ["pyspark>={first},<{major}.{int(minor) + 1}"]' in project
