"""The Kafka sink: encoded messages to topics, each partition written by one task in order."""

from __future__ import annotations

import importlib.util
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from headrace import faultpoints
from headrace.changes.dataset import Dataset
from headrace.changes.direct_producer import DirectProducer
from headrace.changes.refusal import StopReason
from headrace.changes.table import TableId
from headrace.errors import OptionError, SinkError
from headrace.options import REDACTED, folder
from headrace.permissions import Permissions
from headrace.settings import Settings, option
from headrace.sinks.base import BatchId, Sink
from headrace.sinks.folder import absolute, folder_permissions, refuse_read_only
from headrace.sinks.kafka.delivery import POSITION_HEADER, KafkaDirectProducer, NotTranslated, translated
from headrace.sinks.kafka.failures import printed_is_transient, printed_reason
from headrace.sinks.kafka.limits import checked, fitting_batches, not_accepted, quickly_checked, sentence_of
from headrace.sinks.kafka.limits import reason as too_large
from headrace.sinks.kafka.partitions import partition_of, task_of
from headrace.sinks.kafka.permissions import PermissionsAdmin, has_kafka_client, kafka_jvm
from headrace.sinks.kafka.topics import Topic, Topics, limits_of, topic_creation, topic_places
from headrace.sinks.lake.catalog import escaped
from headrace.spark.jars import KAFKA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HEADER = f"array(named_struct('key', '{POSITION_HEADER}', 'value', cast(position as binary)))"
_HEADERS = f"if(headers is null, {_HEADER}, concat(headers, {_HEADER}))"
_CONNECT_SECONDS = 5.0
_FRESH_SECONDS = 300.0
_PROMISED = {
    "kafka.acks": ("all", "-1"),
    "kafka.enable.idempotence": ("true",),
    "kafka.partitioner.ignore.keys": ("false",),
}
_PREFIX = "kafka."
_PEM_KEY = "kafka.ssl.keystore.key"
_REDACTED_OPTIONS = "spark.sql.redaction.options.regex"


