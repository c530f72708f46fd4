"""Kafka topics as the source of a pipeline: Spark's own Kafka source, and a format that reads its messages.

The checkpoint keeps which topics its offsets are of. A topic that was deleted and made again has the old name, and
other messages under the same offsets. Nothing but the id that Kafka gives each topic shows it once the new one holds as
many messages. So the ids are kept in the checkpoint, beside the offsets, and compared at the start and with every
batch.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import ConnectError, DataLossError, OptionError
from headrace.formats.base import Format
from headrace.observe.kept_offsets import topic_ids_text
from headrace.options import OTHER_NAMES
from headrace.settings import Component, Settings, option
from headrace.sinks.kafka.failures import links_of, printed_reason, reason_in, reason_of
from headrace.spark.jars import KAFKA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIMEOUT = 5.0
_ISOLATION = "kafka.isolation.level"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""What Kafka allows as a name."""


@dataclass(frozen=True)
class OffsetRange:
    """What a partition holds.

    Args:
        first: the offset of its oldest message.
        end: the offset after its newest one.
    """

    first: int
    end: int


class OnErrorSettings(Settings):
    """Given with a format that reads; a pipeline can do more with such messages than `headrace.decode`."""

    on_error: str | None = option(
        "What to do with a message that can't be read. `fail`: the run stops. `dead_letter`: the sink of the section "
        "`dead_letter` keeps it. `row`: an `error` row for the sinks, of which tables and formats leave it out. "
        "`drop`: nothing. With all but `fail` it is counted, and `headrace status` ends with 1 where no sink has it. "
        "By default `dead_letter` where that section is there, `row` where a sink keeps such rows (`memory`), else "
        "`fail`.",
        default=None,
        choices=("row", "drop", "dead_letter", "fail"),
    )


class KafkaTopicsSettings(Settings):
    bootstrap_servers: str = option(
        "The brokers to begin with: host:port, comma separated.",
    )
    topics: tuple[str, ...] = option(
        "The topics to read, as a list. Give this or topics.pattern.",
        default=(),
        names=OTHER_NAMES,
    )
    topics_pattern: str = option(
        "A regular expression (Java's) that topic names match as a whole.",
        default="",
    )
    starting_offsets: str = option(
        "Where a new checkpoint begins; the default `earliest` reads all that the topics hold.",
        default="earliest",
    )
    on_trimmed: str = option(
        "What a new checkpoint does that reads from `earliest` where the oldest messages of a topic are deleted "
        "already, and a sink keeps tables: they would lack the rows that only those messages had. `fail` stops; "
        "`continue` goes on with a warning, for a feed that has a snapshot of its tables.",
        default="fail",
        choices=("fail", "continue"),
    )
    max_offsets_per_trigger: int | None = option(
        "How many messages a batch holds at most; by default all that there are.",
        default=None,
        minimum=1,
    )
    fail_on_data_loss: bool = option(
        "Stop when messages that were not read yet are gone from Kafka, or when a topic was deleted and made again; "
        "false goes on without them.",
        default=True,
    )
    unmatched_patterns: str = option(
        "What a new checkpoint does in the first batch that says tables, where a transform or sink names a column "
        "that none of them has, and one has a column of almost that name: `fail` stops before the first row, `warn` "
        "logs it. A name with `optional:` in front may stand for nothing. Other names that stand for nothing are "
        "logged, because their tables may still come.",
        default="fail",
        choices=("fail", "warn"),
    )


