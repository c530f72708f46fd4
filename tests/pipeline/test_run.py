"""The run loop: batches to several sinks, failures, the end at the head, and stopping between batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from headrace_standins import LinesFormat, commit_changes, written

from headrace.changes import TableId
from headrace.errors import CaptureError, OptionError, SinkError
from headrace.formats.encoding import OutOfRange
from headrace.pipeline import Pipeline, load_pipeline
from headrace.pipeline.batch_summary import count_out_of_range
from headrace.pipeline.checkpoint import Checkpoint
from headrace.sinks.base import BatchId
from headrace.testing.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pipeline(folder: Path, sinks: list[dict[str, object]] | None = None, **source: object) -> Pipeline:
    text = {
        "source": {"type": "folder", "hostname": str(folder / "commits"), **source},
        "format": {"type": "lines"},
        "sinks": sinks or [{"type": "list_messages", "path": "./m"}, {"type": "list_changes", "path": "./c"}],
        "pipeline": {"name": "test", "checkpoint": "./checkpoint", "trigger": "50ms"},
    }
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps(text))
    return load_pipeline(file)


def three_commits(folder: Path) -> None:
    for n in (1, 2, 3):
        commit_changes(folder, n, [("dbo.a", "c", str(n)), ("dbo.a", "u", str(n))])


def texts(folder: Path) -> list[str]:
    return [text for _, _, batch in written(folder) for text in batch]


def test_once_takes_everything_and_ends(spark: SparkSession, tmp_path: Path, commits: Path) -> None:
    three_commits(commits)
    running = pipeline(tmp_path).start(spark, once=True)
    assert running.wait(PATIENCE)
    assert running.error is None
    assert texts(tmp_path / "c") == ["c 1", "u 1", "c 2", "u 2", "c 3", "u 3"]
    assert texts(tmp_path / "m") == [f"t.a {t}" for t in texts(tmp_path / "c")]
    progress = running.progress()
    assert (progress.rows, progress.lag_seconds, progress.position) == (6, 0.0, "0003")
    assert progress.tables[0].rows == {"c": 3, "u": 3}
    # Nothing is left half done, and the owner is Spark's own id.
    checkpoint = tmp_path / "checkpoint"
    offsets = {f.name for f in (checkpoint / "offsets").glob("[0-9]*")}
    assert offsets == {f.name for f in (checkpoint / "commits").glob("[0-9]*")}
    owner = f"test/{json.loads((checkpoint / 'metadata').read_text())['id']}"
    assert {o for _, o, _ in written(tmp_path / "c")} == {owner}

    commit_changes(commits, 4, [("dbo.a", "d", "1")])
    again = pipeline(tmp_path).start(spark, once=True)
    assert again.wait(PATIENCE)
    assert texts(tmp_path / "c")[6:] == ["d 1"]
    nothing_new = pipeline(tmp_path).start(spark, once=True)
    assert nothing_new.wait(PATIENCE)
    assert len(texts(tmp_path / "c")) == 7


def test_a_failing_sink_stops_the_batch_and_the_restart_repeats_it(
    spark: SparkSession, tmp_path: Path, commits: Path
) -> None:
    three_commits(commits)
    sinks: list[dict[str, object]] = [
        {"type": "list_messages", "path": "./m"},
        {"type": "list_changes", "path": "./c", "fails": "1"},
    ]
    running = pipeline(tmp_path, sinks).start(spark, once=True)
    with pytest.raises(SinkError, match=r"^The target belongs to another pipeline. Take it over.$"):
        running.wait(PATIENCE)
    assert isinstance(running.error, SinkError)
    assert not running.active
    first = written(tmp_path / "m")
    assert (len(first), written(tmp_path / "c")) == (1, [])

    assert pipeline(tmp_path).start(spark, once=True).wait(PATIENCE)
    assert written(tmp_path / "m")[1] == first[0]
    assert texts(tmp_path / "c") == ["c 1", "u 1", "c 2", "u 2", "c 3", "u 3"]


def test_an_error_of_the_source_comes_back_as_itself(spark: SparkSession, tmp_path: Path, commits: Path) -> None:
    three_commits(commits)
    loaded = pipeline(tmp_path)
    loaded.check()
    (commits / "broken").touch()
    running = loaded.start(spark)
    with pytest.raises(CaptureError) as caught:
        running.wait(PATIENCE)
    assert str(caught.value) == "Table 'dbo.a' is no longer captured. Enable it again."


def test_a_format_used_twice_encodes_once(spark: SparkSession, tmp_path: Path, commits: Path) -> None:
    commit_changes(commits, 1, [("dbo.a", "c", "1")])
    sinks: list[dict[str, object]] = [
        {"type": "list_messages", "path": "./m1"},
        {"type": "list_messages", "path": "./m2"},
        {"type": "list_messages", "path": "./m3", "format": {"type": "lines", "prefix": "other"}},
    ]
    LinesFormat.encoded.clear()
    assert pipeline(tmp_path, sinks).start(spark, once=True).wait(PATIENCE)
    assert LinesFormat.encoded == ["t", "other"]
    assert texts(tmp_path / "m1") == texts(tmp_path / "m2") == ["t.a c 1"]
    assert texts(tmp_path / "m3") == ["other.a c 1"]


def test_stop_finishes_the_batch_that_is_being_written(
    spark: SparkSession, tmp_path: Path, commits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    three_commits(commits)
    gate = tmp_path / "gate"
    monkeypatch.setenv("HEADRACE_FAULT_DIR", str(tmp_path))
    monkeypatch.setenv("HEADRACE_FAULTPOINTS", f"pipeline.sink.1.written=hold:{gate}")
    running = pipeline(tmp_path).start(spark)
    reached = gate.with_name("gate.reached")
    while not reached.exists():
        assert not running.wait(0.02)
    assert (len(texts(tmp_path / "m")), texts(tmp_path / "c")) == (2, [])
    stopped: list[bool] = []
    stopper = threading.Thread(target=lambda: stopped.append(running.stop()))
    stopper.start()
    while not running._writer._closed:
        running.wait(0.01)
    gate.touch()
    stopper.join(PATIENCE)
    assert stopped == [True]
    assert running.error is None
    assert running.wait(PATIENCE)
    # The batch is whole in both sinks and committed; the next was not begun.
    assert texts(tmp_path / "m") == ["t.a c 1", "t.a u 1"]
    assert texts(tmp_path / "c") == ["c 1", "u 1"]
    assert Checkpoint(spark, str(tmp_path / "checkpoint")).committed() == 0

    monkeypatch.delenv("HEADRACE_FAULTPOINTS")
    assert pipeline(tmp_path).start(spark, once=True).wait(PATIENCE)
    assert texts(tmp_path / "c") == ["c 1", "u 1", "c 2", "u 2", "c 3", "u 3"]
    assert len(texts(tmp_path / "m")) == 6


def test_a_sink_that_hangs_does_not_hold_the_stop(
    spark: SparkSession, tmp_path: Path, commits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_commits(commits)
    gate = tmp_path / "gate"
    monkeypatch.setenv("HEADRACE_FAULT_DIR", str(tmp_path))
    monkeypatch.setenv("HEADRACE_FAULTPOINTS", f"pipeline.sink.1.written=hold:{gate}")
    monkeypatch.setattr("headrace.pipeline.run._LAST_WORDS_SECONDS", 0.1)
    running = pipeline(tmp_path).start(spark)
    while not gate.with_name("gate.reached").exists():
        assert not running.wait(0.02)
    assert running.stop(timeout=0.1) is False
    gate.touch()
    running._query.awaitTermination(PATIENCE)
    monkeypatch.delenv("HEADRACE_FAULTPOINTS")
    while running.active:
        running._query.awaitTermination(1)
    running._release()
    assert pipeline(tmp_path).start(spark, once=True).wait(PATIENCE)
    assert sorted(set(texts(tmp_path / "c"))) == ["c 1", "c 2", "c 3", "u 1", "u 2", "u 3"]


def test_two_runs_on_one_checkpoint_are_refused(spark: SparkSession, tmp_path: Path, commits: Path) -> None:
    import os

    three_commits(commits)
    running = pipeline(tmp_path).start(spark)
    try:
        with pytest.raises(OptionError) as caught:
            pipeline(tmp_path).check()
        assert str(caught.value) == (
            f"The checkpoint '{tmp_path / 'checkpoint'}' is in use by pipeline 'test' (process {os.getpid()}). "
            "Stop that one first, or give this pipeline a checkpoint of its own."
        )
    finally:
        running.stop()
    pipeline(tmp_path).check()


def test_check_writes_nothing(tmp_path: Path, commits: Path) -> None:
    assert [t.id.path for t in pipeline(tmp_path).check()] == ["dbo.a"]
    assert sorted(f.name for f in tmp_path.iterdir()) == ["commits", "pipeline.yaml"]
    with pytest.raises(SinkError):
        pipeline(
            tmp_path, [{"type": "list_changes", "path": "./unwritable"}, {"type": "list_messages", "path": "m"}]
        ).check()


def test_messages_and_a_mirror_from_one_batch(spark: SparkSession, tmp_path: Path, commits: Path) -> None:
    import deltalake
    import pyarrow as pa

    for n in (1, 2, 3):
        commit_changes(commits, n, [("dbo.a", "c", str(n)), ("dbo.a", "u", str(n))])
    commit_changes(commits, 4, [("dbo.a", "d", "2")])
    text = {
        "source": {"type": "folder", "hostname": str(commits), "schema_rows": True},
        "format": {"type": "debezium_json", "topic.prefix": "shop"},
        "sinks": [{"type": "files", "path": "messages"}, {"type": "delta", "path": "lake"}],
        "pipeline": {"name": "both", "checkpoint": "state"},
    }
    (tmp_path / "both.yaml").write_text(json.dumps(text))
    running = load_pipeline(tmp_path / "both.yaml").start(spark, once=True)
    assert running.wait(PATIENCE)
    mirror = pa.table(
        deltalake.QueryBuilder()
        .register("a", deltalake.DeltaTable(str(tmp_path / "lake/dbo/a")))
        .execute("select * from a")
        .read_all()
    )
    assert sorted(mirror["id"].to_pylist()) == ["1", "3"]
    lines = [
        json.loads(line)
        for file in sorted((tmp_path / "messages").rglob("part-*.txt"))
        for line in file.read_text().splitlines()
    ]
    # One delete more as a tombstone.
    assert len(lines) == 8
    assert {line["topic"] for line in lines} == {"shop.db.dbo.a"}


def test_values_that_a_format_does_not_hold_are_counted_and_the_first_of_each_batch_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Null or the nearest value stands in their place."""
    from types import SimpleNamespace
    from typing import Any

    t, u = TableId("shop", "dbo", "t"), TableId("shop", "dbo", "u")
    lost = [
        OutOfRange(),
        OutOfRange({(t, "valid_to"): 1}, 'table dbo.t, column valid_to, key ["1"]'),
        OutOfRange({(u, "at"): 1_000, (t, "valid_to"): 2}, 'table dbo.t, column valid_to, key ["1"]'),
    ]
    sinks: list[tuple[Any, OutOfRange]] = [(SimpleNamespace(label=f"sink {n} (kafka)"), lost[n]) for n in (0, 1, 2)]
    found = {"dbo.t": {"valid_to": 3}, "dbo.u": {"at": 1_000}}
    assert count_out_of_range(sinks, BatchId("p", "c", 7), several=False) == found
    assert list(count_out_of_range(sinks, BatchId("p", "c", 7), several=True)) == ["shop.dbo.t", "shop.dbo.u"]
    beginning, end = "does not hold some values ", 'The first is in table dbo.t, column valid_to, key ["1"].'
    assert [message.split(" Null")[0] for message in caplog.messages[:2]] == [
        f"Batch 7: the format of sink 1 (kafka) {beginning}(1 in shop.dbo.t.valid_to).",
        f"Batch 7: the format of sink 2 (kafka) {beginning}(2 in shop.dbo.t.valid_to; 1,000 in shop.dbo.u.at).",
    ]
    assert all(message.endswith(end) for message in caplog.messages)
