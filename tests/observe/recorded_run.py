"""Two runs as they could be, without Spark: for tests of the page, for its pictures, and for whoever changes it.

`python -m tests.observe.recorded_run` serves them; `python -m tests.observe.recorded_run FOLDER` takes the pictures of
the documentation.
"""

from __future__ import annotations

import datetime as dt
import io
import math
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.spinner import Spinner

from headrace.observe.flow import Flow, SinkTarget
from headrace.observe.history import Reading
from headrace.observe.live import screen
from headrace.observe.messages import MessageCounts
from headrace.observe.page import figures, page_routes, points
from headrace.observe.progress import BatchDone, BatchUnderWay, Delays, PipelineProgress, TableState
from headrace.observe.server import ListenAddress, WatchServer
from headrace.observe.troubles import Trouble
from headrace.sources.health import CaptureState, Health

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@dataclass(frozen=True)
class RecordedRun:
    """A pipeline that the page can show: every look at it, and what flows."""

    name: str
    moments: list[Reading]
    flow: Flow

    def points(self, since: float) -> list[dict[str, Any]]:
        return points([moment for moment in self.moments if moment.time > since])

    def figures(self) -> dict[str, Any]:
        return figures(self.moments[-1], self.flow)


def wave(at: float, *lengths: float) -> float:
    """Between 0 and 1, up and down."""
    return sum(math.sin(at / length) for length in lengths) / len(lengths) / 2 + 0.5


def sales(now: float) -> RecordedRun:
    """SQL Server to Kafka and Delta, with a snapshot that runs and a connection that was lost for a while."""
    clock = dt.datetime.fromtimestamp(now, dt.UTC)

    def ago(seconds: float) -> dt.datetime:
        return clock - dt.timedelta(seconds=seconds)

    tables = (
        TableState("dbo.customers", {"c": 1_204, "u": 8_871, "d": 17}, complete_until=ago(2)),
        TableState("dbo.orders", {"c": 48_210, "u": 61_555, "d": 320}, complete_until=ago(2)),
        TableState("dbo.order_items", {"c": 139_402, "u": 4_100, "d": 1_021}, complete_until=ago(2)),
        TableState("dbo.shipments", {"r": 812_000}, 2_400_000, "running", 812_000, read_per_second=21_300.0),
        TableState("dbo.returns", {"r": 40_112, "c": 12}, 40_000, "catching up", 40_112),
        TableState("dbo.countries", {}, complete_until=ago(2)),
    )

    def batch(number: int) -> BatchDone:
        read, sink = 0.25 + 0.5 * wave(number, 2.0, 5.0), 0.6 + 1.1 * wave(number, 3.0, 7.0)
        stages = {"plan": 0.21, "read": read, "shape": 0.12, "sink 1 (kafka)": sink / 3, "sink 2 (delta)": sink}
        at, seconds = ago((1_000 - number) * 2.4), sum(stages.values()) - 0.21
        rows = int(2_000 + 9_000 * wave(number, 4.0))
        return BatchDone(number, {"c": rows}, ("dbo.orders",), seconds, stages, seconds + 0.6, at)

    batches = tuple(batch(number) for number in range(901, 1_001))
    health = Health(
        CaptureState.CAPTURING, "The log was read 1 s ago.", retention_seconds=259_200.0, headroom_seconds=251_000.0
    )
    lost = Trouble(
        "Server 'db.example' closed the connection. Trying again in 3.0 seconds (3 of 10).",
        "Check that the server is up and reachable.",
        ago(412),
        3,
    )

    def moment(second: int) -> Reading:
        at = now - 900 + second
        lag = None if 480 <= second < 492 else 0.3 + 2.2 * wave(second, 11.0, 37.0) + (second == 492) * 9
        rate = 0.0 if lag is None else 9_000 + 14_000 * wave(second, 23.0, 61.0)
        return Reading(
            at,
            PipelineProgress(
                batches=1_000,
                rows=1_116_824,
                rows_per_second=rate,
                lag_seconds=lag,
                snapshotting=True,
                tables=tables,
                health=health,
                behind_commits=14,
                recent=batches,
                delays=Delays.of([done.delay for done in batches if done.delay is not None]),
                troubles=(lost,),
                under_way=BatchUnderWay(1_001, "sink 2 (delta)", 1.4),
            ),
        )

    flow = Flow(
        "sqlserver",
        ("shop",),
        sinks=(
            SinkTarget("sink 1 (kafka)", "kafka", "at-least-once", "debezium_json", transforms=1),
            SinkTarget("sink 2 (delta)", "delta", "exactly-once", transforms=1, routes=2),
        ),
    )
    return RecordedRun("sales", [moment(second) for second in range(901)], flow)


def feed(now: float) -> RecordedRun:
    """Topics of a feed to PostgreSQL, idle, with messages that could not be read."""
    tables = (TableState("shop.payments", {"c": 96_004, "u": 210}), TableState("", {"error": 4}))
    letters = MessageCounts({"The value is not JSON.": 3, "Field 'op' is missing.": 1}, no_event=12, dead_letters=4)
    done = BatchDone(41, {"c": 210}, ("shop.payments",), 0.8, {"read": 0.3, "sink (postgresql)": 0.5}, 1.1)
    idle = PipelineProgress(
        batches=42,
        rows=96_214,
        lag_seconds=0.0,
        tables=tables,
        behind_messages=0,
        recent=(done,),
        delays=Delays.of([1.1]),
        messages=letters,
    )
    flow = Flow(
        "kafka", ("payments",), "canal_json", (SinkTarget("sink", "postgresql", "exactly-once"),), dead_letters="kafka"
    )
    return RecordedRun("payments-feed", [Reading(now - 60 + second, idle) for second in range(61)], flow)


def serve(port: int = 0) -> WatchServer:
    """Both runs on one page."""
    now = time.time()
    return WatchServer(ListenAddress("127.0.0.1", port), page_routes([sales(now), feed(now)], lambda text: text))


def picture(url: str, file: Path, width: int, height: int, *, dark: bool = False) -> None:
    """The page as a browser shows it."""
    assert CHROMIUM is not None, "no chromium here: apt-get install chromium"
    with tempfile.TemporaryDirectory() as profile:
        command = [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        ]
        command += [f"--user-data-dir={profile}", f"--window-size={width},{height}", "--virtual-time-budget=3000"]
        command += [f"--blink-settings=preferredColorScheme={0 if dark else 1}", f"--screenshot={file}", url]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def terminal(run: RecordedRun, file: Path) -> None:
    """What a terminal shows of the run, as text in a picture that loads nothing."""
    console = Console(record=True, width=84, file=io.StringIO(), force_terminal=True)
    console.print(screen(run.moments[-1].progress, f"Pipeline {run.name}", Spinner("dots")))
    drawn = console.export_svg(title=f"headrace run {run.name}.yaml", unique_id=run.name)
    file.write_text(re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL), encoding="utf-8")


def main(arguments: list[str]) -> None:
    server = serve(0 if arguments else 8480)
    print(server.url)
    if not arguments:
        server.join()
        return
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    picture(server.url, folder / "page.png", 1180, 1500)
    picture(server.url, folder / "page-dark.png", 1180, 1500, dark=True)
    picture(f"{server.url}#payments-feed", folder / "page-phone.png", 390, 1000)
    terminal(sales(time.time()), folder / "terminal.svg")
    server.close()


if __name__ == "__main__":
    main(sys.argv[1:])
