"""Qlik's metadata messages: the schema of a table, which describes the data messages with the same schema id.

A task writes one when it starts with a table and after each DDL, usually to a topic of its own. Python on the driver,
because there are few: one for each version of a table.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.errors import FormatError
from headrace.formats.qlik.avro_schema import ENVELOPE
from headrace.formats.registry.connect_avro import writer_schema
from headrace.wire.avro_schema import AvroSchema
from headrace.wire.avro_to_json import AvroJson

MAGIC = b"atMSG"
_TYPES = {
    "BOOLEAN": "boolean",
    "BYTES": "bytes",
    "BLOB": "bytes",
    "DATE": "date",
    "INT1": "int8",
    "INT2": "int16",
    "INT4": "int32",
    "INT8": "int64",
    "UINT1": "int16",
    "UINT2": "int32",
    "UINT4": "int64",
    "UINT8": "uint64",
    "REAL4": "float32",
    "REAL8": "float64",
}
_LARGE = frozenset(("BLOB", "CLOB", "NCLOB"))
_NAMES = {
    **{kind: name for name, kind in reversed(_TYPES.items())},
    "decimal": "NUMERIC",
    "time": "TIME",
    "timestamp": "DATETIME",
    "instant": "DATETIME",
}
"""Qlik's name of a logical type; text for all others."""


@dataclass(frozen=True)
class MetadataMessage:
    """One metadata message.

    Args:
        schema_id: what data messages name it by.
        schema: the table's schema.
        ordinals: the names of the columns by ordinal, from 1; null where no column has the ordinal.
        data_schema: the Avro schema of the data messages, as text; None where there is none.
        source: server, task, version of the table and time, as they stand in the message.
    """

    schema_id: str
    schema: TableSchema
    ordinals: tuple[str | None, ...]
    data_schema: str | None
    source: Mapping[str, str]


def read_metadata(message: Any) -> MetadataMessage | None:
    """A metadata message, as JSON values, without or with its envelope; None for anything else."""
    if isinstance(message, Mapping) and isinstance(message.get("message"), Mapping):
        message = message["message"]
    try:
        schema_id, lineage = message["schemaId"], message["lineage"]
        given = message["tableStructure"]["tableColumns"]
        columns = sorted(given.items(), key=lambda item: int(item[1]["ordinal"]))
        if not isinstance(schema_id, str) or not schema_id or not columns:
            return None
        columns_told = tuple(_column(name, int(facts["ordinal"]), facts) for name, facts in columns)
        ordinals: list[str | None] = [None] * columns_told[-1].position
        for column in columns_told:
            ordinals[column.position - 1] = column.name
        keyed = [(int(facts.get("primaryKeyPosition") or 0), name) for name, facts in columns]
        key = tuple(name for index, name in sorted(keyed) if index > 0)
        id = TableId("", str(lineage.get("schema") or ""), str(lineage["table"]))
        schema = TableSchema(id, columns_told, key)
        facts_of = ("server", "task", "tableVersion", "timestamp")
        source = {name: str(lineage[name]) for name in facts_of if lineage.get(name) is not None}
    # What a message that is none can do wrong has no end: any part may be missing or of another type.
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        return None
    data_schema = message.get("dataSchema")
    if isinstance(data_schema, Mapping):
        data_schema = json.dumps(data_schema)
    return MetadataMessage(
        schema_id, schema, tuple(ordinals), data_schema if isinstance(data_schema, str) else None, source
    )


def _column(name: str, ordinal: int, facts: Mapping[str, Any]) -> Column:
    if ordinal < 1 or ordinal > 100_000:
        raise ValueError("an ordinal counts from 1")
    native = str(facts.get("type") or "").upper()
    length, precision, scale = (_number(facts.get(part)) for part in ("length", "precision", "scale"))
    return Column(
        name,
        ordinal,
        _logical(native, precision, scale),
        native_type=native.lower(),
        length=precision if native == "NUMERIC" else length or None,
        scale=scale if native in ("NUMERIC", "TIME", "DATETIME") else None,
        nullable=not _number(facts.get("primaryKeyPosition")),
        large=native in _LARGE,
    )


def _number(given: Any) -> int:
    return int(given) if given is not None and str(given).strip() else 0


def _logical(native: str, precision: int, scale: int) -> LogicalType:
    if native == "NUMERIC":
        # A number without a declared precision can have any scale, so its text is kept.
        return LogicalType("decimal", precision, scale) if 0 < precision <= 76 and 0 <= scale <= precision else _TEXT
    if native == "TIME":
        return LogicalType("time", min(scale, 9))
    if native == "DATETIME":
        return LogicalType("timestamp", min(scale, 9) if scale else 6)
    return LogicalType(_TYPES[native]) if native in _TYPES else _TEXT