class KafkaTopics(Component):
    """Topics that carry a change feed. Spark reads them itself, so this only says how, and where the end is.

    Options that begin with `kafka.` are settings of Kafka's consumer, handed on as they are. By default
    `kafka.isolation.level` is `read_committed`: messages of transactions that were rolled back are not read, and those
    of one that is still open wait for its end.
    """

    jars: ClassVar[tuple[str, ...]] = (KAFKA,)
    examples: ClassVar[Mapping[str, str]] = {"bootstrap_servers": "kafka.example.com:9092", "topics": "sales.orders"}
    example_schema: ClassVar[str] = "dbo"
    offered: ClassVar[tuple[str, ...]] = ("starting_offsets", "max_offsets_per_trigger", "fail_on_data_loss")
    role = "source"
    name = "kafka"
    settings: KafkaTopicsSettings

    whole_tables: ClassVar[Mapping[str, Any]] = {"starting_offsets": "earliest"}
    """As `Source.whole_tables`."""

    def __init__(
        self, settings: KafkaTopicsSettings, client_settings: Mapping[str, str], format: Format, on_error: str = "row"
    ) -> None:
        super().__init__(settings)
        if bool(settings.topics) == bool(settings.topics_pattern):
            raise OptionError(
                "Source 'kafka' needs 'topics' or 'topics.pattern', and not both.", remedy="Name the topics to read."
            )
        for topic in settings.topics:
            if not _TOPIC.fullmatch(topic):
                raise OptionError(
                    f"'{topic}' can't be the name of a topic.",
                    remedy="Set 'topics_pattern' for a pattern; it is a regular expression, such as sales[.].*",
                )
        # A transaction that its producer rolled back did not happen.
        isolation = {} if _ISOLATION in map(str.lower, client_settings) else {_ISOLATION: "read_committed"}
        self.client_settings = {**isolation, **client_settings}
        self.format = format
        self.on_error = on_error

    def replaced(self, **values: Any) -> KafkaTopics:
        return KafkaTopics(self.settings.replaced(**values), self.client_settings, self.format, self.on_error)

    @property
    def formats(self) -> tuple[Format, ...]:
        """That of its messages."""
        return (self.format,)

    def printed_tables(self) -> None:
        """As `Source.printed_tables`: nothing but Spark reads topics."""

    @staticmethod
    def is_client_setting(name: str) -> bool:
        """Whether an option goes to Kafka's client as it is (`kafka.security.protocol`)."""
        return name.lower().startswith("kafka.")

    def check(self) -> None:
        """Whether a broker answers on its port.

        Raises:
            ConnectError: none does.
        """
        servers = [server.strip() for server in self.settings.bootstrap_servers.split(",") if server.strip()]
        for server in servers:
            host, _, port = server.rpartition(":")
            if not host or not port.isdigit():
                raise ConnectError(
                    f"'{server}' is no Kafka broker's address.", remedy="Write bootstrap.servers: host:port."
                )
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT).close()
            except OSError:
                continue
            return
        raise ConnectError(
            f"No Kafka broker answers at {', '.join(servers)}.",
            remedy="Check bootstrap.servers, and that the broker runs and can be reached from here.",
        )

    def read_stream(self, spark: SparkSession) -> DataFrame:
        """The messages as a streaming DataFrame of Kafka's columns."""
        reader = spark.readStream.format("kafka").option("includeHeaders", "true")
        settings = self.settings
        reader = reader.option("kafka.bootstrap.servers", settings.bootstrap_servers)
        if settings.topics:
            reader = reader.option("subscribe", ",".join(settings.topics))
        else:
            reader = reader.option("subscribePattern", settings.topics_pattern)
        reader = reader.option("startingOffsets", settings.starting_offsets)
        reader = reader.option("failOnDataLoss", str(settings.fail_on_data_loss).lower())
        if settings.max_offsets_per_trigger is not None:
            reader = reader.option("maxOffsetsPerTrigger", settings.max_offsets_per_trigger)
        return reader.options(**self.client_settings).load()

    def read_between(
        self, spark: SparkSession, begin: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]
    ) -> DataFrame:
        """The messages of some partitions as they are now, from an offset up to another one that is left out.

        Args:
            spark: a classic session.
            begin: the first offset of each partition, by topic.
            end: the offset after the last one.
        """
        reader = spark.read.format("kafka").option("includeHeaders", "true")
        reader = reader.option("kafka.bootstrap.servers", self.settings.bootstrap_servers)
        partitions = {topic: sorted(map(int, numbers)) for topic, numbers in begin.items()}
        reader = reader.option("assign", json.dumps(partitions))
        reader = reader.option("startingOffsets", json.dumps(begin)).option("endingOffsets", json.dumps(end))
        return reader.options(**self.client_settings).load()

    def head(self, spark: SparkSession) -> dict[str, dict[str, OffsetRange]]:
        """What every partition holds, asked of Kafka now with the client settings of the stream; runs in the driver's
        JVM.

        Where only committed transactions are read, the end is the first message of the oldest open one.
        """
        return self.held(spark.sparkContext._jvm)

    def held(self, jvm: Any, defaults: Mapping[str, str] | None = None) -> dict[str, dict[str, OffsetRange]]:
        """As `head`, asked by any JVM that has Kafka's client; `defaults` are settings that the user may change."""
        with self._consumer(jvm, defaults) as consumer:
            partitions = jvm.java.util.ArrayList()
            for topic, infos in consumer.listTopics().items():
                if self.reads(topic):
                    for info in infos:
                        partitions.add(jvm.org.apache.kafka.common.TopicPartition(topic, info.partition()))
            starts = consumer.beginningOffsets(partitions)
            held: dict[str, dict[str, OffsetRange]] = {}
            for partition, end in consumer.endOffsets(partitions).items():
                of_topic = held.setdefault(partition.topic(), {})
                of_topic[str(partition.partition())] = OffsetRange(int(starts[partition]), int(end))
            return held

    def offsets_at(
        self, jvm: Any, partitions: Iterable[tuple[str, str]], time: dt.datetime
    ) -> dict[tuple[str, str], int]:
        """The first offset of each partition whose message is not older than a time; without those that have none."""
        asked, milliseconds = jvm.java.util.HashMap(), jvm.java.lang.Long.valueOf(int(time.timestamp() * 1000))
        for topic, partition in partitions:
            asked.put(jvm.org.apache.kafka.common.TopicPartition(topic, int(partition)), milliseconds)
        with self._consumer(jvm, None) as consumer:
            answers = consumer.offsetsForTimes(asked).items()
            return {(p.topic(), str(p.partition())): int(at.offset()) for p, at in answers if at is not None}

    def ids(self, jvm: Any, defaults: Mapping[str, str] | None = None) -> Callable[[], Mapping[str, str]]:
        """Gives the id of every topic, asked of Kafka at each call; a topic that is made again has another one.

        Asked by any JVM that has Kafka's client; `defaults` are settings that the user may change. A call raises
        ConnectError where Kafka can't be asked. Brokers before 2.8 have no ids.
        """
        properties = self._properties(jvm, defaults)
        admin: Any = None

        def now() -> Mapping[str, str]:
            nonlocal admin
            with self._asked():
                if admin is None:
                    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
                listed = admin.listTopics().namesToListings().get()
            return {name: one.topicId().toString() for name, one in listed.items() if self.reads(name)}

        return now

    @contextmanager
    def _consumer(self, jvm: Any, defaults: Mapping[str, str] | None) -> Iterator[Any]:
        kafka = jvm.org.apache.kafka
        bytes_reader = kafka.common.serialization.ByteArrayDeserializer
        with self._asked():
            properties = self._properties(jvm, defaults)
            consumer = kafka.clients.consumer.KafkaConsumer(properties, bytes_reader(), bytes_reader())
            try:
                yield consumer
            finally:
                consumer.close()

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """A failure of Kafka's client in the block becomes a sentence."""
        from py4j.protocol import Py4JError

        try:
            yield
        except Exception as error:
            links = links_of(error)
            if not links and not isinstance(error, Py4JError):
                raise
            known = reason_in(links)
            if known is not None:
                raise self._refused(f"{known.sentence} ({reason_of(error)})", known.remedy) from error
            sentence = f"can't be asked for its topics ({reason_of(error)})"
            raise self._refused(sentence, "Check the options of the source that begin with 'kafka.'.") from error

    def failure(self, printed: str) -> ConnectError | None:
        """Why Kafka could not be read, where a stack trace of Spark's says it; None where it says something else."""
        known = printed_reason(printed)
        return None if known is None else self._refused(known.sentence, known.remedy)

    def _refused(self, sentence: str, remedy: str) -> ConnectError:
        return ConnectError(f"Kafka at {self.settings.bootstrap_servers} {sentence}.", remedy=remedy)

    def _properties(self, jvm: Any, defaults: Mapping[str, str] | None) -> Any:
        properties = jvm.java.util.Properties()
        for name, value in (defaults or {}).items():
            properties.setProperty(name, value)
        for name, value in self.client_settings.items():
            properties.setProperty(name.partition(".")[2], value)
        properties.setProperty("bootstrap.servers", self.settings.bootstrap_servers)
        return properties

    def absent(self, held: Iterable[str]) -> str:
        """A sentence on what is not in Kafka yet, of the topics that are there; empty where all are."""
        if self.settings.topics:
            missing = [topic for topic in self.settings.topics if topic not in held]
            return f"It has no topic {', '.join(map(repr, missing))} yet; a run waits for it." if missing else ""
        return "" if held else f"It has no topic that matches '{self.settings.topics_pattern}' yet; a run waits for it."

    def reads(self, topic: str) -> bool:
        if self.settings.topics:
            return topic in self.settings.topics
        return re.fullmatch(self.settings.topics_pattern, topic) is not None


