"""Names of modules that users wrote down and that moved: each works on, and says where it is now."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys

import pytest

from headrace.errors import HeadraceDeprecationWarning
from headrace.testing.waiting import PATIENCE
from headrace.versions import is_gone


@pytest.mark.parametrize(
    ("before", "now", "name"),
    [
        ("headrace.jars", "headrace.spark.jars", "maven_jars"),
        ("headrace.pipeline.session", "headrace.spark.session", "spark_session"),
        ("headrace.emulators.sqlserver", "headrace_emulators", "EmulatedServer"),
        ("headrace.emulators.kafka_broker", "headrace_emulators", "KafkaBroker"),
        ("headrace.testing.schema_registry", "headrace_emulators.schema_registry.server", "SchemaRegistryServer"),
    ],
)
def test_a_module_that_moved_can_be_imported_by_its_former_name_and_warns(before: str, now: str, name: str) -> None:
    packages = ("headrace", "headrace.testing")
    for module in [m for m in sys.modules if m == before or (before.startswith(f"{m}.") and m not in packages)]:
        del sys.modules[module]
    with pytest.warns(HeadraceDeprecationWarning, match=now) as said:
        found = importlib.import_module(before)
    [until] = re.findall(r"before (\d+\.\d+)\.$", str(said[0].message))
    assert not is_gone(until), f"{before} goes with this release: remove it, and say so in CHANGELOG.md"
    assert getattr(found, name).__module__.startswith(now)


def test_the_daemon_of_python_workers_runs_by_its_former_name_and_warns() -> None:
    # With nothing on its stdin the daemon says its port and ends.
    done = subprocess.run(
        [sys.executable, "-m", "headrace.python_daemon", "pyspark.worker"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
    )
    assert b"headrace.python_daemon is now headrace.spark.daemon" in done.stderr
    assert len(done.stdout) >= 4
