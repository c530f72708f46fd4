"""The parts of a Debezium message that are the same for every table: what `from_json` reads, and what they mean.

Source: spec/format_debezium.md, envelope; recorded messages of the SQL Server, MariaDB and PostgreSQL connectors.
"""

from __future__ import annotations

from headrace.changes.letter_case import lower
from headrace.changes.typed import literal

_MAP = "map<string,string>"
_TRANSACTION = "struct<id:string,total_order:bigint,data_collection_order:bigint>"
REST = (
    f"source {_MAP}, op string, transaction {_TRANSACTION}, ts_ms bigint, "
    "message struct<prefix:string,content:string>, "
    "status string, id string, event_count bigint, data_collections string, databaseName string, schemaName string, "
    "ddl string, tableChanges string, aggregate_type string, type string"
)
"""The fields of all kinds of messages but for the images, as DDL."""
_OPERATIONS = ("r", "c", "u", "d", "t", "m")
UNKNOWN_OPERATION = f"v.op not in ({', '.join(map(literal, _OPERATIONS))})"
UNKNOWN_OPERATION_REASON = f"The operation is none of {', '.join(_OPERATIONS)}."
SOURCE_FACT = "v.source['{}']"
# What the change row says in columns of its own.
_OWN = ("ts_ms", "ts_us", "ts_ns", "snapshot", "db", "schema", "table")
_LSN = "^[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{4}$"
# Years 1 to 9999, in microseconds: what every reader of a timestamp can hold.
_EARLIEST, _LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999


def document(key: str, value: str) -> str:
    """Spark SQL for one JSON text of a key (`k`) and a value (`v`), so that one parse reads both.

    The last member tells a text that ends early, or goes on behind its end, from a whole one.
    """
    return f"concat('{{\"k\":', coalesce({key}, 'null'), ',\"v\":', coalesce({value}, 'null'), ',\"e\":1}}')"


def kind(heartbeats: str) -> str:
    """Spark SQL: what the message is, from its fields in `v`, its key in `key_fields` and its schema's text `vo`.

    `data`, `begin`, `end`, `schema`, `heartbeat`, or `none` for what is no event; null where it is nothing known.

    Args:
        heartbeats: what the topics of heartbeats begin with.
    """
    beat = (
        "try_element_at(key_fields, 'serverName') is not null or contains(vo, '.Heartbeat\"') "
        f"or startswith(topic, {literal(heartbeats)})"
    )
    return (
        "case when v is null then null "
        "when v.op is not null and (v.source is not null or has_image or v.op in ('t', 'm')) then 'data' "
        "when v.op is not null then null "
        f"when v.status in ('BEGIN', 'END') and v.id is not null then {lower('v.status')} "
        "when v.tableChanges is not null and v.source is not null then 'schema' "
        "when v.ddl is not null and v.source is not null then 'schema' "
        "when v.aggregate_type is not null and v.type is not null then 'none' "
        f"when v.ts_ms is not null and v.source is null and not has_image and ({beat}) then 'heartbeat' end"
    )


def moment(micros: str) -> str:
    """Spark SQL for an instant from microseconds since 1970; null beyond the years 1 to 9999."""
    return f"if({micros} between {_EARLIEST}L and {_LATEST}L, timestamp_micros({micros}), null)"


def of_milliseconds(millis: str) -> str:
    """The same from milliseconds."""
    return f"if({millis} between {_EARLIEST // 1000}L and {_LATEST // 1000}L, timestamp_millis({millis}), null)"


def source_time(fact: str) -> str:
    """Spark SQL for the commit time in a source block; `fact` is SQL with `{}` for a name of the block."""
    micros, millis = (f"try_cast({fact.format(name)} as bigint)" for name in ("ts_us", "ts_ms"))
    return f"if({micros} is not null, {moment(micros)}, {of_milliseconds(millis)})"


def facts(source: str) -> str:
    """Spark SQL for `source` of a change row from the map of a source block."""
    own = ", ".join(map(literal, _OWN))
    return f"map_filter({source}, (k, x) -> x is not null and k not in ({own}))"


def control_columns(source: str) -> dict[str, str]:
    """Spark SQL by column for messages that are no row: `kind`, `v` and, for schema changes, `change` are columns.

    Args:
        source: SQL for the facts of the source block.
    """
    extra = (
        "map_filter(map('change', change.change, 'ddl', v.ddl), (k, x) -> x is not null)",
        f"map_filter({source}, (k, x) -> k not in ('ddl', 'change'))",
    )
    # The message does not name its connector; an LSN of this form is SQL Server's.
    edge = (
        f"map_filter(map('connector', if(v.id rlike '{_LSN}', 'sqlserver', null), 'commit_lsn', "
        f"if(v.id rlike '{_LSN}', v.id, null), 'data_collections', v.data_collections), (k, x) -> x is not null)"
    )
    table = (
        "named_struct('database', coalesce(change.database, v.databaseName, v.source['db'], ''), 'schema', "
        "coalesce(change.schema, v.schemaName, v.source['schema'], ''), 'name', "
        "coalesce(change.name, v.source['table'], ''))"
    )
    return {
        "op": "if(kind = 'none', null, kind)",
        "table": f"if(kind = 'schema', {table}, null)",
        "event_time": f"if(kind = 'schema', {source_time(SOURCE_FACT)}, {of_milliseconds('v.ts_ms')})",
        "capture_time": f"coalesce(if(kind = 'heartbeat', {of_milliseconds('v.ts_ms')}, null), timestamp)",
        "snapshot": "if(kind = 'schema', nullif(v.source['snapshot'], 'false'), null)",
        "transaction": "if(kind in ('begin', 'end'), named_struct('id', v.id, 'total_order', v.event_count, "
        "'data_collection_order', cast(null as bigint)), null)",
        "source": f"case kind when 'schema' then map_concat({extra[1]}, {extra[0]}) "
        f"when 'heartbeat' then cast(map() as {_MAP}) when 'none' then null else {edge} end",
        "schema_id": "if(kind = 'schema', change.id, null)",
        "table_schema": "if(kind = 'schema', change.text, null)",
    }


def known_transaction(block: str) -> str:
    """Spark SQL for a transaction block; an order of 0, which no change has, is one that the writer did not know."""
    orders = ", ".join(f"'{name}', nullif({block}.{name}, 0L)" for name in ("total_order", "data_collection_order"))
    return f"if({block}.total_order = 0, named_struct('id', {block}.id, {orders}), {block})"


def message_content() -> str:
    """Spark SQL for the facts of a logical message (`v.message`): its prefix, and its content, as text where it is one.

    Content that is no text stays in base64, by the name `content_base64`.
    """
    bytes_ = "try_to_binary(v.message.content, 'base64')"
    text = f"if(is_valid_utf8(cast({bytes_} as string)), cast({bytes_} as string), null)"
    return (
        f"map_filter(map('prefix', v.message.prefix, 'content', {text}, 'content_base64', "
        f"if({text} is null, v.message.content, null)), (k, x) -> x is not null)"
    )