def reached(offset: str | None, head: Mapping[str, Mapping[str, OffsetRange]]) -> bool:
    """Whether an offset as Spark keeps it (`{"topic":{"0":12}}`) is at or after `head` in every partition.

    Offsets are counted, not messages: the marks of transactions and messages that were compacted count too.
    """
    at = json.loads(offset) if offset else {}
    return all(
        # An empty partition, or one whose messages are all gone, gives Spark nothing to commit an offset for.
        held.first == held.end or at.get(topic, {}).get(partition, 0) >= held.end
        for topic, partitions in head.items()
        for partition, held in partitions.items()
    )


def trimmed(head: Mapping[str, Mapping[str, OffsetRange]]) -> DataLossError | None:
    """What is wrong where the oldest messages of a topic are gone; None where all are there."""
    every = ((topic, p, held.first) for topic, partitions in head.items() for p, held in partitions.items())
    gone = [location for location in every if location[2] > 0]
    if not gone:
        return None
    topic, partition, first = min(gone)
    more = ", and it is not the only one" if len(gone) > 1 else ""
    return DataLossError(
        f"Partition {partition} of topic '{topic}' begins at offset {first:,}{more}: older messages are deleted, so "
        "tables lack the rows that only those had.",
        remedy="Read a feed that still has them, or, where this one has a snapshot of its tables, set the source's "
        "option on_trimmed: continue.",
    )