class _Hidden(str):
    """A secret whose option's name does not sound like one: a private key as text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(REDACTED)


class KafkaSettings(Settings):
    """Which brokers, how they are written to, and what to do with messages that are too large."""

    bootstrap_servers: str = option(
        "The bootstrap brokers, `host:port` separated by commas.",
        aliases=("bootstrap.servers", "kafka.bootstrap.servers"),
    )
    kafka: Mapping[str, str] = option(
        "Any setting of Kafka's producer (`kafka.security.protocol`, `kafka.sasl.jaas.config`), also used to "
        "create topics. `kafka.acks` stays `all`, `kafka.enable.idempotence` stays `true`, and the key determines "
        "the partition.",
        name="kafka.*",
        kind=str,
        default={},
        may_be_empty=True,
    )
    topic_creation: Mapping[str, str] = option(
        "Creates missing topics, with Kafka Connect's options: `topic.creation.default.partitions`, "
        "`topic.creation.default.replication.factor` (-1: the brokers' default) and any setting of a topic "
        "(`topic.creation.default.cleanup.policy: compact`). Groups are named in `topic.creation.groups`, each "
        "has `topic.creation.<group>.include`. Without these options brokers may create topics themselves.",
        name="topic.creation.*",
        kind=str,
        default={},
    )
    on_oversized: str = option(
        "What to do with a message over the limit of the producer (`kafka.max.request.size`) or of its topic "
        "(`max.message.bytes`): `fail` stops before anything of its batch is sent, and names topic, key, size and "
        "limit. `dead_letter` keeps it whole in `oversized_path` with the reason and sends the others: consumers "
        "of the topic miss that change. `drop_columns` sends the change without its values of more than "
        "`oversized_column_bytes`, as columns that were not sent (absent), and stops where it is still too large; "
        "only in a pipeline, with messages made by a format. With `kafka.compression.type` only the producer's "
        "limit is known beforehand.",
        default="fail",
        choices=("fail", "dead_letter", "drop_columns"),
    )
    oversized_path: str | None = option(
        "With `on_oversized: dead_letter`: the folder for messages that are too large, as Parquet files with "
        "topic, key, value, headers, position and reason; one folder per batch, which a replay replaces.",
        kind=folder,
        default=None,
    )
    oversized_column_bytes: int = option(
        "With `on_oversized: drop_columns`: removes values of more bytes than this, as text, from a change that "
        "is too large, except those of the key.",
        default=65_536,
        minimum=1,
    )


class KafkaSink(Sink):
    """Writes messages to Kafka with Spark's own Kafka writer, at least once.

    Workers that make all messages of a batch in one task send them by themselves, with the same guarantees, where that
    can be (`direct_producer`); `write` is called for what they leave.

    Partitions: a message goes to the partition that Kafka's own producers choose for its key, so that it meets what
    others write under that key; messages without a key go to one partition per topic and batch. Order: the messages of
    a partition are written by one task in position order, so a consumer sees each key's changes in order; a retry
    repeats a prefix and then goes on. Idempotence: a replayed batch repeats its messages byte for byte, each with the
    header `headrace.position`, by which consumers can drop them. Size: a message that the producer or its topic would
    refuse stops the batch before any of it is sent, unless an option says otherwise.

    Runs in the driver, which asks Kafka for its topics (and makes them, when that is asked for) and starts Spark jobs;
    executors write. The sink gets bytes and does not know their format. On Spark Connect the driver's Kafka client is
    out of reach: Kafka's producer then chooses partitions itself, one task per key keeps the order, topics can't be
    made, and only the producer's own limit of size is known.
    """

    name: ClassVar[str] = "kafka"
    examples: ClassVar[Mapping[str, str]] = {"bootstrap_servers": "kafka.example.com:9092"}
    offered: ClassVar[tuple[str, ...]] = ("topic.creation.*", "on_oversized")
    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "at-least-once"
    takes: ClassVar[Literal["messages", "changes"]] = "messages"
    jars: ClassVar[tuple[str, ...]] = (KAFKA,)
    direct_producers: ClassVar[type[DirectProducer] | None] = KafkaDirectProducer
    settings: KafkaSettings

    def __init__(self, settings: KafkaSettings) -> None:
        given = settings.kafka
        for name, value in given.items():
            if name.lower() == "kafka.partitioner.class":
                raise OptionError(
                    f"Option '{name}' of sink 'kafka' is not allowed.",
                    remedy="The sink chooses partitions as Kafka's producers do by default. Leave the option out.",
                )
            allowed = _PROMISED.get(name.lower())
            if allowed is not None and value.lower() not in allowed:
                raise OptionError(
                    f"Option '{name}' of sink 'kafka' can't be '{value}'.",
                    remedy=f"Messages could be lost or change order; leave it out, or set it to '{allowed[0]}'.",
                )
        if (settings.on_oversized == "dead_letter") != bool(settings.oversized_path):
            raise OptionError(
                "The options 'on_oversized: dead_letter' and 'oversized_path' of sink 'kafka' go together.",
                remedy="Give both, or neither.",
            )
        hidden = {name: _Hidden(value) if name.lower() == _PEM_KEY else value for name, value in given.items()}
        super().__init__(settings.replaced(kafka=hidden))
        self._known: Mapping[str, Topic] = {}
        self._asked = -_FRESH_SECONDS
        self._settled = False
        self._exactly = False
        self._topics = Topics(self._client_settings, topic_creation(settings.topic_creation))

    @property
    def _client_settings(self) -> dict[str, str]:
        given = {name[len(_PREFIX) :]: str(value) for name, value in self.settings.kafka.items()}
        return {**given, "bootstrap.servers": self.settings.bootstrap_servers}

    def check(self) -> None:
        """Whether one of the brokers can be reached. Runs in the driver; writes nothing.

        Raises:
            SinkError: none answers on its port within five seconds each, or `oversized_path` can't be written.
        """
        if self.settings.oversized_path:
            refuse_read_only(self.settings.oversized_path)
        servers = [server.strip() for server in self.settings.bootstrap_servers.split(",") if server.strip()]
        failures = []
        for server in servers:
            host, port = _address(server)
            try:
                with socket.create_connection((host, port), timeout=_CONNECT_SECONDS):
                    return
            except OSError as failure:
                failures.append(failure)
        raise SinkError(
            f"No Kafka broker answers at {', '.join(servers)}.",
            remedy="Check the sink's option 'bootstrap_servers' and whether the broker runs.",
        ) from (failures[0] if failures else None)

    def reach(self) -> str:
        """Whether Kafka takes the login: its own client asks for the brokers, with the settings of the producer.

        Takes a JVM of its own for some seconds. Without PySpark, which brings Kafka's client, only the port is tried.
        """
        self.check()
        if not has_kafka_client():
            return "A broker answers. Headrace can't test the login, because PySpark is not installed here."
        with kafka_jvm() as jvm, PermissionsAdmin(jvm, self._client_settings) as admin:
            brokers = admin.brokers()
        return f"Kafka accepts the login; it has {brokers} broker{'' if brokers == 1 else 's'}."

    def permissions(self, tables: Sequence[TableId], topics: Sequence[str]) -> Permissions:
        """Whether the login may write these topics, and make those that are missing; makes none.

        Takes a JVM of its own for some seconds.
        """
        aside = folder_permissions(self.settings.oversized_path) if self.settings.oversized_path else Permissions("")
        if not has_kafka_client():
            summary = "Headrace can't check the login's permissions, because PySpark is not installed here."
            return Permissions(summary, aside.missing, known=False)
        if not topics:
            summary = (
                "Which topics it would write is not known beforehand, so the login's permissions were not checked."
            )
            return Permissions(summary, aside.missing, known=False)
        with kafka_jvm() as jvm, PermissionsAdmin(jvm, self._client_settings) as admin:
            missing = admin.missing_permissions(topics, topic_creation(self.settings.topic_creation))
        of = "1 topic" if len(topics) == 1 else f"{len(topics):,} topics"
        return Permissions(f"The login has every permission to write {of}.", (*missing, *aside.missing))

    def places(self, table: TableId | None = None, topic: str | None = None) -> frozenset[str]:
        return frozenset() if topic == "" else topic_places(self.settings.bootstrap_servers, topic)

    def dataset(self, table: TableId, topic: str | None = None) -> Dataset | None:
        return Dataset.of_topic(self.settings.bootstrap_servers, topic) if topic else None

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        """Write a batch's messages. A replay writes them again.

        Raises:
            SinkError: a message is too large, a topic is missing, or Kafka did not take them; in the last case a part
                of them may be there.
        """
        faultpoints.reach("sink.kafka.before_write")
        _hide_private_key(rows.sparkSession, self.settings.kafka)
        with _held(rows) as messages:
            self._send(messages, batch)
        faultpoints.reach("sink.kafka.after_write")

    def messages(self, spark: SparkSession, topics: str) -> DataFrame:
        """The messages that the topics hold now, read by Spark's Kafka source with the sink's settings."""
        _hide_private_key(spark, self.settings.kafka)
        reader = spark.read.format("kafka").options(**self.settings.kafka).option("includeHeaders", "true")
        reader = reader.option("kafka.bootstrap.servers", self.settings.bootstrap_servers)
        return reader.option("subscribePattern", topics).load().select("topic", "key", "value", "headers")

    def direct_producer(self) -> KafkaDirectProducer | str:
        """Kafka through librdkafka, where that is installed and knows all settings that are given."""
        if self.settings.on_oversized != "fail":
            return f"the sink's option 'on_oversized' is '{self.settings.on_oversized}'"
        if importlib.util.find_spec("confluent_kafka") is None:
            return "confluent-kafka is not installed (extra 'kafka')"
        settings = self._client_settings
        try:
            return KafkaDirectProducer(settings, translated(settings), asks_for_topics=not self.settings.topic_creation)
        except NotTranslated as reason:
            return str(reason)

    def too_large(self, messages: DataFrame) -> list[str]:
        """The positions of messages that Kafka would refuse for their size, where their changes are to be made smaller.

        Looks at all messages in a Spark job of its own.
        """
        if self.largest_value is None:
            return []
        weighed = self._weighed(messages, self._topics_of(messages))
        # Few, because their messages are large.
        large = weighed.where("reason is not null").select("position").distinct().collect()
        return sorted(row["position"] for row in large)

    @property
    def largest_value(self) -> int | None:
        """What the option says that leaves large values out."""
        return self.settings.oversized_column_bytes if self.settings.on_oversized == "drop_columns" else None

    def _set_aside(self, rows: DataFrame, topics: Mapping[str, Topic], batch: BatchId) -> DataFrame:
        """Keep the messages that are too large in a folder of their batch; the others are given back."""
        weighed = self._weighed(rows, topics)
        large = weighed.where("reason is not null").select("topic", "key", "value", "headers", "position", "reason")
        if large.isEmpty():
            return rows
        folder = self.settings.oversized_path
        assert folder is not None
        location = f"{absolute(folder)}/{escaped(batch.owner)}/batch={batch.number}"
        large.write.mode("overwrite").parquet(location)
        faultpoints.reach("sink.kafka.set_aside")
        return weighed.where("reason is null").selectExpr(
            *(f"given as {name}" if name == "headers" else name for name in rows.columns)
        )

    def _weighed(self, rows: DataFrame, topics: Mapping[str, Topic]) -> DataFrame:
        """Messages as they are sent, with why they are too large, if they are, and the headers that were given."""
        sent = rows.selectExpr("*", "headers as given").selectExpr(
            *(f"{_HEADERS} as headers" if name == "headers" else name for name in (*rows.columns, "given"))
        )
        return sent.selectExpr("*", f"{too_large(self._client_settings, limits_of(topics))} as reason")

    def _send(self, rows: DataFrame, batch: BatchId) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        while True:
            topics = self._topics_of(rows)
            aside = self._exactly and self.settings.on_oversized == "dead_letter"
            sent = self._set_aside(rows, topics, batch) if aside else rows
            placed = in_order(sent, batch.number, topics, self._client_settings, exactly=self._exactly)
            failure: Exception | None = None
            try:
                placed.write.format("kafka").options(**self._producer_settings(topics)).save()
            except (PySparkException, Py4JError) as error:
                failure = error
            if failure is None:
                break
            # Outside of the handler, because its context would be taken for the reason.
            self._check_unusual(failure, batch)

    def _topics_of(self, rows: DataFrame) -> Mapping[str, Topic]:
        """At least the topics of a batch, or those that are known so far where no new ones were seen lately.

        A small job asks the batch for its topics while new ones keep coming (as in a snapshot), and every five minutes,
        because topics get partitions and are deleted; Kafka's own clients look again as often.
        """
        now = time.monotonic()
        stale = now - self._asked >= _FRESH_SECONDS
        if stale:
            self._known, self._asked = {}, now
        if stale or not self._settled:
            names = {row["topic"] for row in rows.select("topic").distinct().collect()} - {None}
            new = names - self._known.keys()
            self._known = {**self._known, **self._topics.of(rows.sparkSession, new)} if new else self._known
            self._settled = bool(names) and not new
        return self._known

    def _check_unusual(self, failure: Exception, batch: BatchId) -> None:
        """Prepare for another attempt where a message was unusual; of its batch nothing was sent.

        Raises:
            SinkError: it failed for another reason.
        """
        text = _texts(failure)
        if StopReason.NEW_TOPIC in text and self._settled:
            self._settled = False
        elif StopReason.MAYBE_TOO_LARGE in text and not self._exactly:
            self._exactly = True
        else:
            sentence = sentence_of(text)
            if sentence is not None:
                raise SinkError(sentence)
            known = printed_reason(text)
            if known is not None:
                problem = (
                    f"Kafka at {self.settings.bootstrap_servers} {known.sentence}; batch {batch.number} is not sent."
                )
                raise SinkError(problem, remedy=known.remedy) from failure
            too_large = "RecordTooLargeException" in text
            is_transient = printed_is_transient(text)
            raise not_accepted(
                self.settings.bootstrap_servers, batch.number, too_large=too_large, is_transient=is_transient
            ) from failure

    def _producer_settings(self, topics: Mapping[str, Topic]) -> dict[str, str]:
        given = self._client_settings
        ours = {"acks": "all", "enable.idempotence": "true"}
        all_of_them = {**given, **fitting_batches(given, limits_of(topics)), **ours}
        return {f"{_PREFIX}{name}": value for name, value in all_of_them.items()}


@contextmanager
def _held(rows: DataFrame) -> Iterator[DataFrame]:
    """The messages, made once: looking for their topics would make them a second time, and far slower, because Spark
    puts the making into one method with the grouping, too long to be compiled."""
    from pyspark import StorageLevel

    level = rows.storageLevel
    if level.useMemory or level.useDisk:
        yield rows
        return
    held = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield held
    finally:
        held.unpersist()


def in_order(
    rows: DataFrame,
    batch: int = 0,
    topics: Mapping[str, Topic] | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    exactly: bool = True,
) -> DataFrame:
    """Messages as Kafka's writer takes them: each partition in one task, in position order, the position as a header.

    Messages of one row have one position; they keep the order in which the format gave them.

    Args:
        rows: messages of `MESSAGE_DDL`.
        batch: the batch's number, which says where messages without a key go.
        topics: those of the rows. Without them the partition is left to the producer, and each key is in one task.
        settings: the producer's, by Kafka's names.
        exactly: whether sizes are counted byte for byte and reported; else the query stops at what may be too large.
    """
    from pyspark.sql import functions as sf

    messages = rows.selectExpr(
        "topic",
        "partition",
        "key",
        "value",
        f"{_HEADERS} as headers",
        "position",
        "monotonically_increasing_id() as _nth",
    )
    limits = limits_of(topics or {})
    partitions = {name: topic.partitions for name, topic in (topics or {}).items()}
    chosen = partition_of(partitions, batch) if partitions else "partition"
    placed = messages.withColumn("partition", sf.expr(chosen))
    check = checked if exactly else quickly_checked
    placed = placed.withColumn("partition", sf.expr(check("partition", settings or {}, limits)))
    most = max(1, _parallelism(rows))
    if partitions:
        tasks = min(most, sum(partitions.values()))
        spread = placed.repartition(tasks, sf.expr(task_of(tasks)))
    else:
        spread = placed.repartition(most, sf.expr("coalesce(key, cast(concat_ws('/', topic, partition) as binary))"))
    return spread.sortWithinPartitions("position", "_nth").select("topic", "partition", "key", "value", "headers")


def _hide_private_key(spark: SparkSession, given: Mapping[str, str]) -> None:
    """Let Spark's plans and pages show no private key; it knows only options that are named after a secret."""
    pattern = spark.conf.get(_REDACTED_OPTIONS, "(?i)url") or "(?i)url"
    if any(name.lower() == _PEM_KEY for name in given) and "keystore" not in pattern:
        spark.conf.set(_REDACTED_OPTIONS, f"{pattern}|(?i)keystore[.]key")


def _texts(failure: Exception) -> str:
    # PySpark's converted exceptions keep the Java trace apart from the message.
    return f"{failure}\n{getattr(failure, '_stackTrace', '')}"


def _parallelism(rows: DataFrame) -> int:
    spark: Any = rows.sparkSession
    if hasattr(spark, "_jsparkSession"):
        return int(spark.sparkContext.defaultParallelism)
    return int(spark.conf.get("spark.sql.shuffle.partitions"))


def _address(server: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:[A-Za-z_]+://)?(\[[^\]]+\]|[^:]+):(\d+)", server)
    if match is None:
        raise SinkError(
            f"'{server}' is no broker address.", remedy="Write the option 'bootstrap_servers' as host:port,host:port."
        )
    return match[1].strip("[]"), int(match[2])
