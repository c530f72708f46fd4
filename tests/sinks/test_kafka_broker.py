"""The Kafka sink against a real broker: topics that it makes, partitions beside another producer's, limits, secrets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from headrace import registry
from headrace.errors import SinkError
from headrace.formats.base import MESSAGE_DDL
from headrace.observe.messages import MessageCounts
from headrace.observe.progress import ProgressBoard
from headrace.pipeline.batch import BatchWriter
from headrace.pipeline.batch_inputs import Delivery, RowInput
from headrace.pipeline.recover import recover
from headrace.pipeline.target import Target
from headrace.sinks.base import BatchId
from headrace.sinks.kafka.sink import KafkaSink
from headrace.spark.local_rows import local_rows
from headrace.testing.change_history import Batch, pos, table

pytestmark = pytest.mark.kafka

KEYS = [
    b"",
    b"\0\xff",
    b"k",
    *(f'{{"id":{n}}}'.encode() for n in range(12)),
    *(bytes([0, 0, n, 200]) for n in range(9)),
]


def one_sink(sink: Any, format: Any) -> Delivery:
    return Delivery([Target("kafka", sink, format, "maxwell", "sink 1 (kafka)")], ProgressBoard())


def kafka_sink(bootstrap: str, **options: Any) -> KafkaSink:
    given = {"bootstrap.servers": bootstrap, **options}
    return KafkaSink.of(given)


def messages(spark: Any, rows: list[tuple[str, bytes | None, bytes]]) -> Any:
    made = [(topic, None, key, value, None, pos(n)) for n, (topic, key, value) in enumerate(rows)]
    return local_rows(spark, made, MESSAGE_DDL).repartition(3, "position")


def read(spark: Any, bootstrap: str, topic: str) -> list[Any]:
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return list(source.load().orderBy("partition", "offset").collect())


def admin(spark: Any, bootstrap: str) -> Any:
    properties = spark._jvm.java.util.Properties()
    properties.setProperty("bootstrap.servers", bootstrap)
    return spark._jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)


def topic_setting(spark: Any, bootstrap: str, topic: str, name: str) -> str:
    config = spark._jvm.org.apache.kafka.common.config.ConfigResource
    resource = config(config.Type.TOPIC, topic)
    asked = spark._jvm.java.util.ArrayList()
    asked.add(resource)
    client = admin(spark, bootstrap)
    try:
        return str(client.describeConfigs(asked).all().get()[resource].get(name).value())
    finally:
        client.close()


def test_topics_are_made_and_keys_lie_where_another_producer_puts_them(spark: Any, bootstrap: str) -> None:
    creation = {
        "topic.creation.default.partitions": "5",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.cleanup.policy": "compact",
    }
    ours = kafka_sink(bootstrap, **creation)
    ours.write(
        messages(spark, [(topic, key, b"1") for key in KEYS for topic in ("made", "theirs")]), BatchId("p", "c", 0)
    )
    # Spark's writer leaves the partition to Kafka's producer.
    rows = local_rows(spark, [("theirs", key, b"2") for key in KEYS], "topic string, key binary, value binary")
    rows.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).save()
    homes: dict[bytes, set[int]] = {}
    for row in [*read(spark, bootstrap, "made"), *read(spark, bootstrap, "theirs")]:
        homes.setdefault(bytes(row["key"]), set()).add(row["partition"])
    assert set(homes) == set(KEYS)
    assert all(len(partitions) == 1 for partitions in homes.values())
    assert set().union(*homes.values()) == {0, 1, 2, 3, 4}
    assert topic_setting(spark, bootstrap, "made", "cleanup.policy") == "compact"


def test_messages_without_a_key_keep_their_order_in_one_partition(spark: Any, bootstrap: str) -> None:
    sink = kafka_sink(bootstrap, **{"topic.creation.default.partitions": "3"})
    for batch in (0, 1, 1):
        sink.write(
            messages(spark, [("keyless", None, f"{batch}.{n:02}".encode()) for n in range(20)]),
            BatchId("p", "c", batch),
        )
    got: dict[int, list[str]] = {}
    for row in read(spark, bootstrap, "keyless"):
        got.setdefault(row["partition"], []).append(row["value"].decode())
    assert got == {0: [f"0.{n:02}" for n in range(20)], 1: [f"1.{n:02}" for n in range(20)] * 2}


def test_a_topic_that_the_broker_makes_needs_no_option(spark: Any, bootstrap: str) -> None:
    sink = kafka_sink(bootstrap)
    sink.write(messages(spark, [("automatic", b"k", b"1")]), BatchId("p", "c", 0))
    sink.write(messages(spark, []), BatchId("p", "c", 1))
    assert [(row["partition"], bytes(row["value"])) for row in read(spark, bootstrap, "automatic")] == [(0, b"1")]


@pytest.mark.system
def test_new_topics_and_large_messages_come_through_at_any_time(spark: Any, bootstrap: str) -> None:
    sink = kafka_sink(bootstrap, **{"topic.creation.default.partitions": "2"})
    batches = [
        [],
        [("first", b"k", b"1")],
        [("first", b"k", b"2")],
        # By now the batch is not asked for its topics any more.
        [("first", b"k", b"3"), ("second", b"k", b"4")],
        [("first", b"k", b"x" * 1_040_000), ("third", b"k", b"5")],
        [("third", b"k", b"6")],
    ]
    for number, rows in enumerate(batches):
        sink.write(messages(spark, rows), BatchId("p", "c", number))
    got = {
        topic: [len(row["value"]) if len(row["value"]) > 1 else row["value"].decode() for row in found]
        for topic in ("first", "second", "third")
        if (found := read(spark, bootstrap, topic))
    }
    assert got == {"first": ["1", "2", "3", 1_040_000], "second": ["4"], "third": ["5", "6"]}


def test_a_missing_topic_that_nobody_makes_is_named(spark: Any, bootstrap: str) -> None:
    # So little patience that the broker can't make it in time.
    sink = kafka_sink(bootstrap, **{"kafka.max.block.ms": "0"})
    with pytest.raises(SinkError, match=r"no topic 'nowhere' on Kafka at .*topic\.creation\.default\.partitions"):
        sink.write(messages(spark, [("nowhere", b"k", b"1")]), BatchId("p", "c", 0))


def test_a_topic_that_kafka_does_not_make_is_named(spark: Any, bootstrap: str) -> None:
    sink = kafka_sink(bootstrap, **{"topic.creation.default.cleanup.policy": "tidy"})
    with pytest.raises(SinkError, match=r"did not create the topic 'untidy': InvalidConfigurationException, .*tidy"):
        sink.write(messages(spark, [("untidy", b"k", b"1")]), BatchId("p", "c", 0))


def test_a_message_over_the_limit_of_its_topic_stops_the_batch_before_any_is_sent(spark: Any, bootstrap: str) -> None:
    sink = kafka_sink(bootstrap, **{"topic.creation.default.max.message.bytes": "2000"})
    rows = [("narrow", f"k{n}".encode(), b"x" * (3000 if n == 7 else 10)) for n in range(40)]
    with pytest.raises(
        SinkError, match=r"topic narrow \(key k7\) has 31\d\d bytes, more than its max\.message\.bytes of 2000"
    ) as it:
        sink.write(messages(spark, rows), BatchId("p", "c", 0))
    assert read(spark, bootstrap, "narrow") == []
    # The error that a run shows is this one, not what Spark made of it.
    assert recover(it.value) is it.value
    fitting = [(topic, key, value[:10]) for topic, key, value in rows]
    sink.write(messages(spark, fitting), BatchId("p", "c", 0))
    assert len(read(spark, bootstrap, "narrow")) == 40


@pytest.mark.system
def test_messages_over_the_limit_are_kept_beside_where_that_is_asked_and_the_others_sent(
    spark: Any, bootstrap: str, tmp_path: Path
) -> None:
    options = {"topic.creation.default.max.message.bytes": "2000", "on_oversized": "dead_letter"}
    sink = kafka_sink(bootstrap, **options, oversized_path=f"{tmp_path}/aside")
    rows = [("shorter", f"k{n}".encode(), b"x" * (3000 if n in (3, 7) else 10)) for n in range(10)]
    for _ in range(2):
        sink.write(messages(spark, rows), BatchId("p", "c", 4))
    sink.write(messages(spark, [("shorter", b"k3", b"later")]), BatchId("p", "c", 5))
    sent = [bytes(row["key"]) for row in read(spark, bootstrap, "shorter")]
    assert sorted(sent) == sorted([key for _, key, value in rows if len(value) == 10] * 2 + [b"k3"])
    aside = spark.read.parquet(f"{tmp_path}/aside").orderBy("position").collect()
    assert [(row["topic"], bytes(row["key"]), bytes(row["value"]), row["position"]) for row in aside] == [
        ("shorter", key, value, pos(n)) for n, (_, key, value) in enumerate(rows) if len(value) == 3000
    ]
    why = r"A Kafka message for topic shorter \(key k\d\) has 31\d\d bytes, more than its max\.message\.bytes of 2000\."
    assert all(re.fullmatch(why, row["reason"]) for row in aside)


@pytest.mark.system
def test_a_change_over_the_limit_is_sent_without_its_large_columns_where_that_is_asked(
    spark: Any, bootstrap: str
) -> None:
    schema = table(key=("id",), id="int32", a="string", b="string")
    batch = Batch(schema).add("c", schema, 1, {"id": "1", "a": "x" * 1500, "b": "y"})
    batch.add("u", schema, 2, {"id": "2", "a": "x" * 3000, "b": "z"}, {"id": "2", "a": "w" * 900, "b": None})
    options = {"topic.creation.default.max.message.bytes": "2500", "on_oversized": "drop_columns"}
    sink = kafka_sink(bootstrap, **options, oversized_column_bytes=1000)
    format = registry.find("format", "maxwell_json")
    format = format.of({"topic": "trimmed"})
    writer = BatchWriter("p", RowInput(), one_sink(sink, format))
    writer.begin("c")
    for number in range(2):
        writer(batch.rows(spark), number)
    found = [json.loads(row["value"]) for row in read(spark, bootstrap, "trimmed")]
    whole = {"id": 1, "a": "x" * 1500, "b": "y"}
    assert [one["data"] for one in found] == [whole, {"id": 2, "b": "z"}] * 2
    # What is still too large stops the batch.
    tight = kafka_sink(bootstrap, **options, oversized_column_bytes=2900)
    with pytest.raises(SinkError, match=r"topic trimmed .* more than its max\.message\.bytes of 2500"):
        again = BatchWriter("p", RowInput(), one_sink(tight, format))
        again.begin("c")
        again(Batch(schema).add("c", schema, 3, {"id": "3", "a": "x" * 2800, "b": "y"}).rows(spark), 2)


@pytest.mark.system
def test_only_the_change_that_is_too_large_lacks_values_whatever_shares_its_position(
    spark: Any, bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    orders, other = table("orders", id="int32", a="string"), table("other", id="int32", a="string")
    large, fits = "x" * 3000, "y" * 1500
    batch = Batch(orders, other)
    # One offset in two partitions and in another topic; two keys of a snapshot, and another table's.
    for number, (topic, partition, value) in enumerate([("s", 0, fits), ("s", 1, large), ("t", 0, fits)]):
        batch.add("c", orders, 7, {"id": str(number), "a": value})
        at = {"topic": topic, "partition": partition, "offset": 7, "timestamp": None}
        batch.lines[-1]["message"] = {**at, "key": None, "value": None, "headers": None}
    for schema, number, value in ((orders, 3, fits), (orders, 4, large), (other, 3, fits)):
        batch.add("r", schema, 9, {"id": str(number), "a": value})
    sink = kafka_sink(
        bootstrap,
        **{"topic.creation.default.max.message.bytes": "2500", "on_oversized": "drop_columns"},
        oversized_column_bytes=1000,
    )
    format = registry.find("format", "maxwell_json")
    format = format.of({"topic": "alike"})
    board = ProgressBoard()
    kept: list[MessageCounts] = []
    target = Target("kafka", sink, format, "maxwell", "sink 1 (kafka)")
    writer = BatchWriter("p", RowInput(), Delivery([target], board, keep=lambda _, counts: kept.append(counts)))
    writer.begin("c")
    writer(batch.rows(spark), 0)
    found = [json.loads(row["value"]) for row in read(spark, bootstrap, "alike")]
    sent = {(one["table"], one["data"]["id"]): one["data"].get("a") for one in found}
    whole = {("orders", 0): fits, ("orders", 2): fits, ("orders", 3): fits, ("other", 3): fits}
    assert sent == {**whole, ("orders", 1): None, ("orders", 4): None}
    assert board.progress(None, True).messages == MessageCounts(shortened=2) == kept[0]
    assert [record.getMessage().partition("too large: ")[2] for record in caplog.records if "too la" in record.msg] == [
        "table dbo.orders at position 00000009//; topic s, partition 1, offset 7."
    ]


def test_a_refusal_of_kafka_shows_no_secret(spark: Any, bootstrap: str) -> None:
    impatient = {"kafka.default.api.timeout.ms": "1500", "kafka.request.timeout.ms": "1000"}
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hush"{end}'
    sasl = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    for end, said in ((";", "does not take the mechanism of the login there"), ("", "can't be asked for .*Exception")):
        sink = kafka_sink(bootstrap, **impatient, **sasl, **{"kafka.sasl.jaas.config": jaas.replace("{end}", end)})
        with pytest.raises(SinkError, match=said) as it:
            sink.write(messages(spark, [("secret", b"k", b"1")]), BatchId("p", "c", 0))
        assert "hush" not in str(it.value)


def test_a_private_key_is_redacted_in_sparks_plans(spark: Any) -> None:
    from headrace.sinks.kafka.sink import _hide_private_key

    name = "spark.sql.redaction.options.regex"
    before = spark.conf.get(name)
    try:
        for _ in range(2):
            _hide_private_key(spark, {"kafka.ssl.keystore.key": "-----BEGIN PRIVATE KEY-----"})
        assert spark.conf.get(name) == f"{before}|(?i)keystore[.]key"
    finally:
        spark.conf.set(name, before)
