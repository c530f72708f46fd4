"""A full load into tables of a lake: rows of 10 columns from a real PostgreSQL, from the start of the run's first
batch to the commit of the last, with rows written into files where they are read, and by Spark.

Both ways run in one warm session, after a small load that does not count. CPU is that of all client processes: driver,
JVM and workers. What a load of few rows costs, which is the start of a run with its slot, snapshot and tables, is
measured beside and taken off.

    python bench/lake_load.py [--rows 500000] [--runs 3] [--format iceberg]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from postgresql import ROWS, SCHEMA, SETTINGS
from stream import Cost, shares, spent

from headrace.pipeline import first_loads, load_pipeline
from headrace.spark.jars import DELTA, ICEBERG
from headrace.spark.session import spark_session
from headrace_emulators.postgresql.server import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FEW = 1_000
_WAYS = {"where they are read": "", "by Spark": "the benchmark says so"}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--format", choices=("delta", "iceberg"), default="delta")
    given = parser.parse_args()
    spark = spark_session("bench-lake-load", jars=(DELTA, ICEBERG), conf={"spark.driver.memory": "4g"})
    spark.sparkContext.setLogLevel("ERROR")
    found: dict[tuple[str, str], list[Cost]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="hr-", ignore_cleanup_errors=True) as folder,
        PostgresServer(Path(folder), **SETTINGS) as server,
    ):
        server.run(SCHEMA + "create table few (like wide including all)")
        server.run(("insert into few" + ROWS).format(first=1, last=_FEW))
        server.run(("insert into wide" + ROWS).format(first=1, last=given.rows) + "; analyze wide")
        sizes = {"few": _FEW, "wide": given.rows + 1}
        for number in range(-1, given.runs):
            for place, way in enumerate(_WAYS):
                for table in sizes:
                    name = f"run_{number + 1}_{place}_{table}"
                    cost = load(spark, server, table, sizes[table], way, name, given.format)
                    if number >= 0:
                        found.setdefault((way, table), []).append(cost)
    for way in _WAYS:
        whole, start = (statistics.median(one.cpu for one in found[way, table]) for table in ("wide", "few"))
        wall = statistics.median(one.wall for one in found[way, "wide"])
        print(
            f"{given.format}: {given.rows:,} rows of 10 columns, written {way}: {given.rows / (whole - start):,.0f} "
            f"rows per second of CPU without the start ({start:.1f} s), {given.rows / whole:,.0f} with it "
            f"({whole:.1f} s: {shares(found[way, 'wide'])}); {given.rows / wall:,.0f} per second",
            flush=True,
        )


def load(spark: SparkSession, server: PostgresServer, table: str, rows: int, way: str, name: str, target: str) -> Cost:
    """One run up to the head, into a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-load-") as folder:
        pipeline = {
            "source": {
                "type": "postgresql",
                "hostname": "127.0.0.1",
                "port": server.port,
                "database": server.database,
                "user": "cdc",
                "slot": name,
                "tables": [f"public.{table}"],
            },
            "sinks": [{"type": target, "path": f"{folder}/lake"}],
            "pipeline": {"name": name, "checkpoint": f"{folder}/checkpoint", "trigger": "50ms"},
        }
        file = Path(folder) / "pipeline.yaml"
        file.write_text(json.dumps(pipeline))
        reason, own = _WAYS[way], first_loads.no_first_loads
        with mock.patch.object(first_loads, "no_first_loads", lambda *given: reason or own(*given)):
            before = spent()
            running = load_pipeline(file).start(spark, once=True)
            try:
                running.wait(1200)
                cost = spent() - before
            finally:
                running.stop()
        server.run(f"select pg_drop_replication_slot('{name}')")
        there = spark.read.format(target).load(f"{folder}/lake/public/{table}").count()
        assert there == rows, (there, rows)
        return cost


if __name__ == "__main__":
    main()
