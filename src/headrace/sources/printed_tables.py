"""Tables as the server itself prints and counts them: what `headrace verify` holds mirrors against.

A second reader beside snapshots and the stream. Each source writes the conversions from its server's texts again, from
the manual, because whoever reads with the code that is tested finds none of its defects.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.changes import LogicalType, TableSchema
from headrace.errors import CaptureError
from headrace.sources.images import constant_map
from headrace.sources.snapshots.chunks import Chunk
from headrace.sources.snapshots.snapshot_rows import SnapshotRows
from headrace.sources.tables.masks import TableMasks

ROWS = 5000
"""How many rows come at once."""
Printed = Callable[[str], str]
"""Makes the canonical text of a value of what the server prints; never called with NULL."""
_COMMIT = "0" * 20


@dataclass(frozen=True)
class PrintedTable:
    """One table of a source.

    Args:
        schema: the table as it is captured.
        counted: how many rows the server counts.
        left_out: columns that the table has, that the options do not exclude and that are not captured.
        rows: the values of the captured columns, as the server prints them, some thousand rows at a time.
        texts: for each captured column what makes canonical texts of them; None where the printed text is canonical.
        masks: what the options do to values.
    """

    schema: TableSchema
    counted: int
    left_out: tuple[str, ...]
    rows: Iterator[list[tuple[str | None, ...]]]
    texts: Sequence[Printed | None]
    masks: TableMasks

    def change_rows(self, connector: str, now: dt.datetime) -> Iterator[pa.RecordBatch]:
        """The table as the rows of a snapshot.

        Raises:
            CaptureError: the server gives more or fewer rows than it counts.
        """
        rows = SnapshotRows(connector, self.schema, self.masks, _sources(connector), now)
        chunk = Chunk(self.schema.id.path, 0, 0, None, None, _COMMIT, None, None)
        yield rows.schema_of(chunk)
        yield from rows.of_chunk(chunk, self._columns(), numbered=not self.schema.key)

    def _columns(self) -> Iterator[list[pa.Array]]:
        read = 0
        for batch in self.rows:
            read += len(batch)
            yield [_canonical(column, text) for column, text in zip(zip(*batch, strict=True), self.texts, strict=True)]
        if read != self.counted:
            raise CaptureError(
                f"The server counts {self.counted:,} rows in table '{self.schema.id.path}' and gives {read:,}.",
                remedy="Look which setting or policy of the server limits what the login reads.",
            )


def _canonical(column: Sequence[str | None], text: Printed | None) -> pa.Array:
    if text is None:
        return pa.array(column, pa.string())
    return pa.array([None if value is None else text(value) for value in column], pa.string())


def _sources(connector: str) -> Callable[[str, int], pa.Array]:
    return lambda commit, count: constant_map({"connector": connector}, count)


def printed_number(kind: str) -> Printed:
    """The canonical text of a binary number (`float32`, `float64`), however many digits a server prints of it."""
    import numpy as np

    number, logical = (np.float32 if kind == "float32" else np.float64), LogicalType(kind)
    return lambda text: logical.to_text(number(text))