_TEXT = LogicalType("string")


def type_facts(column: Column) -> dict[str, Any]:
    """`type`, `length`, `precision` and `scale` of a column in a metadata message."""
    logical, kind = column.logical, column.logical.kind
    facts = {"type": _NAMES.get(kind, "STRING"), "length": 0, "precision": 0, "scale": 0}
    if kind == "decimal":
        if logical.precision is None:
            facts["type"] = "STRING"
        else:
            facts |= {"precision": logical.precision, "scale": logical.scale or 0}
    elif kind in ("time", "timestamp", "instant"):
        facts["scale"] = logical.digits
    elif kind == "bytes":
        facts |= {"type": "BLOB" if column.large else "BYTES", "length": column.length or 0}
    elif facts["type"] == "STRING":
        facts |= {"type": "CLOB" if column.large else "STRING", "length": column.length or 0}
    return facts


def schema_id(schema: TableSchema) -> str:
    """The id by which data messages name a schema: 32 hex digits that are the same for the same schema."""
    return hashlib.sha256(schema.fingerprint.encode()).hexdigest()[:32].upper()


def metadata_message(schema: TableSchema, lineage: Mapping[str, Any], data_schema: str) -> dict[str, Any]:
    """A metadata message, as JSON values.

    Args:
        schema: the table schema.
        lineage: where the table is from.
        data_schema: the Avro schema of its data messages.
    """
    columns = {}
    for index, column in enumerate(schema.columns, 1):
        at = schema.key.index(column.name) + 1 if column.name in schema.key else 0
        columns[column.name] = {"ordinal": index, **type_facts(column), "primaryKeyPosition": at}
    structure = {"tableColumns": columns}
    return {
        "schemaId": schema_id(schema), "lineage": lineage, "tableStructure": structure, "dataSchema": data_schema
    }  # fmt: skip


def metadata_of(given: Any) -> tuple[MetadataMessage, ...]:
    """The option `metadata`: messages as JSON text, bytes, mappings or a list of these, or the path of a file.

    A file holds one JSON message per line; one that is named `.avro` or starts as an Avro message holds one of those.
    """
    if given is None:
        return ()
    if isinstance(given, MetadataMessage):
        return (given,)
    if isinstance(given, Mapping):
        message = read_metadata(given)
        if message is None:
            raise ValueError("it holds a message that is not a metadata message")
        return (message,)
    if isinstance(given, (bytes, bytearray)):
        message = read_metadata(message_of_bytes(bytes(given)))
        if message is None:
            raise ValueError("it holds bytes that are not a metadata message")
        return (message,)
    if isinstance(given, (list, tuple)):
        return tuple(message for item in given for message in metadata_of(item))
    if isinstance(given, Path) or (isinstance(given, str) and not given.lstrip().startswith(("{", "["))):
        return _of_file(Path(given))
    if not isinstance(given, str):
        raise ValueError("it is neither a metadata message nor a path")
    try:
        parsed = json.loads(given)
    except ValueError:
        lines = [line for line in given.splitlines() if line.strip()]
        if len(lines) < 2:
            raise ValueError("it is not JSON") from None
        return metadata_of(lines)
    return metadata_of(parsed)


def _of_file(path: Path) -> tuple[MetadataMessage, ...]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"the file can't be read: {error.strerror}") from error
    if content.startswith(MAGIC):
        return metadata_of(content)
    return metadata_of([line for line in content.decode(errors="replace").splitlines() if line.strip()])


def message_of_bytes(value: bytes) -> Any:
    """The JSON values of a metadata message as it lies in Kafka: JSON, or Avro in the envelope with its schema inside.

    None for bytes that are neither.
    """
    start = value.find(MAGIC) if value[:1] == b"\0" else 0
    if value[start : start + len(MAGIC)] != MAGIC:
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return None
    envelope = read_avro(ENVELOPE, value[start:])
    if envelope is None or envelope["messageSchema"] is None:
        return None
    try:
        schema = writer_schema(envelope["messageSchema"]).plain
    except FormatError:
        return None
    return read_avro(schema, base64.b64decode(envelope["message"]))


def read_avro(schema: Any, datum: bytes) -> Any:
    """An Avro datum as JSON values, bytes in base64; None for bytes that are none."""
    tape = AvroJson(pa.array([datum], pa.binary()), np.zeros(1, np.int64), AvroSchema(schema), np.zeros(1, np.int64))
    return None if tape.root[0] < 0 else json.loads(tape.text(tape.root[0]) or "null")
