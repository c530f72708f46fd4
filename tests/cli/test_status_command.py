"""What a user and his monitoring see of `headrace status`, without Spark."""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.observe.checkpoints import write_batch
from tests.support.status_shop import Shop
from typer.testing import CliRunner

from headrace.cli.app import app
from headrace.observe.flow import Flow
from headrace.observe.history import FILE, KeptFigures, Reading
from headrace.observe.page import figures
from headrace.observe.progress import PipelineProgress
from headrace.pipeline.checkpoint import LOCK, owned
from headrace.testing.waiting import PATIENCE


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.database.close()


def test_a_pipeline_that_was_never_started_says_so_and_makes_nothing(shop: Shop) -> None:
    code, text = shop.status()
    assert (code, text.splitlines()[0]) == (0, "shop: has not been started yet")
    assert "capturing" in text
    assert not (shop.folder / "state").exists()
    assert shop.json()[1]["batch"] is None


def test_a_pipeline_that_ran_without_a_batch_does_not_say_that_it_never_started(shop: Shop) -> None:
    (shop.folder / "state").mkdir()
    said = figures(Reading(1_700_000_000.0, PipelineProgress()), Flow())
    (shop.folder / "state" / FILE).write_text(KeptFigures(said, 2.0).to_text())
    code, text = shop.status()
    assert (code, text.splitlines()[0]) == (0, "shop: is not running, no batch is finished yet")
    assert "0 rows in 0 batches" in text


def test_a_snapshot_shows_its_chunks(shop: Shop) -> None:
    shop.batch()
    shop.batch()
    code, text = shop.status()
    assert code == 0
    assert "dbo.t  in its snapshot: 2 chunks of a table of about 5 rows read" in text
    table = shop.json()[1]["databases"]["shop"]["tables"]["dbo.t"]
    assert table == {
        "complete_until": None,
        "snapshot": "running",
        "chunks": 2,
        "estimated_rows": 5,
        "lost": False,
        "captured": True,
        "skipped": None,
        "unequal": None,
        "parked": None,
    }


def test_a_level_pipeline_is_fine(shop: Shop) -> None:
    shop.level()
    code, found = shop.json()
    one = found["databases"]["shop"]
    assert (code, found["fine"], found["running"], found["batch"]) == (0, True, False, 3)
    assert (one["lag_seconds"], one["health"]["state"], one["position"]) == (0, "capturing", shop.offset.commit)
    assert one["health"]["headroom_seconds"] == one["health"]["retention_seconds"] == 3 * 24 * 3600
    assert shop.offset.commit_time is not None and shop.offset.capture_time is not None
    # datetime counts in 1/300 s, so a commit may stand a moment later than its batch was planned.
    until = min(shop.offset.commit_time, shop.offset.capture_time).isoformat()
    assert found["complete_until"] == one["tables"]["dbo.t"]["complete_until"] == until
    text = shop.status()[1]
    assert "shop: is not running; batch 3 is in all sinks" in text
    assert "changes are kept for 3 d; none is waiting" in text
    assert "dbo.t  complete until " in text


def test_a_table_that_is_captured_no_longer_keeps_its_line_until_the_options_leave_it_out(shop: Shop) -> None:
    shop.database.execute("CREATE TABLE dbo.u (id int NOT NULL PRIMARY KEY)")
    shop.database.execute("EXEC sys.sp_cdc_enable_table @source_schema='dbo', @source_name='u', @role_name=NULL")
    shop.level()
    shop.database.execute("DROP TABLE dbo.t")
    # Before a run has seen it, and after.
    for _ in range(2):
        code, text = shop.status()
        assert (code, "dbo.t  no longer captured" in text, "table      dbo.u" in text) == (1, True, True)
        one = shop.json()[1]["databases"]["shop"]
        assert (one["tables"]["dbo.t"]["captured"], one["health"]["uncaptured"]) == (False, ["dbo.t"])
        shop.batch()
    # The checkpoint says it too, where the source is not asked.
    assert shop.status("--no-source")[0] == 1
    assert shop.status(tables_excluded="dbo.t")[0] == 0


def test_lag_and_headroom_of_what_waits(shop: Shop) -> None:
    shop.level()
    past = dt.datetime.now(dt.UTC).replace(tzinfo=None) - dt.timedelta(hours=70)
    shop.database.clock = lambda: past
    shop.database.execute("INSERT INTO dbo.t VALUES (10)")
    shop.database.clock = lambda: dt.datetime.now(dt.UTC).replace(tzinfo=None)
    shop.database.capture()
    shop.database.capture()
    code, found = shop.json()
    one = found["databases"]["shop"]
    assert (code, round(one["lag_seconds"] / 3600)) == (0, 70)
    assert round(one["health"]["headroom_seconds"] / 3600) == 2
    assert "the oldest that is not in the sinks for 1 h 59 min more" in shop.status()[1]


