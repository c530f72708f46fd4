"""Write Spark's classes to a file, so that Spark starts sooner: `python -m headrace.spark.archive_classes`.

Once for each Java and each PySpark; it takes half a minute.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError
from headrace.spark.class_archive import DRAFT, class_archive
from headrace.spark.jars import DELTA, KAFKA
from headrace.spark.session import silence, spark_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def make() -> Path | None:
    """Make the file, by a process that starts Spark and uses what pipelines use; None where this Java can't."""
    archive = class_archive()
    archive.parent.mkdir(parents=True, exist_ok=True)
    draft = archive.with_suffix(f".{os.getpid()}")
    try:
        command = [sys.executable, "-c", "from headrace.spark.archive_classes import use_spark; use_spark()"]
        done = subprocess.run(command, env=os.environ | {DRAFT: str(draft)}, capture_output=True, text=True)
        if done.returncode != 0:
            sys.stderr.write(done.stderr)
        if not draft.is_file():
            return None
        draft.replace(archive)
    finally:
        draft.unlink(missing_ok=True)
    return archive


def use_spark() -> None:
    """Load the classes that pipelines load: a streamed query, Python workers, a Delta table that is merged into."""
    from pyspark import SparkContext

    spark = spark_session("classes", jars=(KAFKA, DELTA), master="local[2]", conf={"spark.ui.enabled": "false"})
    silence(spark)
    with tempfile.TemporaryDirectory() as folder:
        table = f"{folder}/table"
        spark.range(10).selectExpr("id", "cast(id as string) as text").write.format("delta").save(table)

        def merge(batch: DataFrame, number: int) -> None:
            batch.persist()
            batch.createOrReplaceTempView("changes")
            batch.sparkSession.sql(
                f"merge into delta.`{table}` t using (select value as id, 'x' as text from changes) s on t.id = s.id "
                "when matched then update set * when not matched then insert *"
            )
            batch.mapInArrow(_as_it_is, batch.schema).write.mode("append").json(f"{folder}/json")
            batch.unpersist()

        stream = (
            spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 1).load()
        )
        query = (
            stream.writeStream.foreachBatch(merge)
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        spark.read.format("delta").load(table).count()
    gateway = SparkContext._gateway
    spark.stop()
    if gateway is not None:
        # The JVM ends in order when its standard input does, and writes the file then.
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


def _as_it_is(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield from batches


def main() -> None:
    """Make the file, and report where it is and how long it took."""
    if class_archive().is_file():
        return
    started = time.monotonic()
    try:
        archive = make()
    except HeadraceError as error:
        sys.exit(str(error))
    if archive is None:
        sys.stdout.write("This Java keeps no archive of classes, so each start of Spark takes a few seconds more.\n")
    else:
        sys.stdout.write(f"Spark's classes are in {archive} ({time.monotonic() - started:.0f} s).\n")


if __name__ == "__main__":
    main()
