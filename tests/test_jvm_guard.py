"""A test without the marker `jvm` starts no JVM, so `make test-fast` starts none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SESSION = "from pyspark.sql import SparkSession; SparkSession.builder.getOrCreate()"


@pytest.mark.parametrize("command", [["java", "-jar", "x"], ["/opt/spark/bin/spark-submit"], Path("/usr/bin/java")])
def test_no_test_starts_one_without_saying_so(command: object) -> None:
    with pytest.raises(AssertionError, match="no marker jvm"):
        subprocess.Popen(command)  # type: ignore[call-overload]


def test_no_process_below_it_does() -> None:
    done = subprocess.run([sys.executable, "-c", SESSION], capture_output=True, text=True)
    assert done.returncode != 0
    assert "/a-test-without-the-marker-jvm-starts-no-spark" in done.stderr