def require_not_older(offset: str | None, head: Mapping[str, Mapping[str, OffsetRange]]) -> None:
    """Every partition still reaches as far as it was read.

    Raises:
        DataLossError: one does not, as when its topic was deleted and made again.
    """
    at = json.loads(offset) if offset else {}
    for topic, partitions in head.items():
        for partition, held in partitions.items():
            read = at.get(topic, {}).get(partition, 0)
            if read > held.end:
                raise DataLossError(
                    f"Partition {partition} of topic '{topic}' ends at offset {held.end}, but was read up to offset "
                    f"{read} already: the topic was deleted and made again, or its broker lost messages.",
                    remedy="Read it with a new checkpoint, or go on without what is gone by fail.on.data.loss=false.",
                )


_LOG = logging.getLogger("headrace.pipeline")
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""What the client says of topics of brokers before 2.8, which have no ids."""


class TopicIds:
    """The topics that a run reads, compared with those that its checkpoint was filled from. Runs in the driver.

    Args:
        ask: gives the id of every topic now.
        kept: the ids in the checkpoint; none in one of an earlier release, which goes on with what it finds.
        keep: writes their text into the checkpoint.
        fail_on_data_loss: whether a topic that was made again stops the run; else the log says it once.
    """

    def __init__(
        self,
        ask: Callable[[], Mapping[str, str]],
        kept: Mapping[str, str],
        keep: Callable[[str], None],
        *,
        fail_on_data_loss: bool,
    ) -> None:
        self._ask = ask
        self._kept = dict(kept)
        self._keep = keep
        self._fails = fail_on_data_loss

    def confirm(self) -> Mapping[str, str]:
        """The ids of all topics now. Asked after a batch was read, they are those of what was read: none comes back.

        Raises:
            DataLossError: a topic was made again.
            ConnectError: Kafka can't be asked.
        """
        now = self._ask()
        again = made_again(self._kept, now)
        if again:
            lost = loss(again)
            if self._fails:
                raise lost
            _LOG.warning("%s", lost.message)
        known = {**self._kept, **{topic: id for topic, id in now.items() if id != _NO_ID}}
        if known != self._kept:
            self._keep(topic_ids_text(known))
            self._kept = known
        return now


def made_again(kept: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The topics that have another id now; one without an id is not known."""
    return sorted(topic for topic, id in kept.items() if now.get(topic, _NO_ID) not in (_NO_ID, id))


def loss(topics: Iterable[str]) -> DataLossError:
    """What is wrong where topics were made again."""
    first, *others = topics
    more = f", and so were {len(others)} others" if len(others) > 1 else f", and so was '{others[0]}'" if others else ""
    return DataLossError(
        f"Topic '{first}' was deleted and made again since this checkpoint read it{more}. The offsets in the "
        "checkpoint count messages of the old topic.",
        remedy="Read the topic with a new checkpoint. With the source's option fail_on_data_loss: false the run goes "
        "on at the old offsets, and does not read what the new topic has before them.",
    )
