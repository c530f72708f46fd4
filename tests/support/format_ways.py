"""Formats that read and write, with the options by which they lose least."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from headrace import registry
from headrace.formats.base import Format
from headrace.formats.convert import decode, encode
from headrace.formats.features import Feature
from headrace.spark.local_rows import local_rows
from headrace.testing.every_change import TIME

FORMATS = [
    name for name in registry.built_in_names("format") if registry.find("format", name).encode is not Format.encode
]


ENCODING: dict[str, dict[str, Any]] = {
    "debezium_json": {
        "topic_prefix": "server",
        "schemas_enable": True,
        "skipped_operations": "none",
        "tombstones_on_delete": False,
    },
    "debezium_avro": {"topic_prefix": "server", "skipped_operations": "none", "tombstones_on_delete": False},
}


DECODING: dict[str, dict[str, Any]] = {"debezium_avro": {"framing": "confluent"}}


def features(*formats: str) -> frozenset[Feature]:
    """What all of these formats both read and write."""
    kinds = [registry.find("format", name) for name in formats]
    return frozenset.intersection(*(kind.reads & kind.writes for kind in kinds))


class Way:
    """Encodes and decodes with what each format needs."""

    def __init__(self, registry_url: str) -> None:
        self.registry = {name: {"registry": registry_url} for name in ("debezium_avro", "qlik_avro")}

    def encode(self, rows: DataFrame, format: str) -> DataFrame:
        return encode(rows, format=format, **ENCODING.get(format, {}), **self.registry.get(format, {}))

    def decode(self, messages: DataFrame, format: str, **options: Any) -> DataFrame:
        given = {**DECODING.get(format, {}), **self.registry.get(format, {}), **options}
        return decode(messages, format=format, **given)


def as_messages(messages: DataFrame, first: int = 0) -> DataFrame:
    """Encoded messages as Kafka would give them back, in order, without a broker; offsets begin with `first`."""
    lines = sorted(messages.collect(), key=lambda line: line.position)
    data = [
        (m.topic, 0, n, TIME, m.key, m.value, [(h.key, h.value) for h in m.headers or ()])
        for n, m in enumerate(lines, first)
    ]
    kinds = (
        "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary, "
        "headers array<struct<key:string,value:binary>>"
    )
    return local_rows(messages.sparkSession, data, kinds)
