"""Change rows to DTS records: one record per row, an image as an array with one value per column of the schema.

All fields of the records become Arrow columns, which the engine writes by the one schema that there is.

A record's tags have the key, and what the source says and a record has no field for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableId
from headrace.changes.images import constant
from headrace.formats.change_columns import SourceFacts, lower
from headrace.formats.change_messages import (
    ROWS,
    RowSchemas,
    counted,
    message_batch,
    picked,
    tables_of,
    topics,
    unknown_schema,
)
from headrace.formats.codec import MESSAGES, Codec, Facts
from headrace.formats.dts.record import FACTS, FILLER, MORE_FACTS
from headrace.formats.dts.schemas import OPERATIONS, SOURCE_TYPES, record_schema
from headrace.formats.dts.written import DtsColumns, written_values
from headrace.wire.arrays import joined_maps, map_array, map_of, offsets_of
from headrace.wire.avro_schema import AvroSchema
from headrace.wire.avro_writer import write_avro
from headrace.wire.json_writer import to_text
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import integers

_KEY, _CONNECTOR = "pk_uk_info", "connector"
_FIELDS = frozenset((*FACTS, *MORE_FACTS))
_TYPES = constant([name.lower() for name in SOURCE_TYPES])


def tags_column(rows: pa.RecordBatch, source: SourceFacts, keys: pa.StringArray, source_type: Array) -> pa.MapArray:
    """The tags of each row. The row came with tags of its own where `source` has them as JSON; else it gives its facts.

    Args:
        rows: change rows.
        source: what their sources say.
        keys: the names of the key's columns of each one, as JSON.
        source_type: the index of each one's source in `SOURCE_TYPES`.
    """
    is_own, given = _own_tags(source.texts("tags"))
    kept = source.values.is_valid().to_numpy(zero_copy_only=False)
    kept &= np.array([word not in _FIELDS for word in source.words], bool)[source.number] & ~is_own[source.row]
    mask = pa.array(kept)
    counts = np.bincount(source.row[kept], minlength=rows.num_rows)
    names = pc.if_else(pc.equal(source.names, "gtid"), "GTID", source.names)
    facts = map_array(offsets_of(counts), names.filter(mask), source.values.filter(mask))
    is_data = pc.is_in(rows.column("op"), pa.array(ROWS)).to_numpy(zero_copy_only=False)
    named = pc.binary_join_element_wise('{"PRIMARY":', _without_empty(keys), "}", "")
    without = is_data & ~(pc.is_valid(source.texts(_KEY)).to_numpy(zero_copy_only=False) & ~is_own)
    connector, types = source.texts(_CONNECTOR), _TYPES.take(pa.array(source_type))
    other = pc.and_(pc.not_equal(connector, ""), pc.not_equal(connector, types)).fill_null(False)
    is_other = other.to_numpy(zero_copy_only=False)
    for row, tags in given.items():
        without[row] &= _KEY not in tags
        is_other[row] &= _CONNECTOR not in tags
    null = pa.scalar(None, pa.string())
    more = map_of(
        [
            (_KEY, pc.if_else(pa.array(without), named, null)),
            (_CONNECTOR, pc.if_else(pa.array(is_other), connector, null)),
        ]
    )
    parts = [facts, more]
    if given:
        pairs = [list(given.get(row, {}).items()) for row in range(rows.num_rows)]
        parts.insert(1, pa.array(pairs, facts.type))
    return joined_maps(parts, np.ones(rows.num_rows, bool))


def _own_tags(texts: pa.StringArray) -> tuple[Array, dict[int, dict[str, str]]]:
    """Which rows have tags as a JSON object, and these."""
    is_own, by_row = np.zeros(len(texts), bool), {}
    for row in np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False)):
        try:
            tags = json.loads(texts[int(row)].as_py())
        except ValueError:
            continue
        if isinstance(tags, dict):
            is_own[row] = True
            tag_texts = {name: value if isinstance(value, str) else to_text(value) for name, value in tags.items()}
            by_row[int(row)] = {name: value for name, value in tag_texts.items() if tags[name] is not None}
    return is_own, by_row


def _without_empty(lists: pa.StringArray) -> pa.StringArray:
    return pc.if_else(pc.equal(lists, "[]"), pa.scalar(None, pa.string()), lists)


_OPERATIONS = {
    "c": "INSERT", "u": "UPDATE", "d": "DELETE", "r": "INIT", "t": "DDL", "schema": "DDL", "begin": "BEGIN",
    "end": "COMMIT", "heartbeat": "HEARTBEAT",
}  # fmt: skip
_TAKEN = constant(list(_OPERATIONS))
_OPERATION = np.array([OPERATIONS.index(name) for name in _OPERATIONS.values()])
_CHECKPOINT, _COMMAND = OPERATIONS.index("CHECKPOINT"), OPERATIONS.index("COMMAND")
_OLD, _NEW = ("u", "d"), ("c", "u", "r")
_CONNECTORS = {name.lower(): number for number, name in enumerate(SOURCE_TYPES)} | {
    "other": SOURCE_TYPES.index("OTHER"),
    "mariadb": SOURCE_TYPES.index("MySQL"),
    "postgres": SOURCE_TYPES.index("PostgreSQL"),
}
_POSTGRESQL = [SOURCE_TYPES.index(name) for name in ("PostgreSQL", "PPAS")]
_IN_MICROS = [SOURCE_TYPES.index(name) for name in ("MySQL", "PostgreSQL")]
_WITH_BACKTICKS = ("MySQL", "DRDS")
_SCHEMAS = {born: AvroSchema(record_schema(born=born)) for born in (True, False)}
_FILE_NUMBER = r"\.0*(?P<number>[0-9]+)$"
_LEADING_NUMBER = r"^0*(?P<number>[0-9]{1,18})(?:/|$)"


@dataclass(frozen=True)
class EncodeSettings:
    """How records are written.

    Args:
        topic: the template of topics.
        born: whether records end with `bornTimestamp`.
        with_key: whether messages get the row's key as Kafka key, and so any partition, in place of none and
            partition 0.
    """

    topic: str
    born: bool
    with_key: bool


class DtsEncoder(Codec):
    """Writes records; it holds nothing but what its facts say."""

    schema = MESSAGES

    def __init__(self, facts: Facts, writing: EncodeSettings) -> None:
        self._writing = writing
        self._schemas = RowSchemas(facts)
        self._plans = DtsColumns(self._schemas.all)

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The records of rows, in their order; rows that DTS has no operation for give none."""
        taken = pc.fill_null(pc.is_in(batch.column("op"), _TAKEN), False).to_numpy(zero_copy_only=False)
        schema_rows = pc.equal(batch.column("op"), "schema").to_numpy(zero_copy_only=False).astype(bool)
        if schema_rows.any():
            statements = SourceFacts(batch).statements()
            taken &= ~schema_rows | statements.is_valid().to_numpy(zero_copy_only=False)
        if not taken.any():
            return
        rows = picked(batch, np.flatnonzero(taken))
        writing = self._writing
        records = _Records(rows, self._schemas, self._plans).column(born=writing.born)
        values = _longer_than_fillers(write_avro(_SCHEMAS[writing.born], records))
        key, partition = (rows.column("key_text"), None) if writing.with_key else (None, 0)
        yield message_batch(rows, topics(rows, writing.topic), values, key, partition=partition)


