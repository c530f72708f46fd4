"""The tables of a window as kernels take them: for each state that the log shows of one, where its columns go.

By them the images of a block's rows are found in the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.errors import SchemaError
from headrace.sources.log.row_images import RowImages
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.relation import Relation
from headrace.sources.postgresql.types import NativeType
from headrace.sources.tables.masks import Change, Masks
from headrace.wire import pgoutput_kernels as kernels
from headrace.wire.cell_kernels import Cells, Columns
from headrace.wire.spans import Array


@dataclass(frozen=True)
class TextEncoding:
    """What makes the texts that are given out of those that the server printed.

    Args:
        native: the type of the values.
        mask: what is done to them then.
        length: as masks take it.
    """

    native: NativeType
    mask: Change | None = None
    length: int | None = None

    def __call__(self, texts: pa.StringArray) -> pa.StringArray:
        """Whole columns; null stays null."""
        written = self.native.texts(texts)
        return written if self.mask is None else self.mask(written, self.length)

    @property
    def is_plain(self) -> bool:
        return self.mask is None and self.native.is_plain


@dataclass(frozen=True)
class Layout:
    """A table in one state.

    Args:
        relation: as the log shows it.
        table: what is captured of it.
        columns_in_tuple: for each of its captured columns the position in the row's tuple.
    """

    relation: Relation
    table: PostgresTable
    columns_in_tuple: tuple[int, ...]

    @classmethod
    def of(cls, relation: Relation, table: PostgresTable) -> Layout:
        """The layout of a table's rows.

        Raises:
            SchemaError: the log does not have a column that is captured.
        """
        indexes = {column.name: index for index, column in enumerate(relation.columns)}
        missing = [column.name for column in table.schema.columns if column.name not in indexes]
        if missing:
            raise SchemaError(f"The log shows table '{table.id.path}' without its column '{missing[0]}'.")
        return cls(relation, table, tuple(indexes[column.name] for column in table.schema.columns))

    @cached_property
    def key(self) -> tuple[int, ...]:
        """The positions of the key's columns in the row's tuple."""
        names = [column.name for column in self.table.schema.columns]
        return tuple(self.columns_in_tuple[names.index(name)] for name in self.table.schema.key)


class Layouts:
    """All states of captured tables that a window has shown so far, by number."""

    def __init__(
        self, masks: Masks, table_of: Callable[[Relation, bool], tuple[Relation, PostgresTable] | None]
    ) -> None:
        self.all: list[Layout] = []
        self._masks = masks
        self._table_of = table_of
        self._numbers: dict[tuple[Relation, bool], int] = {}
        self._encodings: dict[TextEncoding, int] = {}
        self._holders: dict[int, int] = {}
        self._schemas: dict[str, int] = {}
        self._arrays: Arrays | None = None

    def number(self, relation: Relation, *, before: bool = False) -> int:
        """The number of a table's state; -1 for a table that is not captured.

        Args:
            relation: the table as the log shows it.
            before: whether what the log does not show is as it was before a change of structure.
        """
        number = self._numbers.get((relation, before))
        if number is None:
            table = self._table_of(relation, before)
            number = -1 if table is None else len(self.all)
            if table is not None:
                self.all.append(Layout.of(*table))
                self._arrays = None
            self._numbers[relation, before] = number
        return number

    @property
    def arrays(self) -> Arrays:
        if self._arrays is None:
            self._arrays = self._made()
        return self._arrays

    def _made(self) -> Arrays:
        written: list[list[int]] = []
        by: list[int] = []
        for layout in self.all:
            natives = layout.table.natives
            masked = self._masks.of_table(layout.table.schema, natives).changes
            masks = {index: (change, length) for index, change, length in masked}
            encodings = [TextEncoding(native, *masks.get(index, ())) for index, native in enumerate(natives)]
            encoded = [
                (index, s) for index, s in zip(layout.columns_in_tuple, encodings, strict=True) if not s.is_plain
            ]
            written.append([index for index, _ in encoded])
            by += [self._encodings.setdefault(encoding, len(self._encodings)) for _, encoding in encoded]
        layouts = self.all
        schemas = [layout.table.schema for layout in layouts]
        return Arrays(
            widths=_numbers([len(layout.relation.columns) for layout in layouts]),
            holders=_numbers([self._holders.setdefault(x.relation.oid, len(self._holders)) for x in layouts]),
            schemas=_numbers([self._schemas.setdefault(s.fingerprint, len(self._schemas)) for s in schemas]),
            captured=_columns([layout.columns_in_tuple for layout in layouts]),
            key=_columns([layout.key for layout in layouts]),
            written=_columns(written),
            by=_numbers(by),
            encodings=tuple(self._encodings),
            names=pa.array([column.name for schema in schemas for column in schema.columns], pa.string()),
            key_names=pa.array([name for schema in schemas for name in schema.key], pa.string()),
            databases=pa.array([schema.id.database for schema in schemas], pa.string()),
            namespaces=pa.array([schema.id.schema for schema in schemas], pa.string()),
            tables=pa.array([schema.id.name for schema in schemas], pa.string()),
            fingerprints=pa.array([schema.fingerprint for schema in schemas], pa.string()),
        )


@dataclass(frozen=True)
class Arrays:
    """Layouts by number.

    Args:
        widths: how many values a tuple has.
        holders: a number for each table, whatever it is called and looks like.
        schemas: a number for each schema.
        captured: the positions in the tuple of the columns that are given out.
        key: those of the key's columns.
        written: those whose texts do not stay as they are.
        by: for each of these the number of its text form.
        encodings: all of them.
        names, key_names: the names of `captured` and `key`.
        databases, namespaces, tables, fingerprints: what change rows say of a table.
    """

    widths: Array
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


def _columns(rows: Sequence[Sequence[int]]) -> Columns:
    firsts = np.cumsum([0, *(len(columns) for columns in rows)]).astype(np.int64)
    return Columns(firsts, _numbers([column for columns in rows for column in columns]))


def read_images(
    data: Array, starts: Array, rows: Array, tables: Array, has_old: Array, has_new: Array, widths: Array
) -> tuple[RowImages, int]:
    """The images, and the number of a row that is not as its table says; -1 where all are fine.

    Args:
        data: the bytes of the messages.
        starts: where each message begins and ends.
        rows: the numbers of the messages that are rows.
        tables: each row's table.
        has_old, has_new: which images each row has.
        widths: how many columns each table has.
    """
    ends = np.cumsum(has_old.astype(np.int64) + has_new)
    old = np.where(has_old, ends - 1 - has_new, -1)
    new = np.where(has_new, ends - 1, -1)
    of_images: Array = np.repeat(tables, np.diff(ends, prepend=0))
    firsts = np.zeros(len(of_images) + 1, np.int64)
    np.cumsum(widths[of_images], out=firsts[1:])
    count = int(firsts[-1])
    cells = Cells(of_images, firsts, np.zeros(count, np.int64), np.zeros(count, np.int64))
    wrong = int(kernels.find_cells(data, starts, rows, tables, widths, old, new, cells))
    return RowImages(data, cells, old, new), wrong
