"""Encoders that count the values which their wire types do not hold, with Spark and without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.formats.codec import MESSAGES, Codec, in_spark
from headrace.formats.encoded_batch import OutOfRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation


class Tallying(Codec):
    """An encoder that counts; without Spark, its count is looked at when all is read."""

    out_of_range: OutOfRange
    """The values so far in whose place null stands, or the nearest one."""


class Tallied(Codec):
    """An encoder for Spark, which counts by columns: beside the messages stands what each batch of them lost.

    Args:
        encoder: the encoder.
    """

    schema = pa.schema([*MESSAGES, ("values", pa.int64()), ("first", pa.string())])

    def __init__(self, encoder: Tallying) -> None:
        self._encoder = encoder

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The messages of rows, in their order."""
        before = self._encoder.out_of_range
        for found in self._encoder.feed(batch):
            now = self._encoder.out_of_range
            rest = [None] * (found.num_rows - 1)
            lost = [pa.array([now.values - before.values, *rest], pa.int64())]
            lost.append(pa.array([now.first or None, *rest], pa.string()))
            yield pa.RecordBatch.from_arrays([*found.columns, *lost], schema=self.schema)
            before = now


def tallied(rows: DataFrame, make: Callable[[], Tallying], may_lose: bool, observed: Observation | str) -> DataFrame:
    """Run an encoder over rows, with its count in an observation where it can lose something.

    Args:
        rows: the columns that it reads.
        make: makes the encoder of a task.
        may_lose: whether a column may have values that the wire does not hold.
        observed: what counts when the messages are computed.
    """
    from pyspark.sql import functions as sf

    if not may_lose:
        return in_spark(rows, make, MESSAGES)
    lost = (sf.sum("values").alias("values"), sf.min("first").alias("first"))
    messages = in_spark(rows, lambda: Tallied(make()), Tallied.schema)
    return messages.observe(observed, *lost).drop("values", "first")
