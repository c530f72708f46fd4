"""Rows in batches that are bounded by bytes, so that a worker's memory stays flat however large values are."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

BATCH_BYTES = 16 * 1024 * 1024
"""Bytes per Arrow batch. What is made of one takes several times as much."""
FETCH_BYTES = 64 * 1024 * 1024
"""Bytes per fetch, by the declared lengths of columns, which values rarely fill."""
LARGE_ROWS = 16
"""Rows per fetch where a column has no length that bounds it."""
_IN_MEMORY = 32 * 1024 * 1024


def rows_per_fetch(width: int, *, large: bool, most: int) -> int:
    """How many rows a driver fetches at once.

    Args:
        width: bytes of a row at the most.
        large: whether a column may hold any number of bytes.
        most: the most rows.
    """
    return min(LARGE_ROWS, most) if large else max(1, min(most, FETCH_BYTES // max(width, 1)))


def sized(batches: Iterable[pa.RecordBatch], rows: int, *, fetched: int) -> Iterator[pa.RecordBatch]:
    """The same rows, in batches of at most so many rows and about `BATCH_BYTES`; a row is never divided.

    Args:
        batches: of any size. Only what is needed is taken at a time.
        rows: the most rows of a batch.
        fetched: rows per fetch. Where they are few, fetches are put together.
    """
    if fetched > LARGE_ROWS:
        for batch in batches:
            yield from _parts(batch, rows)
        return
    held: list[pa.RecordBatch] = []
    size = count = 0
    for batch in batches:
        for part in _parts(batch, rows):
            full = size + part.nbytes > BATCH_BYTES or count + part.num_rows > rows
            if held and (full or held[0].schema != part.schema):
                yield _joined(held)
                held, size, count = [], 0, 0
            held.append(part)
            size, count = size + part.nbytes, count + part.num_rows
    if held:
        yield _joined(held)


def _parts(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    count = batch.num_rows
    if count > 1 and (count > rows or batch.nbytes > BATCH_BYTES):
        yield from _parts(batch.slice(0, count // 2), rows)
        yield from _parts(batch.slice(count // 2), rows)
    elif count:
        yield batch


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class Spool:
    """Columns of text that wait until they may be given: in memory first, then in a temporary file of the worker."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        self._writer: pa.RecordBatchStreamWriter | None = None

    def add(self, texts: Sequence[pa.Array]) -> None:
        """Keep a batch."""
        batch = pa.record_batch([text.cast(pa.string()) for text in texts], names=[str(n) for n in range(len(texts))])
        if self._writer is None:
            self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, "w"), batch.schema)
        self._writer.write_batch(batch)

    def __iter__(self) -> Iterator[list[pa.Array]]:
        """The batches in their order; may be asked once, when all are kept."""
        if self._writer is not None:
            self._writer.close()
            self._file.seek(0)
            with pa.ipc.open_stream(pa.PythonFile(self._file, "r")) as reader:
                for batch in reader:
                    yield batch.columns
        self._file.close()
