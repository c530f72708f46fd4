"""Change rows to Qlik's Avro messages: one `to_avro` per structure, chosen by the row's structure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.changes import Column, TableSchema
from headrace.changes.refusal import refusal
from headrace.changes.typed import literal
from headrace.changes.types import MAX_DECIMAL_PRECISION
from headrace.formats.qlik_encode import (
    LAST_EVENT,
    OPERATION,
    Encoding,
    finished,
    header_values,
    json_key,
    lineage_fields,
    schema_id,
)
from headrace.formats.qlik_metadata import ENVELOPE, MAGIC, type_facts
from headrace.formats.schema_registry import Registry
from headrace.formats.text_values import typed_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTEGERS = {"int8": "int", "int16": "int", "int32": "int", "int64": "long"}
_SAME = {"float32": "float", "float64": "double", "boolean": "boolean", "bytes": "bytes"}
_HEADERS: dict[str, Any] = {
    "type": "record",
    "name": "Headers",
    "namespace": "com.attunity.queue.msg",
    "fields": [
        {
            "name": "operation",
            "type": {"type": "enum", "name": "operation", "symbols": ["INSERT", "UPDATE", "DELETE", "REFRESH"]},
        },
        *({"name": n, "type": "string"} for n in ("changeSequence", "timestamp", "streamPosition", "transactionId")),
        {"name": "changeMask", "type": ["null", "bytes"], "default": None},
        {"name": "columnMask", "type": ["null", "bytes"], "default": None},
        {"name": "transactionEventCounter", "type": ["null", "long"], "default": None},
        {"name": "transactionLastEvent", "type": ["null", "boolean"], "default": None},
    ],
}
_COLUMN_FACTS = ("ordinal", "type", "length", "precision", "scale", "primaryKeyPosition")
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
                                    {"name": n, "type": "string" if n == "type" else "int"} for n in _COLUMN_FACTS
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


def data_schema(schema: TableSchema, task: str) -> dict[str, Any]:
    """The Avro schema of a table's data messages."""
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
            {"name": "headers", "type": _HEADERS},
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
        field = {"name": names[column.name], "type": ["null", _type(column)], "default": None}
        if names[column.name] != column.name:
            field["columnName"] = column.name
        made.append(field)
    return made


def _type(column: Column) -> Any:
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


def _value(text: str, column: Column) -> str:
    """SQL for the value that `to_avro` takes, from its canonical text; a text that does not fit stops the query."""
    kind = _type(column)
    if kind == "string":
        return text
    if column.logical.kind in ("int8", "int16"):
        made = f"cast(try_cast({text} as {column.logical.spark_type}) as int)"
    else:
        made = typed_text(text, column)
    message = literal(f"A value of column '{column.name}' does not fit its type {column.logical}.")
    return f"coalesce({made}, if({text} is null, null, {refusal(message)}))"


def avro_messages(
    laid: DataFrame,
    schemas: Sequence[TableSchema],
    encoding: Encoding,
    registry: Registry | None,
    topics: Sequence[str],
) -> DataFrame:
    """Messages of rows laid out by `qlik_encode.laid_maps`.

    Args:
        laid: the rows.
        schemas: the structures, by number.
        encoding: how messages are written.
        registry: where schemas are registered; None in the envelope.
        topics: the topic of each structure, whose subjects they are registered under.
    """
    texts = [_text(data_schema(schema, encoding.task)) for schema in schemas]
    data = [_datum(schema, text) for schema, text in zip(schemas, texts, strict=True)]
    if registry is None:
        rows = laid
        inner = _case(data)
        metadata = _case([_metadata(schema, text, encoding) for schema, text in zip(schemas, texts, strict=True)])
        id = _case([literal(schema_id(schema)) for schema in schemas])
        is_metadata = "op = 'schema'"
        fields = {
            "magic": f"X'{MAGIC.hex()}'",
            "type": f"if({is_metadata}, 'MD', 'DT')",
            "headers": "cast(null as map<string,string>)",
            "messageSchemaId": f"if({is_metadata}, null, {id})",
            "messageSchema": f"if({is_metadata}, {literal(_text(METADATA_SCHEMA))}, null)",
            "message": f"if({is_metadata}, {metadata}, {inner})",
        }
        value = f"to_avro({_struct(fields)}, {literal(_text(ENVELOPE))})"
        key = f"cast({json_key(encoding)} as binary)"
    else:
        rows = laid.where("op <> 'schema'")
        ids = [registry.registered(f"{topic}-value", text).id for topic, text in zip(topics, texts, strict=True)]
        value = f"concat({_case([_head(id) for id in ids])}, {_case(data)})"
        key = _registered_key(schemas, encoding, registry, topics)
    return finished(rows, value, key, encoding)


def _text(schema: Any) -> str:
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


def _case(expressions: Sequence[str]) -> str:
    branches = " ".join(f"when {n} then {sql}" for n, sql in enumerate(expressions))
    return f"case s {branches} end" if branches else "null"


def _struct(fields: dict[str, str]) -> str:
    return f"named_struct({', '.join(f'{literal(name)}, {sql}' for name, sql in fields.items())})"


def _head(id: int) -> str:
    return f"X'00{id:08x}'"


def _datum(schema: TableSchema, text: str) -> str:
    names = avro_names(schema)

    def image(values: str) -> str:
        fields = {names[c.name]: _value(f"{values}[{n}]", c) for n, c in enumerate(schema.columns)}
        return f"if({values} is null, null, {_struct(fields)})"

    headers = {"operation": OPERATION, **header_values()}
    headers |= {"changeMask": "unhex(changeMask)", "columnMask": "unhex(narrowMask)"}
    headers |= {"transactionEventCounter": "transaction.total_order", "transactionLastEvent": LAST_EVENT}
    record = {"data": image("a"), "beforeData": image("b"), "headers": _struct(headers)}
    return f"to_avro({_struct(record)}, {literal(text)})"


def _metadata(schema: TableSchema, text: str, encoding: Encoding) -> str:
    columns = []
    for place, column in enumerate(schema.columns, 1):
        at = schema.key.index(column.name) + 1 if column.name in schema.key else 0
        facts = {"ordinal": place, **type_facts(column), "primaryKeyPosition": at}
        pairs = {name: literal(str(facts[name])) if name == "type" else str(facts[name]) for name in _COLUMN_FACTS}
        columns.append(f"{literal(column.name)}, {_struct(pairs)}")
    record = {
        "schemaId": literal(schema_id(schema)),
        "lineage": _struct(lineage_fields(encoding)),
        "tableStructure": f"named_struct('tableColumns', map({', '.join(columns)}))",
        "dataSchema": literal(text),
    }
    return f"to_avro({_struct(record)}, {literal(_text(METADATA_SCHEMA))})"


def _registered_key(
    schemas: Sequence[TableSchema], encoding: Encoding, registry: Registry, topics: Sequence[str]
) -> str:
    """SQL for the key: a registered KeyRecord of the key columns, or the table's name."""
    if encoding.key != "primary_key":
        return f"cast({json_key(encoding)} as binary)"
    made = []
    for schema, topic in zip(schemas, topics, strict=True):
        if not schema.key:
            made.append("cast(null as binary)")
            continue
        text = _text(key_schema(schema, encoding.task))
        head = _head(registry.registered(f"{topic}-key", text).id)
        names = avro_names(schema)
        fields = {names[c.name]: _value(f"key[{literal(c.name)}]", c) for c in schema.key_columns}
        made.append(f"if(key is null, null, concat({head}, to_avro({_struct(fields)}, {literal(text)})))")
    return _case(made)
