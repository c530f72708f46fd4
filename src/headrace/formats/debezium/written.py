"""How rows are written: columns, keys and schemas for each table schema, built once per task.

A table gives all its events the same texts: topic, schemas, the ends of keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Column, TableId, TableSchema
from headrace.changes.row import arrow_type
from headrace.changes.types import arrow_text
from headrace.errors import OptionError
from headrace.formats.change_messages import quoted
from headrace.formats.debezium import postgresql_types as postgresql
from headrace.formats.debezium.column_types import absent_json, null_json, unsaid_json, wire_type
from headrace.formats.debezium.connect_fields import Opening
from headrace.formats.debezium.connect_schemas import FieldRules, adjusted, envelope_fields, key_schema, row_schema
from headrace.formats.debezium.connectors import EventShape
from headrace.formats.debezium.source_blocks import Forms, SourceBlock
from headrace.formats.debezium.topics import TopicNames
from headrace.formats.debezium.values import java_texts
from headrace.formats.debezium.wire_types import ValueModes, WireType, json_of
from headrace.wire.json_columns import AS_IS, BOOLEAN, DAY, FLOAT, MOMENT, QUOTED, WHOLE, JsonColumn, JsonColumns
from headrace.wire.json_rows import Cells
from headrace.wire.json_writer import to_text
from headrace.wire.spans import Array

_BASE = "headrace.name.of.the.table"
"""Stands for the name of a table's schemas while a schema's text is cut there."""
_SHORTEST_DIGITS = 17


class WrittenColumn(NamedTuple):
    """A column of a schema, and what is needed to write its odd values."""

    column: Column
    wire: WireType
    json: JsonColumn


class WrittenSchema:
    """What a schema says of its rows.

    Args:
        schema: the table schema.
        modes: how values are written.
        rules: how columns become fields.
        placeholder: whether columns that an image does not carry are told from NULL.
        typed: whether images are structs of typed columns.
    """

    def __init__(
        self, schema: TableSchema, modes: ValueModes, rules: FieldRules, *, placeholder: bool, typed: bool
    ) -> None:
        self.schema, self._modes, self._rules = schema, modes, rules
        self._placeholder, self._typed = placeholder, typed
        self._fields = rules.names(schema)

    @cached_property
    def row(self) -> list[WrittenColumn]:
        return [self._written(column, in_key=False) for column in self.schema.columns]

    @cached_property
    def old_row(self) -> list[WrittenColumn]:
        """The columns of old images, where other things stand for what they do not say."""
        if self._modes.connector != postgresql.NAME:
            return self.row
        return [
            s._replace(json=s.json._replace(absent=unsaid_json(s.column, self._modes, s.json.null or "null")))
            for s in self.row
        ]

    @cached_property
    def key(self) -> list[WrittenColumn]:
        """The columns of the key, from maps; null where a key does not hold them."""
        return [self._written(column, in_key=True) for column in self.schema.key_columns]

    @cached_property
    def typed_key(self) -> list[WrittenColumn]:
        return [
            one._replace(json=one.json._replace(code=code, first=first))
            for one in self.key
            for code, first in [typed_code(one.column, one.wire)]
        ]

    @cached_property
    def any_key(self) -> list[WrittenColumn]:
        """All columns, for keys of rows whose schema says none: those that the key holds."""
        columns = [self._written(column, in_key=True) for column in self.schema.columns]
        return [s._replace(json=s.json._replace(null=None, absent=None)) for s in columns]

    @cached_property
    def row_schema(self) -> tuple[str, str]:
        """The text of the rows' schema before and after the name of the table."""
        return _cut(to_text(row_schema(self.schema, _BASE, self._modes, self._rules)))

    def key_schema(self, table_field: str | None) -> tuple[str, str]:
        """The same of the key's; `table_field` is one that a router adds."""
        return _cut(to_text(key_schema(self.schema, _BASE, self._modes, self._rules, table_field=table_field)))

    def any_key_schema(self, names: Sequence[str]) -> tuple[str, str]:
        """The same of a key of these columns, where the schema says none."""
        known = tuple(name for name in names if name in self._fields)
        return _cut(to_text(key_schema(replace(self.schema, key=known), _BASE, self._modes, self._rules)))

    def _written(self, column: Column, *, in_key: bool) -> WrittenColumn:
        wire, name = wire_type(column, self._modes), f"{quoted(self._fields[column.name])}:"
        null = null_json(column, self._modes)
        absent: str | None = null if column.nullable else "null"
        if (self._placeholder or self._modes.connector == postgresql.NAME) and not in_key:
            stand_in = absent_json(column, self._modes)
            if stand_in is not None:
                absent = stand_in
            elif absent == "null" and not self._modes.recorded_placeholders:
                absent = None
        code, first = wire.code, wire.first
        if self._typed and not in_key:
            code, first = typed_code(column, wire)
        if code == FLOAT and self._modes.float_texts:
            code = QUOTED
        return WrittenColumn(column, wire, JsonColumn(column.name, name, code, first, wire.second, null, absent))


