"""The Avro schemas of what Qlik writes: envelope, metadata, data of a table, keys."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.changes import Column, TableSchema
from headrace.changes.types import MAX_DECIMAL_PRECISION

ENVELOPE: Mapping[str, Any] = {
    "type": "record",
    "name": "MessageEnvelope",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 5}},
        {"name": "type", "type": "string"},
        {"name": "headers", "type": ["null", {"type": "map", "values": "string"}]},
        {"name": "messageSchemaId", "type": ["null", "string"]},
        {"name": "messageSchema", "type": ["null", "string"]},
        {"name": "message", "type": "bytes"},
    ],
}
"""The Avro schema of the envelope."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTEGERS = {"int8": "int", "int16": "int", "int32": "int", "int64": "long"}
_SAME = {"float32": "float", "float64": "double", "boolean": "boolean", "bytes": "bytes"}
OPERATIONS = ("INSERT", "UPDATE", "DELETE", "REFRESH")
"""The symbols of the operation."""
COLUMN_FACTS = ("ordinal", "type", "length", "precision", "scale", "primaryKeyPosition")
"""What metadata messages say of each column."""
METADATA_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "MetadataMessage",
    "namespace": "com.attunity.queue.msg",
    "fields": [
        {"name": "schemaId", "type": "string"},
        {
            "name": "lineage",
            "type": {
                "type": "record",
                "name": "Lineage",
                "fields": [
                    *({"name": n, "type": "string"} for n in ("server", "task", "schema", "table")),
                    {"name": "tableVersion", "type": "int"},
                    {"name": "timestamp", "type": "string"},
                ],
            },
        },
        {
            "name": "tableStructure",
            "type": {
                "type": "record",
                "name": "TableStructure",
                "fields": [
                    {
                        "name": "tableColumns",
                        "type": {
                            "type": "map",
                            "values": {
                                "type": "record",
                                "name": "Column",
                                "fields": [
                                    {"name": n, "type": "string" if n == "type" else "int"} for n in COLUMN_FACTS
                                ],
                            },
                        },
                    }
                ],
            },
        },
        {"name": "dataSchema", "type": "string"},
    ],
}


def headers_schema(*, external: bool) -> dict[str, Any]:
    """The Avro schema of headers.

    Args:
        external: with `externalSchemaId`.
    """
    texts = ("changeSequence", "timestamp", "streamPosition", "transactionId")
    optional = {
        "changeMask": "bytes",
        "columnMask": "bytes",
        "transactionEventCounter": "long",
        "transactionLastEvent": "boolean",
    }
    if external:
        optional["externalSchemaId"] = "string"
    return {
        "type": "record",
        "name": "Headers",
        "namespace": "com.attunity.queue.msg",
        "fields": [
            {"name": "operation", "type": {"type": "enum", "name": "operation", "symbols": list(OPERATIONS)}},
            *({"name": name, "type": "string"} for name in texts),
            *({"name": name, "type": ["null", kind], "default": None} for name, kind in optional.items()),
        ],
    }


def avro_names(schema: TableSchema) -> dict[str, str]:
    """The field's name of each column: itself where Avro allows it, else with `_` for what it does not, each once."""
    found: dict[str, str] = {}
    taken = {column.name for column in schema.columns if _NAME.fullmatch(column.name)}
    for column in schema.columns:
        if _NAME.fullmatch(column.name):
            found[column.name] = column.name
            continue
        made = _safe(column.name)
        while made in taken:
            made += "_"
        taken.add(made)
        found[column.name] = made
    return found


def _safe(name: str) -> str:
    made = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return made if _NAME.fullmatch(made) else f"_{made}"


def data_schema(schema: TableSchema, task: str, *, external: bool = False) -> dict[str, Any]:
    """The Avro schema of a table's data messages.

    Args:
        schema: the table's structure.
        task: what the namespace names it by.
        external: whether headers have `externalSchemaId`.
    """
    # A database without schemas is what Qlik calls one.
    parts = (task, schema.id.schema or schema.id.database, schema.id.name)
    namespace = ".".join(["com.attunity.queue.msg", *(_safe(part) for part in parts if part)])
    return {
        "type": "record",
        "name": "DataRecord",
        "namespace": namespace,
        "fields": [
            {"name": "data", "type": {"type": "record", "name": "Data", "fields": _fields(schema, schema.columns)}},
            {"name": "beforeData", "type": ["null", "Data"], "default": None},
            {"name": "headers", "type": headers_schema(external=external)},
        ],
    }


def key_schema(schema: TableSchema, task: str) -> dict[str, Any]:
    """The Avro schema of a table's keys."""
    made = data_schema(schema, task)
    return {
        "type": "record",
        "name": "KeyRecord",
        "namespace": made["namespace"],
        "fields": _fields(schema, schema.key_columns),
    }


def _fields(schema: TableSchema, columns: Sequence[Column]) -> list[dict[str, Any]]:
    names = avro_names(schema)
    made = []
    for column in columns:
        field = {"name": names[column.name], "type": ["null", avro_type(column)], "default": None}
        if names[column.name] != column.name:
            field["columnName"] = column.name
        made.append(field)
    return made


def avro_type(column: Column) -> Any:
    """The type of a column; those that Avro or Spark can't hold exactly are texts."""
    logical = column.logical
    if logical.kind == "decimal" and logical.precision is not None and logical.precision <= MAX_DECIMAL_PRECISION:
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": logical.precision,
            "scale": logical.scale or 0,
        }
    if logical.kind == "date":
        return {"type": "int", "logicalType": "date"}
    if logical.kind == "timestamp" and logical.digits <= 6:
        return {"type": "long", "logicalType": "local-timestamp-micros"}
    if logical.kind == "instant" and logical.digits <= 6:
        return {"type": "long", "logicalType": "timestamp-micros"}
    return _INTEGERS.get(logical.kind) or _SAME.get(logical.kind) or "string"
