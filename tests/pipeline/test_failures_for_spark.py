"""Rule: Spark gets a short text of why a batch failed; its search for interruptions in a long one ends its thread."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from headrace.errors import SinkError
from headrace.observe.progress import ProgressBoard
from headrace.pipeline.batch import BatchWriter
from headrace.pipeline.batch_inputs import Delivery, RowInput
from headrace.sources.reader import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = "\n\tat org.apache.spark.sql.Dataset.withAction(Dataset.scala:2232)" * 2000
# What Spark looks for (`StreamExecution.isInterruptionException`).
INTERRUPTION = re.compile(
    r"py4j.protocol.Py4JJavaError: An error occurred while calling((.|\r\n|\r|\n)*)"
    r"(java.lang.InterruptedException|java.io.InterruptedIOException|java.nio.channels.ClosedByInterruptException)"
)


class Rows:
    """A batch that fails as soon as it is looked at."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def persist(self, _: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("text", "given", "interrupted"),
    [
        ("no such table" + LONG, "ValueError: no such table", False),
        ("x" * 100_000, "ValueError: " + "x" * 488, False),
        (
            "An error occurred while calling o5.count.\n: java.lang.InterruptedException" + LONG,
            "py4j.protocol.Py4JJavaError: An error occurred while calling the batch: java.lang.InterruptedException",
            True,
        ),
    ],
)
def test_spark_gets_the_first_line_or_that_the_batch_was_interrupted(text: str, given: str, interrupted: bool) -> None:
    rows = Rows(ValueError(text))
    writer = BatchWriter("orders", RowInput(), Delivery([], ProgressBoard()))
    writer.begin("checkpoint")
    with pytest.raises(RuntimeError) as raised:
        writer(rows, 0)  # type: ignore[arg-type]
    assert str(raised.value) == given
    assert (INTERRUPTION.search(str(raised.value)) is not None) == interrupted
    assert raised.value.__suppress_context__
    assert writer.failure is rows.error


def test_an_error_of_headrace_is_the_same_to_spark_without_what_led_to_it() -> None:
    error = SinkError("The table is gone.", remedy="Create it.")
    error.__cause__ = ValueError(LONG)
    writer = BatchWriter("orders", RowInput(), Delivery([], ProgressBoard()))
    writer.begin("checkpoint")
    with pytest.raises(SinkError, match=r"^The table is gone\. Create it\.$") as raised:
        writer(Rows(error), 0)  # type: ignore[arg-type]
    assert raised.value.__cause__ is None
    assert writer.failure is error
    assert writer.failure.__cause__ is not None


def test_a_stream_of_the_users_says_the_sentence_before_traces_and_plans(spark: SparkSession) -> None:
    register(spark)
    stream = spark.readStream.format("folder_cdc").option("hostname", "/gone").load()
    with pytest.raises(PySparkException) as raised:
        stream.writeStream.format("noop").start().processAllAvailable()
    before, sentence, _ = str(raised.value).partition(
        "headrace.errors.ConnectError: The server '/gone' can't be reached. Start it.\n"
    )
    assert sentence
    assert len(before.splitlines()) == 1
    assert not any(text in before for text in ("Traceback", "=== Streaming Query ===", "stacktrace"))
    assert "SPARK_HIDE_TRACEBACK" not in os.environ
