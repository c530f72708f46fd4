"""What change rows say of their source, by the names of the facts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.images import Image
from headrace.wire.spans import Array

_NO_STATEMENT = "N/A"
"""What Debezium writes as `ddl` where a source says a change of structure without its statement."""


class SourceFacts:
    """The facts that rows say of their source: each is the entry `entry` of `names` and `values`.

    `number` is the index of each entry's name in `words`, `row` the number of its row.

    Args:
        rows: change rows.
    """

    def __init__(self, rows: pa.RecordBatch) -> None:
        image = Image.of_maps(rows.column("source"))
        names = image.names.dictionary_encode()
        self.words: list[str] = names.dictionary.to_pylist()
        self.number: Array = names.indices.to_numpy(zero_copy_only=False)
        self.row: Array = np.repeat(np.arange(rows.num_rows), np.diff(image.entries.offsets))
        self.names, self.values = image.names, image.values
        self._present = image.entries.present

    def texts(self, name: str) -> pa.StringArray:
        """The first value of this name in each row; null where there is none."""
        if name not in self.words:
            return pa.nulls(self._present.size, pa.string())
        hits = np.flatnonzero(self.number == self.words.index(name))[::-1]
        at = np.full(self._present.size, -1, np.int64)
        at[self.row[hits]] = hits
        return self.values.take(pa.array(at, mask=(at < 0) | ~self._present))

    def statements(self) -> pa.StringArray:
        """The statement of each change of structure; null where its source has none that could be executed."""
        ddl = self.texts("ddl")
        return pc.if_else(pc.equal(ddl, _NO_STATEMENT), pa.scalar(None, pa.string()), ddl)
