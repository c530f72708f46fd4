"""`headrace.decode` and `headrace.encode`: any wire format by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import registry
from headrace.formats.base import Format
from headrace.options import parse_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def format_named(name: str, options: dict[str, Any]) -> Format:
    """The format of that name with its options checked.

    Raises:
        OptionError: the format or an option is unknown or malformed.
    """
    kind: type[Format] = registry.find("format", name)
    return kind(parse_options(kind.options, options, owner=f"format '{name}'"))


def decode(messages: DataFrame, /, *, format: str, **options: Any) -> DataFrame:
    """Read messages of a wire format as change rows.

    Args:
        messages: Kafka's columns, as `spark.read.format("kafka")` or `readStream` gives them.
        format: the format's name, such as `debezium_json`.
        options: the format's own options, in snake case.

    Returns:
        Change rows; a message that can't be read is an `error` row.

    Raises:
        OptionError: the format or an option is unknown or malformed.
    """
    return format_named(format, options).decode(messages)


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
