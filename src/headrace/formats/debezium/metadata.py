"""Debezium's messages that are no data change events: schema changes, transaction edges, heartbeats, logical messages.

Source: recorded events of the SQL Server connector 1.7.2 and 3.6.1 (rows 12 to 19 and 22 of their list of
differences), and of the MariaDB and PostgreSQL connectors 3.0.8.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from headrace.changes import Column, LogicalType
from headrace.formats.change_messages import quoted
from headrace.formats.debezium.connect_fields import Opening, listed, plain, struct
from headrace.formats.debezium.connect_schemas import envelope_fields
from headrace.formats.debezium.connectors import EventShape
from headrace.formats.debezium.mysql_types import NAMES as MYSQL
from headrace.formats.debezium.source_blocks import SourceBlock
from headrace.formats.debezium.table_changes import told_column
from headrace.formats.debezium.wire_types import WireType, json_of, logical_wire_type
from headrace.formats.debezium.written import EncodeSettings
from headrace.wire.json_writer import to_text

EDGES, HEARTBEAT, SCHEMA, LOGICAL = ("begin", "end"), "heartbeat", "schema", "message"
CONNECTOR_SCHEMAS = "io.debezium.connector"
# java.sql.Types.OTHER, where a source does not tell a column's JDBC type; the field is required.
_OTHER_TYPE = 1111
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@dataclass(frozen=True)
class Message:
    topic: str
    key: str
    value: str
    position: str | None


class MetadataEncoder:
    """What the rows that are not data become.

    Args:
        writing: how messages are written.
        opening: what stands in front of a payload, by the text of its schema.
    """

    def __init__(self, writing: EncodeSettings, opening: Opening) -> None:
        self._writing, self._opening = writing, opening
        self._topics, self._shape = writing.topics, writing.shape

    def takes(self, row: Mapping[str, Any]) -> bool:
        """Whether a row gives such a message."""
        if row["op"] == LOGICAL:
            return row["source"].get("prefix") is not None or is_notification(row)
        if row["op"] != SCHEMA:
            return row["op"] in (*EDGES, HEARTBEAT)
        source = row["source"]
        return self._writing.schema_changes and (source.get("change") is not None or source.get("ddl") is not None)

    def edge(self, row: Mapping[str, Any]) -> Message:
        """The beginning or end of a transaction."""
        transaction, is_end = row["transaction"] or {}, row["op"] == "end"
        id = _text(transaction.get("id"))
        count = transaction.get("total_order") if is_end else None
        collections = _collections(row["source"].get("data_collections")) if is_end else None
        value = (
            f'{{"status":"{row["op"].upper()}","id":{id},"event_count":{_text(count)},'
            f'"data_collections":{_text(collections)}'
        )
        if self._shape.detailed:
            value += f',"ts_ms":{_text(_milliseconds(row["event_time"]))}'
        return self._message(
            self._topics.transaction,
            (transaction_key(self._shape), f'{{"id":{id}}}'),
            (transaction_value(self._shape), value + "}"),
            row["position"],
        )

    def heartbeat(self, row: Mapping[str, Any]) -> Message:
        return self._message(
            self._topics.heartbeat,
            (heartbeat_key(self._shape), f'{{"serverName":{quoted(self._topics.prefix)}}}'),
            (heartbeat_value(self._shape), f'{{"ts_ms":{_text(_milliseconds(row["capture_time"]))}}}'),
            row["position"],
        )

    def notification(self, row: Mapping[str, Any]) -> Message:
        facts = row["source"]
        more = json.loads(facts.get("additional_data") or "{}")
        value = {
            **{name: facts.get(name) for name in ("id", "type", "aggregate_type")},
            "additional_data": {"connector_name": self._topics.prefix, **more},
            "timestamp": int(facts["timestamp"]) if "timestamp" in facts else _milliseconds(row["capture_time"]),
        }
        return self._message(
            facts["topic"],
            (notification_key(self._shape), _text({"id": facts.get("id")})),
            (notification_value(self._shape), _text(value)),
            row["position"],
        )

    def logical_message(self, row: Mapping[str, Any], form: int, source: str, transaction: str) -> Message:
        """What a session wrote into the log by itself.

        Args:
            row: the row.
            form: the number of its source block.
            source: the block's JSON.
            transaction: the JSON of the transaction's block.
        """
        facts, wire = row["source"], self._content
        prefix, data = _text(facts.get("prefix")), facts.get("content")
        content = "null" if data is None else json_of(wire.value(data))
        value = (
            f'{{"op":"m","ts_ms":{_text(_milliseconds(row["capture_time"]))},"source":{source},'
            f'"transaction":{transaction},"message":{{"prefix":{prefix},"content":{content}}}}}'
        )
        block = self._writing.forms.blocks[form]
        return self._message(
            self._topics.message,
            (logical_message_key(block), f'{{"prefix":{prefix}}}'),
            (logical_message_value(block, wire.connect), value),
            row["position"],
        )

    @cached_property
    def _content(self) -> WireType:
        return logical_wire_type(Column("content", 1, LogicalType("bytes")), self._writing.modes)

    def schema_change(self, row: Mapping[str, Any], form: int, source: str) -> Message:
        """A change of a table's schema.

        Args:
            row: the row.
            form: the number of its source block.
            source: the block's JSON.
        """
        table, block = row["table"] or {}, self._writing.forms.blocks[form]
        parts = {
            "ts_ms": _milliseconds(row["capture_time"]),
            "databaseName": table.get("database") or ("" if block.connector.name in MYSQL else None),
            "schemaName": table.get("schema") or None,
            "ddl": row["source"].get("ddl"),
            "tableChanges": self._changes(row, table, block.connector.name),
        }
        schema = schema_change_value(block)
        value = f'{{"source":{source},' + _text(_shaped(schema | {"fields": schema["fields"][1:]}, parts))[1:]
        return self._message(
            self._topics.schema_changes,
            (schema_change_key(block), _text({"databaseName": table.get("database") or ""})),
            (to_text(schema), value),
            self._position(row, table),
        )

    def _message(self, topic: str, key: tuple[str, str], value: tuple[str, str], position: str | None) -> Message:
        texts = [
            f"{self._opening(schema)}{text}}}" if wanted else text
            for wanted, (schema, text) in ((self._writing.key_schemas, key), (self._writing.value_schemas, value))
        ]
        return Message(topic, texts[0], texts[1], position)

    def _position(self, row: Mapping[str, Any], table: Mapping[str, Any]) -> str | None:
        """Shape 3 tells the tables of a snapshot by the alphabet: their names, in hex up to a zero byte, come before
        the index in the include list.
        """
        position: str | None = row["position"]
        if not self._shape.detailed or row["snapshot"] is None or position is None:
            return position
        id = ".".join(table[part] for part in ("database", "schema", "name") if table.get(part) is not None)
        parts = position.split("/")
        return f"{'/'.join(parts[:2])}/{id.encode().hex()}00{parts[-1]}"

    def _changes(self, row: Mapping[str, Any], table: Mapping[str, Any], connector: str) -> list[dict[str, Any]]:
        kind, text = row["source"].get("change"), row["table_schema"]
        # A statement whose effect nobody told has no changes of tables.
        if kind is None and text is None:
            return []
        # A dropped table has no table structure, if the message schema allows null.
        known = None if text is None or (self._shape.detailed and kind == "DROP") else json.loads(text)
        names = [table[part] for part in ("database", "schema", "name") if table.get(part)]
        id = '"' + '"."'.join(names) + '"'
        if known is not None and known.get("columns") is not None:
            columns = known["columns"]
            if connector in MYSQL:
                columns = [told_column(column, connector) for column in columns]
            known["columns"] = [self._column(column) for column in columns]
        return [{"type": kind or "ALTER", "id": id, "table": known}]

    def _column(self, column: dict[str, Any]) -> dict[str, Any]:
        jdbc_type = _OTHER_TYPE if column.get("jdbcType") is None else column["jdbcType"]
        # The old generation did not know what numbers a column itself.
        numbered = column.get("autoIncremented") if self._shape.detailed else False
        return column | {"jdbcType": jdbc_type, "nativeType": None, "autoIncremented": numbered}


def is_notification(row: Mapping[str, Any]) -> bool:
    return row["op"] == LOGICAL and row["source"].get("aggregate_type") is not None


def _shaped(schema: Mapping[str, Any], value: Any) -> Any:
    """A value with the fields that its schema has, in their order; those that it lacks are null."""
    if value is None:
        return None
    if schema["type"] == "struct":
        return {field["field"]: _shaped(field, value.get(field["field"])) for field in schema["fields"]}
    return [_shaped(schema["items"], item) for item in value] if schema["type"] == "array" else value


def _collections(text: str | None) -> list[dict[str, Any]] | None:
    """The tables of a transaction and their counts, as a row says them."""
    try:
        parsed = None if text is None else json.loads(text)
    except ValueError:
        return None
    if not isinstance(parsed, list):
        return None
    return [{name: one.get(name) for name in ("data_collection", "event_count")} for one in parsed]


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - _EPOCH) // timedelta(milliseconds=1)


def _text(value: Any) -> str:
    """JSON text as Spark writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{quoted(name)}:{_text(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return str(value)


def _named(shape: EventShape, fields: list[dict[str, Any]], name: str, **more: Any) -> dict[str, Any]:
    version = shape.metadata_version
    return struct(fields, name=f"{CONNECTOR_SCHEMAS}.{name}", version=version, **{"optional": False, **more})


@functools.cache
def schema_change_key(source: SourceBlock) -> str:
    return to_text(_named(source.shape, [plain("string", "databaseName")], f"{_last(source)}.SchemaChangeKey"))


@functools.cache
def schema_change_value(source: SourceBlock) -> dict[str, Any]:
    shape, text, number, flag = source.shape, "string", "int32", "boolean"
    column = [
        plain(text, "name"),
        plain(number, "jdbcType"),
        plain(number, "nativeType", optional=True),
        plain(text, "typeName"),
        plain(text, "typeExpression", optional=True),
        plain(text, "charsetName", optional=True),
        plain(number, "length", optional=True),
        plain(number, "scale", optional=True),
        plain(number, "position"),
        *(plain(flag, name, optional=True) for name in ("optional", "autoIncremented", "generated")),
    ]
    texts = {"type": text, "optional": False}
    if shape.detailed:
        column += [plain(text, name, optional=True) for name in ("comment", "defaultValueExpression")]
        column.append(listed(texts, "enumValues", optional=True))
    table = [
        plain(text, "defaultCharsetName", optional=True),
        listed(texts, "primaryKeyColumnNames", optional=True),
        listed(_named(shape, column, "schema.Column"), "columns", optional=False),
    ]
    if shape.detailed:
        table.append(plain(text, "comment", optional=True))
    change = [
        plain(text, "type"),
        plain(text, "id"),
        _named(shape, table, "schema.Table", optional=shape.detailed, field="table"),
    ]
    fields = [
        source.schema(),
        *([plain("int64", "ts_ms")] if shape.detailed else []),
        *(plain(text, name, optional=True) for name in ("databaseName", "schemaName", "ddl")),
        listed(_named(shape, change, "schema.Change"), "tableChanges", optional=False),
    ]
    return _named(shape, fields, f"{_last(source)}.SchemaChangeValue")


@functools.cache
def logical_message_key(source: SourceBlock) -> str:
    fields = [plain("string", "prefix", optional=True)]
    return to_text(_named(source.shape, fields, f"{_last(source)}.MessageKey"))


@functools.cache
def logical_message_value(source: SourceBlock, content: str) -> str:
    """The Connect schema of a logical message, whose content has this type."""
    parts = [plain("string", "prefix", optional=True), plain(content, "content", optional=True)]
    fields = [
        plain("string", "op"),
        plain("int64", "ts_ms", optional=True),
        source.schema(),
        envelope_fields(source.shape)[0 if source.shape.transaction_first else -1],
        _named(source.shape, parts, f"{_last(source)}.Message", field="message"),
    ]
    return to_text(_named(source.shape, fields, f"{_last(source)}.MessageValue"))


def _last(source: SourceBlock) -> str:
    return source.connector.namespace.removeprefix(f"{CONNECTOR_SCHEMAS}.")


@functools.cache
def transaction_key(shape: EventShape) -> str:
    """The Connect schema of the key of a transaction's edge."""
    return to_text(_named(shape, [plain("string", "id")], "common.TransactionMetadataKey"))


@functools.cache
def transaction_value(shape: EventShape) -> str:
    """The Connect schema of a transaction's edge."""
    counted = [plain("string", "data_collection"), plain("int64", "event_count")]
    if shape.detailed:
        collection = struct(counted, optional=True, name="event.collection", version=1)
    else:
        collection = struct(counted, optional=False)
    fields = [
        plain("string", "status"),
        plain("string", "id"),
        plain("int64", "event_count", optional=True),
        listed(collection, "data_collections", optional=True),
    ]
    if shape.detailed:
        fields.append(plain("int64", "ts_ms"))
    return to_text(_named(shape, fields, "common.TransactionMetadataValue"))


@functools.cache
def heartbeat_key(shape: EventShape) -> str:
    return to_text(_named(shape, [plain("string", "serverName")], "common.ServerNameKey"))


@functools.cache
def heartbeat_value(shape: EventShape) -> str:
    return to_text(_named(shape, [plain("int64", "ts_ms")], "common.Heartbeat"))


@functools.cache
def notification_key(shape: EventShape) -> str:
    return to_text(_named(shape, [plain("string", "id")], "common.NotificationKey"))


@functools.cache
def notification_value(shape: EventShape) -> str:
    text = {"type": "string", "optional": False}
    more = {"type": "map", "keys": text, "values": text, "optional": True, "field": "additional_data"}
    named = [plain("string", name) for name in ("id", "type", "aggregate_type")]
    return to_text(_named(shape, [*named, more, plain("int64", "timestamp")], "common.Notification"))
