"""What Debezium's messages say of their tables, read once for each distinct text, in the task that meets it.

A message carries its schema, or it is known otherwise: by the option `schema`, whose tables are found by their topics.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.changes import TableId, TableSchema
from headrace.errors import FormatError, OptionError
from headrace.formats.debezium.column_types import describing_connector
from headrace.formats.debezium.connect_schemas import key_schema, row_schema
from headrace.formats.debezium.connectors import SHAPES
from headrace.formats.debezium.options import EventSettings, field_rules, value_modes
from headrace.formats.debezium.topics import topics
from headrace.formats.debezium.types import FieldText, field_text, table_of
from headrace.formats.debezium.values import INSTANT, FieldEncoding

Field = Mapping[str, Any]
_COUNTED = {"connect": 3, "nanoseconds": 9}


@dataclass(frozen=True)
class GivenTable:
    """A schema that the user gave, and its fields on the wire as the options say: those of a row, those of a key."""

    schema: TableSchema
    row: Sequence[Field]
    key: Sequence[Field]


@dataclass(frozen=True)
class GivenTables:
    """The schemas that the user gave.

    Args:
        by_topic: the tables by topic.
        whole_topics: whether those topics are whole; else they are what a topic ends with.
        shared: topics without a database that several of the tables could have: there only the message tells.
    """

    by_topic: Mapping[str, GivenTable] = field(default_factory=dict)
    whole_topics: bool = True
    shared: frozenset[str] = frozenset()

    def find(self, topic: str, id: TableId) -> GivenTable | None:
        """The table of a message by its topic, or the one that its source block names where a topic has several."""
        table = self.by_topic.get(topic)
        if table is None and not self.whole_topics:
            # The longest first, so that a table of another schema is not taken for it.
            ends = [topic[n + 1 :] for n, char in enumerate(topic) if char in "._-"]
            topic = next((end for end in ends if end in self.by_topic or end in self.shared), topic)
            table = self.by_topic.get(topic)
        if table is None:
            return self._named(id)
        if id.database and table.schema.id.database not in ("", id.database):
            return self._named(id)
        return table if id.name in ("", table.schema.id.name) else self._named(id) or table

    def _named(self, id: TableId) -> GivenTable | None:
        """The table that a message names, where that is one; a part that one side lacks counts as equal."""
        if not id.name:
            return None
        every = {given.schema.id: given for given in self.by_topic.values()}
        if id in every:
            return every[id]
        parts = (id.database, id.schema, id.name)
        alike = [
            given
            for table, given in every.items()
            if all(
                not a or not b or a == b for a, b in zip((table.database, table.schema, table.name), parts, strict=True)
            )
        ]
        return alike[0] if len(alike) == 1 else None


@dataclass(frozen=True)
class DecodeSettings:
    """How messages are read.

    Args:
        table_field: the key field by which a router tells tables apart; no part of a key.
        binary: how bytes stand as text.
        times: the time precision mode, by which a bare number is an instant.
        placeholder: what stands for a value that a change does not carry.
        heartbeats: what the topics of heartbeats begin with.
        unwrapped: what the names of added fields begin with, where rows are flat.
        tombstone_as_delete: whether a flat row without a value is a delete.
        keys: the key columns that the user names, for messages without a key.
        tables: the schemas that the user gave; None where messages' own are used.
        typed: the one that struct images follow.
        nulls: whether null stands in structs for a value of the source that Spark's type has no place for.
    """

    table_field: str
    binary: str
    times: str
    placeholder: str
    heartbeats: str
    unwrapped: str | None = None
    tombstone_as_delete: bool = False
    keys: tuple[str, ...] = ()
    tables: GivenTables | None = None
    typed: GivenTable | None = None
    nulls: bool = False


@dataclass(frozen=True)
class TableDescriptor:
    """The parts of a message by which its table is known; None where it has none."""

    value: str | None
    key: str | None
    database: str | None
    schema: str | None
    table: str | None
    topic: str | None


@dataclass(frozen=True)
class Fields:
    """The fields of a row or key in order: names on the wire, columns, and how values are written (None: as text)."""

    names: tuple[str, ...]
    columns: tuple[str, ...]
    encodings: tuple[FieldEncoding | None, ...]


@dataclass(frozen=True)
class ResolvedTable:
    """What all messages that tell the same have in common.

    Args:
        schema: the table schema that rows follow; None where there is none.
        row: the fields of a row; None where nobody says them.
        key: the fields of a key, likewise.
        problem: why rows can't be read.
    """

    schema: TableSchema | None = None
    row: Fields | None = None
    key: Fields | None = None
    problem: str | None = None


UNKNOWN = ResolvedTable()
NO_SCHEMA = "The value has no schema, and option 'schema' has none for its topic."
BAD_SCHEMA = "The schema of the value can't be read."
BAD_KEY_SCHEMA = "The schema of the key can't be read."


def resolve_table(descriptor: TableDescriptor, reading: DecodeSettings) -> ResolvedTable:
    """Read what a message tells of its table. A text that is not a schema is a problem of its rows."""
    try:
        return _known(descriptor, reading)
    except FormatError as error:
        return ResolvedTable(problem=str(error))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return ResolvedTable(problem=BAD_SCHEMA if descriptor.value is not None else BAD_KEY_SCHEMA)


def _known(descriptor: TableDescriptor, reading: DecodeSettings) -> ResolvedTable:
    key_fields = [f for f in _fields(_connect(descriptor.key)) if f.get("field") != reading.table_field]
    envelope = _connect(descriptor.value)
    row = None if envelope is None else _row_fields(envelope, reading.unwrapped)
    id = TableId(descriptor.database or "", descriptor.schema or "", descriptor.table or "")
    given = reading.typed
    if reading.tables is not None:
        given = reading.tables.find(descriptor.topic or "", id)
    if given is not None:
        resolved = _of_given(given, row, key_fields, reading)
        return replace(resolved, schema=None) if reading.typed is not None else resolved
    key = _as_told(key_fields, reading.binary) if descriptor.key is not None else None
    if row is None:
        problem = BAD_SCHEMA if envelope is not None else None
        return ResolvedTable(None, None, key, NO_SCHEMA if reading.tables is not None else problem)
    if not id.name:
        # As the rows have it.
        id = (
            table_of_topic(descriptor.topic)
            if descriptor.topic
            else _id_of_name(str((envelope or {}).get("name") or ""))
        )
    names = tuple(key.names) if key is not None else ()
    return ResolvedTable(table_of(id, row, names or reading.keys), _as_told(row, reading.binary), key)


def _as_told(fields: Sequence[Field], binary: str) -> Fields:
    names = tuple(f["field"] for f in fields)
    return Fields(names, names, tuple(field_text(f, None, binary).encoding for f in fields))


def _of_given(
    given: GivenTable, row: Sequence[Field] | None, key: Sequence[Field], reading: DecodeSettings
) -> ResolvedTable:
    """A table schema from the options. If the message has its own schema, that defines how values are written."""
    columns = {f["field"]: c for f, c in zip(given.row, given.schema.columns, strict=True)}

    def read(fields: Sequence[Field]) -> Fields:
        names = tuple(f["field"] for f in fields)
        encodings = []
        for f in fields:
            column = columns.get(f["field"])
            text = field_text(f, None if column is None else column.logical, reading.binary)
            typed = reading.typed is not None and column is not None and column.logical.spark_type == "timestamp"
            encodings.append(_counted(text, reading.times) if typed else text.encoding)
        return Fields(names, tuple(columns[n].name if n in columns else n for n in names), tuple(encodings))

    # Without a key of its own, a key's fields may be any of the row's.
    return ResolvedTable(given.schema, read(row or given.row), read(key or (given.key or given.row)))


def _counted(text: FieldText, times: str) -> FieldEncoding | None:
    if text.encoding is not None or times == "isostring":
        return text.encoding
    return FieldEncoding(INSTANT, _COUNTED.get(times, 6))


def _row_fields(envelope: Field, unwrapped: str | None) -> list[Field] | None:
    """The fields of a row in a value's schema; none where it is not a data change event's."""
    fields = _fields(envelope)
    if unwrapped is not None:
        row = [f for f in fields if not str(f.get("field")).startswith(unwrapped)]
        return None if str(envelope.get("name") or "").startswith("io.debezium.connector.") else row
    by_name = {f.get("field"): f for f in fields}
    row_field = by_name.get("after") or by_name.get("before")
    if "op" not in by_name or row_field is None:
        return None
    return list(row_field.get("fields") or [])


def _connect(text: str | None) -> Field | None:
    if text is None:
        return None
    parsed = json.loads(text)
    if not isinstance(parsed, dict):
        raise ValueError("no schema")
    return parsed


def _fields(schema: Field | None) -> list[Field]:
    return [] if schema is None else list(schema.get("fields") or [])


def table_of_topic(topic: str) -> TableId:
    """The table that the last parts of a topic name."""
    parts = topic.split(".")
    return TableId(parts[-3] if len(parts) > 3 else "", parts[-2] if len(parts) > 1 else "", parts[-1])


def _id_of_name(name: str) -> TableId:
    """Where a row belongs by the name of its schema (`prefix.db.schema.table.Value`)."""
    parts = name.rpartition(".")[0].split(".")[1:] or [""]
    database, schema, table = ["", "", "", *parts][-3:]
    return TableId(database, schema, table)


def given_table(settings: EventSettings, schema: TableSchema, topic: str = "t") -> GivenTable:
    """A schema, with the fields of its rows and keys as the options say that they stand on the wire."""
    shape = SHAPES[settings.shape]
    modes = value_modes(settings)
    known = _with_unsigned_types(schema) if modes.unsigned == "long" else schema
    modes = replace(modes, connector=describing_connector(known))
    rules = field_rules(settings, shape)
    fields = (make(known, topic, modes, rules)["fields"] for make in (row_schema, key_schema))
    return GivenTable(schema, *fields)


def _with_unsigned_types(schema: TableSchema) -> TableSchema:
    """A table whose unsigned 64-bit numbers have their type's name, which only MySQL and MariaDB have."""
    columns = (
        replace(c, native_type="bigint unsigned") if c.logical.kind == "uint64" and not c.native_type else c
        for c in schema.columns
    )
    return replace(schema, columns=tuple(columns))


