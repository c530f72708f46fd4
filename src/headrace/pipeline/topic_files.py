"""Whether the tasks that decode a topic's messages write rows into files of their tables' targets, so that none of them
passes through Spark.

The tables are the same either way, row for row, so each batch of each table may go another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.changes.table import TableId
from headrace.changes.table_files import RowTaker
from headrace.formats.base import Format
from headrace.formats.codec import ArrowFormat, Codec
from headrace.formats.convert import read
from headrace.pipeline.kafka_source import KafkaTopics
from headrace.sinks.base import FilesUnusable, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipeline.model import Model


class TopicFiles:
    """Decodes batches of messages, and lets the tasks do more where the sink wants it. Runs in the driver.

    Args:
        format: that of the messages.
        sink: the one that gets all change rows as they are; None where there is none, or several.
    """

    def __init__(self, format: Format, sink: Sink | None) -> None:
        self._format = format
        self._sink = sink if isinstance(format, ArrowFormat) else None
        self._ids: Mapping[str, str] | None = None
        self._without: int | None = None
        self._is_at_work = False

    @classmethod
    def of(cls, model: Model) -> TopicFiles:
        """For a pipeline that reads topics."""
        assert isinstance(model.source, KafkaTopics)
        target = model.targets[0]
        takes_all = len(model.targets) == 1 and target.shaping.changes_nothing and not model.parks
        return cls(model.source.format, target.sink if takes_all else None)

    def decode(self, messages: DataFrame, number: int) -> DataFrame:
        """The change rows of a batch; where tasks wrote some, `schema` rows say so.

        Args:
            messages: Kafka's columns.
            number: the batch's.
        """
        taker = None
        if self._sink is not None and self._ids is not None and number != self._without:
            taker = self._sink.row_taker(self._ids)
        self._is_at_work = taker is not None
        return read(self._format, messages, None if taker is None else _and_taken(taker))

    @property
    def is_at_work(self) -> bool:
        """Whether tasks write files of the batch that was decoded last, which a second reading would write again."""
        return self._is_at_work

    def confirm(self, topic_ids: Mapping[str, str]) -> None:
        """Say the ids of all topics, after a batch was read.

        Raises:
            FilesUnusable: a topic was made again, and tasks took its messages for those of the other one.
        """
        known, self._ids = self._ids, topic_ids
        if self._is_at_work and known != topic_ids:
            raise FilesUnusable(
                "Topics came or went while a batch of them was written.", remedy="Nothing: the batch is read once more."
            )

    def leave_out(self, table: TableId | None, number: int) -> None:
        """Decode a batch again without any files."""
        self._without = number
        if table is not None and self._sink is not None:
            self._sink.leave_out(table)


def _and_taken(make: Callable[[], RowTaker]) -> Callable[[Codec], Codec]:
    return lambda decoder: _Taken(decoder, make())


class _Taken(Codec):
    """A decoder, and what takes rows from it."""

    def __init__(self, decoder: Codec, taker: RowTaker) -> None:
        self.schema = decoder.schema
        self._decoder = decoder
        self._taker = taker

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The change rows that are left of these messages."""
        for rows in self._decoder.feed(batch):
            yield from self._taker.take(rows)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """What is left after the last message."""
        for rows in self._decoder.finish():
            yield from self._taker.take(rows)
        yield from self._taker.close()
