"""The options of Debezium's JSON format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from headrace.changes import LogicalType, TableSchema
from headrace.formats.base import FormatSettings
from headrace.formats.debezium.connect_schemas import FieldRules
from headrace.formats.debezium.connectors import SHAPES, EventShape
from headrace.formats.debezium.wire_types import ValueModes
from headrace.options import OTHER_NAMES, Names, items
from headrace.settings import option

_UINT64 = LogicalType("uint64")
_SHOWN = 5


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression as Debezium's options take it.

    Named groups may be written `(?<name>...)`; `\\w`, `\\d` and `\\s` mean ASCII characters, as in Java.

    Raises:
        ValueError: it is none.
    """
    try:
        return re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", text), re.ASCII)
    except re.error as error:
        raise ValueError(f"it is not a regular expression ({error})") from error


def patterns(given: Any) -> tuple[re.Pattern[str], ...]:
    r"""A list of regular expressions with commas between (a comma inside one is written `\,`), blind to case.

    Raises:
        ValueError: one of them is none.
    """
    texts = [text.replace(r"\,", ",") for text in items(given, re.compile(r"(?<!\\),").split)]
    return tuple(re.compile(pattern(text).pattern, re.ASCII | re.IGNORECASE) for text in texts)


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


class EventSettings(FormatSettings):
    """What Debezium's events have, whatever they are written in."""

    topic_prefix: str | None = option(
        "The server's logical name: the first part of every topic, and `source.name`.",
        default=None,
        aliases=("topic.prefix", "database.server.name"),
    )
    shape: str = option(
        "The generation of events: `1.7` (topics server.schema.table); `2.3`, as documented for the Oracle and Db2 "
        "connectors; `3` (topics prefix.db.schema.table, without the database for Oracle, Db2 and PostgreSQL); or "
        "`3.0`, as the first releases of 3 wrote them.",
        default="3",
        choices=tuple(SHAPES),
    )
    tombstones_on_delete: bool = option(
        "Whether a delete is followed by a message with the same key and a null value.",
        default=True,
        aliases=("tombstones.on.delete",),
    )
    skipped_operations: frozenset[str] = option(
        "Operations to skip: c, u, d, t, or none.",
        kind=operations,
        default=frozenset("t"),
        aliases=("skipped.operations",),
        names=OTHER_NAMES,
    )
    decimal_handling_mode: str = option(
        "`precise` writes the unscaled bytes, `string` plain digits, `double` a binary number, which may lose digits.",
        default="precise",
        choices=("precise", "string", "double"),
        aliases=("decimal.handling.mode",),
    )
    time_precision_mode: str = option(
        "How dates and times are written; isostring, microseconds and nanoseconds need shape 3.",
        default="adaptive",
        choices=SHAPES["3"].time_modes,
        aliases=("time.precision.mode",),
    )
    binary_handling_mode: str = option(
        "`bytes` (base64 in JSON), or text as `base64`, `base64-url-safe` or `hex`.",
        default="bytes",
        choices=("bytes", "base64", "base64-url-safe", "hex"),
        aliases=("binary.handling.mode",),
    )
    interval_handling_mode: str = option(
        "`string` writes intervals as they are, `numeric` in microseconds, with months of 30.4375 days.",
        default="string",
        choices=("string", "numeric"),
        aliases=("interval.handling.mode",),
    )
    bigint_unsigned_handling_mode: str = option(
        "`precise` writes MySQL's and MariaDB's unsigned 64-bit numbers as decimals, `long` as 64-bit numbers, which "
        "are negative from 2^63 on.",
        default="precise",
        choices=("precise", "long"),
        aliases=("bigint.unsigned.handling.mode",),
    )
    enable_time_adjuster: bool = option(
        "Whether MySQL's and MariaDB's years below 100 are moved to 1970 to 2069, as Debezium does by default; "
        "otherwise they stay.",
        default=False,
        aliases=("enable.time.adjuster",),
    )
    unavailable_value_placeholder: str = option(
        "The placeholder, in shapes 2.3 and 3, for a text or bytes value that a change does not carry; columns of "
        "other types are left out. Shapes 1.7 and 3.0 write null. PostgreSQL's rows have it in all shapes, also in "
        "arrays and in hstore.",
        default="__debezium_unavailable_value",
        aliases=("unavailable.value.placeholder",),
    )
    event_converting_failure_handling_mode: str = option(
        "What to do with a value that its wire type can't hold, such as 9999-12-31 in a datetime2(7), because a "
        "timestamp in nanoseconds ends in 2262. `warn` writes null, as Debezium does, or the nearest value if the "
        "column can't be NULL; the run counts such values and logs the first of each batch with table, column and "
        "key. `fail` stops the run and names the value's place. A value in a key always stops the run.",
        default="warn",
        choices=("fail", "warn"),
        aliases=("event.converting.failure.handling.mode",),
    )
    connector_version: str | None = option(
        "The value of `source.version`. Default: the version in the row's source (for a decoded event), else "
        "1.7.2.Final in shape 1.7, 2.3.4.Final (Db2 2.3.7.Final) in 2.3 and 3.6.1.Final in 3.",
        default=None,
    )
    null_as_default: bool = option(
        "Whether to write NULL in a nullable column with a default as the default, as Connect's converters do.",
        default=False,
        aliases=("replace.null.with.default", "value.converter.replace.null.with.default"),
    )
    schema_name_adjustment_mode: str | None = option(
        "`avro` changes schema names to valid Avro names (1.7 always does), `none` keeps them (the default in shape "
        "3).",
        default=None,
        choices=("none", "avro"),
        aliases=("schema.name.adjustment.mode",),
    )
    context_headers: bool = option(
        "Whether shape 3 has the four `__debezium.context.*` headers; their runId is the same for one topic prefix, "
        "so that repeated batches have the same bytes.",
        default=True,
        aliases=("extended.headers.enabled",),
    )
    include_schema_changes: bool = option(
        "Whether to write a message to the topic named like the prefix when a table is captured, altered or dropped.",
        default=True,
        aliases=("include.schema.changes",),
    )
    topic_delimiter: str = option(
        "The separator between the parts of a topic.",
        default=".",
        choices=(".", "_", "-"),
        aliases=("topic.delimiter",),
    )
    topic_transaction: str = option(
        "The last part of the topic for transaction metadata, after the prefix.",
        default="transaction",
        aliases=("topic.transaction",),
    )
    transaction_topic: str | None = option(
        "The whole name of that topic, in which `${database.server.name}` is the prefix.",
        default=None,
        aliases=("transaction.topic", "database.transaction.topic"),
    )
    heartbeat_topics_prefix: str = option(
        "The first part of the topic for heartbeats, before the prefix.",
        default="__debezium-heartbeat",
        aliases=("heartbeat.topics.prefix", "topic.heartbeat.prefix"),
    )
    topic_route_regex: re.Pattern[str] | None = option(
        "Routes tables whose whole topic matches this pattern to `topic_route_replacement`; topic and schema names "
        "follow. Python's syntax, with named groups as in Java too.",
        kind=pattern,
        default=None,
        aliases=("topic.regex",),
    )
    topic_route_replacement: str | None = option(
        "The topic for `topic_route_regex`; `$1` and `${name}` stand for the pattern's groups.",
        default=None,
        aliases=("topic.replacement",),
    )
    key_enforce_uniqueness: bool = option(
        "Whether the key of a routed message gets a field with its table, because one topic holds keys of several "
        "tables.",
        default=True,
        aliases=("key.enforce.uniqueness",),
    )
    key_field_name: str = option(
        "The name of that field; decoding removes it from the key.",
        default="__dbz__physicalTableIdentifier",
        aliases=("key.field.name",),
    )
    key_field_regex: re.Pattern[str] | None = option(
        "With `key_field_replacement`, derives that field's value from the topic before routing. Default: that topic.",
        kind=pattern,
        default=None,
        aliases=("key.field.regex",),
    )
    key_field_replacement: str | None = option(
        "The value for `key_field_regex`, with `$1` and `${name}`.",
        default=None,
        aliases=("key.field.replacement",),
    )
    column_propagate_source_type: tuple[re.Pattern[str], ...] = option(
        "Patterns, separated by commas, of columns (`schema.table.column`, optionally with the database in front) "
        "whose source type, length and scale (and name, in shape 3) go into the parameters of their schema.",
        kind=patterns,
        default=(),
        aliases=("column.propagate.source.type",),
        names=Names("columns", "informs"),
    )
    datatype_propagate_source_type: tuple[re.Pattern[str], ...] = option(
        "The same by type (`schema.table.type`, optionally with the database in front).",
        kind=patterns,
        default=(),
        aliases=("datatype.propagate.source.type",),
        names=OTHER_NAMES,
    )
    field_name_adjustment_mode: str = option(
        "`avro` writes `_` for each character of a column's name that Avro does not allow in a field, and before a "
        "leading digit; `none` keeps names. `sanitize.field.names` takes true or false.",
        kind=field_names,
        default="none",
        choices=("none", "avro"),
        aliases=("field.name.adjustment.mode", "sanitize.field.names"),
    )
    unavailable_max_as_null: bool = option(
        "Whether to do as recorded from 3.6.1: in shape 3 only text, ntext, image and xml columns have the "
        "placeholder, and none in a delete, while varchar(max), nvarchar(max) and varbinary(max) are null.",
        default=False,
    )
    unwrapped: bool = option(
        "Decoding: whether values are flat rows, as ExtractNewRecordState writes them, with added fields (`__op`, "
        "`__deleted`, `__table`, `__source_ts_ms`) among the columns. An operation that only the header `__op` says "
        "counts too, and makes a null value a delete. A row without an operation is an upsert and becomes a create; "
        "without a table it belongs to the last parts of its topic.",
        default=False,
    )
    unwrapped_prefix: str = option(
        "Decoding: the prefix of added fields; such fields are not columns.",
        default="__",
        aliases=("add.fields.prefix",),
    )
    tombstone_as_delete: bool = option(
        "Decoding of flat rows: whether a message with a key and a null value is a delete of that key, as it is when "
        "deletes are not rewritten; otherwise it is a `tombstone` row.",
        default=False,
    )


