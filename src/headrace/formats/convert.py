"""`headrace.decode` and `headrace.encode`: any wire format by name."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from headrace import registry
from headrace.changes.refusal import refusal
from headrace.formats.base import Format
from headrace.formats.given import with_schema_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_numbers = itertools.count(1)


def format_named(name: str, options: dict[str, Any]) -> Format:
    """The format of that name with its options checked.

    Raises:
        OptionError: the format or an option is unknown or malformed.
    """
    kind: type[Format] = registry.find("format", name)
    return kind.of(options)


def decode(messages: DataFrame, /, *, format: str, **options: Any) -> DataFrame:
    """Read messages of a wire format as change rows.

    The query's observed metrics count the messages that could not be read and those that are not events
    (`StreamingQuery.lastProgress`, or a `QueryExecutionListener`) under `headrace.decode.<format>.<n>`; group the
    `error` rows by `error` for the reasons.

    Args:
        messages: Kafka's columns, as `spark.read.format("kafka")` or `readStream` gives them.
        format: the format's name, such as `debezium_json`.
        options: the format's own options, in snake case.

    Returns:
        Change rows; a message that can't be read is an `error` row, unless `on_error` says otherwise.

    Raises:
        OptionError: the format or an option is unknown or malformed.
    """
    return decoded(format_named(format, options), messages)


def read(format: Format, messages: DataFrame) -> DataFrame:
    """The decoded rows, for a batch with `with_given_schemas`."""
    return with_given_schemas(format, format.decode(messages))


def with_given_schemas(format: Format, rows: DataFrame) -> DataFrame:
    """Decoded rows of a batch, preceded by the schemas of the format's option `schema`.

    Table sinks then know them as if the messages had carried them. A stream gets no such rows.
    """
    given = format.settings.schema
    if given is None or not given.several or not given.tables or rows.isStreaming:
        return rows
    return with_schema_rows(rows, given.tables)


def decoded(format: Format, messages: DataFrame) -> DataFrame:
    """The change rows of messages as the format reads them, counted, and errors treated as its option `on_error` says.

    With `on_error=fail` the query stops at the first message that can't be read, and the error names its index.
    """
    from pyspark.sql import functions as F  # noqa: N812

    rows = format.decode(messages)
    counted = rows.observe(
        f"headrace.decode.{format.name}.{next(_numbers)}",
        # Counted for each row, so by what is found out without a look at a text.
        F.expr("count(error)").alias("errors"),
        F.expr("count_if(op is null)").alias("no_event"),
    )
    mode = format.settings.on_error
    if mode == "drop":
        return counted.where("op <> 'error'")
    if mode == "fail":
        origin = "concat_ws(' ', 'topic', message.topic, 'partition', message.partition, 'offset', message.offset)"
        stop = (
            f"concat('A message can\\'t be read (', {origin}, '): ', error, "
            "' Set on_error to row to keep such messages as rows, or to drop to skip them.')"
        )
        return counted.where(f"case when op = 'error' then {refusal(stop)} else op is not null end")
    return counted.where("op is not null")


def encode(changes: DataFrame, /, *, format: str, **options: Any) -> DataFrame:
    """Write change rows as messages of a wire format.

    Args:
        changes: change rows, with the `schema` rows of the tables among them.
        format: the format's name, such as `debezium_json`.
        options: the format's own options, in snake case.

    Returns:
        topic, partition, key, value, headers, position: what a Kafka sink writes, in position order per key.

    Raises:
        OptionError: the format or an option is unknown or malformed.
    """
    return format_named(format, options).encode(changes)
