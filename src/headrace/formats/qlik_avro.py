"""Qlik Replicate's Avro messages, in their envelope or with a schema registry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from headrace.changes import TableId
from headrace.errors import OptionError
from headrace.formats.avro_decode import has_spark_avro
from headrace.formats.avro_framing import FRAMING, Framing
from headrace.formats.base import COMMON, Format
from headrace.formats.messages import kafka_columns
from headrace.formats.qlik_avro_decode import QlikSchemas, decoded_maps
from headrace.formats.qlik_avro_encode import avro_messages
from headrace.formats.qlik_decode import DecodePlan
from headrace.formats.qlik_encode import laid_maps
from headrace.formats.qlik_json import (
    BOOTSTRAP_SERVERS,
    ENCODING,
    MASK_BYTE_ORDER,
    METADATA,
    METADATA_TOPIC,
    READS,
    WRITES,
    announced_rows,
    encoding_of,
    metadata_given,
)
from headrace.formats.schema_registry import REGISTRY_OPTIONS, Registry, registry_of
from headrace.options import Option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def avro_given(given: Any) -> str:
    """An Avro schema as JSON text or parsed JSON."""
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    try:
        json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is no JSON ({error})") from error
    return text


_VALUE_SCHEMA = Option(
    "value_schema",
    avro_given,
    "Framing `none`: the Avro schema of all values that have no envelope, as JSON.",
    default=None,
)


class QlikAvro(Format):
    """Qlik's data and metadata messages as Avro: in the envelope (values that start with `atMSG`, told message by
    message), or without one and framed with the id of a registry.

    Decoding is that of `qlik_json`. The schema of a datum is the one in its envelope (messageSchema), else dataSchema
    of the metadata message that its messageSchemaId names, else the registry's. Without metadata the table is read from
    the record's namespace (`com.attunity.queue.msg.<task>.<schema>.<table>`).

    Process: spark-avro in executors for batch DataFrames, Arrow batches and fastavro in Python workers for streams,
    which is slower by far; a batch's metadata messages and schemas are collected on the driver when `decode` is called.

    Source: Qlik's documentation of Replicate (Kafka messages).
    """

    name = "qlik_avro"
    options = (
        *COMMON,
        *REGISTRY_OPTIONS,
        FRAMING,
        _VALUE_SCHEMA,
        MASK_BYTE_ORDER,
        METADATA,
        METADATA_TOPIC,
        BOOTSTRAP_SERVERS,
        *(option for option in ENCODING if option.name != "envelope"),
        Option(
            "envelope",
            bool,
            "Encoding: whether messages stand in Qlik's envelope, with metadata messages among them. Without it they "
            "are framed as `confluent` with the ids of a registry, and so are keys; that is the default where "
            "`registry` is given.",
            default=None,
        ),
    )
    reads = READS
    writes = WRITES

    def decode(self, messages: DataFrame) -> DataFrame:
        """Kafka columns to change rows, with structs where `schema` holds one structure, else maps.

        Raises:
            OptionError: `schema` can't be read, or `metadata_topic` is given without `bootstrap_servers`.
            ConnectError: the registry can't be asked.
        """
        settings = self.settings
        given, keys = settings["schema"], tuple(settings["keys"])
        plan = DecodePlan(
            order=settings["mask_byte_order"],
            keys=keys,
            given=given.tables if given is not None and not given.single else (),
            struct=given.only(keys) if given is not None and given.single else None,
            metadata=metadata_given(settings, messages.sparkSession),
        )
        value = settings["value_schema"]
        registry = Registry() if settings["registry"] is None else registry_of(settings, f"format '{self.name}'")
        if value is None and len(registry.schemas) == 1:
            value = next(iter(registry.schemas.values()))
        schemas = QlikSchemas(
            Framing(settings["framing"], False, value is not None),
            registry,
            None,
            value,
            without_registry=settings["registry"] is None and value is None,
        )
        return decoded_maps(kafka_columns(messages), schemas, plan)

    def encode(self, changes: DataFrame) -> DataFrame:
        """Change rows to data messages; other rows give no message, but `schema` rows a metadata message in the
        envelope.

        Without the envelope, the schemas of values and keys are registered when `encode` is called, under the topics'
        names with `-value` and `-key`.

        Raises:
            OptionError: no spark-avro in the session; no registry and no envelope; another framing than `confluent`; a
                streaming DataFrame of map images without the option `schema`; a bad `topic`.
            ConnectError: the registry can't be asked, or refuses a schema.
        """
        settings, owner = self.settings, f"format '{self.name}'"
        if not has_spark_avro(changes):
            raise OptionError(
                "Encoding Avro needs spark-avro in the Spark session.",
                remedy="Add org.apache.spark:spark-avro_2.13 to spark.jars.packages.",
            )
        envelope, registry = self._envelope_or_registry()
        encoding = encoding_of(settings.replaced(envelope=envelope))
        rows, schemas = announced_rows(changes, settings, owner)
        topics = [topic_name(settings["topic"], schema.id) for schema in schemas]
        return avro_messages(laid_maps(rows, schemas, encoding), schemas, encoding, registry, topics)

    def check(self, *, writes: bool) -> None:
        """Whether there is a registry where messages are to be written without the envelope."""
        if writes:
            self._envelope_or_registry()

    def _envelope_or_registry(self) -> tuple[bool, Registry | None]:
        settings, owner = self.settings, f"format '{self.name}'"
        envelope = settings["registry"] is None if settings["envelope"] is None else settings["envelope"]
        if envelope:
            return True, None
        if settings["framing"] != "confluent":
            raise OptionError(
                f"Option 'framing' can't be '{settings['framing']}' when encoding {owner}.", remedy="Use confluent."
            )
        return False, registry_of(settings, owner)


def topic_name(template: str, id: TableId) -> str:
    """The topic of a table by the option `topic`."""
    parts = {"database": id.database, "schema": id.schema, "table": id.name, "path": id.full_path}
    for name, text in parts.items():
        template = template.replace("${" + name + "}", text)
    return template
