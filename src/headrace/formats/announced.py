"""`schema` rows: in each task, a schema is announced before the first message of a topic's partition that has it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.changes import TableSchema
from headrace.formats.change_columns import schema_row
from headrace.wire.spans import Array


class Announcer:
    """Remembers what a task has announced."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._told: set[tuple[str | None, int | None, str]] = set()

    def announce(
        self, batch: pa.RecordBatch, message: Array, schema_number: Array, schemas: Sequence[TableSchema | None]
    ) -> list[tuple[Array, pa.RecordBatch]]:
        """The `schema` rows that are due, and the messages that they stand before; nothing where none is.

        Args:
            batch: columns of `codec.KAFKA`.
            message: the message of each row.
            schema_number: the number of each row's schema.
            schemas: by that number; None where there is nothing to announce.
        """
        if not message.size or not any(schemas):
            return []
        indexes = [batch.column(name).dictionary_encode().indices.fill_null(-1) for name in ("topic", "partition")]
        topic, partition = (index.to_numpy(zero_copy_only=False)[message].astype(np.int64) for index in indexes)
        _, first = np.unique((schema_number * 100_003 + topic) * 100_003 + partition, return_index=True)
        rows, numbers = [], []
        for row in sorted(first):
            schema, number = schemas[schema_number[row]], int(message[row])
            if schema is None:
                continue
            key = (batch.column("topic")[number].as_py(), batch.column("partition")[number].as_py(), schema.fingerprint)
            if key not in self._told:
                self._told.add(key)
                rows.append(schema_row(batch, number, schema))
                numbers.append(number)
        return [(np.array(numbers), pa.RecordBatch.from_pylist(rows, self._schema))] if rows else []
