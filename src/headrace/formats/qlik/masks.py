"""Qlik's changeMask and columnMask: hexadecimal texts, one bit for each column by ordinal.

| `mask_byte_order` | meaning of `0202` with 10 columns |
|---|---|
| `big` | a number with its most significant byte first: bits 1 and 9, columns 2 and 10 |
| `little` | the least significant byte first: the bytes are read the other way round |
| `auto` | `big`, where not only `little` fits |

A reading does not fit that sets bits for more columns than there are or, in an update with both images, names other
columns than those that differ. Bit 0 is the column with ordinal 1. Columns beyond the mask's last byte were added
behind the source, and the mask does not speak of them. Odd lengths (a zero is missing in front) and lower case are
accepted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.wire.arrays import offsets_of, text_array, text_view
from headrace.wire.spans import Array

ORDERS = ("big", "little", "auto")
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})*")
_DIGITS = np.frombuffer(b"".join(f"{number:02X}".encode() for number in range(256)), np.uint8).reshape(256, 2)


class ColumnBits:
    """The masks of some messages, each distinct text read once.

    `said` is whether a message has a mask, `malformed` whether that is not hexadecimal text.

    Args:
        texts: one for each message; null and an empty one say nothing.
    """

    def __init__(self, texts: pa.StringArray) -> None:
        codes = texts.dictionary_encode()
        words = codes.dictionary.to_pylist()
        padded = [text if len(text) % 2 == 0 else f"0{text}" for text in words]
        fine = [_HEX.fullmatch(text) is not None for text in padded]
        held = [bytes.fromhex(text) if is_hex else b"" for text, is_hex in zip(padded, fine, strict=True)]
        self._of: Array = codes.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)
        self.size: Array = np.array([*map(len, held), 0])[self._of]
        """How many bytes each mask has."""
        self.said: Array = np.array([*(text != "" for text in words), False])[self._of]
        self.malformed: Array = self.said & ~np.array([*fine, True])[self._of]
        self._width: Array = 8 * np.array([*map(len, held), 0])
        self._first = offsets_of(self._width)
        ways = (b"".join(mask[::-1] for mask in held), b"".join(held))
        bits = [np.unpackbits(np.frombuffer(way, np.uint8), bitorder="little") for way in ways]
        self._bits: Array = np.append(np.stack(bits), np.zeros((2, 1), np.uint8), axis=1)
        leading = [[_leading_ones(mask) for mask in way] for way in ((m[::-1] for m in held), held)]
        self._leading: Array = np.array([[*ones, 0] for ones in leading])

    def bit(self, message: Array, index: Array, little: Array) -> Array:
        """The bit of the column at each index, from 0: 0 or 1, -1 beyond the mask.

        Args:
            message: whose mask.
            index: of the column.
            little: whether the first byte is the least significant one.
        """
        number = self._of[message]
        inside = (index >= 0) & (index < self._width[number])
        at = np.where(inside, self._first[number] + index, -1)
        return np.where(inside, self._bits[little.astype(np.int8), at], -1).astype(np.int8)

    def is_full(self, message: Array, columns: Array, little: Array) -> Array:
        """Whether masks leave out none of so many columns."""
        number = self._of[message]
        return self._leading[little.astype(np.int8), number] >= np.minimum(columns, self._width[number])

    def set_indexes(self, message: int, little: bool) -> list[int]:
        number = self._of[message]
        first = self._first[number]
        return list(map(int, np.flatnonzero(self._bits[int(little), first : first + self._width[number]])))


def _leading_ones(mask: bytes) -> int:
    """How many bits are set before the first one that is not, from the least significant bit of the first byte."""
    number = int.from_bytes(mask, "little")
    return (~number & (number + 1)).bit_length() - 1


def is_little(
    change: ColumnBits, column: ColumnBits, message: int, names: Sequence[str | None], differing: set[str] | None
) -> bool:
    """Whether only the reading with the least significant byte first fits a message.

    Args:
        change, column: its masks.
        message: its number.
        names: of the columns by ordinal.
        differing: the columns in which its images differ; None where it has not both.
    """

    def unfit(little: bool) -> int:
        unfit_rows = 0
        for masks in (change, column):
            if masks.said[message] and any(index >= len(names) for index in masks.set_indexes(message, little)):
                unfit_rows += 2
        if differing is not None and change.said[message]:
            indexes = change.set_indexes(message, little)
            named = sorted(name for index in indexes if index < len(names) and (name := names[index]) is not None)
            unfit_rows += named != sorted(differing)
        return unfit_rows

    return unfit(True) < unfit(False)


def mask_bytes(flags: Array, counts: Array, present: Array, *, little: bool) -> pa.BinaryArray:
    """Masks of flags; null where there is none.

    Args:
        flags: of the columns of all rows, one after another.
        counts: how many columns each row has.
        present: which rows have a mask.
        little: whether the least significant byte comes first.
    """
    rows, width = counts.size, int(counts.max(initial=0))
    matrix = np.zeros((rows, width), bool)
    matrix[np.arange(width) < counts[:, None]] = flags
    packed = np.packbits(matrix, axis=1, bitorder="little")
    sizes = np.where(present, (counts + 7) // 8, 0)
    offsets = offsets_of(sizes)
    row = np.repeat(np.arange(rows), sizes)
    index = np.arange(row.size) - offsets[row]
    if not little:
        index = sizes[row] - 1 - index
    data = np.ascontiguousarray(packed[row, index])
    valid = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), rows, [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def hex_texts(values: pa.BinaryArray) -> pa.StringArray:
    """Bytes as hexadecimal texts; null for null."""
    view = text_view(values)
    first, last = int(view.offsets[0]), int(view.offsets[-1])
    digits = np.ascontiguousarray(_DIGITS[view.data[first:last]]).reshape(-1)
    valid = None if not values.null_count else np.packbits(values.is_valid(), bitorder="little")
    return text_array((2 * (view.offsets - first)).astype(np.int32), digits, valid)
