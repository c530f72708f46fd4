"""Rule: a sink of another package can do all that those of Headrace can, because the pipeline asks its contract."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pytest
from headrace_standins import KeySet, commit_changes

from headrace import registry
from headrace.observe.messages import MessageCounts
from headrace.observe.progress import ProgressBoard
from headrace.pipeline import load_pipeline
from headrace.pipeline.batch import BatchWriter
from headrace.pipeline.batch_inputs import Delivery, RowInput
from headrace.pipeline.fusing import Fusing
from headrace.pipeline.model import read_model
from headrace.pipeline.target import Target
from headrace.settings import Settings
from headrace.sinks.base import BatchId, Sink
from headrace.testing.change_history import Batch, table
from headrace.testing.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Post(Sink):
    """Takes messages of at most 200 bytes."""

    name = "post"
    options = ()
    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "at-least-once"
    takes: ClassVar[Literal["messages", "changes"]] = "messages"
    takes_lines: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__(Settings())
        self.sent: list[Any] = []

    @property
    def largest_value(self) -> int | None:
        return 50

    def too_large(self, messages: DataFrame) -> list[str]:
        return [row["position"] for row in messages.where("length(value) > 200").select("position").collect()]

    def check(self) -> None:
        pass

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        self.sent += [json.loads(row["value"])["data"] for row in rows.orderBy("position").collect()]


class DeadLetterRows(Post):
    """Takes messages of any size."""

    @property
    def largest_value(self) -> int | None:
        return None


@pytest.mark.system
def test_its_tables_are_compared_with_the_source(spark: SparkSession, tmp_path: Path, commits: Path) -> None:
    for number in range(1, 3):
        commit_changes(commits, number, [("dbo.a", "c", f"{number}{n}") for n in "ab"])
    commit_changes(commits, 3, [("dbo.a", "d", "1a")])
    file = tmp_path / "pipeline.yaml"
    source = {"type": "folder", "hostname": str(commits), "schema_rows": True, "commits_per_batch": 9}
    run = {"name": "test", "checkpoint": "./checkpoint", "trigger": "50ms"}
    file.write_text(json.dumps({"source": source, "sink": {"type": "key_set", "path": "./keys"}, "pipeline": run}))
    pipeline = load_pipeline(file)
    assert pipeline.start(spark, once=True).wait(PATIENCE)
    (equal,) = pipeline.verify(spark)
    assert (equal.sink, equal.comparison.equal, equal.comparison.expected) == ("sink 1 (key_set)", True, 3)
    (tmp_path / "keys" / "keys.json").write_text('["1b", "2a", "other"]')
    (differs,) = pipeline.verify(spark)
    assert [(one.kind, one.key) for one in differs.comparison.differences] == [
        ("missing", '{"id":"2b"}'),
        ("extra", '{"id":"other"}'),
    ]


def test_changes_over_its_limit_come_without_their_large_values(spark: SparkSession) -> None:
    schema = table(key=("id",), id="int32", a="string")
    batch = Batch(schema)
    for number, text in enumerate(("short", "x" * 300)):
        batch.add("c", schema, number, {"id": str(number), "a": text})
    sink, kept = Post(), list[MessageCounts]()
    format = registry.find("format", "maxwell_json").of({})
    target = Target("post", sink, format, "maxwell", "sink 1 (post)")
    writer = BatchWriter(
        "p", RowInput(), Delivery([target], ProgressBoard(), keep=lambda _, counts: kept.append(counts))
    )
    writer.begin("c")
    writer(batch.rows(spark), 0)
    assert sink.sent == [{"id": 0, "a": "short"}, {"id": 1}]
    assert kept == [MessageCounts(shortened=1)]


def test_workers_of_the_source_make_its_messages_as_lines_where_it_takes_them(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    source = {"type": "sqlserver", "hostname": "db", "database": "sales", "user": "u", "driver": "emulator"}
    format = {"type": "debezium_json", "topic.prefix": "sales"}
    run = {"name": "test", "checkpoint": "./checkpoint"}
    sink = {"type": "files", "path": "./messages"}
    file.write_text(json.dumps({"source": source, "format": format, "sink": sink, "pipeline": run}))
    model = read_model(file)
    with_letters = replace(model, targets=(replace(model.targets[0], sink=DeadLetterRows()),))
    assert Fusing.of(with_letters).options["format.lines"] == "true"
    with_limit = replace(model, targets=(replace(model.targets[0], sink=Post()),))
    assert Fusing.of(with_limit).reason == "sink 1 (files) leaves out large columns"


def test_spark_gets_its_jars(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    sink = {"type": "key_set", "path": "./keys"}
    run = {"name": "test", "checkpoint": "./checkpoint"}
    file.write_text(json.dumps({"source": {"type": "folder", "hostname": "x"}, "sink": sink, "pipeline": run}))
    assert load_pipeline(file).jars == KeySet.jars
