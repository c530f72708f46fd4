"""The Avro schemas of what Qlik writes: envelope, metadata, data of a table, keys, and what their columns mean.

| Avro | logical type | text of a value |
|---|---|---|
| int, long | int32, int64 | digits |
| float, double | float32, float64 | fewest digits |
| boolean, string, enum | boolean, string | as it is |
| bytes, fixed | bytes | base64 |
| decimal(p,s) | decimal(p,s) | digits with the scale's |
| date | date | `YYYY-MM-DD` |
| time-millis, time-micros | time(3), time(6) | `HH:MM:SS.ffffff` |
| timestamp-millis, -micros | instant(3), instant(6) | `YYYY-MM-DDTHH:MM:SS.ffffffZ` |
| local-timestamp-millis, -micros | timestamp(3), timestamp(6) | `YYYY-MM-DD HH:MM:SS.ffffff` |
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.types import MAX_DECIMAL_PRECISION
from headrace.formats import json_images
from headrace.formats.avro_records import enum, optional, record
from headrace.wire.canonical import DATE, TIME, TIMESTAMP, decimal_texts, moment_texts
from headrace.wire.canonical_exact import decimal_text
from headrace.wire.json_exact import NULL
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import integers

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

_OF_TABLE = re.compile(r"com\.attunity\.queue\.msg\.[^.]*\.(?P<schema>[^.]*)\.(?P<table>.+)")
_PLAIN = {
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "boolean": "boolean",
    "bytes": "bytes",
    "fixed": "bytes",
}
_TIMES = {
    "time-millis": ("time(3)", "c3"),
    "time-micros": ("time(6)", "c6"),
    "timestamp-millis": ("instant(3)", "i3"),
    "timestamp-micros": ("instant(6)", "i6"),
    "local-timestamp-millis": ("timestamp(3)", "l3"),
    "local-timestamp-micros": ("timestamp(6)", "l6"),
    "date": ("date", "d0"),
}
_COUNTS = {"c": TIME, "i": TIMESTAMP, "l": TIMESTAMP, "d": DATE}
_DECIMAL = "n"


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


@dataclass(frozen=True)
class Description:
    """What the Avro schema of a data record says of its columns.

    Args:
        schema: the table schema, without a key.
        codes: how values become canonical texts, by column, for those that the same JSON says otherwise.
        renamed: names in the table by name on the wire, where they differ.
    """

    schema: TableSchema
    codes: Mapping[str, str]
    renamed: Mapping[str, str]


def described(text: str, names: Sequence[str] = ()) -> Description | None:
    """The columns of a data record, and its table; None where the schema is that of no data record.

    Args:
        text: the schema as JSON.
        names: the table's columns in order, where they are known; those of the schema are fit for Avro only.
    """
    try:
        parsed = json.loads(text)
        namespace = _OF_TABLE.fullmatch(parsed.get("namespace") or parsed["name"].rpartition(".")[0])
        data = next(field["type"] for field in parsed["fields"] if field["name"] == "data")
        descriptions = [_said(field) for field in _branch(data)["fields"]]
    # Schemas come from outside, and any part may be missing or of another type.
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return None
    wire = [column.wire for column in descriptions]
    column_names = list(names) if len(names) == len(wire) else [column.own for column in descriptions]
    if len(set(column_names)) < len(column_names):
        column_names = wire
    id = TableId("", namespace["schema"], namespace["table"]) if namespace else TableId("", "", "")
    columns = tuple(
        Column(name, index, LogicalType.parse(column.logical), nullable=column.nullable)
        for index, (name, column) in enumerate(zip(column_names, descriptions, strict=True), 1)
    )
    codes = {name: column.code for name, column in zip(column_names, descriptions, strict=True) if column.code}
    renamed = {before: after for before, after in zip(wire, column_names, strict=True) if before != after}
    return Description(TableSchema(id, columns), codes, renamed)


class _FieldDescription(NamedTuple):
    """What a field says: its name, its logical type, the code of its values, and the column's name."""

    wire: str
    logical: str
    code: str
    nullable: bool
    own: str


def _branch(kind: Any) -> Any:
    """The branch of a union with null that says something; the type itself else.

    Raises:
        ValueError: there are several.
    """
    if isinstance(kind, list):
        if len(kind) - kind.count("null") > 1:
            raise ValueError("a union of several types")
        return next((branch for branch in kind if branch != "null"), "null")
    return kind


def _said(field: Mapping[str, Any]) -> _FieldDescription:
    nullable, column_name = isinstance(field["type"], list), str(field.get("columnName") or field["name"])
    kind = _branch(field["type"])
    description = kind if isinstance(kind, Mapping) else {"type": kind}
    logical = description.get("logicalType")
    if logical == "decimal":
        scale, precision = int(description.get("scale", 0)), int(description.get("precision", 0))
        known = precision >= max(scale, 1) and scale >= 0
        return _FieldDescription(
            field["name"],
            f"decimal({precision},{scale})" if known else "string",
            f"{_DECIMAL}{scale}",
            nullable,
            column_name,
        )
    name, code = _TIMES[logical] if logical in _TIMES else (_PLAIN.get(description["type"], "string"), "")
    return _FieldDescription(field["name"], name, code, nullable, column_name)


def write_canonical(tape: Tape, objects: Array, which: Array, described: Sequence[Description | None]) -> None:
    """Let the values of images be canonical texts from now on.

    Args:
        tape: where they are.
        objects: the images of all messages: the new ones, then the old ones.
        which: the number of each message's schema; -1 for none.
        described: what the schemas say, by number.
    """
    codes = [{} if description is None else description.codes for description in described]
    of = np.tile(which, 2)
    objects = np.ascontiguousarray(np.where(of >= 0, objects, np.int32(-1)))
    for unread in json_images.write_canonical(tape, objects, np.maximum(of, 0), codes, _texts):
        # A decimal without bytes is not a number.
        tape.tokens.kind[unread.at] = NULL


def _texts(tape: Tape, at: Array, code: str) -> pa.StringArray:
    letter, digits = code[0], int(code[1:])
    if letter == _DECIMAL:
        return decimal_texts(tape, at, np.full(at.size, digits), decimal_text)
    moments = moment_texts(integers(tape, at), _COUNTS[letter], digits, digits)
    return pc.binary_join_element_wise(pc.replace_substring(moments, " ", "T"), "Z", "") if letter == "i" else moments
