"""The contract of table sinks on Delta tables that a Hive metastore knows by name, for a process of its own: a session
has Hive support from its start or never. `tests/sinks/test_catalogues.py` runs it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from headrace.changes import TableSchema
from headrace.sinks.lake.delta.sink import DeltaSink
from headrace.testing.table_sinks import TableSinkContract
from headrace.testing.table_target import TableTarget

METASTORE = "HEADRACE_TEST_METASTORE"


class NamedDelta(TableTarget):
    """A sink on one namespace of a metastore, and what its tables hold."""

    def __init__(self, spark: Any, given: dict[str, str]) -> None:
        self.spark = spark
        self.given = {**given, "namespace": f"n{uuid4().hex[:8]}_{{schema}}"}

    def sink(self, **options: Any) -> DeltaSink:
        return DeltaSink.of({**self.given, **options})

    def content(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        own = type(self.spark)(self.spark.sparkContext, self.spark._jsparkSession.cloneSession())
        table = self.sink().target(own, schema.id)
        rows = table.read().toArrow().to_pylist(maps_as_pydicts="strict") if table.exists else []
        return sorted((tuple(v for n, v in row.items() if n != "_headrace_position") for row in rows), key=repr)

    def version_of(self, schema: TableSchema) -> int | None:
        name = self.sink().target(self.spark, schema.id).sql_name
        if not self.spark.catalog.tableExists(name):
            return None
        return int(self.spark.sql(f"describe history {name}").agg({"version": "max"}).first()[0])


@pytest.fixture(scope="session")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {
        "catalog": "spark_catalog",
        "catalog_type": "hive",
        "uri": os.environ[METASTORE],
        "warehouse": str(tmp_path_factory.mktemp("warehouse")),
    }


@pytest.fixture(scope="session")
def spark(given: dict[str, str]) -> Iterator[Any]:
    from headrace.spark.jars import DELTA
    from headrace.spark.session import spark_session

    conf = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
    session = spark_session(
        "headrace-by-name", jars=[DELTA], master="local[2]", conf=conf | dict(DeltaSink.of(given).session_settings)
    )
    yield session
    session.stop()


@pytest.fixture
def target(spark: Any, given: dict[str, str]) -> NamedDelta:
    return NamedDelta(spark, given)


class TestDeltaByName(TableSinkContract):
    fault_point = "sink.delta"
    never_fits = (({"id": "int32", "_headrace_position": "string"}, ("id",), "Headrace's own"),)


def test_a_hive_session_is_no_session_in_memory(spark: Any, target: NamedDelta, tmp_path: Path) -> None:
    target.sink().check()
