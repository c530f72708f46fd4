"""The tables of a window as kernels take them: for each state that the log shows of one, where its columns go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.errors import FormatError
from headrace.sources.mysql.described_table import DescribedTable
from headrace.sources.mysql.types import NativeType
from headrace.sources.mysql.wire_columns import WireTables
from headrace.sources.tables.masks import Change, Masks
from headrace.wire.cell_kernels import Columns
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
        """Whether texts stay as they are."""
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
        """The number of a new one."""
        self.all.append(layout)
        self._arrays = None
        return len(self.all) - 1

    @property
    def arrays(self) -> Arrays:
        """All of them, as kernels take them."""
        if self._arrays is None:
            self._arrays = self._made()
        return self._arrays

    def _made(self) -> Arrays:
        written: list[list[int]] = []
        by: list[int] = []
        for layout in self.all:
            table = layout.table
            masks = {index: rest for index, *rest in self._masks.of_table(table.schema, table.natives).changes}
            own = []
            for number, index in enumerate(layout.positions):
                column, native = table.schema.columns[number], table.natives[number]
                encoding = TextEncoding(f"'{column.name}' of table '{table.path}'", native, *masks.get(number, ()))
                if not encoding.is_plain:
                    own.append(index)
                    by.append(self._encodings.setdefault(encoding, len(self._encodings)))
            written.append(own)
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
        """How many columns each key has."""
        return np.diff(self.key.firsts)


def _numbers(found: Sequence[int]) -> Array:
    return np.array(found, np.int64)


def _texts(found: Sequence[str | None]) -> pa.StringArray:
    return pa.array(found, pa.string())


def _columns(found: Sequence[Sequence[int]]) -> Columns:
    firsts = np.cumsum([0, *(len(columns) for columns in found)]).astype(np.int64)
    return Columns(firsts, _numbers([column for columns in found for column in columns]))
