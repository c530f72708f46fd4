"""Debezium's messages that are no data change events: schema changes, transaction edges and heartbeats.

Their texts are made from the change rows alone, by one set of expressions whatever the number of tables.

Source: recorded events of the SQL Server connector 1.7.2 and 3.6.1 (rows 12 to 19 and 22 of their list of differences).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.changes.typed import literal
from headrace.formats.debezium_schema import Shape, listed, plain, source_schema, struct, to_text
from headrace.formats.debezium_topics import Topics

SCHEMA, EDGES, HEARTBEAT = "'schema'", "'begin', 'end'", "'heartbeat'"
KINDS = f"{SCHEMA}, {EDGES}, {HEARTBEAT}"
CONNECTOR_SCHEMAS = "io.debezium.connector"
_COLLECTIONS = "array<struct<data_collection:string,event_count:bigint>>"
_COLUMN = (
    "struct<name:string,jdbcType:int,typeName:string,typeExpression:string,charsetName:string,length:int,scale:int,"
    "position:int,optional:boolean,autoIncremented:boolean,generated:boolean,comment:string,"
    "defaultValueExpression:string,enumValues:array<string>>"
)
_TABLE = f"defaultCharsetName string, primaryKeyColumnNames array<string>, columns array<{_COLUMN}>, comment string"
# java.sql.Types.OTHER, where a source does not tell a column's JDBC type; the field is required.
_OTHER_TYPE = 1111


@dataclass(frozen=True)
class Metadata:
    """What the rows that are not data become.

    Args:
        topics: where they go.
        shape: the generation of events.
        source: Spark SQL of the source block.
        schema_changes: whether schema changes are written.
        value_schemas: whether values carry their schema.
        key_schemas: whether keys carry their schema.
    """

    topics: Topics
    shape: Shape
    source: str
    schema_changes: bool
    value_schemas: bool
    key_schemas: bool

    @property
    def taken(self) -> str:
        """The condition of the rows that give such a message."""
        edges = f"op in ({EDGES}, {HEARTBEAT})"
        return f"({edges} or op = {SCHEMA} and source['change'] is not null)" if self.schema_changes else f"({edges})"

    def topic(self) -> str:
        """Spark SQL of the topic."""
        topics = self.topics
        return _case(*map(literal, (topics.schema_changes, topics.transaction, topics.heartbeat)))

    def key(self) -> str:
        """Spark SQL of the key's text."""
        return self._texts(
            self.key_schemas,
            [[("databaseName", "table.database")], [("id", "transaction.id")], [("serverName", self._prefix)]],
            [schema_change_key(self.shape), transaction_key(self.shape), heartbeat_key(self.shape)],
        )

    def value(self) -> str:
        """Spark SQL of the value's text."""
        edge = [
            ("status", "upper(kind)"),
            ("id", "transaction.id"),
            ("event_count", "if(kind = 'end', transaction.total_order, null)"),
            ("data_collections", f"if(kind = 'end', from_json(source['data_collections'], '{_COLLECTIONS}'), null)"),
        ]
        if self.shape.detailed:
            edge.append(("ts_ms", "unix_millis(event_time)"))
        return self._texts(
            self.value_schemas,
            [self._change(), edge, [("ts_ms", "unix_millis(capture_time)")]],
            [schema_change_value(self.shape), transaction_value(self.shape), heartbeat_value(self.shape)],
        )

    def position(self) -> str:
        """Spark SQL of the message's position.

        Shape 3 tells the tables of a snapshot by the alphabet: their names, in hex up to a zero byte, come before the
        place in the include list.
        """
        if not self.shape.detailed:
            return "position"
        id = "concat_ws('.', table.database, table.schema, table.name)"
        parts = ("substring_index(position, '/', 2)", "'/'", f"lower(hex({id}))", "'00'")
        sorted_by_name = f"concat({', '.join(parts)}, substring_index(position, '/', -1))"
        return f"if(kind = {SCHEMA} and snapshot is not null, {sorted_by_name}, position)"

    @property
    def _prefix(self) -> str:
        return literal(self.topics.prefix)

    def _change(self) -> list[tuple[str, str]]:
        shape = self.shape
        column = [
            *((name, f"c.{name}") for name in ("name",)),
            ("jdbcType", f"coalesce(c.jdbcType, {_OTHER_TYPE})"),
            ("nativeType", "cast(null as int)"),
            *((name, f"c.{name}") for name in ("typeName", "typeExpression", "charsetName", "length", "scale")),
            *((name, f"c.{name}") for name in ("position", "optional")),
            # The old generation did not know what numbers a column itself.
            ("autoIncremented", "c.autoIncremented" if shape.detailed else "false"),
            ("generated", "c.generated"),
        ]
        table = [("defaultCharsetName", "t.defaultCharsetName"), ("primaryKeyColumnNames", "t.primaryKeyColumnNames")]
        if shape.detailed:
            column += [(name, f"c.{name}") for name in ("comment", "defaultValueExpression", "enumValues")]
        table.append(("columns", f"transform(t.columns, c -> {_named_struct(column)})"))
        if shape.detailed:
            table.append(("comment", "t.comment"))
        known = f"from_json(table_schema, {literal(_TABLE)})"
        # What is dropped has no structure any more, where the schema allows that to be said.
        known = f"if(source['change'] = 'DROP', null, {known})" if shape.detailed else known
        # The lambda makes the parsed structure one value that is read more than once.
        one = f"transform(array({known}), t -> if(t is null, null, {_named_struct(table)}))[0]"
        quoted = "concat('\"', concat_ws('\".\"', table.database, table.schema, table.name), '\"')"
        change = [("type", "source['change']"), ("id", quoted), ("table", one)]
        times = [("ts_ms", "unix_millis(capture_time)")] if shape.detailed else []
        return [
            ("source", self.source),
            *times,
            ("databaseName", "table.database"),
            ("schemaName", "table.schema"),
            ("ddl", "source['ddl']"),
            ("tableChanges", f"array({_named_struct(change)})"),
        ]

    @staticmethod
    def _texts(
        with_schemas: bool, fields: Sequence[Sequence[tuple[str, str]]], schemas: Sequence[dict[str, Any]]
    ) -> str:
        texts = []
        for found, schema in zip(fields, schemas, strict=True):
            text = f"to_json({_named_struct(found)}, map('ignoreNullFields', 'false'))"
            opening = literal(f'{{"schema":{to_text(schema)},"payload":')
            texts.append(f"concat({opening}, {text}, '}}')" if with_schemas else text)
        return _case(*texts)


