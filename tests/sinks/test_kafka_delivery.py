"""Rule: what a worker sends to Kafka by itself is what Spark and the sink would send, byte for byte, or nothing of it.

Against a real broker; those that need no Spark have none.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from headrace.errors import SinkError
from headrace.formats.base import MESSAGE_DDL
from headrace.formats.codec import MESSAGES
from headrace.sinks.base import BatchId
from headrace.sinks.kafka.delivery import KafkaDirectProducer
from headrace.sinks.kafka.sink import KafkaSink
from headrace.spark.local_rows import local_rows
from headrace.testing.change_history import pos
from headrace.testing.waiting import until

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.kafka

KEYS = [
    b"",
    b"\0\xff",
    b"k",
    *(f'{{"id":{n}}}'.encode() for n in range(40)),
    *(bytes([0, 0, n, 200]) * (n % 4 + 1) + b"x" * (n % 5) for n in range(20)),
]

Row = tuple[str, int | None, bytes | None, bytes | None, list[dict[str, Any]] | None, str]


def made(bootstrap: str, *names: str, partitions: int = 1, **settings: str) -> None:
    """Make topics."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {name.replace("_", "."): value for name, value in settings.items()}
    for future in admin.create_topics([NewTopic(name, partitions, 1, config=config) for name in names]).values():
        future.result(10)


def outlet_to(bootstrap: str, **options: str) -> KafkaDirectProducer:
    found = KafkaSink.of({"bootstrap.servers": bootstrap, **options}).direct_producer()
    assert isinstance(found, KafkaDirectProducer), found
    return KafkaDirectProducer.from_text(found.to_text())


def batches(rows: Sequence[Row], size: int = 7) -> list[pa.RecordBatch]:
    named = [dict(zip(MESSAGES.names, row, strict=True)) for row in rows]
    return [pa.RecordBatch.from_pylist(named[n : n + size], MESSAGES) for n in range(0, len(named), size)]


def row(topic: str, key: bytes | None, value: bytes | None, n: int = 0) -> Row:
    return topic, None, key, value, None, pos(n)


def shipped(direct_producer: KafkaDirectProducer, rows: Sequence[Row], batch: int = 0) -> str:
    """Send rows as one task; why nothing was sent, or nothing."""
    delivery = direct_producer.delivery(batch)
    parts = batches(rows)
    for part in parts:
        delivery.inspect(part)
    if not delivery.refusal:
        delivery.send(parts)
    return delivery.refusal


def read(bootstrap: str, topic: str) -> list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]]:
    """All that a topic has: partition, key, value, headers; by partition and offset."""
    # Each partition waits for the fetch of the one before it.
    at_once = {"fetch.wait.max.ms": 10, "enable.partition.eof": False}
    consumer: Any = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", **at_once})
    found = []
    try:
        for number in sorted(consumer.list_topics(topic, timeout=10).topics[topic].partitions):
            _, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING)])
            for _ in range(high):
                message = consumer.poll(10)
                assert message is not None
                assert message.error() is None
                found.append((number, message.key(), message.value(), message.headers() or []))
    finally:
        consumer.close()
    return found


def test_both_ways_give_the_same_messages_in_the_same_partitions(spark: Any, bootstrap: str) -> None:
    headers = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}, {"key": "b", "value": b""}]
    rows: list[Row] = []
    for n, key in enumerate([*KEYS, None, None, None] * 2):
        many = None if n % 3 else headers
        rows += [
            ("five.T", None, key, None if n == 5 else f"{n}".encode() * (n % 50), many, pos(2 * n)),
            ("one.T", None, key, b"x", [], pos(2 * n)),
            ("three.T", n % 3, key, b"", many, pos(2 * n + 1)),
        ]
    seen = {}
    for way in ("workers", "spark"):
        ours = [(f"{way}.{topic}", *rest) for topic, *rest in rows]
        for name, count in (("five", 5), ("one", 1), ("three", 3)):
            made(bootstrap, f"{way}.{name}.T", partitions=count)
        for batch in (0, 3):
            if way == "workers":
                assert shipped(outlet_to(bootstrap), ours, batch) == ""
            else:
                frame = local_rows(spark, ours, MESSAGE_DDL).repartition(3, "position")
                KafkaSink.of({"bootstrap.servers": bootstrap}).write(frame, BatchId("p", "c", batch))
        seen[way] = {name: read(bootstrap, f"{way}.{name}.T") for name in ("five", "one", "three")}
    # Keys of one partition have no order among each other where their positions are equal.
    assert seen["workers"] == seen["spark"]
    assert len({partition for partition, *_ in seen["workers"]["five"]}) == 5
    assert len(seen["workers"]["one"]) == 2 * len(KEYS) * 2 + 12


