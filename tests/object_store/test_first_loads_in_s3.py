"""Rule: workers write the rows of a first snapshot into S3 as into a local folder, and no login of theirs is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.object_store.slow_store import SECRET

from headrace import faultpoints
from headrace.changes.table_files import TABLE_FILES
from headrace.pipeline import load_pipeline
from headrace.testing.waiting import PATIENCE
from headrace_emulators.postgresql.server import PostgresDatabase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

OURS = ".zstd.parquet"
SHOWN_BY = SECRET.rpartition("+")[2]
"""A part of it that is the same however it is escaped."""


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_is_read_into_files_and_kept_by_the_index(
    spark: SparkSession,
    bucket: str,
    tmp_path: Path,
    postgres_database: PostgresDatabase,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    postgres_database.execute(
        "create table t (id int primary key, a text, n numeric(9,2), b bytea);"
        "insert into t select n, 'row ' || n, n / 7.0, decode('00ff', 'hex') from generate_series(1, 500) n"
    )
    reached: list[str] = []
    monkeypatch.setattr(faultpoints, "reach", reached.append)
    run(spark, bucket, tmp_path, postgres_database, kind)
    read = spark.read.format(kind).load(f"s3a://{bucket}/lake/public/t")
    written = {Path(row[0]).name for row in read.selectExpr("input_file_name()").distinct().collect()}
    assert written and all(name.endswith(OURS) for name in written)
    postgres_database.execute("update t set a = 'new' where id % 50 = 0; delete from t where id = 7")
    reached.clear()
    run(spark, bucket, tmp_path, postgres_database, kind)
    assert {"delta": "sink.delta.files_written", "iceberg": "sink.iceberg.before_publish"}[kind] in reached
    shown = "concat_ws('|', id, a, n, hex(b))"
    held = spark.read.format(kind).load(f"s3a://{bucket}/lake/public/t").selectExpr(shown).collect()
    asked = "concat_ws('|', id, a, n, upper(encode(b, 'hex')))"
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and SHOWN_BY.encode() in file.read_bytes()]
    expected = [row[0] for row in postgres_database.execute(f"select {asked} from t")]
    assert sorted(row[0] for row in held) == sorted(expected)


def run(spark: SparkSession, bucket: str, folder: Path, database: PostgresDatabase, kind: str) -> None:
    document: dict[str, Any] = {
        "source": {
            "type": "postgresql",
            **database.options,
            "slot": f"s3_{database.name}",
            "publication_autocreate": "filtered",
            "tables": ["public.*"],
        },
        "sink": {"type": kind, {"delta": "path", "iceberg": "warehouse"}[kind]: f"s3a://{bucket}/lake"},
        "pipeline": {"name": "s3", "checkpoint": "./checkpoint", "trigger": "50ms"},
    }
    file = folder / "s3.yaml"
    file.write_text(json.dumps(document))
    assert load_pipeline(file).start(spark, once=True).wait(PATIENCE)


def test_no_login_is_in_the_log_of_events(spark: SparkSession, event_log: Path) -> None:
    spark.range(1).collect()
    text = "".join(file.read_text(errors="replace") for file in event_log.rglob("*") if file.is_file())
    # What the jobs of the test before were told is in it.
    assert TABLE_FILES in text
    assert SHOWN_BY not in text
