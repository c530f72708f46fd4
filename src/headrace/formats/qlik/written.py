"""Values of Qlik's Avro records: each as null or its column's type, from canonical texts, whatever table it is of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Column, TableSchema
from headrace.changes.row import arrow_type
from headrace.errors import FormatError
from headrace.formats.qlik.avro_schema import avro_type
from headrace.formats.schema_columns import SchemaColumns
from headrace.wire.arrays import offsets_of, text_view
from headrace.wire.avro_schema import AvroSchema
from headrace.wire.avro_writer import write_avro
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import TypedColumn

_NULL = b"\0"
_DECIMAL = 16


class AvroColumns(SchemaColumns):
    """The columns of schemas, and how their values are written."""

    def __init__(self, schemas: Sequence[TableSchema]) -> None:
        super().__init__(schemas)
        kinds = [_kind(column) for column in self.all]
        self._kinds = list(dict.fromkeys(kinds))
        self._kind: Array = np.array([self._kinds.index(kind) for kind in kinds], np.int64)

    def records(self, values: pa.StringArray, at: Array, column: Array, offsets: Array) -> pa.BinaryArray:
        """Records whose fields are columns.

        Args:
            values: canonical texts.
            at: the number of each field's text; negative for null.
            column: the number of its column.
            offsets: where the fields of each record begin, and where the last one's end.

        Raises:
            FormatError: a text does not fit its column's type.
        """
        present = at >= 0
        if values.null_count:
            present[present] = values.is_valid().to_numpy(zero_copy_only=False)[at[present]]
        parts, indexes = [pa.array([_NULL], pa.binary())], np.zeros(at.size, np.int64)
        begin = 1
        for number, (kind, schema) in enumerate(self._kinds):
            fields = np.flatnonzero(present & (self._kind[column] == number))
            if not fields.size:
                continue
            texts = values.take(pa.array(at[fields]))
            encoded = self._values(texts, kind, column[fields])
            parts.append(write_avro(_SCHEMAS[schema], encoded))
            indexes[fields] = begin + np.arange(fields.size)
            begin += fields.size
        return _joined(pa.concat_arrays(parts).take(pa.array(indexes)), offsets)

    def _values(self, texts: pa.StringArray, kind: pa.DataType, column: Array) -> pa.Array:
        if pa.types.is_string(kind):
            return texts
        read = TypedColumn(Tape.of_texts(texts), np.arange(len(texts), dtype=np.int32), kind)
        if read.refused.size:
            wrong = self.all[int(column[read.refused[0]])]
            raise FormatError(
                f"A value of column '{wrong.name}' does not fit its type {wrong.logical}.",
                remedy="Correct the schema of the table.",
            )
        if pa.types.is_decimal(kind):
            return _unscaled(read.values)
        if pa.types.is_date(kind):
            return read.values.cast(pa.int32())
        return read.values.cast(pa.int64()) if pa.types.is_timestamp(kind) else read.values


_SCHEMAS = {name: AvroSchema(["null", name]) for name in ("long", "float", "double", "boolean", "bytes", "string")}


def _kind(column: Column) -> tuple[pa.DataType, str]:
    """The Arrow type that texts are read as, and the Avro type that they are written as."""
    avro = avro_type(column)
    name = avro["type"] if isinstance(avro, dict) else avro
    if name == "string":
        return pa.string(), name
    return arrow_type(column.logical), "long" if name == "int" else name


def _unscaled(values: pa.Decimal128Array) -> pa.BinaryArray:
    """The whole numbers of decimals without their points: as few bytes as hold them, the most significant first."""
    buffer = values.buffers()[1]
    numbers = np.frombuffer(buffer, np.uint8)[_DECIMAL * values.offset : _DECIMAL * (values.offset + len(values))]
    matrix = numbers.reshape(-1, _DECIMAL)[:, ::-1]
    sign = np.where(matrix[:, :1] >= 128, 255, 0)
    # A byte in front says nothing where it is the sign, and the next one begins with the sign's bit.
    idle = (matrix[:, :-1] == sign) & ((matrix[:, 1:] >= 128) == (sign == 255))
    size = _DECIMAL - np.cumprod(idle, axis=1).sum(axis=1)
    data = np.ascontiguousarray(matrix[np.arange(_DECIMAL) >= _DECIMAL - size[:, None]])
    buffers = [None, pa.py_buffer(offsets_of(size)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _joined(fields: pa.BinaryArray, offsets: Array) -> pa.BinaryArray:
    """The bytes of fields that stand after each other, as those of records."""
    view = text_view(fields)
    indexes = np.ascontiguousarray(view.offsets[offsets] if len(fields) else np.zeros(offsets.size), np.int32)
    buffers = [None, pa.py_buffer(indexes), pa.py_buffer(view.data)]
    return pa.Array.from_buffers(pa.binary(), offsets.size - 1, buffers)


def joined(*parts: pa.BinaryArray | bytes) -> pa.BinaryArray:
    """Bytes, one after another; null where one of them is."""
    return pc.binary_join_element_wise(*(pa.scalar(p) if isinstance(p, bytes) else p for p in parts), b"")