def test_a_stopped_agent_is_1_and_lag_grows(shop: Shop) -> None:
    shop.level()
    shop.server.set_agent(running=False)
    code, found = shop.json()
    one = found["databases"]["shop"]
    assert (code, one["health"]["state"]) == (1, "not capturing")
    assert one["lag_seconds"] == one["health"]["behind_seconds"] > 0
    assert shop.json()[1]["databases"]["shop"]["lag_seconds"] > one["lag_seconds"]
    assert "SQL Server Agent is stopped. Start the service" in shop.status()[1]


def test_deleted_changes_are_1(shop: Shop) -> None:
    shop.level()
    for key in (10, 11):
        shop.database.execute("INSERT INTO dbo.t VALUES (?)", (key,))
        shop.database.capture()
    shop.database.cleanup()
    code, text = shop.status()
    assert code == 1
    assert "needed changes of dbo.t are deleted in the source." in text


def test_a_source_that_can_not_be_asked_leaves_lag_unknown(shop: Shop) -> None:
    shop.level()
    code, found = shop.json(hostname="/nowhere", password="hunter2")
    one = found["databases"]["shop"]
    assert (code, one["answered"], one["lag_seconds"], one["health"]["state"]) == (1, False, None, "unknown")
    assert one["tables"]["dbo.t"]["complete_until"] is not None
    text = shop.status(hostname="/nowhere", password="hunter2")[1]
    assert "The source can't be asked: Server '/nowhere' can't be reached" in text
    assert "hunter2" not in text


def test_without_the_source_only_the_checkpoint_is_read(shop: Shop) -> None:
    shop.level()
    code, found = shop.json("--no-source", hostname="/nowhere")
    one = found["databases"]["shop"]
    assert (code, one["health"], one["lag_seconds"]) == (0, None, None)
    assert "not queried" in shop.status("--no-source", hostname="/nowhere")[1]


def test_who_holds_the_checkpoint(shop: Shop) -> None:
    shop.level()
    with owned(shop.folder / "state", "shop"):
        _, found = shop.json()
        assert "shop: runs (process " in shop.status()[1]
    assert found["running"]
    assert found["process"] > 0
    assert not shop.json()[1]["running"]


def test_who_only_looks_keeps_no_run_from_starting(shop: Shop) -> None:
    folder = shop.folder / "state"
    with owned(folder, "shop"):
        pass
    tried = threading.Event()

    def start() -> str:
        tried.set()
        with owned(folder, "shop"):
            return "started"

    with (folder / LOCK).open("r") as looking, ThreadPoolExecutor(1) as pool:
        fcntl.flock(looking, fcntl.LOCK_SH)
        run = pool.submit(start)
        assert tried.wait(PATIENCE)
        fcntl.flock(looking, fcntl.LOCK_UN)
        assert run.result(PATIENCE) == "started"


def test_bad_input_is_2(shop: Shop, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["status", str(tmp_path / "no.yaml")])
    assert done.exit_code == 2
    assert "There is no pipeline file" in done.output
    write_batch(tmp_path / "state", 0, '{"version":99,"databases":{}}')
    code, text = shop.status()
    assert (code, "version 99" in text) == (2, True)


def test_topics_show_their_offsets(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        json.dumps(
            {
                "source": {
                    "type": "kafka",
                    "bootstrap.servers": "127.0.0.1:1",
                    "topics": "orders",
                    "format": {"type": "debezium_json"},
                },
                "sink": {"type": "memory"},
                "pipeline": {"name": "orders", "checkpoint": "state"},
            }
        )
    )
    write_batch(tmp_path / "state", 4, '{"orders":{"0":5,"1":1234}}')
    done = CliRunner().invoke(app, ["status", str(file)])
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        "orders: is not running; batch 4 is in all sinks",
        "  topic orders: partition 0 up to 5, partition 1 up to 1,234",
    ]


def test_spark_is_not_loaded(shop: Shop) -> None:
    shop.level()
    shop.status()
    program = (
        "import sys\nfrom headrace.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    sys.exit(end.code or 'pyspark' in sys.modules)\n"
    )
    file = shop.folder / "pipeline.yaml"
    done = subprocess.run([sys.executable, "-c", program, "status", str(file)], capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0
