"""Which tests start a JVM, and the proof that the others start none.

A test that asks for the suite's session gets the marker `jvm` by itself, and so does one that starts a broker. One that
starts a JVM in another way says so: `@pytest.mark.jvm`. A test without the marker fails where it starts a JVM, in this
process or in one below it, so that `make test-fast` stays fast.

What a test with the marker starts, in whatever process, runs on `tests/java`, which starts sooner.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from headrace.spark.java import find_java

_PROGRAMS = frozenset(("java", "spark-submit", "spark-class"))
_FORBIDDEN = "/a-test-without-the-marker-jvm-starts-no-spark"
"""What PySpark of such a test, and of its children, takes for Spark's folder."""


class JvmGuard:
    """A plugin of pytest that marks tests and watches those without the marker."""

    def __init__(self) -> None:
        self._allowed = True
        self._spark_home = os.environ.get("SPARK_HOME")
        sys.addaudithook(self._watch)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        if "spark" in getattr(item, "fixturenames", ()) or item.get_closest_marker("kafka"):
            item.add_marker("jvm")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        marked = item.get_closest_marker("jvm") is not None
        if marked:
            _java_of_tests()
        self._allow(marked)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self) -> None:
        self._allow(True)

    def _allow(self, allowed: bool) -> None:
        self._allowed = allowed
        home = self._spark_home if allowed else _FORBIDDEN
        if home is None:
            os.environ.pop("SPARK_HOME", None)
        else:
            os.environ["SPARK_HOME"] = home

    def _watch(self, event: str, arguments: Sequence[object]) -> None:
        if self._allowed or event != "subprocess.Popen":
            return
        command = arguments[1]
        words = [command] if isinstance(command, str | bytes | Path) else list(command)  # type: ignore[call-overload]
        names = [os.fsdecode(word) for word in words]
        if Path(names[0]).name in _PROGRAMS and "-version" not in names:
            raise AssertionError(f"This test has no marker jvm, and starts {names[0]}.")


@cache
def _java_of_tests() -> None:
    """Let this process and those below it start Java by `tests/java`."""
    os.environ["HEADRACE_TEST_JAVA"] = str(find_java())
    os.environ["JAVA_HOME"] = str(Path(__file__).parent / "java")
