"""What Canal's messages say of their tables: read once for each distinct text, in the task that meets it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.changes import Column, TableId, TableSchema
from headrace.formats.canal.types import MysqlType, mysql_columns
from headrace.formats.canal.values import CanalEncoding


@dataclass(frozen=True)
class DecodeSettings:
    """How messages are read.

    Args:
        legacy_old: whether `data` holds the old row and `old` the new one, as DTS wrote before 2022-03-20.
        zone: the zone of `timestamp` texts; None where it is not known.
        base64: whether bytes come as base64 and not as characters.
        keys: the key columns, where messages name none.
        given: the schemas that the user gave; None where messages' own are used.
        typed: the one that struct images follow.
        nulls: whether null stands in structs for a value of the source that Spark's type has no place for.
    """

    legacy_old: bool = False
    zone: str | None = None
    base64: bool = False
    keys: Sequence[str] = ()
    given: tuple[TableSchema, ...] | None = None
    typed: TableSchema | None = None
    nulls: bool = False


@dataclass(frozen=True)
class TableDescriptor:
    """The parts of a message by which its table is known, as JSON texts; None where it has none."""

    mysql_types: str | None
    sql_types: str | None
    key_names: str | None
    database: str | None
    table: str | None


@dataclass(frozen=True)
class ResolvedTable:
    """What all messages that tell the same have in common.

    Args:
        schema: the table schema that their rows follow; None where there is none.
        announced: the schema to tell in a `schema` row before the first of them.
        key_names: the columns of the key; empty where nobody says one.
        encodings: the columns whose values are not written as canonical text.
    """

    schema: TableSchema | None
    announced: TableSchema | None
    key_names: tuple[str, ...]
    encodings: dict[str, CanalEncoding]


def resolve_table(descriptor: TableDescriptor, reading: DecodeSettings) -> ResolvedTable:
    """Read what a message tells of its table. A text that is not a schema is not refused: types are only a help."""
    named = [name for name in _array(descriptor.key_names) if name is not None]
    key_names = tuple(dict.fromkeys(named or reading.keys))
    given = _given(descriptor, reading)
    if given is not None:
        columns = given.columns
    elif reading.given is not None:
        columns = ()
    else:
        columns = _columns(descriptor, reading, named)
    announced = None
    if reading.given is None and reading.typed is None and columns:
        present = {column.name for column in columns}
        key = tuple(name for name in key_names if name in present)
        announced = TableSchema(TableId(descriptor.database or "", "", descriptor.table or ""), columns, key)
    if reading.typed is not None:
        columns = _with_labels(columns, descriptor)
        key_names = reading.typed.key or key_names
    encodings = {c.name: CanalEncoding.of(c, base64=reading.base64, zone=reading.zone) for c in columns}
    return ResolvedTable(
        announced or given,
        announced,
        key_names,
        {name: encoding for name, encoding in encodings.items() if encoding is not None},
    )


def _given(descriptor: TableDescriptor, reading: DecodeSettings) -> TableSchema | None:
    if reading.typed is not None:
        return reading.typed
    for schema in reading.given or ():
        if schema.id.name == (descriptor.table or "") and schema.id.database in ("", descriptor.database or ""):
            return schema
    return None


def _columns(descriptor: TableDescriptor, reading: DecodeSettings, named: Sequence[str]) -> tuple[Column, ...]:
    types = {name: kind if isinstance(kind, str) else None for name, kind in _object(descriptor.mysql_types).items()}
    # The numbers change with the values, so they only stand in for the types.
    numbers = _object(descriptor.sql_types) if descriptor.mysql_types is None else {}
    return mysql_columns(types, numbers, frozenset(named or reading.keys), zoned=reading.zone is not None)


def _with_labels(columns: tuple[Column, ...], descriptor: TableDescriptor) -> tuple[Column, ...]:
    """Columns whose given type says no labels, with those that the message says."""
    if descriptor.mysql_types is None or all(column.native_type for column in columns):
        return columns
    types = _object(descriptor.mysql_types)

    def labelled(column: Column) -> Column:
        text = types.get(column.name)
        if column.native_type or column.logical.kind != "string" or not isinstance(text, str):
            return column
        return replace(column, native_type=text) if MysqlType.parse(text).labels else column

    return tuple(map(labelled, columns))


def _object(text: str | None) -> dict[str, object]:
    parsed = _json(text)
    return parsed if isinstance(parsed, dict) else {}


def _array(text: str | None) -> list[str | None]:
    parsed = _json(text)
    if not isinstance(parsed, list):
        return []
    return [item if item is None or isinstance(item, str) else json.dumps(item) for item in parsed]


def _json(text: str | None) -> object:
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
