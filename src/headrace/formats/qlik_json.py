"""Qlik Replicate's JSON messages (Qlik Talend Data Integration writes the same), with and without their envelope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.changes import TableSchema
from headrace.errors import OptionError
from headrace.formats.base import COMMON, Format, topic_option
from headrace.formats.encoding import has_struct_images, map_images, struct_schema, topic_of, with_structures_known
from headrace.formats.features import Feature
from headrace.formats.messages import kafka_columns
from headrace.formats.qlik_decode import DecodePlan, decoded_maps, metadata_in_topic
from headrace.formats.qlik_encode import Encoding, json_messages, laid_maps, with_metadata_rows
from headrace.formats.qlik_masks import ORDERS
from headrace.formats.qlik_metadata import Metadata, metadata_of
from headrace.options import OTHER_NAMES, Option

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MASK_BYTE_ORDER = Option(
    "mask_byte_order",
    str,
    "How changeMask and columnMask are read: `big`, a number with its most significant byte first, `little` the other "
    "way round, `auto` as `little` where only that fits the message.",
    default="big",
    choices=ORDERS,
)
METADATA = Option(
    "metadata",
    metadata_of,
    "Metadata messages beside those among the messages: the text of one, a list of texts, or the path of a file that "
    "holds one per line. A stream reads no metadata messages of its own.",
    default=(),
    names=OTHER_NAMES,
)
METADATA_TOPIC = Option(
    "metadata_topic",
    str,
    "The Kafka topic of the metadata messages, which is read from its beginning each time when `decode` is called (so "
    "at each batch inside `foreachBatch`); needs `bootstrap_servers`.",
    default=None,
)
BOOTSTRAP_SERVERS = Option(
    "bootstrap_servers",
    str,
    "Where `metadata_topic` is, as host:port with commas between.",
    default=None,
    aliases=("kafka.bootstrap.servers",),
)


def metadata_given(settings: Mapping[str, Any], spark: SparkSession) -> tuple[Metadata, ...]:
    """The metadata of the options; reads the topic that they name.

    Raises:
        OptionError: `metadata_topic` is given without `bootstrap_servers`.
    """
    topic, servers = settings["metadata_topic"], settings["bootstrap_servers"]
    given: tuple[Metadata, ...] = settings["metadata"]
    if topic is None:
        return given
    if servers is None:
        raise OptionError(
            "Option 'metadata_topic' is given without 'bootstrap_servers'.", remedy="Set it to the brokers' addresses."
        )
    return (*metadata_in_topic(spark, topic, servers), *given)


READS = frozenset(
    (
        Feature.READ,
        Feature.TOMBSTONE,
        Feature.SCHEMA,
        Feature.BEFORE,
        Feature.WHOLE_BEFORE,
        Feature.ABSENT,
        Feature.CHANGED,
        Feature.KEY_CHANGE,
        Feature.KEY,
        Feature.TYPES,
        Feature.SCHEMA_NAME,
        Feature.EVENT_TIME,
        Feature.EVENT_MILLISECONDS,
        Feature.EVENT_MICROSECONDS,
        Feature.TRANSACTION,
        Feature.TRANSACTION_ORDER,
        Feature.SOURCE,
    )
)


WRITES = frozenset(
    (
        Feature.READ,
        Feature.SCHEMA,
        Feature.BEFORE,
        Feature.WHOLE_BEFORE,
        Feature.ABSENT,
        Feature.CHANGED,
        Feature.KEY_CHANGE,
        Feature.KEY,
        Feature.TYPES,
        Feature.SCHEMA_NAME,
        Feature.EVENT_TIME,
        Feature.EVENT_MILLISECONDS,
        Feature.TRANSACTION,
        Feature.TRANSACTION_ORDER,
    )
)
ENCODING = (
    topic_option(),
    Option(
        "key",
        str,
        "Encoding: what Kafka's key is: `primary_key` the row's key columns, `schema_table` the table's name, `none`.",
        default="primary_key",
        choices=("none", "schema_table", "primary_key"),
    ),
    Option(
        "envelope",
        bool,
        "Encoding: whether messages stand in Qlik's envelope. Without it no metadata messages are written, and JSON "
        "messages say their table in their headers.",
        default=True,
    ),
    Option("server", str, "Encoding: the server in the lineage of metadata messages.", default="headrace"),
    Option("task", str, "Encoding: the task in the lineage of metadata messages.", default="headrace"),
)


def encoding_of(settings: Mapping[str, Any]) -> Encoding:
    """How messages are written, by the options.

    Raises:
        OptionError: `topic` holds an unknown placeholder.
    """
    return Encoding(
        topic=topic_of(settings["topic"]),
        metadata_topic=settings["metadata_topic"],
        key=settings["key"],
        envelope=settings["envelope"],
        server=settings["server"],
        task=settings["task"],
        little=settings["mask_byte_order"] == "little",
    )


def announced_rows(
    changes: DataFrame, settings: Mapping[str, Any], owner: str
) -> tuple[DataFrame, tuple[TableSchema, ...]]:
    """Rows with map images, each with a structure, and the structures; a batch has a `schema` row for each of them."""
    given, keys = settings["schema"], tuple(settings["keys"])
    if has_struct_images(changes):
        schema = struct_schema(changes, given, keys)
        changes = map_images(changes, schema).withColumn("schema_id", _literal(schema.fingerprint))
        schemas: tuple[TableSchema, ...] = (schema,)
    else:
        changes, schemas = with_structures_known(changes, given, owner=owner, keys=keys)
    return (changes if changes.isStreaming else with_metadata_rows(changes, schemas)), schemas


def _literal(text: str) -> Column:
    from pyspark.sql.functions import lit

    return lit(text)


class QlikJson(Format):
    """Qlik's data and metadata messages as JSON, with or without the envelope (each message says it by its form).

    Decoding. A metadata message is a `schema` row; data messages that name its schema id get their table, key, types
    and the ordinals of the masks from it. In a batch DataFrame (so in pipelines and `foreachBatch`) all metadata
    messages of the batch are read first, wherever they stand; others are given by `metadata` or `metadata_topic`. A
    data message that names a schema id which nobody has said is an `error` row. A message that names none is read
    without: its table is what its headers say, and ordinals are the order of its columns. A plain stream knows only
    metadata that is given.

    REFRESH (full load) is a row `r` with `snapshot` 'true'. A deleted row is taken from `data`, else from `beforeData`.
    A null whose bit in columnMask is clear was not captured, so the column is absent; `changed` is what changeMask
    names, in which Qlik never sets a large column (LOB). The last event of a transaction has
    `source['transactionLastEvent']` 'true'; no row closes a transaction.

    Ordering: `position` is the Kafka offset; Qlik's own order is `source['changeSequence']`, a text of 35 digits.
    Idempotence: messages and metadata alone decide the rows. Process: expressions in executors; a batch's metadata
    messages and the ids that it names are collected on the driver by two jobs, when `decode` is called.

    Source: Qlik's documentation of Replicate (Kafka messages).
    """

    name = "qlik_json"
    options = (*COMMON, MASK_BYTE_ORDER, METADATA, METADATA_TOPIC, BOOTSTRAP_SERVERS, *ENCODING)
    reads = READS
    writes = WRITES

    def decode(self, messages: DataFrame) -> DataFrame:
        """Kafka columns to change rows, with structs where `schema` holds one structure, else maps.

        Raises:
            OptionError: `schema` can't be read, or `metadata_topic` is given without `bootstrap_servers`.
        """
        given, keys = self.settings["schema"], tuple(self.settings["keys"])
        plan = DecodePlan(
            order=self.settings["mask_byte_order"],
            keys=keys,
            given=given.tables if given is not None and not given.single else (),
            struct=given.only(keys) if given is not None and given.single else None,
            metadata=metadata_given(self.settings, messages.sparkSession),
        )
        return decoded_maps(kafka_columns(messages), plan)

    def encode(self, changes: DataFrame) -> DataFrame:
        """Change rows to data messages, and a metadata message for each structure; other rows give no message.

        Raises:
            OptionError: a streaming DataFrame of map images without the option `schema`, or a bad `topic`.
        """
        encoding = encoding_of(self.settings)
        rows, schemas = announced_rows(changes, self.settings, f"format '{self.name}'")
        return json_messages(laid_maps(rows, schemas, encoding), schemas, encoding)
