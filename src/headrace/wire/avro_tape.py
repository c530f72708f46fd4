"""Avro records of a batch, read onto a tape: fields by their index, numbers, and texts whose bytes were looked at."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.wire import avro_reader
from headrace.wire.arrays import own_view
from headrace.wire.avro_reader import ReadFrames, TextEncoding
from headrace.wire.avro_schema import AvroSchema
from headrace.wire.spans import Array
from headrace.wire.tape import Tape

AS_THEY_ARE = TextEncoding(np.empty(0, np.uint8), 0, 0)


def frames_of(schema: AvroSchema) -> ReadFrames:
    """Room for what is open while records of these schemas are read."""
    return ReadFrames(*(np.empty(schema.depth, np.int64) for _ in range(3)))


class AvroTape(Tape):
    """Records of one schema. Records and maps are its objects, and records have no names.

    `branch` has each token's index in the union that it is of, `after` where each record ended.

    Args:
        values: messages as `binary`; together less than 2 GiB.
        schema: of the records.
    """

    def __init__(self, values: pa.Array, schema: AvroSchema) -> None:
        view = own_view(values)
        count = len(values)
        # Each token has a byte of its own, but for records, which there may be one of for each of their first fields.
        room = 2 * int(view.offsets[-1]) + len(schema.program.kind) * count
        self._start(view.data, room, count)
        self.branch: Array = np.empty(room, np.uint8)
        self.after: Array = np.empty(count, np.int64)
        indexes = view.offsets.astype(np.int64)
        self._ends: Array = indexes[1:]
        avro_reader.read_records(
            self.data, indexes[:-1], self._ends, np.full(count, schema.root), schema.program, self.tokens,
            self.branch, frames_of(schema), AS_THEY_ARE, self.root, self.verdict, self.after,
        )  # fmt: skip
        self._forget_unread(values)

    def records(self, at: Array, fields: int) -> Array:
        """The fields of each record: a matrix with a line for each index."""
        indexes = np.full((fields, at.size), -1, np.int32)
        avro_reader.fill_fields(self.tokens, at, indexes)
        return indexes

    def numbers(self, at: Array) -> Array:
        """Whole numbers, and the indexes of symbols of enums; 0 where there is none."""
        out = np.zeros(at.size, np.int64)
        avro_reader.fill_numbers(self.data, self.tokens, at, out)
        return out

    def doubles(self, at: Array) -> Array:
        """Numbers of 8 bytes; every index must hold one."""
        start = self.tokens.start[at]
        return np.ascontiguousarray(self.data[start[:, None] + np.arange(8)]).view("<f8").reshape(-1)

    def is_text(self, at: Array) -> Array:
        """Whether what stands there is UTF-8; true where nothing does."""
        out = np.empty(at.size, bool)
        avro_reader.fill_utf8(self.data, self.tokens, at, out)
        return out

    def trailing_number(self) -> Array:
        """The number that follows each record; 0 where there is none."""
        out = np.zeros(self.root.size, np.int64)
        avro_reader.fill_trailing(self.data, self._ends, self.root, self.after, out)
        return out

    def bytes(self, at: Array) -> pa.BinaryArray:
        """Bytes as they are; null for null."""
        texts = self.texts(at)
        return pa.Array.from_buffers(pa.binary(), len(texts), texts.buffers(), texts.null_count)
