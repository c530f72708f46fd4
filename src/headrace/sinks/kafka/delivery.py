"""Messages sent to Kafka by the worker that made them, with librdkafka.

What a worker can't see to, it leaves to Spark and the sink, which then say what is wrong: topics that are missing,
messages that may be too large, brokers that don't answer. So a task looks at all of its messages before it sends one.

The sink's settings are those of Kafka's Java producer; here they get librdkafka's names, where it has all of them.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace import faultpoints
from headrace.changes.direct_producer import Delivery, DirectProducer
from headrace.errors import SinkError
from headrace.sinks.kafka.limits import not_accepted, surely_fits
from headrace.sinks.kafka.topics import Topic, limits_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

POSITION_HEADER = "headrace.position"
"""The header by which a consumer knows a repeated change."""

_FRESH_SECONDS = 300.0
_ASK_SECONDS = 15.0
_SLACK_SECONDS = 30.0
_MADE_SECONDS = 2.0
_LOOK_SECONDS = 0.02
_LIMIT = "max.message.bytes"
_MOST_BATCH = 1_000_000
_FAIR_SHARE = 5_000
"""So many messages are handed over before delivered ones are let go."""
_TRANSIENT = frozenset(
    [
        *("_ALL_BROKERS_DOWN", "_MSG_TIMED_OUT", "_TIMED_OUT", "_TRANSPORT", "NETWORK_EXCEPTION", "REQUEST_TIMED_OUT"),
        *("BROKER_NOT_AVAILABLE", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "KAFKA_STORAGE_ERROR"),
        *("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "THROTTLING_QUOTA_EXCEEDED"),
    ]
)
"""librdkafka's names of transient errors."""


