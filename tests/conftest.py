"""One Spark session for the whole suite: a second one in the same process would get the first one's jars.

And the scenarios of SQL Server capture as a table in the summary.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from tests.jvm_guard import JvmGuard
from tests.release_gaps import ReleaseGaps
from tests.side_by_side import FILES
from tests.smoke import Smoke, examples
from tests.support.mysql import (  # noqa: F401
    binlog_database,
    binlog_server,
    mariadb_database,
    mariadb_server,
    mysql_database,
    mysql_server,
    needs_mariadb,
    needs_mysql,
    new_binlog_database,
)
from tests.support.postgresql import (  # noqa: F401
    needs_postgres,
    new_postgres_database,
    postgres_database,
    postgres_server,
)
from tests.truth_table import TruthTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession


MEMORY, ROOM = Path("/dev/shm"), 8 << 30
# What tests write lies in memory where there is room: to make a database is to make three hundred files, which takes
# five times as long on a disk. Processes below this one have it from here, too. A path given by TMPDIR stays.
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# A busy machine is no finding.
settings.register_profile("headrace", deadline=None, max_examples=examples(100))
settings.load_profile("headrace")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(TruthTable(), "sqlserver-scenarios")
    config.pluginmanager.register(JvmGuard(), "jvm-guard")
    config.pluginmanager.register(ReleaseGaps(), "release-gaps")
    config.pluginmanager.register(Smoke(), "smoke")


SINKS = Path(__file__).parent / "sinks"
"""Its tests with a JVM are half of all of those: `tests.side_by_side` runs them in a process of their own."""
SERVERS = frozenset(("binlog_server", "database_server", "mariadb_server", "mysql_server", "postgres_server"))
"""Fixtures that start a real server of a database."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """What starts a real server of a database takes longest of what starts no JVM."""
    if SINKS in item.path.parents:
        item.add_marker("sinks")
    own = [mark.mark for mark in (needs_mariadb, needs_mysql, needs_postgres)]
    if SERVERS & set(getattr(item, "fixturenames", ())) or any(mark in own for mark in item.iter_markers("skipif")):
        item.add_marker("slow")


OTHERS = pytest.StashKey[set[str]]()
"""The files with tests that have a JVM and are not those of sinks."""


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("jvm") and not item.get_closest_marker("sinks"):
            item.config.stash.setdefault(OTHERS, set()).add(str(item.path))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep what was imported and collected out of Python's garbage collection, which takes half a second for it."""
    gc.collect()
    gc.freeze()
    # No process that a test starts has it.
    if tells := os.environ.pop(FILES, ""):
        with os.fdopen(int(tells), "w", encoding="utf-8") as pipe:
            pipe.write("\n".join(sorted(session.config.stash.get(OTHERS, ()))))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    from headrace import registry
    from headrace.spark.daemon import FORMATS
    from headrace.spark.jars import AVRO, DELTA, ICEBERG, KAFKA, SQLITE
    from headrace.spark.session import spark_session

    return spark_session(
        "headrace-tests",
        jars=(KAFKA, DELTA, AVRO, ICEBERG, SQLITE),
        master="local[2]",
        conf={
            "spark.driver.memory": "3g",
            "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
            # Plans for a few rows are not made anew while they run, nor spread.
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            # As in a run: what reads and writes messages is loaded before workers are forked.
            f"spark.executorEnv.{FORMATS}": ",".join(registry.built_in_names("format")),
            # Nobody looks at the plans that Spark would spell for its page.
            "spark.sql.ui.explainMode": "simple",
            # Spark would compute on rows of the plan while it plans, and never run what runs on a batch.
            "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
        },
    )


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker for all tests of a process that bear the marker kafka, each with topics of its own."""
    from headrace_emulators.kafka.broker import KafkaBroker

    with KafkaBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.bootstrap


@pytest.fixture
def generated_code(spark: SparkSession) -> Iterator[None]:
    """Spark generates code for its plans, as it does for users, and does not interpret them (`tests/java`)."""
    settings = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, str(value))
