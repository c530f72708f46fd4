"""Rule: the page of a run shows what flows, how far it is, where time goes and what is wrong. It needs nothing from
elsewhere, takes no text for more than text, and says when the run is gone."""

from __future__ import annotations

import html
import itertools
import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from tests.observe.recorded_run import CHROMIUM, serve

from headrace.observe.progress import PipelineProgress, TableState
from headrace.observe.server import ListenAddress, WatchServer
from headrace.pipeline.watch import Watch
from headrace.sources.health import CaptureState, Health
from headrace.testing.waiting import PATIENCE, until


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
    return done.stdout


def texts(page: str, id: str) -> str:
    """What stands in an element of the page, without tags."""
    found = re.search(rf'<(\w+)[^>]* id="{id}".*?</\1>', page, flags=re.DOTALL)
    assert found is not None, id
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", found[0])).split())


@pytest.mark.slow
def test_a_browser_shows_the_whole_run(tmp_path: Path) -> None:
    server = serve()
    text = drawn(server.url, tmp_path)
    server.close()
    assert "<title>sales - Headrace</title>" in text
    assert texts(text, "state") == "reading snapshots"
    assert texts(text, "pipelines").startswith("sales reading snapshots lag")
    assert "payments-feed up to date lag 0 s" in texts(text, "pipelines")
    flow = text[text.index('id="flow"') : text.index('aria-label="Figures"')]
    # A narrow page has the words in the box instead.
    wide = re.sub(r'<span class="narrow">.*?</span>', " ", flow)
    words = " ".join(re.sub(r"<[^>]+>", " ", wide).split())
    assert "sqlserver shop 1 transform · debezium_json kafka at-least-once 1 transform · 2 routes delta" in words
    figures = texts(text, "figures")
    assert "Complete until not yet 2 of 6 tables still lack changes" in figures
    assert re.search(r"Delay of changes [\d.]+ s median p90 [\d.]+ s · p99 [\d.]+ s · 100 batches", figures)
    assert "Retention headroom 2 d 21 h" in figures
    assert "closed the connection" in texts(text, "troubles") and "3 times" in texts(text, "troubles")
    assert "Check that the server is up and reachable." in texts(text, "troubles")
    # Each chart was drawn, and its stages are told in words beside their colours.
    assert len(re.findall(r'<div class="u-wrap"', text)) == 3
    assert re.search(
        r"plan 0\.2 s, \d+% read .* shape .* sink 1 \(kafka\) .* sink 2 \(delta\)", texts(text, "stage-names")
    )
    rows = texts(text, "tables")
    assert re.search(
        r"dbo.shipments in its snapshot 33% 812,000 of about 2,400,000; 21,300 rows/s; about 1 min left", rows
    )
    # Nothing happens to it, and it is there.
    assert re.search(r"dbo.countries streaming [\d:]+ \d s ago 0 0 0", rows)


@pytest.mark.slow
def test_a_browser_shows_the_pipeline_that_the_address_names_with_its_dead_letters(tmp_path: Path) -> None:
    server = serve()
    text = drawn(f"{server.url}#payments-feed", tmp_path)
    server.close()
    assert texts(text, "name") == "payments-feed"
    assert texts(text, "letters-sums").startswith("4 messages could not be read; 4 in dead letters; 12 messages")
    assert "The value is not JSON. 3 Field 'op' is missing. 1" in texts(text, "letters")


@pytest.mark.slow
def test_names_and_sentences_are_text_whatever_they_hold(shown: Shown, tmp_path: Path) -> None:
    shown.wait_for_looks(3)
    text = drawn(shown.server.url, tmp_path)
    assert '<h1 id="name">sales &amp; more</h1>' in text
    assert texts(text, "state") == "source does not capture"
    assert texts(text, "sentence") == "source not capturing: SQL Server Agent is stopped (***)"
    assert "dbo.<b>a in its snapshot 25% 7 of about 28" in texts(text, "tables")
    bar = re.search(r"<progress [^>]*>", text)
    assert bar is not None
    assert 'value="7"' in bar[0] and 'aria-label="Snapshot of dbo.&lt;b&gt;a"' in bar[0]


@pytest.mark.slow
def test_a_browser_says_that_the_run_is_gone(shown: Shown, tmp_path: Path) -> None:
    shown.wait_for_looks(1)
    shown.ended = True
    until(shown.is_gone, "the page is told that the run has ended")
    assert texts(drawn(shown.server.url, tmp_path), "state").startswith("The run does not answer: it has ended")


def test_the_page_loads_only_files_that_its_own_server_has(shown: Shown) -> None:
    with urllib.request.urlopen(shown.server.url, timeout=PATIENCE) as answer:
        text = answer.read().decode()
        policy = answer.headers["Content-Security-Policy"]
    loaded = re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"(?!data:)([^\"]+)", text)
    assert len(loaded) == 5
    for path in loaded:
        with urllib.request.urlopen(shown.server.url.rstrip("/") + path, timeout=PATIENCE) as answer:
            assert answer.read()
    # Neither the page nor a text on it brings a script or a style of its own.
    assert not re.search(r"<script>|<style|\sstyle=|\son\w+=", text)
    said = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert said["default-src"] == "'none'"
    assert {said[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert "unsafe" not in policy


def test_scripts_make_no_html_out_of_texts() -> None:
    for name in ("page.js", "charts.js"):
        script = files("headrace.observe").joinpath("browser", name).read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", script)
        assert not re.search(r"https?://", script)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_the_contrast_of_wcag_aa(scheme: str) -> None:
    style = files("headrace.observe").joinpath("browser", "page.css").read_text(encoding="utf-8")
    roots = re.findall(r":root \{(.*?)\}", style, flags=re.DOTALL)
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", "".join(roots[: 1 if scheme == "light" else 2])))
    for text in ("text", "quiet", "good", "busy", "warning", "bad"):
        for ground in ("page", "card"):
            low, high = sorted((luminance(colours[text]), luminance(colours[ground])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (text, ground)


def test_the_page_asks_only_for_what_is_new(shown: Shown) -> None:
    points = shown.wait_for_looks(2)
    assert [point["lag_seconds"] for point in points[:2]] == [1.0, 2.0]
    later = shown.json(f"/progress.json?since={points[0]['time']}")["points"]
    assert isinstance(later, list)
    assert points[0] not in later
    assert points[1] in later
    with pytest.raises(urllib.error.HTTPError, match="400"):
        shown.json("/progress.json?since=x")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        shown.json("/progress.json?pipeline=another")
    # Without observe.prometheus there are no metrics, here neither.
    with pytest.raises(urllib.error.HTTPError, match="404"):
        shown.json("/metrics")
