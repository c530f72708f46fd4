"""The numbers of a run in Prometheus' text format, by Prometheus' own client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace.errors import OptionError
from headrace.observe.metrics import all_metrics
from headrace.observe.progress import PipelineProgress

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def require_prometheus() -> None:
    """Say what to install where the client is missing.

    Raises:
        OptionError: it is.
    """
    try:
        import prometheus_client  # noqa: F401
    except ModuleNotFoundError:
        raise OptionError(
            "Metrics for Prometheus need the Python package prometheus_client, which is not installed.",
            remedy="Run pip install 'headrace[prometheus]', or remove observe.prometheus.",
        ) from None


class _Numbers:
    """A collector of one moment's numbers."""

    def __init__(self, progress: PipelineProgress, pipeline: str) -> None:
        self._progress = progress
        self._pipeline = pipeline

    def collect(self) -> Iterator[Family]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for metric in all_metrics(self._progress):
            names = ["pipeline", *metric.values[0][0]]
            kind: Any = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.doc, labels=names)
            for labels, value in metric.values:
                family.add_metric([self._pipeline, *labels.values()], value)
            yield family


def prometheus_text(progress: PipelineProgress, pipeline: str) -> bytes:
    """A scrape's answer; every number has the label `pipeline`.

    Raises:
        OptionError: the client is not installed.
    """
    require_prometheus()
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    numbers: Any = _Numbers(progress, pipeline)
    registry.register(numbers)
    return bytes(generate_latest(registry))
