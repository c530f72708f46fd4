"""`headrace verify`: the sinks' tables against what the source gives when it is read anew."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from headrace_standins import commit_changes
from typer.testing import CliRunner

from headrace.cli.app import app
from headrace.errors import OptionError, SchemaError
from headrace.pipeline import load_pipeline
from headrace.sinks.column_rules import ColumnRules
from headrace.sinks.lake.iceberg.table import IcebergTable
from headrace.testing.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pipeline_file(folder: Path, sink: dict[str, Any], **more: Any) -> Path:
    file = folder / "pipeline.yaml"
    text = {
        "source": {"type": "folder", "hostname": str(folder / "commits"), "schema_rows": True, "commits_per_batch": 9},
        "sink": sink,
        "pipeline": {"name": "test", "checkpoint": "./checkpoint", "trigger": "50ms"},
        **more,
    }
    file.write_text(json.dumps(text))
    return file


def test_equal_tables_and_then_the_rows_that_differ(spark: SparkSession, tmp_path: Path, commits: Path) -> None:
    for number in range(1, 4):
        commit_changes(commits, number, [("dbo.a", "c", f"{number}{n}") for n in "ab"])
    commit_changes(commits, 4, [("dbo.a", "d", "1a")])
    file = pipeline_file(tmp_path, {"type": "delta", "path": "./lake"})
    assert load_pipeline(file).start(spark, once=True).wait(PATIENCE)
    before = sorted(path.name for path in (tmp_path / "checkpoint" / "commits").iterdir())
    told = CliRunner().invoke(app, ["verify", str(file)])
    assert (told.exit_code, told.stdout) == (
        0,
        "dbo.a in sink 1 (delta): 5 rows in the source, 5 in the target; equal\n",
    )
    spark.sql(f"update delta.`{tmp_path}/lake/dbo/a` set id = 'other' where id = '2b'")
    told = CliRunner().invoke(app, ["verify", str(file)])
    assert told.exit_code == 1
    assert told.stdout.splitlines() == [
        "dbo.a in sink 1 (delta): 5 rows in the source, 5 in the target; 2 differ",
        '  missing {"id":"2b"}',
        '  extra {"id":"other"}',
    ]
    assert sorted(path.name for path in (tmp_path / "checkpoint" / "commits").iterdir()) == before


@pytest.mark.system
def test_a_change_log_is_compared_by_the_rows_that_its_changes_leave(
    spark: SparkSession, tmp_path: Path, commits: Path
) -> None:
    for number in range(1, 4):
        commit_changes(commits, number, [("dbo.a", "c", f"{number}{n}") for n in "ab"])
    commit_changes(commits, 4, [("dbo.a", "d", "1a")])
    file = pipeline_file(tmp_path, {"type": "delta", "path": "./log", "stored_as_scd_type": "append"})
    assert load_pipeline(file).start(spark, once=True).wait(PATIENCE)
    told = CliRunner().invoke(app, ["verify", str(file)])
    assert (told.exit_code, told.stdout) == (
        0,
        "dbo.a in sink 1 (delta): 5 rows in the source, 5 in the target; equal\n",
    )
    spark.sql(f"delete from delta.`{tmp_path}/log/dbo/a` where _headrace_op = 'd' or id = '2b'")
    told = CliRunner().invoke(app, ["verify", str(file)])
    assert told.exit_code == 1
    assert told.stdout.splitlines()[1:] == ['  extra {"id":"1a"}', '  missing {"id":"2b"}']


@pytest.mark.system
def test_a_table_that_can_not_be_compared_keeps_no_other_from_it(
    spark: SparkSession, tmp_path: Path, commits: Path
) -> None:
    commit_changes(commits, 1, [(f"dbo.{name}", "c", "1") for name in "abcd"])
    file = pipeline_file(tmp_path, {"type": "delta", "path": "./lake"})
    assert load_pipeline(file).start(spark, once=True).wait(PATIENCE)
    # One lacks its files, one is gone, and one has another row.
    for file_of_rows in (tmp_path / "lake" / "dbo" / "a").glob("*.parquet"):
        file_of_rows.unlink()
    shutil.rmtree(tmp_path / "lake" / "dbo" / "b")
    spark.sql(f"update delta.`{tmp_path}/lake/dbo/c` set id = 'other'")
    told = CliRunner().invoke(app, ["verify", str(file)])
    assert (told.exit_code, told.stdout.splitlines()) == (
        2,
        [
            "dbo.c in sink 1 (delta): 1 row in the source, 1 in the target; 2 differ",
            '  missing {"id":"1"}',
            '  extra {"id":"other"}',
            "dbo.d in sink 1 (delta): 1 row in the source, 1 in the target; equal",
        ],
    )
    first, second = told.stderr.splitlines()
    assert first.startswith("Table db.dbo.a can't be compared with sink 1 (delta) (")
    assert second.startswith("Table db.dbo.b is not in sink 1 (delta).")


# A batch that goes by an index of keys is Iceberg's own row delta, which neither fault meets.
MERGED_ICEBERG = {"type": "iceberg", "warehouse": "./warehouse", "catalog": "lake", "index_memory": 0}


@pytest.mark.system
def test_without_the_rules_for_names_verify_finds_what_a_merge_into_iceberg_then_does(
    spark: SparkSession, tmp_path: Path, commits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_changes(commits, 1, [("dbo.a", "c", "1"), ("dbo.a", "c", "2")])
    renamed = {"transforms": [{"computed_columns": {"__row_operation": "cast(id as int) + 50"}}]}
    file = pipeline_file(tmp_path, MERGED_ICEBERG, **renamed)
    with pytest.raises(SchemaError, match="has a column '__row_operation'"):
        load_pipeline(file).start(spark, once=True).wait(PATIENCE)
    monkeypatch.setattr(IcebergTable, "rules", ColumnRules("Iceberg"))
    assert load_pipeline(file).start(spark, once=True).wait(PATIENCE)
    told = CliRunner().invoke(app, ["verify", str(file)])
    assert told.exit_code == 1
    assert "2 rows in the source, 2 in the target; 2 differ" in told.stdout
    assert '  different {"id":"1"} (__row_operation)' in told.stdout


@pytest.mark.system
def test_without_the_refusal_of_staged_writes_verify_finds_that_their_rows_are_in_no_version(
    spark: SparkSession, tmp_path: Path, commits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_changes(commits, 1, [("dbo.a", "c", "1")])
    staging = {"catalog": "staged", "catalog.table-default.write.wap.enabled": "true"}
    file = pipeline_file(tmp_path, {**MERGED_ICEBERG, **staging})
    monkeypatch.setattr(IcebergTable, "_refuse_staged", lambda _: None)
    spark.conf.set("spark.wap.id", "audit")
    try:
        assert load_pipeline(file).start(spark, once=True).wait(PATIENCE)
    finally:
        spark.conf.unset("spark.wap.id")
    told = CliRunner().invoke(app, ["verify", str(file)])
    assert (told.exit_code, "1 row in the source, 0 in the target; 1 differ" in told.stdout) == (1, True)


def test_a_pipeline_without_tables_to_compare_is_refused(spark: SparkSession, tmp_path: Path, commits: Path) -> None:
    loaded = load_pipeline(pipeline_file(tmp_path, {"type": "list_changes", "path": "./c"}))
    with pytest.raises(OptionError, match="no sink whose tables can be compared"):
        list(loaded.verify(spark))
