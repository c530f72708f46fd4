"""Topic names and Kafka Connect schemas of a table's Debezium events, as JsonConverter writes them.

Source: spec/sqlserver.md sections 10 and 11, and recorded events of the connector 1.7.2 and 3.6.1 (rows 1 to 9 of
their list of differences).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from headrace.changes import Column, TableId, TableSchema
from headrace.formats.debezium_values import ValueModes, wire_type

SNAPSHOT_MARKS = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
_INVALID_TOPIC = re.compile(r"[^a-zA-Z0-9._-]")


@dataclass(frozen=True)
class Shape:
    """What differs between the generations of Debezium events, as data.

    Args:
        name: `1.7` or `3`.
        connector_version: what stands in `source.version` unless set otherwise.
        database_in_topic: whether topics and schema names carry the database.
        envelope_version: the version of the envelope's schema, if it has one.
        source_version: the version of the source block's schema, if it has one.
        transaction_name: the name of the transaction block's schema, if it has one.
        transaction_first: whether the transaction block comes before `op` (else it is last).
        fine_times: whether `ts_us` and `ts_ns` stand beside `ts_ms`.
        snapshot_marks: the values that the schema allows for `source.snapshot`.
        placeholder: whether a column that a change does not carry is written as a placeholder (else null).
        schema_names: `avro` or `none`, how schema names are adjusted unless set otherwise.
        time_modes: the time precision modes that this generation has.
    """

    name: str
    connector_version: str
    database_in_topic: bool
    envelope_version: int | None
    source_version: int | None
    transaction_name: str | None
    transaction_first: bool
    fine_times: bool
    snapshot_marks: str
    placeholder: bool
    schema_names: str
    time_modes: tuple[str, ...]

    def topic(self, prefix: str, table: TableId) -> str:
        """The topic of a table's events; characters that Kafka does not allow become `_`."""
        parts = (prefix, table.database if self.database_in_topic else "", table.schema, table.name)
        return _INVALID_TOPIC.sub("_", ".".join(part for part in parts if part))


_TIME_MODES = ("adaptive", "adaptive_time_microseconds", "connect")
SHAPES = {
    "1.7": Shape(
        "1.7", "1.7.2.Final", False, None, None, None, False, False, "true,last,false", False, "avro", _TIME_MODES
    ),
    "3": Shape(
        "3",
        "3.6.1.Final",
        True,
        2,
        1,
        "event.block",
        True,
        True,
        SNAPSHOT_MARKS,
        True,
        "none",
        (*_TIME_MODES, "isostring", "microseconds", "nanoseconds"),
    ),
}


def adjusted(name: str, mode: str) -> str:
    """A schema name, made fit for Avro where the mode is `avro`: letters, digits, `_` and `.`, no digit in front."""
    if mode == "none" or not name:
        return name
    rest = re.sub(r"[^A-Za-z0-9_.]", "_", name[1:])
    return (name[0] if re.match(r"[A-Za-z_]", name[0]) else "_") + rest


def key_schema(schema: TableSchema, base: str, modes: ValueModes) -> dict[str, Any]:
    """The Connect schema of a table's key."""
    return _struct([_column(c, modes) for c in schema.key_columns], optional=False, name=f"{base}.Key")


def value_schema(schema: TableSchema, base: str, shape: Shape, modes: ValueModes) -> dict[str, Any]:
    """The Connect schema of a table's envelope."""
    row = _struct([_column(c, modes) for c in schema.columns], optional=True, name=f"{base}.Value")
    transaction = _struct(
        [_plain("string", "id"), _plain("int64", "total_order"), _plain("int64", "data_collection_order")],
        optional=True,
        name=shape.transaction_name,
        version=1 if shape.transaction_name else None,
        field="transaction",
    )
    times = [_plain("int64", name, optional=True) for name in _time_names(shape)]
    operation = [_plain("string", "op"), *times]
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, _source(shape)]
    fields += [transaction, *operation] if shape.transaction_first else [*operation, transaction]
    return _struct(fields, optional=False, name=f"{base}.Envelope", version=shape.envelope_version)


def to_text(schema: dict[str, Any]) -> str:
    """The schema as JSON text."""
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def _source(shape: Shape) -> dict[str, Any]:
    snapshot = {
        "type": "string",
        "optional": True,
        "name": "io.debezium.data.Enum",
        "version": 1,
        "parameters": {"allowed": shape.snapshot_marks},
        "default": "false",
        "field": "snapshot",
    }
    fields = [
        *(_plain("string", name) for name in ("version", "connector", "name")),
        _plain("int64", "ts_ms"),
        snapshot,
        _plain("string", "db"),
        _plain("string", "sequence", optional=True),
        *(_plain("int64", name, optional=True) for name in _time_names(shape)[1:]),
        _plain("string", "schema"),
        _plain("string", "table"),
        _plain("string", "change_lsn", optional=True),
        _plain("string", "commit_lsn", optional=True),
        _plain("int64", "event_serial_no", optional=True),
    ]
    return _struct(
        fields,
        optional=False,
        name="io.debezium.connector.sqlserver.Source",
        version=shape.source_version,
        field="source",
    )


def _time_names(shape: Shape) -> list[str]:
    return ["ts_ms", "ts_us", "ts_ns"] if shape.fine_times else ["ts_ms"]


def _column(column: Column, modes: ValueModes) -> dict[str, Any]:
    wire = wire_type(column, modes)
    field: dict[str, Any] = {"type": wire.connect, "optional": column.nullable}
    if wire.semantic:
        field |= {"name": wire.semantic, "version": 1}
    if wire.parameters:
        field["parameters"] = dict(wire.parameters)
    if column.default is not None:
        field["default"] = wire.constant(column.default)
    field["field"] = column.name
    return field


def _plain(kind: str, name: str, *, optional: bool = False) -> dict[str, Any]:
    return {"type": kind, "optional": optional, "field": name}


def _struct(
    fields: list[dict[str, Any]],
    *,
    optional: bool,
    name: str | None = None,
    version: int | None = None,
    field: str | None = None,
) -> dict[str, Any]:
    struct: dict[str, Any] = {"type": "struct", "fields": fields, "optional": optional}
    for key, value in (("name", name), ("version", version), ("field", field)):
        if value is not None:
            struct[key] = value
    return struct
