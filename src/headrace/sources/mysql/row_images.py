"""The images of rows events of any tables, with canonical texts of their values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace.errors import FormatError
from headrace.sources.log.row_images import RowImages
from headrace.sources.mysql import binary_json
from headrace.sources.mysql.wire_columns import WireTables
from headrace.wire import binlog_kernels as kernels
from headrace.wire.binlog_kernels import Events, Found
from headrace.wire.cell_kernels import ABSENT, NULL, Cells
from headrace.wire.spans import Array

_REASONS = {
    kernels.CUT_OFF: "is shorter than its values",
    kernels.WIDTH: "has another number of columns than its table was said to have",
    kernels.EMPTY: "has no row",
    kernels.LEFT_OVER: "has bytes that belong to no row",
    kernels.KIND: "is no rows event",
    kernels.VALUE: "has a value that is none of its column's type",
}


class WrongRow(FormatError):
    """A rows event is not as its table map says.

    Args:
        event: which of the events.
        offset: where in the bytes.
        column: the number of the column in its table, from 0; -1 where none is to blame.
        what: what is wrong, as a part of a sentence.
    """

    def __init__(self, event: int, offset: int, column: int, what: str) -> None:
        where = f" in column {column + 1}" if column >= 0 else ""
        super().__init__(f"A rows event of the log {what}{where}.")
        self.event = event
        self.offset = offset
        self.column = column
        self.what = what


class Rows(NamedTuple):
    """What rows events have.

    Args:
        images: the images of all rows, whose texts are canonical but for those of `NativeType.needs_log_texts`.
        events: for each row the number of its event.
    """

    images: RowImages
    events: Array


def read_rows(data: Array, events: Events, tables: WireTables) -> Rows:
    """The rows of events in their order.

    Args:
        data: the bytes in which the events are.
        events: they; compressed ones have to be made plain before.
        tables: what their tables' columns are.

    Raises:
        WrongRow: an event is not as its table's map says.
    """
    shapes, none = tables.shapes, np.empty(0, np.int64)
    counts, wrong = np.zeros(len(events.starts), np.int64), np.zeros(4, np.int64)
    counted = Found(counts, none, none, Cells(none, none, none, none), none, wrong)
    images, values, partial = (int(n) for n in kernels.find_rows(data, events, shapes, False, counted))
    if images < 0:
        raise _wrong(wrong)
    rows = int(counts.sum())
    cells = Cells(*(np.empty(size, np.int64) for size in (images, images + 1, values, values)))
    cells.firsts[0] = 0
    found = Found(counts, np.empty(rows, np.int64), np.empty(rows, np.int64), cells, np.empty(partial, np.int64), wrong)
    kernels.find_rows(data, events, shapes, True, found)
    room = int(kernels.measure_texts(cells, shapes))
    labels, text = len(data), len(data) + len(tables.labels)
    changes = _differences(data, found, text + room) if partial else b""
    out = np.empty(text + room + len(changes), np.uint8)
    out[:labels], out[labels:text] = data, tables.labels
    out[text + room :] = np.frombuffer(changes, np.uint8)
    if kernels.write_texts(out, text, labels, cells, shapes, wrong) < 0:
        image, column = wrong[:2].tolist()
        row = int(np.flatnonzero((found.old == image) | (found.new == image))[0])
        event = _event_of(counts, row)
        offset = int(cells.starts[cells.firsts[image] + column])
        raise WrongRow(event, offset, column, _REASONS[kernels.VALUE])
    out.flags.writeable = False
    return Rows(RowImages(out, cells, found.old, found.new), np.repeat(np.arange(len(counts)), counts))


def _differences(data: Array, found: Found, position: int) -> bytes:
    """Let cells with differences stand where the JSON before and they stand together; these bytes.

    Without the JSON before, a value is absent.
    """
    cells, parts = found.cells, []
    images = np.searchsorted(cells.firsts, found.partial, "right") - 1
    before = found.partial - (cells.firsts[images] - cells.firsts[images - 1])
    for cell, old in zip(found.partial.tolist(), before.tolist(), strict=True):
        size = int(cells.sizes[cell])
        if cells.sizes[old] == ABSENT or (cells.sizes[old] == NULL and not size):
            cells.sizes[cell] = cells.sizes[old]
            continue
        if cells.sizes[old] == NULL:
            rows = np.flatnonzero(found.new == np.searchsorted(cells.firsts, cell, "right") - 1)
            event = _event_of(found.rows, int(rows[0]))
            raise WrongRow(event, int(cells.starts[cell]), -1, "has differences to a JSON that is null")
        whole = [bytes(data[cells.starts[c] : cells.starts[c] + cells.sizes[c]]) for c in (old, cell)]
        parts.append(binary_json.changed(*whole))
        cells.starts[cell], cells.sizes[cell] = position, len(parts[-1])
        position += len(parts[-1])
    return b"".join(parts)


def _event_of(counts: Array, row: int) -> int:
    """The number of the event that has a row."""
    ends: Array = np.cumsum(counts)
    return int(np.searchsorted(ends, row, "right"))


def _wrong(wrong: Array) -> WrongRow:
    event, offset, column, reason = wrong.tolist()
    return WrongRow(event, offset, column, _REASONS[reason])
