"""The options of Debezium's JSON format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.formats.base import COMMON
from headrace.formats.debezium.connect_schemas import FieldRules
from headrace.formats.debezium.shapes import SHAPES, EventShape
from headrace.formats.debezium.topics import pattern, patterns
from headrace.formats.debezium.wire_types import ValueModes
from headrace.options import OTHER_NAMES, Names, Option, items


def operations(given: Any) -> frozenset[str]:
    """A list of the letters c, u, d and t, or `none`."""
    letters = frozenset(items(given))
    if letters - {"c", "u", "d", "t", "none"}:
        raise ValueError("it must be none, or a list of c, u, d and t")
    if "none" in letters and len(letters) > 1:
        raise ValueError("none can't be combined with others")
    return letters - {"none"}


def field_names(given: Any) -> str:
    """`none` or `avro`; what `sanitize.field.names` takes, true or false, means the latter or the former."""
    text = str(given).strip().lower()
    return {"true": "avro", "false": "none"}.get(text, text)


ENCODING = (
    Option(
        "topic_prefix",
        str,
        "The server's logical name: the first part of every topic, and `source.name`.",
        default=None,
        aliases=("topic.prefix", "database.server.name"),
    ),
    Option(
        "shape",
        str,
        "The generation of events: `1.7` (topics server.schema.table); `2.3`, as documented for the Oracle and "
        "Db2 connectors; `3` (topics prefix.db.schema.table, without the database for Oracle, Db2 and "
        "PostgreSQL); or `3.0`, as the first releases of 3 wrote them.",
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
        "The same for keys and key headers. Default: the value of `schemas_enable`.",
        default=None,
        aliases=("key.converter.schemas.enable",),
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
        "Operations to skip: c, u, d, t, or none.",
        default=frozenset("t"),
        aliases=("skipped.operations",),
        names=OTHER_NAMES,
    ),
    Option(
        "decimal_handling_mode",
        str,
        "`precise` writes the unscaled bytes, `string` plain digits, `double` a binary number, which may lose digits.",
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
        "interval_handling_mode",
        str,
        "`string` writes intervals as they are, `numeric` in microseconds, with months of 30.4375 days.",
        default="string",
        choices=("string", "numeric"),
        aliases=("interval.handling.mode",),
    ),
    Option(
        "unavailable_value_placeholder",
        str,
        "The placeholder, in shapes 2.3 and 3, for a text or bytes value that a change does not carry; columns of "
        "other types are left out. Shapes 1.7 and 3.0 write null.",
        default="__debezium_unavailable_value",
        aliases=("unavailable.value.placeholder",),
    ),
    Option(
        "event_converting_failure_handling_mode",
        str,
        "What to do with a value that its wire type can't hold, such as 9999-12-31 in a datetime2(7), because a "
        "timestamp in nanoseconds ends in 2262. `warn` writes null, as Debezium does, or the nearest value if the "
        "column can't be NULL; the run counts such values and logs the first of each batch with table, column and "
        "key. `fail` stops the run and names the value's place. A value in a key always stops the run.",
        default="warn",
        choices=("fail", "warn"),
        aliases=("event.converting.failure.handling.mode",),
    ),
    Option(
        "connector_version",
        str,
        "The value of `source.version`. Default: the version in the row's source (for a decoded event), else "
        "1.7.2.Final in shape 1.7, 2.3.4.Final (Db2 2.3.7.Final) in 2.3 and 3.6.1.Final in 3.",
        default=None,
    ),
    Option(
        "null_as_default",
        bool,
        "Whether to write NULL in a nullable column with a default as the default, as Connect's converters do.",
        default=False,
        aliases=("replace.null.with.default", "value.converter.replace.null.with.default"),
    ),
    Option(
        "schema_name_adjustment_mode",
        str,
        "`avro` changes schema names to valid Avro names (1.7 always does), `none` keeps them (the default in "
        "shape 3).",
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
        "Whether to write a message to the topic named like the prefix when a table is captured, altered or dropped.",
        default=True,
        aliases=("include.schema.changes",),
    ),
    Option(
        "topic_delimiter",
        str,
        "The separator between the parts of a topic.",
        default=".",
        choices=(".", "_", "-"),
        aliases=("topic.delimiter",),
    ),
    Option(
        "topic_transaction",
        str,
        "The last part of the topic for transaction metadata, after the prefix.",
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
        "The first part of the topic for heartbeats, before the prefix.",
        default="__debezium-heartbeat",
        aliases=("heartbeat.topics.prefix", "topic.heartbeat.prefix"),
    ),
    Option(
        "topic_route_regex",
        pattern,
        "Routes tables whose whole topic matches this pattern to `topic_route_replacement`; topic and schema "
        "names follow. Python's syntax, with named groups as in Java too.",
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
        "Whether the key of a routed message gets a field with its table, because one topic holds keys of several "
        "tables.",
        default=True,
        aliases=("key.enforce.uniqueness",),
    ),
    Option(
        "key_field_name",
        str,
        "The name of that field; decoding removes it from the key.",
        default="__dbz__physicalTableIdentifier",
        aliases=("key.field.name",),
    ),
    Option(
        "key_field_regex",
        pattern,
        "With `key_field_replacement`, derives that field's value from the topic before routing. Default: that topic.",
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
        "Patterns, separated by commas, of columns (`schema.table.column`, optionally with the database in front) "
        "whose source type, length and scale (and name, in shape 3) go into the parameters of their schema.",
        default=(),
        aliases=("column.propagate.source.type",),
        names=Names("columns", "informs"),
    ),
    Option(
        "datatype_propagate_source_type",
        patterns,
        "The same by type (`schema.table.type`, optionally with the database in front).",
        default=(),
        aliases=("datatype.propagate.source.type",),
        names=OTHER_NAMES,
    ),
    Option(
        "field_name_adjustment_mode",
        field_names,
        "`avro` writes `_` for each character of a column's name that Avro does not allow in a field, and before "
        "a leading digit; `none` keeps names. `sanitize.field.names` takes true or false.",
        default="none",
        choices=("none", "avro"),
        aliases=("field.name.adjustment.mode", "sanitize.field.names"),
    ),
    Option(
        "unavailable_max_as_null",
        bool,
        "Whether to do as recorded from 3.6.1: in shape 3 only text, ntext, image and xml columns have the "
        "placeholder, and none in a delete, while varchar(max), nvarchar(max) and varbinary(max) are null.",
        default=False,
    ),
)
"""How messages are written; decoding with a given structure looks at the handling modes too."""

DECODING = (
    Option(
        "unwrapped",
        bool,
        "Decoding: whether values are flat rows, as ExtractNewRecordState writes them, with added fields (`__op`, "
        "`__deleted`, `__table`, `__source_ts_ms`) among the columns. A row without an operation is an upsert and "
        "becomes a create; without a table it belongs to the last parts of its topic.",
        default=False,
    ),
    Option(
        "unwrapped_prefix",
        str,
        "Decoding: the prefix of added fields; such fields are not columns.",
        default="__",
        aliases=("add.fields.prefix",),
    ),
    Option(
        "tombstone_as_delete",
        bool,
        "Decoding of flat rows: whether a message with a key and a null value is a delete of that key, as it is "
        "when deletes are not rewritten; otherwise it is a `tombstone` row.",
        default=False,
    ),
)
"""How messages are read."""

OPTIONS = (*COMMON, *ENCODING, *DECODING)


def value_modes(settings: Mapping[str, Any]) -> ValueModes:
    """How values are written on the wire."""
    return ValueModes(
        decimals=settings["decimal_handling_mode"],
        times=settings["time_precision_mode"],
        binary=settings["binary_handling_mode"],
        placeholder=settings["unavailable_value_placeholder"],
        failing=settings["event_converting_failure_handling_mode"] == "fail",
        null_as_default=settings["null_as_default"],
        recorded_placeholders=settings["unavailable_max_as_null"],
        intervals=settings["interval_handling_mode"],
    )


def field_rules(settings: Mapping[str, Any], shape: EventShape) -> FieldRules:
    """How columns become fields on the wire."""
    return FieldRules(
        adjustment=settings["field_name_adjustment_mode"],
        propagated_columns=settings["column_propagate_source_type"],
        propagated_types=settings["datatype_propagate_source_type"],
        column_names=shape.column_names,
    )
