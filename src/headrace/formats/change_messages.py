"""What encoders of change rows share: the schemas that rows follow, their topics, facts as texts, messages.

Each task announces a schema by a `schema` row before the first message of a topic's partition that has it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableId, TableSchema
from headrace.changes.texts import key_text
from headrace.errors import FormatError
from headrace.formats.change_columns import schema_row
from headrace.formats.codec import MESSAGES, Facts
from headrace.formats.encoding import topic_for
from headrace.formats.images import Image
from headrace.wire.json_writer import are_numbers
from headrace.wire.spans import Array

_INTEGER = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")
ROWS = ("r", "c", "u", "d")
"""The operations of rows, which have images."""
_NUMBER, _BOOLEAN = 1, 2
_KINDS = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint64", "decimal", "float32", "float64"), _NUMBER),
    "boolean": _BOOLEAN,
}


class RowSchemas:
    """The schemas that change rows follow, by number.

    Args:
        facts: what the driver found out.
    """

    def __init__(self, facts: Facts) -> None:
        self.typed = facts.typed
        self.all: tuple[TableSchema, ...] = (facts.typed,) if facts.typed is not None else facts.tables
        self._numbers = {schema.fingerprint: number for number, schema in enumerate(self.all)}
        self._json_kinds: Sequence[Mapping[str, int]] = [
            {c.name: _KINDS[c.logical.kind] for c in schema.columns if c.logical.kind in _KINDS} for schema in self.all
        ]

    def of(self, rows: pa.RecordBatch) -> Array:
        """The number of each row's schema; -1 where it says none.

        Raises:
            FormatError: a row with images follows a schema that nothing describes.
        """
        if self.typed is not None:
            return np.zeros(rows.num_rows, np.int64)
        codes = rows.column("schema_id").dictionary_encode()
        ids = codes.dictionary.to_pylist()
        numbers = [self._numbers.get(id, -2) for id in ids]
        schema_number = np.array([*numbers, -1])[codes.indices.fill_null(len(ids)).to_numpy(zero_copy_only=False)]
        is_data = pc.is_in(rows.column("op"), pa.array(ROWS)).to_numpy(zero_copy_only=False)
        unknown = np.flatnonzero((schema_number == -2) & is_data)
        if unknown.size:
            raise unknown_schema(rows, int(unknown[0]))
        return np.maximum(schema_number, -1)

    def image(self, rows: pa.RecordBatch, name: str) -> Image:
        """The images of a column, `before` or `after`."""
        column = rows.column(name)
        if self.typed is None:
            return Image.of_maps(column)
        return Image.of_structs(column, rows.column(f"{name}_absent"), self.typed)

    def plain(self, image: Image, schema_number: Array) -> Array:
        """Which values of an image are JSON numbers and booleans, and so no strings."""
        kinds = image.codes(schema_number, self._json_kinds)
        numbers = np.zeros(len(image.values), np.bool_)
        numbers[image.entries.values[kinds == _NUMBER]] = True
        is_number = are_numbers(image.values, numbers)
        booleans = image.entries.values[kinds == _BOOLEAN]
        if booleans.size:
            words = pc.is_in(image.values.take(pa.array(booleans)), pa.array(["true", "false"]))
            is_number[booleans] = words.to_numpy(zero_copy_only=False)
        return is_number

    def json(self, image: Image, schema_number: Array) -> pa.StringArray:
        """Images as JSON objects, whose numbers and booleans are no strings."""
        return image.json(self.plain(image, schema_number))

    def keys(self, rows: pa.RecordBatch, schema_number: Array) -> pa.StringArray:
        """The names of the key columns as JSON arrays: those of the row's key, else its schema's; else null."""
        keys = Image.of_maps(rows.column("key"))
        key_lists = keys.name_lists()
        if not key_lists.null_count:
            return key_lists
        texts = pa.array([key_text(schema.key) if schema.key else None for schema in self.all], pa.string())
        return pc.coalesce(key_lists, texts.take(pa.array(schema_number, mask=schema_number < 0)))


def unknown_schema(rows: pa.RecordBatch, row: int) -> FormatError:
    """What to raise at a row whose schema nothing describes."""
    table, id = rows.column("table")[row].as_py() or {}, rows.column("schema_id")[row].as_py()
    return FormatError(
        f"Change rows of table {'.'.join(part for part in table.values() if part)} follow a schema that no "
        f"schema row describes (schema_id {id}).",
        remedy="Keep the schema rows in the batch, or set the option schema.",
    )


def tables_of(rows: pa.RecordBatch) -> tuple[pa.Int32Array, list[TableId]]:
    """The number of each row's table, and the tables; that of a row without a table has no names."""
    parts = [part.fill_null("") for part in rows.column("table").flatten()]
    names = pc.binary_join_element_wise(*parts, "\0").dictionary_encode()
    return names.indices, [TableId(*path.split("\0")) for path in names.dictionary.to_pylist()]


