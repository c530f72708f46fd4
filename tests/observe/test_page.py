"""Rule: the page of a run shows lag, throughput and tables in a browser, needs nothing from elsewhere, and says when
the run is gone."""

from __future__ import annotations

import html
import itertools
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.observe.page import page
from headrace.observe.progress import PipelineProgress, TableState
from headrace.observe.server import ListenAddress, WatchServer
from headrace.pipeline.watch import Watch
from headrace.sources.health import CaptureState, Health
from headrace.testing.waiting import PATIENCE, until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Shown:
    """A run whose lag grows with every look, and its page."""

    def __init__(self) -> None:
        self.lags: Iterator[float] = itertools.count(1.0)
        self.ended = False
        self.health = Health(CaptureState.NOT_CAPTURING, "SQL Server Agent is stopped (secret).")
        self.watch = Watch("sales & more", self.ask, lambda text: text.replace("secret", "***"))
        self.server: WatchServer = self.watch.serve_page(ListenAddress("127.0.0.1", 0))
        self.watch.begin()

    def ask(self) -> PipelineProgress:
        if self.ended:
            raise RuntimeError("the run has ended")
        return PipelineProgress(
            batches=3,
            rows=1234,
            rows_per_second=55.4,
            lag_seconds=next(self.lags),
            behind_commits=9,
            tables=(
                TableState("dbo.<b>a", {"r": 7, "c": 5}, 28, "running", read=7),
                TableState("dbo.b", {"u": 4321}),
            ),
            health=self.health,
        )

    def json(self, path: str = "/progress.json") -> dict[str, object]:
        with urllib.request.urlopen(self.server.url.rstrip("/") + path, timeout=PATIENCE) as answer:
            found: dict[str, object] = json.load(answer)
        return found

    def wait_for_looks(self, count: int) -> list[dict[str, float]]:
        until(lambda: len(self.points()) >= count, f"{count} looks")
        return self.points()

    def points(self) -> list[dict[str, float]]:
        points = self.json()["points"]
        assert isinstance(points, list)
        return points

    def is_gone(self) -> bool:
        try:
            self.json()
        except urllib.error.HTTPError as error:
            assert error.code == 503
            return True
        return False


@pytest.fixture
def shown() -> Iterator[Shown]:
    made = Shown()
    yield made
    made.watch.close()


def drawn(url: str, profile: Path) -> str:
    """The page as a browser has it after its scripts ran."""
    if CHROMIUM is None:
        pytest.skip("no chromium here: apt-get install chromium")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={profile}", "--virtual-time-budget=4000", "--dump-dom", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    # Without the script, which holds the same words.
    return re.sub(r"<script>.*?</script>", "", done.stdout, flags=re.DOTALL)


@pytest.mark.slow
def test_a_browser_draws_lag_and_throughput_over_time(shown: Shown, tmp_path: Path) -> None:
    shown.wait_for_looks(3)
    text = drawn(shown.server.url, tmp_path)
    assert '<h1 id="name">sales &amp; more</h1>' in text
    assert "<title>sales &amp; more - Headrace</title>" in text
    assert re.search(r'id="now">1,234 rows in 3 batches; lag \d+\.0 s; 55 rows/s; 9 commits behind<', text)
    assert '<p id="health" class="bad">source not capturing: SQL Server Agent is stopped (***)</p>' in text
    lines = re.findall(r'<svg id="(\w+)".*?<polyline points="([^"]+)"', text, flags=re.DOTALL)
    assert [name for name, _ in lines] == ["lag", "rate"]
    lag = [tuple(map(float, point.split(","))) for point in lines[0][1].split()]
    assert len(lag) >= 3
    # Time goes right; a lag that grows goes up, which is towards smaller numbers.
    assert lag == sorted(lag)
    assert [y for _, y in lag] == sorted((y for _, y in lag), reverse=True)
    assert re.search(r'id="lag-scale">up to \d+ s, last \d+ s<', text)
    # Names are text, whatever they hold.
    row = html.unescape(text[text.index("dbo.&lt;b&gt;a") :])
    assert '<progress max="28" value="7" title="7 of about 28">' in row
    assert "<td>4,321</td>" in row


@pytest.mark.slow
def test_a_browser_says_that_the_run_is_gone(shown: Shown, tmp_path: Path) -> None:
    shown.wait_for_looks(1)
    shown.ended = True
    until(shown.is_gone, "the page is told that the run has ended")
    assert 'class="bad">The run does not answer: it has ended' in drawn(shown.server.url, tmp_path)


def test_the_page_loads_nothing_from_elsewhere() -> None:
    text = page().decode()
    assert set(re.findall(r"https?://[^\"'\s)]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"(?!data:)", text)


def test_the_page_asks_only_for_what_is_new(shown: Shown) -> None:
    points = shown.wait_for_looks(2)
    assert [point["lag_seconds"] for point in points[:2]] == [1.0, 2.0]
    later = shown.json(f"/progress.json?since={points[0]['time']}")["points"]
    assert isinstance(later, list)
    assert points[0] not in later
    assert points[1] in later
    with pytest.raises(urllib.error.HTTPError, match="400"):
        shown.json("/progress.json?since=x")
    # Without observe.prometheus there are no metrics, here neither.
    with pytest.raises(urllib.error.HTTPError, match="404"):
        shown.json("/metrics")
