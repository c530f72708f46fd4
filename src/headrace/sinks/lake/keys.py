"""Keys of rows as an index compares them: by their values, whatever Parquet's types of them are in a file.

The key of one whole number, day or moment that is never null is that number. Any other key is bytes: each column with
its length in front of its value, so that no two keys are one, and a null with a length that no value has. Bytes are
found by a hash of 64 bits, and then compared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.sinks.lake.data_files import arrow_type
from headrace.wire.hashes import hashes

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz")
ALL_BITS = 64


@dataclass(frozen=True)
class Keys:
    """The keys of some rows, in the rows' order.

    Args:
        prints: by what they are found: the number that a key is, or a hash.
        values: the keys as bytes; None where `prints` are the keys.
        rows: the numbers of the rows that they are of. Rows whose key can't be any row's of the source are left out.
    """

    prints: NDArray[np.int64]
    values: pa.Array | None
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.prints)

    def take(self, indexes: NDArray[np.int64]) -> Keys:
        values = None if self.values is None else self.values.take(pa.array(indexes))
        return Keys(self.prints[indexes], values, self.rows[indexes])


class KeyForm:
    """How the keys of a table are compared.

    Args:
        columns: the key's columns with their Spark types, in order.
        nullable: those that may be null.
        bits: how many bits a hash has.

    Raises:
        ValueError: a column has a type that pyarrow does not write.
    """

    def __init__(self, columns: Mapping[str, str], nullable: Collection[str], *, bits: int = ALL_BITS) -> None:
        self.columns = tuple(columns)
        self._types: list[pa.DataType] = []
        for name, kind in columns.items():
            arrow = arrow_type(kind)
            if arrow is None:
                raise ValueError(f"column '{name}' is {kind}")
            self._types.append(arrow)
        self._nullable = frozenset(nullable)
        self._is_number = len(columns) == 1 and next(iter(columns.values())) in _NUMBERS and not nullable
        self._bits = bits

    @property
    def identity(self) -> tuple[object, ...]:
        return self.columns, tuple(map(str, self._types)), self._nullable, self._bits

    @property
    def bytes_per_row(self) -> int:
        """About how many bytes a key takes in an index."""
        return 12 if self._is_number else 48

    def keys(self, rows: pa.Table) -> Keys:
        """The keys of rows that have at least the key's columns, perhaps in types that were widened since."""
        columns = [
            _one_chunk(rows.column(name)).cast(kind) for name, kind in zip(self.columns, self._types, strict=True)
        ]
        numbers = np.arange(rows.num_rows, dtype=np.int64)
        sure = [c for name, c in zip(self.columns, columns, strict=True) if name not in self._nullable and c.null_count]
        if sure:
            # A null that the source can't have equals none of its keys.
            wanted = np.logical_and.reduce([column.is_valid().to_numpy(zero_copy_only=False) for column in sure])
            columns, numbers = [column.filter(pa.array(wanted)) for column in columns], numbers[wanted]
        if self._is_number:
            return Keys(_numbers(columns[0]), None, numbers)
        values = self._bytes(columns)
        prints = hashes(values).view(np.int64)
        if self._bits < ALL_BITS:
            prints = prints & np.int64((1 << self._bits) - 1)
        return Keys(prints, values, numbers)

    def _bytes(self, columns: Sequence[pa.Array]) -> pa.Array:
        written = [_bytes_of(column) for column in columns]
        if len(columns) == 1 and not self._nullable:
            return written[0]
        parts: list[pa.Array] = []
        for column in written:
            lengths = pc.fill_null(pc.binary_length(column), -1)
            parts += [_fixed(lengths.to_numpy().astype("<i4")), pc.fill_null(column, b"")]
        return pc.binary_join_element_wise(*parts, b"")


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    chunk = column.combine_chunks()
    if isinstance(chunk, pa.ChunkedArray):
        chunk = chunk.chunk(0) if chunk.num_chunks else pa.array([], column.type)
    return chunk


def _numbers(column: pa.Array) -> NDArray[np.int64]:
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    numbers: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
    return numbers


def _bytes_of(column: pa.Array) -> pa.Array:
    """The values as bytes that are equal exactly where Spark finds the values equal; null stays null."""
    kind = column.type
    if pa.types.is_string(kind):
        return column.cast(pa.binary())
    if pa.types.is_binary(kind):
        return column
    valid = column.is_valid()
    if pa.types.is_decimal(kind):
        filled = pc.fill_null(column, pa.scalar(Decimal(0), kind))
        words = np.frombuffer(filled.buffers()[1], "V16")[filled.offset : filled.offset + len(filled)]
        texts = _fixed(words)
    elif pa.types.is_floating(kind):
        # The two zeros are one value, and so are all that are no number.
        numbers = pc.fill_null(column, 0).cast(pa.float64()).to_numpy() + 0.0
        texts = _fixed(np.where(np.isnan(numbers), np.nan, numbers))
    elif pa.types.is_boolean(kind):
        texts = _fixed(pc.fill_null(column, False).cast(pa.int8()).to_numpy())
    else:
        texts = _fixed(_numbers(pc.fill_null(column, pa.scalar(0, _counted(kind)).cast(kind))))
    return pc.if_else(valid, texts, pa.scalar(None, pa.binary())) if column.null_count else texts


def _counted(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(kind) else pa.int64()


def _fixed(values: NDArray[np.generic]) -> pa.Array:
    data = np.ascontiguousarray(values)
    offsets = np.arange(len(data) + 1, dtype=np.int32) * data.dtype.itemsize
    return pa.Array.from_buffers(pa.binary(), len(data), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
