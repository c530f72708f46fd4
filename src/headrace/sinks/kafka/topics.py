"""What a Kafka cluster says of its topics, and topics that are made when asked for.

Kafka's own admin client is used, in the driver's JVM, because it takes the same settings (SASL, TLS) as the producer
does in the executors.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from headrace.errors import OptionError, SinkError
from headrace.sinks.kafka.failures import links_of, reason_in, reason_of, said_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PREFIX = "topic.creation."
_DEFAULT = "default"
_BROKERS = -1
_MISSING_TOPIC_MILLISECONDS = "15000"
_LIMIT = "max.message.bytes"
_SETTLE_SECONDS, _SETTLE_PAUSE = 10.0, 0.05


def topic_places(bootstrap_servers: str, topic: str | None = None) -> frozenset[str]:
    """A topic by each broker that is named, as `Sink.places` has it; without one, the Kafka that it is in."""
    servers = {server.strip().lower() for server in bootstrap_servers.split(",") if server.strip()}
    return frozenset(f"Kafka at {server}" if topic is None else f"Kafka at {server}/{topic}" for server in servers)


@dataclass(frozen=True)
class Topic:
    """A topic as the cluster has it.

    Args:
        partitions: how many it has.
        max_message_bytes: the largest batch that it takes; None where the user may not ask.
    """

    partitions: int
    max_message_bytes: int | None


def limits_of(topics: Mapping[str, Topic]) -> dict[str, int | None]:
    """The largest batch that each topic takes."""
    return {name: topic.max_message_bytes for name, topic in topics.items()}


@dataclass(frozen=True)
class TopicRule:
    """How a topic is made.

    Args:
        partitions: how many; -1 as the brokers have it by default.
        replication_factor: copies of each partition; -1 likewise.
        settings: the topic's own settings (`cleanup.policy`).
        include: names that the rule is for, as regular expressions of the whole name.
        exclude: names that it is not for.
    """

    partitions: int = _BROKERS
    replication_factor: int = _BROKERS
    settings: Mapping[str, str] = field(default_factory=dict)
    include: tuple[re.Pattern[str], ...] = ()
    exclude: tuple[re.Pattern[str], ...] = ()

    def takes(self, topic: str) -> bool:
        return any(p.fullmatch(topic) for p in self.include) and not any(p.fullmatch(topic) for p in self.exclude)


@dataclass(frozen=True)
class TopicCreation:
    """The options `topic.creation.*`: rules in the order in which they are asked, and the one for all other topics."""

    groups: tuple[TopicRule, ...]
    default: TopicRule

    def rule(self, topic: str) -> TopicRule:
        return next((rule for rule in self.groups if rule.takes(topic)), self.default)


def topic_creation(options: Mapping[str, str]) -> TopicCreation | None:
    """What the options `topic.creation.*` say, in the words of Kafka Connect; None where no topic is to be made.

    Raises:
        OptionError: a group is unknown or takes no topic, or a value is wrong.
    """
    given = {name.lower()[: len(_PREFIX)] + name[len(_PREFIX) :]: value for name, value in options.items()}
    enabled = given.pop(f"{_PREFIX}enable", "true").strip().lower()
    if enabled not in ("true", "false"):
        raise _refused(f"{_PREFIX}enable", enabled, "Write true or false.")
    names = tuple(part.strip() for part in given.pop(f"{_PREFIX}groups", "").split(",") if part.strip())
    by_group: dict[str, dict[str, str]] = {name: {} for name in (_DEFAULT, *names)}
    for name, value in given.items():
        group, _, setting = name[len(_PREFIX) :].partition(".")
        if group not in by_group or not setting:
            raise OptionError(
                f"Option '{name}' of sink 'kafka' does not belong to a group of topics.",
                remedy=f"Name it in '{_PREFIX}groups', or write '{_PREFIX}{_DEFAULT}.{setting or 'partitions'}'.",
            )
        by_group[group][setting] = value
    default = _rule(_DEFAULT, by_group.pop(_DEFAULT), TopicRule())
    groups = tuple(_rule(name, given, default) for name, given in by_group.items())
    return TopicCreation(groups, default) if options and enabled == "true" else None


def _rule(group: str, given: dict[str, str], default: TopicRule) -> TopicRule:
    rest = dict(given)
    numbers = {
        name: _number(f"{_PREFIX}{group}.{name}", rest.pop(name, str(fallback)))
        for name, fallback in (("partitions", default.partitions), ("replication.factor", default.replication_factor))
    }
    patterns = {name: _patterns(f"{_PREFIX}{group}.{name}", rest.pop(name, "")) for name in ("include", "exclude")}
    if group == _DEFAULT and any(patterns.values()):
        raise OptionError(
            f"Options '{_PREFIX}{_DEFAULT}.include' and '.exclude' of sink 'kafka' can't be given.",
            remedy=f"The group '{_DEFAULT}' takes what no other takes; name a group in '{_PREFIX}groups'.",
        )
    if group != _DEFAULT and not patterns["include"]:
        raise OptionError(
            f"Option '{_PREFIX}{group}.include' of sink 'kafka' is missing.",
            remedy="Name the topics of the group, as regular expressions separated by commas.",
        )
    return TopicRule(numbers["partitions"], numbers["replication.factor"], rest, **patterns)


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"-1|[1-9][0-9]{0,8}", text.strip()):
        raise _refused(name, text, "Write a number from 1 on, or -1 for the brokers' default.")
    return int(text)


def _patterns(name: str, text: str) -> tuple[re.Pattern[str], ...]:
    try:
        return tuple(re.compile(part.strip()) for part in text.split(",") if part.strip())
    except re.error as error:
        raise _refused(name, text, f"It is not a regular expression ({error}).") from error


def _refused(name: str, value: str, remedy: str) -> OptionError:
    return OptionError(f"Option '{name}' of sink 'kafka' can't be '{value}'.", remedy=remedy)


class Topics:
    """The topics of a cluster. Runs in the driver.

    Args:
        settings: Kafka's settings by their own names, with `bootstrap.servers`; they may hold secrets.
        creation: how missing topics are made; None to leave that to the brokers.
    """

    def __init__(self, settings: Mapping[str, str], creation: TopicCreation | None) -> None:
        self._settings = settings
        self._creation = creation

    def of(self, spark: SparkSession, names: Iterable[str]) -> dict[str, Topic]:
        """These topics; those that are missing are made. Empty where Spark's driver is in another process (Connect).

        Raises:
            SinkError: Kafka can't be asked, a topic is missing and nobody makes it, or it can't be made.
        """
        jvm, rules = jvm_of(spark), self._creation
        if jvm is None:
            if rules is not None:
                raise SinkError(
                    "This session can't create topics: the options 'topic.creation.*' need Kafka's client in this "
                    "process, which a Spark Connect session does not have.",
                    remedy="Create the topics first and leave the options out, or use a classic session.",
                )
            return {}
        wanted = sorted(set(names))
        with Admin(jvm, self._settings) as admin:
            partitions = admin.partitions(wanted)
            for name in wanted:
                if name not in partitions:
                    partitions[name] = admin.auto_created(name) if rules is None else admin.made(name, rules.rule(name))
            limits = admin.limits(wanted)
        return {name: Topic(partitions[name], limits.get(name)) for name in wanted}


def jvm_of(spark: SparkSession) -> Any | None:
    """The driver's JVM, where it is in reach and has Kafka's client."""
    from py4j.java_gateway import JavaClass

    if not hasattr(spark, "_jsparkSession"):
        return None
    jvm: Any = spark._jvm
    return jvm if isinstance(jvm.org.apache.kafka.clients.admin.AdminClient, JavaClass) else None


class Admin:
    """Kafka's admin client for a few questions; every failure is one sentence without any setting's value.

    Args:
        jvm: one that has Kafka's client.
        settings: Kafka's settings by their own names, with `bootstrap.servers`; they may hold secrets.
    """

    def __init__(self, jvm: Any, settings: Mapping[str, str]) -> None:
        self._jvm = jvm
        self._kafka = jvm.org.apache.kafka
        self._servers = settings["bootstrap.servers"]
        self._settings = settings
        self._client: Any = None

    def __enter__(self) -> Self:
        self._client = self._asked(
            "for its topics", lambda: self._kafka.clients.admin.AdminClient.create(self._properties({}))
        )
        return self

    def __exit__(self, *exception: object) -> None:
        self._client.close()

    def partitions(self, names: list[str]) -> dict[str, int]:
        counts = {}
        futures = self._client.describeTopics(self._list(names)).topicNameValues()
        for name in names:
            try:
                counts[name] = len(futures[name].get().partitions())
            except Exception as error:
                if reason_of(error) != "UnknownTopicOrPartitionException":
                    raise self._refusal(f"for topic '{name}'", error) from error
        return counts

    def limits(self, names: Iterable[str]) -> dict[str, int]:
        """The largest batch that each topic takes; those left out may not be asked for."""
        most_bytes: dict[str, int] = {}
        left = list(names)
        deadline = time.monotonic() + _SETTLE_SECONDS
        while left:
            unknown = []
            for name, future in self._configs(left).items():
                try:
                    most_bytes[name] = int(future.get().get(_LIMIT).value())
                except Exception as error:
                    reason = reason_of(error)
                    # A topic that was made a moment ago is not known to all brokers at once.
                    if reason == "UnknownTopicOrPartitionException" and time.monotonic() < deadline:
                        unknown.append(name)
                    # A login that may write need not be allowed to read settings; the broker refuses what is too large.
                    elif not reason.endswith("AuthorizationException"):
                        raise self._refusal(f"for the settings of topic '{name}'", error) from error
            if unknown:
                time.sleep(_SETTLE_PAUSE)
            left = unknown
        return most_bytes

    def _configs(self, names: list[str]) -> dict[str, Any]:
        config = self._kafka.common.config.ConfigResource
        resources = {name: config(config.Type.TOPIC, name) for name in names}
        futures = self._client.describeConfigs(self._list(resources.values())).values()
        return {name: futures[resource] for name, resource in resources.items()}

    def made(self, name: str, rule: TopicRule) -> int:
        """Make a topic; the number of its partitions. One that somebody made meanwhile is as good."""
        created = self._client.createTopics(self._list([self._new(name, rule)]))
        try:
            created.values()[name].get()
        except Exception as error:
            if reason_of(error) != "TopicExistsException":
                raise SinkError(
                    f"Kafka at {self._servers} did not create the topic '{name}': {said_by(error)}",
                    remedy="Correct the options 'topic.creation.*', or create the topic first.",
                ) from error
            return self._existing(name)
        return rule.partitions if rule.partitions != _BROKERS else int(created.numPartitions(name).get())

    def _new(self, name: str, rule: TopicRule) -> Any:
        settings = self._jvm.java.util.HashMap()
        for setting, value in rule.settings.items():
            settings.put(setting, value)
        return self._kafka.clients.admin.NewTopic(name, rule.partitions, rule.replication_factor).configs(settings)

    def auto_created(self, name: str) -> int:
        """Ask for a topic as a producer does, upon which brokers make it if they are set up so; its partitions."""
        serializer = self._kafka.common.serialization.ByteArraySerializer
        patience = self._settings.get("max.block.ms", _MISSING_TOPIC_MILLISECONDS)
        properties = self._properties({"max.block.ms": patience})
        producer = self._kafka.clients.producer.KafkaProducer(properties, serializer(), serializer())
        try:
            return len(producer.partitionsFor(name))
        except Exception as error:
            if reason_of(error) != "TimeoutException":
                raise self._refusal(f"for topic '{name}'", error) from error
            raise SinkError(
                f"There is no topic '{name}' on Kafka at {self._servers}, and the broker does not create topics.",
                remedy="Create it first, or set the option 'topic.creation.default.partitions'.",
            ) from error
        finally:
            producer.close()

    def _existing(self, name: str) -> int:
        partitions = self.partitions([name])
        # A topic that was made a moment ago may not be known to all brokers; a producer waits until it is.
        return partitions[name] if name in partitions else self.auto_created(name)

    def _asked(self, what: str, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except Exception as error:
            raise self._refusal(what, error) from error

    def _refusal(self, what: str, error: Exception) -> SinkError:
        known = reason_in(links_of(error))
        if known is not None:
            return SinkError(f"Kafka at {self._servers} {known.sentence} ({reason_of(error)}).", remedy=known.remedy)
        return SinkError(
            f"Kafka at {self._servers} can't be asked {what}: {said_by(error)}",
            remedy="Check 'bootstrap_servers' and the 'kafka.*' settings of the sink, and its user's permissions.",
        )

    def _properties(self, more: Mapping[str, str]) -> Any:
        properties = self._jvm.java.util.Properties()
        for name, value in {**self._settings, **more}.items():
            properties.setProperty(name, value)
        return properties

    def _list(self, items: Iterable[Any]) -> Any:
        java_list = self._jvm.java.util.ArrayList()
        for item in items:
            java_list.add(item)
        return java_list