def _case(change: str, edge: str, heartbeat: str) -> str:
    return f"case when kind = {SCHEMA} then {change} when kind in ({EDGES}) then {edge} else {heartbeat} end"


def _named_struct(fields: Sequence[tuple[str, str]]) -> str:
    return f"named_struct({', '.join(f'{literal(name)}, {expression}' for name, expression in fields)})"


def _named(shape: Shape, fields: list[dict[str, Any]], name: str, **more: Any) -> dict[str, Any]:
    version = shape.metadata_version
    return struct(fields, name=f"{CONNECTOR_SCHEMAS}.{name}", version=version, **{"optional": False, **more})


def schema_change_key(shape: Shape) -> dict[str, Any]:
    """The Connect schema of a schema change's key."""
    return _named(shape, [plain("string", "databaseName")], "sqlserver.SchemaChangeKey")


def schema_change_value(shape: Shape) -> dict[str, Any]:
    """The Connect schema of a schema change."""
    text, number, flag = "string", "int32", "boolean"
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
        source_schema(shape),
        *([plain("int64", "ts_ms")] if shape.detailed else []),
        *(plain(text, name, optional=True) for name in ("databaseName", "schemaName", "ddl")),
        listed(_named(shape, change, "schema.Change"), "tableChanges", optional=False),
    ]
    return _named(shape, fields, "sqlserver.SchemaChangeValue")


def transaction_key(shape: Shape) -> dict[str, Any]:
    """The Connect schema of the key of a transaction's edge."""
    return _named(shape, [plain("string", "id")], "common.TransactionMetadataKey")


def transaction_value(shape: Shape) -> dict[str, Any]:
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
    return _named(shape, fields, "common.TransactionMetadataValue")


def heartbeat_key(shape: Shape) -> dict[str, Any]:
    """The Connect schema of a heartbeat's key."""
    return _named(shape, [plain("string", "serverName")], "common.ServerNameKey")


def heartbeat_value(shape: Shape) -> dict[str, Any]:
    """The Connect schema of a heartbeat."""
    return _named(shape, [plain("int64", "ts_ms")], "common.Heartbeat")
