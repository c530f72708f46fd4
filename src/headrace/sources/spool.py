"""Messages of a task that wait until all of them have been looked at: in memory, and many of them in a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO, Self

import pyarrow as pa

_MOST_IN_MEMORY = 64 << 20


class Spool:
    """Batches of Arrow of one schema, read once in the order in which they came. To be closed.

    Args:
        most: how many bytes stay in memory; what comes behind them goes to a temporary file of this machine, which is
            gone with the process.
    """

    def __init__(self, most: int = _MOST_IN_MEMORY) -> None:
        self._left = most
        self._first: list[pa.RecordBatch] = []
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._first = []
        if self._file is not None:
            self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep a batch."""
        self._left -= batch.nbytes
        if self._left >= 0:
            self._first.append(batch)
            return
        if self._writer is None:
            self._left = -1
            self._file = tempfile.TemporaryFile(prefix="headrace-")  # noqa: SIM115
            self._writer = pa.ipc.new_stream(self._file, batch.schema)
        self._writer.write_batch(batch)

    def all(self) -> Iterator[pa.RecordBatch]:
        """The batches; those in memory are let go one by one."""
        first, self._first = self._first[::-1], []
        while first:
            yield first.pop()
        if self._writer is not None and self._file is not None:
            self._writer.close()
            self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)
