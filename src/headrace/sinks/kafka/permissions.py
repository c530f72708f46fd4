"""What a login may do in Kafka, asked by Kafka's own admin client in a small JVM, without Spark.

Kafka's Java client is used, because the settings are the ones that the producer in the executors takes (SASL, TLS).
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.permissions import MissingPermission
from headrace.sinks.kafka.failures import reason_of, said_by
from headrace.sinks.kafka.topics import Admin, TopicCreation, TopicRule
from headrace.spark.jars import KAFKA, maven_jars
from headrace.spark.java import spark_java_home

_PATIENCE = {"default.api.timeout.ms": "15000", "request.timeout.ms": "10000"}
_AUTO_CREATE = "auto.create.topics.enable"
_HEAP = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_USER = re.compile(r"""\busername\s*=\s*["']([^"']+)["']""")


def has_kafka_client() -> bool:
    """Whether this Python can start Kafka's client, which PySpark brings."""
    return importlib.util.find_spec("pyspark") is not None and importlib.util.find_spec("py4j") is not None


@contextmanager
def kafka_jvm() -> Iterator[Any]:
    """A JVM with Kafka's client, for a few questions. It ends with the block, and with this process at the latest.

    Raises:
        ConnectError: there is no Java, or the client can't be downloaded.
    """
    import py4j
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    spark = Path(spec.origin).parent / "jars"
    (bridge,) = spark.glob("py4j-*.jar")
    # Kafka's client reads tokens (OAUTHBEARER) with Jackson, which it takes from whoever uses it.
    jars = (*maven_jars([KAFKA]), *spark.glob("jackson-*.jar"))
    port, token, process = launch_gateway(
        jarpath=str(bridge),
        classpath=os.pathsep.join(map(str, jars)),
        javaopts=list(_HEAP),
        die_on_exit=True,
        java_path=str(spark_java_home() / "bin" / "java"),
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    try:
        yield gateway.jvm
    finally:
        try:
            gateway.shutdown()
        except py4j.protocol.Py4JNetworkError:
            # It is gone already, which is what is wanted.
            process.poll()
        process.stdin.close()
        process.wait(timeout=20)


class PermissionsAdmin(Admin):
    """Kafka's admin client, asked what the login may do. Changes nothing."""

    def __init__(self, jvm: Any, settings: Mapping[str, str]) -> None:
        super().__init__(jvm, {**_PATIENCE, **settings})

    def brokers(self) -> int:
        """How many brokers the cluster has.

        Raises:
            SinkError: Kafka can't be reached or refuses the login.
        """
        return int(self._asked("for its brokers", lambda: self._client.describeCluster().nodes().get().size()))

    def missing_permissions(self, topics: Sequence[str], creation: TopicCreation | None) -> list[MissingPermission]:
        """What is missing to write these topics, each with its command.

        Args:
            topics: where messages would go.
            creation: how missing topics are made; None to leave that to the brokers.

        Raises:
            SinkError: Kafka can't be asked.
        """
        missing: list[MissingPermission] = []
        absent = []
        options = self._kafka.clients.admin.DescribeTopicsOptions().includeAuthorizedOperations(True)
        futures = self._client.describeTopics(self._list(topics), options).topicNameValues()
        for topic in topics:
            try:
                allowed = futures[topic].get().authorizedOperations()
            except Exception as error:
                reason = reason_of(error)
                if reason == "UnknownTopicOrPartitionException":
                    absent.append(topic)
                elif reason == "TopicAuthorizationException":
                    missing.append(self._may_not(topic, ("Write", "Describe")))
                else:
                    raise self._refusal(f"for topic '{topic}'", error) from error
                continue
            # Brokers before 2.3 report no permissions.
            if allowed is not None and "WRITE" not in {str(operation.name()) for operation in allowed}:
                missing.append(self._may_not(topic, ("Write",)))
        return [*missing, *self._not_made(absent, creation)]

    def _not_made(self, topics: Sequence[str], creation: TopicCreation | None) -> Iterator[MissingPermission]:
        """What keeps missing topics from being made: asked by requests that Kafka only checks."""
        if not topics:
            return
        are_created = True if creation is not None else self._brokers_make_topics()
        if are_created is None:
            yield MissingPermission(
                f"There {_are(topics)} on Kafka at {self._servers} yet, and the login may not ask whether brokers make "
                "topics by themselves.",
                "Create them first, or set the option 'topic.creation.default.partitions'.",
                required=False,
            )
            return
        if not are_created:
            yield MissingPermission(
                f"There {_are(topics)} on Kafka at {self._servers}, and the broker does not create topics.",
                "Create them first, or set the option 'topic.creation.default.partitions'.",
            )
            return
        rules = {topic: TopicRule() if creation is None else creation.rule(topic) for topic in topics}
        options = self._kafka.clients.admin.CreateTopicsOptions().validateOnly(True)
        futures = self._client.createTopics(self._list(map(self._new, rules, rules.values())), options).values()
        for topic in topics:
            try:
                futures[topic].get()
            except Exception as error:
                reason = reason_of(error)
                if reason == "TopicExistsException":
                    continue
                if reason in ("TopicAuthorizationException", "ClusterAuthorizationException"):
                    # A topic that is not there may be hidden from the login as well as its permissions.
                    yield self._may_not(topic, ("Create", "Write", "Describe"))
                else:
                    yield MissingPermission(
                        f"Kafka at {self._servers} refuses to create the topic '{topic}': {said_by(error)}",
                        "Correct the options 'topic.creation.*', or create the topic first.",
                    )

    def _brokers_make_topics(self) -> bool | None:
        """Whether brokers make a topic that a producer asks for; None where the login may not ask."""
        config = self._kafka.common.config.ConfigResource
        nodes = self._asked("for its brokers", lambda: self._client.describeCluster().nodes().get())
        broker = config(config.Type.BROKER, nodes.iterator().next().idString())
        try:
            settings = self._client.describeConfigs(self._list([broker])).values()[broker].get()
        except Exception as error:
            if reason_of(error).endswith("AuthorizationException"):
                return None
            raise self._refusal("for the brokers' settings", error) from error
        value = settings.get(_AUTO_CREATE)
        return None if value is None else str(value.value()).lower() == "true"

    def _may_not(self, topic: str, operations: Sequence[str]) -> MissingPermission:
        user = _USER.search(self._settings.get("sasl.jaas.config", ""))
        given = " ".join(f"--operation {operation}" for operation in operations)
        return MissingPermission.of(
            operations,
            f"on topic '{topic}'",
            "its messages",
            f"Run: kafka-acls --bootstrap-server {self._servers} --add "
            f"--allow-principal 'User:{user[1] if user else 'NAME'}' {given} --topic '{topic}'.",
        )


def _are(topics: Sequence[str]) -> str:
    names = ", ".join(f"'{topic}'" for topic in topics)
    return f"{'is no topic' if len(topics) == 1 else 'are no topics'} {names}"
