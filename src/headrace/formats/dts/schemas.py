"""What DTS records say of their tables: read once for each distinct text, in the task that meets it.

`record_schema` is the only Avro schema that Alibaba DTS writes records by.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, partial
from typing import Any

import numpy as np

from headrace.changes import TableId, TableSchema
from headrace.formats.avro_records import enum, optional, record
from headrace.formats.dts.types import column_of, expected_form
from headrace.formats.given_tables import TableOptions
from headrace.wire.spans import Array


@dataclass(frozen=True)
class TableDescriptor:
    """The parts of a record by which its table is known.

    Args:
        kind: whose numbers it has (`types.kind_of`).
        path: its `objectName`.
        keys: the tag with its unique keys.
        names: of its fields.
        numbers: their `dataTypeNumber`s.
    """

    kind: str
    path: str | None
    keys: str | None
    names: tuple[str, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Table:
    """A table as records know it; a part that they do not say is None."""

    database: str | None
    schema: str | None
    name: str | None

    @classmethod
    def of(cls, path: str | None) -> Table | None:
        """The table of an `objectName`: the database, then the table, with the schema between where there are three."""
        if path is None:
            return None
        parts = [part.replace("\\u002E", ".").replace("\\u002e", ".") for part in path.split(".")]
        name = None if len(parts) == 1 else parts[1] if len(parts) == 2 else ".".join(parts[2:])
        return cls(parts[0] or None, (parts[1] or None) if len(parts) > 2 else None, name)


class ResolvedTable:
    """What all records that tell the same have in common."""

    def __init__(self, descriptor: TableDescriptor, given: TableOptions) -> None:
        self.descriptor = descriptor
        self._given = given
        self._schemas: dict[str, TableSchema | None] = {}

    @cached_property
    def table(self) -> Table | None:
        return Table.of(self.descriptor.path)

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """The key: the primary one, else the first unique one that the record names, else the given one."""
        if self._given.typed is not None and self._given.typed.key:
            return self._given.typed.key
        try:
            parsed = json.loads(self.descriptor.keys or "null")
        except (ValueError, RecursionError):
            parsed = None
        lists = parsed if isinstance(parsed, dict) else {}
        named = lists.get("PRIMARY") or next(iter(lists.values()), None)
        if not isinstance(named, list):
            return tuple(dict.fromkeys(self._given.keys))
        return tuple(dict.fromkeys(name for name in named if isinstance(name, str)))

    @cached_property
    def expected(self) -> Array:
        """The form that each field's values have."""
        return np.array([expected_form(self.descriptor.kind, number) for number in self.descriptor.numbers], "U1")

    def schema(self, forms: str) -> TableSchema | None:
        """The schema of rows whose values are of other forms than expected: a letter or `.` for each field."""
        if forms not in self._schemas:
            self._schemas[forms] = self._schema(forms)
        return self._schemas[forms]

    def _schema(self, forms: str) -> TableSchema | None:
        given, table = self._given, self.table
        if table is None:
            return given.typed
        if given.is_whole:
            return given.schema_of((table.database, table.schema, table.name))
        names = self.descriptor.names
        key = tuple(name for name in self.key_names if name in names)
        columns = tuple(
            column_of(name, n, self.descriptor.kind, number, form.strip("."), nullable=name not in key)
            for n, (name, number, form) in enumerate(zip(names, self.descriptor.numbers, forms, strict=True), 1)
        )
        id = TableId(table.database or "", table.schema or "", table.name or "")
        return TableSchema(id, columns, key) if columns else None


_NAMESPACE = "com.alibaba.dts.formats.avro"

SOURCE_TYPES = (
    "MySQL", "Oracle", "SQLServer", "PostgreSQL", "MongoDB", "Redis", "DB2", "PPAS", "DRDS", "HBASE", "HDFS", "FILE",
    "OTHER",
)  # fmt: skip
OPERATIONS = (
    "INSERT", "UPDATE", "DELETE", "DDL", "BEGIN", "COMMIT", "ROLLBACK", "ABORT", "HEARTBEAT", "CHECKPOINT", "COMMAND",
    "FILL", "FINISH", "CONTROL", "RDB", "NOOP", "INIT",
)  # fmt: skip

Branch = IntEnum(
    "Branch",
    "NULL INTEGER CHARACTER DECIMAL FLOAT TIMESTAMP DATE_TIME ZONED BINARY_GEOMETRY TEXT_GEOMETRY BINARY_OBJECT "
    "TEXT_OBJECT EMPTY",
    start=0,
)
"""The branches of a value's union."""


_record, _enum = partial(record, namespace=_NAMESPACE), partial(enum, namespace=_NAMESPACE)


def _values() -> list[Any]:
    parts = ("year", "month", "day", "hour", "minute", "second", "millis")
    date_time = _record("DateTime", *((part, optional("int")) for part in parts))
    for field in date_time["fields"]:
        field["default"] = None
    return [
        "null",
        _record("Integer", ("precision", "int"), ("value", "string")),
        _record("Character", ("charset", "string"), ("value", "bytes")),
        _record("Decimal", ("value", "string"), ("precision", "int"), ("scale", "int")),
        _record("Float", ("value", "double"), ("precision", "int"), ("scale", "int")),
        _record("Timestamp", ("timestamp", "long"), ("millis", "int")),
        date_time,
        _record("TimestampWithTimeZone", ("value", f"{_NAMESPACE}.DateTime"), ("timezone", "string")),
        _record("BinaryGeometry", ("type", "string"), ("value", "bytes")),
        _record("TextGeometry", ("type", "string"), ("value", "string")),
        _record("BinaryObject", ("type", "string"), ("value", "bytes")),
        _record("TextObject", ("type", "string"), ("value", "string")),
        _enum("EmptyObject", ("NULL", "NONE")),
    ]


def record_schema(*, born: bool = True) -> dict[str, Any]:
    """The schema of a record, as Avro's JSON.

    Args:
        born: with `bornTimestamp` at the end, as newer writers write it.
    """
    values = _values()
    names = ["null", *(f"{_NAMESPACE}.{branch['name']}" for branch in values[1:])]
    field = _record("Field", ("name", "string"), ("dataTypeNumber", "int"))
    record = _record(
        "Record",
        ("version", "int"),
        ("id", "long"),
        ("sourceTimestamp", "long"),
        ("sourcePosition", "string"),
        ("safeSourcePosition", "string"),
        ("sourceTxid", "string"),
        ("source", _record("Source", ("sourceType", _enum("SourceType", SOURCE_TYPES)), ("version", "string"))),
        ("operation", _enum("Operation", OPERATIONS)),
        ("objectName", optional("string")),
        ("processTimestamps", optional({"type": "array", "items": "long"})),
        ("tags", {"type": "map", "values": "string"}),
        ("fields", optional("string", {"type": "array", "items": field})),
        ("beforeImages", optional("string", {"type": "array", "items": values})),
        ("afterImages", optional("string", {"type": "array", "items": names})),
        ("bornTimestamp", "long"),
    )
    defaults: dict[str, Any] = {"safeSourcePosition": "", "sourceTxid": "", "tags": {}, "bornTimestamp": 0}
    defaults |= dict.fromkeys(("objectName", "processTimestamps", "fields", "beforeImages", "afterImages"))
    for described in record["fields"]:
        if described["name"] in defaults:
            described["default"] = defaults[described["name"]]
    if not born:
        record["fields"].pop()
    return record
