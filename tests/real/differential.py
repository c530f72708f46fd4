"""Debezium Server and Headrace capture one database at the same time: how both are read, and told apart.

Every event is equal, or differs by name: a test of a database lists what is meant to differ, each with its reason.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from tests.real.debezium_server import DebeziumServer

from headrace.changes import TableSchema
from headrace.formats.codec import ArrowFormat, Facts, run_codec
from headrace.formats.convert import format_named
from headrace.sources.base import Limit
from headrace.testing.sources import SourceRun
from headrace_emulators.kafka.broker import KafkaBroker

PREFIX = "live"
WRITING: dict[str, Any] = {
    "topic_prefix": PREFIX, "shape": "3.0", "connector_version": "3.0.8.Final", "schemas_enable": True,
    "null_as_default": True,
}  # fmt: skip
"""What the release does where Headrace does otherwise unless it is asked."""
Event = tuple[Any, Any, dict[str, Any]]


@dataclass
class Both:
    """What both made of the same transactions, by topic."""

    debezium: dict[str, list[Event]]
    headrace: dict[str, list[Event]]


def marked(server: DebeziumServer, broker: KafkaBroker, topic: str, count: int) -> None:
    """Wait until so many rows of the table `marker`, the last of each part, are in Kafka."""

    def there() -> bool:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "gate"})
        try:
            if topic not in consumer.list_topics(timeout=10).topics:
                return False
            return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]) >= count
        finally:
            consumer.close()

    server.server.wait_until(there, f"{count} records were in {topic}")


def next_batch(run: SourceRun) -> list[pa.RecordBatch]:
    """What the next batch reads; nothing where there is nothing new."""
    start, end = run.offset, run.source.advance(run.offset, Limit(), dt.datetime.now(dt.UTC))
    run.offset = end
    return [] if start == end else run.read(start, end)


def records_of(broker: KafkaBroker) -> Iterator[tuple[str, Any, Any, Any]]:
    """All records of Debezium Server, topic by topic."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "all", "enable.auto.commit": False})
    try:
        for topic in sorted(consumer.list_topics(timeout=10).topics):
            if topic.partition(".")[0] != PREFIX:
                continue
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
            consumer.assign([TopicPartition(topic, 0, low)])
            for _ in range(high - low):
                record = consumer.poll(30)
                assert record is not None and record.error() is None
                yield topic, record.key(), record.value(), record.headers()
    finally:
        consumer.close()


def messages_of(batches: list[pa.RecordBatch], writing: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any, Any]]:
    """What Headrace writes of change rows."""
    texts = {text for batch in batches for text in batch.column("table_schema").to_pylist() if text is not None}
    codec = format_named("debezium_json", {**WRITING, **writing})
    assert isinstance(codec, ArrowFormat)
    encoder = codec.encoder(codec.prepare_encoding(Facts(tuple(map(TableSchema.from_text, sorted(texts))))))
    for batch in batches:
        whole = batch.append_column("has_types", pa.array([True] * batch.num_rows))
        for made in run_codec(encoder, [whole]):
            for message in made.to_pylist():
                headers = [(header["key"], header["value"]) for header in message["headers"] or ()]
                yield message["topic"], message["key"], message["value"], headers


def by_topic(records: Iterator[tuple[str, Any, Any, Any]]) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = {}
    for topic, key, value, headers in records:
        event = (
            None if key is None else json.loads(key),
            None if value is None else json.loads(value),
            {name: json.loads(data) for name, data in headers or ()},
        )
        found.setdefault(topic, []).append(event)
    return found


class Named(NamedTuple):
    """A difference that is meant.

    Args:
        reason: why Headrace does not do what Debezium does.
        topic: where it is found, behind the prefix, as a regular expression; empty for the topic of schema changes.
        place: in a message, with what both have there, as a regular expression.
        of_reads: whether only rows of the snapshot have it.
    """

    reason: str
    topic: str
    place: str
    of_reads: bool = False

    def explains(self, topic: str, line: str, read: bool) -> bool:
        """Whether this is why an event of a topic differs at a place."""
        return (
            re.fullmatch(rf"{PREFIX}\.{self.topic}" if self.topic else PREFIX, topic) is not None
            and re.fullmatch(self.place, line.removeprefix("value.payload."), re.DOTALL) is not None
            and (read or not self.of_reads)
        )


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Where two values differ, a line for each place; the order of fields counts."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        lacking = [name for name in theirs if name not in ours]
        found = [f"{path}: lacks {name}" for name in lacking]
        if list(ours) != [name for name in theirs if name in ours]:
            found.append(f"{path}: fields {list(ours)} != {list(theirs)}")
        for name in ours:
            if name in theirs:
                found += differences(ours[name], theirs[name], f"{path}.{name}" if path else name)
        return found
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for n, (a, b) in pairs for line in differences(a, b, f"{path}[{field_name(b, n)}]")]
    return [] if ours == theirs and type(ours) is type(theirs) else [f"{path}: {ours!r} != {theirs!r}"]


def field_name(item: Any, number: int) -> str:
    """The name of a field in a schema, by which a place can be told."""
    return str(item.get("field", number)) if isinstance(item, dict) else str(number)


def unexplained_and_named(
    both: Both, named: Sequence[Named], compared: Callable[[Event, Event], tuple[Any, Any]]
) -> Iterator[str | Named]:
    """All differences, each as what explains it where something does.

    Args:
        both: what both wrote.
        named: the differences that are meant.
        compared: makes of an event of ours and one of theirs what must be equal.
    """
    for topic in sorted({*both.debezium, *both.headrace}):
        ours, theirs = both.headrace.get(topic, []), both.debezium.get(topic, [])
        if len(ours) != len(theirs):
            yield f"{topic}: {len(ours)} messages, not {len(theirs)}"
            continue
        for number, (one_of_ours, one_of_theirs) in enumerate(zip(ours, theirs, strict=True)):
            read = bool(one_of_ours[1]) and one_of_ours[1]["payload"].get("op") == "r"
            for line in differences(*compared(one_of_ours, one_of_theirs)):
                explained = [one for one in named if one.explains(topic, line, read)]
                yield explained[0] if explained else f"{topic} {number}: {line}"


def counted(payload: dict[str, Any], name: Callable[[str], str] = str) -> list[tuple[str, int]]:
    """How many events of which collection an end of a transaction says."""
    counts: Counter[str] = Counter()
    for each in payload["data_collections"] or ():
        counts[name(each["data_collection"])] += each["event_count"]
    return sorted(counts.items())