def _cut(text: str) -> tuple[str, str]:
    first, _, last = text.partition(_BASE)
    return first, last


def columns_of(records: Sequence[Sequence[WrittenColumn]], closing: str = "}") -> JsonColumns:
    """The columns of some schemas, as objects are written of them."""
    return JsonColumns([("{", [written.json for written in columns], closing) for columns in records])


def typed_code(column: Column, wire: WireType) -> tuple[int, int]:
    """How the texts of a typed column are written, as `typed_texts` makes them."""
    kind = arrow_type(column.logical)
    if _is_direct(kind, wire):
        return AS_IS, 0
    if wire.code == FLOAT and pa.types.is_floating(kind):
        # Arrow's texts are the shortest.
        return FLOAT, _SHORTEST_DIGITS
    return wire.code, wire.first


def _is_direct(kind: pa.DataType, wire: WireType) -> bool:
    types = pa.types
    if wire.prepare is not None:
        return False
    if wire.code == MOMENT:
        return bool(types.is_timestamp(kind)) and wire.first < 9
    checks = {WHOLE: types.is_integer, BOOLEAN: types.is_boolean, DAY: types.is_date32}
    return wire.code in checks and bool(checks[wire.code](kind))


def typed_texts(values: pa.Array, written: WrittenColumn) -> pa.StringArray:
    column, wire = written.column, written.wire
    if wire.code == FLOAT and pa.types.is_floating(values.type):
        return values.cast(pa.string())
    if not _is_direct(values.type, wire):
        return arrow_text(values, column.logical)
    if wire.code == DAY:
        return values.cast(pa.int32()).cast(pa.string())
    if wire.code != MOMENT:
        return values.cast(pa.string())
    micros = values.cast(pa.timestamp("us")).cast(pa.int64())
    if wire.first == 6:
        return micros.cast(pa.string())
    counts = micros.fill_null(0).to_numpy() // 1000
    texts = pa.array(counts).cast(pa.string())
    return pc.if_else(micros.is_valid(), texts, pa.scalar(None, pa.string())) if micros.null_count else texts


def odd_texts(texts: pa.StringArray, written: WrittenColumn) -> list[str | None]:
    """The JSON of texts that kernels leave; None for those that do not fit."""
    if written.wire.code == FLOAT:
        return java_texts(texts, single=written.wire.connect == "float")
    values = [written.wire.value(text) for text in texts.to_pylist()]
    return [None if value is None else json_of(value) for value in values]


def prepared(cells: Cells, columns: Sequence[WrittenColumn]) -> Cells:
    """Cells whose texts are as kernels take them.

    Args:
        cells: the cells.
        columns: the columns of all structures.
    """
    layout, at = cells.columns.layout, cells.at
    parts, size = [cells.texts], len(cells.texts)
    for number, written in enumerate(columns):
        if written.wire.prepare is None:
            continue
        structure = int(np.searchsorted(layout.first, number, side="right")) - 1
        rows = np.flatnonzero(cells.present & (cells.structure == structure))
        indexes = cells.offsets[rows] + number - layout.first[structure]
        indexes = indexes[at[indexes] >= 0]
        texts = cells.texts.take(pa.array(at[indexes]))
        prepared_texts = written.wire.prepare(texts)
        if prepared_texts is not texts:
            at = at.copy() if at is cells.at else at
            at[indexes] = size + np.arange(indexes.size, dtype=np.int32)
            parts.append(prepared_texts)
            size += len(prepared_texts)
    if at is cells.at:
        return cells
    texts = pa.concat_arrays(parts)
    return Cells(cells.columns, cells.structure, cells.present, cells.offsets, at, texts)


def equal_values(a: pa.Array, b: pa.Array) -> Array:
    """Which values of two columns are equal; null equals null."""
    same = pc.equal(a, b).fill_null(False)
    both = pc.and_(a.is_null(), b.is_null())
    if pa.types.is_floating(a.type):
        both = pc.or_(both, pc.and_(pc.is_nan(a).fill_null(False), pc.is_nan(b).fill_null(False)))
    return np.asarray(pc.or_(same, both).to_numpy(zero_copy_only=False))


