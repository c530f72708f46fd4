"""Debezium's messages that are no data change events: schema changes, transaction edges and heartbeats.

Their texts are made from the change rows alone, by one set of expressions whatever the number of tables.

Source: recorded events of the SQL Server connector 1.7.2 and 3.6.1 (rows 12 to 19 and 22 of their list of
differences), and of the MariaDB connector 3.0.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.changes.letter_case import lower, upper
from headrace.changes.typed import literal
from headrace.formats.debezium_connectors import Block, Forms
from headrace.formats.debezium_schema import Shape, listed, plain, struct, to_text
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
        forms: the source blocks.
        schema_changes: whether schema changes are written.
        value_schemas: whether values carry their schema.
        key_schemas: whether keys carry their schema.
    """

    topics: Topics
    shape: Shape
    forms: Forms
    schema_changes: bool
    value_schemas: bool
    key_schemas: bool

    @property
    def taken(self) -> str:
        """The condition of the rows that give such a message."""
        edges = f"op in ({EDGES}, {HEARTBEAT})"
        changes = f"op = {SCHEMA} and coalesce(source['change'], source['ddl']) is not null"
        return f"({edges} or {changes})" if self.schema_changes else f"({edges})"

    def topic(self) -> str:
        """Spark SQL of the topic."""
        topics = self.topics
        return _case(*map(literal, (topics.schema_changes, topics.transaction, topics.heartbeat)))

    def key(self) -> str:
        """Spark SQL of the key's text."""
        change = self._opened(
            self.key_schemas,
            _json([("databaseName", "coalesce(table.database, '')")]),
            self.forms.choice(lambda block: _opening(schema_change_key(self.shape, block))),
        )
        edge = self._opened(self.key_schemas, _json([("id", "transaction.id")]), _opening(transaction_key(self.shape)))
        heartbeat = self._opened(
            self.key_schemas, _json([("serverName", self._prefix)]), _opening(heartbeat_key(self.shape))
        )
        return _case(change, edge, heartbeat)

    def value(self) -> str:
        """Spark SQL of the value's text."""
        edge = [
            ("status", upper("kind")),
            ("id", "transaction.id"),
            ("event_count", "if(kind = 'end', transaction.total_order, null)"),
            ("data_collections", f"if(kind = 'end', from_json(source['data_collections'], '{_COLLECTIONS}'), null)"),
        ]
        if self.shape.detailed:
            edge.append(("ts_ms", "unix_millis(event_time)"))
        source = self.forms.choice(Block.sql)
        return _case(
            self._opened(
                self.value_schemas,
                f"concat('{{\"source\":', {source}, ',', substr({_json(self._change())}, 2))",
                self.forms.choice(lambda block: _opening(schema_change_value(self.shape, block))),
            ),
            self._opened(self.value_schemas, _json(edge), _opening(transaction_value(self.shape))),
            self._opened(
                self.value_schemas,
                _json([("ts_ms", "unix_millis(capture_time)")]),
                _opening(heartbeat_value(self.shape)),
            ),
        )

    def position(self) -> str:
        """Spark SQL of the message's position.

        Shape 3 tells the tables of a snapshot by the alphabet: their names, in hex up to a zero byte, come before the
        place in the include list.
        """
        if not self.shape.detailed:
            return "position"
        id = "concat_ws('.', table.database, table.schema, table.name)"
        parts = ("substring_index(position, '/', 2)", "'/'", lower(f"hex({id})"), "'00'")
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
        parts = ", ".join(f"nullif(table.{part}, '')" for part in ("database", "schema", "name"))
        quoted = f"concat('\"', concat_ws('\".\"', {parts}), '\"')"
        kind = "coalesce(source['change'], 'ALTER')"
        change = _named_struct([("type", kind), ("id", quoted), ("table", one)])
        # A statement whose effect nobody told has no changes of tables.
        changes = f"filter(array({change}), x -> source['change'] is not null or table_schema is not null)"
        times = [("ts_ms", "unix_millis(capture_time)")] if shape.detailed else []
        return [
            *times,
            ("databaseName", "table.database"),
            ("schemaName", "nullif(table.schema, '')"),
            ("ddl", "source['ddl']"),
            ("tableChanges", changes),
        ]

    @staticmethod
    def _opened(with_schema: bool, text: str, opening: str) -> str:
        return f"concat({opening}, {text}, '}}')" if with_schema else text


def _opening(schema: dict[str, Any]) -> str:
    return literal(f'{{"schema":{to_text(schema)},"payload":')


def _json(fields: Sequence[tuple[str, str]]) -> str:
    return f"to_json({_named_struct(fields)}, map('ignoreNullFields', 'false'))"


def _case(change: str, edge: str, heartbeat: str) -> str:
    return f"case when kind = {SCHEMA} then {change} when kind in ({EDGES}) then {edge} else {heartbeat} end"


def _named_struct(fields: Sequence[tuple[str, str]]) -> str:
    return f"named_struct({', '.join(f'{literal(name)}, {expression}' for name, expression in fields)})"


def _named(shape: Shape, fields: list[dict[str, Any]], name: str, **more: Any) -> dict[str, Any]:
    version = shape.metadata_version
    return struct(fields, name=f"{CONNECTOR_SCHEMAS}.{name}", version=version, **{"optional": False, **more})


def schema_change_key(shape: Shape, source: Block) -> dict[str, Any]:
    """The Connect schema of a schema change's key."""
    return _named(shape, [plain("string", "databaseName")], f"{_last(source)}.SchemaChangeKey")


def schema_change_value(shape: Shape, source: Block) -> dict[str, Any]:
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
        source.schema(),
        *([plain("int64", "ts_ms")] if shape.detailed else []),
        *(plain(text, name, optional=True) for name in ("databaseName", "schemaName", "ddl")),
        listed(_named(shape, change, "schema.Change"), "tableChanges", optional=False),
    ]
    return _named(shape, fields, f"{_last(source)}.SchemaChangeValue")


def _last(source: Block) -> str:
    return source.connector.namespace.removeprefix(f"{CONNECTOR_SCHEMAS}.")


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