def given_tables(settings: EventSettings, tables: Sequence[TableSchema]) -> GivenTables:
    """Structures by the topics of their tables.

    Raises:
        OptionError: two schemas can't be told apart by their topics.
    """
    prefix, names = settings.topic_prefix, topics(settings, SHAPES[settings.shape])
    by_name: dict[str, GivenTable] = {}
    whole: dict[str, TableSchema] = {}
    # Some connectors' topics do not carry the database.
    bare = [names.of(TableId("", schema.id.schema, schema.id.name)) for schema in tables]
    shared = {topic for topic, times in Counter(bare).items() if times > 1}
    for schema, short in zip(tables, bare, strict=True):
        topic = names.of(schema.id)
        taken = whole.get(topic)
        if taken is not None and taken.id == schema.id:
            raise OptionError(
                f"Option 'schema' of format 'debezium_json' has two schemas for table {schema.id}.",
                remedy="Keep the one that the messages follow.",
            )
        if taken is not None:
            raise OptionError(
                f"Tables {taken.id} and {schema.id} share the topic '{topic}', so it does not identify a schema.",
                remedy="Decode messages with schemas, without the option 'schema'.",
            )
        whole[topic] = schema
        by_name[topic] = given_table(settings, schema, topic)
        if short not in shared:
            by_name.setdefault(short, by_name[topic])
    return GivenTables(by_name, bool(prefix), frozenset(shared - set(whole)))
