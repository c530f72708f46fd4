"""Images of change rows as encoders take them: names and canonical texts, whether they came as maps or as structs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableSchema
from headrace.changes.types import arrow_text
from headrace.wire import image_kernels
from headrace.wire.arrays import offsets_of, text_view
from headrace.wire.json_writer import Entries, objects, string_lists
from headrace.wire.spans import Array


@dataclass(frozen=True)
class Image:
    """One image of each row.

    Args:
        entries: which names and values it holds, by their numbers.
        names: the names.
        values: the canonical texts.
    """

    entries: Entries
    names: pa.StringArray
    values: pa.StringArray

    @classmethod
    def of_maps(cls, column: pa.MapArray) -> Image:
        offsets = column.offsets.to_numpy()
        first, last = int(offsets[0]), int(offsets[-1])
        numbers = np.arange(last - first, dtype=np.int32)
        present = column.is_valid().to_numpy(zero_copy_only=False)
        entries = Entries((offsets - first).astype(np.int32), numbers, numbers, present)
        return cls(entries, column.keys.slice(first, last - first), column.items.slice(first, last - first))

    @classmethod
    def of_structs(cls, column: pa.StructArray, absent: pa.ListArray, schema: TableSchema) -> Image:
        """Images that are structs of typed columns; `absent` names those that a row does not carry."""
        rows, names = len(column), [c.name for c in schema.columns]
        present = column.is_valid().to_numpy(zero_copy_only=False)
        texts = [arrow_text(values, c.logical) for values, c in zip(column.flatten(), schema.columns, strict=True)]
        values = pa.concat_arrays(texts) if texts else pa.array([], pa.string())
        at = np.flatnonzero(present).astype(np.int32)
        number = np.arange(len(names), dtype=np.int32)
        indexes = (number * np.int32(rows) + at[:, None]).reshape(-1)
        entries = Entries(offsets_of(present * len(names)), np.tile(number, at.size), indexes, present)
        image = cls(entries, pa.array(names, pa.string()), values)
        kept = carried(absent, names)
        return image if kept is None else image.only(kept[present].reshape(-1))

    def with_texts(
        self,
        schema_number: Array,
        tables: Sequence[Mapping[str, int]],
        encodings: Mapping[int, Callable[[pa.StringArray], pa.StringArray]],
    ) -> Image:
        """The image with other texts for the values of some columns.

        Args:
            schema_number, tables: as for `codes`.
            encodings: what makes the texts, by what `tables` says of a column.
        """
        if not any(tables):
            return self
        codes, numbers, texts, count = self.codes(schema_number, tables), self.entries.values.copy(), [self.values], 0
        for code, write in encodings.items():
            at = np.flatnonzero(codes == code)
            if at.size:
                texts.append(write(self.values.take(pa.array(numbers[at]))))
                numbers[at] = len(self.values) + count + np.arange(at.size)
                count += at.size
        return replace(self, entries=self.entries._replace(values=numbers), values=pa.concat_arrays(texts))

    def only(self, kept: Array) -> Image:
        """The image with some of its entries: a mask over them."""
        entries = self.entries
        counts = offsets_of(kept)
        return replace(
            self,
            entries=Entries(counts[entries.offsets], entries.names[kept], entries.values[kept], entries.present),
        )

    def where(self, rows: Array) -> Image:
        """The image for some rows; null in the others."""
        entries = self.entries
        return replace(self, entries=entries._replace(present=entries.present & rows))

    def json(self, plain: Array | None = None) -> pa.StringArray:
        """JSON objects, of strings but for the values that are `plain` JSON already."""
        return objects(self.entries, self.names, self.values, plain)

    def name_lists(self) -> pa.StringArray:
        """The names of maps as JSON arrays of texts."""
        return string_lists(self.entries.offsets, self.names, self.entries.present)

    def codes(self, schema_number: Array, tables: Sequence[Mapping[str, int]]) -> Array:
        """What is said of each entry's column, by its row's schema; 0 where nothing is.

        Args:
            schema_number: the number of each row's schema; -1 where it has none.
            tables: by that number, a number for each column of which something is said.
        """
        names = self.names.dictionary_encode()
        words = {name: code for code, name in enumerate(names.dictionary.to_pylist())}
        by_schema = np.zeros((len(tables) + 1, len(words) + 1), np.int64)
        for number in np.unique(schema_number[schema_number >= 0]):
            for name, code in tables[number].items():
                by_schema[number, words.get(name, -1)] = code
        by_schema[:, len(words)] = 0
        word = names.indices.to_numpy(zero_copy_only=False)[self.entries.names]
        return by_schema[np.repeat(schema_number, np.diff(self.entries.offsets)), word]

    def changed_from(self, other: Image, named: pa.ListArray) -> Image:
        """What this image has that the other has not, or has otherwise, and what `named` says besides.

        All of it where the other is null.
        """
        sizes = pc.list_value_length(named).fill_null(0)
        kept = np.ones(len(self.entries.names), bool)
        image_kernels.changed(
            self.entries,
            text_view(self.names),
            text_view(self.values),
            other.entries,
            text_view(other.names),
            text_view(other.values),
            offsets_of(sizes),
            text_view(named.flatten()),
            kept,
        )
        return self.only(kept)


def carried(absent: pa.ListArray, names: Sequence[str]) -> Array | None:
    """Which columns structs carry, a line for each struct; None where all carry all.

    Args:
        absent: the names of those that each does not.
        names: of the columns.
    """
    if absent.null_count == len(absent):
        return None
    is_carried = np.ones((len(absent), len(names)), np.bool_)
    index = {name: number for number, name in enumerate(names)}
    for row in np.flatnonzero(absent.is_valid().to_numpy(zero_copy_only=False)):
        is_carried[row, [index[name] for name in absent[int(row)].as_py() if name in index]] = False
    return is_carried
