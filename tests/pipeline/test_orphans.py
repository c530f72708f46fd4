"""Rule: of the files in a table's folder only those go that are ours, old, and named by no version of the table."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from tests.support.captured_shop import SqlServerDatabase, closing
from typer.testing import CliRunner

from headrace.cli.app import app
from headrace.errors import OptionError
from headrace.pipeline import load_pipeline
from headrace.pipeline.checkpoint import owned
from headrace.testing.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = 3600


def aged(file: Path, hours: float) -> Path:
    os.utime(file, (time.time() - hours * HOUR,) * 2)
    return file


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_only_old_files_of_ours_that_no_version_names_are_deleted(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    sink = {
        "delta": {"type": "delta", "path": "lake"},
        "iceberg": {"type": "iceberg", "warehouse": "lake", "catalog": "orphans"},
    }[kind]
    with closing(SqlServerDatabase(tmp_path / "server")) as database:
        database.create("t", "id int not null primary key, v varchar(20)", [(n, "first") for n in range(9)])
        file = tmp_path / "pipeline.yaml"
        source = {"type": "sqlserver", **database.options}
        pipeline = {"name": "shop", "checkpoint": "state"}
        file.write_text(json.dumps({"source": source, "sinks": [sink], "pipeline": pipeline}))

        def run() -> None:
            assert load_pipeline(file).start(spark, once=True).wait(PATIENCE)

        run()
        for number in range(3):
            database.update("t", "v = 'second'", f"id = {number}")
            database.capture()
            run()
        # Some files hold rows that the newest version no longer has.
        files = sorted((tmp_path / "lake").rglob("headrace-*.parquet"))
        assert len(files) >= 3
        folder = files[0].parent
        for one in files:
            aged(one, 100)
        orphan, nested = (
            folder / f"headrace-{uuid4()}.zstd.parquet",
            folder / "v=1" / f"headrace-{uuid4()}.zstd.parquet",
        )
        nested.parent.mkdir()
        young, foreign = folder / f"headrace-{uuid4()}.zstd.parquet", folder / f"part-00000-{uuid4()}.parquet"
        for copy in (orphan, nested, young, foreign):
            aged(Path(shutil.copy(files[0], copy)), 1 if copy == young else 30)
        before = sorted((tmp_path / "lake").rglob("*"))

        found = load_pipeline(file).orphans(spark)
        (table,) = found.parts
        assert {Path(one.path) for one in table.files} == {orphan, nested}
        assert table.name.endswith(" dbo.t")
        assert {one["path"] for one in found.to_json()["tables"][0]["files"]} == {str(orphan), str(nested)}
        assert load_pipeline(file).orphans(spark, hours=31).parts == ()
        with pytest.raises(OptionError, match="at work"):
            load_pipeline(file).orphans(spark, hours=23)

        arguments = ["repair", "orphans", str(file)]
        shown = CliRunner().invoke(app, [*arguments, "--dry-run"])
        assert shown.exit_code == 0, shown.output
        assert str(orphan) in shown.output and "2 files" in shown.output
        with owned(tmp_path / "state", "another"):
            refused = CliRunner().invoke(app, [*arguments, "--yes"])
        assert refused.exit_code == 2 and "is in use by pipeline" in " ".join(refused.output.split())
        assert sorted((tmp_path / "lake").rglob("*")) == before

        # What was shown and is a part of the table by now, or gone, stays as it is.
        nested.unlink()
        (done,) = found.do()
        assert done.endswith(f"dbo.t: 1 file, {table.files[0].size:,} bytes, deleted.")
        assert {*before} - {*(tmp_path / "lake").rglob("*")} == {orphan, nested}
        assert "None that is older than 24 hours." in CliRunner().invoke(app, [*arguments, "--yes"]).output
        run()


FILES = {"type": "files", "path": "out", "format": {"type": "debezium_json", "topic.prefix": "p"}}
TOPICS = {"type": "kafka", "bootstrap.servers": "127.0.0.1:1", "topics": ["t"], "format": {"type": "maxwell_json"}}


@pytest.mark.parametrize(
    ("source", "sink", "match"),
    [("sqlserver", FILES, "no sink that writes data files"), ("kafka", {"type": "delta", "path": "lake"}, "Kafka")],
)
def test_a_pipeline_whose_tables_are_not_known_or_have_no_files_says_so(
    tmp_path: Path, source: str, sink: dict[str, object], match: str
) -> None:
    with closing(SqlServerDatabase(tmp_path / "server")) as database:
        sources = {"sqlserver": {"type": "sqlserver", **database.options}, "kafka": TOPICS}
        pipeline = {"name": "p", "checkpoint": "state"}
        file = tmp_path / "pipeline.yaml"
        file.write_text(json.dumps({"source": sources[source], "sinks": [sink], "pipeline": pipeline}))
        with pytest.raises(OptionError, match=match):
            # Neither gets as far as to a session.
            load_pipeline(file).orphans(None)  # type: ignore[arg-type]
