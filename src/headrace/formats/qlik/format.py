"""Qlik Replicate's messages (Qlik Talend Data Integration writes the same): JSON, with and without their envelope.

`headrace decode` recognises a message by its envelope, or by fields and values that only its messages have.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Self

from headrace.changes import TableId
from headrace.errors import OptionError
from headrace.formats.base import FormatSettings, Structure, topic_option
from headrace.formats.codec import ArrowFormat, Facts, Lookup
from headrace.formats.encoding import topic_for
from headrace.formats.event_numbers import EVENT, PLACE, SIZE, with_event_numbers
from headrace.formats.features import Feature
from headrace.formats.given import with_schema_rows
from headrace.formats.given_tables import TableOptions
from headrace.formats.qlik.avro_encode import QlikAvroEncoder, Registration
from headrace.formats.qlik.avro_message import AvroReader
from headrace.formats.qlik.avro_schema import data_schema, key_schema
from headrace.formats.qlik.decode import QlikDecoder
from headrace.formats.qlik.encode import QlikEncoder
from headrace.formats.qlik.masks import ORDERS
from headrace.formats.qlik.message import json_messages
from headrace.formats.qlik.metadata import MAGIC, MetadataMessage, message_of_bytes, metadata_of, read_metadata
from headrace.formats.qlik.rows import CHANGES, EncodeSettings
from headrace.formats.qlik.schemas import DecodeSettings
from headrace.formats.recognition import Evidence, Sample
from headrace.formats.registry.client import Registry, avro_given
from headrace.formats.registry.framing import recognise_framed
from headrace.formats.registry.schemas import SchemaSource
from headrace.formats.registry.settings import RegistrySettings, registry_of
from headrace.options import OTHER_NAMES
from headrace.settings import option
from headrace.wire.json_writer import to_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ENVELOPE = re.compile(rb"atMSG\x04(MD|DT)", re.DOTALL)
# What stands in an Avro datum in clear: a text's length, zigzag, and its bytes.
_SEQUENCE = re.compile(rb"F\d{35}")


def recognise_json(message: Sample) -> Evidence | None:
    """Why the message is one of Qlik's in JSON; None where nothing says so."""
    fields = message.fields
    if fields.get("magic") == "atMSG" and "message" in fields:
        return Evidence("the envelope with `magic` atMSG")
    headers = fields.get("headers")
    if "data" in fields and isinstance(headers, dict) and "operation" in headers and "changeSequence" in headers:
        return Evidence("`operation` and `changeSequence` in `headers`")
    if {"schemaId", "lineage", "tableStructure"} <= fields.keys():
        return Evidence("a metadata message with `lineage` and `tableStructure`")
    return None


def recognise_avro(message: Sample) -> Evidence | None:
    """Why the message may be one of Qlik's in Avro; None where nothing says so."""
    value = message.value or b""
    if _ENVELOPE.match(value):
        return Evidence("the envelope's first bytes, atMSG")
    return recognise_framed(message, bool(_SEQUENCE.search(value)), "and a change sequence of 35 digits")


class QlikSettings(FormatSettings):
    """What both forms of Qlik's messages have."""

    mask_byte_order: str = option(
        "How to read and write changeMask and columnMask: `big`, a number with its most significant byte first; "
        "`little`, the other way round; `auto`, read as `little` if only that fits the message, and written as `big`.",
        default="big",
        choices=ORDERS,
    )
    metadata: tuple[MetadataMessage, ...] = option(
        "Metadata messages in addition to those among the messages: the text of one, a list of texts, or the path of "
        "a file with one per line. A stream does not read metadata messages by itself.",
        kind=metadata_of,
        default=(),
        names=OTHER_NAMES,
    )
    metadata_topic: str | None = option(
        "The Kafka topic of the metadata messages. Each call of `decode` (each batch inside `foreachBatch`) reads it "
        "from the beginning. Needs `bootstrap_servers`.",
        default=None,
    )
    bootstrap_servers: str | None = option(
        "The brokers of `metadata_topic`, as host:port separated by commas.",
        default=None,
        aliases=("kafka.bootstrap.servers",),
    )
    topic: str = topic_option()
    key: str = option(
        "Encoding: the Kafka key: `primary_key` the row's key columns, `schema_table` the table's name, `none` no key.",
        default="primary_key",
        choices=("none", "schema_table", "primary_key"),
    )
    external_schema_id: bool = option(
        "Encoding: whether headers have `externalSchemaId`, which shows readers that the schema has changed.",
        default=False,
    )
    server: str = option(
        "Encoding: the server in the lineage of metadata messages.",
        default="headrace",
    )
    task: str = option(
        "Encoding: the task in the lineage of metadata messages.",
        default="headrace",
    )


