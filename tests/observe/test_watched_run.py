"""Rule: a run says within a heartbeat that its source has stopped to capture, and its lag grows from then on."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.observe.checkpoint import HadoopFolder
from headrace.observe.completeness import completeness, offsets_of
from headrace.observe.progress import PipelineProgress
from headrace.pipeline.run_source import HEALTH_SECONDS
from headrace.sources.health import CaptureState
from headrace.testing.waiting import PATIENCE, until
from headrace_emulators.engine.ports import free_ports
from headrace_emulators.sqlserver import EmulatedServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEARTBEAT_SECONDS = 5.0


def progress_when(ask: Callable[[], PipelineProgress], wanted: Callable[[PipelineProgress], bool]) -> PipelineProgress:
    """The first progress that is as wanted."""
    told: list[PipelineProgress] = []

    def is_wanted() -> bool:
        told[:] = [ask()]
        return wanted(told[0])

    until(is_wanted, "the wanted progress")
    return told[0]


def numbers_of(port: int, wanted: str) -> str:
    """A scrape that holds a text, but for the label `pipeline`."""
    told = [""]

    def has_it() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
                told[0] = str(answer.read().decode())
        except urllib.error.HTTPError as error:
            # Before the first look.
            assert error.code == 503
        return wanted in told[0].replace('{pipeline="watched"}', "")

    until(has_it, f"a scrape with {wanted}")
    return told[0]


@pytest.mark.system
def test_a_stopped_agent_is_seen_within_a_heartbeat(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = EmulatedServer(tmp_path / "server")
    file = tmp_path / "pipeline.yaml"
    source = {"type": "sqlserver", "driver": "emulator", "hostname": str(tmp_path / "server"), "database": "shop"}
    pipeline = {"name": "watched", "checkpoint": "state", "trigger": "100ms"}
    observe = {"prometheus": str(free_ports(1)[0]), "openlineage": "tests"}
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(tmp_path / "lineage"))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
    text = {"source": source, "sink": {"type": "memory"}, "pipeline": pipeline, "observe": observe}
    file.write_text(json.dumps(text))
    with server.create_database("shop") as database:
        database.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
        database.execute("EXEC sys.sp_cdc_enable_table @source_schema='dbo', @source_name='t', @role_name=NULL")
        database.execute("INSERT INTO dbo.t VALUES (1)")
        database.capture()
        with database.capture_job():
            running = headrace.load_pipeline(file).start(spark)
            try:
                well = progress_when(running.progress, lambda p: p.lag_seconds == 0)
                assert well.health is not None
                scraped = numbers_of(int(observe["prometheus"]), "headrace_lag_seconds 0.0")
                assert 'headrace_rows_total{op="r",pipeline="watched",table="dbo.t"} 1.0' in scraped
                # A commit without changes may be captured at any moment; the next look is past it.
                numbers_of(int(observe["prometheus"]), "headrace_behind_commits 0.0")
                assert well.health.state is CaptureState.CAPTURING
                server.set_agent(running=False)
                database.execute("INSERT INTO dbo.t VALUES (2)")
                looks = set()

                def is_seen(told: PipelineProgress) -> bool:
                    assert told.health is not None
                    looks.add(told.health.checked)
                    return told.health.state is CaptureState.NOT_CAPTURING

                told = progress_when(running.progress, is_seen)
                # One look from before, and one that had begun: the next one says it, however slow the machine is.
                assert len(looks) <= 3
                assert HEALTH_SECONDS <= HEARTBEAT_SECONDS / 2
                assert told.lag_seconds
                # Level with all that was captured, and still later and later.
                progress_when(running.progress, lambda p: (p.lag_seconds or 0) > (told.lag_seconds or 0))
                server.set_agent(running=True)
                again = progress_when(running.progress, lambda p: p.rows == 2 and p.lag_seconds == 0)
            finally:
                running.stop()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{observe['prometheus']}/metrics", timeout=PATIENCE)
    lineage = [json.loads(line) for line in (tmp_path / "lineage").read_text().splitlines()]
    assert [lineage[at]["eventType"] for at in (0, -1)] == ["START", "COMPLETE"]
    assert [one["name"] for one in lineage[-1]["inputs"]] == ["shop.dbo.t"]
    assert again.tables[0].state == "streaming"
    assert again.recent[-1].delay is not None
    assert {"plan", "read"} <= again.recent[0].stages.keys()
    found = headrace.complete_until(tmp_path / "state")
    assert found.overall == found.of("dbo.t")
    assert again.complete_until is not None
    assert found.covers(again.complete_until)
    # The same checkpoint through the file systems of the session, as on an object store.
    folder = HadoopFolder(spark, (tmp_path / "state").as_uri())
    assert found.batch == max(int(name) for name in folder.names("commits") if name.isdigit())
    text = folder.text(f"offsets/{found.batch}")
    assert text is not None
    offsets = offsets_of(text.split("\n")[2])
    assert offsets is not None
    assert completeness([offsets], found.batch) == found
    assert (folder.exists(), folder.names("none"), folder.text("none")) == (True, [], None)
