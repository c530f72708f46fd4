"""The columns of several schemas side by side: what encoders write of each row is laid out by its schema.

`Numbered` keeps what is made once for each distinct key of messages, which then goes by its number.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from headrace.changes import Column, TableSchema
from headrace.formats.images import Image
from headrace.wire.arrays import offsets_of
from headrace.wire.spans import Array

ABSENT = -2
"""In place of a value's number, where a row does not carry the column."""


class ColumnIndexes(NamedTuple):
    """The columns of some rows, in the order of their schemas.

    Args:
        offsets: those of row `r` stand from `offsets[r]` to `offsets[r + 1]`.
        row: the row of each.
        column: the number of each among all columns.
    """

    offsets: Array
    row: Array
    column: Array


class SchemaColumns:
    """The columns of schemas: those of schema `s` from `first[s]` on, `count[s]` of them."""

    def __init__(self, schemas: Sequence[TableSchema]) -> None:
        self._names = [[column.name for column in schema.columns] for schema in schemas]
        self.all = [column for schema in schemas for column in schema.columns]
        counts = np.array([len(names) for names in self._names], np.int64)
        self.count: Array = counts
        self.first: Array = np.cumsum(counts) - counts

    @property
    def names(self) -> pa.StringArray:
        return pa.array([column.name for column in self.all], pa.string())

    def which(self, test: Callable[[Column], bool]) -> Array:
        return np.array([test(column) for column in self.all], bool)

    def laid(self, schema_number: Array) -> ColumnIndexes:
        counts = self.count[schema_number]
        offsets = offsets_of(counts)
        row = np.repeat(np.arange(schema_number.size), counts)
        return ColumnIndexes(offsets, row, np.arange(offsets[-1]) - offsets[row] + self.first[schema_number][row])

    def indexes(self, words: Sequence[str]) -> Array:
        """The index of each of these names in each schema; -1 where it has no such column."""
        number = {word: index for index, word in enumerate(words)}
        matrix = np.full((len(self._names), len(words)), -1, np.int64)
        for line, names in zip(matrix, self._names, strict=True):
            for index, name in enumerate(names):
                if name in number:
                    line[number[name]] = index
        return matrix

    def texts_at(self, image: Image, rows: Array, schema_number: Array, offsets: Array) -> Array:
        """The number of the text of each column of some rows' images; `ABSENT` where an image does not carry it.

        Args:
            image: of all rows.
            rows: which of them.
            schema_number: the number of each one's schema.
            offsets: where the columns of each begin (`ColumnIndexes.offsets`).
        """
        entries = image.entries
        names = image.names.dictionary_encode()
        size = np.where(entries.present, np.diff(entries.offsets), 0)[rows]
        of = np.repeat(np.arange(rows.size), size)
        entry = np.arange(of.size) - (np.cumsum(size) - size)[of] + entries.offsets[rows][of]
        code = names.indices.to_numpy(zero_copy_only=False)[entries.names[entry]]
        column = self.indexes(names.dictionary.to_pylist())[schema_number[of], code]
        at = np.full(int(offsets[-1]), ABSENT, np.int64)
        # Of a name that a map repeats, the first value: it is written last. What the schema lacks is not written.
        kept = np.flatnonzero(column >= 0)[::-1]
        at[offsets[of[kept]] + column[kept]] = entries.values[entry[kept]]
        return at

    def named(self, lists: pa.ListArray, schema_number: Array, offsets: Array) -> Array:
        is_named = np.zeros(int(offsets[-1]), bool)
        names = lists.flatten().dictionary_encode()
        size = np.where(lists.is_valid().to_numpy(zero_copy_only=False), np.diff(lists.offsets), 0)
        of = np.repeat(np.arange(len(lists)), size)
        code = names.indices.to_numpy(zero_copy_only=False)
        column = self.indexes(names.dictionary.to_pylist())[schema_number[of], code]
        is_named[offsets[of[column >= 0]] + column[column >= 0]] = True
        return is_named


Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")


class Numbered(Generic[Key, Made]):
    """Makes one thing for each distinct key, and numbers them in the order in which their keys first came.

    Args:
        make: makes the thing of a key.
    """

    def __init__(self, make: Callable[[Key], Made]) -> None:
        self._make = make
        self._numbers: dict[Key, int] = {}
        self.all: list[Made] = []

    def number(self, key: Key) -> int:
        """The index in `all` of a key's thing, which is made first where the key is new."""
        known = self._numbers.get(key)
        if known is None:
            self.all.append(self._make(key))
            known = self._numbers[key] = len(self.all) - 1
        return known


def numbers_of(numbered: Numbered[tuple[str | None, ...], Made], columns: Sequence[pa.StringArray]) -> Array:
    """The number of what was made of each row's texts; each distinct row is made once."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        codes = column.dictionary_encode()
        code = code * (len(codes.dictionary) + 1) + codes.indices.fill_null(len(codes.dictionary)).to_numpy()
    _, first, of = np.unique(code, return_index=True, return_inverse=True)
    numbers = np.array([numbered.number(tuple(column[int(row)].as_py() for column in columns)) for row in first])
    return numbers[of] if numbers.size else np.zeros(0, np.int64)
