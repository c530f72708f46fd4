"""Rows that were read from a table itself, as change rows: chunks of snapshots, and chunks beside the stream."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace import faultpoints
from headrace.changes import Operation, Position, TableSchema
from headrace.changes.key_text import key_texts
from headrace.sources.images import Images
from headrace.sources.rows import change_batch, instants, repeat, schema_batch, table_column
from headrace.sources.snapshots.ad_hoc import INCREMENTAL, IncrementalChunk
from headrace.sources.snapshots.chunks import Chunk, end_position, marks, unmarked_end
from headrace.sources.tables.masks import TableMasks
from headrace.wire.arrays import text_array

_SCHEMA_ORDER = "q"
"""Order of a snapshot's schema row: before the rows read at its commit."""
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_DIGITS = 8
Columns = list[pa.Array]
"""Canonical texts, column by column."""


@dataclass(frozen=True)
class SnapshotRows:
    """Makes change rows of rows that were read from a table.

    Args:
        connector: the connector's name in events.
        schema: the table's schema.
        masks: what is done to values before they are given out.
        sources: the column `source` of so many rows that were read at a commit.
        capture_time: when the batch was planned.
    """

    connector: str
    schema: TableSchema
    masks: TableMasks
    sources: Callable[[str, int], pa.Array]
    capture_time: dt.datetime | None

    def schema_of(self, chunk: Chunk) -> pa.RecordBatch:
        """The schema row before a chunk's rows."""
        return schema_batch(self.schema, Position(chunk.commit, _SCHEMA_ORDER), self.capture_time, self.connector)

    def of_chunk(self, chunk: Chunk, batches: Iterable[Columns], *, numbered: bool) -> Iterator[pa.RecordBatch]:
        """The rows of a chunk, with their marks; and the row that ends its table where no row can.

        Args:
            chunk: it.
            batches: its rows.
            numbered: whether each row has a position of its own. Otherwise all share one: a replay may find a row of
                the live table at another place, and no key goes back when the chunk comes again.
        """
        row = 0
        pending: Columns | None = None
        for texts in batches:
            if not len(texts[0]):
                continue
            # The last row of a chunk can carry a mark, so one batch is always held back.
            if pending is not None:
                yield self._of_chunk(chunk, pending, row, numbered=numbered, last=False)
                row += len(pending[0])
            pending = texts
            faultpoints.reach("source.snapshot.batch")
        if pending is not None:
            yield self._of_chunk(chunk, pending, row, numbered=numbered, last=True)
            row += len(pending[0])
        end = unmarked_end(chunk, row)
        if end is not None:
            position = end_position(chunk.commit, chunk.ordinal, chunk.read)
            yield schema_batch(self.schema, position, self.capture_time, self.connector, snapshot=end)

    def _of_chunk(self, chunk: Chunk, texts: Columns, row: int, *, numbered: bool, last: bool) -> pa.RecordBatch:
        count = len(texts[0])
        place = chunk.position(0).text
        positions = _places(chunk, row, count) if numbered else repeat(place, pa.string(), count)
        return self._rows(chunk.commit, texts, pa.array(marks(chunk, row, count, last=last), pa.string()), positions)

    def of_increment(
        self, chunk: IncrementalChunk, commit: str, batches: Iterable[Columns]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a chunk that is read beside the stream, after its table's schema where that is not said yet.

        Args:
            chunk: it.
            commit: where its batch ends.
            batches: its rows.
        """
        if chunk.opening:
            yield schema_batch(self.schema, chunk.schema_position(commit), self.capture_time, self.connector)
        for texts in batches:
            count = len(texts[0])
            positions = repeat(chunk.position(commit).text, pa.string(), count)
            yield self._rows(commit, texts, repeat(INCREMENTAL, pa.string(), count), positions)

    def _rows(self, commit: str, texts: Columns, marks: pa.Array, positions: pa.Array) -> pa.RecordBatch:
        texts = self.masks.apply(texts)
        count = len(texts[0])
        rows = np.arange(count)
        names = [column.name for column in self.schema.columns]
        columns = {
            "op": repeat(Operation.READ.value, pa.string(), count),
            "table": table_column(self.schema.id, count),
            "after": Images(names, texts).maps(rows, count, rows),
            "position": positions,
            "event_time": instants(self.capture_time, count),
            "capture_time": instants(self.capture_time, count),
            "snapshot": marks,
            "source": self.sources(commit, count),
            "schema_id": repeat(self.schema.fingerprint, pa.string(), count),
        }
        if self.schema.key:
            keys = [texts[names.index(name)] for name in self.schema.key]
            columns["key"] = Images(self.schema.key, keys).maps(rows, count, rows)
            columns["key_text"] = key_texts(keys)
        return change_batch(count, columns)


def _places(chunk: Chunk, row: int, count: int) -> pa.Array:
    """The positions of some rows of a chunk that follow one another."""
    begin = chunk.position(0).text[:-_DIGITS].encode()
    texts = np.empty((count, len(begin) + _DIGITS), np.uint8)
    texts[:, : len(begin)] = np.frombuffer(begin, np.uint8)
    numbers = np.arange(row, row + count, dtype=np.int64)
    if numbers[-1] >> 4 * _DIGITS:
        return pa.array([chunk.position(number).text for number in numbers.tolist()], pa.string())
    texts[:, len(begin) :] = _HEX[numbers[:, None] >> np.arange(4 * _DIGITS - 4, -1, -4) & 15]
    offsets = np.arange(count + 1, dtype=np.int32) * texts.shape[1]
    return text_array(offsets, texts.reshape(-1), None)
