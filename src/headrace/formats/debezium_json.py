"""Debezium's change events as JSON: what its connectors put into Kafka through Connect's JsonConverter."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.changes import TableSchema
from headrace.changes.typed import literal
from headrace.errors import OptionError
from headrace.formats.base import Format
from headrace.formats.debezium_decode import Readings, change_rows, collected, known_reading, schema_rows, with_texts
from headrace.formats.debezium_encode import EncodePlan
from headrace.formats.debezium_schema import SHAPES, FieldRules, Shape, key_schema, value_schema
from headrace.formats.debezium_topics import pattern, patterns, topics
from headrace.formats.debezium_values import ValueModes
from headrace.options import Option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def table_schemas(given: Any) -> tuple[TableSchema, ...]:
    """Structures as `TableSchema`s, their JSON text, or lists of either."""
    if isinstance(given, TableSchema):
        return (given,)
    if isinstance(given, str):
        try:
            data = json.loads(given)
        except json.JSONDecodeError as error:
            raise ValueError("it is neither a TableSchema nor its JSON") from error
        return table_schemas(data)
    if isinstance(given, Mapping):
        try:
            return (TableSchema.from_json(given),)
        except (KeyError, TypeError) as error:
            raise ValueError(f"its JSON lacks {error}") from error
    if isinstance(given, (list, tuple)):
        return tuple(schema for item in given for schema in table_schemas(item))
    raise ValueError("it is neither a TableSchema nor its JSON")


def operations(given: Any) -> frozenset[str]:
    """A list of the letters c, u, d and t, or `none`."""
    items = given.split(",") if isinstance(given, str) else list(given)
    letters = frozenset(str(item).strip() for item in items if str(item).strip())
    if letters - {"c", "u", "d", "t", "none"}:
        raise ValueError("it may hold c, u, d, t, or be none")
    if "none" in letters and len(letters) > 1:
        raise ValueError("none stands alone")
    return letters - {"none"}


def field_names(given: Any) -> str:
    """`none` or `avro`; what `sanitize.field.names` takes, true or false, means the latter or the former."""
    text = str(given).strip().lower()
    return {"true": "avro", "false": "none"}.get(text, text)


class DebeziumJson(Format):
    """Debezium's JSON events, in the shapes of its SQL Server connector 1.7 and 3.

    Encoding: every data row becomes the event that Debezium writes for it, field for field and in the same order. A
    delete is followed by its tombstone; an update that changes the key becomes delete, tombstone and create with
    Debezium's key headers. The messages of one change share its position, the second and third with `:1` and `:2`
    behind it. A `schema` row that is a change (`source['change']`) becomes a message of the schema-change topic,
    `begin` and `end` rows of the transaction topic, `heartbeat` rows of the heartbeat topic; other rows give no
    message. In shape 3 the schema changes of a snapshot come in the order of the tables' names.

    Ordering: none is imposed; `position` gives it. Idempotence: the rows alone decide the bytes (the envelope's clock
    is `capture_time`). Process: expressions in executors; a batch DataFrame's `schema` rows are collected on the driver
    when `encode` is called, which runs a small job over them (persist the batch before, or give the option `schema`).

    Differences from recorded events, on purpose: NULL stays NULL beside a default (`null_as_default` for the recorded
    behaviour); a large value that a change does not carry has the placeholder whatever its type
    (`unavailable_max_as_null`); the commit time is the transaction's end, also as `ts_ms` of BEGIN and END; times keep
    their digits and defaults are unescaped where 1.7.2 cut them or did not.

    Source: seed 000 (data change events); spec/sqlserver.md sections 10 to 12; spec/format_debezium.md.
    """

    name = "debezium_json"
    options = (
        Option(
            "topic_prefix",
            str,
            "The server's logical name: first part of every topic, and `source.name`.",
            default=None,
            aliases=("topic.prefix", "database.server.name"),
        ),
        Option(
            "shape",
            str,
            "The generation of events: `1.7` (topics server.schema.table), `3` (topics prefix.db.schema.table), or "
            "`3.0`, as the first releases of 3 wrote them.",
            default="3",
            choices=tuple(SHAPES),
        ),
        Option(
            "schemas_enable",
            bool,
            "Whether each value is wrapped as {schema, payload}, as JsonConverter does with schemas on.",
            default=False,
            aliases=("value.converter.schemas.enable", "schemas.enable"),
        ),
        Option(
            "key_schemas_enable",
            bool,
            "The same for keys and key headers; as `schemas_enable` where not given.",
            default=None,
            aliases=("key.converter.schemas.enable",),
        ),
        Option(
            "schema",
            table_schemas,
            "The structures (TableSchema, or its JSON, or a list) of the tables; needed for streaming DataFrames, "
            "where schema rows can't be collected. Where given, schema rows are not looked at.",
            default=None,
        ),
        Option(
            "tombstones_on_delete",
            bool,
            "Whether a delete is followed by a message with the same key and a null value.",
            default=True,
            aliases=("tombstones.on.delete",),
        ),
        Option(
            "skipped_operations",
            operations,
            "Operations that give no message: c, u, d, t, or none.",
            default=frozenset("t"),
            aliases=("skipped.operations",),
        ),
        Option(
            "decimal_handling_mode",
            str,
            "`precise` writes the unscaled bytes, `string` plain digits, `double` a binary number, which may lose "
            "digits.",
            default="precise",
            choices=("precise", "string", "double"),
            aliases=("decimal.handling.mode",),
        ),
        Option(
            "time_precision_mode",
            str,
            "How dates and times are written; isostring, microseconds and nanoseconds need shape 3.",
            default="adaptive",
            choices=SHAPES["3"].time_modes,
            aliases=("time.precision.mode",),
        ),
        Option(
            "binary_handling_mode",
            str,
            "`bytes` (base64 in JSON), or text as `base64`, `base64-url-safe` or `hex`.",
            default="bytes",
            choices=("bytes", "base64", "base64-url-safe", "hex"),
            aliases=("binary.handling.mode",),
        ),
        Option(
            "unavailable_value_placeholder",
            str,
            "What stands, in shape 3, for a text or bytes value that a change does not carry; shape 1.7 writes null. "
            "Columns of other types are null in both.",
            default="__debezium_unavailable_value",
            aliases=("unavailable.value.placeholder",),
        ),
        Option(
            "event_converting_failure_handling_mode",
            str,
            "`fail` stops the query at a value that can't be written (a datetime2(7) beyond the years 1677 to 2262, in "
            "nanoseconds) and names its column; `warn` writes null, as Debezium does by default.",
            default="fail",
            choices=("fail", "warn"),
            aliases=("event.converting.failure.handling.mode",),
        ),
        Option(
            "connector_version",
            str,
            "What stands in `source.version`; 1.7.2.Final in shape 1.7 and 3.6.1.Final in shape 3 where not given.",
            default=None,
        ),
        Option(
            "null_as_default",
            bool,
            "Whether NULL in a nullable column with a default is written as the default, as Connect's converters do.",
            default=False,
            aliases=("replace.null.with.default", "value.converter.replace.null.with.default"),
        ),
        Option(
            "schema_name_adjustment_mode",
            str,
            "`avro` makes schema names fit for Avro (always done by 1.7), `none` leaves them (default of shape 3).",
            default=None,
            choices=("none", "avro"),
            aliases=("schema.name.adjustment.mode",),
        ),
        Option(
            "context_headers",
            bool,
            "Whether shape 3 has the four `__debezium.context.*` headers; their runId is the same for one topic "
            "prefix, so that repeated batches have the same bytes.",
            default=True,
            aliases=("extended.headers.enabled",),
        ),
        Option(
            "include_schema_changes",
            bool,
            "Whether tables that are captured, altered or dropped give a message in the topic named as the prefix.",
            default=True,
            aliases=("include.schema.changes",),
        ),
        Option(
            "topic_delimiter",
            str,
            "What stands between the parts of a topic.",
            default=".",
            choices=(".", "_", "-"),
            aliases=("topic.delimiter",),
        ),
        Option(
            "topic_transaction",
            str,
            "Last part of the topic of transaction edges, behind the prefix.",
            default="transaction",
            aliases=("topic.transaction",),
        ),
        Option(
            "transaction_topic",
            str,
            "The whole name of that topic, in which `${database.server.name}` is the prefix.",
            default=None,
            aliases=("transaction.topic", "database.transaction.topic"),
        ),
        Option(
            "heartbeat_topics_prefix",
            str,
            "First part of the topic of heartbeats, before the prefix.",
            default="__debezium-heartbeat",
            aliases=("heartbeat.topics.prefix", "topic.heartbeat.prefix"),
        ),
        Option(
            "topic_route_regex",
            pattern,
            "Tables whose topic this pattern matches as a whole are routed to `topic_route_replacement`; topic and "
            "schema names follow. Written as Python takes it, named groups as in Java too.",
            default=None,
            aliases=("topic.regex",),
        ),
        Option(
            "topic_route_replacement",
            str,
            "The topic for `topic_route_regex`; `$1` and `${name}` stand for the pattern's groups.",
            default=None,
            aliases=("topic.replacement",),
        ),
        Option(
            "key_enforce_uniqueness",
            bool,
            "Whether the key of a routed message gets a field that says its table, because keys of several tables "
            "meet in one topic.",
            default=True,
            aliases=("key.enforce.uniqueness",),
        ),
        Option(
            "key_field_name",
            str,
            "The name of that field; decoding leaves it out of the key.",
            default="__dbz__physicalTableIdentifier",
            aliases=("key.field.name",),
        ),
        Option(
            "key_field_regex",
            pattern,
            "With `key_field_replacement`, makes that field's value from the topic before routing, which else stands "
            "there.",
            default=None,
            aliases=("key.field.regex",),
        ),
        Option(
            "key_field_replacement",
            str,
            "The value for `key_field_regex`, with `$1` and `${name}`.",
            default=None,
            aliases=("key.field.replacement",),
        ),
        Option(
            "column_propagate_source_type",
            patterns,
            "Patterns, with commas between, of columns (`schema.table.column`, with or without the database in front) "
            "whose source type, length and scale (and name, in shape 3) stand in the parameters of their schema.",
            default=(),
            aliases=("column.propagate.source.type",),
        ),
        Option(
            "datatype_propagate_source_type",
            patterns,
            "The same by type (`schema.table.type`, with or without the database in front).",
            default=(),
            aliases=("datatype.propagate.source.type",),
        ),
        Option(
            "field_name_adjustment_mode",
            field_names,
            "`avro` writes `_` for each character of a column's name that Avro does not allow in a field, and before a "
            "leading digit; `none` leaves names. `sanitize.field.names` takes true or false.",
            default="none",
            choices=("none", "avro"),
            aliases=("field.name.adjustment.mode", "sanitize.field.names"),
        ),
        Option(
            "unavailable_max_as_null",
            bool,
            "Whether, as recorded of 3.6.1, only text, ntext, image and xml columns have the placeholder in shape 3, "
            "and none in a delete, while varchar(max), nvarchar(max) and varbinary(max) are null.",
            default=False,
        ),
    )

    def encode(self, changes: DataFrame) -> DataFrame:
        """Change rows, with images as maps, to Debezium events.

        Raises:
            OptionError: an option is missing or contradicts another; a streaming DataFrame without the option `schema`;
            a column type that has no Debezium form; images that are not maps.
        """
        settings = self.settings
        prefix = settings["topic_prefix"]
        if not prefix:
            raise OptionError(
                "Option 'topic_prefix' of format 'debezium_json' is missing.",
                remedy="Set it to the server's logical name, the first part of the topics.",
            )
        shape = SHAPES[settings["shape"]]
        if settings["time_precision_mode"] not in shape.time_modes:
            raise OptionError(
                f"Option 'time_precision_mode' can't be '{settings['time_precision_mode']}' in shape {shape.name}.",
                remedy=f"Known there: {', '.join(shape.time_modes)}.",
            )
        key_schemas = settings["key_schemas_enable"]
        plan = EncodePlan(
            schemas=self._schemas(changes),
            topics=topics(settings, shape),
            shape=shape,
            version=settings["connector_version"] or shape.connector_version,
            modes=self._modes(),
            schema_names=settings["schema_name_adjustment_mode"] or shape.schema_names,
            rules=self._rules(shape),
            value_schemas=settings["schemas_enable"],
            key_schemas=settings["schemas_enable"] if key_schemas is None else key_schemas,
            tombstones=settings["tombstones_on_delete"],
            skipped=settings["skipped_operations"],
            context=settings["context_headers"],
            run_id=str(uuid.uuid5(uuid.NAMESPACE_URL, f"headrace:{prefix}")),
            schema_changes=settings["include_schema_changes"],
        )
        return plan.apply(changes)

    def decode(self, messages: DataFrame) -> DataFrame:
        """Debezium events with their schemas (`schemas.enable`) to change rows.

        A batch DataFrame is read twice: first the structures that occur in it are collected on the driver. Each gives a
        `schema` row before its first message. With the option `schema` that first job is left out, values and keys may
        come without their schemas, and columns keep their declared digits; the handling modes must then be set as the
        writer had them. Streaming DataFrames need that option, and give no `schema` rows.

        Tombstones become `tombstone` rows. Schema changes become `schema` rows with `source['change']` and
        `source['ddl']` (and SQL Server's types), edges of transactions `begin` and `end` rows, heartbeats `heartbeat`
        rows, with and without their schemas. What can't be read, and what is none of these, becomes an `error` row that
        keeps the message. A column that holds the unavailable-value placeholder is left out of the image. The field
        that a router adds to keys (`key_field_name`) is left out of the key; a tombstone in a topic of several tables
        carries the name of one of them.

        Raises:
            OptionError: a streaming DataFrame without the option `schema`, or two structures of one table in it.
        """
        given = self.settings["schema"]
        if given is None and messages.isStreaming:
            raise OptionError(
                "Format 'debezium_json' needs the option 'schema' to decode a streaming DataFrame.",
                remedy="Give the tables' TableSchemas, or decode inside foreachBatch.",
            )
        texts = with_texts(messages)
        placeholder = self.settings["unavailable_value_placeholder"]
        placeholders = (placeholder, base64.b64encode(placeholder.encode()).decode())
        readings = collected(texts, self.settings["key_field_name"]) if given is None else self._given_readings(given)
        rows = change_rows(texts, readings, placeholders, by_topic=given is not None)
        if messages.isStreaming or not readings.structures:
            return rows
        return schema_rows(messages, readings).unionAll(rows)

    def _given_readings(self, given: tuple[TableSchema, ...]) -> Readings:
        shape, prefix, modes = SHAPES[self.settings["shape"]], self.settings["topic_prefix"], self._modes()
        names, rules = topics(self.settings, shape), self._rules(shape)
        readings = Readings()
        for schema in given:
            topic = names.of(schema.id)
            taken = readings.topics.get(topic)
            if taken == schema.id:
                raise OptionError(
                    f"Option 'schema' of format 'debezium_json' holds two structures of table {schema.id}.",
                    remedy="Keep the one that the messages follow.",
                )
            if taken is not None:
                raise OptionError(
                    f"Tables {taken} and {schema.id} share the topic '{topic}', so a structure can't be told by it.",
                    remedy="Decode messages with schemas, without the option 'schema'.",
                )
            readings.topics[topic] = schema.id
            dot = names.delimiter
            # Without a prefix, whatever stands before the table's parts.
            ending = f"endswith(concat('{dot}', topic), {literal(dot + topic)})"
            mark = f"topic = {literal(topic)}" if prefix else ending
            row = value_schema(schema, topic, shape, modes, rules)
            known_reading(readings, schema, mark, row, key_schema(schema, topic, modes, rules))
        return readings

    def _modes(self) -> ValueModes:
        settings = self.settings
        return ValueModes(
            decimals=settings["decimal_handling_mode"],
            times=settings["time_precision_mode"],
            binary=settings["binary_handling_mode"],
            placeholder=settings["unavailable_value_placeholder"],
            failing=settings["event_converting_failure_handling_mode"] == "fail",
            null_as_default=settings["null_as_default"],
            recorded_placeholders=settings["unavailable_max_as_null"],
        )

    def _rules(self, shape: Shape) -> FieldRules:
        settings = self.settings
        return FieldRules(
            adjustment=settings["field_name_adjustment_mode"],
            propagated_columns=settings["column_propagate_source_type"],
            propagated_types=settings["datatype_propagate_source_type"],
            column_names=shape.column_names,
        )

    def _schemas(self, changes: DataFrame) -> tuple[TableSchema, ...]:
        for image in ("before", "after"):
            if changes.schema[image].dataType.typeName() != "map":
                raise OptionError(
                    f"Format 'debezium_json' can't encode change rows whose '{image}' is no map.",
                    remedy="Encode before headrace.typed().",
                )
        given = self.settings["schema"]
        if given is None:
            if changes.isStreaming:
                raise OptionError(
                    "Format 'debezium_json' needs the option 'schema' to encode a streaming DataFrame.",
                    remedy="Give the tables' TableSchemas, or encode inside foreachBatch.",
                )
            texts = changes.where("op = 'schema' and table_schema is not null").select("table_schema").distinct()
            given = tuple(TableSchema.from_text(row[0]) for row in texts.collect())
        by_fingerprint = {schema.fingerprint: schema for schema in given}
        return tuple(by_fingerprint[fingerprint] for fingerprint in sorted(by_fingerprint))
