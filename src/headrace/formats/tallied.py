"""Encoders that count the values which their wire types do not hold, with Spark and without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from headrace.formats.codec import MESSAGES, Codec
from headrace.formats.encoded_batch import OutOfRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation


class Tallying(Protocol):
    """An encoder that counts; without Spark, its count is looked at when all is read."""

    out_of_range: OutOfRange
    """The values so far in whose place null stands, or the nearest one."""

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """As `Codec` has it."""


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


def observed_messages(tallied: DataFrame, observed: Observation | str) -> DataFrame:
    """The messages, counted into an observation when they are computed."""
    from pyspark.sql import functions as sf

    lost = (sf.sum("values").alias("values"), sf.min("first").alias("first"))
    return tallied.observe(observed, *lost).drop("values", "first")
