"""The Avro schemas of what Qlik writes: envelope, metadata, data of a table, keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from headrace.changes import Column, TableSchema
from headrace.changes.types import MAX_DECIMAL_PRECISION
from headrace.formats.avro_records import enum, optional, record

ENVELOPE = record(
    "MessageEnvelope",
    ("magic", {"type": "fixed", "name": "Magic", "size": 5}),
    ("type", "string"),
    ("headers", optional({"type": "map", "values": "string"})),
    ("messageSchemaId", optional("string")),
    ("messageSchema", optional("string")),
    ("message", "bytes"),
)
"""The Avro schema of the envelope."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTEGERS = {"int8": "int", "int16": "int", "int32": "int", "int64": "long"}
_SAME = {"float32": "float", "float64": "double", "boolean": "boolean", "bytes": "bytes"}
OPERATIONS = ("INSERT", "UPDATE", "DELETE", "REFRESH")
"""The symbols of the operation."""
COLUMN_FACTS = ("ordinal", "type", "length", "precision", "scale", "primaryKeyPosition")
"""What metadata messages say of each column."""
_NAMESPACE = "com.attunity.queue.msg"
_LINEAGE = (*((name, "string") for name in ("server", "task", "schema", "table")), ("tableVersion", "int"))
_COLUMN = record("Column", *((name, "string" if name == "type" else "int") for name in COLUMN_FACTS))
METADATA_SCHEMA = record(
    "MetadataMessage",
    ("schemaId", "string"),
    ("lineage", record("Lineage", *_LINEAGE, ("timestamp", "string"))),
    ("tableStructure", record("TableStructure", ("tableColumns", {"type": "map", "values": _COLUMN}))),
    ("dataSchema", "string"),
    namespace=_NAMESPACE,
)


def headers_schema(*, external: bool) -> dict[str, Any]:
    """The Avro schema of headers.

    Args:
        external: with `externalSchemaId`.
    """
    texts = ("changeSequence", "timestamp", "streamPosition", "transactionId")
    optionals = {
        "changeMask": "bytes",
        "columnMask": "bytes",
        "transactionEventCounter": "long",
        "transactionLastEvent": "boolean",
    }
    if external:
        optionals["externalSchemaId"] = "string"
    schema = record(
        "Headers",
        ("operation", enum("operation", OPERATIONS)),
        *((name, "string") for name in texts),
        namespace=_NAMESPACE,
    )
    schema["fields"] += [{"name": name, "type": optional(kind), "default": None} for name, kind in optionals.items()]
    return schema


def avro_names(schema: TableSchema) -> dict[str, str]:
    """The field's name of each column: itself where Avro allows it, else with `_` for what it does not, each once."""
    names: dict[str, str] = {}
    taken = {column.name for column in schema.columns if _NAME.fullmatch(column.name)}
    for column in schema.columns:
        if _NAME.fullmatch(column.name):
            names[column.name] = column.name
            continue
        name = _safe(column.name)
        while name in taken:
            name += "_"
        taken.add(name)
        names[column.name] = name
    return names


def _safe(name: str) -> str:
    safe = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return safe if _NAME.fullmatch(safe) else f"_{safe}"


def data_schema(schema: TableSchema, task: str, *, external: bool = False) -> dict[str, Any]:
    """The Avro schema of a table's data messages.

    Args:
        schema: the table's schema.
        task: what the namespace names it by.
        external: whether headers have `externalSchemaId`.
    """
    # A database without schemas is what Qlik calls one.
    parts = (task, schema.id.schema or schema.id.database, schema.id.name)
    namespace = ".".join([_NAMESPACE, *(_safe(part) for part in parts if part)])
    data = record("Data") | {"fields": _fields(schema, schema.columns)}
    record_schema = record("DataRecord", ("data", data), namespace=namespace)
    record_schema["fields"] += [
        {"name": "beforeData", "type": optional("Data"), "default": None},
        {"name": "headers", "type": headers_schema(external=external)},
    ]
    return record_schema


def key_schema(schema: TableSchema, task: str) -> dict[str, Any]:
    namespace = data_schema(schema, task)["namespace"]
    return record("KeyRecord", namespace=namespace) | {"fields": _fields(schema, schema.key_columns)}


def _fields(schema: TableSchema, columns: Sequence[Column]) -> list[dict[str, Any]]:
    names = avro_names(schema)
    fields = []
    for column in columns:
        field = {"name": names[column.name], "type": optional(avro_type(column)), "default": None}
        if names[column.name] != column.name:
            field["columnName"] = column.name
        fields.append(field)
    return fields


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