def _binlog_position(file: pa.StringArray, pos: pa.StringArray) -> pa.StringArray:
    """A position in MySQL's log as DTS writes it: the offset and the number of the file; null elsewhere."""
    number = pc.struct_field(pc.extract_regex(file, _FILE_NUMBER), "number")
    return pc.binary_join_element_wise(pos, number, "@")


def _longer_than_fillers(values: pa.BinaryArray) -> pa.BinaryArray:
    """No reader may take a record for a filler: its first number, which is 0, takes two bytes, which mean the same."""
    short = pc.equal(pc.binary_length(values), FILLER)
    if not pc.any(short).as_py():
        return values
    longer = [b"\x80\x00" + value[1:] for value in values.filter(short).to_pylist()]
    return pc.replace_with_mask(values, short, pa.array(longer, pa.binary()))


class _Records:
    """The records of change rows, as columns."""

    def __init__(self, rows: pa.RecordBatch, schemas: RowSchemas, plans: DtsColumns) -> None:
        self._rows, self._schemas, self._plans = rows, schemas, plans
        self._count = rows.num_rows
        ops = rows.column("op").dictionary_encode()
        words = ops.dictionary.to_pylist()
        self._op = ops.indices.to_numpy(zero_copy_only=False)
        self._words = words
        self._source = SourceFacts(rows)
        self._connector = self._source.texts("connector")
        self._type = self._source_type()
        self._schema_number = np.where(self._is(ROWS), schemas.of(rows), -1)
        without = np.flatnonzero(self._is(ROWS) & (self._schema_number < 0))
        if without.size:
            raise unknown_schema(rows, int(without[0]))

    def column(self, *, born: bool) -> pa.StructArray:
        source, rows = self._source, self._rows
        number = pc.cast(
            pc.struct_field(pc.extract_regex(rows.column("position"), _LEADING_NUMBER), "number"), pa.int64()
        )
        index = _binlog_position(source.texts("file"), source.texts("pos"))
        position = pc.fill_null(pc.coalesce(source.texts("sourcePosition"), index, rows.column("position")), "")
        txid = pc.struct_field(rows.column("transaction"), "id").fill_null("")
        tables, ids = tables_of(rows)
        columns = {
            "version": np.zeros(self._count, np.int64),
            "id": self._number("id", number.cast(pa.int64())),
            "sourceTimestamp": self._number("sourceTimestamp", counted(rows.column("event_time"), 1_000_000)),
            "sourcePosition": position,
            "safeSourcePosition": source.texts("safeSourcePosition").fill_null(""),
            "sourceTxid": pc.if_else(pc.equal(txid, ""), "0", txid),
            "source": _struct(sourceType=self._type, version=source.texts("version").fill_null("")),
            "operation": self._operation(),
            "objectName": self._object_name(tables, ids),
            "processTimestamps": _timestamps(source.texts("processTimestamps")),
            "tags": tags_column(rows, source, self._schemas.keys(rows, self._schema_number), self._type),
            "fields": self._fields(),
        }
        micro = np.isin(self._type, _IN_MICROS)
        micro &= ~pc.match_substring(position, "<->").to_numpy(zero_copy_only=False)
        columns["beforeImages"] = self._images("before", self._is(_OLD), micro, {})
        columns["afterImages"] = self._images("after", self._is(_NEW), micro, self._statements(tables, ids))
        if born:
            columns["bornTimestamp"] = self._number("bornTimestamp", counted(rows.column("capture_time"), 1_000))
        return _struct(**columns)

    def _is(self, ops: tuple[str, ...]) -> Array:
        return np.array([word in ops for word in self._words], bool)[self._op]

    def _number(self, fact: str, otherwise: pa.Int64Array) -> pa.Int64Array:
        return pc.fill_null(pc.coalesce(_whole_numbers(self._source.texts(fact)), otherwise), 0)

    def _source_type(self) -> Array:
        """The index of each row's connector in `SOURCE_TYPES`."""
        codes = self._connector.fill_null("").dictionary_encode()
        other = SOURCE_TYPES.index("OTHER")
        types = [_CONNECTORS.get(lower(name), other) for name in codes.dictionary.to_pylist()]
        return np.array(types, np.int64)[codes.indices.to_numpy(zero_copy_only=False)]

    def _operation(self) -> Array:
        operations = np.array([_OPERATION[list(_OPERATIONS).index(word)] for word in self._words])[self._op]
        if "heartbeat" in self._words:
            is_checkpoint = pc.fill_null(pc.equal(self._source.texts("operation"), "CHECKPOINT"), False)
            operations[self._is(("heartbeat",)) & is_checkpoint.to_numpy(zero_copy_only=False)] = _CHECKPOINT
        operations[self._is(("schema",)) & (self._type == SOURCE_TYPES.index("MongoDB"))] = _COMMAND
        return operations

    def _object_name(self, tables: pa.Int32Array, ids: list[TableId]) -> pa.StringArray:
        """The table's parts; a missing one in front is empty, because one part alone is the database."""
        names = pa.array([_path(table) for table in ids], pa.string()).take(tables)
        if self._is(("begin", "end", "heartbeat")).any():
            names = pc.if_else(pa.array(self._is(("begin", "end", "heartbeat"))), pa.scalar(None, pa.string()), names)
        return pc.coalesce(self._source.texts("objectName"), names)

    def _statements(self, tables: pa.Int32Array, ids: list[TableId]) -> dict[int, str]:
        """The statements of truncates and DDL by their rows."""
        ddl, statements = self._source.statements(), {}
        for row in np.flatnonzero(self._is(("t", "schema"))):
            name = ids[tables[int(row)].as_py()].name
            quote = "`" if SOURCE_TYPES[self._type[row]] in _WITH_BACKTICKS else '"'
            # A table without a name is not quoted.
            quoted = quote + name.replace(quote, quote * 2) + quote if name else ""
            statements[int(row)] = ddl[int(row)].as_py() or f"TRUNCATE TABLE {quoted}"
        return statements

    def _fields(self) -> pa.UnionArray:
        """The names and numbers of a row's columns, as its schema says them."""
        rows = np.flatnonzero(self._schema_number >= 0)
        of_postgresql = np.isin(self._type[rows], _POSTGRESQL)
        code = np.zeros(self._count, np.int8)
        code[rows] = 2
        index = np.zeros(self._count, np.int32)
        index[rows] = np.arange(rows.size)
        lists = pa.DictionaryArray.from_arrays(
            pa.array((2 * self._schema_number[rows] + of_postgresql).astype(np.int32)), self._plans.fields
        )
        return _one_of(code, index, pa.array([], pa.string()), lists)

    def _images(self, name: str, which: Array, micro: Array, statements: dict[int, str]) -> pa.UnionArray:
        """The images of some rows, and statements in place of some."""
        image = self._schemas.image(self._rows, name).where(which)
        rows = np.flatnonzero(image.entries.present)
        schema_number = self._schema_number[rows]
        laid = self._plans.laid(schema_number)
        at = self._plans.texts_at(image, rows, schema_number, laid.offsets)
        values = written_values(self._plans, laid.column, image.values, at, micro[rows][laid.row])
        code, index = np.zeros(self._count, np.int8), np.zeros(self._count, np.int32)
        code[rows], index[rows] = 2, np.arange(rows.size)
        texts = pa.array(list(statements.values()), pa.string())
        statement_rows = np.array(list(statements), np.int64)
        code[statement_rows], index[statement_rows] = 1, np.arange(statement_rows.size)
        return _one_of(code, index, texts, pa.ListArray.from_arrays(pa.array(laid.offsets), values))