def topics(rows: pa.RecordBatch, template: str) -> pa.StringArray:
    """The topic of each row, as `encoding.topic_for` says."""
    numbers, tables = tables_of(rows)
    return pa.array([topic_for(template, table) for table in tables], pa.string()).take(numbers)


def message_batch(
    rows: pa.RecordBatch,
    topic: pa.StringArray,
    value: pa.Array,
    key: pa.StringArray | None = None,
    *,
    partition: int | None = None,
) -> pa.RecordBatch:
    """The messages of rows, all in one partition; without one, Kafka chooses their partitions."""
    columns = {"topic": topic, "value": value.cast(pa.binary()), "position": rows.column("position")}
    if key is not None:
        columns["key"] = key.cast(pa.binary())
    if partition is not None:
        columns["partition"] = pa.array(np.full(rows.num_rows, partition, np.int32))
    arrays = [columns.get(field.name, pa.nulls(rows.num_rows, field.type)) for field in MESSAGES]
    return pa.RecordBatch.from_arrays(arrays, schema=MESSAGES)


def are(rows: pa.RecordBatch, *ops: str) -> Array:
    """Which of the rows have one of these operations."""
    return pc.is_in(rows.column("op"), pa.array(ops)).to_numpy(zero_copy_only=False)


def rows_of(batch: pa.RecordBatch, ops: Sequence[str]) -> Array:
    """The numbers of the rows with one of these operations."""
    return np.flatnonzero(are(batch, *ops))


def operations(rows: pa.RecordBatch, words: Mapping[str, str]) -> pa.StringArray:
    """The word of each row's operation."""
    codes = rows.column("op").dictionary_encode()
    return pa.array([words[op] for op in codes.dictionary.to_pylist()], pa.string()).take(codes.indices)


def picked(batch: pa.RecordBatch, rows: Array) -> pa.RecordBatch:
    """Some rows; the batch itself where they are all."""
    return batch if rows.size == batch.num_rows else batch.take(pa.array(rows))


def table_part(rows: pa.RecordBatch, name: str) -> pa.StringArray:
    """A part of the tables' names; empty where there is none."""
    return pc.struct_field(rows.column("table"), name).fill_null("")


def counted(moments: pa.TimestampArray, unit: int) -> pa.Int64Array:
    """Moments as whole numbers since 1970, of so many microseconds each, downwards; null stays null."""
    micros = moments.cast(pa.int64())
    whole = micros.fill_null(0).to_numpy() // unit
    return pa.array(whole, mask=micros.is_null().to_numpy(zero_copy_only=False) if micros.null_count else None)


def integers(texts: pa.StringArray) -> pa.StringArray:
    """Texts of 64-bit integers as plain digits; null for all others."""
    if texts.null_count == len(texts):
        return texts
    codes = texts.dictionary_encode()
    converted = [
        str(int(t)) if _INTEGER.fullmatch(t) and -(2**63) <= int(t) < 2**63 else None
        for t in codes.dictionary.to_pylist()
    ]
    return pa.array(converted, pa.string()).take(codes.indices)


def quoted(text: str) -> str:
    """A text as a JSON string."""
    return key_text([text])[1:-1]


def first_of(*texts: pa.StringArray) -> pa.StringArray:
    """The first text of each row that is not null. A column is copied only where another one adds to it."""
    first, *others = texts
    for other in others:
        if first.null_count == len(first):
            first = other
        elif first.null_count and other.null_count < len(other):
            first = pc.coalesce(first, other)
    return first


def where(test: Array, texts: pa.StringArray) -> pa.StringArray:
    """Texts, null where the test does not hold."""
    return texts if test.all() else pc.if_else(pa.array(test), texts, pa.scalar(None, pa.string()))


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
