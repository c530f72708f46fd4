"""A full load into tables of a lake: rows of 10 columns from a real database, from the start of the run's first batch
to the commit of the last, with rows written into files where they are read, and by Spark.

Both ways run in one warm session, after a small load that does not count. CPU is that of all client processes: driver,
JVM and workers. What a load of few rows costs, which is the start of a run with its slot, snapshot and tables, is
measured beside and taken off.

    python bench/lake_load.py [--source mariadb] [--rows 500000] [--runs 3] [--format iceberg]
    python bench/lake_load.py --dlt PYTHON      dlt too, in the same run

dlt lives in an environment of its own, because it wants other libraries:
`pip install "dlt[deltalake]" sqlalchemy "psycopg[binary]" pymysql connectorx`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pyarrow.dataset as ds
from beside_debezium import Database
from stream import Cost, shares, spent
from timed import SOURCES

from headrace.pipeline import first_loads, load_pipeline
from headrace.spark.jars import DELTA, ICEBERG
from headrace.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FEW = 1_000
_WAYS = {"where they are read": "", "by Spark": "the benchmark says so"}
_DLT = """
import sys, dlt
from dlt.sources.sql_database import sql_table
url, schema, table, folder, backend = sys.argv[1:]
asked = {"return_type": "arrow"} if backend == "connectorx" else {}
rows = sql_table(
    url, table=table, schema=schema, backend=backend, chunk_size=100_000, backend_kwargs=asked)
pipeline = dlt.pipeline(
    "load", destination=dlt.destinations.filesystem(folder), dataset_name="lake", pipelines_dir=folder + "/.work")
pipeline.run(rows, table_format="delta", write_disposition="replace", loader_file_format="parquet")
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", choices=SOURCES, default="postgresql")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--format", choices=("delta", "iceberg"), default="delta")
    parser.add_argument("--dlt", metavar="PYTHON", help="the Python of an environment that has dlt")
    arguments = parser.parse_args()
    spark = spark_session("bench-lake-load", jars=(DELTA, ICEBERG), conf={"spark.driver.memory": "4g"})
    spark.sparkContext.setLogLevel("ERROR")
    costs: dict[tuple[str, str], list[Cost]] = {}
    database = SOURCES[arguments.source][0]()
    with (
        tempfile.TemporaryDirectory(prefix="hr-", ignore_cleanup_errors=True) as folder,
        database.started(Path(folder)),
    ):
        database.fill(1, _FEW)
        database.run("create table few as select * from wide")
        database.run("alter table few add primary key (id)")
        database.fill(_FEW + 1, arguments.rows)
        sizes = {"few": _FEW + 1, "wide": arguments.rows + 1}
        # The first round warms up.
        for run in range(-1, arguments.runs):
            for way in (*_WAYS, *(("dlt, connectorx", "dlt, pyarrow") if arguments.dlt else ())):
                for table, rows in sizes.items():
                    if way in _WAYS:
                        name = f"run_{run + 1}_{list(_WAYS).index(way)}_{table}"
                        cost = load(spark, database, table, rows, way, name, arguments.format)
                    else:
                        cost = load_by_dlt(arguments.dlt, database, table, rows, way.partition(", ")[2])
                    if run >= 0:
                        costs.setdefault((way, table), []).append(cost)
    for way in dict.fromkeys(way for way, _ in costs):
        whole, start = (statistics.median(cost.cpu for cost in costs[way, table]) for table in ("wide", "few"))
        wall = statistics.median(cost.wall for cost in costs[way, "wide"])
        print(
            f"{arguments.source} to {arguments.format}: {arguments.rows:,} rows of 10 columns, "
            f"{f'written {way}' if way in _WAYS else way}: {arguments.rows / (whole - start):,.0f} rows per second of "
            f"CPU without the start ({start:.1f} s), {arguments.rows / whole:,.0f} with it ({whole:.1f} s: "
            f"{shares(costs[way, 'wide'])}); {arguments.rows / wall:,.0f} per second",
            flush=True,
        )


def load(spark: SparkSession, database: Database, table: str, rows: int, way: str, name: str, target: str) -> Cost:
    """One run of Headrace up to the head, into a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-load-") as folder:
        source = database.headrace(name, [table])
        pipeline = {
            "source": source,
            "sinks": [{"type": target, "path": f"{folder}/lake"}],
            "pipeline": {"name": name, "checkpoint": f"{folder}/checkpoint", "trigger": "50ms"},
        }
        file = Path(folder) / "pipeline.yaml"
        file.write_text(json.dumps(pipeline))
        reason, decide = _WAYS[way], first_loads.no_first_loads
        with mock.patch.object(first_loads, "no_first_loads", lambda *asked: reason or decide(*asked)):
            before = spent()
            running = load_pipeline(file).start(spark, once=True)
            try:
                running.wait(1200)
                cost = spent() - before
            finally:
                running.stop()
        database.forget(name)
        path = str(source["tables"][0]).replace(".", "/")  # type: ignore[index]
        written = spark.read.format(target).load(f"{folder}/lake/{path}").count()
        assert written == rows, (written, rows)
        return cost


def load_by_dlt(python: str, database: Database, table: str, rows: int, backend: str) -> Cost:
    """One run of dlt in a process of its own, into a Delta table."""
    with tempfile.TemporaryDirectory(prefix="bench-load-") as folder:
        url, schema = database.url()
        begun = time.perf_counter()
        tool = subprocess.Popen(
            [python, "-c", _DLT, url, schema, table, folder, backend],
            stdout=subprocess.DEVNULL,
            env={**os.environ, "RUNTIME__DLTHUB_TELEMETRY": "false", "RUNTIME__LOG_LEVEL": "ERROR"},
        )
        _, status, usage = os.wait4(tool.pid, 0)
        tool.returncode = os.waitstatus_to_exitcode(status)
        assert tool.returncode == 0, tool.returncode
        cost = Cost(0.0, 0.0, usage.ru_utime + usage.ru_stime, time.perf_counter() - begun)
        written = ds.dataset(f"{folder}/lake/{table}", format="parquet", exclude_invalid_files=True).count_rows()
        assert written == rows, (written, rows)
        return cost


if __name__ == "__main__":
    main()