@dataclass(frozen=True)
class QlikFacts(Facts):
    """What codecs of Qlik's messages need beside.

    Args:
        metadata: what is known, by schema id.
        registration: the ids of the schemas that are written, where a registry has them.
    """

    metadata: Mapping[str, MetadataMessage] = field(default_factory=dict)
    registration: Registration | None = None


class QlikFormat(ArrowFormat):
    """What both forms of Qlik's messages have in common."""

    settings: QlikSettings

    reads = frozenset(
        (
            Feature.READ, Feature.TOMBSTONE, Feature.SCHEMA, Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.ABSENT,
            Feature.CHANGED, Feature.KEY_CHANGE, Feature.KEY, Feature.TYPES, Feature.SCHEMA_NAME, Feature.EVENT_TIME,
            Feature.READ_TIME, Feature.EVENT_MILLISECONDS, Feature.EVENT_MICROSECONDS, Feature.TRANSACTION,
            Feature.TRANSACTION_ORDER, Feature.SOURCE,
        )
    )  # fmt: skip
    # No TRANSACTION_ORDER: the messages that are written are numbered, and not the source's events.
    writes = frozenset(
        (
            Feature.READ, Feature.SCHEMA, Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.ABSENT, Feature.CHANGED,
            Feature.KEY_CHANGE, Feature.KEY, Feature.TYPES, Feature.SCHEMA_NAME, Feature.EVENT_TIME,
            Feature.EVENT_MILLISECONDS, Feature.TRANSACTION,
        )
    )  # fmt: skip
    of_transactions = "transactionId, transactionEventCounter and transactionLastEvent"
    metadata_mark: bytes
    """What the value of each metadata message holds."""
    _announced: frozenset[Structure] = frozenset()
    """The structures that readers of its messages have."""

    @property
    def needs_spark(self) -> bool:
        """Whether messages can't be decoded without a Spark session, by these options."""
        return super().needs_spark or self.settings.metadata_topic is not None

    def prepare_decoding(self, lookup: Lookup) -> QlikFacts:
        """All metadata that the options and the messages say; the messages' own wins.

        Raises:
            OptionError: `metadata_topic` is given without `bootstrap_servers`.
        """
        facts = super().prepare_decoding(lookup)
        own_metadata = _read(lookup.values_with(self.metadata_mark))
        known = (*_read(self._of_topic(lookup)), *self.settings.metadata, *own_metadata)
        by_schema = {metadata.schema_id: metadata for metadata in known}
        return QlikFacts(facts.tables, facts.typed, metadata=by_schema)

    def _of_topic(self, lookup: Lookup) -> list[bytes]:
        topic, servers = self.settings.metadata_topic, self.settings.bootstrap_servers
        if topic is None:
            return []
        if servers is None:
            raise OptionError(
                "Option 'metadata_topic' is given without 'bootstrap_servers'.",
                remedy="Set it to the brokers' addresses.",
            )
        return lookup.topic_values(topic, servers)

    def reading(self, facts: Facts, *, lenient: bool = False) -> DecodeSettings:
        """How messages are read.

        Args:
            facts: what the driver found out.
            lenient: whether a message may name metadata that is not known.
        """
        settings = self.settings
        given = TableOptions.of(settings, facts)
        known = facts.metadata if isinstance(facts, QlikFacts) else {}
        return DecodeSettings(settings.mask_byte_order, given, known, lenient)

    written_columns = (
        "op", "table", "key", "before", "after", "changed", "before_absent", "after_absent", "position", "event_time",
        "capture_time", "transaction", "source", "schema_id", EVENT, SIZE, PLACE,
    )  # fmt: skip

    def with_schemas(self, changes: DataFrame, facts: Facts) -> DataFrame:
        """A `schema` row in front for each schema that has none, so that each has a metadata message."""
        from pyspark.sql import functions as F  # noqa: N812

        if not self.has_envelope:
            return changes
        schema_rows = changes.where((F.col("op") == "schema") & F.col("table_schema").isNotNull())
        known = {row.schema_id for row in schema_rows.select("schema_id").distinct().collect()}
        if facts.typed is not None:
            missing = [] if known else [facts.typed]
        else:
            missing = [schema for schema in facts.tables if schema.fingerprint not in known]
        return with_schema_rows(changes, missing) if missing else changes

    def with_counts(self, changes: DataFrame) -> DataFrame:
        return with_event_numbers(changes, CHANGES)

    @property
    @abstractmethod
    def has_envelope(self) -> bool:
        """Whether messages are written in the envelope."""

    @property
    def announces_structures(self) -> bool:
        return self.has_envelope

    def having_announced(self, structures: frozenset[Structure]) -> Self:
        other = copy(self)
        other._announced = structures
        return other

    def writing(self) -> EncodeSettings:
        settings = self.settings
        return EncodeSettings(
            topic=settings.topic,
            metadata_topic=settings.metadata_topic,
            key=settings.key,
            envelope=self.has_envelope,
            server=settings.server,
            task=settings.task,
            little=settings.mask_byte_order == "little",
            external_schema_id=settings.external_schema_id,
            announced=self._announced,
        )

    def name_for(self, table: TableId, connector: str = "") -> str:
        return f"{table.schema}.{table.name}"