class DebeziumJsonSettings(EventSettings):
    """Of the format `debezium_json`."""

    schemas_enable: bool = option(
        "Whether each value is wrapped as {schema, payload}, as JsonConverter does with schemas on.",
        default=False,
        aliases=("value.converter.schemas.enable", "schemas.enable"),
    )
    key_schemas_enable: bool | None = option(
        "The same for keys and key headers. Default: the value of `schemas_enable`.",
        default=None,
        aliases=("key.converter.schemas.enable",),
    )


def unsigned_numbers(settings: EventSettings, tables: Sequence[TableSchema]) -> Sequence[str]:
    """A sentence for readers where unsigned 64-bit numbers are not written as numbers."""
    columns = [
        f"'{table.id.path}.{column.name}'" for table in tables for column in table.columns if column.logical == _UINT64
    ]
    if not columns or settings.bigint_unsigned_handling_mode == "long":
        return ()
    names = ", ".join(columns[:_SHOWN]) + (f" and {len(columns) - _SHOWN:,} more" if len(columns) > _SHOWN else "")
    return (
        f"Unsigned 64-bit numbers ({names}) are written as bytes, in JSON as base64, so that none loses digits. Set "
        "'bigint_unsigned_handling_mode' of the format to long for numbers, as Debezium writes them by default.",
    )


def value_modes(settings: EventSettings) -> ValueModes:
    return ValueModes(
        decimals=settings.decimal_handling_mode,
        times=settings.time_precision_mode,
        binary=settings.binary_handling_mode,
        placeholder=settings.unavailable_value_placeholder,
        failing=settings.event_converting_failure_handling_mode == "fail",
        null_as_default=settings.null_as_default,
        recorded_placeholders=settings.unavailable_max_as_null,
        intervals=settings.interval_handling_mode,
        unsigned=settings.bigint_unsigned_handling_mode,
        adjust_years=settings.enable_time_adjuster,
    )


def field_rules(settings: EventSettings, shape: EventShape) -> FieldRules:
    """How columns become fields on the wire."""
    return FieldRules(
        adjustment=settings.field_name_adjustment_mode,
        propagated_columns=settings.column_propagate_source_type,
        propagated_types=settings.datatype_propagate_source_type,
        column_names=shape.column_names,
    )
