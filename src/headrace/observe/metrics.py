"""A running pipeline's numbers under stable names, for whatever collects them.

Prometheus' own client writes them in its text format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headrace.errors import OptionError
from headrace.observe.progress import PipelineProgress, mean_stages
from headrace.sources.health import CaptureState

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


@dataclass(frozen=True)
class Metric:
    """One number, or several that labels tell apart.

    Args:
        name: by Prometheus' customs.
        kind: `counter` only grows while the run lasts, `gauge` does not.
        doc: what it says, with the unit.
        values: each value with its labels.
    """

    name: str
    kind: Literal["counter", "gauge"]
    doc: str
    values: tuple[tuple[Mapping[str, str], float], ...]


def all_metrics(progress: PipelineProgress) -> list[Metric]:
    """The numbers of now; what is not known is left out."""
    health = progress.health
    known = health is not None and health.state is not CaptureState.UNKNOWN
    messages = progress.messages
    complete = progress.complete_until
    delays = progress.delays
    states = Counter(table.state for table in progress.tables)
    metrics = [
        _one("headrace_batches_total", "counter", "Batches in all sinks since the start of the run.", progress.batches),
        Metric(
            "headrace_rows_total",
            "counter",
            "Rows in all sinks since the start of the run, by table and operation "
            "(r read, c create, u update, d delete, t truncate).",
            tuple(
                ({"table": state.table, "op": op}, float(rows))
                for state in progress.tables
                for op, rows in state.rows.items()
                if op != "error"
            ),
        ),
        _one("headrace_rows_per_second", "gauge", "Rows per second over the last seconds.", progress.rows_per_second),
        _one(
            "headrace_lag_seconds",
            "gauge",
            "Age of the oldest change that is not in all sinks; 0 on an idle source.",
            progress.lag_seconds,
        ),
        _one(
            "headrace_behind_commits",
            "gauge",
            "Captured commits that are not in all sinks, of Oracle those that were mined; at most 100,000.",
            progress.behind_commits,
        ),
        _one(
            "headrace_behind_messages",
            "gauge",
            "Messages that are not in all sinks, as of the last batch.",
            progress.behind_messages,
        ),
        Metric(
            "headrace_snapshot_rows_remaining",
            "gauge",
            "Rows of a table's snapshot that are not read yet, by the estimate of the source's catalog.",
            tuple(
                ({"table": state.table}, float(state.snapshot_left))
                for state in progress.tables
                if state.snapshot_left is not None
            ),
        ),
        _one(
            "headrace_complete_until_seconds",
            "gauge",
            "The sinks have everything committed before this time; seconds since 1970.",
            None if complete is None else complete.timestamp(),
        ),
        Metric(
            "headrace_table_complete_until_seconds",
            "gauge",
            "The sinks have everything committed in a table before this time; seconds since 1970.",
            tuple(
                ({"table": state.table}, state.complete_until.timestamp())
                for state in progress.tables
                if state.complete_until is not None
            ),
        ),
        Metric(
            "headrace_tables",
            "gauge",
            "Tables that the pipeline has captured, by state.",
            tuple(({"state": state}, float(count)) for state, count in states.items()),
        ),
        _one(
            "headrace_parked_tables",
            "gauge",
            "Tables whose changes are left out since they could not be read or written.",
            sum(bool(table.parked) for table in progress.tables),
        ),
        Metric(
            "headrace_delay_seconds",
            "gauge",
            "Age of changes when they were in all sinks, over the last batches, each by its oldest change.",
            () if delays is None else tuple(({"quantile": text}, value) for text, value in delays.by_quantile.items()),
        ),
        Metric(
            "headrace_batch_seconds",
            "gauge",
            "Mean time of a batch over the last batches, by stage.",
            tuple(({"stage": stage}, seconds) for stage, seconds in mean_stages(progress.recent).items()),
        ),
        _one(
            "headrace_warnings_total",
            "counter",
            "What the driver warned of, errors that passed among it.",
            progress.warnings,
        ),
    ]
    if health is not None:
        metrics += [
            _one(
                "headrace_capturing",
                "gauge",
                "1, or 0 when the source does not capture.",
                float(health.state is not CaptureState.NOT_CAPTURING) if known else None,
            ),
            _one(
                "headrace_capture_behind_seconds",
                "gauge",
                "Seconds by which the source's own capture is behind.",
                health.behind_seconds,
            ),
            _one("headrace_retention_seconds", "gauge", "How long the source keeps changes.", health.retention_seconds),
            _one(
                "headrace_retention_headroom_seconds",
                "gauge",
                "How long until the source may delete a change that is not in all sinks.",
                health.headroom_seconds,
            ),
            _one("headrace_lost_tables", "gauge", "Tables whose needed changes were deleted.", len(health.lost)),
            _one(
                "headrace_uncaptured_tables",
                "gauge",
                "Tables that the pipeline wants and the source no longer captures.",
                len(health.uncaptured),
            ),
            _one(
                "headrace_source_log_used_bytes",
                "gauge",
                "Bytes of the source's log in use while its capture has a problem.",
                health.log_used_bytes,
            ),
            _one(
                "headrace_source_log_retained_bytes",
                "gauge",
                "Bytes of its log that the source keeps for the pipeline.",
                health.retained_bytes,
            ),
            _one(
                "headrace_source_log_headroom_bytes",
                "gauge",
                "Bytes that the source may write until it drops log that the pipeline needs.",
                health.headroom_bytes,
            ),
        ]
    if messages:
        reasons = tuple(({"reason": reason}, float(count)) for reason, count in messages.errors.items())
        metrics += [
            Metric("headrace_rejected_rows_total", "counter", "Messages that could not be read, by reason.", reasons),
            _one(
                "headrace_no_event_messages_total",
                "counter",
                "Messages that are not events.",
                messages.no_event,
            ),
            _one(
                "headrace_dead_letters_total",
                "counter",
                "Unreadable messages in the dead-letter sink.",
                messages.dead_letters,
            ),
            _one(
                "headrace_left_out_messages_total",
                "counter",
                "Unreadable messages that no sink has.",
                messages.left_out,
            ),
            _one(
                "headrace_shortened_changes_total",
                "counter",
                "Changes sent without their large values.",
                messages.shortened,
            ),
            Metric(
                "headrace_out_of_range_values_total",
                "counter",
                "Values sent as null or as the nearest value by table and column, because the format can't hold them.",
                tuple(({"table": t, "column": c}, n) for t, c, n in _by_column(messages.out_of_range)),
            ),
            Metric(
                "headrace_null_values_total",
                "counter",
                "Values written as NULL by table and column, because the columns of tables have no place for them.",
                tuple(({"table": t, "column": c}, n) for t, c, n in _by_column(messages.nulled)),
            ),
        ]
    return [metric for metric in metrics if metric.values]


def metrics(progress: PipelineProgress) -> dict[str, float]:
    """The same numbers by name; labels follow the name, as in `headrace_rows_total{table="dbo.t",op="c"}`."""
    return {
        f"{metric.name}{_labels_text(labels)}": value
        for metric in all_metrics(progress)
        for labels, value in metric.values
    }


def _one(name: str, kind: Literal["counter", "gauge"], doc: str, value: float | None) -> Metric:
    return Metric(name, kind, doc, () if value is None else (({}, float(value)),))


def _by_column(tables: Mapping[str, Mapping[str, int]]) -> list[tuple[str, str, float]]:
    return [(table, column, float(n)) for table, columns in tables.items() for column, n in columns.items()]


def _labels_text(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()) + "}"


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
