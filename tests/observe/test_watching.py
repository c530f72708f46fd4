"""Rule: what watches a run only reads; it listens nowhere unless asked, and on this machine unless told otherwise."""

from __future__ import annotations

import datetime as dt
import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.errors import OptionError
from headrace.observe.flow import Flow
from headrace.observe.history import ProgressHistory, Reading
from headrace.observe.messages import MessageCounts
from headrace.observe.metrics import prometheus_text
from headrace.observe.page import figures, state
from headrace.observe.progress import PipelineProgress, TableState
from headrace.observe.server import Answer, ListenAddress, WatchServer, parse_address
from headrace.observe.troubles import Trouble
from headrace.sources.health import CaptureState, Health
from headrace.testing.waiting import PATIENCE

NOON = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
PROGRESS = PipelineProgress(
    batches=3,
    rows=12,
    rows_per_second=1.5,
    lag_seconds=2.5,
    tables=(TableState("dbo.a", {"r": 7, "c": 5}, 10, "running", read=7), TableState('odd "\\\n', {"d": 1})),
    health=Health(
        CaptureState.CAPTURING,
        retention_seconds=10.0,
        headroom_seconds=4.0,
        waiting_commits=9,
        uncaptured=("dbo.c",),
        retained_bytes=7,
        headroom_bytes=5,
    ),
    behind_commits=9,
    messages=MessageCounts({"It is not JSON.": 2}, 1, 2),
)


def test_the_page_names_the_tables_that_are_captured_no_longer() -> None:
    assert figures(Reading(0.0, PROGRESS), Flow())["sentence"].startswith("no longer captured: dbo.c")


@pytest.mark.parametrize(
    ("kept", "left", "text"),
    [
        (None, None, ""),
        (5 * 2**20, None, "5 MB kept for the pipeline; the server sets no bound"),
        (5 * 2**20, 3 * 2**30, "5 MB kept for the pipeline; it is dropped after 3.0 GB more"),
        (5 * 2**20, -1, "5 MB kept for the pipeline; it may be dropped at any moment"),
    ],
)
def test_the_page_says_how_much_log_the_source_keeps(kept: int | None, left: int | None, text: str) -> None:
    progress = PipelineProgress(health=Health(CaptureState.CAPTURING, retained_bytes=kept, headroom_bytes=left))
    assert figures(Reading(0.0, progress), Flow())["log"] == text


@pytest.mark.parametrize(
    ("progress", "told"),
    [
        (PipelineProgress(lag_seconds=0.0), ("good", "up to date")),
        (PipelineProgress(lag_seconds=2.0), ("good", "streaming")),
        (PipelineProgress(lag_seconds=200.0), ("busy", "catching up")),
        (PipelineProgress(lag_seconds=2.0, snapshotting=True), ("busy", "reading snapshots")),
        (PipelineProgress(), ("busy", "starting")),
        (PipelineProgress(batches=1), ("warning", "lag unknown")),
        (PipelineProgress(health=Health(sentence="The source can't be asked: no.")), ("warning", "lag unknown")),
        (
            PipelineProgress(lag_seconds=0.0, tables=(TableState("a", {}, captured=False),)),
            ("warning", "tables lack changes"),
        ),
        (PipelineProgress(lag_seconds=0.0, health=Health(CaptureState.LAGGING)), ("warning", "source captures late")),
        (
            PipelineProgress(lag_seconds=0.0, health=Health(headroom_seconds=1.0, retention_seconds=10.0)),
            ("warning", "little retention left"),
        ),
        (
            PipelineProgress(lag_seconds=0.0, health=Health(CaptureState.NOT_CAPTURING)),
            ("bad", "source does not capture"),
        ),
        (PipelineProgress(lag_seconds=0.0, health=Health(lost=("a",))), ("bad", "needed changes are deleted")),
        (PipelineProgress(messages=MessageCounts({"x": 1}, left_out=1)), ("bad", "messages left out")),
        (PipelineProgress(troubles=(Trouble("x", "", NOON, fatal=True),)), ("bad", "stopped by an error")),
    ],
)
def test_the_worst_that_is_so_is_said_first(progress: PipelineProgress, told: tuple[str, str]) -> None:
    assert state(progress) == told


