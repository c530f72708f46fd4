"""Dead letters: messages that can't be read, kept whole in a sink of their own with the reason.

```yaml
source:
  type: kafka
  bootstrap.servers: "k:9092"
  topics: [orders]
  format: {type: canal_json, on_error: dead_letter}
dead_letter: {type: kafka, bootstrap.servers: "k:9092", topic: "${topic}.dead_letter"}
```

Sinks that take messages get the bytes and headers that came, followed by the headers `headrace.error.*`. Sinks that
take change rows get one row per message of a table without a key.

The checkpoint keeps which of them were replayed, so that none is replayed twice.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.row import CHANGE_ROW_DDL, spark_schema
from headrace.changes.texts import canonical_text
from headrace.changes.typed import literal
from headrace.errors import SinkError
from headrace.observe.checkpoint import REPLAYED, reading
from headrace.pipeline.kafka_source import KafkaTopics
from headrace.settings import Settings, option
from headrace.sinks.base import BatchId, Sink
from headrace.sinks.kafka.topics import topic_places
from headrace.spark.local_rows import local_rows
from headrace.versions import require_readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADER = "headrace.error."
"""What the names of the headers begin with that tell where a dead letter came from and why it is one."""

_COLUMNS = {
    "topic": ("string", "message.topic"),
    "partition": ("int32", "message.partition"),
    "offset": ("int64", "message.offset"),
    "timestamp": ("instant(6)", "message.timestamp"),
    "key": ("bytes", "message.key"),
    "value": ("bytes", "message.value"),
    # The bytes of a header's value become base64.
    "headers": ("json", "to_json(message.headers, map('ignoreNullFields', 'false'))"),
    "reason": ("string", "error"),
}
"""The table of dead letters: each column's logical type, and Spark SQL for its value."""


class DeadLetterTopicSettings(Settings):
    """Of the section `dead_letter`, beside a sink that takes messages."""

    topic: str = option(
        "For sinks that take messages: the topic of a dead letter, in which `${topic}` stands for the one it came "
        "from.",
        default="${topic}.dead_letter",
    )


class DeadLetterTableSettings(Settings):
    """Of the section `dead_letter`, beside a sink that takes change rows."""

    table: str = option(
        "For sinks that take change rows: the table of dead letters, `name` or `schema.name`.",
        default="dead_letter",
    )


