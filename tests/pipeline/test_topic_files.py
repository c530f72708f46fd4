"""Rule: whether Spark or the tasks that decode messages write the rows of a topic, the table is the same."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace import registry
from headrace.changes import TableId
from headrace.errors import SchemaError
from headrace.formats.convert import format_named
from headrace.observe.progress import ProgressBoard
from headrace.pipeline.batch import BatchWriter
from headrace.pipeline.batch_inputs import Delivery, MessageInput
from headrace.pipeline.target import Target
from headrace.pipeline.topic_files import TopicFiles
from headrace.sinks.lake import decoded_files
from headrace.sinks.lake.index_way import IndexWay, Work

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


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[bool]]:
    """How often files of decoding tasks were used, and how often not; of three tasks some leave their rows to Spark."""
    found: Counter[bool] = Counter()
    ours = IndexWay._change

    def counted(way: IndexWay, rows: Any, work: Work, *rest: Any) -> Any:
        made = ours(way, rows, work, *rest)
        if work.table.folded:
            found[made is not None] += 1
        return made

    monkeypatch.setattr(IndexWay, "_change", counted)
    monkeypatch.setattr(decoded_files, "LEAST", 20)
    yield found


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("delta", {"connector": "postgresql"}),
        pytest.param("iceberg", {"connector": "mysql"}, marks=pytest.mark.system),
        pytest.param("delta", {"connector": "oracle"}, marks=pytest.mark.system),
    ],
)
def test_of_any_feed_the_table_is_the_same(
    spark: SparkSession, tmp_path: Path, used: Counter[bool], kind: str, source: Mapping[str, Any]
) -> None:
    feed = Feed(7, source)
    mirrors = [Mirror(spark, tmp_path / name, kind, by_decoders=name == "ours") for name in ("ours", "others")]
    for number in range(9):
        messages = feed.changes(60)
        if number == 3:
            messages += feed.move()
        if number == 6:
            feed.columns.append("more")
            messages += feed.changes(20)
        for mirror in mirrors:
            mirror.take(messages)
    assert mirrors[0].rows() == mirrors[1].rows()
    assert [row[0] for row in mirrors[0].rows()] == sorted(feed.rows, key=repr)
    assert mirrors[0].counts() == mirrors[1].counts()
    # A delete of Oracle's may be one half of a change of key, so its batches are no plain changes.
    assert (used[True] > 1) is (source["connector"] != "oracle")


def test_what_tasks_write_in_vain_is_deleted(
    spark: SparkSession, tmp_path: Path, used: Counter[bool], caplog: pytest.LogCaptureFixture
) -> None:
    feed, mirror = Feed(8, {"connector": "mysql"}), Mirror(spark, tmp_path / "t", "delta", by_decoders=True)
    for _ in range(3):
        mirror.take(feed.changes(60))
    assert used == {True: 2}
    mirror.take([*feed.changes(60), *feed.move()])
    assert "not all of its rows are plain changes" in caplog.text
    logs = "".join(file.read_text() for file in (tmp_path / "t/dbo/t/_delta_log").glob("*.json"))
    assert all(file.name in logs for file in (tmp_path / "t").rglob("*.parquet"))
    for _ in range(4):
        mirror.take(feed.changes(60))
    assert [row[0] for row in mirror.rows()] == sorted(feed.rows, key=repr)
    assert used[False] == 1
    assert used[True] > 2


def test_a_table_that_others_alter_between_two_batches_goes_on(
    spark: SparkSession, tmp_path: Path, used: Counter[bool]
) -> None:
    feed, mirror = Feed(9, {"connector": "mysql"}), Mirror(spark, tmp_path / "t", "delta", by_decoders=True)
    for number in range(5):
        if number == 3:
            spark.sql(f"ALTER TABLE delta.`{tmp_path}/t/dbo/t` ADD COLUMN theirs string")
        mirror.take(feed.changes(60))
    assert [row[0] for row in mirror.rows()] == sorted(feed.rows, key=repr)
    assert used[False] == 1


def test_a_key_in_two_partitions_stops_as_ever(spark: SparkSession, tmp_path: Path, used: Counter[bool]) -> None:
    feed, mirror = Feed(10, {"connector": "mysql"}), Mirror(spark, tmp_path / "t", "delta", by_decoders=True)
    for _ in range(2):
        mirror.take(feed.changes(60))
    messages = feed.changes(60)
    *rest, partition, offset, time = messages[0]
    with pytest.raises(SchemaError, match="come from several Kafka partitions"):
        mirror.take([*messages, (*rest, (partition + 1) % PARTITIONS, offset + 1000, time)])
    assert used == {True: 1}


def test_messages_of_a_topic_that_was_made_again_are_of_another_sequence(
    spark: SparkSession, tmp_path: Path, used: Counter[bool]
) -> None:
    feed, mirror = Feed(11, {"connector": "mysql"}), Mirror(spark, tmp_path / "t", "delta", by_decoders=True)
    for _ in range(2):
        mirror.take(feed.changes(60))
    mirror.topic_ids["s.t"] = "two"
    with pytest.raises(SchemaError, match="a topic that was created again"):
        mirror.take(feed.changes(60))
    assert used == {True: 1}
