"""A store that speaks S3, on this machine, in an environment of its own; and a Spark that knows it.

A session gets its jars when it starts, so these tests have a process of their own (`tests.parts`).
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import uuid4

import pyspark
import pytest
from pyarrow import fs
from pyspark.sql import SparkSession
from tests.object_store.slow_store import KEY, SECRET, SlowStore
from tests.support.environments import environment

from headrace.spark.jars import DELTA, ICEBERG
from headrace.spark.session import spark_session

MOTO = ("moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5")
_OF_AWS = f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG.rpartition(':')[2]}"


@pytest.fixture(scope="session")
def store() -> Iterator[SlowStore]:
    """The store, behind something that can be told to answer late or not at all."""
    command = [environment("moto-5.2.5", MOTO) / "moto_server", "-H", "127.0.0.1", "-p", "0"]
    with (
        SlowStore() as front,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server,
    ):
        assert server.stdout is not None
        try:
            front.behind = _port(server.stdout)
            # It says a line for each request, and would wait where nobody reads it.
            threading.Thread(target=deque, args=(server.stdout, 0), daemon=True).start()
            yield front
        finally:
            server.terminate()


def _port(output: Iterable[str]) -> int:
    """Where the server listens, as it says once it does."""
    said = []
    for line in output:
        if found := re.search(r"Running on http://127\.0\.0\.1:(\d+)", line):
            return int(found[1])
        said.append(line)
    raise AssertionError("".join(said))


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark says what it does."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="session")
def spark(store: SlowStore, event_log: Path) -> SparkSession:
    """A session that reaches the store by `s3a`, with the release of Hadoop that Spark brings."""
    (hadoop,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    version = hadoop.stem.removeprefix("hadoop-client-api-")
    s3a = {
        "endpoint": store.address,
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "access.key": KEY,
        "secret.key": SECRET,
    }
    return spark_session(
        "headrace-tests",
        jars=(DELTA, ICEBERG, f"org.apache.hadoop:hadoop-aws:{version}", _OF_AWS),
        master="local[2]",
        conf={
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": event_log.as_uri(),
            "spark.eventLog.compress": "false",
            **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()},
        },
    )


@pytest.fixture
def bucket(store: SlowStore) -> str:
    """A new bucket."""
    name = f"lake-{uuid4()}"
    files = fs.S3FileSystem(
        access_key=KEY,
        secret_key=SECRET,
        endpoint_override=store.address,
        region="us-east-1",
        allow_bucket_creation=True,
    )
    files.create_dir(name)
    return name