@dataclass(frozen=True)
class KafkaDirectProducer(DirectProducer):
    """Kafka, as the sink's options say it.

    Args:
        settings: those of Kafka's producer by their own names, by which sizes are judged; may hold secrets.
        client: the same for librdkafka.
        asks_for_topics: whether a producer asks for topics that are missing, which brokers may then make.
    """

    sink: ClassVar[str] = "kafka"
    settings: Mapping[str, str] = field(repr=False)
    client: Mapping[str, str] = field(repr=False)
    asks_for_topics: bool = True

    def to_text(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> KafkaDirectProducer:
        """Read `to_text`'s form back."""
        return cls(**json.loads(text))

    def delivery(self, batch: int) -> KafkaDelivery:
        """Begin to send a task's messages; makes no request yet."""
        client = _client(self)
        client.refresh()
        return KafkaDelivery(client, batch)


class KafkaDelivery(Delivery):
    """The messages of one task on their way to Kafka.

    Partitions: librdkafka chooses the same for a key as Kafka's own clients. Messages without a key go to one partition
    per topic and batch.

    Args:
        client: the worker's connection.
        batch: Spark's number of the batch.
    """

    def __init__(self, client: _Client, batch: int) -> None:
        self._client = client
        self._batch = batch
        self._count = 0

    def inspect(self, messages: pa.RecordBatch) -> None:
        if self.refusal or not messages.num_rows:
            return
        keys, values = messages.column("key"), messages.column("value")
        names = messages.column("topic").unique().to_pylist()
        self.refusal = self._client.topics_refusal(names)
        if self.refusal:
            return
        sizes = pc.add(_lengths(keys), _lengths(values))
        most = surely_fits(self._client.direct_producer.settings, self._client.limits(names))
        if pc.max(sizes).as_py() + _most_headers(messages.column("headers")) > most:
            self.refusal = "a message may be too large"
        self._count += messages.num_rows

    def send(self, messages: Iterable[pa.RecordBatch]) -> None:
        faultpoints.reach("sink.kafka.worker.before_send")
        sent = 0
        try:
            for batch in messages:
                self._client.produce(batch, self._batch)
                sent += batch.num_rows
            self._client.settle(self._batch)
        except BaseException:
            self._client.forget()
            raise
        if sent != self._count:
            raise SinkError(f"{sent:,} messages of batch {self._batch} were sent to Kafka, not {self._count:,}.")
        faultpoints.reach("sink.kafka.worker.after_send")


class _Client:
    """A worker's connection to Kafka, which its tasks share, one after the other."""

    def __init__(self, direct_producer: KafkaDirectProducer) -> None:
        self.direct_producer = direct_producer
        self._known: dict[str, Topic] = {}
        self._asked = -_FRESH_SECONDS
        self._trouble: tuple[float, str] = (-_FRESH_SECONDS, "")
        self._producer: Any = None
        self._batch_bytes = 0
        self._failures: list[KafkaError] = []

    def limits(self, names: Iterable[str]) -> dict[str, int | None]:
        """The largest batches that these topics take."""
        return limits_of({name: self._known[name] for name in names})

    def refresh(self) -> None:
        """Forget topics that were asked for five minutes ago: topics get partitions and are deleted, and Kafka's own
        clients look again as often.
        """
        now = time.monotonic()
        if now - self._asked >= _FRESH_SECONDS:
            self._known, self._asked = {}, now

    def topics_refusal(self, names: Iterable[str | None]) -> str:
        """Why messages for these topics can't be sent from here; empty where they can. Kafka is asked for those that
        are not known yet.
        """
        now = time.monotonic()
        new = [name for name in names if name not in self._known]
        if not new:
            return ""
        since, trouble = self._trouble
        if trouble and now - since < _FRESH_SECONDS:
            return trouble
        if None in new:
            return "a message has no topic"
        try:
            missing = self._ask([name for name in new if name])
        except _Trouble as failure:
            self._trouble = (now, str(failure))
            return str(failure)
        return f"topic '{missing}' is not there yet" if missing else ""

    def _ask(self, names: list[str]) -> str:
        """Learn about topics; the first one that does not exist, or nothing."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

        def trouble(error: Any) -> _Trouble:
            code = error.args[0].name() if isinstance(error, KafkaException) else type(error).__name__
            return _Trouble(f"librdkafka could not ask for the topics ({code})")

        try:
            admin = AdminClient({name: value for name, value in self._settings.items() if name != "partitioner"})
            partitions = _partitions(admin, names)
            missing = [name for name in names if name not in partitions]
            if missing and self.direct_producer.asks_for_topics:
                partitions |= self._asked_for(admin, missing)
            if len(partitions) < len(names):
                return next(name for name in names if name not in partitions)
            resources = {name: ConfigResource(ConfigResource.Type.TOPIC, name) for name in names}
            asked = admin.describe_configs(list(resources.values()), request_timeout=_ASK_SECONDS)
            for name, resource in resources.items():
                try:
                    limit: int | None = int(asked[resource].result(_ASK_SECONDS + 1)[_LIMIT].value)
                except KafkaException as error:
                    # A login that may write need not be allowed to read settings.
                    if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                        raise
                    limit = None
                self._known[name] = Topic(partitions[name], limit)
        except (KafkaException, TimeoutError, ValueError) as error:
            raise trouble(error) from error
        return ""

    def _asked_for(self, admin: Any, missing: list[str]) -> dict[str, int]:
        """The partitions of topics after a producer has asked for them; of those that brokers have made meanwhile."""
        from confluent_kafka import Producer

        producer = Producer(self._settings)
        for name in missing:
            producer.list_topics(name, timeout=_ASK_SECONDS)
        deadline = time.monotonic() + _MADE_SECONDS
        while len(counted := _partitions(admin, missing)) < len(missing) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        return counted

    @property
    def _settings(self) -> dict[str, Any]:
        # librdkafka would write to the console of the worker.
        return {**self.direct_producer.client, "log_level": 0}

    def produce(self, messages: pa.RecordBatch, batch: int) -> None:
        """Hand over messages, waiting while too many are under way."""
        names = messages.column("topic").to_pylist()
        keys, values = messages.column("key").to_pylist(), messages.column("value").to_pylist()
        given = messages.column("partition")
        chosen = self._chosen(names, keys, given.to_pylist() if given.null_count < len(given) else None, batch)
        positions = messages.column("position").cast(pa.binary()).to_pylist()
        header_lists = messages.column("headers")
        before = header_lists.to_pylist() if header_lists.null_count < len(header_lists) else None
        producer = self._ready(set(names), batch)
        send, poll = producer.produce, producer.poll
        for n, (topic, key, value, partition, position) in enumerate(
            zip(names, keys, values, chosen, positions, strict=True)
        ):
            headers = [(POSITION_HEADER, position)]
            if before is not None and before[n]:
                headers = [*((one["key"], one["value"]) for one in before[n]), *headers]
            while True:
                try:
                    send(topic, value, key, partition, headers=headers)
                    break
                except BufferError:
                    poll(0.05)
                    self._raise_failures(batch)
            if not n % _FAIR_SHARE:
                poll(0)
        self._raise_failures(batch)

    def _chosen(
        self, names: list[str], keys: list[bytes | None], given: list[int | None] | None, batch: int
    ) -> list[int]:
        """The partition of each message; -1 leaves it to the hash of the key."""
        keyed = {name: 0 if self._known[name].partitions == 1 else -1 for name in set(names)}
        keyless = {name: batch % self._known[name].partitions for name in keyed}
        chosen = [keyless[name] if key is None else keyed[name] for name, key in zip(names, keys, strict=True)]
        if given is None:
            return chosen
        return [one if named is None else named for one, named in zip(chosen, given, strict=True)]

    def _ready(self, names: set[str], batch: int) -> Any:
        """The producer, whose batches all of these topics take."""
        from confluent_kafka import KafkaException, Producer

        asked = self.direct_producer.client.get("batch.size", "")
        limits = [limit for limit in self.limits(names).values() if limit is not None]
        most = min(int(asked) if asked.isdigit() else _MOST_BATCH, *limits, _MOST_BATCH)
        if self._producer is not None and self._batch_bytes > most:
            # Its messages are on their way and come before those that follow.
            self.settle(batch)
            self._producer = None
        if self._producer is None:
            settings = {**self._settings, "batch.size": max(1, most), "delivery.report.only.error": True}
            try:
                self._producer = Producer({**settings, "on_delivery": self._told})
            except KafkaException as error:
                raise SinkError(
                    f"librdkafka does not take the sink's settings ({error.args[0].name()}).",
                    remedy="Correct the 'kafka.*' settings of the sink.",
                ) from None
            self._batch_bytes = most
        return self._producer

    def _told(self, error: KafkaError | None, message: object) -> None:
        if error is not None:
            self._failures.append(error)

    def settle(self, batch: int) -> None:
        """Wait until Kafka has all that was handed over.

        Raises:
            SinkError: it does not have all.
        """
        if self._producer is None:
            return
        patience = self.direct_producer.client["delivery.timeout.ms"]
        left = self._producer.flush(int(patience) / 1000 + _SLACK_SECONDS)
        self._raise_failures(batch)
        if left:
            raise not_accepted(
                self.direct_producer.settings["bootstrap.servers"], batch, too_large=False, is_transient=True
            )

    def _raise_failures(self, batch: int) -> None:
        if not self._failures:
            return
        from confluent_kafka import KafkaError

        large = any(
            failure.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
            for failure in self._failures
        )
        is_transient = all(failure.name() in _TRANSIENT for failure in self._failures)
        raise not_accepted(
            self.direct_producer.settings["bootstrap.servers"], batch, too_large=large, is_transient=is_transient
        ) from RuntimeError(self._failures[0].name())

    def forget(self) -> None:
        """Drop what is not sent yet, so that the next task begins again, with topics that are asked for again."""
        producer, self._producer, self._failures = self._producer, None, []
        self._known = {}
        if producer is not None:
            producer.purge()
            producer.flush(1)
            self._failures = []


class _Trouble(Exception):
    """Kafka could not be asked. The text is the end of a sentence."""


_CLIENTS: dict[tuple[int, str], _Client] = {}
"""By the process, because a fork has none of its parent's threads, and by what it was made from."""


def _client(direct_producer: KafkaDirectProducer) -> _Client:
    return _CLIENTS.setdefault((os.getpid(), direct_producer.to_text()), _Client(direct_producer))


def _partitions(admin: Any, names: list[str]) -> dict[str, int]:
    """How many partitions topics have; of those that are there."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection

    partitions = {}
    for name, future in admin.describe_topics(TopicCollection(names), request_timeout=_ASK_SECONDS).items():
        try:
            partitions[name] = len(future.result(_ASK_SECONDS + 1).partitions)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
    return partitions


def _most_headers(headers: pa.Array) -> int:
    """The most bytes that the headers of one message have, without lengths."""
    if headers.null_count == len(headers):
        return 0
    names, values = headers.flatten().flatten()
    bytes = pc.add(_lengths(names), _lengths(values)).to_numpy()
    sizes = np.bincount(pc.list_parent_indices(headers).to_numpy(), weights=bytes)
    return int(sizes.max(initial=0))


def _lengths(column: pa.Array) -> pa.Array:
    return pc.fill_null(pc.cast(pc.binary_length(column), pa.int64()), 0)


_SAME = (
    "batch.size",
    "client.dns.lookup",
    "client.id",
    "compression.type",
    "connections.max.idle.ms",
    "delivery.timeout.ms",
    "linger.ms",
    "max.in.flight.requests.per.connection",
    "metadata.max.age.ms",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retries",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "sasl.mechanism",
    "security.protocol",
)
_NAMED: Mapping[str, str] = {
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
    "ssl.key.password": "ssl.key.password",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
_OURS = frozenset(("acks", "bootstrap.servers", "enable.idempotence", "partitioner.ignore.keys"))
"""Promised by the sink, whatever is given."""
_NOT_OF_PRODUCERS = frozenset(("default.api.timeout.ms", "max.block.ms"))
"""How long a client waits for topics; producers have no such setting."""
_MECHANISMS = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
}
_TOKENS = "OAUTHBEARER"
_TOKEN_MODULE = "oauthbearer.OAuthBearerLoginModule"
_TOKEN_HANDLERS = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{package}OAuthBearerLoginCallbackHandler"
    for package in ("", "secured.")
)
_EXTENSION = "extension_"
_VALUE = r"""(?:"[^"\\]*"|'[^'\\]*')"""
_JAAS = re.compile(
    rf"\s*org\.apache\.kafka\.common\.security\.(\w+\.\w+)\s+required((?:\s+\w+\s*=\s*{_VALUE})+)\s*;\s*"
)
_GIVEN = re.compile(rf"(\w+)\s*=\s*({_VALUE})")
_STORES = {
    "ssl.truststore": ("ssl.ca.location",),
    "ssl.keystore": ("ssl.certificate.location", "ssl.key.location"),
}


class NotTranslated(Exception):
    """librdkafka has no word for a setting. The text is the end of a sentence, and shows no setting's value."""


def translated(settings: Mapping[str, str]) -> dict[str, str]:
    """The same settings for librdkafka, with the defaults of Kafka's Java producer where they promise something.

    Args:
        settings: by Kafka's names, with `bootstrap.servers`.

    Raises:
        NotTranslated: one has no counterpart.
    """
    properties = {
        "bootstrap.servers": settings["bootstrap.servers"],
        "message.max.bytes": "1048576",
        "delivery.timeout.ms": "120000",
        "linger.ms": "20",
        # Not what Kafka's producer buffers by default, 32 MB, which a worker fills faster than it is emptied.
        "queue.buffering.max.kbytes": "65536",
        "acks": "all",
        "enable.idempotence": "true",
        "partitioner": "murmur2_random",
    }
    rest = {name: str(value).strip() for name, value in settings.items() if name not in _OURS | _NOT_OF_PRODUCERS}
    for take in (_buffers, _login, _stores):
        properties |= take(rest)
    for name, value in rest.items():
        ours = name if name in _SAME else _NAMED.get(name)
        if ours is None:
            raise NotTranslated(f"librdkafka does not know 'kafka.{name}'")
        properties[ours] = value
    return properties


def _buffers(rest: dict[str, str]) -> dict[str, str]:
    given = rest.pop("buffer.memory", "")
    if not given:
        return {}
    if not given.isdigit():
        raise NotTranslated("'kafka.buffer.memory' is no number")
    return {"queue.buffering.max.kbytes": str(max(1, int(given) // 1024))}


def _login(rest: dict[str, str]) -> dict[str, str]:
    protocol = rest.get("security.protocol", "PLAINTEXT").upper()
    if not protocol.startswith("SASL_"):
        rest.pop("sasl.mechanism", None)
        rest.pop("sasl.jaas.config", None)
        return {}
    mechanism = rest.get("sasl.mechanism", "GSSAPI")
    if mechanism == _TOKENS:
        return _token(rest)
    module = _MECHANISMS.get(mechanism)
    if module is None:
        raise NotTranslated("of 'kafka.sasl.mechanism' only PLAIN, SCRAM and OAUTHBEARER are the same in librdkafka")
    given = _said_to(module, rest)
    if set(given) != {"username", "password"}:
        raise NotTranslated("'kafka.sasl.jaas.config' says more than a user and a password, or says them otherwise")
    return {"sasl.username": given["username"], "sasl.password": given["password"]}


def _token(rest: dict[str, str]) -> dict[str, str]:
    """A token of OAuth 2's client credentials, which librdkafka asks for itself."""
    handler = rest.pop("sasl.login.callback.handler.class", "")
    address = rest.pop("sasl.oauthbearer.token.endpoint.url", "")
    if handler not in _TOKEN_HANDLERS or not address.startswith(("http://", "https://")):
        raise NotTranslated("of OAUTHBEARER only a token from 'kafka.sasl.oauthbearer.token.endpoint.url' is the same")
    given = _said_to(_TOKEN_MODULE, rest)
    extensions = {name[len(_EXTENSION) :]: given.pop(name) for name in [*given] if name.startswith(_EXTENSION)}
    if not {"clientId", "clientSecret"} <= set(given) <= {"clientId", "clientSecret", "scope"}:
        raise NotTranslated("'kafka.sasl.jaas.config' says more than an id, a secret and a scope, or not these")
    token = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": address,
        "sasl.oauthbearer.client.id": given["clientId"],
        "sasl.oauthbearer.client.secret": given["clientSecret"],
        "sasl.oauthbearer.scope": given.get("scope", ""),
        "sasl.oauthbearer.extensions": ",".join(f"{name}={value}" for name, value in extensions.items()),
    }
    return {name: value for name, value in token.items() if value}


def _said_to(module: str, rest: dict[str, str]) -> dict[str, str]:
    """What 'sasl.jaas.config' says to Kafka's login module of this name; nothing where it says it to another one."""
    match = _JAAS.fullmatch(rest.pop("sasl.jaas.config", ""))
    return {name: value[1:-1] for name, value in _GIVEN.findall(match[2])} if match and match[1] == module else {}


def _stores(rest: dict[str, str]) -> dict[str, str]:
    """Where keys and certificates are; librdkafka reads PEM, and not Java's own stores."""
    stores: dict[str, str] = {}
    for store, names in _STORES.items():
        kind, location = rest.pop(f"{store}.type", "JKS"), rest.pop(f"{store}.location", "")
        if not location and f"{store}.password" not in rest and not any(name.startswith(f"{store}.") for name in rest):
            continue
        if kind.upper() != "PEM":
            raise NotTranslated(f"librdkafka reads 'kafka.{store}.*' only as PEM")
        if location:
            stores |= dict.fromkeys(names, location)
    algorithm = rest.pop("ssl.endpoint.identification.algorithm", None)
    if algorithm is not None:
        stores["ssl.endpoint.identification.algorithm"] = algorithm.lower() or "none"
    return stores