def test_prometheus_reads_every_number_with_its_labels() -> None:
    families = {f.name: f for f in text_string_to_metric_families(prometheus_text(PROGRESS, "sales").decode())}
    samples = {
        (s.name, *(f"{k}={v}" for k, v in sorted(s.labels.items()) if k != "pipeline")): s.value
        for family in families.values()
        for s in family.samples
    }
    assert {s.labels["pipeline"] for f in families.values() for s in f.samples} == {"sales"}
    assert samples["headrace_lag_seconds",] == 2.5
    assert samples["headrace_behind_commits",] == 9
    assert samples["headrace_uncaptured_tables",] == 1
    assert samples["headrace_retention_headroom_seconds",] == 4
    assert samples["headrace_source_log_retained_bytes",] == 7
    assert samples["headrace_source_log_headroom_bytes",] == 5
    assert samples["headrace_snapshot_rows_remaining", "table=dbo.a"] == 3
    assert samples["headrace_rows_total", "op=c", "table=dbo.a"] == 5
    assert samples["headrace_rows_total", "op=d", 'table=odd "\\\n'] == 1
    assert samples["headrace_rejected_rows_total", "reason=It is not JSON."] == 2
    assert samples["headrace_batches_total",] == 3
    assert families["headrace_rows"].type == "counter"
    assert families["headrace_lag_seconds"].type == "gauge"
    assert families["headrace_lag_seconds"].documentation.startswith("Age of the oldest change")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9464", ListenAddress("127.0.0.1", 9464)),
        (":9464", ListenAddress("127.0.0.1", 9464)),
        ("127.0.0.1:0", ListenAddress("127.0.0.1", 0)),
        ("0.0.0.0:80", ListenAddress("0.0.0.0", 80)),
        ("[::1]:80", ListenAddress("::1", 80)),
    ],
)
def test_addresses(text: str, address: ListenAddress) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "localhost", "x:y", "1:70000", "[]:80", "-1"])
def test_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="port"):
        parse_address(text)


@pytest.fixture
def server() -> Iterator[WatchServer]:
    made = WatchServer(
        ListenAddress("127.0.0.1", 0), {"/a": lambda query: Answer("text/plain", json.dumps(dict(query)).encode())}
    )
    yield made
    made.close()


def asked(server: WatchServer, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(server.address.host, server.address.port, timeout=PATIENCE)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def test_paths_are_answered_and_others_are_not_there(server: WatchServer) -> None:
    assert asked(server, "/a?since=3") == (200, '{"since": "3"}')
    assert asked(server, "/b") == (404, "Not found. Known: /a.\n")
    assert asked(server, "/../etc/passwd")[0] == 404
    assert asked(server, "/a", "POST")[0] == 501


def test_a_page_of_somebody_else_can_not_read_it_under_a_name_of_its_own(server: WatchServer) -> None:
    assert asked(server, "/a", Host="evil.example:80")[0] == 403
    assert asked(server, "/a", Host=f"localhost:{server.address.port}")[0] == 200


def test_an_address_that_is_taken_is_said(server: WatchServer) -> None:
    with pytest.raises(OptionError, match=f"Can't listen on 127.0.0.1:{server.address.port}: "):
        WatchServer(server.address, {})


def test_a_closed_server_is_gone(server: WatchServer) -> None:
    other = WatchServer(ListenAddress("127.0.0.1", 0), {})
    other.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(other.url, timeout=PATIENCE)


def test_the_history_keeps_the_newest_moments() -> None:
    times = iter(range(1, 100))
    rows = iter(range(100))
    history = ProgressHistory(lambda: PipelineProgress(rows=next(rows)), most=3, clock=lambda: float(next(times)))
    assert (history.newest, history.moments()) == (None, [])
    for _ in range(5):
        history.observe()
    assert [(moment.time, moment.progress.rows) for moment in history.moments()] == [(3, 2), (4, 3), (5, 4)]
    assert [moment.time for moment in history.moments(since=4)] == [5]
    assert history.newest == history.moments()[-1]


def test_the_history_looks_by_itself_until_it_is_closed_and_says_why_it_stopped() -> None:
    observed, answers = threading.Semaphore(0), iter([PipelineProgress(rows=1), PipelineProgress(rows=2)])

    def ask() -> PipelineProgress:
        observed.release()
        return next(answers)

    history = ProgressHistory(ask, every=0.0)
    history.start()
    for _ in range(3):
        assert observed.acquire(timeout=PATIENCE)
    history.close()
    assert [moment.progress.rows for moment in history.moments()] == [1, 2]
    assert isinstance(history.failure, StopIteration)