def _struct(**columns: pa.Array | Array) -> pa.StructArray:
    arrays = [column if isinstance(column, pa.Array) else pa.array(column) for column in columns.values()]
    return pa.StructArray.from_arrays(arrays, names=list(columns))


def _one_of(code: Array, index: Array, texts: pa.StringArray, lists: pa.Array) -> pa.UnionArray:
    return pa.UnionArray.from_dense(pa.array(code), pa.array(index), [pa.nulls(1), texts, lists])


def _path(table: TableId) -> str | None:
    database, schema, name = (part.replace(".", "\\u002E") for part in (table.database, table.schema, table.name))
    if schema:
        return f"{database}.{schema}.{name}"
    return f"{database}.{name}" if name else database or None


def _timestamps(texts: pa.StringArray) -> pa.ListArray:
    """Arrays of numbers as JSON says them; null where it says none."""
    times: list[list[int] | None] = [None] * len(texts)
    for row in np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False)):
        try:
            numbers = json.loads(texts[int(row)].as_py())
        except ValueError:
            continue
        if isinstance(numbers, list) and all(type(n) is int and -(2**63) <= n < 2**63 for n in numbers):
            times[row] = numbers
    return pa.array(times, pa.list_(pa.int64()))


def _whole_numbers(texts: pa.StringArray) -> pa.Int64Array:
    """Texts as 64-bit integers; null where they are none."""
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), pa.int64())
    return integers(Tape.of_texts(texts), np.arange(len(texts), dtype=np.int32))
