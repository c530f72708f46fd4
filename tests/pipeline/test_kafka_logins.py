"""Rule: a pipeline writes and reads Kafka with every login that Kafka has, and says in a sentence why it can't."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.harness import read_topics
from tests.support.certificates import Authority
from tests.support.kerberos import kerberos, needs_kerberos
from tests.support.secured_kafka import KERBEROS, PASSWORD, SecuredKafka, secured_kafka
from typer.testing import CliRunner

from headrace.cli.app import app
from headrace.errors import HeadraceError
from headrace.pipeline import Pipeline, fusing, load_pipeline
from headrace.sinks.kafka.sink import KafkaSink
from headrace.testing.waiting import PATIENCE
from headrace_emulators.sqlserver import EmulatedServer
from headrace_emulators.sqlserver.shop import Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.system]
WRONG = "incorrect horse"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with ExitStack() as held:
        realm = None
        if not needs_kerberos.args[0]:
            realm = held.enter_context(kerberos(tmp_path_factory.mktemp("realm")))
            environ = held.enter_context(pytest.MonkeyPatch.context())
            # Of the small JVM that asks Kafka.
            environ.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={realm.config}")
        yield held.enter_context(secured_kafka(tmp_path_factory.mktemp("secured"), realm))


@pytest.fixture(autouse=True)
def environ(kafka: SecuredKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the pipelines' files say that their secrets are."""
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    (tmp_path / "client.key").write_bytes(kafka.client.key.read_bytes())


def options(kafka: SecuredKafka, way: str, **changes: str | None) -> dict[str, str]:
    """A login as a user writes it, with some of Kafka's settings changed, or left out."""
    found = kafka.settings(way, password="${env:KAFKA_PASSWORD}")
    if "ssl.keystore.key" in found:
        found["ssl.keystore.key"] = "${file:client.key}"
    given = {**found, **changes}
    named = {f"kafka.{name}": value for name, value in given.items() if value is not None}
    return {"bootstrap.servers": kafka.address(way), **named}


def write_file(folder: Path, name: str, **sections: Any) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps({**sections, "pipeline": {"name": name, "checkpoint": name, "trigger": "50ms"}}))
    return path


def writing(folder: Path, way: str, kafka: dict[str, str]) -> Path:
    """Captures a shop into topics of the way's own."""
    source = {"type": "sqlserver", "driver": "emulator", "hostname": str(folder / "server"), "database": "shop"}
    return write_file(
        folder,
        "writing",
        source={**source, "tables": ["dbo.orders"]},
        format={"type": "debezium_json", "topic.prefix": way},
        sinks=[{"type": "kafka", **kafka, "topic.creation.default.partitions": "2"}],
    )


def reading(folder: Path, way: str, kafka: dict[str, str]) -> Path:
    """Reads them again; what can't be read goes to Kafka."""
    return write_file(
        folder,
        "reading",
        source={"type": "kafka", **kafka, "topics": [topic(way)], "format": {"type": "debezium_json"}},
        sinks=[{"type": "files", "path": "read", "format": {"type": "maxwell_json"}}],
        dead_letter={"type": "kafka", **kafka, "topic.creation.default.partitions": "1"},
    )


def topic(way: str) -> str:
    return f"{way}.shop.dbo.orders"


def run(spark: SparkSession, path: Path) -> Pipeline:
    pipeline = load_pipeline(path)
    assert pipeline.start(spark, once=True).wait(PATIENCE)
    return pipeline


def check(path: Path, *options: str) -> tuple[int, str]:
    """Exit code and output of `headrace check --debug`; no secret is in it."""
    done = CliRunner().invoke(app, ["check", "--debug", "--level", "privileges", str(path), *options])
    for secret in (PASSWORD, WRONG, "PRIVATE KEY"):
        assert secret not in done.output
    return done.exit_code, done.output


@pytest.fixture
def in_realm(spark: SparkSession, kafka: SecuredKafka) -> Iterator[None]:
    """Spark's JVM knows the Kerberos realm, where there is one."""
    name, system = "java.security.krb5.conf", spark.sparkContext._jvm.java.lang.System
    if kafka.realm is not None:
        system.setProperty(name, str(kafka.realm.config))
    yield
    system.clearProperty(name)


