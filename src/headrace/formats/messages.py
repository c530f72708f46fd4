"""Kafka's columns, which all decoders take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

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


def kafka_columns(messages: DataFrame) -> DataFrame:
    """Exactly Kafka's columns, in order; text keys and values are taken as their UTF-8 bytes.

    Raises:
        OptionError: the column `value` is missing.
    """
    have = set(messages.columns)
    if "value" not in have:
        raise OptionError(
            "The messages have no column 'value'.",
            remedy='Pass a DataFrame with Kafka\'s columns, as spark.read.format("kafka") has them.',
        )
    return messages.selectExpr(
        *(f"cast({name if name in have else 'null'} as {kind}) as {name}" for name, kind in KAFKA_COLUMNS.items())
    )
