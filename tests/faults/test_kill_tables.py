"""Rule: whatever kills the pipeline, after the next run Iceberg's and a database's tables equal the source.

Fault 1, 2 and 4 of the fault list for these targets: kill -9 of everything inside a sink after its commit, and between
two sinks. The oracle reads the tables with Iceberg's own reader and with the database's driver, and compares rows as a
multiset: a batch that was applied twice shows in the table without a key. `make test` kills a pipeline
beside Kafka and Delta (test_kill.py), and programs that write to a database (tests/sinks/test_jdbc_target.py);
`make test-all` kills whole pipelines beside one kind of database, and `make soak` beside each.
"""

from __future__ import annotations

import datetime as dt
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from harness import PipelineUnderTest, until
from tests.sinks.databases import KINDS, fresh_database, serving

from headrace.sinks.jdbc.dialect import TableName
from headrace_emulators.demo.comparison import compare
from headrace_emulators.demo.workload import Workload

_WITH_ZONE = {"seen"}
"""The shop's columns of type datetimeoffset."""
AFTER_COMMITS = ("sink.iceberg.after_commit@3", "sink.jdbc.after_commit@3")
ALL = (
    *AFTER_COMMITS,
    # Between the sinks, and after both but before Spark's own commit.
    "pipeline.sink.1.written@2",
    "pipeline.batch.done@2",
    "sink.iceberg.before_commit@4",
    # The rows are in the staging table, or in a transaction that is still open.
    "sink.jdbc.staged@4",
    "sink.jdbc.before_commit@4",
)


@pytest.fixture
def running(request):
    with serving(request.param) as server:
        yield fresh_database(request.param, server)


@pytest.fixture
def shop(tmp_path):
    with Workload(tmp_path / "server", "shop", 13, 30) as workload:
        until(lambda: workload.ready, "the shop is set up")
        yield workload


CASES = [
    pytest.param(kind.values[0], points, marks=[*kind.marks, *marks], id=f"{kind.values[0]}-{name}")
    for kind, points, name, marks in (
        (KINDS[0], AFTER_COMMITS, "after commits", (pytest.mark.system,)),
        *((kind, ALL, "all", (pytest.mark.soak,)) for kind in KINDS),
    )
]


@pytest.mark.parametrize(("running", "points"), CASES, indirect=["running"])
def test_killed_at_named_points_iceberg_and_a_database_equal_the_source(tmp_path, spark, shop, running, points):
    subject = PipelineUnderTest(
        tmp_path / "pipeline",
        tmp_path / "server",
        "shop",
        [
            {"type": "iceberg", "warehouse": "./warehouse"},
            {"type": "jdbc", "url": running.url, "user": "cdc", "password": "cdc", "table_name": "{table}"},
        ],
        {"snapshot_chunk_rows": 100, "snapshot_chunks_per_batch": 3},
    )
    subject.write()
    shop.change()
    for point in points:
        subject.killed_at(point)
    shop.stop()
    until(lambda: shop.captured, "everything is captured")
    subject.drain(spark)
    lake = _Warehouse(spark, str(subject.folder / "warehouse"))
    for mirrored in (lake.rows, lambda name: _database_rows(running, name.partition(".")[2])):
        comparison = compare(shop.file, mirrored)
        assert comparison.equal, str(comparison)
        assert sum(table.source_rows for table in comparison.tables) > 100
    for name in ("customers", "audit_log"):
        batches = lake.batches(name)
        assert batches, name
        assert len(batches) == len(set(batches)), f"a batch is in {name} twice: {batches}"


class _Warehouse:
    """Iceberg's own reader on a folder of tables."""

    def __init__(self, spark: Any, folder: str) -> None:
        self._session = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
        place = "spark.sql.catalog.oracle"
        self._session.conf.set(place, "org.apache.iceberg.spark.SparkCatalog")
        self._session.conf.set(f"{place}.type", "hadoop")
        self._session.conf.set(f"{place}.warehouse", folder)

    def rows(self, name: str) -> pa.Table:
        return self._session.table(f"oracle.{name}").toArrow()

    def batches(self, name: str) -> list[str]:
        found = self._session.table(f"oracle.dbo.{name}.snapshots").selectExpr("summary['headrace.batch'] as batch")
        return [row["batch"] for row in found.collect() if row["batch"] is not None]


def _database_rows(running: Any, table: str) -> pa.Table:
    """A table as its driver gives it, each column as the type that the source's texts are read as."""
    database = running.at
    with closing(database.connect()) as connection:
        name = database.default_schema(connection)
        types = dict(database.target_schema(connection, TableName(name, table)).types)
        # MariaDB shows six digits of a float, and all of the same number as a double.
        quoted = ((database.dialect.quote(column), kind) for column, kind in types.items())
        names = ", ".join(f"cast({column} as double)" if kind == "float" else column for column, kind in quoted)
        lines = database.ask(connection, f"SELECT {names} FROM {database.dialect.quote(table)}")
    columns = list(zip(*lines, strict=True)) if lines else [()] * len(types)
    read = {name: _column(values, kind) for (name, kind), values in zip(types.items(), columns, strict=True)}
    for name in _WITH_ZONE & {*read}:
        # MariaDB has no type for instants; they are kept in UTC.
        read[name] = read[name].cast(pa.timestamp("us", "UTC"))
    return pa.table(read)


def _column(values: Any, kind: str) -> pa.Array:
    if kind in ("real", "float"):
        return pa.array(values, pa.float32())
    if kind in ("boolean", "tinyint(1)"):
        return pa.array([None if value is None else bool(value) for value in values], pa.bool_())
    if kind == "uuid":
        return pa.array([None if value is None else str(value).upper() for value in values], pa.string())
    if any(isinstance(value, dt.timedelta) for value in values):
        # MariaDB's driver gives times of a day as spans.
        values = [None if value is None else (dt.datetime.min + value).time() for value in values]
    found = pa.array(values)
    return found.cast(pa.string()) if pa.types.is_null(found.type) else found
