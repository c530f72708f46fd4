"""What a format's codecs give, as Spark would give it, without Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.row import arrow_schema
from headrace.formats.codec import KAFKA, ArrowFormat, ArrowLookup, Codec, Facts, run_codec
from headrace.formats.convert import format_named

_LOGICAL = {
    "tinyint": "int8", "int": "int32", "bigint": "int64", "string": "string", "double": "float64", "date": "date",
    "boolean": "boolean", "timestamp": "instant(6)", "timestamp_ntz": "timestamp(6)", "binary": "bytes",
}  # fmt: skip


_COLUMN = re.compile(r"\s*(?:`([^`]+)`|(\w+))\s+(\w+(?:\([^)]*\))?)\s*(?:,|$)")


def table_of(ddl: str) -> TableSchema:
    """The structure of a DDL string."""
    columns = tuple(
        Column(match[1] or match[2], n, LogicalType.parse(_LOGICAL.get(match[3], match[3])))
        for n, match in enumerate(_COLUMN.finditer(ddl), 1)
    )
    return TableSchema(TableId("", "", ""), columns)


def arrow_format(name: str, **options: Any) -> ArrowFormat:
    """The format of that name; a DDL string as `schema` is read without Spark."""
    given = options.get("schema")
    if isinstance(given, str) and not given.startswith(("{", "[")):
        options["schema"] = table_of(given)
    found = format_named(name, options)
    assert isinstance(found, ArrowFormat)
    return found


def rows_of(format: str, messages: Sequence[tuple[Any, ...]], **options: Any) -> list[Row]:
    """The change rows of messages (topic, partition, offset, timestamp, key, value, headers), in their order."""
    changes = changes_of_messages(format, messages, **options)
    return [_value(row, pa.struct(changes.schema)) for row in changes.to_pylist()]


def events_of(format: str, messages: Sequence[tuple[Any, ...]], **options: Any) -> list[Row]:
    """The same without what is no event, as `headrace.decode` gives them."""
    return [row for row in rows_of(format, messages, **options) if row.op is not None]


def change_rows(format: str, messages: Sequence[tuple[Any, ...]], **options: Any) -> list[dict[str, Any]]:
    """All change rows as dictionaries, in the order of their positions."""
    return sorted((row.asDict(recursive=True) for row in rows_of(format, messages, **options)), key=_position)


def _header(header: Any) -> dict[str, Any]:
    return header if isinstance(header, dict) else dict(zip(("key", "value"), header, strict=True))


def _position(row: dict[str, Any]) -> str:
    return str(row["position"])


def changes_of_messages(format: str, messages: Sequence[tuple[Any, ...]], **options: Any) -> pa.RecordBatch:
    """All change rows as a batch."""
    codecs = arrow_format(format, **options)
    lines = [dict(zip(KAFKA.names, message, strict=True)) for message in messages]
    for line in lines:
        if line["headers"] is not None:
            line["headers"] = [_header(header) for header in line["headers"]]
    batch = pa.RecordBatch.from_pylist(lines, KAFKA)
    return _run(codecs.decoder(codecs.prepare_decoding(ArrowLookup([batch]))), batch)


def change_batch(rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Change rows with map images, from dictionaries of their columns."""
    schema = arrow_schema()
    maps = [field.name for field in schema if pa.types.is_map(field.type)]
    lines = [{**row, **{n: list(row[n].items()) for n in maps if row.get(n) is not None}} for row in rows]
    return pa.RecordBatch.from_pylist(lines, schema)


def sent(
    format: str, changes: pa.RecordBatch, structures: Sequence[TableSchema] = (), **options: Any
) -> list[dict[str, Any]]:
    """The messages of change rows. Struct images follow the first structure; rows have types where there is one."""
    typed = structures[0] if pa.types.is_struct(changes.schema.field("after").type) else None
    codecs = arrow_format(format, **options)
    facts = codecs.prepare_encoding(Facts(tuple(structures), typed))
    known = pa.array([bool(structures)] * changes.num_rows, pa.bool_())
    batch = _run(codecs.encoder(facts), changes.append_column("has_types", known))
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def as_kafka(messages: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Encoded messages as Kafka gives them back."""
    return [(m["topic"], 0, n, None, m["key"], m["value"], m["headers"]) for n, m in enumerate(messages)]


def _run(codec: Codec, batch: pa.RecordBatch) -> pa.RecordBatch:
    made = list(run_codec(codec, [batch]))
    for part in made:
        assert part.schema.equals(codec.schema)
        part.validate(full=True)
    return pa.concat_batches(made) if made else pa.RecordBatch.from_pylist([], codec.schema)


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