@dataclass(frozen=True)
class EncodeSettings:
    """What an encode needs to know besides the rows and their schemas.

    Args:
        topics: where the messages go.
        shape: the generation of events.
        forms: the source blocks.
        modes: how values are written.
        schema_names: how schema names are adjusted, `avro` or `none`.
        rules: how columns become fields.
        value_schemas: whether values carry their schema.
        key_schemas: whether keys (and key headers) carry their schema.
        tombstones: whether a delete is followed by a null value.
        skipped: operations that give no message.
        context: whether the context headers of shape 3 are written.
        run_id: what stands in their `runId`.
        schema_changes: whether schema changes are written.
        given: whether the schemas are the option's; then a row without a `schema_id` has the schema of its table.
        single: whether the option holds one schema, which all rows follow.
    """

    topics: TopicNames
    shape: EventShape
    forms: Forms
    modes: ValueModes
    schema_names: str
    rules: FieldRules
    value_schemas: bool
    key_schemas: bool
    tombstones: bool
    skipped: frozenset[str]
    context: bool
    run_id: str
    schema_changes: bool
    given: bool = False
    single: bool = False

    def router_field(self, schema: TableSchema) -> tuple[str, str] | None:
        """The field that a router adds to keys, and its value.

        Raises:
            OptionError: a column of the key is called so.
        """
        topics = self.topics
        route = topics.route
        if route is None or route.key_field is None or topics.routed(schema.id) is None:
            return None
        if route.key_field in {self.rules.names(schema)[name] for name in schema.key}:
            raise OptionError(
                f"The key of table {schema.id} has a column '{route.key_field}' already.",
                remedy="Set 'key_field_name' to another name.",
            )
        return route.key_field, route.key_value(topics.unrouted(schema.id))


@dataclass(frozen=True)
class TableTexts:
    """What a table says of all its events of one form: parts of their texts.

    Args:
        topic: where they go.
        value: what opens a value, up to its first field; then the same for one without a transaction.
        key: what opens and closes a key.
        header: the same for the key in a header.
        base: the name of its schemas.
    """

    topic: str
    value: tuple[str, str]
    key: tuple[str, str]
    header: tuple[str, str]
    base: str

    @classmethod
    def of(
        cls, writing: EncodeSettings, block: SourceBlock, written: WrittenSchema, id: TableId | None, opening: Opening
    ) -> TableTexts:
        """The texts of a table.

        Args:
            writing: how messages are written.
            block: the source block of its events.
            written: its schema.
            id: its name, where the schema has none.
            opening: what stands in front of a payload, by the text of its schema.

        Raises:
            OptionError: a table without a name is to be routed, or a router's field is a column.
        """
        topics, schema, database = writing.topics, written.schema, block.connector.database_in_topic
        if id is not None and topics.route is not None:
            raise nameless_route()
        table = schema.id if id is None else id
        unrouted = topics.unrouted(table, database=database)
        topic = topics.routed(table, database=database) or unrouted
        base, first = (adjusted(name, writing.schema_names) for name in (topic, unrouted))
        field = writing.router_field(schema)
        value = '{"before":'
        values = (value, value)
        key, header = ("", "}"), ("", "}")
        if field is not None:
            key = ("", f",{quoted(field[0])}:{quoted(field[1])}}}")
        if writing.value_schemas:
            always, seldom = (
                opening(_envelope(written.row_schema, base, block, transaction=transaction))
                for transaction in (True, not block.flag)
            )
            values = (always + value, seldom + value)
        if writing.key_schemas:
            start, end = written.key_schema(None if field is None else field[0])
            key = (opening(f"{start}{base}{end}"), key[1] + "}")
            start, end = written.key_schema(None)
            header = (f'{{"schema":{start}{first}{end},"payload":', header[1] + "}")
        return cls(topic, values, key, header, base)


def _envelope(cut: tuple[str, str], base: str, block: SourceBlock, *, transaction: bool) -> str:
    shape = block.shape
    row, end = f"{cut[0]}{base}", cut[1].removesuffix("}")
    rest = ",".join(to_text(field) for field in envelope_fields(shape, transaction=transaction))
    version = f',"version":{shape.envelope_version}' if shape.envelope_version is not None else ""
    return (
        f'{{"type":"struct","fields":[{row}{end},"field":"before"}},{row}{end},"field":"after"}},'
        f'{to_text(block.schema())},{rest}],"optional":false,"name":"{base}.Envelope"{version}}}'
    )


def nameless_route() -> OptionError:
    """What to raise where tables are routed and the schema has no name."""
    return OptionError(
        "Option 'topic_route_regex' of format 'debezium_json' needs the names of the tables.",
        remedy="Give the option 'schema' as a TableSchema, or rows whose schema rows are among them.",
    )
