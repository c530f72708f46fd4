"""What each column is on the wire: by its native type where its database's connector says so, else by its logical type.

Also what stands for values that are not there: for one that a change does not carry, and for one that an old row does
not say; and defaults, where the database computes one.
"""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from typing import Any

from headrace.changes import Column, TableSchema
from headrace.formats.debezium import mysql_types as mysql
from headrace.formats.debezium import postgresql_types as postgresql
from headrace.formats.debezium.values import uuid_of
from headrace.formats.debezium.wire_types import (
    UUID,
    VARIABLE_DECIMAL,
    ValueModes,
    WireType,
    json_of,
    logical_wire_type,
)
from headrace.wire.json_writer import to_text

_ZEROS: dict[str, Any] = {
    "int8": 0, "int16": 0, "int32": 0, "int64": 0, "float": 0.0, "double": 0.0, "boolean": False, "string": "",
    "bytes": "", "array": [],
}  # fmt: skip
_MOMENTS = {
    "io.debezium.time.ZonedTimestamp": "1970-01-01T00:00:00Z",
    "io.debezium.time.ZonedTime": "00:00:00Z",
}
_ZERO = "AA=="
"""The bytes of a decimal that is 0."""
_COMPUTED = re.compile(r"\(?[A-Za-z0-9_]+\(.*\)|CURRENT_[A-Z]+$|LOCALTIME(STAMP)?$", re.ASCII | re.DOTALL)
"""Defaults that are a function's value: for those PostgreSQL's connector tells one that its type has."""
_COMPUTED_TEXTS = {
    "bool": "false", "json": "{}", "jsonb": "{}", "uuid": "00000000-0000-0000-0000-000000000000", "date": "1970-01-01",
    "time": "00:00:00", "timestamp": "1970-01-01 00:00:00", "timestamptz": "1970-01-01 00:00:00+00",
    "interval": "00:00:00", "varbit": "0", "bpchar": "", "varchar": "", "text": "", "xml": "", "float4": "0.0",
    "float8": "0.0", "int2": "0", "int4": "0", "int8": "0", "bit": "00",
}  # fmt: skip


OWN_WAYS = (postgresql.NAME, *mysql.NAMES)
"""The connectors that write some values in their own way."""


def possible_ways(schema: TableSchema) -> tuple[str, ...]:
    """The connectors of `OWN_WAYS` whose rows a table may have: tables of MySQL have no schema."""
    return (postgresql.NAME,) if schema.id.schema else OWN_WAYS


def describing_connector(schema: TableSchema) -> str:
    """The connector of `OWN_WAYS` whose table it is, by its columns' types; empty for none."""
    if postgresql.describes(schema):
        return postgresql.NAME
    return mysql.NAMES[0] if mysql.describes(schema) else ""


def wire_type(column: Column, modes: ValueModes) -> WireType:
    """The wire form of a column's values; every column has one."""
    typed = postgresql.wire_type(column, modes) or mysql.wire_type(column, modes)
    wire = typed or logical_wire_type(column, modes)
    if modes.connector in mysql.NAMES and column.comment and wire.doc is None:
        return replace(wire, doc=column.comment)
    return wire


def default_of(column: Column, modes: ValueModes) -> Any:
    """The JSON value of the column's default; None where it has none that can be written."""
    wire = wire_type(column, modes)
    if modes.connector in mysql.NAMES:
        return mysql.default_of(column, wire)
    if modes.connector != postgresql.NAME:
        return wire.default(column)
    native, is_enum = column.native_type, column.enum_values is not None and column.logical.kind == "string"
    if column.default is not None:
        # Of other types its connector tells no default, nor of a number with its own scale. A column without a type
        # comes from a message, which told what it has.
        has_default = not native or is_enum or native in _COMPUTED_TEXTS
        has_default = has_default or (native == "numeric" and wire.semantic != VARIABLE_DECIMAL)
        return wire.default(column) if has_default else None
    if column.default_expression is None or not _COMPUTED.match(column.default_expression):
        return None
    if native == "numeric" and wire.semantic != VARIABLE_DECIMAL:
        return _zero(wire)
    text = _COMPUTED_TEXTS.get(native)
    return None if text is None or is_enum else (wire.constant or wire.value)(text)


def null_json(column: Column, modes: ValueModes) -> str:
    default = default_of(column, modes) if modes.null_as_default and column.nullable else None
    if modes.connector in mysql.NAMES and not column.nullable:
        default = mysql.instead_of_null(column, wire_type(column, modes))
    return "null" if default is None else json_of(default)


def absent_json(column: Column, modes: ValueModes) -> str | None:
    """The JSON that stands in for a column that a new image does not carry; None where Debezium has none."""
    if modes.recorded_placeholders and column.native_type not in ("text", "ntext", "image", "xml"):
        return None
    wire, text = wire_type(column, modes), modes.placeholder
    data = base64.b64encode(text.encode()).decode()
    if wire.connect == "array":
        return _absent_items(column, modes)
    if column.native_type == "hstore":
        return json_of(to_text({text: text}))
    if column.logical.kind == "bytes":
        return json_of(wire.value(data)) if wire.connect != "struct" else None
    if wire.semantic == postgresql.BITS:
        return json_of(data)
    return json_of(wire.value(text)) if wire.connect == "string" and not wire.checked else None


def _absent_items(column: Column, modes: ValueModes) -> str | None:
    element = postgresql.element_type(column, modes)
    assert element is not None
    text = modes.placeholder
    if element.semantic == UUID:
        return to_text([uuid_of(text)])
    if element.connect == "string" and not element.checked:
        return to_text([text])
    if element.connect == "bytes" and not element.semantic:
        return to_text([base64.b64encode(text.encode()).decode()])
    if element.connect in ("int16", "int32", "int64") or not column.nullable:
        return to_text(list(text.encode())) if element.connect in _NUMBERS else None
    return None


_NUMBERS = frozenset(("int16", "int32", "int64", "float", "double"))


def unsaid_json(column: Column, modes: ValueModes, null: str) -> str:
    """The JSON that PostgreSQL's connector writes for a column that an old row does not say.

    Args:
        column: the column.
        modes: how values are written.
        null: what stands for null.
    """
    if column.nullable:
        return null
    default = default_of(column, modes)
    return json_of(_zero(wire_type(column, modes)) if default is None else default)


def _zero(wire: WireType) -> Any:
    """The value that says nothing, in a column without NULL."""
    if wire.semantic == VARIABLE_DECIMAL:
        return {"scale": 0, "value": _ZERO}
    if wire.parameters.get("scale") is not None:
        return _ZERO
    if wire.semantic in _MOMENTS:
        return _MOMENTS[wire.semantic]
    if wire.connect == "struct":
        return wire.value("(0,0)") if wire.semantic == postgresql.POINT else wire.value("AQcAAAAAAAAA")
    return _ZEROS[wire.connect]