def _read(values: Sequence[bytes]) -> list[MetadataMessage]:
    messages = (read_metadata(message_of_bytes(value)) for value in values)
    return [metadata for metadata in messages if metadata is not None]


class QlikJsonSettings(QlikSettings):
    envelope: bool = option(
        "Encoding: whether messages have Qlik's envelope. Without it no metadata messages are written, and JSON "
        "messages name their table in their headers.",
        default=True,
    )


class QlikJson(QlikFormat):
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

    Encoding. A change keeps the `changeSequence` that it came with. Else it is a number of 35 digits from the change's
    position, by which the messages of all tables sort in the order of their source: 25 digits for the commit and 10
    that count the changes in it; several databases, and partitions of Kafka, have an order each. In a batch DataFrame
    the changes of a commit are counted whatever its partitions are. In a plain stream a task counts those that it
    sees, in their order. `streamPosition` is the position. `transactionEventCounter` and `transactionLastEvent` count
    the messages of a transaction, where captured rows name it (`provide_transaction_metadata`): a batch has whole
    transactions, and of a DataFrame that was cut elsewhere they count the part; a plain stream has the source's number
    and does not say which event is the last. REFRESH messages have no headers but the operation. A
    pipeline writes a metadata message with each new structure of a table, once, and keeps in its checkpoint which ones
    a sink has; `headrace.encode` writes it in front of the rows of its structure, once in each of Spark's tasks.
    `tableVersion` is what
    `source['tableVersion']` of a `schema` row says, else 1; a captured table counts its schemas there. Masks are
    numbers in hexadecimal digits with the most significant byte first, as recorded messages have them, where Qlik's
    page calls them little-endian; its example of one byte fits both, and `mask_byte_order: little` writes the other.

    Ordering: `position` is the Kafka offset; Qlik's own order is `source['changeSequence']`, a text of 35 digits.
    Idempotence: messages and metadata alone decide the rows. Process: executors; a batch's metadata messages are
    collected on the driver by a job, when `decode` is called.

    Source: Qlik's documentation of Replicate (Kafka messages).
    """

    name = "qlik_json"
    settings: QlikJsonSettings
    metadata_mark = b"tableStructure"

    @property
    def has_envelope(self) -> bool:
        return self.settings.envelope

    @classmethod
    def recognise(cls, message: Sample) -> Evidence | None:
        return recognise_json(message)

    def decoder(self, facts: Facts) -> QlikDecoder:
        # The schema that is given says what metadata would.
        return QlikDecoder(self.reading(facts, lenient=facts.typed is not None), json_messages)

    def encoder(self, facts: Facts) -> QlikEncoder:
        return QlikEncoder(facts, self.writing())


class QlikAvroSettings(RegistrySettings, QlikSettings):
    value_schema: str | None = option(
        "Framing `none`: the Avro schema, as JSON, of all values without an envelope.",
        kind=avro_given,
        default=None,
    )
    envelope: bool | None = option(
        "Encoding: whether messages have Qlik's envelope, with metadata messages among them. Without it they are "
        "framed as `confluent` with the ids of a registry, and so are keys; that is the default if `registry` is set.",
        default=None,
    )


class QlikAvro(QlikFormat):
    """Qlik's data and metadata messages as Avro: in the envelope (values that start with `atMSG`, recognised message by
    message, also after a frame), or without one and framed with the id of a registry.

    Decoding is that of `qlik_json`. The schema of a datum is the one in its envelope (messageSchema), else dataSchema
    of the metadata message that its messageSchemaId names, else the registry's. Without metadata the table is read from
    the record's namespace (`com.attunity.queue.msg.<task>.<schema>.<table>`).

    Process: executors; a batch's metadata messages and schemas are collected on the driver when `decode` is called. In
    a plain streaming DataFrame executors ask the registry for ids that they have not seen.

    Source: Qlik's documentation of Replicate (Kafka messages).
    """

    name = "qlik_avro"
    examples: ClassVar[Mapping[str, str]] = {"registry": "http://localhost:8081"}
    settings: QlikAvroSettings
    metadata_mark = MAGIC + bytes([4]) + b"MD"

    @classmethod
    def recognise(cls, message: Sample) -> Evidence | None:
        return recognise_avro(message)

    @property
    def has_envelope(self) -> bool:
        settings = self.settings
        return settings.registry is None if settings.envelope is None else settings.envelope

    def prepare_decoding(self, lookup: Lookup) -> QlikFacts:
        """All metadata and schemas that the options and the messages say.

        Raises:
            OptionError: `metadata_topic` is given without `bootstrap_servers`.
            ConnectError: the registry can't be asked.
        """
        return replace(super().prepare_decoding(lookup), schemas=lookup.schemas(self._schemas()))

    def decoder(self, facts: Facts) -> QlikDecoder:
        reading, settings = self.reading(facts), self.settings
        has_registry = settings.registry is not None or settings.value_schema is not None
        reader = AvroReader(reading.metadata, facts.schemas or self._schemas(), has_registry=has_registry)
        return QlikDecoder(reading, reader, reader.described)

    def _schemas(self) -> SchemaSource:
        settings = self.settings
        registry = Registry() if settings.registry is None else registry_of(settings, f"format '{self.name}'")
        return SchemaSource.of(settings, registry, value=settings.value_schema)

    def check(self, *, writes: bool) -> None:
        """Whether there is a topic, and a registry where messages are to be written without the envelope."""
        super().check(writes=writes)
        if writes:
            self._registry_to_write()

    def _registry_to_write(self) -> Registry | None:
        settings, owner = self.settings, f"format '{self.name}'"
        if self.has_envelope:
            return None
        if settings.framing != "confluent":
            raise OptionError(
                f"Option 'framing' can't be '{settings.framing}' when encoding {owner}.", remedy="Use confluent."
            )
        return registry_of(settings, owner)

    def prepare_encoding(self, facts: Facts) -> Facts:
        """Without the envelope, the schemas of values and keys are registered under the topics' names with `-value` and
        `-key`.

        Raises:
            OptionError: no registry and no envelope; another framing than `confluent`.
            ConnectError: the registry can't be asked, or refuses a schema.
        """
        registry = self._registry_to_write()
        if registry is None:
            return facts
        schemas = (facts.typed,) if facts.typed is not None else facts.tables
        task, template = self.settings.task, self.settings.topic
        external = self.settings.external_schema_id
        values, keys = [], []
        for schema in schemas:
            topic = topic_for(template, schema.id)
            values.append(
                registry.registered(f"{topic}-value", to_text(data_schema(schema, task, external=external))).id
            )
            text = to_text(key_schema(schema, task))
            has_key = schema.key and self.settings.key == "primary_key"
            keys.append(registry.registered(f"{topic}-key", text).id if has_key else None)
        return QlikFacts(facts.tables, facts.typed, registration=Registration(tuple(values), tuple(keys)))

    def encoder(self, facts: Facts) -> QlikAvroEncoder:
        registration = facts.registration if isinstance(facts, QlikFacts) else None
        return QlikAvroEncoder(facts, self.writing(), registration)
