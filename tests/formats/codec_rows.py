"""What a format's codec gives, as Spark would give it, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.formats.codec import KAFKA, ArrowFormat, run_codec
from headrace.formats.convert import format_named

_LOGICAL = {
    "int": "int32", "bigint": "int64", "string": "string", "double": "float64", "date": "date", "boolean": "boolean",
    "timestamp": "instant(6)", "timestamp_ntz": "timestamp(6)", "binary": "bytes",
}  # fmt: skip


def table_of(ddl: str) -> TableSchema:
    """The structure of a DDL string of one column."""
    name, kind = ddl.split(" ", 1)
    return TableSchema(TableId("", "", ""), (Column(name, 1, LogicalType.parse(_LOGICAL.get(kind, kind))),))


def rows_of(format: str, messages: Sequence[tuple[Any, ...]], **options: Any) -> list[Row]:
    """The change rows of messages (topic, partition, offset, timestamp, key, value, headers), in their order."""
    schema = options.get("schema")
    if isinstance(schema, str):
        options["schema"] = table_of(schema)
    codecs = format_named(format, options)
    assert isinstance(codecs, ArrowFormat)
    batch = pa.RecordBatch.from_pylist([dict(zip(KAFKA.names, message, strict=True)) for message in messages], KAFKA)
    codec = codecs.decoder(codecs.prepare_decoding())
    found = []
    for made in run_codec(codec, [batch]):
        assert made.schema.equals(codec.schema)
        made.validate(full=True)
        found += [_value(row, pa.struct(codec.schema)) for row in made.to_pylist()]
    return found


def _value(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return Row(*(field.name for field in kind))(*(_value(value[field.name], field.type) for field in kind))
    if pa.types.is_map(kind):
        return dict(value)
    if pa.types.is_list(kind):
        return [_value(item, kind.value_type) for item in value]
    return bytearray(value) if pa.types.is_binary(kind) else value
