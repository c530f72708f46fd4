"""Result rows of the text protocol as row images: what a server sends is nearly what a change row holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from headrace.errors import FormatError
from headrace.sources.images import WholeRows
from headrace.sources.mysql.charsets import BINARY
from headrace.sources.mysql.types import NativeType
from headrace.wire import text_row_kernels as kernels
from headrace.wire.arrays import bitmap, text_array, text_view
from headrace.wire.spans import Array

_MOST_ROWS = 8192
_LONGEST = 0xFFFFFF
_HEADER = 4
_NUMBERS = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint", "decimal"))
_AS_IT_IS = frozenset(("date", "datetime", "time", "uuid", "inet4", "inet6"))
_BYTES = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"))
_TEXTS = frozenset(
    ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "json")
)  # fmt: skip


class TextRows:
    """Reads the rows of results that have the same columns.

    Args:
        names: the columns' names.
        natives: their types, selected as `NativeType.selected` has it, by a session with UTF-8 and UTC.
    """

    def __init__(self, names: Sequence[str], natives: Sequence[NativeType]) -> None:
        self._names = tuple(names)
        self._natives = tuple(natives)
        self._kinds = np.array([_kind(native) for native in natives], np.int64)
        self._made = np.cumsum(self._kinds == kernels.MADE) - 1

    def read(self, packets: Iterable[bytes | memoryview]) -> Iterator[WholeRows]:
        """The rows, in batches that are bounded in rows, and in bytes by what comes at once.

        Args:
            packets: whole packets of rows, headers included, in blocks; a row beyond 16 MiB may be several packets.

        Raises:
            FormatError: bytes are no row of these columns, or a text is not UTF-8.
        """
        for block in packets:
            data = np.frombuffer(block, np.uint8)
            data.flags.writeable = False
            at = 0
            while at < data.size:
                starts, ends, after = _rows(data, at)
                if not len(starts):
                    whole, after = _long_row(data, at)
                    yield self._values(whole, np.zeros(1, np.int64), np.array([whole.size], np.int64))
                else:
                    yield self._values(data, starts, ends)
                at = after

    def _values(self, data: Array, starts: Array, ends: Array) -> WholeRows:
        rows, columns = len(starts), len(self._kinds)
        positions, sizes = np.empty(rows * columns, np.int64), np.empty(rows * columns, np.int64)
        if kernels.find_values(data, starts, ends, columns, positions, sizes) >= 0:
            raise FormatError("A row of a snapshot is not of the columns that were asked for.", remedy=_REMEDY)
        built = self._built_texts(data, positions, sizes, rows)
        view = text_view(built)
        built_valid = built.is_valid().to_numpy(zero_copy_only=False)
        offsets, valid = np.empty(rows * columns + 1, np.int32), bitmap(rows * columns)
        room = int(np.maximum(sizes, 0).sum()) * 4 // 3 + 4 * len(sizes) + int(view.offsets[-1])
        out = np.empty(room, np.uint8)
        bad = kernels.copy_values(
            data, positions, sizes, self._kinds, self._made, view.data, view.offsets, built_valid, offsets, valid, out
        )
        if bad >= 0:
            raise FormatError(
                f"A value of column '{self._names[bad % columns]}' is not the text that its type has.", remedy=_REMEDY
            )
        return WholeRows(self._names, text_array(offsets, out[: int(offsets[-1])], valid))

    def _built_texts(self, data: Array, positions: Array, sizes: Array, rows: int) -> pa.StringArray:
        """The columns that kernels don't write, one after another."""
        columns = len(self._kinds)
        arrays = []
        for column in np.flatnonzero(self._kinds == kernels.MADE).tolist():
            offsets, valid = np.empty(rows + 1, np.int32), bitmap(rows)
            out = np.empty(int(np.maximum(sizes[column::columns], 0).sum()) + 1, np.uint8)
            kernels.copy_column(data, positions, sizes, column, columns, offsets, valid, out)
            buffers = [pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(out)]
            printed = pa.Array.from_buffers(pa.binary(), rows, buffers)
            try:
                arrays.append(self._natives[column].printed_texts(printed))
            except (ValueError, pa.ArrowInvalid) as error:
                raise FormatError(
                    f"A value of column '{self._names[column]}' is not what its type prints: {error}", remedy=_REMEDY
                ) from error
        return pa.concat_arrays(arrays) if arrays else pa.array([], pa.string())


_REMEDY = "Look whether the table was altered while it was read."


def _kind(native: NativeType) -> int:
    if native.kind in _NUMBERS:
        return kernels.NUMBER
    if native.kind in _AS_IT_IS:
        return kernels.AS_IT_IS
    if native.kind in _BYTES or native.charset == BINARY:
        return kernels.BASE64
    if native.kind == "timestamp":
        return kernels.INSTANT
    return kernels.TEXT if native.kind in _TEXTS else kernels.MADE


def _rows(data: Array, at: int) -> tuple[Array, Array, int]:
    starts, ends, rows = np.empty(_MOST_ROWS, np.int64), np.empty(_MOST_ROWS, np.int64), np.empty(3, np.int64)
    kernels.find_rows(data, at, starts, ends, rows)
    count = int(rows[0])
    return starts[:count], ends[:count], int(rows[1])


def _long_row(data: Array, at: int) -> tuple[Array, int]:
    """A row of several packets without their headers, and where the packet after it begins."""
    parts = []
    while True:
        if at + _HEADER > data.size:
            raise FormatError("The rows of a snapshot end in the middle of a packet.", remedy=_REMEDY)
        size = int(data[at]) | int(data[at + 1]) << 8 | int(data[at + 2]) << 16
        at += _HEADER
        parts.append(data[at : at + size])
        at += size
        if at > data.size:
            raise FormatError("The rows of a snapshot end in the middle of a packet.", remedy=_REMEDY)
        if size < _LONGEST:
            whole = np.concatenate(parts)
            whole.flags.writeable = False
            return whole, at
