"""What change rows say of their source, by the names of the facts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.formats.images import Image
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import integers


class NamedTexts:
    """The values of a column of maps by their names."""

    def __init__(self, column: pa.MapArray) -> None:
        self._image = Image.of_maps(column)
        entries = self._image.entries
        names = self._image.names.dictionary_encode()
        self._words = {name: number for number, name in enumerate(names.dictionary.to_pylist())}
        self.words: list[str] = names.dictionary.to_pylist()
        self.number: Array = names.indices.to_numpy(zero_copy_only=False)
        self.row: Array = np.repeat(np.arange(len(column)), np.diff(entries.offsets))
        self.names, self.values = self._image.names, self._image.values
        self._rows = len(column)

    def texts(self, name: str) -> pa.StringArray:
        """The value of this name in each row; null where there is none."""
        if name not in self._words:
            return pa.nulls(self._rows, pa.string())
        hits = np.flatnonzero(self.number == self._words[name])[::-1]
        at = np.full(self._rows, -1, np.int64)
        at[self.row[hits]] = hits
        return self.values.take(pa.array(at, mask=at < 0))


def whole_numbers(texts: pa.StringArray) -> pa.Int64Array:
    """Texts as 64-bit integers; null where they are none."""
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), pa.int64())
    return integers(Tape.of_texts(texts), np.arange(len(texts), dtype=np.int32))
