"""Topics as a source: where their end is, and a run that ends there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from headrace_standins import written

from headrace.errors import ConnectError, DataLossError
from headrace.pipeline import Pipeline, load_pipeline
from headrace.pipeline.check import Level, Verdict, check_file
from headrace.pipeline.ending import TopicsEnding
from headrace.pipeline.kafka_source import KafkaTopics, OffsetRange, TopicIds, reached
from headrace.spark.local_rows import local_rows
from headrace.testing.waiting import PATIENCE, until
from headrace_emulators.engine.ports import free_ports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pipeline(
    folder: Path, bootstrap: str, *, sink: dict[str, str] | None = None, checkpoint: str = "state", **more: object
) -> Pipeline:
    source = {
        "type": "kafka",
        "bootstrap.servers": bootstrap,
        "topics": ["a", "b"],
        "format": {"type": "lines"},
        **more,
    }
    text = {
        "source": source,
        "sink": sink or {"type": "list_changes", "path": "out"},
        "pipeline": {"name": "k", "checkpoint": checkpoint},
    }
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps(text))
    return load_pipeline(file)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (None, False),
        ('{"a":{"0":3}}', False),
        ('{"a":{"0":3,"1":6}}', False),
        ('{"a":{"0":3,"1":7}}', True),
        ('{"a":{"0":4,"1":9},"b":{"0":1}}', True),
    ],
)
def test_the_end_is_reached_in_every_partition(offset: str | None, expected: bool) -> None:
    # Partition 2 has lost all that it had: Spark may name no offset of it.
    head = {"a": {"0": OffsetRange(0, 3), "1": OffsetRange(2, 7), "2": OffsetRange(5, 5)}}
    assert reached(offset, head) is expected


def test_an_empty_feed_is_at_its_end() -> None:
    assert reached(None, {})


@pytest.mark.parametrize(
    ("given", "held", "sentence"),
    [
        ({"topics": "a,b"}, ["a", "b"], ""),
        ({"topics": "a,b,c"}, ["b"], "It has no topic 'a', 'c' yet; a run waits for it."),
        ({"topics_pattern": "a.*"}, ["ab"], ""),
        ({"topics_pattern": "a.*"}, [], "It has no topic that matches 'a.*' yet; a run waits for it."),
    ],
)
def test_what_is_not_in_kafka_yet_is_said(given: dict[str, str], held: list[str], sentence: str) -> None:
    settings = KafkaTopics.parse({"bootstrap_servers": "k:9092", **given})
    assert KafkaTopics(settings, {}, None).absent(held) == sentence  # type: ignore[arg-type]


def test_a_topic_that_is_shorter_than_what_was_read_is_an_error_and_no_end() -> None:
    def ending(begun: str | None, *, fails: bool = True) -> TopicsEnding:
        head = {"a": {"0": OffsetRange(0, 3)}, "b": {"0": OffsetRange(0, 0)}}
        return TopicsEnding(head, {7: begun}.get, begun, newest_only=False, fail_on_data_loss=fails)

    assert ending('{"a":{"0":3}}').is_reached(7)
    assert not ending(None).is_reached(None)
    for begun in ('{"a":{"0":4}}', '{"a":{"0":3},"b":{"0":1}}'):
        with pytest.raises(DataLossError, match=r"Partition 0 of topic '[ab]' ends at offset [03], but was read up to"):
            ending(begun)
        assert ending(begun, fails=False).is_reached(7)


def test_a_topic_that_was_made_again_stops_or_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    kept: list[dict[str, str]] = []

    def ids(now: dict[str, str], before: dict[str, str], *, fails: bool = True) -> TopicIds:
        def keep(text: str) -> None:
            kept.append(json.loads(text)["topics"])

        return TopicIds(lambda: now, before, keep, fail_on_data_loss=fails)

    now = {"a": "1", "b": "2"}
    # A checkpoint of an earlier release has no ids: it goes on with what it finds.
    first = ids(now, {})
    assert first.confirm() == now
    first.confirm()
    assert kept == [{"a": "1", "b": "2"}]
    # Meanwhile there are more topics, one is gone for now, and one is made again.
    now["c"] = "3"
    del now["b"]
    assert first.confirm() == {"a": "1", "c": "3"}
    now["b"] = "4"
    with pytest.raises(DataLossError, match=r"Topic 'b' was deleted and made again .* Read the topic with a new ch"):
        first.confirm()
    assert kept[1:] == [{"a": "1", "b": "2", "c": "3"}]
    loose = ids(now, kept[-1], fails=False)
    for _ in range(2):
        loose.confirm()
    assert (kept[-1], caplog.text.count("'b' was deleted and made again")) == (now, 1)
    # Brokers before 2.8 have no ids.
    assert ids({"a": "AAAAAAAAAAAAAAAAAAAAAA"}, {"a": "1"}).confirm()
    assert len(kept) == 3


def test_no_broker_is_told_before_spark_is_started(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with pytest.raises(ConnectError, match=rf"^No Kafka broker answers at 127.0.0.1:{port}. Check bootstrap.servers"):
        pipeline(tmp_path, f"127.0.0.1:{port}").check()
    with pytest.raises(ConnectError, match="'localhost' is no Kafka broker's address"):
        pipeline(tmp_path, "localhost").check()


def test_rolled_back_transactions_are_read_only_where_the_user_asks_for_it(tmp_path: Path) -> None:
    name = "kafka.isolation.level"
    for more, expected in (({}, "read_committed"), ({name: "read_uncommitted"}, "read_uncommitted")):
        source = pipeline(tmp_path, "k:9092", **more)._model.source
        assert isinstance(source, KafkaTopics)
        assert source.client_settings == {name: expected}


def in_transaction(bootstrap: str, topic: str, *values: str, commit: bool) -> None:
    """Send messages as a transactional producer does, and commit or roll back."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic} {values}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value.encode())
    producer.flush(30)
    (producer.commit_transaction if commit else producer.abort_transaction)(30)


