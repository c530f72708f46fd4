"""Qlik Replicate's Avro messages, in their envelope or with a schema registry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from headrace.formats.avro_framing import FRAMING, Framing
from headrace.formats.base import COMMON, Format, topic_option
from headrace.formats.messages import kafka_columns
from headrace.formats.qlik_avro_decode import QlikSchemas, decoded_maps
from headrace.formats.qlik_decode import DecodePlan
from headrace.formats.qlik_json import (
    BOOTSTRAP_SERVERS,
    MASK_BYTE_ORDER,
    METADATA,
    METADATA_TOPIC,
    READS,
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

    Source: seed 003; spec/format_qlik.md.
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
        topic_option(),
    )
    reads = READS

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
            given=given.tables if given is not None else (),
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
