"""Rule: what failed because Spark waited in vain for a Python worker is tried again, a bounded number of times."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from headrace_standins import commit_changes
from pyspark.errors import PySparkException

from headrace.errors import ConnectError, SinkError
from headrace.observe.progress import ProgressBoard
from headrace.pipeline import load_pipeline
from headrace.pipeline.batch import BatchWriter
from headrace.pipeline.batch_inputs import Delivery, RowInput
from headrace.pipeline.recover import ATTEMPTS, recover
from headrace.pipeline.run import RunningPipeline
from headrace.testing.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def starved() -> PySparkException:
    return PySparkException("Job aborted: org.apache.spark.SparkException: Python worker failed to connect back.")


def met_by_a_sink() -> SinkError:
    error = SinkError("The table can't be written.", remedy="Look at the log.")
    error.__cause__ = starved()
    return error


class Rows:
    """A batch whose readings fail, one after the other."""

    def __init__(self, failures: list[Exception]) -> None:
        self.failures = failures

    def persist(self, _: object) -> None:
        raise self.failures.pop(0)


@pytest.mark.parametrize(
    ("failures", "attempts"),
    [
        ([ValueError("a")], 1),
        ([starved(), ValueError("a")], 2),
        ([met_by_a_sink(), starved(), ValueError("a")], ATTEMPTS),
        ([starved() for _ in range(ATTEMPTS)], ATTEMPTS),
    ],
)
def test_a_batch_is_tried_again_as_often_as_workers_do_not_start(failures: list[Exception], attempts: int) -> None:
    last, rows = failures[-1], Rows([*failures, AssertionError("one too many")])
    writer = BatchWriter("orders", RowInput(), Delivery([], ProgressBoard()))
    writer.begin("checkpoint")
    with pytest.raises(Exception):  # noqa: B017 - what Spark gets has tests of its own.
        writer(rows, 0)  # type: ignore[arg-type]
    assert (writer.failure, len(failures) + 1 - len(rows.failures)) == (last, attempts)
    found = recover(writer.failure)
    assert isinstance(last, ValueError) or (isinstance(found, ConnectError) and "several times" in str(found))


def ended() -> Any:
    """A query whose planner did not start."""
    return SimpleNamespace(id="q", isActive=False, exception=starved, stop=lambda: None)


@pytest.mark.parametrize(("vain", "goes_on"), [(["load", "query"], True), (["query"] * ATTEMPTS, False)])
def test_a_run_whose_planner_does_not_start_begins_again(
    spark: SparkSession,
    tmp_path: Path,
    commits: Path,
    monkeypatch: pytest.MonkeyPatch,
    vain: list[str],
    goes_on: bool,
) -> None:
    commit_changes(commits, 1, [("dbo.a", "c", "1")])
    file = tmp_path / "pipeline.yaml"
    text = {
        "source": {"type": "folder", "hostname": str(commits), "schema_rows": True},
        "sink": {"type": "list_changes", "path": str(tmp_path / "changes")},
        "pipeline": {"name": "test", "checkpoint": "./checkpoint", "trigger": "50ms"},
    }
    file.write_text(json.dumps(text))
    start, left = RunningPipeline._start, list(vain)

    def once_it_can(self: RunningPipeline) -> Any:
        if not left:
            return start(self)
        if left.pop(0) == "load":
            raise starved()
        return ended()

    monkeypatch.setattr(RunningPipeline, "_start", once_it_can)
    running = load_pipeline(file).start(spark, once=True)
    if goes_on:
        assert running.wait(PATIENCE)
        assert list((tmp_path / "changes").iterdir())
    else:
        with pytest.raises(ConnectError, match="failed to connect back within ten seconds, several times"):
            running.wait(PATIENCE)
    assert not left
