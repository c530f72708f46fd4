"""The tables of a window as kernels take them: for each state that the log shows of one, where its columns go.

By them the images of rows events get the canonical texts of their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.errors import FormatError
from headrace.sources.log.row_images import RowImages
from headrace.sources.mysql import binary_json
from headrace.sources.mysql.described_table import DescribedTable
from headrace.sources.mysql.types import NativeType
from headrace.sources.mysql.wire_columns import WireTables
from headrace.sources.tables.masks import Change, Masks
from headrace.wire import binlog_kernels as kernels
from headrace.wire.binlog_kernels import Events, FilledRows
from headrace.wire.cell_kernels import ABSENT, NULL, Cells, Columns
from headrace.wire.spans import Array


@dataclass(frozen=True)
class TextEncoding:
    """What makes the texts that are given out of the values of the log.

    Args:
        column: which column, for errors.
        native: the type of the values.
        mask: what is done to them then.
        length: as masks take it.
    """

    column: str
    native: NativeType
    mask: Change | None = None
    length: int | None = None

    def __call__(self, texts: pa.StringArray) -> pa.StringArray:
        """Whole columns; null stays null."""
        written = texts
        if self.native.needs_log_texts:
            try:
                written = self.native.log_texts(texts)
            except FormatError as error:
                raise FormatError(f"Column {self.column}: {error.message}", remedy=error.remedy) from error
        return written if self.mask is None else self.mask(written, self.length)

    @property
    def is_plain(self) -> bool:
        return self.mask is None and not self.native.needs_log_texts


class Layouts:
    """All states of captured tables that a window has shown so far, by number.

    Args:
        masks: what is done to values.
    """

    def __init__(self, masks: Masks) -> None:
        self.all: list[DescribedTable] = []
        self._masks = masks
        self._encodings: dict[TextEncoding, int] = {}
        self._holders: dict[str, int] = {}
        self._schemas: dict[str, int] = {}
        self._arrays: Arrays | None = None

    def add(self, layout: DescribedTable) -> int:
        self.all.append(layout)
        self._arrays = None
        return len(self.all) - 1

    @property
    def arrays(self) -> Arrays:
        if self._arrays is None:
            self._arrays = self._made()
        return self._arrays

    def _made(self) -> Arrays:
        written: list[list[int]] = []
        by: list[int] = []
        for layout in self.all:
            table = layout.table
            masks = {index: rest for index, *rest in self._masks.of_table(table.schema, table.natives).changes}
            encoded = []
            for number, index in enumerate(layout.positions):
                column, native = table.schema.columns[number], table.natives[number]
                encoding = TextEncoding(f"'{column.name}' of table '{table.path}'", native, *masks.get(number, ()))
                if not encoding.is_plain:
                    encoded.append(index)
                    by.append(self._encodings.setdefault(encoding, len(self._encodings)))
            written.append(encoded)
        schemas = [layout.table.schema for layout in self.all]
        keys = []
        for layout in self.all:
            names = [column.name for column in layout.table.schema.columns]
            keys.append([layout.positions[names.index(name)] for name in layout.table.schema.key if layout.positions])
        described = [bool(layout.positions) for layout in self.all]
        return Arrays(
            wire=WireTables.of([layout.columns for layout in self.all]),
            holders=_numbers([self._holders.setdefault(x.table.path, len(self._holders)) for x in self.all]),
            schemas=_numbers([self._schemas.setdefault(s.fingerprint, len(self._schemas)) for s in schemas]),
            captured=_columns([layout.positions for layout in self.all]),
            key=_columns(keys),
            written=_columns(written),
            by=_numbers(by),
            encodings=tuple(self._encodings),
            names=_texts([c.name for s, has in zip(schemas, described, strict=True) if has for c in s.columns]),
            key_names=_texts([name for s, has in zip(schemas, described, strict=True) if has for name in s.key]),
            databases=_texts([schema.id.database for schema in schemas]),
            namespaces=_texts([schema.id.schema for schema in schemas]),
            tables=_texts([schema.id.name for schema in schemas]),
            fingerprints=_texts([schema.fingerprint for schema in schemas]),
        )


@dataclass(frozen=True)
class Arrays:
    """Layouts by number.

    Args:
        wire: how their rows lie in the log.
        holders: a number for each table, whatever it looks like.
        schemas: a number for each schema.
        captured: the positions in the row of the columns that are given out.
        key: those of the key's columns.
        written: those whose texts do not stay as they are.
        by: for each of these the number of its text form.
        encodings: all of them.
        names, key_names: the names of `captured` and `key`.
        databases, namespaces, tables, fingerprints: what change rows say of a table.
    """

    wire: WireTables
    holders: Array
    schemas: Array
    captured: Columns
    key: Columns
    written: Columns
    by: Array
    encodings: tuple[TextEncoding, ...]
    names: pa.StringArray
    key_names: pa.StringArray
    databases: pa.StringArray
    namespaces: pa.StringArray
    tables: pa.StringArray
    fingerprints: pa.StringArray

    @cached_property
    def key_sizes(self) -> Array:
        return np.diff(self.key.firsts)


def _numbers(numbers: Sequence[int]) -> Array:
    return np.array(numbers, np.int64)


def _texts(texts: Sequence[str | None]) -> pa.StringArray:
    return pa.array(texts, pa.string())


def _columns(rows: Sequence[Sequence[int]]) -> Columns:
    firsts = np.cumsum([0, *(len(columns) for columns in rows)]).astype(np.int64)
    return Columns(firsts, _numbers([column for columns in rows for column in columns]))


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
    counted = FilledRows(counts, none, none, Cells(none, none, none, none), none, wrong)
    images, values, partial = (int(n) for n in kernels.find_rows(data, events, shapes, False, counted))
    if images < 0:
        raise _wrong(wrong)
    rows = int(counts.sum())
    cells = Cells(*(np.empty(size, np.int64) for size in (images, images + 1, values, values)))
    cells.firsts[0] = 0
    filled = FilledRows(
        counts, np.empty(rows, np.int64), np.empty(rows, np.int64), cells, np.empty(partial, np.int64), wrong
    )
    kernels.find_rows(data, events, shapes, True, filled)
    room = int(kernels.measure_texts(cells, shapes))
    labels, text = len(data), len(data) + len(tables.labels)
    changes = _differences(data, filled, text + room) if partial else b""
    out = np.empty(text + room + len(changes), np.uint8)
    out[:labels], out[labels:text] = data, tables.labels
    out[text + room :] = np.frombuffer(changes, np.uint8)
    if kernels.write_texts(out, text, labels, cells, shapes, wrong) < 0:
        image, column = wrong[:2].tolist()
        row = int(np.flatnonzero((filled.old == image) | (filled.new == image))[0])
        event = _event_of(counts, row)
        offset = int(cells.starts[cells.firsts[image] + column])
        raise WrongRow(event, offset, column, _REASONS[kernels.VALUE])
    out.flags.writeable = False
    return Rows(RowImages(out, cells, filled.old, filled.new), np.repeat(np.arange(len(counts)), counts))


def _differences(data: Array, filled: FilledRows, position: int) -> bytes:
    """Let cells with differences stand where the JSON before and they stand together; these bytes.

    Without the JSON before, a value is absent.
    """
    cells, parts = filled.cells, []
    images = np.searchsorted(cells.firsts, filled.partial, "right") - 1
    before = filled.partial - (cells.firsts[images] - cells.firsts[images - 1])
    for cell, old in zip(filled.partial.tolist(), before.tolist(), strict=True):
        size = int(cells.sizes[cell])
        if cells.sizes[old] == ABSENT or (cells.sizes[old] == NULL and not size):
            cells.sizes[cell] = cells.sizes[old]
            continue
        if cells.sizes[old] == NULL:
            rows = np.flatnonzero(filled.new == np.searchsorted(cells.firsts, cell, "right") - 1)
            event = _event_of(filled.rows, int(rows[0]))
            raise WrongRow(event, int(cells.starts[cell]), -1, "has differences to a JSON that is null")
        whole = [bytes(data[cells.starts[c] : cells.starts[c] + cells.sizes[c]]) for c in (old, cell)]
        parts.append(binary_json.changed(*whole))
        cells.starts[cell], cells.sizes[cell] = position, len(parts[-1])
        position += len(parts[-1])
    return b"".join(parts)


def _event_of(counts: Array, row: int) -> int:
    ends: Array = np.cumsum(counts)
    return int(np.searchsorted(ends, row, "right"))


def _wrong(wrong: Array) -> WrongRow:
    event, offset, column, reason = wrong.tolist()
    return WrongRow(event, offset, column, _REASONS[reason])
