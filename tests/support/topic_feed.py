"""Messages of a topic about one table, and a lake table that gets them in batches."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import registry
from headrace.changes import TableId
from headrace.formats.convert import format_named
from headrace.observe.progress import ProgressBoard
from headrace.pipeline.batch import BatchWriter
from headrace.pipeline.batch_inputs import Delivery, MessageInput
from headrace.pipeline.target import Target
from headrace.pipeline.topic_files import TopicFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KAFKA = (
    "key binary, value binary, headers array<struct<key:string,value:binary>>, topic string, partition int, "
    "offset bigint, timestamp timestamp"
)
TYPES = {"id": "int32", "n": "int64", "a": "string", "more": "string"}
PARTITIONS = 3

Message = tuple[bytes | None, bytes | None, Any, str, int, int, None]


def envelope(op: str, before: Any, after: Any, source: Mapping[str, Any], columns: Sequence[str]) -> bytes:
    image = [{"type": TYPES[name], "optional": name != "id", "field": name} for name in columns]
    images = [{"type": "struct", "optional": True, "field": name, "fields": image} for name in ("before", "after")]
    schema = {"type": "struct", "name": "s.t.Envelope", "fields": [*images, {"type": "string", "field": "op"}]}
    said = {"connector": "mysql", "db": "db", "schema": "dbo", "table": "t", "ts_ms": 1_700_000_000_000, **source}
    payload = {"op": op, "before": before, "after": after, "source": said, "ts_ms": 1_700_000_000_500}
    return json.dumps({"schema": schema, "payload": payload}).encode()


class Feed:
    """Messages of a topic, each key's in one partition, and what a table holds after them."""

    def __init__(self, seed: int, source: Mapping[str, Any], *, keys: int = 40) -> None:
        self.made = random.Random(seed)
        self.keys = keys
        self.source = dict(source)
        self.rows: dict[int, dict[str, Any]] = {}
        self.columns = ["id", "n", "a"]
        self._ends = [0] * PARTITIONS

    def _row(self, key: int) -> dict[str, Any]:
        made = self.made
        row = {"id": key, "n": made.choice([None, 0, -7, 2**53 + 1]), "a": made.choice([None, "", "x", "ä\n'"])}
        return row | ({"more": made.choice([None, "m"])} if "more" in self.columns else {})

    def message(self, op: str, before: Any, after: Any, *, headers: Any = None, **source: Any) -> Message:
        key = (after or before)["id"]
        partition = key % PARTITIONS
        self._ends[partition] += 1
        kept = {"type": "struct", "fields": [{"type": "int32", "field": "id"}]}
        name = json.dumps({"schema": kept, "payload": {"id": key}}).encode()
        value = envelope(op, before, after, {**self.source, **source}, self.columns)
        return name, value, headers, "s.t", partition, self._ends[partition] - 1, None

    def changes(self, count: int) -> list[Message]:
        """Changes of random rows, each delete with the message without a value that lets Kafka forget the key."""
        found = []
        for _ in range(count):
            found.append(self.change())
            name, _, headers, topic, partition, offset, time = found[-1]
            if offset != self._ends[partition] - 1:
                found.append((name, None, headers, topic, partition, offset + 1, time))
        return found

    def change(self) -> Message:
        key = self.made.randrange(self.keys)
        before = self.rows.get(key)
        if before is not None and self.made.random() < 0.3:
            del self.rows[key]
            deleted = self.message("d", before, None)
            self._ends[key % PARTITIONS] += 1
            return deleted
        self.rows[key] = self._row(key)
        return self.message("c" if before is None else "u", before, self.rows[key], txId=str(self.made.randrange(5)))

    def move(self) -> list[Message]:
        """One row gets a key that no row has, in one message."""
        old = self.made.choice(sorted(self.rows))
        new = max(self.rows) + PARTITIONS
        new += (old - new) % PARTITIONS
        before = self.rows.pop(old)
        self.rows[new] = {**before, "id": new}
        return [self.message("u", before, self.rows[new])]


class Mirror:
    """A Delta or Iceberg table that gets batches of messages."""

    def __init__(self, spark: SparkSession, folder: Path, kind: str, *, by_decoders: bool) -> None:
        self.spark = spark
        self.folder = folder
        given: dict[str, Any] = {"schema_change_behavior": "lenient"}
        # A session of Iceberg keeps the warehouse of a catalogue that it has used.
        iceberg = {"warehouse": str(folder), "namespace": "db", "catalog": f"of_{folder.name}"}
        given |= {"path": str(folder)} if kind == "delta" else iceberg
        self.sink: Any = registry.find("sink", kind).of(given)
        self.files = TopicFiles(format_named("debezium_json", {}), self.sink if by_decoders else None)
        self.board = ProgressBoard()
        self.topic_ids = {"s.t": "one"}
        self.writer = BatchWriter(
            "p",
            MessageInput(decode=self.files.decode, topic_ids=lambda: dict(self.topic_ids), topic_files=self.files),
            Delivery([Target(kind, self.sink, None, "", "sink 1")], self.board),
        )
        self.writer.begin("checkpoint")
        self.number = 0

    def take(self, messages: Sequence[Message]) -> None:
        frame = self.spark.createDataFrame([*messages], KAFKA).repartition(PARTITIONS, "partition")
        try:
            self.writer(frame.sortWithinPartitions("partition", "offset"), self.number)
        except Exception as error:
            raise self.writer.failure or error from None
        self.number += 1

    def rows(self) -> list[Any]:
        """The rows with the positions of their last changes."""
        target = self.sink.target(self.spark, TableId("db", "dbo", "t"))
        found = target.read().selectExpr("id", "n", "a", "_headrace_position")
        return sorted(map(tuple, found.collect()), key=repr)

    def counts(self) -> Any:
        return {of.table: dict(of.rows) for of in self.board.progress(None, level=None).tables}
