"""Rows that were read from a table itself, as change rows: chunks of snapshots, and chunks beside the stream.

A table without a key that was read later than the commit its rows are stamped with is taken back to that commit.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace import faultpoints
from headrace.changes import Operation, Position, TableSchema
from headrace.changes.table_files import ATTEMPT, WRITTEN, WRITTEN_ROWS, TableFile
from headrace.changes.texts import key_texts
from headrace.sources.images import Images, WholeRows
from headrace.sources.rows import change_batch, instants, repeat, schema_batch, table_column, with_fact
from headrace.sources.snapshots.chunks import BETWEEN, Chunk, end_position, marks, unmarked_end
from headrace.sources.snapshots.requests import INCREMENTAL, IncrementalChunk
from headrace.sources.tables.masks import TableMasks
from headrace.wire.arrays import text_array

_SCHEMA_ORDER = "q"
"""Order of a snapshot's schema row: before the rows read at its commit."""
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_DIGITS = 8
Columns = list[pa.Array] | WholeRows
"""Canonical texts: column by column, or row by row as they come from a kernel."""


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

    def of_chunk(
        self, chunk: Chunk, batches: Iterable[Columns], *, numbered: bool, file: TableFile | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a chunk, with their marks; and the row that ends its table where no row can.

        Args:
            chunk: it.
            batches: its rows.
            numbered: whether each row has a position of its own. Otherwise all share one: a replay may find a row of
                the live table at another position, and no key goes back when the chunk comes again.
            file: takes rows that share their position, which are then not given; None where all are given.
        """
        if file is not None and not numbered and chunk.read == 0:
            yield from self._into_file(chunk, batches, file)
            return
        row = 0
        pending: Columns | None = None
        for texts in batches:
            if not _count(texts):
                continue
            # The last row of a chunk can carry a mark, so one batch is always held back.
            if pending is not None:
                yield self._of_chunk(chunk, pending, row, numbered=numbered, last=False)
                row += _count(pending)
            pending = texts
            faultpoints.reach("source.snapshot.batch")
        if pending is not None:
            yield self._of_chunk(chunk, pending, row, numbered=numbered, last=True)
            row += _count(pending)
        end = unmarked_end(chunk, row)
        if end is not None:
            position = end_position(chunk.commit, chunk.ordinal, chunk.read)
            yield schema_batch(self.schema, position, self.capture_time, self.connector, snapshot=end)

    def _into_file(self, chunk: Chunk, batches: Iterable[Columns], file: TableFile) -> Iterator[pa.RecordBatch]:
        """The rows of a chunk that a file does not take, and a `schema` row that says what it took and ends the table's
        snapshot where the chunk does.
        """
        position = chunk.position(0).text
        try:
            for given in batches:
                texts = given.columns if isinstance(given, WholeRows) else given
                count = _count(texts)
                if count and not file.write(self.masks.apply(texts), position):
                    marks, positions = repeat(BETWEEN, pa.string(), count), repeat(position, pa.string(), count)
                    rows = self._rows(chunk.commit, texts, marks, positions)
                    yield with_fact(rows, ATTEMPT, repeat(file.attempt, pa.string(), count))
                faultpoints.reach("source.snapshot.batch")
            written = file.close()
        finally:
            file.discard()
        faultpoints.reach("source.snapshot.file")
        facts = {WRITTEN: written.to_text(), WRITTEN_ROWS: str(written.rows)}
        end = end_position(chunk.commit, chunk.ordinal, chunk.read) if chunk.closing else chunk.position(0)
        yield schema_batch(self.schema, end, self.capture_time, self.connector, snapshot=chunk.closing, facts=facts)

    def _of_chunk(self, chunk: Chunk, texts: Columns, row: int, *, numbered: bool, last: bool) -> pa.RecordBatch:
        count = _count(texts)
        first = chunk.position(0).text
        positions = _numbered_positions(chunk, row, count) if numbered else repeat(first, pa.string(), count)
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
            count = _count(texts)
            positions = repeat(chunk.position(commit).text, pa.string(), count)
            yield self._rows(commit, texts, repeat(INCREMENTAL, pa.string(), count), positions)

    def _rows(self, commit: str, texts: Columns, marks: pa.Array, positions: pa.Array) -> pa.RecordBatch:
        count = _count(texts)
        rows = np.arange(count)
        names = [column.name for column in self.schema.columns]
        if isinstance(texts, WholeRows) and self.masks.changes:
            texts = texts.columns
        if isinstance(texts, WholeRows):
            images = texts.maps()
        else:
            texts = self.masks.apply(texts)
            images = Images(names, texts).maps(rows, count, rows)
        columns = {
            "op": repeat(Operation.READ.value, pa.string(), count),
            "table": table_column(self.schema.id, count),
            "after": images,
            "position": positions,
            "event_time": instants(self.capture_time, count),
            "capture_time": instants(self.capture_time, count),
            "snapshot": marks,
            "source": self.sources(commit, count),
            "schema_id": repeat(self.schema.fingerprint, pa.string(), count),
        }
        if self.schema.key:
            column_numbers = map(names.index, self.schema.key)
            keys = [texts.column(n) if isinstance(texts, WholeRows) else texts[n] for n in column_numbers]
            columns["key"] = Images(self.schema.key, keys).maps(rows, count, rows)
            columns["key_text"] = key_texts(keys)
        return change_batch(count, columns)


def _count(texts: Columns) -> int:
    return len(texts) if isinstance(texts, WholeRows) else len(texts[0])


def _numbered_positions(chunk: Chunk, row: int, count: int) -> pa.Array:
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


Row = tuple[str | None, ...]
"""The canonical texts of a row, in the order of its columns."""


def rewound(batches: Iterable[list[pa.Array]], came: Counter[Row], gone: Counter[Row]) -> Iterator[list[pa.Array]]:
    """The rows without those that came since, and with those that went.

    Per-row Python, only when the table changed meanwhile.

    Args:
        batches: the rows as they were read.
        came: what changes since the commit wrote.
        gone: what they took away.
    """
    both = came & gone
    came, gone = came - both, gone - both
    for texts in batches:
        if not came:
            yield texts
            continue
        keep = []
        for number, row in enumerate(zip(*(t.to_pylist() for t in texts), strict=True)):
            if came[row] > 0:
                came[row] -= 1
            else:
                keep.append(number)
        yield [t.take(pa.array(keep, pa.int64())) for t in texts]
    rest = list(gone.elements())
    if rest:
        yield [pa.array(column, pa.string()) for column in zip(*rest, strict=True)]
