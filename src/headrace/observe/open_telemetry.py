"""The numbers of a run for OpenTelemetry, under the names that Prometheus gets, by OpenTelemetry's own SDK."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headrace.errors import OptionError
from headrace.observe.history import Reading
from headrace.observe.metrics import Metric, all_metrics
from headrace.observe.progress import PipelineProgress
from headrace.versions import __version__

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics.export import MetricReader

_PATH = "/v1/metrics"
_LAST_MILLISECONDS = 5000


def parse_endpoint(text: str) -> str:
    """A collector's URL for OTLP over HTTP; without a path it is the usual one.

    Raises:
        ValueError: it is no such URL.
    """
    parts = urlsplit(text.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("write http://collector:4318")
    return parts._replace(path=_PATH).geturl() if parts.path in ("", "/") else parts.geturl()


def otlp_reader(endpoint: str) -> MetricReader:
    """Sends to a collector every so often. How often, and with what headers and certificates, say the variables
    `OTEL_*`, as everywhere.

    Raises:
        OptionError: the packages are not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    except ModuleNotFoundError:
        raise OptionError(
            "Metrics for OpenTelemetry need Python packages that are not installed.",
            remedy="Run pip install 'headrace[opentelemetry]', or remove observe.opentelemetry.",
        ) from None
    return PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=endpoint))


class Telemetry:
    """Gives the numbers of one run to a reader whenever that asks, until it is closed.

    Args:
        pipeline: the pipeline's name, an attribute of every number.
        newest: the progress of the last look; null before the first.
        reader: sends them, or hands them out.
    """

    def __init__(self, pipeline: str, newest: Callable[[], PipelineProgress | None], reader: MetricReader) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource

        self._pipeline = pipeline
        self._newest = newest
        self._known: set[str] = set()
        self._of_progress: tuple[PipelineProgress | None, dict[str, Metric]] = (None, {})
        # What the user says in the environment comes after what we say.
        ours = Resource({SERVICE_NAME: "headrace", SERVICE_VERSION: __version__})
        resource = ours.merge(OTELResourceDetector().detect())
        self._provider = MeterProvider([reader], resource, shutdown_on_exit=False)
        self._meter = self._provider.get_meter("headrace", __version__)

    def observed(self, moment: Reading) -> None:
        """Learn which numbers there are; some are known later than others."""
        for metric in all_metrics(moment.progress):
            if metric.name in self._known:
                continue
            self._known.add(metric.name)
            counter = metric.kind == "counter"
            make = self._meter.create_observable_counter if counter else self._meter.create_observable_gauge
            make(metric.name, [partial(self._observe, metric.name)], description=metric.doc)

    def ended(self, last: Reading) -> None:
        """Send the last numbers, and no more."""
        self._provider.shutdown(timeout_millis=_LAST_MILLISECONDS)

    def _observe(self, name: str, options: CallbackOptions) -> Iterator[Observation]:
        from opentelemetry.metrics import Observation

        metric = self._metrics().get(name)
        for labels, value in () if metric is None else metric.values:
            yield Observation(value, {"pipeline": self._pipeline, **labels})

    def _metrics(self) -> dict[str, Metric]:
        """The numbers of the last look, made once for all that ask."""
        newest = self._newest()
        if newest is None:
            return {}
        if self._of_progress[0] is not newest:
            self._of_progress = (newest, {metric.name: metric for metric in all_metrics(newest)})
        return self._of_progress[1]
