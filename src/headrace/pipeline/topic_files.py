"""Decodes the messages of Kafka topics; where the sink can use it, the decoding tasks write rows into files of their
tables, so that these rows never enter the JVM.

The table is the same either way, row for row, so each batch of each table may go another way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.changes.table import TableId
from headrace.changes.table_files import DecodedRowWriter
from headrace.formats.base import Format
from headrace.formats.codec import ArrowFormat, Codec
from headrace.formats.convert import read, with_given_schemas
from headrace.sinks.base import FilesUnusable, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipeline.model import Model


class TopicFiles:
    """Decodes one batch after the other. Lives in the driver.

    Args:
        format: the format of the messages.
        sink: the only sink, if it gets all change rows unchanged; else None, and no files are written.
    """

    def __init__(self, format: Format, sink: Sink | None) -> None:
        self._format = format
        self._sink = sink if isinstance(format, ArrowFormat) else None
        self._topic_ids: Mapping[str, str] | None = None
        self._is_repeated = False
        self._writes_files = False

    @classmethod
    def of(cls, model: Model, format: Format) -> TopicFiles:
        target = model.targets[0]
        gets_all_rows = len(model.targets) == 1 and target.shaping.changes_nothing and not model.parks
        return cls(format, target.sink if gets_all_rows else None)

    def decode(self, messages: DataFrame) -> DataFrame:
        """The change rows of a batch. `schema` rows report what tasks wrote into files (`FoldedPart`).

        Args:
            messages: Kafka's columns.
        """
        is_repeated, self._is_repeated = self._is_repeated, False
        make_writer = None
        if self._sink is not None and self._topic_ids is not None and not is_repeated:
            make_writer = self._sink.decoded_row_writer(self._topic_ids)
        self._writes_files = make_writer is not None
        if make_writer is None or not isinstance(self._format, ArrowFormat):
            return read(self._format, messages)
        rows = self._format.decode_and(messages, lambda decoder: _WritingDecoder(decoder, make_writer()))
        return with_given_schemas(self._format, rows)

    @property
    def writes_files(self) -> bool:
        """Whether tasks write files of the last decoded batch; decoding it again would write them again."""
        return self._writes_files

    def check_topic_ids(self, topic_ids: Mapping[str, str]) -> None:
        """Compare the ids of all topics after a batch was read with those that its tasks assumed.

        Raises:
            FilesUnusable: a topic was created again; positions in the files name the old one.
        """
        assumed, self._topic_ids = self._topic_ids, topic_ids
        if self._writes_files and assumed != topic_ids:
            raise FilesUnusable(
                "Topics were created or deleted while a batch was read.", remedy="Nothing: the batch is read again."
            )

    def leave_out(self, table: TableId | None) -> None:
        """Write no files when the batch is decoded again.

        Args:
            table: the table whose files could not be used.
        """
        self._is_repeated = True
        if table is not None and self._sink is not None:
            self._sink.leave_out(table)


class _WritingDecoder(Codec):
    """A decoder whose rows go through a writer."""

    def __init__(self, decoder: Codec, writer: DecodedRowWriter) -> None:
        self.schema = decoder.schema
        self._decoder = decoder
        self._writer = writer

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for rows in self._decoder.feed(batch):
            yield from self._writer.write(rows)

    def finish(self) -> Iterator[pa.RecordBatch]:
        for rows in self._decoder.finish():
            yield from self._writer.write(rows)
        yield from self._writer.close()
