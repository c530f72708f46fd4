"""Rule: a table function of a declarative pipeline reads the source, and each run brings its tables up to date.

Spark has declarative pipelines from 4.1 on; what is written here is known of 4.2 and 4.3, where the trigger that they
use drains the source.
"""

from __future__ import annotations

import decimal
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from headrace.spark.jars import DELTA, maven_jars
from headrace.spark.java import spark_environment
from headrace_emulators.sqlserver import EmulatedServer

pytestmark = [pytest.mark.jvm, pytest.mark.system]

EXAMPLE = Path(__file__).parents[2] / "examples" / "declarative_pipeline"


@pytest.fixture
def database(tmp_path):
    server = EmulatedServer(tmp_path / "server")
    with server.create_database("sales") as made:
        made.execute("CREATE TABLE dbo.customers (id int NOT NULL PRIMARY KEY, name nvarchar(40), credit decimal(9,2))")
        made.execute(
            "EXEC sys.sp_cdc_enable_table @source_schema = 'dbo', @source_name = 'customers', @role_name = NULL"
        )
        made.execute("INSERT INTO dbo.customers VALUES (1, N'Ada', 12.50), (2, N'Grace', NULL), (3, N'Mary', 3)")
        made.capture()
        server.add_login("cdc", "secret-of-cdc")
        yield made


@pytest.fixture
def project(tmp_path):
    """The example, with its storage in a folder of this test."""
    folder = tmp_path / "project"
    shutil.copytree(EXAMPLE, folder)
    spec = folder / "spark-pipeline.yml"
    text = spec.read_text(encoding="utf-8")
    assert "file:///var/lib/sales/pipeline" in text
    spec.write_text(text.replace("file:///var/lib/sales/pipeline", (tmp_path / "storage").as_uri()), encoding="utf-8")
    return folder


def run(project, database, *conf, jars=()):
    """The exit code of a run of the project, and what it said."""
    place = {"SALES_HOST": str(database.path.parent), "SALES_USER": "cdc", "SALES_PASSWORD": "secret-of-cdc"}
    program = str(Path(pyspark.__file__).parent / "bin" / "spark-pipelines")
    # A catalog that outlives the run, as every real one does.
    settings = [word for one in ("spark.sql.catalogImplementation=hive", *conf) for word in ("--conf", one)]
    with spark_environment():
        done = subprocess.run(
            [program, *settings, "run", "--spec", "spark-pipeline.yml"],
            env={
                **os.environ,
                **place,
                "SALES_DRIVER": "emulator",
                "PYSPARK_PYTHON": sys.executable,
                # The program takes no jars.
                "SPARK_DIST_CLASSPATH": os.pathsep.join(map(str, jars)),
            },
            cwd=project,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    said = done.stdout + done.stderr
    assert "secret-of-cdc" not in said
    return done.returncode, said


def rows(project, table):
    """What a table of the pipeline holds, in order; its files are Spark's own Parquet."""
    files = (project / "spark-warehouse" / table).glob("*.parquet")
    found = [row for file in files for row in pq.read_table(file).to_pylist()]
    return sorted(found, key=lambda row: (row["position"], row["key_text"]))


def test_each_run_of_the_example_pipeline_adds_what_is_new(project, database):
    code, said = run(project, database)
    assert code == 0, said
    assert [row["after"]["name"] for row in rows(project, "customer_changes")] == ["Ada", "Grace", "Mary"]
    database.execute("UPDATE dbo.customers SET credit = 99.99 WHERE id = 2")
    database.execute("DELETE FROM dbo.customers WHERE id = 1")
    database.capture()
    code, said = run(project, database)
    assert code == 0, said
    changes = rows(project, "customer_changes")
    assert [row["op"] for row in changes] == ["r", "r", "r", "u", "d"]
    assert changes[3]["after"] == {"id": 2, "name": "Grace", "credit": decimal.Decimal("99.99")}


AUTO_CDC = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()


@dp.temporary_view
def customer_feed():
    row = ("coalesce(after.id, before.id) as id", "after.name", "after.credit", "position", "op = 'd' as gone")
    return spark.readStream.table("customer_changes").selectExpr(*row)


dp.create_streaming_table("customers", format="THE_FORMAT")
dp.create_auto_cdc_flow(
    target="customers", source="customer_feed", keys=["id"], sequence_by="position", apply_as_deletes="gone"
)
"""


def run_auto_cdc(project, database, format, *conf, jars=()):
    """What a flow into a table of this format gives, beside the example's own file, which makes what the flow reads."""
    flow = AUTO_CDC.replace("THE_FORMAT", format)
    (project / "transformations" / "auto_cdc.py").write_text(flow, encoding="utf-8")
    return run(project, database, *conf, jars=jars)


# When one of these fails, AUTO CDC has a target: the page on reading a stream says that it has none.


def test_auto_cdc_takes_no_parquet_table_yet(project, database):
    code, said = run_auto_cdc(project, database, "parquet")
    assert code != 0
    assert "AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE" in said, said


def test_auto_cdc_takes_no_delta_table_yet(project, database):
    delta = [
        "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    ]
    code, said = run_auto_cdc(project, database, "delta", *delta, jars=maven_jars([DELTA]))
    assert code != 0
    # Not even an empty table of the pipeline can be a Delta table.
    assert "provider 'delta' does not support external metadata" in said, said
