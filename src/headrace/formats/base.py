"""The contract of a wire format: Kafka messages to change rows, and back."""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING, ClassVar

from headrace.errors import OptionError
from headrace.options import Option, Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MESSAGE_DDL = ", ".join(
    (
        "topic string",
        "partition int",
        "key binary",
        "value binary",
        "headers array<struct<key:string,value:binary>>",
        "position string",
    )
)
"""What `encode` gives: Kafka's own columns (partition null: by key) and the change's position, by which sinks order."""


class Format(ABC):
    """A wire format. Both directions are lazy DataFrame transformations made of Spark SQL expressions wherever Spark
    has them.

    A format that has only one direction overrides only that method; asking for the other is a clear error.
    """

    name: ClassVar[str]
    options: ClassVar[tuple[Option, ...]]

    def __init__(self, options: Options) -> None:
        self.settings = options

    def decode(self, messages: DataFrame) -> DataFrame:
        """Kafka columns (key, value, headers, topic, partition, offset, timestamp) to change rows.

        A message that can't be read becomes an `error` row that keeps it whole; nothing is dropped silently. Order: the
        position of a decoded row is its Kafka offset and the order inside the message, within `message.partition`.

        Raises:
            OptionError: this format can't be decoded.
        """
        raise OptionError(f"Format '{self.name}' can't be decoded.", remedy="Choose a format that can.")

    def encode(self, changes: DataFrame) -> DataFrame:
        """Change rows to messages of `MESSAGE_DDL`, zero, one or more per row, in the row's order (`position`).

        Only the rows decide the bytes, so that a repeated batch repeats its messages byte for byte. `schema` rows in
        `changes` say how the images are typed; rows whose structure is not among them are refused when the action runs.

        Raises:
            OptionError: this format can't be encoded.
        """
        raise OptionError(f"Format '{self.name}' can't be encoded.", remedy="Choose a format that can.")
