"""Rule: a pipeline whose sinks take the same messages, and nothing else, has them made where its source is read.

The messages are the same either way, also where a restart changes the way.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.pipeline import batch_summary, fusing, load_pipeline
from headrace.pipeline.fusing import Fusing
from headrace.pipeline.model import read_model
from headrace_emulators.sqlserver import EmulatedServer
from headrace_emulators.sqlserver.shop import Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = {"type": "sqlserver", "driver": "emulator", "hostname": "./server", "database": "shop"}
CANAL = {"type": "canal_json", "flavour": "dts"}
FILES = {"type": "files", "path": "./a"}


def written(folder: Path, **sections: Any) -> Path:
    text = {
        "source": SOURCE,
        "format": CANAL,
        "sinks": [FILES],
        "pipeline": {"name": "test", "checkpoint": "./checkpoint", "trigger": "50ms"},
        **sections,
    }
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps({name: section for name, section in text.items() if section is not None}))
    return file


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({}, ""),
        ({"sinks": [FILES, {"type": "kafka", "bootstrap_servers": "k:1"}]}, ""),
        ({"sinks": [FILES, {"type": "delta", "path": "./b"}]}, "sink 2 (delta) takes change rows"),
        (
            {"sinks": [FILES, {"type": "files", "path": "./b", "format": {"type": "maxwell_json"}}]},
            "sink 1 (files) and sink 2 (files) take different messages",
        ),
        (
            {"sinks": [{**FILES, "routes": [{"tables": "dbo.a", "to": "b"}]}]},
            "sink 1 (files) has routes or transforms",
        ),
        (
            {"transforms": [{"tables": "dbo.a", "exclude_columns": ["b"]}]},
            "sink 1 (files) has routes or transforms",
        ),
        (
            {"sinks": [{"type": "kafka", "bootstrap_servers": "k:1", "on_oversized": "drop_columns"}]},
            "sink 1 (kafka) leaves out large columns",
        ),
        ({"format": {"type": "shareplex_json"}}, "format 'shareplex_json' is prepared on the driver for each batch"),
        ({"format": {**CANAL, "schema": "id int"}}, "format 'canal_json' is given the option 'schema'"),
        (
            {"source": {"type": "oracle", "driver": "emulator", "hostname": "./server", "database": "shop"}},
            "source 'oracle' learns schemas while it reads",
        ),
        (
            {
                "source": {
                    "type": "kafka",
                    "bootstrap_servers": "k:1",
                    "topics": ["a"],
                    "format": {"type": "canal_json"},
                }
            },
            "the source is Kafka",
        ),
    ],
)
def test_what_stands_between_is_named(tmp_path: Path, sections: dict[str, Any], reason: str) -> None:
    assert Fusing.of(read_model(written(tmp_path, **sections))).reason == reason


def test_options_reach_the_source_as_they_were_given(tmp_path: Path) -> None:
    found = Fusing.of(read_model(written(tmp_path, format={**CANAL, "Topic": "${table}"})))
    assert found.options == {
        "format": "canal_json",
        "format.flavour": "dts",
        "format.topic": "${table}",
        "format.counts": "true",
        "format.lines": "true",
    }


KAFKA = {"type": "kafka", "bootstrap_servers": "k:1"}


@pytest.mark.parametrize(
    ("sinks", "text"),
    [
        ([FILES], ""),
        ([KAFKA], ", and sent from there"),
        ([FILES, KAFKA], ", and sent by Spark, because there are several sinks"),
        (
            [{**KAFKA, "kafka.interceptor.classes": "a.B"}],
            ", and sent by Spark, because librdkafka does not know 'kafka.interceptor.classes'",
        ),
        (
            [{**KAFKA, "on_oversized": "dead_letter", "oversized_path": "./o"}],
            ", and sent by Spark, because the sink's option 'on_oversized' is 'dead_letter'",
        ),
    ],
)
def test_who_sends_is_said(tmp_path: Path, sinks: list[dict[str, Any]], text: str) -> None:
    found = Fusing.of(read_model(written(tmp_path, sinks=sinks)))
    assert (found.text, found.sends) == (f"where the source is read{text}", "from there" in text)
    assert "k:1" not in repr(found)


def run(spark: SparkSession, file: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run to the head in one of the ways; what was counted, by table."""
    with monkeypatch.context() as patched:
        if way == "shuffled":
            patched.setattr(batch_summary, "_ONE_TASK", (200_000, 1))
        if way == "apart":
            patched.setattr(fusing, "_reason", lambda model: "the test says so")
        running = load_pipeline(file).start(spark, once=True)
        assert running.wait(120)
    progress = running.progress()
    return {"position": progress.position} | {table.table: table.rows for table in progress.tables}


def lines(folder: Path) -> list[str]:
    return [line for file in sorted(folder.glob("batch=*/part-*.txt")) for line in file.read_text("utf-8").splitlines()]


@pytest.mark.system
def test_a_restart_may_change_the_way(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop.create(EmulatedServer(tmp_path / "server"), 3, customers=4, products=4)
    tables = ["dbo.customers", "dbo.orders", "dbo.products"]
    file = written(tmp_path, source={**SOURCE, "hostname": str(tmp_path / "server"), "tables": tables})
    assert run(spark, file, "fused", monkeypatch)["dbo.customers"]["r"] >= 4
    for first, second in (("fused", "apart"), ("apart", "fused"), ("fused", "shuffled")):
        shop.replay(transactions=20)
        shop.database.capture()
        counted = run(spark, file, first, monkeypatch)
        given = lines(tmp_path / "a")
        # The last batch comes again when nobody knows that it was finished.
        commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        commits[-1].unlink()
        commits[-1].with_name(f".{commits[-1].name}.crc").unlink(missing_ok=True)
        assert run(spark, file, second, monkeypatch) == counted
        assert lines(tmp_path / "a") == given
    assert len(given) > 100