@pytest.mark.kafka
@pytest.mark.slow
def test_once_reads_to_the_end_and_goes_on_there(spark: SparkSession, tmp_path: Path, bootstrap: str) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    def send(*lines: tuple[str, str]) -> None:
        rows = local_rows(spark, lines, "topic string, value string")
        rows.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).save()

    send(("a", "c 1"), ("b", "c 2"), ("other", "c 3"))
    assert pipeline(tmp_path, bootstrap).start(spark, once=True).wait(PATIENCE)
    assert sorted(t for _, _, texts in written(tmp_path / "out") for t in texts) == ["c 1", "c 2"]
    send(("b", "d 2"))
    running = pipeline(tmp_path, bootstrap).start(spark, once=True)
    assert running.wait(PATIENCE)
    assert written(tmp_path / "out")[-1][2] == ["d 2"]
    assert running.progress().tables[0].table == "dbo.b"
    assert pipeline(tmp_path, bootstrap).start(spark, once=True).wait(PATIENCE)
    assert len(written(tmp_path / "out")) == 2
    source = pipeline(tmp_path, bootstrap)._model.source
    assert isinstance(source, KafkaTopics)
    ids = source.ids(spark.sparkContext._jvm)
    assert set(ids()) == {"a", "b"}
    assert len({*ids().values(), ""}) == 3
    # A table is not made from a topic whose oldest messages are gone, unless the user says that it may be.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (done,) = admin.delete_records([TopicPartition("a", 0, 1)]).values()
    done.result(PATIENCE)
    into_tables = pipeline(tmp_path, bootstrap, sink={"type": "delta", "path": "lake"}, checkpoint="new")
    with pytest.raises(DataLossError, match=r"Partition 0 of topic 'a' begins at offset 1: older .*on_trimmed: con"):
        into_tables.start(spark, once=True)
    findings = check_file(tmp_path / "pipeline.yaml", Level.CONNECT).findings
    (found,) = (one for one in findings if one.subject == "source")
    assert (found.verdict, "begins at offset 1" in found.sentence) == (Verdict.WRONG, True)
    # What a producer rolled back did not happen, and the records that say so are no messages to wait for.
    in_transaction(bootstrap, "a", "rolled back", commit=False)
    in_transaction(bootstrap, "b", "c 4", commit=True)
    in_transaction(bootstrap, "a", "rolled back too", commit=False)
    assert pipeline(tmp_path, bootstrap).start(spark, once=True).wait(PATIENCE)
    assert [texts for _, _, texts in written(tmp_path / "out")[2:]] == [["c 4"]]
    # A topic that was made again may hold more than was read of the old one: only its id tells.
    before = ids()
    (deleted,) = admin.delete_topics(["a"]).values()
    deleted.result(PATIENCE)
    until(lambda: "a" not in ids(), "the topic is gone")
    send(*(("a", f"c {n}") for n in range(10, 20)))
    until(lambda: ids().get("a", before["a"]) != before["a"], "the topic is there again")
    with pytest.raises(DataLossError, match=r"Topic 'a' was deleted and made again since this checkpoint read it"):
        pipeline(tmp_path, bootstrap).start(spark, once=True)
    findings = check_file(tmp_path / "pipeline.yaml", Level.CONNECT).findings
    assert "Topic 'a' was deleted and made again" in next(f.sentence for f in findings if f.subject == "source")
    loose = {"fail_on_data_loss": False}
    assert pipeline(tmp_path, bootstrap, **loose).start(spark, once=True).wait(PATIENCE)
    assert pipeline(tmp_path, bootstrap).start(spark, once=True).wait(PATIENCE)
