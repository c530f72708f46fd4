"""The contract of a wire format: Kafka messages to change rows, and back."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from headrace.changes import TableId, TableSchema
from headrace.errors import OptionError
from headrace.formats.encoding import EncodedBatch, topic_for
from headrace.formats.features import Feature
from headrace.formats.given import GivenSchema, given_schema
from headrace.formats.recognition import Evidence, Sample
from headrace.options import OTHER_NAMES
from headrace.settings import Component, Settings, option

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


Structure = tuple[str, ...]
"""What tells the structure of a table from others: `schema_id`, database, schema, table and version."""


class FormatSettings(Settings):
    """What every format has."""

    on_error: str = option(
        "What to do with a message that can't be read: `row` turns it into an `error` row, `fail` stops the query "
        "and names the message, `drop` skips and counts it.",
        default="row",
        choices=("row", "fail", "drop"),
    )
    schema: GivenSchema | None = option(
        "The schema of the table: a Spark DDL string, a TableSchema or its JSON. Decoding then gives images as "
        "structs of typed columns. A list of TableSchemas, for several tables, gives images as maps.",
        kind=given_schema,
        default=None,
        names=OTHER_NAMES,
    )
    unrepresentable: str = option(
        "Decoding with one schema: what to do with a value that its column's Spark type has no place for: infinity, "
        "and days that no calendar has (MySQL's `0000-00-00`), among dates and timestamps; NaN and infinity among "
        "decimals. `fail`: the message can't be read, and the error says the column and the value; `null` puts null "
        "there, but never in a key. A column that is declared as string keeps the text.",
        default="fail",
        choices=("fail", "null"),
    )
    keys: tuple[str, ...] = option(
        "The key columns, in key order, for messages that don't name them.",
        default=(),
        names=OTHER_NAMES,
    )


def topic_option(default: str = "${path}") -> str:
    """The option by which formats without a topic convention of their own name their topics."""
    return option(
        "Encoding: the topic of a row. `${database}`, `${schema}` and `${table}` stand for the parts of the "
        "table's name, `${path}` for the parts that it has, joined by dots.",
        default=default,
    )


class Format(Component, ABC):
    """A wire format. Both directions are lazy DataFrame transformations.

    A format that has only one direction overrides only that method; asking for the other is a clear error.
    """

    role: ClassVar[Literal["format"]] = "format"
    settings: FormatSettings
    reads: ClassVar[frozenset[Feature]] = frozenset()
    """What decoding can give."""
    writes: ClassVar[frozenset[Feature]] = frozenset()
    """What encoding can say; the rest is lost on the way into this format."""
    numbered: ClassVar[bool] = False
    """Whether messages say a serial number, which a change has as `source['id']`."""
    types_sent_by: ClassVar[str] = ""
    """Where messages have the types of columns only if their writer is told to send them: the settings that tell it."""
    of_transactions: ClassVar[str] = ""
    """What messages say only where the source names transactions, in words; empty for nothing that readers rely on."""

    @property
    def announces_structures(self) -> bool:
        """Whether messages of their own announce structures, for readers that go by them and need each once."""
        return False

    def having_announced(self, structures: frozenset[Structure]) -> Self:
        """The format for readers that have these structures: no message announces them again."""
        return self

    @property
    def left_out(self) -> frozenset[str]:
        """The operations (`c`, `u`, `d`, `t`) for which the options want no message."""
        return frozenset(self.settings.get("skipped_operations") or ())

    def decode(self, messages: DataFrame) -> DataFrame:
        """Turn Kafka columns (key, value, headers, topic, partition, offset, timestamp) into change rows.

        A message that can't be read becomes an `error` row that holds it whole; no message is dropped silently. A
        message that is not an event becomes a row whose `op` is null; `headrace.decode` counts it and leaves it out.
        Order: the position of a decoded row is its Kafka offset and its order inside the message, within
        `message.partition`.

        Raises:
            OptionError: this format does not decode.
        """
        raise OptionError(f"Format '{self.name}' can't be decoded.", remedy="Choose a format that can.")

    def encode(self, changes: DataFrame) -> DataFrame:
        """Turn change rows into messages of `MESSAGE_DDL`: zero, one or more per row, in the order of `position`.

        Images may be maps, or structs of typed columns. The rows alone determine the bytes, so a repeated batch gives
        the same messages byte for byte. `schema` rows in `changes` define the types of map images; a row whose schema
        is not among them is an error when the action runs. `error` rows give no message.

        Raises:
            OptionError: this format does not encode.
        """
        raise OptionError(f"Format '{self.name}' can't be encoded.", remedy="Choose a format that can.")

    def check(self, *, writes: bool) -> None:
        """Check that the options fit together for one direction, without any connection.

        Args:
            writes: whether to write messages, or to read them.

        Raises:
            OptionError: as `encode` or `decode` would.
        """
        return None

    def remarks(self, tables: Sequence[TableSchema]) -> Sequence[str]:
        """What readers of these tables' messages may not expect of values, as sentences for `plan` and `check`."""
        return ()

    @classmethod
    def recognise(cls, message: Sample) -> Evidence | None:
        """Why a message may be of this format; None if nothing shows it.

        Must be cheap: it runs for each message of a sample.
        """
        return None

    def encode_batch(self, changes: DataFrame) -> EncodedBatch:
        """As `encode`, for a batch, with the values that could not be written as they are."""
        return EncodedBatch(self.encode(changes))

    def topic_for(self, table: TableId, connector: str = "") -> str | None:
        """The topic that `encode` gives the data rows of a table; None if it depends on the rows.

        Needs no connection, so `headrace plan` can show it without Spark.

        Args:
            table: the table.
            connector: which kind of source its rows come from, as `source['connector']` names it.

        Raises:
            OptionError: an option is missing or malformed that says where messages go.
        """
        template = self.settings.get("topic")
        return None if template is None else topic_for(template, table)

    def name_for(self, table: TableId, connector: str = "") -> str:
        """The name by which messages tell the rows of a table apart from those of other tables in the same topic.

        Args:
            table: the table.
            connector: as `topic_for` has it.
        """
        return table.full_path
