"""What all decoders share: Kafka's columns in, change rows out, and an `error` row for what can't be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.changes.row import spark_schema
from headrace.changes.typed import literal
from headrace.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KAFKA_COLUMNS: Mapping[str, str] = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
}
"""The columns of a message and their Spark types; those that a DataFrame lacks are null."""

SCHEMA_ORDER = "0"
DATA_ORDER = "1"
"""Second parts of positions: a message's `schema` row comes before its other rows."""

# An error row says where the message came from and why it could not be read, and nothing else.
_OF_ERRORS = ("op", "position", "capture_time", "message", "error")


def kafka_columns(messages: DataFrame) -> DataFrame:
    """Exactly Kafka's columns, in order; text keys and values are taken as their UTF-8 bytes.

    Raises:
        OptionError: there is no column `value`.
    """
    have = set(messages.columns)
    if "value" not in have:
        raise OptionError(
            "The messages have no column 'value'.",
            remedy='Give Kafka\'s columns, as spark.read.format("kafka") has them.',
        )
    return messages.selectExpr(
        *(f"cast({name if name in have else 'null'} as {kind}) as {name}" for name, kind in KAFKA_COLUMNS.items())
    )


def position(sub: str | None = None, order: str = DATA_ORDER) -> str:
    """Spark SQL for the position of a message's row: the Kafka offset, then `sub` (an SQL integer) in the message."""
    last = "''" if sub is None else f"lpad({sub}, 9, '0')"
    return f"concat(lpad(coalesce(offset, 0L), 20, '0'), '/{order}/', {last})"


def table(database: str, schema: str, name: str) -> str:
    """Spark SQL for a row's `table`, from SQL for its parts."""
    return f"named_struct('database', {database}, 'schema', {schema}, 'name', {name})"


def key_text(key: str) -> str:
    """Spark SQL for `key_text` of a key map."""
    return f"if({key} is null, null, to_json(map_values({key})))"


def change_rows(
    parsed: DataFrame,
    columns: Mapping[str, str],
    *,
    error: str = "null",
    sub: str | None = None,
    announced: str | None = None,
) -> DataFrame:
    """The change rows of messages, lazily: one for each row of `parsed`, and one for each structure that it announces.

    Args:
        parsed: has Kafka's columns and whatever the expressions speak of.
        columns: Spark SQL by column of a change row; columns that are not named are null. `before` and `after` keep the
            type of their expression (map or struct), all others get the change row's type. `position`, `message` and
            `capture_time` have a meaning already, but may be given.
        error: Spark SQL for the sentence that says why a message can't be read; null where it can. Then the row is an
            `error` row which keeps the message whole.
        sub: Spark SQL for the number of the row inside its message, where a message can give several.
        announced: Spark SQL for the table of a `schema` row, which comes before each row whose column `new_schema` (see
            `structures.with_structures`) is not null; `schema_id` then is a column of `parsed` too. Where a message
            gives several rows, `new_schema` must be null in all but its first.
    """
    kind = {f.name: f.dataType.simpleString() for f in spark_schema()}
    unknown = sorted(set(columns) - set(kind))
    if unknown:
        raise ValueError(f"a change row has no column {unknown[0]}")
    given = {
        "position": position(sub),
        "capture_time": "timestamp",
        **columns,
        "message": _message("if(problem is null, null, key)", "if(problem is null, null, value)"),
        "error": "problem",
    }
    given["op"] = f"if(problem is null, {columns.get('op', 'null')}, 'error')"
    rows = parsed.selectExpr("*", f"cast({error} as string) as problem")
    schema_row: Mapping[str, str] = {}
    if announced is not None:
        rows = rows.selectExpr("*", "explode(if(new_schema is null, array(false), array(true, false))) as announcing")
        schema_row = {
            "op": "'schema'",
            "table": announced,
            "position": position(order=SCHEMA_ORDER),
            "capture_time": "timestamp",
            "schema_id": "schema_id",
            "table_schema": "new_schema",
            "message": _message("cast(null as binary)", "cast(null as binary)"),
        }
    selected = []
    for name, sql in ((name, given.get(name, "null")) for name in kind):
        row = sql if name in _OF_ERRORS or sql == "null" else f"if(problem is null, {sql}, null)"
        if announced is not None:
            row = f"if(announcing, {schema_row.get(name, 'null')}, {row})"
        own_type = name in ("before", "after") and name in columns
        selected.append(f"{row} as {name}" if own_type else f"cast({row} as {kind[name]}) as {name}")
    return rows.selectExpr(*selected)


def _message(key: str, value: str) -> str:
    return (
        "named_struct('topic', topic, 'partition', partition, 'offset', offset, 'timestamp', timestamp, "
        f"'key', {key}, 'value', {value}, 'headers', headers)"
    )


def not_utf8(column: str) -> str:
    """Spark SQL: whether a binary column holds bytes that are no UTF-8, which a JSON parser would replace silently."""
    return f"not is_valid_utf8(cast({column} as string))"


def header(name: str) -> str:
    """Spark SQL for the bytes of a record header: the last one of that name, as Kafka's `lastHeader`; null without."""
    return f"try_element_at(filter(headers, h -> h.key = {literal(name)}), -1).value"
