"""Rule: whenever the process that reads is killed, after the next one the mirror equals the source."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.mirror import Mirror
from tests.support.mysql_changes import KEYS, Changes, held

from headrace.testing.waiting import PATIENCE, until
from headrace_emulators.mysql.server import MySqlDatabase

pytestmark = pytest.mark.system

PROGRAM = Path(__file__).parent / "reading_process.py"
POINTS = ("source.snapshot.chunk@7", "source.stream.batch@2", "source.stream.batch@5")


class Reading:
    """Processes that read a database one after another, and changes that go on beside them."""

    def __init__(self, database: MySqlDatabase, folder: Path, seed: int) -> None:
        self.folder, self.database = folder, database
        self._changes = Changes(database, seed)
        while self._changes.rows < 2_000:
            self._changes.step()
        options = {
            **database.options,
            "tables": ",".join(f"{database.name}.{table}" for table in KEYS),
            "snapshot_chunk_rows": "200",
            "min_log_per_reader": "100000",
        }
        (folder / "options.json").write_text(json.dumps(options))
        self._stop = threading.Event()
        self._changing = threading.Thread(target=self._change)
        self._changing.start()

    def _change(self) -> None:
        while not self._stop.wait(0.02):
            self._changes.step()

    def settle(self) -> None:
        """No more changes; everything is read."""
        self.end()
        (self.folder / "settle").touch()
        while True:
            with self.process() as process:
                if process.wait(PATIENCE) == 0:
                    return
                assert self._may_go_on, self._said

    def end(self) -> None:
        if self._stop.is_set():
            return
        self._stop.set()
        if self._changing.is_alive():
            self._changing.join()
        self._changes.close()

    @property
    def _said(self) -> str:
        return (self.folder / "said").read_text()[-3000:]

    @property
    def _may_go_on(self) -> bool:
        """Whether it ended because a table was altered between plan and read, which another process takes up."""
        return "Start the run again" in self._said

    @contextmanager
    def process(self, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        given = {**os.environ, **environment, "HEADRACE_FAULT_SPARE": str(os.getsid(0))}
        with (self.folder / "said").open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, PROGRAM, self.folder], stderr=said, env=given, start_new_session=True
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def killed_at(self, point: str) -> None:
        name, _, number = point.partition("@")
        faults = self.folder / f"faults-{point}"
        faults.mkdir()
        armed = {"HEADRACE_FAULTPOINTS": f"{name}=kill@{number}", "HEADRACE_FAULT_DIR": str(faults)}
        while True:
            with self.process(**armed) as process:
                if process.wait(PATIENCE) == -signal.SIGKILL:
                    return
                assert self._may_go_on, self._said

    def killed_after(self, seconds: float) -> None:
        """Killed so long after it has begun a batch of its own."""
        before = len(self._offsets)
        with self.process() as process:
            until(lambda: len(self._offsets) > before or process.poll() is not None, "a batch is begun")
            threading.Event().wait(seconds)
            assert process.poll() is None or self._may_go_on, self._said

    @property
    def _offsets(self) -> list[Path]:
        return list(self.folder.glob("*.offset"))

    @property
    def mirror(self) -> Mirror:
        """What the rows of all batches say."""
        mirror = Mirror(KEYS)
        for number in range(len(self._offsets)):
            with pa.ipc.open_stream((self.folder / f"{number}.rows").read_bytes()) as stream:
                mirror.take(stream)
        return mirror


@pytest.mark.parametrize(
    ("points", "moments"),
    [(POINTS[:2], 1), pytest.param(POINTS, 30, marks=pytest.mark.soak)],
    ids=["few", "many"],
)
def test_a_reader_that_is_killed_at_any_moment_loses_and_doubles_nothing(
    binlog_database: MySqlDatabase,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    points: tuple[str, ...],
    moments: int,
) -> None:
    seed = random.randrange(10**6) if request.node.get_closest_marker("soak") else 1
    print(f"seed {seed}")
    random_moments = random.Random(seed)
    reading = Reading(binlog_database, tmp_path, seed)
    try:
        for point in points:
            reading.killed_at(point)
        for _ in range(moments):
            reading.killed_after(random_moments.uniform(0, 0.5))
        reading.settle()
    finally:
        reading.end()
    assert reading.mirror.differences(held(binlog_database)) == {}
