"""Rule: of two writers of one file of a checkpoint, one is refused, and what the other wrote stays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_second_writer_of_a_file_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    jvm: Any = spark._jvm
    streaming = jvm.org.apache.spark.sql.execution.streaming
    package = streaming if spark.version.startswith("4.0.") else streaming.checkpointing
    settings = spark._jsparkSession.sessionState().newHadoopConf()
    folder = jvm.org.apache.hadoop.fs.Path(str(tmp_path))
    first, second = (package.CheckpointFileManager.create(folder, settings) for _ in range(2))
    file = jvm.org.apache.hadoop.fs.Path(str(tmp_path / "0"))
    ours, theirs = first.createAtomic(file, False), second.createAtomic(file, False)
    ours.write(1)
    theirs.write(2)
    ours.close()
    with pytest.raises(Py4JJavaError, match="AlreadyExists"):
        theirs.close()
    assert (tmp_path / "0").read_bytes() == b"\1"
