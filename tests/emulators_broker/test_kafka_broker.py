"""The broker that demos and tests start is a real Kafka whose messages survive a restart and a power cut."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as kafka
import pytest
from confluent_kafka.admin import AdminClient

from headrace.errors import ConnectError
from headrace_emulators.kafka.broker import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


def produce(broker: KafkaBroker, topic: str, *values: bytes) -> None:
    producer = kafka.Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, value=value, key=b"k")
    assert producer.flush(30) == 0


def consume(broker: KafkaBroker, topic: str, count: int) -> list[bytes]:
    consumer = kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False}
    )
    try:
        consumer.assign([kafka.TopicPartition(topic, 0, kafka.OFFSET_BEGINNING)])
        values: list[bytes] = []
        while len(values) < count:
            message = consumer.poll(30)
            assert message is not None, f"only {len(values)} of {count} messages came"
            assert message.error() is None, message.error()
            values.append(message.value())
        return values
    finally:
        consumer.close()


def test_messages_come_back_in_the_order_they_were_sent(broker: KafkaBroker) -> None:
    produce(broker, "order", b"1", b"2", b"3")
    assert consume(broker, "order", 3) == [b"1", b"2", b"3"]


@pytest.mark.system
def test_the_command_runs_a_broker_until_it_is_asked_to_end(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace_emulators.kafka", str(tmp_path / "kafka")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().removeprefix("bootstrap.servers: ").split()[0]
        admin = AdminClient({"bootstrap.servers": address})
        assert admin.list_topics(timeout=30).brokers
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    with pytest.raises(kafka.KafkaException):
        AdminClient({"bootstrap.servers": address}).list_topics(timeout=1)


@pytest.mark.system
def test_messages_and_port_survive_a_restart(broker: KafkaBroker) -> None:
    produce(broker, "restart", b"before")
    bootstrap, pid = broker.bootstrap, broker.pid
    broker.restart()
    assert broker.bootstrap == bootstrap
    assert broker.pid != pid
    produce(broker, "restart", b"after")
    assert consume(broker, "restart", 2) == [b"before", b"after"]


@pytest.mark.system
def test_acknowledged_messages_survive_a_kill(broker: KafkaBroker) -> None:
    produce(broker, "kill", b"kept")
    broker.kill()
    assert broker.pid is None
    broker.start()
    assert consume(broker, "kill", 1) == [b"kept"]


def test_starting_twice_is_starting_once(broker: KafkaBroker) -> None:
    pid = broker.pid
    assert broker.start().pid == pid


def test_a_broker_that_cannot_start_names_its_log(broker: KafkaBroker, tmp_path: Path) -> None:
    settings = (broker.folder / "server.properties").read_text()
    (tmp_path / "server.properties").write_text(settings.replace("node.id=1", "node.id=none"))
    (tmp_path / "log4j2.properties").touch()
    with pytest.raises(ConnectError, match=r"broker\.log"):
        KafkaBroker(tmp_path).start()
