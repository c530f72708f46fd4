"""How the columns of tables lie in rows events, as kernels take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.sources.mysql import types as native_types
from headrace.sources.mysql.packed import decimal_size, fraction_size
from headrace.sources.mysql.types import NativeType, unpacked
from headrace.wire import binlog_kernels as kernels
from headrace.wire.binlog_kernels import Shapes
from headrace.wire.spans import Array

_INTEGERS = {
    native_types.TINY: 1,
    native_types.SHORT: 2,
    native_types.INT24: 3,
    native_types.LONG: 4,
    native_types.LONGLONG: 8,
}
_FIXED = {
    **_INTEGERS, native_types.FLOAT: 4, native_types.DOUBLE: 8, native_types.YEAR: 1, native_types.DATE: 3,
    native_types.NEWDATE: 3, native_types.TIMESTAMP: 4, native_types.TIME: 3, native_types.DATETIME: 8,
}  # fmt: skip
_WITH_FRACTION = {native_types.TIMESTAMP2: 4, native_types.TIME2: 3, native_types.DATETIME2: 5}
_PREFIXED = frozenset(
    (native_types.BLOB, native_types.BLOB_COMPRESSED, native_types.JSON, native_types.GEOMETRY, native_types.VECTOR)
)
_FORMS = {
    native_types.YEAR: kernels.YEAR, native_types.DATE: kernels.DATE, native_types.NEWDATE: kernels.DATE,
    native_types.TIMESTAMP: kernels.OLD_TIMESTAMP, native_types.TIME: kernels.OLD_TIME,
    native_types.DATETIME: kernels.OLD_DATETIME, native_types.TIMESTAMP2: kernels.TIMESTAMP,
    native_types.TIME2: kernels.TIME, native_types.DATETIME2: kernels.DATETIME, native_types.ENUM: kernels.ENUM,
}  # fmt: skip
_ROOM = 32
"""The bytes that a number or a moment takes at the most as text."""
_UUID, _UUID_ROOM = 16, 36


@dataclass(frozen=True)
class WireColumn:
    """A column of a table map.

    Args:
        code: the type's number.
        meta: see `NativeType.of_wire`.
        native: what its values are, by the map or by the catalog.
    """

    code: int
    meta: int
    native: NativeType

    @property
    def size(self) -> int:
        """How many bytes a value has; -1 to -4 where so many bytes in front of it say so."""
        code, size = unpacked(self.code, self.meta)
        if code in _FIXED:
            return _FIXED[code]
        if code in _WITH_FRACTION:
            return _WITH_FRACTION[code] + fraction_size(self.meta)
        if code == native_types.DECIMAL:
            return decimal_size(self.meta & 255, self.meta >> 8)
        if code == native_types.BIT:
            return (size + 7) // 8
        if code in (native_types.ENUM, native_types.SET):
            return size
        if code in _PREFIXED:
            return -size
        return -1 if size < 256 else -2

    @property
    def form(self) -> int:
        """What the kernel makes of a value."""
        code, _ = unpacked(self.code, self.meta)
        if code == native_types.JSON:
            return kernels.JSON
        if self.native.needs_log_texts:
            return kernels.LEAVE
        if code in _INTEGERS:
            return kernels.UNSIGNED if self.native.unsigned else kernels.SIGNED
        if code == native_types.DECIMAL:
            return kernels.DECIMAL
        if code == native_types.BIT:
            return kernels.FLAG if self.native.length == 1 else kernels.BITS
        if code in _FORMS:
            return _FORMS[code]
        if self.native.kind == "uuid":
            return kernels.UUID
        if self.native.logical.kind == "bytes":
            return kernels.BYTES
        return kernels.UTF8

    @property
    def numbers(self) -> tuple[int, int]:
        """Digits and scale of a decimal, fraction digits of a time, bytes that a value is padded to."""
        code, size = unpacked(self.code, self.meta)
        if code == native_types.DECIMAL:
            return self.meta & 255, self.meta >> 8
        if code in _WITH_FRACTION:
            return self.meta, 0
        if self.form == kernels.BYTES and code == native_types.STRING:
            return size, 0
        return 0, 0

    @property
    def room(self) -> int:
        """How many bytes a text takes at the most, but for what grows with the value."""
        form = self.form
        if form == kernels.DECIMAL:
            return self.numbers[0] + 3
        if form == kernels.BYTES:
            # The bytes that are padded stand after the text until it is written.
            return (self.numbers[0] + 2) // 3 * 4 + self.numbers[0]
        if form == kernels.UUID:
            return _UUID_ROOM
        return _ROOM if form not in (kernels.LEAVE, kernels.JSON, kernels.UTF8, kernels.ENUM) else 0


@dataclass(frozen=True)
class WireTables:
    """The columns of several tables, by number.

    Args:
        shapes: as kernels take them.
        labels: all labels, one after another.
    """

    shapes: Shapes
    labels: Array

    @classmethod
    def of(cls, tables: Sequence[Sequence[WireColumn]]) -> WireTables:
        """Tables in the order of their numbers, each with all columns that the log has."""
        columns = [column for table in tables for column in table]
        labels: list[bytes] = []
        numbers = []
        for column in columns:
            pair = column.numbers
            if column.form == kernels.ENUM:
                pair = len(column.native.labels), len(labels)
                labels += [label.encode() for label in column.native.labels]
            numbers.append(pair)
        documents = [sum(column.code == native_types.JSON for column in table) for table in tables]
        shapes = Shapes(
            _ends([len(table) for table in tables]),
            _column_numbers([column.size for column in columns]),
            _column_numbers([column.form for column in columns]),
            _column_numbers([first for first, _ in numbers]),
            _column_numbers([second for _, second in numbers]),
            _column_numbers([column.room for column in columns]),
            _ends([len(label) for label in labels]),
            _column_numbers(documents),
        )
        return cls(shapes, np.frombuffer(b"".join(labels), np.uint8))


def _column_numbers(numbers: Sequence[int]) -> Array:
    return np.array(numbers, np.int64)


def _ends(sizes: Sequence[int]) -> Array:
    return _column_numbers([0, *np.cumsum(sizes).tolist()])
