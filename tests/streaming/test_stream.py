"""Rule: as a Spark stream, a restart goes on where the checkpoint says, and secrets are seen nowhere."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest

import headrace
from headrace_emulators.sqlserver import EmulatedServer

PASSWORD = "hunter2-secret"


@pytest.fixture
def database(tmp_path):
    server = EmulatedServer(tmp_path / "server")
    with server.create_database("shop") as made:
        made.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, note nvarchar(20))")
        made.execute("EXEC sys.sp_cdc_enable_table @source_schema = 'dbo', @source_name = 't', @role_name = NULL")
        made.execute("INSERT INTO dbo.t VALUES (1, N'one'), (2, NULL)")
        made.capture()
        server.add_login("cdc", PASSWORD)
        yield made


@pytest.fixture
def stream(spark, database):
    headrace.register(spark)
    options = {"driver": "emulator", "hostname": str(database.path.parent), "database": "shop", "user": "cdc"}
    return spark.readStream.format("sqlserver_cdc").options(**options, password=PASSWORD).load()


def run(stream, folder: Path):
    """One run of a query that takes everything there is; the rows that its batches had, in order of position."""
    rows = []

    def take(batch, number):
        rows.extend(row.asDict(recursive=True) for row in batch.orderBy("position").collect())

    query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(folder)).start()
    try:
        query.processAllAvailable()
        progress = json.dumps(query.lastProgress, default=str) + str(query.status)
    finally:
        query.stop()
    return [(r["op"], r["key_text"], r["after"]) for r in rows if r["op"] != "schema"], progress


@pytest.mark.system
def test_a_restart_goes_on_without_a_new_snapshot(stream, database, tmp_path):
    first, _ = run(stream, tmp_path / "checkpoint")
    assert first == [("r", '["1"]', {"id": "1", "note": "one"}), ("r", '["2"]', {"id": "2", "note": None})]
    database.execute("UPDATE dbo.t SET note = N'two' WHERE id = 2")
    database.capture()
    again, _ = run(stream, tmp_path / "checkpoint")
    assert again == [("u", '["2"]', {"id": "2", "note": "two"})]
    nothing, _ = run(stream, tmp_path / "checkpoint")
    assert nothing == []


def test_a_batch_whose_commit_was_lost_comes_again_with_the_same_rows(stream, database, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    run(stream, checkpoint)
    database.execute("INSERT INTO dbo.t VALUES (3, N'three')")
    database.capture()
    once, _ = run(stream, checkpoint)
    newest = max((f for f in (checkpoint / "commits").iterdir() if f.name.isdigit()), key=lambda f: int(f.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink()
    database.execute("INSERT INTO dbo.t VALUES (4, N'four')")
    database.capture()
    again, _ = run(stream, checkpoint)
    assert again[: len(once)] == once
    assert again[len(once) :] == [("c", '["4"]', {"id": "4", "note": "four"})]


def test_the_password_is_in_no_plan_progress_or_checkpoint(stream, tmp_path):
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        stream.explain(True)
    _, progress = run(stream, tmp_path / "checkpoint")
    assert PASSWORD not in shown.getvalue()
    assert PASSWORD not in progress
    files = [f for f in (tmp_path / "checkpoint").rglob("*") if f.is_file()]
    assert files
    assert all(PASSWORD.encode() not in f.read_bytes() for f in files)


def test_spark_finds_the_source_by_itself(spark, database):
    options = {"driver": "emulator", "hostname": str(database.path.parent), "database": "shop", "user": "cdc"}
    reader = spark.readStream.format("headrace").option("connector", "sqlserver").options(**options, password=PASSWORD)
    assert "key_text" in reader.load().columns