def test_topics_that_are_missing_are_made_by_brokers_that_do_so(bootstrap: str) -> None:
    assert shipped(outlet_to(bootstrap), [row("new.1", b"k", b"1"), row("new.2", b"k", b"2")]) == ""
    assert [len(read(bootstrap, topic)) for topic in ("new.1", "new.2")] == [1, 1]


def test_topics_that_the_sink_makes_are_left_to_spark_until_they_are_there(bootstrap: str) -> None:
    direct_producer = outlet_to(bootstrap, **{"topic.creation.default.partitions": "3"})
    made(bootstrap, "there.1")
    rows = [row("there.1", b"k", b"1"), row("late.1", b"k", b"2")]
    assert shipped(direct_producer, rows) == "topic 'late.1' is not there yet"
    assert read(bootstrap, "there.1") == []
    made(bootstrap, "late.1")
    assert shipped(direct_producer, rows) == ""
    assert [len(read(bootstrap, topic)) for topic in ("there.1", "late.1")] == [1, 1]


@pytest.mark.parametrize(
    ("topic", "settings", "options", "most"),
    [
        ("narrow.a", {"max_message_bytes": "2000"}, {}, 1000),
        ("narrow.b", {}, {"kafka.max.request.size": "40000"}, 40_000 - 16_384),
        ("narrow.c", {"max_message_bytes": "2000"}, {"kafka.max.request.size": "40000"}, 1000),
    ],
)
def test_a_message_that_may_be_too_large_keeps_all_others_back(
    bootstrap: str, topic: str, settings: dict[str, str], options: dict[str, str], most: int
) -> None:
    made(bootstrap, topic, **settings)
    direct_producer = outlet_to(bootstrap, **options)
    fitting = [row(topic, b"k", b"x" * (most - 1), n) for n in range(30)]
    assert shipped(direct_producer, [*fitting, row(topic, b"k", b"x" * most, 99)]) == "a message may be too large"
    assert read(bootstrap, topic) == []
    # So small a limit bounds the batches too.
    assert shipped(direct_producer, fitting) == ""
    assert len(read(bootstrap, topic)) == 30


def refused_for_size(bootstrap: str, topic: str, value: bytes) -> bool:
    outcomes: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(10)
    return [error and error.code() for error in outcomes] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_a_refusal_of_kafka_behind_the_look_is_no_success(bootstrap: str) -> None:
    made(bootstrap, "shrunk")
    direct_producer = outlet_to(bootstrap)
    assert shipped(direct_producer, [row("shrunk", b"k", b"1")]) == ""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    smaller = ConfigResource(ConfigResource.Type.TOPIC, "shrunk", set_config={"max.message.bytes": "500"})
    admin.alter_configs([smaller])[smaller].result(10)
    # The controller has the new limit by now; the broker follows it a moment later.
    until(lambda: refused_for_size(bootstrap, "shrunk", b"x" * 600), "the broker keeps the new limit")
    rows = [row("shrunk", b"k", b"x" * 400, n) for n in range(5)]
    with pytest.raises(SinkError, match=r"refused a message of batch 4 for its size.*max\.message\.bytes"):
        shipped(direct_producer, rows, batch=4)
    # The next attempt looks again, and finds what is so now.
    assert shipped(direct_producer, rows, batch=4) == "a message may be too large"


def test_brokers_that_do_not_answer_are_left_to_spark_which_names_them(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.sinks.kafka.delivery._ASK_SECONDS", 0.5)
    direct_producer = outlet_to("127.0.0.1:1")
    assert shipped(direct_producer, [row("t", b"k", b"1")]).startswith("librdkafka could not ask for the topics (_")


def test_secrets_are_in_no_text_that_is_shown(bootstrap: str) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hush";'
    options = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    direct_producer = outlet_to(bootstrap, **options, **{"kafka.sasl.jaas.config": jaas})
    assert direct_producer.client["sasl.password"] == "hush"
    assert "hush" not in repr(direct_producer)
    assert json.loads(direct_producer.to_text())["client"]["sasl.username"] == "u"