@pytest.mark.usefixtures("in_realm")
@pytest.mark.parametrize(
    "way",
    [
        *SecuredKafka.ways,
        pytest.param(KERBEROS, marks=needs_kerberos),
    ],
)
def test_messages_go_there_and_come_back(
    spark: SparkSession, kafka: SecuredKafka, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = options(kafka, way)
    shop = Shop.create(EmulatedServer(tmp_path / "server"), 3, customers=9, products=4)
    path = writing(tmp_path, way, login)
    batches = []
    write = KafkaSink.write
    monkeypatch.setattr(KafkaSink, "write", lambda self, *given: (batches.append(1), write(self, *given)))
    # The topic is made by the sink; then the workers send, if librdkafka knows the login, and then Spark's own writer.
    run(spark, path)
    for sender in ("spark",) if way == KERBEROS else ("workers", "spark"):
        shop.replay(transactions=20)
        shop.database.capture()
        before = len(batches)
        with monkeypatch.context() as patched:
            if sender == "spark" and way != KERBEROS:
                patched.setattr(fusing, "_direct_producer", lambda model: "the test says so")
            run(spark, path)
        assert (len(batches) > before) is (sender == "spark")
    assert check(path)[0] == 0

    path = reading(tmp_path, way, login)
    broken = json.dumps({"no": "event"}).encode()
    produce(kafka, topic(way), broken)
    pipeline = run(spark, path)
    sent = [one for one in read_topics(kafka.broker.bootstrap) if one["topic"] == topic(way)]
    status = pipeline.status()
    assert {part for of in status.topics.values() for part in of} == {"0", "1"}
    assert sum(status.topics[topic(way)].values()) == len(sent) > 5
    assert status.messages is not None
    assert (status.messages.unreadable, status.messages.dead_letters) == (1, 1)
    letters = [one for one in read_topics(kafka.broker.bootstrap) if one["topic"] == f"{topic(way)}.dead_letter"]
    assert [one["value"] for one in letters] == [broken]
    code, said = check(path)
    assert (code, "Kafka takes the login; it has 1 topic to read." in said) == (0, True)
    assert pipeline.rewind([topic(way)], "earliest", spark=spark).parts[0].count


def produce(kafka: SecuredKafka, topic: str, value: bytes) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.broker.bootstrap})
    producer.produce(topic, value, headers=[("headrace.position", b"0")])
    assert producer.flush(30) == 0


SCRAM = "a user of SCRAM"
OTHERS = "another authority's certificate"
FAILURES: list[tuple[str, dict[str, str | None], str]] = [
    ("TLS", {"ssl.truststore.location": OTHERS}, "has a certificate that is not trusted here"),
    ("TLS", {"ssl.truststore.location": None, "ssl.truststore.type": None}, "has a certificate that is not trusted"),
    ("TLS", {"ssl.truststore.location": "/nowhere.pem"}, "because a file of its settings can't be read"),
    ("TLS", {"ssl.truststore.type": "JKS"}, "because the client can't read its certificates"),
    ("TLS", {"security.protocol": None}, "does not speak the protocol that the client was told"),
    (
        "MUTUAL",
        {"ssl.keystore.key": None, "ssl.keystore.certificate.chain": None},
        "wants a certificate that it trusts",
    ),
    ("PLAIN", {"sasl.jaas.config": WRONG}, "refuses the login"),
    (
        "PLAIN",
        {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": SCRAM},
        "does not take the mechanism",
    ),
    ("PLAIN", {"security.protocol": "SSL", "sasl.mechanism": None}, "takes connections and answers nothing"),
    ("SCRAM", {"sasl.jaas.config": WRONG}, "refuses the login"),
    ("OAUTH", {"sasl.jaas.config": WRONG}, "the client got no token"),
    ("OAUTH", {"sasl.login.callback.handler.class": "com.example.None"}, "a class that its settings name is not there"),
]


@pytest.mark.parametrize(("way", "changes", "sentence"), FAILURES)
@pytest.mark.parametrize("section", ["source", "sink"])
def test_a_login_that_fails_is_one_sentence_and_a_remedy(
    kafka: SecuredKafka, tmp_path: Path, section: str, way: str, changes: dict[str, str | None], sentence: str
) -> None:
    path = (reading if section == "source" else writing)(tmp_path, way, changed(kafka, tmp_path, way, changes))
    if section == "sink":
        Shop.create(EmulatedServer(tmp_path / "server"), 3, customers=1, products=1)
    code, output = check(path, "--json")
    (found, *_) = (one for one in json.loads(output)["findings"] if one["verdict"] == "wrong")
    assert (code, found["subject"].partition(" ")[0]) == (2, section)
    assert found["sentence"].startswith(f"Kafka at {kafka.address(way)} ")
    assert sentence in found["sentence"]
    assert found["remedy"]


@pytest.mark.parametrize(("way", "changes", "sentence"), [FAILURES[0], FAILURES[5], FAILURES[6]])
@pytest.mark.parametrize("section", ["source", "sink"])
def test_a_run_whose_login_fails_ends_with_that_sentence(
    spark: SparkSession,
    kafka: SecuredKafka,
    tmp_path: Path,
    section: str,
    way: str,
    changes: dict[str, str | None],
    sentence: str,
) -> None:
    login = changed(kafka, tmp_path, way, changes)
    Shop.create(EmulatedServer(tmp_path / "server"), 3, customers=1, products=1)
    path = (reading if section == "source" else writing)(tmp_path, way, login)
    with pytest.raises(HeadraceError) as it:
        run(spark, path)
    assert sentence in str(it.value)
    assert "\n" not in str(it.value)


def changed(kafka: SecuredKafka, folder: Path, way: str, changes: Mapping[str, str | None]) -> dict[str, str]:
    """A login with settings changed."""
    made: Mapping[str, Callable[[], str]] = {
        OTHERS: lambda: str(Authority(folder / "others").file),
        SCRAM: lambda: kafka.settings("SCRAM")["sasl.jaas.config"],
        WRONG: lambda: kafka.settings(way, password=WRONG)["sasl.jaas.config"],
    }
    return options(kafka, way, **{n: made[v]() if v in made else v for n, v in changes.items()})
