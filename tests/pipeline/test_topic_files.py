"""Rule: whether Spark or the tasks that decode messages write the rows of a topic, the table is the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.topic_feed import PARTITIONS, Feed, Mirror

from headrace.errors import SchemaError
from headrace.sinks.lake import decoded_files
from headrace.sinks.lake.index_way import IndexWay, Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