@dataclass(frozen=True)
class DeadLetters:
    """Where messages go that can't be read. Written like any other sink, inside the batch and after the others.

    Args:
        type: the sink's registered name.
        sink: made from its options.
        source: where the messages come from, so that dead letters are not put where they would be read again.
        name: the option `topic` or, for a sink that takes change rows, `table`.
    """

    type: str
    sink: Sink
    source: KafkaTopics
    name: str

    def write(self, errors: DataFrame, batch: BatchId) -> None:
        """Write the `error` rows of a batch. A replay does what a replay does in that sink.

        Raises:
            SinkError: the sink can't be written, or the pipeline would read its own dead letters.
        """
        if self.sink.takes == "messages":
            self._refuse_circle(errors)
            self.sink.write(self.messages(errors, batch), batch)
        else:
            self.sink.write(self.changes(errors), batch)

    def topic_of(self, topic: str) -> str:
        return self.name.replace("${topic}", topic)

    def places(self, topics: Iterable[str] = ()) -> frozenset[str]:
        """Where dead letters go, as `Sink.places` names it; makes no request.

        Args:
            topics: where messages come from, besides the topics that the file names.
        """
        id = self.schema.id
        if self.sink.takes == "changes":
            return self.sink.places(id)
        topics_of_letters = {self.topic_of(topic) for topic in (*self.source.settings.topics, *topics)}
        names = topics_of_letters if "${topic}" in self.name else {self.name}
        return frozenset(location for name in names for location in self.sink.places(id, name)) | (
            self.sink.places() if self.sink.is_one_place else frozenset()
        )

    @property
    def go_by_topic(self) -> bool:
        """Whether their place depends on a topic that the file does not name."""
        return self.sink.takes == "messages" and "${topic}" in self.name and not self.source.settings.topics

    def reads_itself(self, topic: str) -> bool:
        """Whether dead letters of a topic would come back as messages of the source."""
        target = self.topic_of(topic)
        theirs = topic_places(self.source.settings.bootstrap_servers, target)
        return self.source.reads(target) and bool(self.sink.places(self.schema.id, target) & theirs)

    def _refuse_circle(self, errors: DataFrame) -> None:
        for row in errors.selectExpr("message.topic as topic").distinct().collect():
            if self.reads_itself(row["topic"]):
                raise SinkError(
                    f"Dead letters of topic '{row['topic']}' would go to '{self.topic_of(row['topic'])}', "
                    "which this pipeline reads.",
                    remedy="Give 'dead_letter' a topic that topics.pattern does not match.",
                )

    def kept(self, spark: SparkSession, pipeline: str) -> DataFrame | None:
        """The dead letters of a pipeline as the messages that came, each once, with its `reason`; None where no sink of
        them is there yet. Lazy; in no order.

        Args:
            spark: a classic session.
            pipeline: the pipeline's name; several may share a topic of dead letters.

        Raises:
            SinkError: the sink can't be read back.
        """
        if self.sink.takes == "messages":
            letters = self.sink.messages(spark, self._topics_expression)
            rows = None if letters is None else _from_messages(letters, pipeline)
        elif self.sink.reads_back == "no":
            raise SinkError(
                f"The dead letters in sink '{self.type}' can't be read back.",
                remedy="Keep them in the sink 'kafka', 'files', or one of tables such as 'delta'.",
            )
        else:
            letters = self.sink.now(spark, self.schema)
            rows = None if letters is None else _from_table(letters)
        # At-least-once sinks have a message again, byte for byte, where a batch was repeated.
        return None if rows is None else rows.dropDuplicates(["topic", "partition", "offset"])

    @property
    def _topics_expression(self) -> str:
        topics = "|".join(re.escape(topic) for topic in self.source.settings.topics)
        given = f"(?:{topics})" if topics else ".+"
        return given.join(re.escape(part) for part in self.name.split("${topic}"))

    def messages(self, errors: DataFrame, batch: BatchId) -> DataFrame:
        """The messages as they came, with headers that say from where and why."""
        facts = {
            "reason": "error",
            "topic": "message.topic",
            "partition": "cast(message.partition as string)",
            "offset": "cast(message.offset as string)",
            "timestamp": "cast(unix_millis(message.timestamp) as string)",
            "pipeline": literal(batch.pipeline),
        }
        headers = ", ".join(
            f"named_struct('key', '{HEADER}{name}', 'value', cast({sql} as binary))" for name, sql in facts.items()
        )
        none = "cast(array() as array<struct<key:string,value:binary>>)"
        parts = re.split(r"(\$\{topic\})", self.name)
        topic = ", ".join("message.topic" if part == "${topic}" else literal(part) for part in parts)
        return errors.selectExpr(
            f"concat({topic}) as topic",
            "cast(null as int) as partition",
            "message.key as key",
            "message.value as value",
            f"concat(coalesce(message.headers, {none}), array({headers})) as headers",
            "position",
        )

    def changes(self, errors: DataFrame) -> DataFrame:
        """One create per message of a table without a key, and the table's structure before them."""
        schema = self.schema
        id = schema.id
        texts = (canonical_text(_COLUMNS[column.name][1], column) for column in schema.columns)
        image = ", ".join(f"{literal(c.name)}, {text}" for c, text in zip(schema.columns, texts, strict=True))
        columns = {
            "op": "'c'",
            "table": f"named_struct('database', '', 'schema', {literal(id.schema)}, 'name', {literal(id.name)})",
            "after": f"map({image})",
            "position": "position",
            "event_time": "message.timestamp",
            "capture_time": "capture_time",
            "schema_id": literal(schema.fingerprint),
            "message": "message",
        }
        kinds = {field.name: field.dataType.simpleString() for field in spark_schema()}
        rows = errors.selectExpr(*(f"cast({columns.get(n, 'null')} as {kind}) as {n}" for n, kind in kinds.items()))
        given: dict[str, Any] = {
            "op": "schema",
            "table": ("", id.schema, id.name),
            "position": "",
            "schema_id": schema.fingerprint,
            "table_schema": schema.to_text(),
        }
        structure = local_rows(errors.sparkSession, [tuple(given.get(name) for name in kinds)], CHANGE_ROW_DDL)
        return structure.unionByName(rows)

    @property
    def schema(self) -> TableSchema:
        schema, _, name = self.name.rpartition(".")
        columns = (Column(n, at, LogicalType.parse(kind)) for at, (n, (kind, _)) in enumerate(_COLUMNS.items(), 1))
        return TableSchema(TableId("", schema, name), tuple(columns), ())


