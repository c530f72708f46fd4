"""Rule: OpenTelemetry gets the numbers that Prometheus gets, by the same names, and the last ones when a run ends."""

from __future__ import annotations

import dataclasses
import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.observe.whole_progress import ALL

from headrace.observe.history import Reading
from headrace.observe.metrics import all_metrics
from headrace.observe.open_telemetry import Telemetry, parse_endpoint
from headrace.observe.progress import PipelineProgress, TableState
from headrace.pipeline.watch import Watch
from headrace.testing.waiting import until

Points = dict[tuple[str, frozenset[tuple[str, str]]], float]


def numbers(reader: InMemoryMetricReader) -> Points:
    data = reader.get_metrics_data()
    if data is None:
        return {}
    return {
        (metric.name, frozenset((key, str(value)) for key, value in point.attributes.items())): point.value
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def expected(progress: PipelineProgress) -> Points:
    return {
        (metric.name, frozenset({"pipeline": "shop", **labels}.items())): value
        for metric in all_metrics(progress)
        for labels, value in metric.values
    }


def test_every_number_is_given_with_its_labels_and_what_is_unknown_is_not() -> None:
    now = [ALL]
    reader = InMemoryMetricReader()
    telemetry = Telemetry("shop", lambda: now[0], reader)
    assert numbers(reader) == {}
    telemetry.observed(Reading(0.0, ALL))
    assert numbers(reader) == expected(ALL)
    # The source does not answer, and another table comes.
    later = dataclasses.replace(ALL, batches=7, lag_seconds=None, tables=(*ALL.tables, TableState("dbo.u", {"d": 2})))
    now[0] = later
    telemetry.observed(Reading(1.0, later))
    assert numbers(reader) == expected(later)
    telemetry.ended(Reading(2.0, now[0]))


def test_counters_are_counters_and_the_service_says_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    reader = InMemoryMetricReader()
    telemetry = Telemetry("shop", lambda: ALL, reader)
    telemetry.observed(Reading(0.0, ALL))
    data = reader.get_metrics_data()
    assert data is not None
    [resource] = data.resource_metrics
    said = dict(resource.resource.attributes)
    assert (said["service.name"], said["deployment.environment"]) == ("headrace", "test")
    kinds = {m.name: type(m.data).__name__ for scope in resource.scope_metrics for m in scope.metrics}
    assert (kinds["headrace_rows_total"], kinds["headrace_lag_seconds"]) == ("Sum", "Gauge")
    telemetry.ended(Reading(2.0, ALL))


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("http://collector:4318", "http://collector:4318/v1/metrics"),
        ("https://collector/", "https://collector/v1/metrics"),
        ("http://collector/otlp/v1/metrics", "http://collector/otlp/v1/metrics"),
    ],
)
def test_endpoints(text: str, endpoint: str) -> None:
    assert parse_endpoint(text) == endpoint


@pytest.mark.parametrize("text", ["collector:4318", "grpc://collector:4317", "", "http://"])
def test_no_endpoints(text: str) -> None:
    with pytest.raises(ValueError, match="http://collector:4318"):
        parse_endpoint(text)


class Collector(HTTPServer):
    """Keeps the paths and the names of what it gets."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.names: set[str] = set()
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        got = ExportMetricsServiceRequest.FromString(body)
        self.server.paths.add(self.path)
        self.server.names |= {m.name for r in got.resource_metrics for s in r.scope_metrics for m in s.metrics}
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Be silent."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def test_a_run_sends_its_last_numbers_when_it_ends(collector: Collector) -> None:
    watch = Watch("shop", lambda: ALL, str)
    watch.send_metrics(parse_endpoint(f"http://127.0.0.1:{collector.server_port}"))
    watch.begin()
    until(lambda: watch.figures() is not None, "the first look")
    watch.close()
    assert collector.paths == {"/v1/metrics"}
    assert collector.names == {metric.name for metric in all_metrics(ALL)}
