"""The options of topics and messages that need neither Spark nor a broker."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import OptionError, SinkError
from headrace.sinks.kafka.limits import fitting_batches, producer_limit, sentence_of
from headrace.sinks.kafka.partitions import by_topic, partition_of
from headrace.sinks.kafka.sink import KafkaSink
from headrace.sinks.kafka.topics import TopicRule, Topics, topic_creation

DEFAULT = "topic.creation.default."


def kafka_sink(**options: Any) -> KafkaSink:
    given = {"bootstrap.servers": "k:9092", **options}
    return KafkaSink.of(given)


def test_without_options_no_topic_is_made() -> None:
    assert topic_creation({}) is None
    assert topic_creation({"topic.creation.enable": "false", f"{DEFAULT}partitions": "3"}) is None


def test_a_missing_topic_is_made_as_the_default_group_says() -> None:
    creation = topic_creation(
        {f"{DEFAULT}partitions": "6", f"{DEFAULT}replication.factor": "3", f"{DEFAULT}cleanup.policy": "compact"}
    )
    assert creation is not None
    assert creation.rule("any") == TopicRule(6, 3, {"cleanup.policy": "compact"})


def test_what_is_not_said_is_left_to_the_brokers() -> None:
    creation = topic_creation({f"{DEFAULT}retention.ms": "1000"})
    assert creation is not None
    rule = creation.rule("any")
    assert (rule.partitions, rule.replication_factor, rule.settings) == (-1, -1, {"retention.ms": "1000"})


def test_the_first_group_that_takes_a_topic_wins() -> None:
    creation = topic_creation(
        {
            "topic.creation.groups": "facts, others",
            "topic.creation.facts.include": r"sales\.dbo\.(orders|lines), .*_facts",
            "topic.creation.facts.exclude": "old_facts",
            "topic.creation.facts.partitions": "12",
            "topic.creation.facts.cleanup.policy": "compact",
            "topic.creation.others.include": r"sales\..*",
            "topic.creation.others.replication.factor": "1",
            f"{DEFAULT}partitions": "2",
            f"{DEFAULT}replication.factor": "3",
            f"{DEFAULT}compression.type": "lz4",
        }
    )
    assert creation is not None

    def made(topic: str) -> tuple[int, int, dict[str, str]]:
        rule = creation.rule(topic)
        return rule.partitions, rule.replication_factor, dict(rule.settings)

    # Partitions and copies fall back to the default group; its other settings are its own.
    assert made("sales.dbo.orders") == (12, 3, {"cleanup.policy": "compact"})
    assert made("day_facts") == (12, 3, {"cleanup.policy": "compact"})
    assert made("old_facts") == (2, 3, {"compression.type": "lz4"})
    assert made("sales.dbo.customers") == (2, 1, {})
    assert made("elsewhere") == (2, 3, {"compression.type": "lz4"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({f"{DEFAULT}partitions": "0"}, r"'topic\.creation\.default\.partitions' of sink 'kafka' can't be '0'"),
        ({f"{DEFAULT}partitions": "many"}, "can't be 'many'"),
        ({f"{DEFAULT}replication.factor": "-2"}, "can't be '-2'"),
        ({"topic.creation.facts.partitions": "3"}, r"does not belong to a group of topics\. Name it in"),
        ({"topic.creation.partitions": "3"}, "does not belong to a group of topics"),
        (
            {"topic.creation.groups": "a", "topic.creation.a.partitions": "3"},
            r"'topic\.creation\.a\.include' .*missing",
        ),
        ({"topic.creation.groups": "a", "topic.creation.a.include": "("}, "not a regular expression"),
        ({f"{DEFAULT}include": ".*"}, "takes what no other takes"),
        ({"topic.creation.enable": "perhaps"}, "can't be 'perhaps'"),
    ],
)
def test_options_of_topics_that_can_not_be_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        kafka_sink(**options)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("on_oversized", "dead_letter", "'on_oversized: dead_letter' and 'oversized_path' of sink 'kafka' go together"),
        ("oversized_path", "/aside", "go together"),
        ("on_oversized", "ignore", "on_oversized"),
        ("kafka.partitioner.class", "org.example.Mine", "'kafka.partitioner.class' of sink 'kafka' is not allowed"),
        ("kafka.partitioner.ignore.keys", "true", "can't be 'true'"),
        ("kafka.enable.idempotence", "false", "can't be 'false'"),
    ],
)
def test_what_would_break_the_promises_is_refused(option: str, value: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        kafka_sink(**{option: value})
    assert kafka_sink(onOversized="fail").settings.on_oversized == "fail"


def test_no_secret_is_shown() -> None:
    secrets = {
        "kafka.sasl.jaas.config": 'ScramLoginModule required password="hush-1";',
        "kafka.ssl.keystore.password": "hush-2",
        "kafka.ssl.key.password": "hush-3",
        "kafka.ssl.keystore.key": "-----BEGIN PRIVATE KEY----- hush-4",
        "kafka.sasl.oauthbearer.client.credentials.client.secret": "hush-5",
    }
    sink = kafka_sink(**secrets, **{"kafka.security.protocol": "SASL_SSL"})
    shown = f"{sink.settings!r} {sink.settings.kafka['kafka.ssl.keystore.key']!r} {sink!r}"
    assert "hush" not in shown
    assert "SASL_SSL" in shown
    # They reach Kafka as they are.
    assert sink._client_settings["ssl.keystore.key"] == "-----BEGIN PRIVATE KEY----- hush-4"


def test_topics_can_not_be_made_through_spark_connect() -> None:
    class Connect:
        """A session without a JVM."""

    assert Topics({"bootstrap.servers": "k:1"}, None).of(Connect(), ["a"]) == {}  # type: ignore[arg-type]
    creation = topic_creation({f"{DEFAULT}partitions": "3"})
    with pytest.raises(SinkError, match="Spark Connect session does not have"):
        Topics({"bootstrap.servers": "k:1"}, creation).of(Connect(), ["a"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({}, ("max.request.size", 1_048_576)),
        ({"max.request.size": "5000000"}, ("max.request.size", 5_000_000)),
        ({"max.request.size": "50000000"}, ("buffer.memory", 33_554_432)),
        ({"buffer.memory": "1000"}, ("buffer.memory", 1000)),
    ],
)
def test_the_lesser_limit_of_the_producer_counts(settings: dict[str, str], limit: tuple[str, int]) -> None:
    assert producer_limit(settings) == limit


@pytest.mark.parametrize(
    ("settings", "limits", "expected"),
    [
        ({}, {}, {}),
        ({}, {"a": None}, {}),
        ({}, {"a": 1_048_588}, {}),
        ({}, {"a": 1_048_588, "b": 2000}, {"batch.size": "2000"}),
        ({"batch.size": "1000"}, {"a": 2000}, {}),
        ({"batch.size": "2000000"}, {"a": 1_048_588}, {"batch.size": "1048588"}),
        ({"compression.type": "zstd"}, {"a": 20_000}, {"batch.size": "10000"}),
    ],
)
def test_batches_of_the_producer_are_never_larger_than_a_topic_takes(
    settings: dict[str, str], limits: dict[str, int | None], expected: dict[str, str]
) -> None:
    assert fitting_batches(settings, limits) == expected


def test_only_our_sentence_is_taken_out_of_a_failure() -> None:
    raised = "[USER_RAISED_EXCEPTION] headrace.errors.{} SQLSTATE: P0001\n at x"
    ours = raised.format("SinkError: A Kafka message for topic a (key b) is too large. Do it.")
    assert sentence_of(ours) == "A Kafka message for topic a (key b) is too large. Do it."
    assert sentence_of(raised.format("FormatError: Column 'x' can't be written.")) is None


def test_facts_of_many_topics_make_a_short_text() -> None:
    facts = {f"t{n}": 12 for n in range(1000)} | {"small": 1, "o'clock": None}
    assert by_topic(facts) == (
        "case when topic in ('o\\'clock') then cast(null as int) when topic in ('small') then 1 else 12 end"
    )
    assert by_topic({"a": 3, "b": 3}) == "3"


def test_topics_of_one_partition_need_no_hash() -> None:
    assert "coalesce(partition, 0)" in partition_of({"a": 1, "b": 1}, 7)
    assert "MurmurHash2" not in partition_of({"a": 1, "b": 1}, 7)
    assert "MurmurHash2" in partition_of({"a": 1, "b": 2}, 7)