def _from_messages(messages: DataFrame, pipeline: str) -> DataFrame:
    """Dead letters as `DeadLetters.messages` wrote them, as they came."""
    # A dead letter that was read as a message, and became one again, has more of these headers before the last ones.
    last = f"size(headers) - array_position(reverse(transform(headers, h -> h.key)), '{HEADER}reason')"
    facts = "map_from_entries(transform(slice(headers, _own + 1, 6), h -> struct(h.key, cast(h.value as string))))"
    letters = messages.where(f"exists(headers, h -> h.key = '{HEADER}reason')").selectExpr("*", f"int({last}) as _own")
    letters = letters.selectExpr("*", f"{facts} as _facts").where(f"_facts['{HEADER}pipeline'] = {literal(pipeline)}")
    return letters.selectExpr(
        f"_facts['{HEADER}topic'] as topic",
        f"cast(_facts['{HEADER}partition'] as int) as partition",
        f"cast(_facts['{HEADER}offset'] as bigint) as offset",
        f"timestamp_millis(cast(_facts['{HEADER}timestamp'] as bigint)) as timestamp",
        "key",
        "value",
        "slice(headers, 1, _own) as headers",
        f"_facts['{HEADER}reason'] as reason",
    )


def _from_table(rows: DataFrame) -> DataFrame:
    """Dead letters as `DeadLetters.changes` wrote them, as they came."""
    headers = "from_json(headers, 'array<struct<key:string,value:string>>')"
    return rows.selectExpr(
        *(name for name in _COLUMNS if name not in ("headers", "reason")),
        f"transform({headers}, h -> named_struct('key', h.key, 'value', unbase64(h.value))) as headers",
        "reason",
    )


_VERSION = 1

DeadLetterRows = Mapping[str, Mapping[int, tuple[tuple[int, int], ...]]]
"""Offsets of dead letters: first and last of those that follow one another, in order, by topic and partition."""


@dataclass(frozen=True)
class ReplayedBatch:
    """One replay.

    Args:
        batch: the batch of the checkpoint under which sinks have it.
        at: when it was finished.
        letters: how many dead letters it settled.
    """

    batch: int
    at: dt.datetime
    letters: int


@dataclass(frozen=True)
class Replayed:
    """All replays of a checkpoint.

    Args:
        letters: the dead letters that need not be replayed again.
        batches: the replays, in order.
    """

    letters: DeadLetterRows = field(default_factory=dict)
    batches: tuple[ReplayedBatch, ...] = ()

    @property
    def count(self) -> int:
        """How many dead letters were replayed."""
        return sum(batch.letters for batch in self.batches)

    def ranges(self) -> list[tuple[str, int, int, int]]:
        """Topic, partition, first and last offset of what was replayed."""
        return [
            (topic, partition, first, last)
            for topic, partitions in self.letters.items()
            for partition, spans in partitions.items()
            for first, last in spans
        ]

    def with_batch(self, batch: ReplayedBatch, ranges: Iterable[tuple[str, int, int, int]]) -> Replayed:
        by_partition: dict[str, dict[int, list[tuple[int, int]]]] = {}
        for topic, partition, first, last in [*self.ranges(), *ranges]:
            by_partition.setdefault(topic, {}).setdefault(partition, []).append((first, last))
        letters = {
            topic: {partition: _joined(spans) for partition, spans in sorted(partitions.items())}
            for topic, partitions in sorted(by_partition.items())
        }
        return Replayed(letters, (*self.batches, batch))

    def to_text(self) -> str:
        letters = {
            topic: {str(p): spans for p, spans in partitions.items()} for topic, partitions in self.letters.items()
        }
        batches = [
            {"batch": batch.batch, "at": batch.at.isoformat(), "letters": batch.letters} for batch in self.batches
        ]
        return json.dumps({"version": _VERSION, "letters": letters, "batches": batches})

    @classmethod
    def from_text(cls, text: str | None) -> Replayed:
        """Back from `to_text`; nothing where nothing was replayed.

        Raises:
            OptionError: it can't be read.
        """
        if text is None:
            return cls()
        with reading(REPLAYED, without="Without the file, all dead letters can be replayed again."):
            data: Any = json.loads(text)
            require_readable(
                data["version"], _VERSION, what=f"The checkpoint's '{REPLAYED}'", remedy="Replay with that release."
            )
            letters = {
                topic: {int(p): tuple((int(first), int(last)) for first, last in spans) for p, spans in parts.items()}
                for topic, parts in data["letters"].items()
            }
            batches = tuple(
                ReplayedBatch(int(one["batch"]), dt.datetime.fromisoformat(one["at"]), int(one["letters"]))
                for one in data["batches"]
            )
        return cls(letters, batches)


def _joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same offsets in order, in as few ranges as can be."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return tuple(joined)
