"""Rule: on a Spark Connect session the source, `typed`, `encode` and `decode` work as on a classic one: none of them
touches the JVM.

The server is a process of its own, as on a cluster, and so is the client: one Python process is either classic or
Connect.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import headrace
from headrace.spark.java import spark_environment
from headrace.testing.waiting import PATIENCE, until
from headrace_emulators.engine.ports import free_ports
from headrace_emulators.sqlserver import EmulatedServer

pytestmark = [pytest.mark.jvm, pytest.mark.system]

SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}


@pytest.fixture
def database(tmp_path):
    with EmulatedServer(tmp_path / "server").create_database("shop") as made:
        made.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, price decimal(9,2))")
        made.execute("CREATE TABLE dbo.other (id int NOT NULL PRIMARY KEY)")
        for table in ("t", "other"):
            made.execute(
                f"EXEC sys.sp_cdc_enable_table @source_schema = 'dbo', @source_name = '{table}', @role_name = NULL"
            )
        made.execute("INSERT INTO dbo.t VALUES (1, 12.50), (2, NULL)")
        made.execute("INSERT INTO dbo.other VALUES (7)")
        made.capture()
        yield made


@pytest.fixture
def server(tmp_path):
    """The address of a Connect server on this machine."""
    (port,) = free_ports(1)
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for name, value in {**SETTINGS, "spark.connect.grpc.binding.port": str(port)}.items():
        command += ["--conf", f"{name}={value}"]
    log = tmp_path / "server.log"
    with spark_environment(), log.open("wb") as output:
        started = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=tmp_path)
    try:
        until(lambda: listens(port) or started.poll() is not None, "Spark Connect listens")
        assert started.poll() is None, log.read_text()
        yield f"sc://127.0.0.1:{port}"
    finally:
        started.terminate()
        started.wait(PATIENCE)


def listens(port):
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


def client(folder: str) -> None:
    """What the client's process does; what it saw goes to stdout as one line of JSON."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    headrace.register(spark)
    options = {"driver": "emulator", "hostname": folder, "database": "shop"}
    changes = spark.readStream.format("sqlserver_cdc").options(**options).load()
    [table] = headrace.tables("sqlserver", table="dbo.t", **options)
    queries = [
        frame.writeStream.format("memory").queryName(name).start()
        for name, frame in (("all_rows", changes), ("typed_rows", headrace.typed(changes, table)))
    ]
    for query in queries:
        query.processAllAvailable()
    with EmulatedServer(Path(folder)).database("shop") as database:
        database.execute("UPDATE dbo.t SET price = 99.99 WHERE id = 1")
        database.capture()
    for query in queries:
        query.processAllAvailable()
        query.stop()
    rows = spark.table("typed_rows").orderBy("position").collect()
    messages = headrace.encode(
        spark.table("all_rows").where("table.name = 't'"),
        format="debezium_json",
        topic_prefix="shop",
        schemas_enable=True,
    )
    consumed = messages.selectExpr(
        "topic", "coalesce(partition, 0) as partition", "row_number() over (order by position) as offset",
        "current_timestamp() as timestamp", "cast(key as binary) as key", "cast(value as binary) as value", "headers",
    )  # fmt: skip
    # As from a topic: otherwise the encoding would be computed again by each question that the decoder asks.
    consumed = spark.createDataFrame(consumed.toArrow())
    back = headrace.typed(headrace.decode(consumed, format="debezium_json"), table)
    seen = {
        "session": type(spark).__module__,
        "typed": [[row.op, row.after.id, str(row.after.price)] for row in rows],
        "back": sorted([row.op, row.after.id, str(row.after.price)] for row in back.collect()),
    }
    print(json.dumps(seen))


def test_snapshot_stream_and_formats_on_a_connect_session(server, database):
    code = f"from tests.streaming.test_connect import client; client({str(database.path.parent)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "SPARK_REMOTE": server},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["session"].startswith("pyspark.sql.connect")
    assert seen["typed"] == [["r", 1, "12.50"], ["r", 2, "None"], ["u", 1, "99.99"]]
    assert seen["back"] == sorted(seen["typed"])
